/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/mounter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "mount/helper.h"
#include "mount/mountinfo.h"
#include "mount/options.h"
#include "mount/process.h"
#include "mount/reach.h"
#include "net/breaker.h"

#define MOUNTINFO "/proc/self/mountinfo"
#define SELF "/proc/self/exe"

/* Mounts that are taken off one target; a retry goes on from there. */
#define STACK_MAX 32

struct real_mounter {
	struct mounter mounter; /* first: the two are the same pointer */
	const char *helper;
	struct process_reaper reaper;
	struct net_breaker *mounts, *umounts, *looks; /* by server */
};

/* Runs a helper on a request. Errors as process_run(); the reply is filled in only with 0. */
static int run_helper(struct real_mounter *m, const char *const fields[HELPER_FIELDS],
		      unsigned int timeout_ms, struct helper_reply *reply, char log[PROCESS_LOG_SIZE])
{
	cleanup_buf struct buf request = { .max = HELPER_REQUEST_MAX - 1 };
	struct process p = {
		.path = m->helper,
		.argument = MOUNT_HELPER_COMMAND,
		.reply = reply,
		.reply_len = sizeof(*reply),
	};
	size_t i;
	int r;

	for (i = 0; i < HELPER_FIELDS; i++) {
		const char *field = fields[i] != NULL ? fields[i] : "";

		r = buf_append(&request, field, strlen(field) + 1);
		if (r < 0)
			return r;
	}
	p.request = request.data;
	p.request_len = request.len;
	r = process_run(&m->reaper, &p, clock_now_ns() + timeout_ms * CLOCK_NS_PER_MS);
	memcpy(log, p.log, PROCESS_LOG_SIZE);
	if (r == 0 && reply->magic != HELPER_MAGIC)
		return -EPROTO;
	return r;
}

/* A helper that could not be run, or that gave no answer. */
static int helper_failed(const char *what, int r, const char *log, struct error *err)
{
	const int len = (int)strcspn(log, "\n");

	if (r == -ETIMEDOUT)
		return error_set(err, ERROR_DEADLINE_EXCEEDED,
				 "%s took too long and was given up; the server may have stopped answering",
				 what);
	if (r == -EAGAIN)
		return error_set(err, ERROR_UNAVAILABLE,
				 "%s: too many helper processes hang on dead servers", what);
	if (r == -EPROTO)
		return error_set(err, ERROR_ABORTED, "%s: the helper process died%s%.*s; try again",
				 what, len > 0 ? ": " : "", len, log);
	return error_sys(err, ERROR_ABORTED, -r, "%s: cannot run a helper process", what);
}

/* -------- mounting -------- */

static const struct {
	int error;
	enum error_code code;
	const char *hint;
} mount_errors[] = {
	{ ENOENT, ERROR_NOT_FOUND,
	  "there is no such export or directory, or it is not shown to this node" },
	{ ENOTDIR, ERROR_NOT_FOUND, "the path on the server, or the target path, is not a directory" },
	{ ESTALE, ERROR_NOT_FOUND, "the directory was removed on the server" },
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

static int reach_error(const struct mount_request *q, const char *address, int e, struct error *err)
{
	if (e == ETIMEDOUT)
		return error_set(err, ERROR_UNAVAILABLE,
				 "NFS server '%s' (%s) does not answer; is it running, and does a firewall let us through?",
				 q->server, address);
	return error_sys(err, ERROR_UNAVAILABLE, e, "cannot reach NFS server '%s' (%s)", q->server,
			 address);
}

static int reply_error(const struct mount_request *q, const char *source,
		       const struct helper_reply *reply, const char *log, struct error *err)
{
	switch (reply->step) {
	case HELPER_RESOLVE:
		return error_set(err, ERROR_UNAVAILABLE, "%s", reply->text);
	case HELPER_REACH:
		return reach_error(q, reply->address, reply->error, err);
	case HELPER_VERSION:
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "NFS server '%s' (%s) speaks versions %u to %u, which is not what the mount options ask for",
				 q->server, reply->address, reply->low, reply->high);
	case HELPER_MOUNT:
		return mount_error(source, reply->error, err);
	case HELPER_PROGRAM:
		return program_error(source, reply, log, err);
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

/* Whether any address of the server answers. -EHOSTDOWN with UNAVAILABLE where none does. */
static int ask_server(const struct mount_request *q, const struct mount_options *o, struct error *err)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	char text[64] = "";
	uint32_t low, high;
	size_t n, i;
	int r;

	if (o->no_ping)
		return 0;
	r = net_resolve(q->server, addresses, &n, err);
	if (r < 0)
		return -EHOSTDOWN;
	for (i = 0; i < n; i++) {
		r = mount_ping(&addresses[i], o, &low, &high);
		/* What it speaks, the helper finds out. */
		if (r == 0 || r == -EPROTONOSUPPORT)
			return 0;
		net_address_text(&addresses[i], text, sizeof(text));
	}
	(void)reach_error(q, text, -r, err);
	return -EHOSTDOWN;
}

/* A place among the mounts from that server, which is known to answer. */
static int enter_server(struct real_mounter *m, const struct mount_request *q,
			const struct mount_options *o, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	bool ask;
	int r;

	r = net_breaker_enter(m->mounts, q->server, o->port, &ask, err);
	if (r < 0 || !ask)
		return r;
	r = ask_server(q, o, &why);
	if (r == 0) {
		net_breaker_answered(m->mounts, q->server, o->port);
		return 0;
	}
	net_breaker_failed(m->mounts, q->server, o->port, &why);
	net_breaker_leave(m->mounts, q->server, o->port, true);
	*err = why;
	return r;
}

static int run_mount(struct real_mounter *m, const struct mount_request *q, const char *source,
		     bool *ret_silent, struct error *err)
{
	char driver[16], mode[8], log[PROCESS_LOG_SIZE];
	struct helper_reply reply;
	int r;

	(void)snprintf(driver, sizeof(driver), "%d", (int)getpid());
	(void)snprintf(mode, sizeof(mode), "%o", q->mode);
	r = run_helper(m,
		       (const char *const[HELPER_FIELDS]){
			       [HELPER_OPERATION] = "mount",
			       [HELPER_DRIVER] = driver,
			       [HELPER_TARGET] = q->target,
			       [HELPER_SERVER] = q->server,
			       [HELPER_PATH] = q->path,
			       [HELPER_OPTIONS] = q->options,
			       [HELPER_READ_ONLY] = q->read_only ? "1" : "",
			       [HELPER_MODE] = mode,
		       },
		       MOUNT_TIMEOUT_MS, &reply, log);
	*ret_silent = r < 0 || reply.step == HELPER_RESOLVE || reply.step == HELPER_REACH;
	if (r < 0) {
		(void)helper_failed("mounting", r, log, err);
		error_prefix(err, "'%s'", source);
		return r;
	}
	if (reply.step == HELPER_DONE)
		return 0;
	r = reply_error(q, source, &reply, log, err);
	tell_own_address(&reply, err);
	return r;
}

static int real_mount(struct mounter *mounter, const struct mount_request *q, struct error *err)
{
	struct real_mounter *m = (struct real_mounter *)mounter;
	cleanup_mount_options struct mount_options options = { .rest = NULL };
	cleanup_free char *source = NULL;
	bool silent = true;
	int r;

	r = mount_options_parse(&options, q->options, err);
	if (r == -ENOMEM)
		return error_oom(err);
	if (r < 0)
		return r;
	if (asprintf(&source, strchr(q->server, ':') != NULL ? "[%s]:%s" : "%s:%s", q->server,
		     q->path) < 0) {
		source = NULL;
		return error_oom(err);
	}
	r = enter_server(m, q, &options, err);
	if (r < 0)
		return r;
	r = run_mount(m, q, source, &silent, err);
	net_breaker_leave(m->mounts, q->server, options.port, silent);
	return r;
}

/* -------- what is mounted -------- */

static int find_resolved(const char *path, struct mount_info **ret, struct error *err)
{
	int r = mountinfo_find(MOUNTINFO, path, ret);

	if (r < 0)
		return error_sys(err, ERROR_INTERNAL, -r, "cannot read %s", MOUNTINFO);
	return 0;
}

static int resolve_target(const char *target, char **ret, struct error *err)
{
	int r = mountinfo_resolve(target, ret);

	if (r == -ENOENT || r == -ENOTDIR)
		return -ENOENT;
	if (r < 0)
		return error_sys(err, ERROR_INTERNAL, -r, "cannot resolve the directory above '%s'",
				 target);
	return 0;
}

static int real_find(struct mounter *mounter, const char *target, struct mount_info **ret,
		     struct error *err)
{
	cleanup_free char *path = NULL;
	int r;

	(void)mounter;
	r = resolve_target(target, &path, err);
	if (r == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	return r < 0 ? r : find_resolved(path, ret, err);
}

/* -------- looking at a mount -------- */

/* The server as mountinfo tells it: its address or, where it does not, its name. */
static void server_of(const struct mount_info *info, char server[NET_SERVER_MAX + 1])
{
	const char *name = info->address != NULL ? info->address : info->source;
	const char *end = info->address != NULL ? NULL : strstr(name, ":/");

	(void)snprintf(server, NET_SERVER_MAX + 1, "%.*s",
		       end != NULL ? (int)(end - name) : NET_SERVER_MAX, name);
}

static int look_failed(const struct mount_info *info, const char *server,
		       const struct helper_reply *reply, struct error *err)
{
	if (reply->step == HELPER_CHMOD)
		return error_sys(err, ERROR_PERMISSION_DENIED, reply->error,
				 "setting mountPermissions on '%s', was root squashed?",
				 info->source);
	if (reply->error == ESTALE || reply->error == ENOENT) {
		(void)error_set(err, ERROR_UNAVAILABLE,
				"the mount of '%s' is stale: its directory is gone on the server",
				info->source);
		return -ESTALE;
	}
	/* 512 is the kernel's own, and comes out where a call was broken off (ERESTARTSYS). */
	return error_sys(err, ERROR_UNAVAILABLE, reply->error == 512 ? EIO : reply->error,
			 "looking at the mount of '%s' from server %s", info->source, server);
}

/* Runs a helper that asks the server through the mount, unless the server is known to be down. */
static int look(struct real_mounter *m, const char *operation, const char *target,
		const struct mount_info *info, uint32_t mode, struct helper_reply *reply,
		struct error *err)
{
	char server[NET_SERVER_MAX + 1], driver[16], octal[8], log[PROCESS_LOG_SIZE];
	struct error why = { .code = ERROR_OK };
	bool ask;
	int r;

	server_of(info, server);
	r = net_breaker_enter(m->looks, server, 0, &ask, err);
	if (r < 0)
		return r;
	(void)snprintf(driver, sizeof(driver), "%d", (int)getpid());
	(void)snprintf(octal, sizeof(octal), "%o", mode);
	r = run_helper(m,
		       (const char *const[HELPER_FIELDS]){
			       [HELPER_OPERATION] = operation,
			       [HELPER_DRIVER] = driver,
			       [HELPER_TARGET] = target,
			       [HELPER_MODE] = octal,
		       },
		       MOUNT_STAT_TIMEOUT_MS, reply, log);
	if (r == -ETIMEDOUT)
		(void)error_set(&why, ERROR_UNAVAILABLE,
				"server %s does not answer; its mounts wait for it", server);
	else if (r < 0)
		(void)helper_failed("looking at the mount", r, log, &why);
	if (r == -ETIMEDOUT)
		net_breaker_failed(m->looks, server, 0, &why);
	else if (ask && r == 0)
		net_breaker_answered(m->looks, server, 0);
	else if (ask)
		net_breaker_gave_up(m->looks, server, 0);
	net_breaker_leave(m->looks, server, 0, r < 0);
	if (r == 0 && reply->step != HELPER_DONE)
		r = look_failed(info, server, reply, &why);
	if (r < 0)
		*err = why;
	return r;
}

static int real_verify(struct mounter *mounter, const char *target, const struct mount_info *info,
		       uint32_t mode, struct error *err)
{
	struct helper_reply reply = { .error = 0 };

	return look((struct real_mounter *)mounter, "verify", target, info, mode, &reply, err);
}

static int real_usage(struct mounter *mounter, const char *target, const struct mount_info *info,
		      struct mount_usage *ret, struct error *err)
{
	struct helper_reply reply = { .error = 0 };
	int r;

	r = look((struct real_mounter *)mounter, "statvfs", target, info, 0, &reply, err);
	if (r == 0)
		*ret = reply.usage;
	return r;
}

/* -------- unmounting -------- */

static const struct {
	int flags;
	unsigned int timeout_ms;
} umount_steps[] = {
	{ 0, MOUNT_QUICK_TIMEOUT_MS },
	{ 0, MOUNT_UMOUNT_TIMEOUT_MS },
	{ MNT_FORCE, MOUNT_FORCE_TIMEOUT_MS },
	{ MNT_DETACH, MOUNT_FORCE_TIMEOUT_MS },
};

/*
 * One mount off the top. Whether that went well is read from mountinfo alone: with a dead server
 * NFSv4.1 detaches the mount and does not return from the call.
 */
static int run_umounts(struct real_mounter *m, const char *path, unsigned int depth,
		       bool shares_superblock, struct error *err)
{
	char driver[16], flags[16], log[PROCESS_LOG_SIZE] = "";
	struct helper_reply reply = { .error = 0 };
	int r = 0;
	size_t i;

	(void)snprintf(driver, sizeof(driver), "%d", (int)getpid());
	for (i = 0; i < ARRAY_SIZE(umount_steps); i++) {
		cleanup_mount_info struct mount_info *info = NULL;
		int found;

		/* It fails the calls in flight of every mount of that superblock: other volumes'. */
		if ((umount_steps[i].flags & MNT_FORCE) && shares_superblock)
			continue;
		(void)snprintf(flags, sizeof(flags), "%d", umount_steps[i].flags);
		r = run_helper(m,
			       (const char *const[HELPER_FIELDS]){
				       [HELPER_OPERATION] = "umount",
				       [HELPER_DRIVER] = driver,
				       [HELPER_TARGET] = path,
				       [HELPER_FLAGS] = flags,
			       },
			       umount_steps[i].timeout_ms, &reply, log);
		found = find_resolved(path, &info, err);
		if (found < 0)
			return found;
		if (info == NULL || info->depth < depth)
			return 0;
	}
	if (r < 0)
		return helper_failed("unmounting", r, log, err);
	return error_sys(err, ERROR_ABORTED, reply.error != 0 ? reply.error : EBUSY,
			 "cannot unmount '%s'", path);
}

static int unmount_top(struct real_mounter *m, const char *path, const struct mount_info *info,
		       struct error *err)
{
	char server[NET_SERVER_MAX + 1];
	int r;

	server_of(info, server);
	r = net_breaker_take(m->umounts, server, 0, err);
	if (r < 0)
		return r;
	r = run_umounts(m, path, info->depth, info->shares_superblock, err);
	net_breaker_leave(m->umounts, server, 0, r < 0);
	return r;
}

static int real_unmount(struct mounter *mounter, const char *target, struct error *err)
{
	struct real_mounter *m = (struct real_mounter *)mounter;
	cleanup_free char *path = NULL;
	unsigned int i;
	int r;

	r = resolve_target(target, &path, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	for (i = 0; i < STACK_MAX; i++) {
		cleanup_mount_info struct mount_info *info = NULL;

		r = find_resolved(path, &info, err);
		if (r < 0 || info == NULL)
			return r;
		if (!mount_info_is_nfs(info))
			return error_set(err, ERROR_FAILED_PRECONDITION,
					 "'%s' has a %s file system mounted, which is none of ours",
					 path, info->fstype);
		r = unmount_top(m, path, info, err);
		if (r < 0)
			return r;
	}
	return error_set(err, ERROR_ABORTED, "more than %d mounts are stacked at '%s'; try again",
			 STACK_MAX, path);
}

static const struct mounter_ops real_ops = {
	.mount = real_mount,
	.unmount = real_unmount,
	.verify = real_verify,
	.usage = real_usage,
	.find = real_find,
};

int mounter_new(struct mounter **ret, const char *helper, struct error *err)
{
	struct real_mounter *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return error_oom(err);
	m->mounter.ops = &real_ops;
	m->helper = helper != NULL ? helper : SELF;
	process_reaper_init(&m->reaper);
	if (net_breaker_new(&m->mounts, MOUNT_PLACES) < 0 ||
	    net_breaker_new(&m->umounts, UMOUNT_PLACES) < 0 ||
	    net_breaker_new(&m->looks, STAT_PLACES) < 0) {
		mounter_free(&m->mounter);
		return error_oom(err);
	}
	*ret = &m->mounter;
	return 0;
}

void mounter_sweep(struct mounter *mounter)
{
	struct real_mounter *m = (struct real_mounter *)mounter;

	net_breaker_sweep(m->mounts);
	net_breaker_sweep(m->umounts);
	net_breaker_sweep(m->looks);
}

void mounter_free(struct mounter *mounter)
{
	struct real_mounter *m = (struct real_mounter *)mounter;

	if (m == NULL)
		return;
	net_breaker_free(m->mounts);
	net_breaker_free(m->umounts);
	net_breaker_free(m->looks);
	process_reaper_done(&m->reaper);
	free(m);
}
