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
#include "mount/answer.h"
#include "mount/helper.h"
#include "mount/mountinfo.h"
#include "mount/options.h"
#include "mount/process.h"
#include "mount/reach.h"
#include "net/breaker.h"

#define MOUNTINFO "/proc/self/mountinfo"
#define SELF "/proc/self/exe"

#define OP_MOUNT "mount"
#define OP_COMPARE "compare"

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

static const char *top_of(const struct mount_request *q)
{
	return q->top != NULL ? q->top : q->path;
}

/* The part of the path that comes after the top. */
static const char *below_of(const struct mount_request *q)
{
	const char *below = q->path + strlen(top_of(q));

	return below + strspn(below, "/");
}

static void sources_done(struct mount_sources *s)
{
	free(s->whole);
	free(s->top);
}

static char *source_text(const char *server, const char *path)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, strchr(server, ':') != NULL ? "[%s]:%s" : "%s:%s", server, path) < 0)
		return NULL;
	return buf_steal(&b);
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
	(void)mount_reach_error(q, text, -r, err);
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

/* Runs the helper on a request. ret_silent: the server has not answered. */
static int run_request(struct real_mounter *m, const char *operation, const struct mount_request *q,
		       const struct mount_sources *s, bool *ret_silent, struct error *err)
{
	const bool compares = strcmp(operation, OP_COMPARE) == 0;
	char driver[16], mode[8], log[PROCESS_LOG_SIZE];
	struct helper_reply reply;
	int r;

	(void)snprintf(driver, sizeof(driver), "%d", (int)getpid());
	(void)snprintf(mode, sizeof(mode), "%o", q->mode);
	r = run_helper(m,
		       (const char *const[HELPER_FIELDS]){
			       [HELPER_OPERATION] = operation,
			       [HELPER_DRIVER] = driver,
			       [HELPER_TARGET] = q->target,
			       [HELPER_SERVER] = q->server,
			       [HELPER_PATH] = top_of(q),
			       [HELPER_BELOW] = below_of(q),
			       [HELPER_OPTIONS] = q->options,
			       [HELPER_READ_ONLY] = q->read_only ? "1" : "",
			       [HELPER_MODE] = mode,
		       },
		       compares ? MOUNT_COMPARE_TIMEOUT_MS : MOUNT_TIMEOUT_MS, &reply, log);
	*ret_silent = r < 0 || reply.step == HELPER_RESOLVE || reply.step == HELPER_REACH;
	if (r < 0) {
		(void)helper_failed(compares ? "looking at the mount" : "mounting", r, log, err);
		error_prefix(err, "'%s'", s->whole);
		return r;
	}
	if (reply.step == HELPER_DONE)
		return 0;
	if (compares && reply.step == HELPER_OTHER)
		return 1;
	return mount_reply_error(q, s, &reply, log, err);
}

/* As run_request(), where the server is known to answer. */
static int ask_helper(struct real_mounter *m, const char *operation, const struct mount_request *q,
		      struct error *err)
{
	cleanup_mount_options struct mount_options options = { .rest = NULL };
	__attribute__((cleanup(sources_done))) struct mount_sources s = {
		.whole = source_text(q->server, q->path),
		.top = source_text(q->server, top_of(q)),
	};
	bool silent = true;
	int r;

	if (s.whole == NULL || s.top == NULL)
		return error_oom(err);
	r = mount_options_parse(&options, q->options, err);
	if (r == -ENOMEM)
		return error_oom(err);
	if (r == 0)
		r = enter_server(m, q, &options, err);
	if (r < 0)
		return r;
	r = run_request(m, operation, q, &s, &silent, err);
	net_breaker_leave(m->mounts, q->server, options.port, silent);
	return r;
}

static int real_mount(struct mounter *mounter, const struct mount_request *q, struct error *err)
{
	return ask_helper((struct real_mounter *)mounter, OP_MOUNT, q, err);
}

static int real_compare(struct mounter *mounter, const struct mount_request *q, bool *ret_same,
			struct error *err)
{
	int r = ask_helper((struct real_mounter *)mounter, OP_COMPARE, q, err);

	if (r >= 0)
		*ret_same = r == 0;
	return r < 0 ? r : 0;
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
	r = net_breaker_enter(m->looks, server, info->port, &ask, err);
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
		net_breaker_failed(m->looks, server, info->port, &why);
	else if (ask && r == 0)
		net_breaker_answered(m->looks, server, info->port);
	else if (ask)
		net_breaker_gave_up(m->looks, server, info->port);
	net_breaker_leave(m->looks, server, info->port, r < 0);
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

/* Whether the server of a mount is there. Where that cannot be found out it counts as one that is. */
static bool server_answers(const struct mount_info *info)
{
	const struct mount_options how = {
		.major = info->major,
		.minor = -1,
		.port = info->port,
		.no_ping = info->no_ping,
	};
	struct net_address addresses[NET_ADDRESSES_MAX];
	uint32_t low, high;
	size_t n;
	int r;

	if (info->address == NULL || net_resolve(info->address, addresses, &n, NULL) < 0)
		return true;
	r = mount_ping(&addresses[0], &how, &low, &high);
	/* The last two are answers of an RPC service, if not the one that was hoped for. */
	return r == 0 || r == -EPROTONOSUPPORT || r == -EPROTO;
}

/*
 * Runs umount2() with these flags. Returns 0 when the mount is gone; 1 when it is still there, with what
 * happened in *ret_why; or a negative errno with the error set. Whether it is gone is read from mountinfo
 * alone: with a dead server NFSv4.1 detaches the mount and does not return from the call.
 */
static int umount_once(struct real_mounter *m, const char *path, unsigned int depth, int flags,
		       unsigned int timeout_ms, int *ret_why, char log[PROCESS_LOG_SIZE],
		       struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct helper_reply reply = { .error = 0 };
	char driver[16], text[16];
	int r;

	(void)snprintf(driver, sizeof(driver), "%d", (int)getpid());
	(void)snprintf(text, sizeof(text), "%d", flags);
	*ret_why = run_helper(m,
			      (const char *const[HELPER_FIELDS]){
				      [HELPER_OPERATION] = "umount",
				      [HELPER_DRIVER] = driver,
				      [HELPER_TARGET] = path,
				      [HELPER_FLAGS] = text,
			      },
			      timeout_ms, &reply, log);
	if (*ret_why == 0)
		*ret_why = reply.error;
	r = find_resolved(path, &info, err);
	if (r < 0)
		return r;
	return info != NULL && info->depth >= depth;
}

/*
 * One mount off the top. One that is in use (EBUSY) is detached. MNT_FORCE fails the calls in flight of
 * everybody who uses the file system, in whatever mount namespace: it is for a server that is gone, where
 * they would wait for ever, and never for one that is slow, where they would lose data.
 */
static int run_umounts(struct real_mounter *m, const char *path, const struct mount_info *info,
		       struct error *err)
{
	char log[PROCESS_LOG_SIZE] = "";
	int why, r;

	r = umount_once(m, path, info->depth, 0, MOUNT_QUICK_TIMEOUT_MS, &why, log, err);
	if (r > 0 && why == -ETIMEDOUT) {
		if (server_answers(info))
			r = umount_once(m, path, info->depth, 0, MOUNT_UMOUNT_TIMEOUT_MS, &why, log,
					err);
		else if (!info->shares_superblock)
			r = umount_once(m, path, info->depth, MNT_FORCE, MOUNT_FORCE_TIMEOUT_MS,
					&why, log, err);
	}
	if (r > 0)
		r = umount_once(m, path, info->depth, MNT_DETACH, MOUNT_FORCE_TIMEOUT_MS, &why, log,
				err);
	if (r <= 0)
		return r;
	if (why < 0)
		return helper_failed("unmounting", why, log, err);
	return error_sys(err, ERROR_ABORTED, why != 0 ? why : EBUSY, "cannot unmount '%s'", path);
}

static int unmount_top(struct real_mounter *m, const char *path, const struct mount_info *info,
		       struct error *err)
{
	char server[NET_SERVER_MAX + 1];
	int r;

	server_of(info, server);
	r = net_breaker_take(m->umounts, server, info->port, err);
	if (r < 0)
		return r;
	r = run_umounts(m, path, info, err);
	net_breaker_leave(m->umounts, server, info->port, r < 0);
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
	.compare = real_compare,
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
