/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The driver's side of mounting: a shell script plays the helper and sends the reply of a row. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "check_util.h"
#include "mount/frame.h"
#include "mount/mounter.h"
#include "mount/reach.h"

static char folder[CHECK_FOLDER];
static char script[CHECK_FOLDER + 16], reply_file[sizeof(script)], log_file[sizeof(script)];
static char request_file[sizeof(script)];

static void setup(void)
{
	FILE *f;

	check_make_folder(folder);
	snprintf(script, sizeof(script), "%s/helper", folder);
	snprintf(reply_file, sizeof(reply_file), "%s/reply", folder);
	snprintf(log_file, sizeof(log_file), "%s/log", folder);
	snprintf(request_file, sizeof(request_file), "%s/request", folder);
	f = fopen(script, "we");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\ncd %s && cat >request && cat log >&2 && cat reply\n", folder);
	fclose(f);
	ck_assert_int_eq(chmod(script, 0700), 0);
	(void)signal(SIGPIPE, SIG_IGN); /* as the driver */
}

static void teardown(void)
{
	unlink(script);
	unlink(reply_file);
	unlink(log_file);
	unlink(request_file);
	rmdir(folder);
}

static void write_file(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "we");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(data, 1, len, f), len);
	fclose(f);
}

/* What the helper answers from now on. */
static void put_reply(enum mount_step step, int error)
{
	const struct mount_reply reply = {
		.magic = MOUNT_REPLY_MAGIC,
		.step = (int32_t)step,
		.error = error,
	};

	write_file(reply_file, &reply, sizeof(reply));
}

/* A transport over which the server is not pinged first. */
#define OPTIONS "soft,proto=rdma,token=hunter2"

static int mount_below(const char *top, const char *options, const char *helper, struct error *err)
{
	const struct mount_request q = {
		.server = "nfs.example",
		.path = "/share/dir",
		.top = top,
		.target = folder,
		.options = options,
		.read_only = true,
		.mode = 02770,
	};
	struct mounter *m;
	int r;

	ck_assert_int_eq(mounter_new(&m, helper, err), 0);
	r = m->ops->mount(m, &q, err);
	mounter_free(m);
	return r;
}

static int mount_with(const char *options, const char *helper, struct error *err)
{
	return mount_below(NULL, options, helper, err);
}

static const struct {
	const char *name;
	int32_t step, error;
	const char *log;
	enum error_code code;
	const char *word; /* in the message */
} rows[] = {
	{ "done", MOUNT_STEP_DONE, 0, "", ERROR_OK, NULL },
	{ "unknown name", MOUNT_STEP_RESOLVE, EHOSTUNREACH, "", ERROR_UNAVAILABLE, "the text" },
	{ "silent server", MOUNT_STEP_REACH, ETIMEDOUT, "", ERROR_UNAVAILABLE, "nfs.example" },
	{ "closed port", MOUNT_STEP_REACH, ECONNREFUSED, "", ERROR_UNAVAILABLE,
	  "server 'nfs.example': Connection refused" },
	{ "other versions", MOUNT_STEP_VERSION, EPROTONOSUPPORT, "", ERROR_FAILED_PRECONDITION,
	  "2 to 3" },
	{ "no target directory", MOUNT_STEP_TARGET, ENOTDIR, "", ERROR_FAILED_PRECONDITION,
	  "/csi-nfs-test-" },
	{ "no directory", MOUNT_STEP_MOUNT, ENOENT, "", ERROR_NOT_FOUND, "nfs.example:/share/dir" },
	{ "a file", MOUNT_STEP_MOUNT, ENOTDIR, "", ERROR_NOT_FOUND, "directory" },
	{ "stale", MOUNT_STEP_MOUNT, ESTALE, "", ERROR_UNAVAILABLE, "removed" },
	{ "denied", MOUNT_STEP_MOUNT, EACCES, "", ERROR_PERMISSION_DENIED, "export" },
	{ "not permitted", MOUNT_STEP_MOUNT, EPERM, "", ERROR_PERMISSION_DENIED, "CAP_SYS_ADMIN" },
	{ "bad option", MOUNT_STEP_MOUNT, EINVAL, "", ERROR_INVALID_ARGUMENT, "options" },
	{ "bad version", MOUNT_STEP_MOUNT, EPROTONOSUPPORT, "", ERROR_FAILED_PRECONDITION,
	  "version" },
	{ "no NFS", MOUNT_STEP_MOUNT, ENODEV, "", ERROR_FAILED_PRECONDITION, "module" },
	{ "taken", MOUNT_STEP_MOUNT, EBUSY, "", ERROR_ABORTED, "try again" },
	{ "refused", MOUNT_STEP_MOUNT, ECONNREFUSED, "", ERROR_UNAVAILABLE, "listens" },
	{ "no route", MOUNT_STEP_MOUNT, EHOSTUNREACH, "", ERROR_UNAVAILABLE, "route" },
	{ "timed out", MOUNT_STEP_MOUNT, ETIMEDOUT, "", ERROR_UNAVAILABLE, "answer" },
	{ "network down", MOUNT_STEP_MOUNT, ENETDOWN, "", ERROR_UNAVAILABLE, "route" },
	{ "host down", MOUNT_STEP_MOUNT, EHOSTDOWN, "", ERROR_UNAVAILABLE, "route" },
	{ "reset", MOUNT_STEP_MOUNT, ECONNRESET, "", ERROR_UNAVAILABLE, "closed" },
	{ "aborted", MOUNT_STEP_MOUNT, ECONNABORTED, "", ERROR_UNAVAILABLE, "closed" },
	{ "closed", MOUNT_STEP_MOUNT, EPIPE, "", ERROR_UNAVAILABLE, "closed" },
	{ "server fault", MOUNT_STEP_MOUNT, EREMOTEIO, "", ERROR_UNAVAILABLE, "its log" },
	{ "server fault on the way", MOUNT_STEP_WALK, EREMOTEIO, "", ERROR_UNAVAILABLE, "its log" },
	{ "no memory", MOUNT_STEP_MOUNT, ENOMEM, "", ERROR_RESOURCE_EXHAUSTED, "memory" },
	{ "something else", MOUNT_STEP_MOUNT, EXDEV, "", ERROR_INTERNAL, "nfs.example" },
	{ "no mount.nfs", MOUNT_STEP_PROGRAM, ENOENT, "", ERROR_FAILED_PRECONDITION, "nolock" },
	{ "no mount.nfs: where it is looked for", MOUNT_STEP_PROGRAM, ENOENT, "",
	  ERROR_FAILED_PRECONDITION, "needs '" MOUNT_NFS "', which is not installed" },
	{ "no mount.nfs: other distributions", MOUNT_STEP_PROGRAM, ENOENT, "",
	  ERROR_FAILED_PRECONDITION, "nfs-utils (Fedora, Alpine)" },
	{ "no statd", MOUNT_STEP_PROGRAM, 0,
	  "mount.nfs: rpc.statd is not running but is required for remote locking.\nmore\n",
	  ERROR_FAILED_PRECONDITION, "nolock" },
	{ "program: denied", MOUNT_STEP_PROGRAM, 0,
	  "mount.nfs: access denied by server while mounting nfs.example:/share/dir\n",
	  ERROR_PERMISSION_DENIED, "access denied" },
	{ "program: no directory", MOUNT_STEP_PROGRAM, 0,
	  "mount.nfs: mounting x failed, reason given by server: No such file or directory\n",
	  ERROR_NOT_FOUND, "No such file" },
	{ "program: refused", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Connection refused\n",
	  ERROR_UNAVAILABLE, "refused" },
	{ "program: busy", MOUNT_STEP_PROGRAM, 0, "mount.nfs: /t is busy or already mounted\n",
	  ERROR_ABORTED, "try again" },
	{ "program: stale", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Stale file handle\n",
	  ERROR_UNAVAILABLE, "is being moved" },
	{ "program: I/O error", MOUNT_STEP_PROGRAM, 0, "mount.nfs: mount system call failed\n",
	  ERROR_UNAVAILABLE, "see its log" },
	{ "program: server fault", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Remote I/O error\n",
	  ERROR_UNAVAILABLE, "see its log" },
	{ "program: reset", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Connection reset by peer\n",
	  ERROR_UNAVAILABLE, "reset" },
	{ "program: a file", MOUNT_STEP_PROGRAM, 0,
	  "mount.nfs: mount spec nfs.example:/share/dir or point /t is not a directory\n",
	  ERROR_NOT_FOUND, "not a directory" },
	{ "program: not permitted", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Operation not permitted\n",
	  ERROR_PERMISSION_DENIED, "refuses" },
	{ "program: no memory", MOUNT_STEP_PROGRAM, 0, "mount.nfs: Cannot allocate memory\n",
	  ERROR_RESOURCE_EXHAUSTED, "memory" },
	{ "program: no NFS", MOUNT_STEP_PROGRAM, 0, "mount.nfs: No such device\n",
	  ERROR_FAILED_PRECONDITION, "module" },
	{ "program: after another one", MOUNT_STEP_PROGRAM, 0,
	  "Created symlink a.\nmount.nfs: access denied by server while mounting x\nmore\n",
	  ERROR_PERMISSION_DENIED, "share/dir': mount.nfs: access denied" },
	{ "program: something else after another one", MOUNT_STEP_PROGRAM, 0,
	  "Created symlink a.\nmount.nfs: oh dear\nmore\n", ERROR_INTERNAL, "mount.nfs: oh dear" },
	{ "program: something else", MOUNT_STEP_PROGRAM, 0, "mount.nfs: oh dear\nmore\n",
	  ERROR_INTERNAL, "oh dear" },
	{ "a link on the way", MOUNT_STEP_WALK, ELOOP, "", ERROR_FAILED_PRECONDITION,
	  "symbolic link" },
	{ "an old kernel", MOUNT_STEP_WALK, ENOSYS, "", ERROR_FAILED_PRECONDITION, "Linux 5.6" },
	{ "may not search", MOUNT_STEP_WALK, EACCES, "", ERROR_PERMISSION_DENIED, "search" },
	{ "no capability", MOUNT_STEP_WALK, EPERM, "", ERROR_PERMISSION_DENIED, "CAP_SYS_CHROOT" },
	{ "not put in place", MOUNT_STEP_WALK, EINVAL, "", ERROR_ABORTED, "target path" },
	{ "no directory below", MOUNT_STEP_WALK, ENOENT, "", ERROR_NOT_FOUND,
	  "nfs.example:/share/dir" },
	{ "mode", MOUNT_STEP_CHMOD, EPERM, "", ERROR_PERMISSION_DENIED, "2770" },
	{ "mode: no access", MOUNT_STEP_CHMOD, EACCES, "", ERROR_PERMISSION_DENIED, "squashed" },
	{ "mode: I/O error", MOUNT_STEP_CHMOD, EIO, "", ERROR_UNAVAILABLE, "2770" },
	{ "mode: stale", MOUNT_STEP_CHMOD, ESTALE, "", ERROR_UNAVAILABLE, "unmounted" },
	{ "unknown step", 99, 0, "", ERROR_INTERNAL, "99" },
};

START_TEST(test_replies)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct mount_reply reply = {
			.magic = MOUNT_REPLY_MAGIC,
			.step = rows[i].step,
			.error = rows[i].error,
			.low = 2,
			.high = 3,
			.address = "192.0.2.1",
			.text = "the text",
		};
		struct error err = { .code = ERROR_OK };
		int r;

		write_file(reply_file, &reply, sizeof(reply));
		write_file(log_file, rows[i].log, strlen(rows[i].log));
		r = mount_with(OPTIONS, script, &err);
		check_int(rows[i].name, "failure", r < 0, rows[i].code != ERROR_OK);
		check_error(rows[i].name, &err, rows[i].code, rows[i].word);
		check_that(rows[i].name, "that options stay out of the message",
			   strstr(err.msg, "hunter2") == NULL);
		check_that(rows[i].name, "that the message is one line",
			   strchr(err.msg, '\n') == NULL);
	}
}
END_TEST

/* It is unknown whether it is mounted, so the code must not be final. */
START_TEST(test_no_reply)
{
	struct mount_reply reply = { .magic = MOUNT_REPLY_MAGIC + 1 };
	struct error err = { .code = ERROR_OK };

	write_file(log_file, "crashed here\n", 13);
	write_file(reply_file, &reply, sizeof(reply));
	ck_assert_int_lt(mount_with(OPTIONS, script, &err), 0);
	check_error("garbage", &err, ERROR_ABORTED, "crashed here");
	error_clear(&err);
	write_file(reply_file, &reply, sizeof(reply) - 1);
	ck_assert_int_lt(mount_with(OPTIONS, script, &err), 0);
	check_error("short", &err, ERROR_ABORTED, "helper");
	error_clear(&err);
	ck_assert_int_lt(mount_with(OPTIONS, "/nonexistent/helper", &err), 0);
	check_error("no helper", &err, ERROR_ABORTED, "helper");
}
END_TEST

static void read_request(struct mount_frame *ret)
{
	FILE *f = fopen(request_file, "re");
	char data[sizeof(*ret) + 1];
	size_t len;

	ck_assert_ptr_nonnull(f);
	len = fread(data, 1, sizeof(data), f);
	fclose(f);
	ck_assert_int_eq(mount_frame_decode(ret, data, len), 0);
}

START_TEST(test_request)
{
	static const struct {
		const char *name;
		const char *top, *path, *below;
	} tops[] = {
		{ "whole", NULL, "/share/dir", "" },
		{ "top", "/share", "/share", "dir" },
		{ "root", "/", "/", "share/dir" },
		{ "top that is all", "/share/dir", "/share/dir", "" },
	};
	struct error err = { .code = ERROR_OK };
	struct mount_frame frame;
	size_t i;

	write_file(log_file, "", 0);
	put_reply(MOUNT_STEP_DONE, 0);
	for (i = 0; i < ARRAY_SIZE(tops); i++) {
		ck_assert_int_eq(mount_below(tops[i].top, OPTIONS, script, &err), 0);
		read_request(&frame);
		check_int(tops[i].name, "operation", frame.operation, MOUNT_OP_MOUNT);
		check_int(tops[i].name, "driver", frame.driver, getpid());
		check_int(tops[i].name, "mode", frame.mode, 02770);
		check_int(tops[i].name, "read_only", frame.read_only, 1);
		check_str(tops[i].name, "server", frame.server, "nfs.example");
		check_str(tops[i].name, "top", frame.top, tops[i].path);
		check_str(tops[i].name, "below", frame.below, tops[i].below);
		check_str(tops[i].name, "target", frame.target, folder);
		check_str(tops[i].name, "options", frame.options, OPTIONS);
	}
}
END_TEST

/* An error names the path that the server was asked for, or the volume if the walk failed. */
START_TEST(test_names_in_errors)
{
	struct error err = { .code = ERROR_OK };

	write_file(log_file, "", 0);
	put_reply(MOUNT_STEP_MOUNT, ENOENT);
	ck_assert_int_lt(mount_below("/share", OPTIONS, script, &err), 0);
	check_error("top", &err, ERROR_NOT_FOUND, "'nfs.example:/share'");
	error_clear(&err);
	put_reply(MOUNT_STEP_WALK, ENOENT);
	ck_assert_int_lt(mount_below("/share", OPTIONS, script, &err), 0);
	check_error("below", &err, ERROR_NOT_FOUND, "'nfs.example:/share/dir'");
}
END_TEST

START_TEST(test_compare)
{
	static const struct {
		const char *name;
		enum mount_step step;
		int error;
		enum error_code code;
		bool same;
	} answers[] = {
		{ "same", MOUNT_STEP_DONE, 0, ERROR_OK, true },
		{ "other", MOUNT_STEP_OTHER, 0, ERROR_OK, false },
		{ "gone", MOUNT_STEP_WALK, ENOENT, ERROR_NOT_FOUND, false },
		{ "silent", MOUNT_STEP_REACH, ETIMEDOUT, ERROR_UNAVAILABLE, false },
	};
	const struct mount_request q = {
		.server = "nfs.example", .path = "/share/dir", .target = folder, .options = OPTIONS
	};
	struct error err = { .code = ERROR_OK };
	struct mounter *m;
	size_t i;

	ck_assert_int_eq(mounter_new(&m, script, &err), 0);
	write_file(log_file, "", 0);
	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		bool same = false;

		error_clear(&err);
		put_reply(answers[i].step, answers[i].error);
		check_int(answers[i].name, "failure", m->ops->compare(m, &q, &same, &err) < 0,
			  answers[i].code != ERROR_OK);
		check_error(answers[i].name, &err, answers[i].code, NULL);
		check_int(answers[i].name, "same", same, answers[i].same);
	}
	mounter_free(m);
}
END_TEST

/* Too many open files say nothing about the server: the next caller asks it. */
START_TEST(test_no_descriptors)
{
	const struct mount_request q = {
		.server = "127.0.0.1",
		.path = "/share",
		.target = folder,
		.options = "port=1",
	};
	struct error err = { .code = ERROR_OK };
	struct rlimit usual, none;
	struct mounter *m;

	ck_assert_int_eq(mounter_new(&m, script, &err), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
	none = (struct rlimit){ .rlim_cur = 0, .rlim_max = usual.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	check_int("none", "result", m->ops->mount(m, &q, &err), -EMFILE);
	check_error("none", &err, ERROR_UNAVAILABLE, "Too many open files");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &usual), 0);
	error_clear(&err);
	check_int("some", "result", m->ops->mount(m, &q, &err), -EHOSTDOWN);
	check_error("some", &err, ERROR_UNAVAILABLE, "Connection refused");
	mounter_free(m);
}
END_TEST

/* A refusal of the mode is told from a server that is not well, and from a missing directory. */
START_TEST(test_verify)
{
	static const struct {
		const char *name;
		enum mount_step step;
		int error;
		enum error_code code;
		bool stale;
		const char *word;
	} answers[] = {
		{ "well", MOUNT_STEP_DONE, 0, ERROR_OK, false, NULL },
		{ "gone", MOUNT_STEP_STAT, ESTALE, ERROR_UNAVAILABLE, true, "stale" },
		{ "failed", MOUNT_STEP_STAT, EIO, ERROR_UNAVAILABLE, false, "looking" },
		{ "unmounted", MOUNT_STEP_OTHER, 0, ERROR_NOT_FOUND, false, "any more" },
		{ "mode", MOUNT_STEP_CHMOD, EPERM, ERROR_PERMISSION_DENIED, false, "squashed" },
		{ "mode: no access", MOUNT_STEP_CHMOD, EACCES, ERROR_PERMISSION_DENIED, false,
		  "squashed" },
		{ "mode: gone", MOUNT_STEP_CHMOD, ESTALE, ERROR_UNAVAILABLE, true, "stale" },
		{ "mode: I/O error", MOUNT_STEP_CHMOD, EIO, ERROR_UNAVAILABLE, false, "looking" },
	};
	char source[] = "nfs.example:/share/dir", address[] = "192.0.2.1";
	const struct mount_info info = { .source = source, .address = address, .depth = 1 };
	struct error err = { .code = ERROR_OK };
	struct mount_frame frame;
	struct mounter *m;
	size_t i;
	int r;

	ck_assert_int_eq(mounter_new(&m, script, &err), 0);
	write_file(log_file, "", 0);
	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		error_clear(&err);
		put_reply(answers[i].step, answers[i].error);
		r = m->ops->verify(m, folder, &info, 0770, &err);
		read_request(&frame);
		check_int(answers[i].name, "operation", frame.operation, MOUNT_OP_VERIFY);
		check_int(answers[i].name, "mode", frame.mode, 0770);
		check_int(answers[i].name, "failure", r < 0, answers[i].code != ERROR_OK);
		check_int(answers[i].name, "stale", r == -ESTALE, answers[i].stale);
		check_error(answers[i].name, &err, answers[i].code, answers[i].word);
	}
	mounter_free(m);
}
END_TEST

/* Mount options may be secret, and any user can read an argument list. */
START_TEST(test_options_are_not_in_argv)
{
	struct error err = { .code = ERROR_OK };
	FILE *f = fopen(script, "we");

	ck_assert_ptr_nonnull(f);
	fprintf(f,
		"#!/bin/sh\ncd %s && cat >request && grep -q hunter2 request || exit 1\n"
		"! grep -q hunter2 /proc/$$/cmdline /proc/$$/environ && cat reply\n",
		folder);
	fclose(f);
	put_reply(MOUNT_STEP_DONE, 0);
	ck_assert_int_eq(mount_with(OPTIONS, script, &err), 0);
}
END_TEST

/* Bad options never reach a helper. */
START_TEST(test_options)
{
	struct error err = { .code = ERROR_OK };

	ck_assert_int_lt(mount_with("bind", script, &err), 0);
	check_error("bind", &err, ERROR_INVALID_ARGUMENT, "bind");
	ck_assert_int_ne(access(request_file, F_OK), 0);
}
END_TEST

START_TEST(test_nothing_mounted)
{
	struct error err = { .code = ERROR_OK };
	struct mount_info *info = (struct mount_info *)folder; /* must be overwritten */
	struct mounter *m;

	ck_assert_int_eq(mounter_new(&m, script, &err), 0);
	ck_assert_int_eq(m->ops->find(m, folder, &info, &err), 0);
	ck_assert_ptr_null(info);
	ck_assert_int_eq(m->ops->find(m, "/nonexistent/a/b", &info, &err), 0);
	ck_assert_ptr_null(info);
	ck_assert_int_eq(m->ops->unmount(m, folder, &err), 0);
	ck_assert_int_eq(m->ops->unmount(m, "/nonexistent/a/b", &err), 0);
	ck_assert_int_ne(access(request_file, F_OK), 0); /* no helper for that */
	/* Leave mounts of others alone. */
	ck_assert_int_lt(m->ops->unmount(m, "/proc", &err), 0);
	check_error("/proc", &err, ERROR_FAILED_PRECONDITION, "proc");
	mounter_free(m);
	mounter_free(NULL);
}
END_TEST

/* A mount is only forced away if its server is silent: that loses what is being written. */
START_TEST(test_silence)
{
	static const struct {
		int error;
		bool silence;
	} results[] = {
		{ 0, false },
		{ -EPROTONOSUPPORT, false },
		{ -EPROTO, false },
		{ -EACCES, false },
		{ -ECONNRESET, false },
		{ -ENOMEM, false },
		{ -ENOBUFS, false },
		{ -EMFILE, false },
		{ -ENFILE, false },
		{ -EADDRINUSE, false },
		{ -EADDRNOTAVAIL, false },
		{ -ETIMEDOUT, true },
		{ -EHOSTUNREACH, true },
		{ -ENETUNREACH, true },
		{ -ECONNREFUSED, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(results); i++)
		check_int(strerror(-results[i].error), "silence",
			  mount_is_silence(results[i].error), results[i].silence);
}
END_TEST

CHECK_MAIN("mounter", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_replies,
		   test_no_reply,
		   test_request,
		   test_names_in_errors,
		   test_compare,
		   test_no_descriptors,
		   test_verify,
		   test_options_are_not_in_argv,
		   test_options,
		   test_nothing_mounted,
		   test_silence,
	   })
