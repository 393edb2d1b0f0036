/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The helper process. It may hang at any call: nothing waits for it but its deadline, and it holds
 * nothing that anybody else needs.
 */

#include "mount/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <libmount.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "mount/mounter.h"
#include "mount/options.h"
#include "mount/reach.h"
#include "net/probe.h"

#define MOUNT_DATA_MAX 4095
#define MOUNT_PROGRAM "/sbin/mount.nfs"

/* mount.nfs and rpc.statd make tables as large as the limit allows: 51 MB for half a million. */
#define FILES_MAX 1024

struct request {
	char data[HELPER_REQUEST_MAX];
	const char *fields[HELPER_FIELDS];
};

static int read_request(struct request *q)
{
	size_t len = 0, i;
	char *p = q->data;
	ssize_t n;

	for (;;) {
		n = read(STDIN_FILENO, q->data + len, sizeof(q->data) - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
		if (len == sizeof(q->data))
			return -EMSGSIZE;
	}
	for (i = 0; i < HELPER_FIELDS; i++) {
		char *end = memchr(p, '\0', (size_t)(q->data + len - p));

		if (end == NULL)
			return -EPROTO;
		q->fields[i] = p;
		p = end + 1;
	}
	return 0;
}

static int fail(struct helper_reply *reply, enum helper_step step, int error)
{
	reply->step = (int32_t)step;
	reply->error = error < 0 ? -error : error;
	return -1;
}

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
	const struct request *q;
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
		return fail(reply, HELPER_VERSION, -r);
	}
	return r < 0 ? fail(reply, HELPER_REACH, r) : 0;
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

static int mount_from(struct server *s, const struct request *q, const struct mount_options *o,
		      struct helper_reply *reply)
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
			return fail(reply, HELPER_PROGRAM, ENOENT);
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
	return error < 0 ? fail(reply, HELPER_PROGRAM, 0) : fail(reply, HELPER_MOUNT, error);
}

static int mount_at(struct server *s, const struct request *q, const struct mount_options *o,
		    struct helper_reply *reply)
{
	int r;

	net_address_text(&s->address, s->text, sizeof(s->text));
	(void)snprintf(reply->address, sizeof(reply->address), "%s", s->text);
	r = ping(s, o, reply);
	if (r < 0)
		return r;
	if (o->major == 4 && o->minor == 0)
		find_client_address(&s->address, mount_port_of(o), s->client, sizeof(s->client));
	r = mount_from(s, q, o, reply);
	/* Exports are given to addresses: which one is ours helps whoever has to allow it. */
	if (r < 0 && !o->no_ping)
		find_client_address(&s->address, mount_port_of(o), reply->client,
				    sizeof(reply->client));
	return r;
}

/* The mount is there, so its directory answers: only now may the path be touched. */
static int set_mode(const struct request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	uint64_t mode = 0;
	struct stat st;
	int e;

	if (str_parse_u64(q->fields[HELPER_MODE], 8, 07777, &mode) < 0)
		return fail(reply, HELPER_REQUEST, EINVAL);
	if (mode == 0)
		return 0;
	if (stat(target, &st) == 0 &&
	    ((st.st_mode & 07777) == mode || chmod(target, (mode_t)mode) == 0))
		return 0;
	e = errno;
	if (e == EROFS)
		return 0; /* read-only: the mode is somebody else's to set */
	(void)umount2(target, MNT_DETACH | UMOUNT_NOFOLLOW); /* the request has failed as a whole */
	return fail(reply, HELPER_CHMOD, e);
}

/*
 * Asks the server for the directory itself: it may be gone. stat() may answer from the cache, and so may
 * statvfs() for what it says of the directory; opening it never does (close-to-open consistency).
 */
static int open_target(const char *target)
{
	cleanup_close int fd = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A directory that root may not read is there. */
	return fd < 0 && errno != EACCES && errno != EPERM ? -errno : 0;
}

/* What is mounted at the target may be stale, or lack its mode after a crash. */
static int do_verify(const struct request *q, struct helper_reply *reply)
{
	const char *target = q->fields[HELPER_TARGET];
	uint64_t mode = 0;
	struct stat st;
	int r;

	if (str_parse_u64(q->fields[HELPER_MODE], 8, 07777, &mode) < 0)
		return fail(reply, HELPER_REQUEST, EINVAL);
	r = open_target(target);
	if (r < 0)
		return fail(reply, HELPER_STAT, r);
	if (stat(target, &st) < 0)
		return fail(reply, HELPER_STAT, errno);
	if (mode != 0 && (st.st_mode & 07777) != mode && chmod(target, (mode_t)mode) < 0 &&
	    errno != EROFS)
		return fail(reply, HELPER_CHMOD, errno);
	return 0;
}

static int do_statvfs(const struct request *q, struct helper_reply *reply)
{
	struct mount_usage *u = &reply->usage;
	struct statvfs vfs;
	int r;

	r = open_target(q->fields[HELPER_TARGET]);
	if (r < 0)
		return fail(reply, HELPER_STAT, r);
	if (statvfs(q->fields[HELPER_TARGET], &vfs) < 0)
		return fail(reply, HELPER_STAT, errno);
	u->bytes_total = (uint64_t)vfs.f_blocks * vfs.f_frsize;
	u->bytes_used = (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
	u->bytes_available = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	u->inodes_total = vfs.f_files;
	u->inodes_used = vfs.f_files - vfs.f_ffree;
	u->inodes_available = vfs.f_favail;
	return 0;
}

static int do_mount(const struct request *q, struct helper_reply *reply)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error err = { .code = ERROR_OK };
	struct mount_options options;
	struct stat st;
	size_t n, i;
	int r;

	/* mount(2) would follow a link, and mountinfo then show another path than the one asked for. */
	if (lstat(q->fields[HELPER_TARGET], &st) < 0)
		return fail(reply, HELPER_MOUNT, errno);
	if (!S_ISDIR(st.st_mode))
		return fail(reply, HELPER_MOUNT, ENOTDIR);
	if (mount_options_parse(&options, q->fields[HELPER_OPTIONS], NULL) < 0)
		return fail(reply, HELPER_REQUEST, EINVAL);
	r = net_resolve(q->fields[HELPER_SERVER], addresses, &n, &err);
	if (r < 0)
		(void)fail(reply, HELPER_RESOLVE, r);
	(void)snprintf(reply->text, sizeof(reply->text), "%.255s", err.msg);
	for (i = 0; r == 0 && i < n; i++) {
		struct server s = { .address = addresses[i] };

		if (mount_at(&s, q, &options, reply) == 0)
			break;
		/* Another address only helps against one that is not reached. */
		if (reply->step != HELPER_REACH || i + 1 == n)
			r = -1;
	}
	mount_options_done(&options);
	if (r < 0)
		return r;
	reply->step = HELPER_DONE;
	return set_mode(q, reply);
}

/*
 * umount2() itself: libmount would look at the path before, which is what must not be done where
 * the server is dead.
 */
static int do_umount(const struct request *q, struct helper_reply *reply)
{
	uint64_t flags;

	if (str_parse_u64(q->fields[HELPER_FLAGS], 10, INT32_MAX, &flags) < 0)
		return fail(reply, HELPER_REQUEST, EINVAL);
	if (umount2(q->fields[HELPER_TARGET], (int)flags | UMOUNT_NOFOLLOW) < 0)
		return fail(reply, HELPER_UMOUNT, errno);
	return 0;
}

static void prepare_process(void)
{
	const struct rlimit files = { .rlim_cur = FILES_MAX, .rlim_max = FILES_MAX };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
	(void)setrlimit(RLIMIT_NOFILE, &files); /* without it mount.nfs only takes more memory */
	(void)umask(0022);
}

/* Nobody reads the reply of a helper whose driver died before it could ask to die with it. */
static bool is_orphan(const struct request *q)
{
	uint64_t driver;

	return str_parse_u64(q->fields[HELPER_DRIVER], 10, INT32_MAX, &driver) < 0 ||
	       (uint64_t)getppid() != driver;
}

static const struct {
	const char *name;
	int (*run)(const struct request *q, struct helper_reply *reply);
} operations[] = {
	{ "mount", do_mount },
	{ "umount", do_umount },
	{ "verify", do_verify },
	{ "statvfs", do_statvfs },
};

static int run_operation(const struct request *q, struct helper_reply *reply)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		if (strcmp(q->fields[HELPER_OPERATION], operations[i].name) == 0)
			return operations[i].run(q, reply);
	return fail(reply, HELPER_REQUEST, EINVAL);
}

int mount_helper_main(void)
{
	static struct request q;
	struct helper_reply reply = { .magic = HELPER_MAGIC, .step = HELPER_DONE };
	int out;

	prepare_process();
	/* What mount.nfs prints is no part of the reply, and what it starts must not hold the pipe. */
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return EXIT_FAILURE;
	if (read_request(&q) < 0)
		(void)fail(&reply, HELPER_REQUEST, EPROTO);
	else if (is_orphan(&q))
		return EXIT_FAILURE;
	else
		(void)run_operation(&q, &reply); /* its failure is in the reply */
	return write(out, &reply, sizeof(reply)) == sizeof(reply) ? EXIT_SUCCESS : EXIT_FAILURE;
}
