/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/mounter.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/mount_options.h"
#include "mount/answer.h"
#include "mount/call.h"
#include "mount/mountinfo.h"
#include "mount/reach.h"
#include "mount/unmount.h"
#include "net/breaker.h"

#define SELF "/proc/self/exe"

struct real_mounter {
	struct mounter mounter;
	struct mount_caller caller;
	struct net_breaker *mounts, *umounts, *looks; /* by server */
	atomic_uint trials; /* under way, see struct mount_slot */
};

static struct real_mounter *mounter_real(struct mounter *base)
{
	return container_of(base, struct real_mounter, mounter);
}

/* -------- mount and compare -------- */

static void mount_sources_done(struct mount_sources *s)
{
	free(s->whole);
	free(s->top);
}

static char *mount_source_text(const char *server, const char *path)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, strchr(server, ':') != NULL ? "[%s]:%s" : "%s:%s", server, path) < 0)
		return NULL;
	return buf_steal(&b);
}

/*
 * Check that an address of the server answers. Returns -EHOSTDOWN with UNAVAILABLE if none does, an
 * own failure (net_is_own_failure()), or an error of net_resolve().
 */
static int server_ask(const struct mount_request *request, const struct mount_options *o,
		      struct error *err)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	uint32_t low, high;
	size_t n, i;
	int r;

	if (o->no_ping)
		return 0;
	r = mount_resolve(request->server, o, addresses, &n, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		r = mount_ping(&addresses[i], o, &low, &high);
		/* A server without the version answers too; the helper finds another version. */
		if (r == 0 || r == -EPROTONOSUPPORT)
			return 0;
	}
	(void)mount_reach_error(request, -r, err);
	return net_is_own_failure(r) ? r : -EHOSTDOWN;
}

/* One of a server's slots. */
struct mount_slot {
	/*
	 * This mount tests whether the server works; the others wait for its result. While the
	 * kernel waits for a server that answers NULL calls and nothing else, the first mount of
	 * every other server blocks.
	 */
	bool is_trial;
	unsigned int limit_ms; /* for a mount */
	bool is_hung; /* out: the mount has waited for the server until limit_ms */
	bool is_silent; /* out: it did not answer, or that is not known */
};

/* Take one of the server's slots, and check that the server answers if that is not known. */
static int server_enter(struct real_mounter *m, const struct mount_request *request,
			const struct mount_options *o, struct mount_slot *ret, struct error *err)
{
	struct error why = { .code = ERROR_OK };
	unsigned int hangs;
	bool ask;
	int r;

	*ret = (struct mount_slot){ .limit_ms = MOUNT_TIMEOUT_MS };
	r = net_breaker_enter(m->mounts, request->server, o->port, &ask, err);
	if (r < 0 || !ask)
		return r;
	r = server_ask(request, o, &why);
	if (r == 0 && !net_breaker_is_proven(m->mounts, request->server, o->port, &hangs)) {
		ret->is_trial = true;
		if (atomic_fetch_add(&m->trials, 1) == 0 && hangs % 4 != 3)
			ret->limit_ms = MOUNT_TRIAL_TIMEOUT_MS;
		return 0;
	}
	if (r == 0) {
		net_breaker_answered(m->mounts, request->server, o->port);
		return 0;
	}
	if (net_is_own_failure(r))
		net_breaker_gave_up(m->mounts, request->server, o->port);
	else
		net_breaker_failed(m->mounts, request->server, o->port, r, &why);
	net_breaker_leave(m->mounts, request->server, o->port, true);
	*err = why;
	return r;
}

/* Tell the breaker what the mount in the slot has shown of the server, and give the slot back. */
static void server_leave(struct real_mounter *m, const struct mount_request *request,
			 const struct mount_options *o, const struct mount_slot *slot)
{
	struct error why = { .code = ERROR_OK };

	(void)error_set(&why, ERROR_UNAVAILABLE,
			"server '%s' does not answer: the last mount from it hung, and the next one will be tried later",
			request->server);
	if (slot->is_hung)
		net_breaker_failed(m->mounts, request->server, o->port, -ETIMEDOUT, &why);
	else if (!slot->is_silent)
		net_breaker_proved(m->mounts, request->server, o->port);
	else if (slot->is_trial)
		net_breaker_gave_up(m->mounts, request->server, o->port);
	if (slot->is_trial)
		atomic_fetch_sub(&m->trials, 1);
	net_breaker_leave(m->mounts, request->server, o->port, slot->is_hung || slot->is_silent);
}

/*
 * Call the helper for a mount or a compare, in a slot of the server. Returns 0; 1 if a compare
 * found another directory; or a negative errno.
 */
static int mount_in_slot(struct real_mounter *m, enum mount_operation operation,
			 const struct mount_request *request, struct mount_slot *slot,
			 struct error *err)
{
	__attribute__((cleanup(mount_sources_done))) struct mount_sources sources = {
		.whole = mount_source_text(request->server, request->path),
		.top = mount_source_text(request->server, mount_request_top(request)),
	};
	const bool compares = operation != MOUNT_OP_MOUNT;
	struct mount_answer answer;
	int r;

	slot->is_silent = true;
	if (sources.whole == NULL || sources.top == NULL)
		return error_oom(err);
	if (operation == MOUNT_OP_COMPARE && slot->limit_ms > MOUNT_COMPARE_TIMEOUT_MS)
		slot->limit_ms = MOUNT_COMPARE_TIMEOUT_MS;
	r = mount_call(&m->caller, operation, request, slot->limit_ms, &answer);
	if (r < 0) {
		slot->is_hung = r == -ETIMEDOUT;
		(void)mount_call_error(compares ? "looking at the mount" : "mounting", r, &answer,
				       err);
		error_prefix(err, "'%s'", sources.whole);
		return r;
	}
	slot->is_silent = answer.reply.step == MOUNT_STEP_RESOLVE ||
			  answer.reply.step == MOUNT_STEP_REACH ||
			  answer.reply.step == MOUNT_STEP_MOUNTD;
	if (answer.reply.step == MOUNT_STEP_DONE)
		return 0;
	if (compares && answer.reply.step == MOUNT_STEP_OTHER)
		return 1;
	return mount_reply_error(request, &sources, &answer, err);
}

static int mount_or_compare(struct real_mounter *m, enum mount_operation operation,
			    const struct mount_request *request, struct error *err)
{
	cleanup_mount_options struct mount_options options = { .minor = -1 };
	struct mount_slot slot;
	int r;

	r = mount_options_parse(&options, request->options, err);
	if (r < 0)
		return r;
	r = server_enter(m, request, &options, &slot, err);
	if (r < 0)
		return r;
	r = mount_in_slot(m, operation, request, &slot, err);
	server_leave(m, request, &options, &slot);
	return r;
}

static int real_check(struct mounter *base, const struct mount_request *request, struct error *err)
{
	cleanup_mount_options struct mount_options options = { .minor = -1 };
	int r;

	r = mount_options_parse(&options, request->options, err);
	if (r < 0)
		return r;
	return net_breaker_check(mounter_real(base)->mounts, request->server, options.port, err);
}

static int real_mount(struct mounter *base, const struct mount_request *request, struct error *err)
{
	return mount_or_compare(mounter_real(base), MOUNT_OP_MOUNT, request, err);
}

static int real_compare(struct mounter *base, const struct mount_request *request, bool *ret_same,
			struct error *err)
{
	int r = mount_or_compare(mounter_real(base), MOUNT_OP_COMPARE, request, err);

	if (r < 0)
		return r;
	*ret_same = r == 0;
	return 0;
}

static int real_try(struct mounter *base, const struct mount_request *request, struct error *err)
{
	return mount_or_compare(mounter_real(base), MOUNT_OP_TRY, request, err);
}

/* -------- look at a mount -------- */

static int real_find(struct mounter *base, const char *target, struct mount_info **ret,
		     struct error *err)
{
	cleanup_free char *path = NULL;
	int r;

	(void)base;
	r = mountinfo_resolve_target(target, &path, err);
	if (r == -ENOENT) {
		*ret = NULL;
		return 0;
	}
	return r < 0 ? r : mountinfo_find_mounted(path, ret, err);
}

static int look_error(const struct mount_info *info, const char *server,
		      const struct mount_reply *reply, struct error *err)
{
	if (reply->step == MOUNT_STEP_CHMOD && (reply->error == EPERM || reply->error == EACCES))
		return error_sys(err, ERROR_PERMISSION_DENIED, reply->error,
				 "setting mountPermissions on '%s', was root squashed?",
				 info->source);
	if (reply->step == MOUNT_STEP_OTHER) {
		(void)error_set(err, ERROR_NOT_FOUND, "'%s' is not mounted any more", info->source);
		return -ENXIO;
	}
	if (reply->error == ESTALE || reply->error == ENOENT) {
		(void)error_set(err, ERROR_UNAVAILABLE,
				"the mount of '%s' is stale: its directory is gone on the server, or cannot be looked at",
				info->source);
		return -ESTALE;
	}
	/* 512 is the kernel's internal ERESTARTSYS; it leaks out of an interrupted call. */
	return error_sys(err, ERROR_UNAVAILABLE, reply->error == 512 ? EIO : reply->error,
			 "looking at the mount of '%s' from server %s", info->source, server);
}

/* Call a helper that asks the server through the mount, unless the server is known to be down. */
static int look(struct real_mounter *m, enum mount_operation operation, const char *target,
		const struct mount_info *info, uint32_t mode, struct mount_answer *answer,
		struct error *err)
{
	const struct mount_request request = { .target = target, .mode = mode };
	char server[NET_SERVER_MAX + 1];
	struct error why = { .code = ERROR_OK };
	bool ask;
	int r;

	mount_info_server(info, server);
	r = net_breaker_enter(m->looks, server, info->port, &ask, err);
	if (r < 0)
		return r;
	r = mount_call(&m->caller, operation, &request, MOUNT_STAT_TIMEOUT_MS, answer);
	if (r == -ETIMEDOUT) {
		(void)error_set(&why, ERROR_UNAVAILABLE,
				"server %s does not answer; its mounts wait for it", server);
		/* Not -ETIMEDOUT, whose pauses are for mounts, which hold up others. */
		net_breaker_failed(m->looks, server, info->port, -EHOSTDOWN, &why);
	} else if (r < 0) {
		(void)mount_call_error("looking at the mount", r, answer, &why);
		if (ask)
			net_breaker_gave_up(m->looks, server, info->port);
		r = -EUSERS;
	} else if (ask) {
		net_breaker_answered(m->looks, server, info->port);
	}
	net_breaker_leave(m->looks, server, info->port, r < 0);
	if (r == 0 && answer->reply.step != MOUNT_STEP_DONE)
		r = look_error(info, server, &answer->reply, &why);
	if (r < 0)
		*err = why;
	return r;
}

static int real_verify(struct mounter *base, const char *target, const struct mount_info *info,
		       uint32_t mode, struct error *err)
{
	struct mount_answer answer;

	return look(mounter_real(base), MOUNT_OP_VERIFY, target, info, mode, &answer, err);
}

static int real_usage(struct mounter *base, const char *target, const struct mount_info *info,
		      struct mount_usage *ret, struct error *err)
{
	struct mount_answer answer;
	int r;

	r = look(mounter_real(base), MOUNT_OP_USAGE, target, info, 0, &answer, err);
	if (r == 0)
		*ret = answer.reply.usage;
	return r;
}

/* -------- the mounter -------- */

static int real_unmount(struct mounter *base, const char *target, struct error *err)
{
	struct real_mounter *m = mounter_real(base);

	return mount_unmount(&m->caller, m->umounts, target, err);
}

static const struct mounter_ops real_ops = {
	.check = real_check,
	.mount = real_mount,
	.compare = real_compare,
	.try = real_try,
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
	m->caller.helper = helper != NULL ? helper : SELF;
	mount_reaper_init(&m->caller.reaper);
	if (net_breaker_new(&m->mounts, MOUNT_SLOTS, NET_BREAKER_OFTEN_MS) < 0 ||
	    net_breaker_new(&m->umounts, MOUNT_UMOUNT_SLOTS, NET_BREAKER_RARELY_MS) < 0 ||
	    net_breaker_new(&m->looks, MOUNT_STAT_SLOTS, NET_BREAKER_RARELY_MS) < 0) {
		mounter_free(&m->mounter);
		return error_oom(err);
	}
	*ret = &m->mounter;
	return 0;
}

void mounter_sweep(struct mounter *base)
{
	struct real_mounter *m = mounter_real(base);

	net_breaker_sweep(m->mounts);
	net_breaker_sweep(m->umounts);
	net_breaker_sweep(m->looks);
	mount_reaper_sweep(&m->caller.reaper);
}

void mounter_free(struct mounter *base)
{
	struct real_mounter *m;

	if (base == NULL)
		return;
	m = mounter_real(base);
	net_breaker_free(m->mounts);
	net_breaker_free(m->umounts);
	net_breaker_free(m->looks);
	mount_reaper_done(&m->caller.reaper);
	free(m);
}
