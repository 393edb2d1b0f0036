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
	  "there is no such export or directory, or it is not shown to this node" },
	{ ENOTDIR, ERROR_NOT_FOUND, "the path on the server, or the target path, is not a directory" },
	{ ESTALE, ERROR_UNAVAILABLE,
	  "the server has just lost its handle of the directory: it was removed, or the server is being moved" },
	{ EACCES, ERROR_PERMISSION_DENIED,
	  "the export does not allow this node's address, or wants another sec= or the option 'insecure'" },
	{ EPERM, ERROR_PERMISSION_DENIED,
	  "the server refuses this node, or csi-nfs may not mount here (it needs CAP_SYS_ADMIN)" },
	{ E2BIG, ERROR_INVALID_ARGUMENT, "the mount options are longer than the kernel takes" },
	{ EINVAL, ERROR_INVALID_ARGUMENT, "the kernel does not take these mount options" },
	{ EPROTONOSUPPORT, ERROR_FAILED_PRECONDITION,
	  "server and node have no NFS version in common, of those asked for" },
	{ ENODEV, ERROR_FAILED_PRECONDITION, "the kernel has no NFS client: load the module nfs" },
	{ EBUSY, ERROR_FAILED_PRECONDITION, "this is mounted there already" },
	{ ECONNREFUSED, ERROR_UNAVAILABLE, "nothing listens there" },
	{ EHOSTUNREACH, ERROR_UNAVAILABLE, "no route to it" },
	{ ENETUNREACH, ERROR_UNAVAILABLE, "no route to it" },
	{ ETIMEDOUT, ERROR_UNAVAILABLE, "no answer" },
	{ ECONNRESET, ERROR_UNAVAILABLE, "it closed the connection" },
	{ EIO, ERROR_UNAVAILABLE, "the server failed; look into its log" },
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

/* The rest of the path, which was walked here. */
static int walk_error(const char *source, int e, struct error *err)
{
	switch (e) {
	case ELOOP:
		return error_sys(err, ERROR_FAILED_PRECONDITION, e,
				 "mounting '%s': a symbolic link is on the way, and those that users can make are not followed; name the directory itself",
				 source);
	case ENOSYS:
		return error_sys(err, ERROR_FAILED_PRECONDITION, e,
				 "mounting '%s': inline volumes, and those several directories below their share, need Linux 5.6 or later",
				 source);
	case EACCES:
		return error_sys(err, ERROR_PERMISSION_DENIED, e,
				 "mounting '%s': root, or whom the server squashes it to, must be let search the directories above it",
				 source);
	case EPERM:
		return error_sys(err, ERROR_PERMISSION_DENIED, e,
				 "mounting '%s': csi-nfs needs CAP_SYS_ADMIN and CAP_SYS_CHROOT for that, or the server refuses",
				 source);
	default:
		return mount_error(source, e, err);
	}
}

/* What mount.nfs says, in its own words: it has no other way to say it. */
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
	{ "No route to host", ERROR_UNAVAILABLE, "" },
	{ "Network is unreachable", ERROR_UNAVAILABLE, "" },
	{ "Stale file handle", ERROR_NOT_FOUND, "; the directory was removed on the server" },
};

static int program_error(const char *source, const struct helper_reply *reply, const char *log,
			 struct error *err)
{
	int len = (int)strcspn(log, "\n");
	size_t i;

	if (reply->error == ENOENT)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "mounting '%s': NFSv3 with locks needs mount.nfs, which is not installed: install nfs-common, or add the mount option nolock",
				 source);
	for (i = 0; i < ARRAY_SIZE(program_messages); i++)
		if (strstr(log, program_messages[i].text) != NULL)
			return error_set(err, program_messages[i].code, "mounting '%s': %.*s%s",
					 source, len, log, program_messages[i].hint);
	return error_set(err, ERROR_INTERNAL, "mounting '%s' by mount.nfs: %.*s", source, len, log);
}

int mount_reach_error(const struct mount_request *q, const char *address, int e, struct error *err)
{
	if (e == ETIMEDOUT)
		return error_set(err, ERROR_UNAVAILABLE,
				 "NFS server '%s' (%s) does not answer; is it running, and does a firewall let us through?",
				 q->server, address);
	return error_sys(err, ERROR_UNAVAILABLE, e, "cannot reach NFS server '%s' (%s)", q->server,
			 address);
}

static int reply_error(const struct mount_request *q, const struct mount_sources *s,
		       const struct helper_reply *reply, const char *log, struct error *err)
{
	const char *source = s->whole;

	switch (reply->step) {
	case HELPER_RESOLVE:
		return error_set(err, ERROR_UNAVAILABLE, "%s", reply->text);
	case HELPER_REACH:
		return mount_reach_error(q, reply->address, reply->error, err);
	case HELPER_VERSION:
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "NFS server '%s' (%s) speaks versions %u to %u, which is not what the mount options ask for",
				 q->server, reply->address, reply->low, reply->high);
	case HELPER_MOUNT:
		return mount_error(s->top, reply->error, err);
	case HELPER_PROGRAM:
		return program_error(s->top, reply, log, err);
	case HELPER_WALK:
		return walk_error(source, reply->error, err);
	case HELPER_CHMOD:
		return error_sys(err, ERROR_PERMISSION_DENIED, reply->error,
				 "setting mountPermissions %04o on '%s', was root squashed? It was unmounted again",
				 q->mode, source);
	default:
		return error_set(err, ERROR_INTERNAL, "mounting '%s': the helper failed at step %d",
				 source, reply->step);
	}
}

static void tell_own_address(const struct helper_reply *reply, struct error *err)
{
	size_t len = strlen(err->msg);

	if (reply->client[0] != '\0' &&
	    (err->code == ERROR_PERMISSION_DENIED || err->code == ERROR_NOT_FOUND))
		(void)snprintf(err->msg + len, sizeof(err->msg) - len,
			       "; this node's address there is %.63s", reply->client);
}

int mount_reply_error(const struct mount_request *q, const struct mount_sources *s,
		      const struct helper_reply *reply, const char *log, struct error *err)
{
	int r = reply_error(q, s, reply, log, err);

	tell_own_address(reply, err);
	return r;
}
