/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/attempt.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <libmount.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "mount/options.h"
#include "mount/reach.h"
#include "net/ping.h"

#define MOUNT_DATA_MAX 4095
#define MOUNT_PROGRAM "/sbin/mount.nfs"
#define STATD_PROGRAM "/usr/sbin/start-statd" /* as mount.nfs starts it */
#define STATD 100024 /* its number among RPC programs */

/* -------- the versions to try -------- */

struct version {
	unsigned int major;
	const char *option;
};

static const struct version versions[] = {
	{ 4, "vers=4.2" },
	{ 4, "vers=4.1" },
	{ 4, "vers=4.0" },
	{ 3, "vers=3" },
};

/* As mount.nfs: the newest first; a given one alone; "4" alone any of its minor versions. */
static bool is_wanted(const struct mount_options *o, const struct version *v)
{
	char exact[24];

	if (o->major == 0)
		return true;
	if (o->major != v->major)
		return false;
	if (o->major == 3 || o->minor < 0)
		return true;
	(void)snprintf(exact, sizeof(exact), "vers=4.%d", o->minor);
	return strcmp(exact, v->option) == 0;
}

/* -------- one mount -------- */

/*
 * The kernel mounts NFS by itself when it is told the server's address. What mount.nfs would add is
 * rpc.statd for the locks of version 3: that one is left to it.
 */
struct attempt {
	const struct helper_request *q;
	const struct mount_options *options;
	const struct version *version;
	const struct net_address *address;
	const char *address_text;
	const char *client_address;
	bool by_program;
};

static bool is_ipv6(const char *address)
{
	return strchr(address, ':') != NULL;
}

static bool has_option(const char *options, const char *name)
{
	char *value;
	size_t size;

	return mnt_optstr_get_option(options, name, &value, &size) == 0;
}

/*
 * The last one of a kind wins, so ours come last: a "rw" among the user's must not make a volume
 * writable that was asked for read-only. The kernel refuses a netid of the other address family.
 */
static int put_options(struct buf *b, const struct attempt *a)
{
	const char *rest = a->options->rest;
	const char *six = is_ipv6(a->address_text) ? "6" : "";
	int r;

	r = buf_printf(b, "%s%s%s%s", rest, rest[0] != '\0' ? "," : "",
		       a->q->fields[HELPER_READ_ONLY][0] != '\0' ? "ro," : "", a->version->option);
	if (r == 0 && a->by_program)
		r = buf_puts(b, ",retry=0");
	if (r == 0 && !a->by_program) {
		r = buf_printf(b, ",addr=%s", a->address_text);
		if (r == 0 && a->version->major == 4 && a->client_address[0] != '\0')
			r = buf_printf(b, ",clientaddr=%s", a->client_address);
		if (r == 0 && a->version->major == 3 && !a->options->no_ping)
			r = buf_printf(b, ",proto=tcp%s", six);
		if (r == 0 && a->version->major == 3 && !has_option(rest, "mountproto"))
			r = buf_printf(b, ",mountproto=tcp%s", six);
	}
	/* mount(2) takes a page and cuts the rest off without a word. */
	return r == 0 && b->len > MOUNT_DATA_MAX ? -E2BIG : r;
}

static int put_source(struct buf *b, const struct attempt *a)
{
	const char *server = a->q->fields[HELPER_SERVER];

	return buf_printf(b, is_ipv6(server) ? "[%s]:%s" : "%s:%s", server,
			  a->q->fields[HELPER_PATH]);
}

static void on_driver_death(int signum)
{
	(void)signum;
	(void)kill(0, SIGKILL);
}

/*
 * mount.nfs does not inherit the wish to die with the driver. While it runs the helper waits for it
 * where handlers run, which is not so in mount(2).
 */
static void die_with_children(void)
{
	(void)signal(SIGTERM, on_driver_death);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Returns 0, or a positive errno; -1 when mount.nfs failed and has said why. */
static int run_context(struct libmnt_context *cxt, const struct attempt *a, const char *source,
		       const char *options)
{
	int r;

	(void)mnt_context_disable_mtab(cxt, 1);
	(void)mnt_context_disable_canonicalize(cxt, 1); /* "server:/path" is no path of ours */
	/* Else it tries again read-only where the server has refused: EACCES. */
	(void)mnt_context_enable_rwonly_mount(cxt, 1);
	(void)mnt_context_disable_helpers(cxt, !a->by_program);
	if (mnt_context_set_fstype(cxt, "nfs") != 0 || mnt_context_set_source(cxt, source) != 0 ||
	    mnt_context_set_target(cxt, a->q->fields[HELPER_TARGET]) != 0 ||
	    mnt_context_set_options(cxt, options) != 0)
		return ENOMEM;
	if (a->by_program)
		die_with_children();
	r = mnt_context_mount(cxt);
	/* libmount counts a helper that ran as a success, whatever came of it. */
	if (mnt_context_helper_executed(cxt))
		return mnt_context_get_helper_status(cxt) == 0 ? 0 : -1;
	if (mnt_context_syscall_called(cxt) && mnt_context_get_syscall_errno(cxt) != 0)
		return mnt_context_get_syscall_errno(cxt);
	return r < 0 ? -r : r;
}

static int try_mount(const struct attempt *a)
{
	cleanup_buf struct buf options = { 0 }, source = { 0 };
	struct libmnt_context *cxt;
	int r;

	r = put_options(&options, a);
	if (r == 0)
		r = put_source(&source, a);
	if (r < 0)
		return -r;
	cxt = mnt_new_context();
	if (cxt == NULL)
		return ENOMEM;
	r = run_context(cxt, a, source.data, options.data);
	mnt_free_context(cxt);
	return r;
}

/* -------- the server -------- */

/* The address that the server sees us under, which NFSv4.0 calls back to. "" where unknown. */
static void find_client_address(const struct net_address *server, uint16_t port, char *text,
				size_t size)
{
	cleanup_close int fd = net_connect(server, port);
	struct net_address own = { .len = sizeof(own.addr) };

	text[0] = '\0';
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&own.addr, &own.len) == 0)
		net_address_text(&own, text, size);
}

struct server {
	struct net_address address;
	char text[64];
	char client[64];
	bool has_v3, has_v4;
};

/* Asks with a version that is wanted; a refusal tells which others there are. */
static int ping(struct server *s, const struct mount_options *o, struct helper_reply *reply)
{
	uint32_t low = 0, high = 0;
	int r;

	s->has_v3 = s->has_v4 = true;
	r = mount_ping(&s->address, o, &low, &high);
	if (r == -EPROTONOSUPPORT) {
		s->has_v3 = low <= 3 && high >= 3;
		s->has_v4 = low <= 4 && high >= 4;
		reply->low = low;
		reply->high = high;
		if (o->major == 0 && s->has_v3)
			return 0;
		return helper_fail(reply, HELPER_VERSION, -r);
	}
	return r < 0 ? helper_fail(reply, HELPER_REACH, r) : 0;
}

/* Why the next version may do better: the server or our kernel does not have this one. */
static bool may_fall_back(int error, const struct version *v)
{
	if (error == EPROTONOSUPPORT || error == EINVAL)
		return true;
	/* Version 3 names exports by their path on the server, 4 by its own tree. */
	return error == ENOENT && v->major == 4;
}

/* mount.nfs waits for rpcbind for as long as it likes, 16 s and more. */
static bool can_guess_v3(const struct server *s, const struct mount_options *o, bool by_program)
{
	const uint16_t port = mount_port_of(o);
	uint32_t low = 0, high = 0;
	uint16_t found;

	if (by_program && access(MOUNT_PROGRAM, X_OK) < 0)
		return false;
	return net_ping(&s->address, port, NET_NFS_PROGRAM, 3, &low, &high) == 0 &&
	       (has_option(o->rest, "mountport") ||
		net_portmap(&s->address, NET_MOUNT_PROGRAM, 3, &found) == 0);
}

/*
 * mount.nfs starts rpc.statd where there is none. It would then live in our mount namespace, and keep
 * that: so it is started before, and at home.
 */
static void ensure_statd(const struct walk *w)
{
	struct net_address local[NET_ADDRESSES_MAX];
	uint16_t port;
	size_t n;

	if (net_resolve("127.0.0.1", local, &n, NULL) == 0 &&
	    net_portmap(&local[0], STATD, 1, &port) == 0)
		return;
	walk_run_at_home(w, STATD_PROGRAM);
}

static int mount_from(struct server *s, const struct helper_request *q,
		      const struct mount_options *o, const struct walk *w, struct helper_reply *reply)
{
	struct attempt a = {
		.q = q,
		.options = o,
		.address = &s->address,
		.address_text = s->text,
		.client_address = s->client,
	};
	int error = EPROTONOSUPPORT, first = 0, r;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(versions); i++) {
		a.version = &versions[i];
		if (!is_wanted(o, a.version) || !(a.version->major == 3 ? s->has_v3 : s->has_v4))
			continue;
		/* What 4.2 does not have, 4.1 and 4.0 do not have either. */
		if (first == ENOENT && a.version->major == 4)
			continue;
		a.by_program = a.version->major == 3 && !o->no_lock;
		/* Only a guess: what version 4 said stands unless 3 is sure to answer soon. */
		if (first == ENOENT && a.version->major == 3 && !can_guess_v3(s, o, a.by_program))
			break;
		if (a.by_program && access(MOUNT_PROGRAM, X_OK) < 0)
			return helper_fail(reply, HELPER_PROGRAM, ENOENT);
		if (a.by_program && w != NULL)
			ensure_statd(w);
		r = try_mount(&a);
		if (r == 0)
			return 0;
		if (first == 0)
			first = r;
		error = r;
		if (r < 0 || !may_fall_back(r, a.version))
			break;
	}
	/* The refusal of the newest version that is there tells more than that of an older one. */
	if (first == ENOENT || first == EINVAL)
		error = first;
	return error < 0 ? helper_fail(reply, HELPER_PROGRAM, 0)
			 : helper_fail(reply, HELPER_MOUNT, error);
}

static int mount_at(struct server *s, const struct helper_request *q, const struct mount_options *o,
		    const struct walk *w, struct helper_reply *reply)
{
	int r;

	net_address_text(&s->address, s->text, sizeof(s->text));
	(void)snprintf(reply->address, sizeof(reply->address), "%s", s->text);
	r = ping(s, o, reply);
	if (r < 0)
		return r;
	if (o->major == 4 && o->minor == 0)
		find_client_address(&s->address, mount_port_of(o), s->client, sizeof(s->client));
	r = mount_from(s, q, o, w, reply);
	/* Exports are given to addresses: which one is ours helps whoever has to allow it. */
	if (r < 0 && !o->no_ping)
		find_client_address(&s->address, mount_port_of(o), reply->client,
				    sizeof(reply->client));
	return r;
}

int mount_attempt(const struct helper_request *q, const struct walk *w, struct helper_reply *reply)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error err = { .code = ERROR_OK };
	struct mount_options options;
	size_t n, i;
	int r;

	if (mount_options_parse(&options, q->fields[HELPER_OPTIONS], NULL) < 0)
		return helper_fail(reply, HELPER_REQUEST, EINVAL);
	r = net_resolve(q->fields[HELPER_SERVER], addresses, &n, &err);
	if (r < 0)
		(void)helper_fail(reply, HELPER_RESOLVE, r);
	(void)snprintf(reply->text, sizeof(reply->text), "%.255s", err.msg);
	for (i = 0; r == 0 && i < n; i++) {
		struct server s = { .address = addresses[i] };

		if (mount_at(&s, q, &options, w, reply) == 0)
			break;
		/* Another address only helps against one that is not reached. */
		if (reply->step != HELPER_REACH || i + 1 == n)
			r = -1;
	}
	mount_options_done(&options);
	if (r == 0)
		reply->step = HELPER_DONE;
	return r;
}
