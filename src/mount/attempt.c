/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <libmount.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compat.h"
#include "base/mount_options.h"
#include "base/str.h"
#include "mount/mountinfo.h"
#include "mount/reach.h"
#include "net/ping.h"

#define MOUNT_DATA_MAX 4095
#define STATD 100024 /* RPC program number of rpc.statd */

#define ANSWERED_MS 5000 /* time to try other addresses once one has answered */

/* Of mount_setattr(2). Not every libc has them, and linux/mount.h is at odds with sys/mount.h. */
#define ATTR_RDONLY 0x1
#define ATTR_NOSUID 0x2
#define ATTR_NODEV 0x4

/* -------- the versions to try -------- */

struct mount_version {
	unsigned int major;
	const char *option;
};

static const struct mount_version versions[] = {
	{ 4, "vers=4.2" },
	{ 4, "vers=4.1" },
	{ 4, "vers=4.0" },
	{ 3, "vers=3" },
};

/* As in mount.nfs: without a version, try all, newest first; "4" means any minor version of it. */
static bool version_is_wanted(const struct mount_options *o, const struct mount_version *v)
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
 * The kernel mounts NFS by itself once it is given the server's address. Only NFSv3 with locks is
 * left to mount.nfs, since that starts rpc.statd.
 */
struct attempt {
	const struct mount_frame *frame;
	const struct mount_options *options;
	const struct mount_version *version;
	const struct net_address *address;
	const char *address_text;
	const char *client_address; /* for NFSv4.0 callbacks; "" if unknown */
	bool by_program; /* by mount.nfs */
};

static bool address_is_ipv6(const char *address)
{
	return strchr(address, ':') != NULL;
}

static bool options_have(const char *options, const char *name)
{
	char *value;
	size_t size;

	return mnt_optstr_get_option(options, name, &value, &size) == 0;
}

/*
 * The last option of a kind wins, so ours come last: "rw" among the user's must not override a
 * read-only request. The kernel refuses a netid of the other address family, hence "tcp6".
 */
static int attempt_put_options(struct buf *b, const struct attempt *a)
{
	const char *rest = a->options->rest;
	const char *six = address_is_ipv6(a->address_text) ? "6" : "";
	int r;

	r = buf_printf(b, "%s%s%s%s", rest, rest[0] != '\0' ? "," : "",
		       a->frame->read_only != 0 ? "ro," : "", a->version->option);
	if (r < 0)
		return r;
	if (a->by_program)
		return buf_puts(b, ",retry=0");
	r = buf_printf(b, ",addr=%s", a->address_text);
	if (r < 0)
		return r;
	if (a->version->major == 4)
		return a->client_address[0] != '\0'
			       ? buf_printf(b, ",clientaddr=%s", a->client_address)
			       : 0;
	if (!a->options->no_ping) {
		r = buf_printf(b, ",proto=tcp%s", six);
		if (r < 0)
			return r;
	}
	return options_have(rest, "mountproto") ? 0 : buf_printf(b, ",mountproto=tcp%s", six);
}

static void program_on_driver_death(int signum)
{
	(void)signum;
	(void)kill(0, SIGKILL);
}

/*
 * mount.nfs does not inherit PR_SET_PDEATHSIG, so kill the whole process group when the driver
 * dies. A handler can do that here, since the helper only waits for mount.nfs; inside mount(2) it
 * would not run.
 */
static void program_die_with_driver(void)
{
	(void)signal(SIGTERM, program_on_driver_death);
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Returns 0, a positive errno, or -1 if mount.nfs failed and has written the reason to stderr. */
static int attempt_run_context(struct libmnt_context *cxt, const struct attempt *a,
			       const char *source, const char *options)
{
	int r;

	(void)mnt_context_disable_mtab(cxt, 1);
	(void)mnt_context_disable_canonicalize(cxt, 1); /* "server:/path" is not a local path */
	/* Otherwise libmount retries read-only after EACCES. */
	(void)mnt_context_enable_rwonly_mount(cxt, 1);
	(void)mnt_context_disable_helpers(cxt, !a->by_program);
	if (mnt_context_set_fstype(cxt, "nfs") != 0 || mnt_context_set_source(cxt, source) != 0 ||
	    mnt_context_set_target(cxt, a->frame->target) != 0 ||
	    mnt_context_set_options(cxt, options) != 0)
		return ENOMEM;
	if (a->by_program)
		program_die_with_driver();
	r = mnt_context_mount(cxt);
	/* libmount reports success whenever mount.nfs ran, whatever its exit status. */
	if (mnt_context_helper_executed(cxt))
		return mnt_context_get_helper_status(cxt) == 0 ? 0 : -1;
	if (mnt_context_syscall_called(cxt) && mnt_context_get_syscall_errno(cxt) != 0)
		return mnt_context_get_syscall_errno(cxt);
	return r < 0 ? -r : r;
}

/* Set the flags that were asked for; false before Linux 5.12. */
static bool attempt_set_flags(const struct attempt *a)
{
	struct {
		uint64_t set, clear, propagation, userns;
	} attr = { .set = 0 };

	attr.set |= a->frame->read_only != 0 ? ATTR_RDONLY : 0;
	attr.set |= a->options->no_suid ? ATTR_NOSUID : 0;
	attr.set |= a->options->no_dev ? ATTR_NODEV : 0;
	return syscall(SYS_mount_setattr, AT_FDCWD, a->frame->target, AT_SYMLINK_NOFOLLOW, &attr,
		       sizeof(attr)) == 0;
}

/*
 * Compare the flags of the mount with those that were asked for. Options go to libmount and
 * mount.nfs as text, and a mount without them would honor a volume's setuid programs and devices.
 * mountinfo has the flags; statvfs() would ask the server, which may refuse it.
 */
static bool attempt_has_flags(const struct attempt *a)
{
	const bool read_only = a->frame->read_only != 0;
	cleanup_mount_info struct mount_info *info = NULL;
	cleanup_free char *path = NULL;

	if (!read_only && !a->options->no_suid && !a->options->no_dev)
		return true;
	if (mountinfo_resolve(a->frame->target, &path) < 0)
		return false;
	/* A directory that was moved far down can cut it off. To set them fails or works. */
	if (mountinfo_find_mounted(path, &info, NULL) < 0)
		return attempt_set_flags(a);
	if (info == NULL)
		return false;
	return info->read_only >= read_only && info->no_suid >= a->options->no_suid &&
	       info->no_dev >= a->options->no_dev;
}

static int attempt_mount(const struct attempt *a)
{
	const char *server = a->frame->server;
	cleanup_buf struct buf options = { 0 }, source = { 0 };
	struct libmnt_context *cxt;
	int r;

	r = attempt_put_options(&options, a);
	if (r < 0)
		return -r;
	/* mount(2) takes one page and silently drops the rest. */
	if (options.len > MOUNT_DATA_MAX)
		return E2BIG;
	r = buf_printf(&source, address_is_ipv6(server) ? "[%s]:%s" : "%s:%s", server,
		       a->frame->top);
	if (r < 0)
		return -r;
	cxt = mnt_new_context();
	if (cxt == NULL)
		return ENOMEM;
	r = attempt_run_context(cxt, a, source.data, options.data);
	mnt_free_context(cxt);
	if (r == 0 && !attempt_has_flags(a)) {
		(void)umount2(a->frame->target, MNT_DETACH);
		return EINVAL;
	}
	return r;
}

/* -------- the server -------- */

/* Find our address as the server sees it; NFSv4.0 calls back to it. "" if unknown. */
static void server_find_client(const struct net_address *server, uint16_t port, char *text,
			       size_t size)
{
	cleanup_close int fd = net_connect(server, port);
	struct net_address own = { .len = sizeof(own.addr) };

	text[0] = '\0';
	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&own.addr, &own.len) == 0)
		net_address_text(&own, text, size);
}

struct mount_target {
	struct net_address address;
	char text[64];
	char client[64];
	bool has_v3, has_v4;
};

/* Ping with a version that is wanted. A refusal names the versions that the server has. */
static int server_ping(struct mount_target *s, const struct mount_options *o,
		       struct mount_reply *reply)
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
		return mount_reply_fail(reply, MOUNT_STEP_VERSION, -r);
	}
	return r < 0 ? mount_reply_fail(reply, MOUNT_STEP_REACH, r) : 0;
}

/* Whether the next version may succeed: the server or our kernel does not have this one. */
static bool version_may_fall_back(int error, const struct mount_version *v)
{
	if (error == EPROTONOSUPPORT || error == EINVAL)
		return true;
	/* NFSv3 names an export by its real path, NFSv4 by that in the pseudo file system. */
	return error == ENOENT && v->major == 4;
}

static bool options_use_udp(const struct mount_options *o)
{
	char *value;
	size_t size;

	return mnt_optstr_get_option(o->rest, "mountproto", &value, &size) == 0 && size >= 3 &&
	       strncmp(value, "udp", 3) == 0;
}

/*
 * Check that the mount service answers, which a mount over NFSv3 waits for: up to its limit, and
 * then it would look as if the NFS service hung, for all volumes of the server. Any answer will do,
 * since the kernel and mount.nfs fail at once then. Returns 0, also if it cannot be asked, or the
 * errors of net_portmap() and net_ping().
 */
static int server_ask_mountd(const struct mount_target *s, const struct mount_options *o)
{
	cleanup_mount_options struct mount_options ways = { .minor = -1 };
	uint32_t low = 0, high = 0;
	int r;

	if (o->no_ping || options_use_udp(o))
		return 0;
	r = mount_options_read(&ways, o->rest, NULL);
	if (r == 0 && ways.mount_port == 0)
		r = net_portmap(&s->address, NET_MOUNT_PROGRAM, 3, &ways.mount_port);
	if (r < 0)
		return r;
	return net_ping(&s->address, ways.mount_port, NET_MOUNT_PROGRAM, 3, &low, &high);
}

/* Whether the NFS service has version 3, and this node what a mount over it takes. */
static bool server_can_do_v3(const struct mount_target *s, const struct mount_options *o,
			     bool by_program)
{
	uint32_t low = 0, high = 0;

	if (by_program && access(MOUNT_NFS, X_OK) < 0)
		return false;
	return net_ping(&s->address, mount_port_of(o), NET_NFS_PROGRAM, 3, &low, &high) == 0;
}

/*
 * Start rpc.statd in the home namespace if none runs. mount.nfs would start it in ours, which would
 * then live as long as rpc.statd.
 */
static void statd_ensure(const struct mount_walk *w)
{
	struct net_address local[NET_ADDRESSES_MAX];
	uint16_t port;
	size_t n;

	if (net_resolve("127.0.0.1", local, &n, NULL) == 0 &&
	    net_portmap(&local[0], STATD, 1, &port) == 0)
		return;
	mount_walk_run_at_home(w, START_STATD);
}

static int server_mount(struct mount_target *s, const struct mount_frame *frame,
			const struct mount_options *o, const struct mount_walk *w,
			struct mount_reply *reply)
{
	struct attempt a = {
		.frame = frame,
		.options = o,
		.address = &s->address,
		.address_text = s->text,
		.client_address = s->client,
	};
	int error = EPROTONOSUPPORT, first = 0, r;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(versions); i++) {
		const bool is_v3 = versions[i].major == 3;

		a.version = &versions[i];
		a.by_program = is_v3 && !o->no_lock;
		if (!version_is_wanted(o, a.version) || !(is_v3 ? s->has_v3 : s->has_v4))
			continue;
		/* If 4.2 does not have the path, 4.1 and 4.0 do not have it either. */
		if (first == ENOENT && !is_v3)
			continue;
		r = is_v3 ? server_ask_mountd(s, o) : 0;
		/* Then NFSv3 is only a guess: keep NFSv4's error if NFSv3 would take long. */
		if (first == ENOENT && (r < 0 || !server_can_do_v3(s, o, a.by_program)))
			break;
		if (a.by_program && access(MOUNT_NFS, X_OK) < 0)
			return mount_reply_fail(reply, MOUNT_STEP_PROGRAM, ENOENT);
		/* Without a listener, the kernel and mount.nfs fail at once. */
		if (mount_is_silence(r) && r != -ECONNREFUSED)
			return mount_reply_fail(reply, MOUNT_STEP_MOUNTD, -r);
		if (a.by_program && w != NULL)
			statd_ensure(w);
		r = attempt_mount(&a);
		if (r == 0)
			return 0;
		if (first == 0)
			first = r;
		error = r;
		if (r < 0 || !version_may_fall_back(r, a.version))
			break;
	}
	/* The newest version's refusal tells more than an older one's. */
	if (first == ENOENT || first == EINVAL)
		error = first;
	return error < 0 ? mount_reply_fail(reply, MOUNT_STEP_PROGRAM, 0)
			 : mount_reply_fail(reply, MOUNT_STEP_MOUNT, error);
}

static int server_try(struct mount_target *s, const struct mount_frame *frame,
		      const struct mount_options *o, const struct mount_walk *w,
		      struct mount_reply *reply)
{
	int r;

	net_address_text(&s->address, s->text, sizeof(s->text));
	(void)snprintf(reply->address, sizeof(reply->address), "%s", s->text);
	r = server_ping(s, o, reply);
	if (r < 0)
		return r;
	if (o->major == 4 && o->minor == 0)
		server_find_client(&s->address, mount_port_of(o), s->client, sizeof(s->client));
	r = server_mount(s, frame, o, w, reply);
	/* Exports are granted to addresses: show the administrator which one to allow. */
	if (r < 0 && !o->no_ping)
		server_find_client(&s->address, mount_port_of(o), reply->client,
				   sizeof(reply->client));
	return r;
}

static bool is_unreached(const struct mount_reply *reply)
{
	return reply->step == MOUNT_STEP_REACH || reply->step == MOUNT_STEP_MOUNTD;
}

/*
 * Whether to go on to the next address. The server may only refuse the address from which we have
 * called it, as one that exports to IPv4 networks refuses those of IPv6; over NFSv4 it may hide the
 * export. But once it has answered, do not risk that the helper is killed at a silent address.
 */
static bool may_try_another(const struct mount_reply *reply, const struct mount_reply *answer,
			    const struct mount_options *o, uint64_t begun_ns)
{
	if (answer->step == MOUNT_STEP_DONE)
		return is_unreached(reply);
	if (o->no_ping || clock_now_ns() - begun_ns > ANSWERED_MS * CLOCK_NS_PER_MS)
		return false;
	return is_unreached(reply) ||
	       (reply->step == MOUNT_STEP_MOUNT &&
		(reply->error == EACCES || reply->error == EPERM || reply->error == ENOENT));
}

int mount_attempt(const struct mount_frame *frame, const struct mount_walk *w,
		  struct mount_reply *reply)
{
	struct mount_reply answer = { .step = MOUNT_STEP_DONE }; /* the first one */
	const uint64_t begun_ns = clock_now_ns();
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error err = { .code = ERROR_OK };
	cleanup_mount_options struct mount_options options = { .minor = -1 };
	size_t n, i;
	int r;

	if (mount_options_parse(&options, frame->options, NULL) < 0)
		return mount_reply_fail(reply, MOUNT_STEP_REQUEST, EINVAL);
	r = mount_resolve(frame->server, &options, addresses, &n, &err);
	if (r < 0) {
		(void)snprintf(reply->text, sizeof(reply->text), "%.255s", err.msg);
		return mount_reply_fail(reply, MOUNT_STEP_RESOLVE, r);
	}
	for (i = 0; i < n; i++) {
		struct mount_target s = { .address = addresses[i] };

		if (server_try(&s, frame, &options, w, reply) == 0) {
			reply->step = MOUNT_STEP_DONE;
			return 0;
		}
		if (answer.step == MOUNT_STEP_DONE && !is_unreached(reply))
			answer = *reply;
		if (!may_try_another(reply, &answer, &options, begun_ns))
			break;
	}
	if (answer.step != MOUNT_STEP_DONE)
		*reply = answer;
	return -1;
}
