/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static const struct {
	int error;
	enum error_code code;
	const char *hint;
} mount_errors[] = {
	{ ENOENT, ERROR_NOT_FOUND,
	  "there is no such export or directory, or the server does not show it to this node" },
	{ ENOTDIR, ERROR_NOT_FOUND, "the path on the server is not a directory" },
	{ ESTALE, ERROR_UNAVAILABLE,
	  "the server no longer knows the directory's handle: it was removed, or the server is being moved" },
	{ EACCES, ERROR_PERMISSION_DENIED,
	  "the export does not allow this node's address, or needs another sec= or the export option 'insecure'" },
	{ EPERM, ERROR_PERMISSION_DENIED,
	  "the server refuses this node, or csi-nfs may not mount (it needs CAP_SYS_ADMIN)" },
	{ E2BIG, ERROR_INVALID_ARGUMENT, "the mount options are longer than the kernel accepts" },
	{ EINVAL, ERROR_INVALID_ARGUMENT, "the kernel does not accept these mount options" },
	{ EPROTONOSUPPORT, ERROR_FAILED_PRECONDITION,
	  "server and node have none of the requested NFS versions in common" },
	{ ENODEV, ERROR_FAILED_PRECONDITION, "the kernel has no NFS client: load the module nfs" },
	{ EBUSY, ERROR_ABORTED, "something was mounted there meanwhile; try again" },
	{ ECONNREFUSED, ERROR_UNAVAILABLE, "nothing listens there" },
	{ EHOSTUNREACH, ERROR_UNAVAILABLE, "no route to it" },
	{ ENETUNREACH, ERROR_UNAVAILABLE, "no route to it" },
	{ EHOSTDOWN, ERROR_UNAVAILABLE, "no route to it" },
	{ ENETDOWN, ERROR_UNAVAILABLE, "no route to it" },
	{ ETIMEDOUT, ERROR_UNAVAILABLE, "no answer" },
	{ ECONNRESET, ERROR_UNAVAILABLE, "the server closed the connection" },
	{ ECONNABORTED, ERROR_UNAVAILABLE, "the server closed the connection" },
	{ EPIPE, ERROR_UNAVAILABLE, "the server closed the connection" },
	{ EIO, ERROR_UNAVAILABLE, "the server failed; see its log" },
	{ EREMOTEIO, ERROR_UNAVAILABLE, "the server failed; see its log" },
	{ ENOMEM, ERROR_RESOURCE_EXHAUSTED, "the node is out of memory" },
};

static int mount_error(const char *source, int e, struct error *err)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(mount_errors); i++)
		if (mount_errors[i].error == e)
			return error_sys(err, mount_errors[i].code, e, "mounting '%s': %s", source,
					 mount_errors[i].hint);
	return error_sys(err, ERROR_INTERNAL, e, "mounting '%s'", source);
}

/* A failure on the way from the top to the volume. */
static int walk_error(const char *source, int e, struct error *err)
{
	switch (e) {
	case ELOOP:
		return error_sys(err, ERROR_FAILED_PRECONDITION, e,
				 "mounting '%s': a symbolic link is on the way; links that users can make are not followed, name the directory itself",
				 source);
	case ENOSYS:
		return error_sys(err, ERROR_FAILED_PRECONDITION, e,
				 "mounting '%s': inline volumes, and volumes several directories below their share, need Linux 5.6 or later",
				 source);
	case EACCES:
		return error_sys(err, ERROR_PERMISSION_DENIED, e,
				 "mounting '%s': root, or the user that the server squashes it to, must be able to search the directories above it",
				 source);
	case EPERM:
		return error_sys(err, ERROR_PERMISSION_DENIED, e,
				 "mounting '%s': csi-nfs needs CAP_SYS_ADMIN and CAP_SYS_CHROOT for that, or the server refuses it",
				 source);
	case EINVAL:
		/* This errno is about a namespace or the target path, not about the options. */
		return error_sys(err, ERROR_ABORTED, e,
				 "mounting '%s': cannot move the directory to the target path; try again",
				 source);
	default:
		return mount_error(source, e, err);
	}
}

/* Messages of mount.nfs: its exit status alone does not tell why it failed. */
static const struct {
	const char *text;
	enum error_code code;
	const char *hint;
} program_messages[] = {
	{ "rpc.statd is not running", ERROR_FAILED_PRECONDITION,
	  "; start rpc.statd on the node, or add the mount option nolock" },
	{ "access denied", ERROR_PERMISSION_DENIED,
	  "; there is no such export, or it does not allow this node's address" },
	{ "No such file or directory", ERROR_NOT_FOUND, "" },
	{ "incorrect mount option", ERROR_INVALID_ARGUMENT, "" },
	{ "requested NFS version", ERROR_FAILED_PRECONDITION,
	  "; with the server's mount service on a port of its own, give mountport=" },
	{ "Connection refused", ERROR_UNAVAILABLE, "" },
	{ "timed out", ERROR_UNAVAILABLE, "" },
	{ "is busy or already mounted", ERROR_ABORTED, "; try again" },
	{ "No route to host", ERROR_UNAVAILABLE, "" },
	{ "Network is unreachable", ERROR_UNAVAILABLE, "" },
	{ "Connection reset", ERROR_UNAVAILABLE, "" },
	{ "Stale file handle", ERROR_UNAVAILABLE,
	  "; it was removed, or the server is being moved" },
	{ "mount system call failed", ERROR_UNAVAILABLE, "; the server failed, see its log" },
	{ "Remote I/O error", ERROR_UNAVAILABLE, "; the server failed, see its log" },
	{ "is not a directory", ERROR_NOT_FOUND, "" },
	{ "Operation not permitted", ERROR_PERMISSION_DENIED,
	  "; the server refuses this node, or csi-nfs may not mount" },
	{ "Cannot allocate memory", ERROR_RESOURCE_EXHAUSTED, "; the node is out of memory" },
	{ "No such device", ERROR_FAILED_PRECONDITION,
	  "; the kernel has no NFS client: load the module nfs" },
};

/*
 * Messages begin with the program's name. Others may have written before: mount.nfs has rpc.statd
 * started by systemctl, which says "Created symlink ...".
 */
static const char *program_log(const char *log)
{
	const char *own = strstr(log, "mount.nfs: ");

	return own != NULL ? own : log;
}

static int program_error(const char *source, const struct mount_answer *answer, struct error *err)
{
	const char *log = program_log(answer->log);
	const int len = (int)strcspn(log, "\n");
	size_t i;

	if (answer->reply.error == ENOENT)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "mounting '%s': NFSv3 with locks needs '%s', which is not installed: install nfs-common (Debian, Ubuntu) or nfs-utils (Fedora, Alpine), or add the mount option nolock",
				 source, MOUNT_NFS);
	for (i = 0; i < ARRAY_SIZE(program_messages); i++)
		if (strstr(log, program_messages[i].text) != NULL)
			return error_set(err, program_messages[i].code, "mounting '%s': %.*s%s",
					 source, len, log, program_messages[i].hint);
	return error_set(err, ERROR_INTERNAL, "mounting '%s' by mount.nfs: %.*s", source, len, log);
}

int mount_reach_error(const struct mount_request *request, int e, struct error *err)
{
	/* Omit the address that was tried last: the name service may list them in any order. */
	if (e == ETIMEDOUT)
		return error_set(err, ERROR_UNAVAILABLE,
				 "NFS server '%s' does not answer; is it running, and does a firewall let us through?",
				 request->server);
	return error_sys(err, ERROR_UNAVAILABLE, e, "cannot reach NFS server '%s'",
			 request->server);
}

/* Only a refusal is final: after any other failure of the server the next call may do better. */
static int chmod_error(const struct mount_request *request, const char *source, int e,
		       struct error *err)
{
	if (e != EPERM && e != EACCES)
		return error_sys(err, ERROR_UNAVAILABLE, e,
				 "setting mountPermissions %04o on '%s'; it was unmounted again",
				 request->mode, source);
	return error_sys(err, ERROR_PERMISSION_DENIED, e,
			 "setting mountPermissions %04o on '%s', was root squashed? It was unmounted again",
			 request->mode, source);
}

static int step_error(const struct mount_request *request, const struct mount_sources *sources,
		      const struct mount_answer *answer, struct error *err)
{
	const struct mount_reply *reply = &answer->reply;

	switch (reply->step) {
	case MOUNT_STEP_RESOLVE:
		return error_set(err, ERROR_UNAVAILABLE, "%s", reply->text);
	case MOUNT_STEP_REACH:
		return mount_reach_error(request, reply->error, err);
	case MOUNT_STEP_MOUNTD:
		return error_sys(err, ERROR_UNAVAILABLE, reply->error,
				 "the mount service of NFS server '%s', which NFSv3 needs, does not answer; does a firewall let rpcbind and mountd (mountport=) through?",
				 request->server);
	case MOUNT_STEP_VERSION:
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "NFS server '%s' has versions %u to %u, which is not what the mount options ask for",
				 request->server, reply->low, reply->high);
	case MOUNT_STEP_TARGET:
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "target_path: '%s' is not a directory; remove it",
				 request->target);
	case MOUNT_STEP_MOUNT:
		return mount_error(sources->top, reply->error, err);
	case MOUNT_STEP_PROGRAM:
		return program_error(sources->top, answer, err);
	case MOUNT_STEP_WALK:
		return walk_error(sources->whole, reply->error, err);
	case MOUNT_STEP_CHMOD:
		return chmod_error(request, sources->whole, reply->error, err);
	default:
		return error_set(err, ERROR_INTERNAL, "mounting '%s': the helper failed at step %d",
				 sources->whole, reply->step);
	}
}

int mount_reply_error(const struct mount_request *request, const struct mount_sources *sources,
		      const struct mount_answer *answer, struct error *err)
{
	const int r = step_error(request, sources, answer, err);
	const size_t len = strlen(err->msg);

	/* An administrator who has to allow this node needs its address. */
	if (answer->reply.client[0] != '\0' &&
	    (err->code == ERROR_PERMISSION_DENIED || err->code == ERROR_NOT_FOUND))
		(void)snprintf(err->msg + len, sizeof(err->msg) - len,
			       "; this node's address there is %.63s", answer->reply.client);
	return r;
}
