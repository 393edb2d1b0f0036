/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "systemd.h"
#include "check_util.h"

#define FIRST 3

static const char *const variables[] = { "LISTEN_PID",     "LISTEN_PIDFDID", "LISTEN_FDS",
					 "LISTEN_FDNAMES", "NOTIFY_SOCKET",  "STATE_DIRECTORY" };

static void set(const char *name, const char *value)
{
	if (value != NULL)
		ck_assert_int_eq(setenv(name, value, 1), 0);
	else
		ck_assert_int_eq(unsetenv(name), 0);
}

static void setup(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++)
		set(variables[i], NULL);
}

struct outcome {
	struct systemd systemd;
	struct error err;
	int result;
	int flags; /* of descriptor 3 after it: fcntl(F_GETFD) */
};

/*
 * systemd_init() with fd as descriptor 3, or none for a negative one. That descriptor may be one of
 * the test framework: it is put back before anything else happens.
 */
static struct outcome init(int fd)
{
	struct outcome o = { .systemd = { .socket = -1 }, .err = { .code = ERROR_OK } };
	int saved = fcntl(FIRST, F_DUPFD_CLOEXEC, 100);

	if (fd >= 0)
		(void)dup2(fd, FIRST);
	else
		(void)close(FIRST);
	o.result = systemd_init(&o.systemd, &o.err);
	o.flags = fcntl(FIRST, F_GETFD);
	if (saved >= 0) {
		(void)dup2(saved, FIRST);
		(void)close(saved);
	} else {
		(void)close(FIRST);
	}
	return o;
}

static const struct {
	const char *name;
	const char *pid; /* "self": of this process */
	const char *count;
	bool closed; /* nothing is there as descriptor 3 */
	bool passed;
	const char *error;
} rows[] = {
	{ "nothing" },
	{ "one", "self", "1", .passed = true },
	{ "of another process", "1", "1" },
	{ "of another process, and several", "1", "7" },
	{ "of nobody", NULL, "1" },
	{ "empty", "", "1" },
	{ "none", "self", "0" },
	{ "two", "self", "2", .error = "serves one" },
	{ "no count", "self", NULL, .error = "LISTEN_FDS" },
	{ "no number", "self", "one", .error = "LISTEN_FDS" },
	{ "negative", "self", "-1", .error = "LISTEN_FDS" },
	{ "too many", "self", "99999999999", .error = "LISTEN_FDS" },
	{ "no process", "me", "1", .error = "LISTEN_PID" },
	{ "closed", "self", "1", .closed = true, .error = "LISTEN_FDS" },
};

START_TEST(test_socket)
{
	const char *row = rows[_i].name, *pid = rows[_i].pid;
	int fd = open("/dev/null", O_RDWR); /* what it is, is not looked at here */
	struct outcome o;
	char self[16];
	size_t i;

	(void)snprintf(self, sizeof(self), "%d", (int)getpid());
	set("LISTEN_PID", str_eq(pid, "self") ? self : pid);
	set("LISTEN_FDS", rows[_i].count);
	set("LISTEN_FDNAMES", "csi");
	set("LISTEN_PIDFDID", "17");
	o = init(rows[_i].closed ? -1 : fd);
	check_that(row, "result", (o.result < 0) == (rows[_i].error != NULL));
	if (rows[_i].error != NULL)
		check_error(row, &o.err, ERROR_INVALID_ARGUMENT, rows[_i].error);
	check_int(row, "descriptor", o.systemd.socket >= 0 ? o.systemd.socket : -1,
		  rows[_i].passed ? FIRST : -1);
	if (rows[_i].passed)
		check_int(row, "descriptor flags", o.flags, FD_CLOEXEC);
	for (i = 0; i < ARRAY_SIZE(variables); i++)
		ck_assert_msg(getenv(variables[i]) == NULL, "%s: %s is left", row, variables[i]);
	(void)close(fd);
}
END_TEST

START_TEST(test_holder)
{
	static const struct {
		const char *name, *folders, *want;
	} places[] = {
		{ "none", NULL, NULL },
		{ "empty", "", NULL },
		{ "one", "/var/lib/csi-nfs-controller", "/var/lib/csi-nfs-controller/csi-nfs" },
		{ "several", "/var/lib/a:/var/lib/b", "/var/lib/a/csi-nfs" },
	};
	int fd = open("/dev/null", O_RDWR);
	char self[16];
	size_t i;

	(void)snprintf(self, sizeof(self), "%d", (int)getpid());
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		struct outcome o;

		set("LISTEN_PID", self);
		set("LISTEN_FDS", "1");
		set("STATE_DIRECTORY", places[i].folders);
		o = init(fd);
		check_int(places[i].name, "result", o.result, 0);
		check_str(places[i].name, "holder", o.systemd.holder, places[i].want);
		o.systemd.socket = -1; /* it is the test framework's again */
		systemd_done(&o.systemd);
		/* Without a socket the folder may be of whatever started us. */
		o = init(-1);
		check_str(places[i].name, "holder without a socket", o.systemd.holder, NULL);
	}
	(void)close(fd);
}
END_TEST

/* ---- Notifications ---- */

static int receiver(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, name, strlen(name));
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
			 0);
	return fd;
}

static void check_heard(const char *row, const char *name)
{
	char text[64] = "";
	int fd = receiver(name);
	struct outcome o;

	set("NOTIFY_SOCKET", name);
	o = init(-1);
	check_int(row, "result", o.result, 0);
	check_that(row, "variable is gone", getenv("NOTIFY_SOCKET") == NULL);
	check_int(row, "notification", systemd_notify(&o.systemd, "READY=1"), 0);
	check_int(row, "length", recv(fd, text, sizeof(text) - 1, 0), 7);
	check_str(row, "text", text, "READY=1");
	check_int(row, "another", recv(fd, text, sizeof(text) - 1, 0), -1);
	systemd_done(&o.systemd);
	(void)close(fd);
}

START_TEST(test_notify)
{
	char directory[CHECK_FOLDER], name[CHECK_FOLDER + 16];

	check_make_folder(directory);
	(void)snprintf(name, sizeof(name), "%s/notify", directory);
	check_heard("path", name);
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(rmdir(directory), 0);
	(void)snprintf(name, sizeof(name), "@test-systemd-%d", (int)getpid());
	check_heard("abstract", name);
}
END_TEST

START_TEST(test_notify_nobody)
{
	char long_name[200];
	struct systemd s = { .socket = -1 };

	ck_assert_int_eq(systemd_notify(&s, "READY=1"), 0);
	s.notify = (char *)(uintptr_t) "/nowhere/notify";
	ck_assert_int_eq(systemd_notify(&s, "READY=1"), -ENOENT);
	s.notify = (char *)(uintptr_t) "vsock:2:1234";
	ck_assert_int_eq(systemd_notify(&s, "READY=1"), -EAFNOSUPPORT);
	memset(long_name, 'a', sizeof(long_name));
	long_name[0] = '/';
	long_name[sizeof(long_name) - 1] = '\0';
	s.notify = long_name;
	ck_assert_int_eq(systemd_notify(&s, "READY=1"), -ENAMETOOLONG);
}
END_TEST

START_TEST(test_notify_does_not_wait_for_ever)
{
	struct systemd s = { .socket = -1 };
	char name[64];
	int i, fd, r = 0;

	(void)snprintf(name, sizeof(name), "@test-systemd-full-%d", (int)getpid());
	fd = receiver(name);
	s.notify = name;
	for (i = 0; i < 100000 && r == 0; i++) /* until the kernel takes no more */
		r = systemd_notify(&s, "READY=1");
	ck_assert_int_eq(r, -EAGAIN);
	(void)close(fd);
}
END_TEST

/* clang-format off */
CHECK_MAIN("systemd", .setup = setup,
	   .tests = {
		   test_holder, test_notify, test_notify_nobody, test_notify_does_not_wait_for_ever,
	   },
	   .loops = {
		   { test_socket, ARRAY_SIZE(rows) },
	   })
