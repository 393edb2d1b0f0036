/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "grpc/listener.h"
#include "grpc/server.h"
#include "check_util.h"

#define TEN "aaaaaaaaaa"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

/* ---- Endpoints ---- */

static const struct {
	const char *endpoint;
	const char *path; /* NULL: refused */
	const char *text; /* in the message */
} endpoints[] = {
	{ "unix:///csi/csi.sock", "/csi/csi.sock", NULL },
	{ "unix://csi/csi.sock", "/csi/csi.sock", NULL },
	{ "unix:/csi/csi.sock", "/csi/csi.sock", NULL },
	{ "unix:csi.sock", "csi.sock", NULL },
	{ "UNIX:///csi/csi.sock", "/csi/csi.sock", NULL },
	{ "/csi/csi.sock", "/csi/csi.sock", NULL },
	{ "unix:@file", "./@file", NULL },
	{ "unix-abstract:name", "@name", NULL },
	{ "@name", "@name", NULL },
	{ "unix:///" HUNDRED "/aaaaa", "/" HUNDRED "/aaaaa", NULL },
	{ "unix:///" HUNDRED "/aaaaaa", NULL, "108 bytes" },
	{ "unix-abstract:" HUNDRED "aaaaaaa", NULL, "108 bytes" },
	{ "tcp://127.0.0.1:10000", NULL, "no authentication" },
	{ "TCP:127.0.0.1:10000", NULL, "no authentication" },
	{ "http://x/csi.sock", NULL, "unix:///path/csi.sock" },
	{ "csi.sock", NULL, "unix:///path/csi.sock" },
	{ "", NULL, "unix:///path/csi.sock" },
	{ "@", NULL, "unix:///path/csi.sock" },
	{ "unix-abstract:", NULL, "unix:///path/csi.sock" },
	{ "unix:", NULL, "names no socket" },
	{ "unix://", NULL, "names no socket" },
	{ "unix:///", NULL, "names no socket" },
	{ "/", NULL, "names no socket" },
};

START_TEST(test_endpoint)
{
	struct error err = { .code = ERROR_OK };
	const char *endpoint = endpoints[_i].endpoint;
	char *path = NULL;
	int r = grpc_endpoint_parse(endpoint, &path, &err);

	ck_assert_msg(str_eq(path, endpoints[_i].path), "'%s': got %s, want %s", endpoint,
		      path != NULL ? path : "nothing",
		      endpoints[_i].path != NULL ? endpoints[_i].path : "nothing");
	if (endpoints[_i].path != NULL) {
		ck_assert_int_eq(r, 0);
	} else {
		ck_assert_int_lt(r, 0);
		ck_assert_int_eq(err.code, ERROR_INVALID_ARGUMENT);
		ck_assert_msg(strstr(err.msg, endpoints[_i].text) != NULL, "'%s': %s", endpoint,
			      err.msg);
	}
	free(path);
}
END_TEST

/* ---- The socket's file ---- */

static char directory[CHECK_FOLDER];
static char path[CHECK_FOLDER + 16];

static void setup(void)
{
	check_make_folder(directory);
	(void)snprintf(path, sizeof(path), "%s/csi.sock", directory);
}

static void teardown(void)
{
	(void)unlink(path); /* exists only after a failure */
	ck_assert_int_eq(rmdir(directory), 0);
}

static bool exists(void)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static int connect_to(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	int r;

	memcpy(address.sun_path, name, strlen(name));
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	r = connect(fd, (struct sockaddr *)&address, len);
	(void)close(fd);
	return r;
}

START_TEST(test_open_and_close)
{
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };
	struct stat st;
	mode_t mask = umask(0);

	ck_assert_msg(grpc_listener_open(&l, path, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert_msg((st.st_mode & 07777) == 0600, "mode %o", st.st_mode & 07777);
	ck_assert_msg(umask(mask) == 0, "the umask was changed");
	ck_assert_int_eq(connect_to(path), 0);
	grpc_listener_close(&l);
	ck_assert(!exists());
	grpc_listener_close(&l);
}
END_TEST

START_TEST(test_stale)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };

	memcpy(address.sun_path, path, strlen(path));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	(void)close(fd);
	ck_assert_msg(grpc_listener_open(&l, path, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(connect_to(path), 0);
	grpc_listener_close(&l);
}
END_TEST

START_TEST(test_alive)
{
	struct grpc_listener first, second;
	struct error err = { .code = ERROR_OK };

	ck_assert_int_eq(grpc_listener_open(&first, path, NULL), 0);
	ck_assert_int_eq(grpc_listener_open(&second, path, &err), -EADDRINUSE);
	ck_assert_msg(strstr(err.msg, "another process is serving") != NULL, "%s", err.msg);
	ck_assert_int_eq(connect_to(path), 0);
	grpc_listener_close(&first);
}
END_TEST

static void *close_soon(void *data)
{
	clock_sleep_ms(300);
	(void)close(*(int *)data);
	return NULL;
}

/* As of a child of a driver that was killed: the socket is served a little longer. */
START_TEST(test_about_to_end)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };
	pthread_t thread;

	memcpy(address.sun_path, path, strlen(path));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, close_soon, &fd), 0);
	ck_assert_msg(grpc_listener_open(&l, path, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(connect_to(path), 0);
	grpc_listener_close(&l);
}
END_TEST

START_TEST(test_not_a_socket)
{
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	(void)close(fd);
	ck_assert_int_eq(grpc_listener_open(&l, path, &err), -ENOTSOCK);
	ck_assert_int_eq(err.code, ERROR_FAILED_PRECONDITION);
	ck_assert(exists());
}
END_TEST

START_TEST(test_no_directory)
{
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };
	char deep[128];

	(void)snprintf(deep, sizeof(deep), "%s/none/csi.sock", directory);
	ck_assert_int_eq(grpc_listener_open(&l, deep, &err), -ENOENT);
	ck_assert_msg(strstr(err.msg, "directory does not exist") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(test_too_long)
{
	struct grpc_listener l;
	struct error err = { .code = ERROR_OK };

	ck_assert_int_eq(grpc_listener_open(&l, "/tmp/" HUNDRED TEN, &err), -ENAMETOOLONG);
	ck_assert_int_eq(grpc_listener_open(&l, "", NULL), -ENAMETOOLONG);
}
END_TEST

START_TEST(test_replaced_file_is_not_removed)
{
	struct grpc_listener first, second;
	char old[128];

	ck_assert_int_eq(grpc_listener_open(&first, path, NULL), 0);
	(void)snprintf(old, sizeof(old), "%s.old", path);
	ck_assert_int_eq(rename(path, old), 0);
	ck_assert_int_eq(grpc_listener_open(&second, path, NULL), 0);
	grpc_listener_close(&first);
	ck_assert(exists());
	ck_assert_int_eq(connect_to(path), 0);
	grpc_listener_close(&second);
	ck_assert_int_eq(unlink(old), 0);
}
END_TEST

START_TEST(test_abstract)
{
	struct grpc_listener l, second;
	struct error err = { .code = ERROR_OK };
	char name[64];

	(void)snprintf(name, sizeof(name), "@test-grpc-%d", (int)getpid());
	ck_assert_msg(grpc_listener_open(&l, name, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(connect_to(name), 0);
	ck_assert_int_eq(grpc_listener_open(&second, name, &err), -EADDRINUSE);
	grpc_listener_close(&l);
	ck_assert_int_eq(connect_to(name), -1);
}
END_TEST

/* ---- Sockets that another process made ---- */

/* Bind a socket: a unix one at name, "@..." for an abstract one, any other on the loopback. */
static int passed_socket(int domain, int type, const char *name, bool listens)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(domain, type, 0);
	int r;

	ck_assert_int_ge(fd, 0);
	if (domain == AF_UNIX) {
		memcpy(un.sun_path, name, strlen(name));
		if (name[0] == '@')
			un.sun_path[0] = '\0';
		r = bind(fd, (struct sockaddr *)&un,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
	} else {
		r = bind(fd, (struct sockaddr *)&in, sizeof(in));
	}
	ck_assert_msg(r == 0, "bind: %s", strerror(errno));
	if (listens)
		ck_assert_int_eq(listen(fd, 5), 0);
	return fd;
}

static void check_refused(const char *row, int fd, const char *endpoint, const char *word)
{
	struct error err = { .code = ERROR_OK };
	char *got = NULL;

	check_that(row, "refused", grpc_endpoint_of_socket(fd, endpoint, &got, &err) < 0);
	check_error(row, &err, ERROR_INVALID_ARGUMENT, word);
	check_that(row, "no path", got == NULL);
	if (fd >= 0)
		(void)close(fd);
}

static void check_accepted(const char *row, int fd, const char *endpoint, const char *want)
{
	struct error err = { .code = ERROR_OK };
	char *got = NULL;
	int r = grpc_endpoint_of_socket(fd, endpoint, &got, &err);

	ck_assert_msg(r == 0, "%s: %s", row, err.msg);
	check_str(row, "path", got, want);
	free(got);
}

START_TEST(test_passed_socket)
{
	char endpoint[160], link[160], other[160], abstract[64];
	int fd = passed_socket(AF_UNIX, SOCK_STREAM, path, true);

	check_accepted("no endpoint", fd, NULL, path);
	(void)snprintf(endpoint, sizeof(endpoint), "unix://%s", path);
	check_accepted("its endpoint", fd, endpoint, path);
	(void)snprintf(link, sizeof(link), "%s/link", directory);
	ck_assert_int_eq(symlink(directory, link), 0);
	(void)snprintf(endpoint, sizeof(endpoint), "unix://%s/link/%s", directory,
		       strrchr(path, '/') + 1);
	check_accepted("another spelling", fd, endpoint, path);
	ck_assert_int_eq(unlink(link), 0);
	(void)close(fd);

	(void)snprintf(abstract, sizeof(abstract), "@test-passed-%d", (int)getpid());
	fd = passed_socket(AF_UNIX, SOCK_STREAM, abstract, true);
	check_accepted("abstract", fd, NULL, abstract);
	check_accepted("abstract, named", fd, abstract, abstract);
	check_refused("abstract, another", fd, "@another", "is not the passed socket");

	(void)snprintf(other, sizeof(other), "%s/other", directory);
	fd = passed_socket(AF_UNIX, SOCK_STREAM, other, true);
	check_refused("another path", fd, "unix:///run/other.sock", "is not the passed socket");
	ck_assert_int_eq(unlink(other), 0);
}
END_TEST

START_TEST(test_passed_socket_of_full_length)
{
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1] = "@";
	int fd;

	memset(name + 1, 'a', sizeof(name) - 2);
	(void)snprintf(name + sizeof(name) - 10, 10, "%09d", (int)getpid());
	fd = passed_socket(AF_UNIX, SOCK_STREAM, name, true);
	check_accepted("as long as can be", fd, NULL, name);
	(void)close(fd);
}
END_TEST

START_TEST(test_passed_wrongly)
{
	int fd, pair[2];

	check_refused("closed", -1, NULL, "not a socket");
	check_refused("file", open("/dev/null", O_RDWR | O_CLOEXEC), NULL, "not a socket");
	check_refused("TCP", passed_socket(AF_INET, SOCK_STREAM, NULL, true), NULL,
		      "no authentication");
	check_refused("datagrams", passed_socket(AF_UNIX, SOCK_DGRAM, path, false), NULL,
		      "not a unix stream socket");
	ck_assert_int_eq(unlink(path), 0);
	fd = passed_socket(AF_UNIX, SOCK_SEQPACKET, path, true);
	check_refused("packets", fd, NULL, "not a unix stream socket");
	ck_assert_int_eq(unlink(path), 0);
	fd = passed_socket(AF_UNIX, SOCK_STREAM, path, false);
	check_refused("does not listen", fd, NULL, "Accept=no");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	check_refused("connection", pair[0], NULL, "Accept=no");
	(void)close(pair[1]);
	ck_assert_int_eq(unlink(path), 0);
	fd = passed_socket(AF_UNIX, SOCK_STREAM, path, true);
	check_refused("malformed endpoint", fd, "tcp://127.0.0.1:1", "no authentication");
}
END_TEST

START_TEST(test_adopt)
{
	struct error err = { .code = ERROR_OK };
	struct grpc_listener l;
	int fd = passed_socket(AF_UNIX, SOCK_STREAM, path, true), kept = dup(fd);

	ck_assert_msg(grpc_listener_adopt(&l, fd, &err) == 0, "%s", err.msg);
	ck_assert_int_eq(l.fd, fd);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	grpc_listener_close(&l);
	ck_assert_msg(exists(), "the file of a passed socket was removed");
	/* Whoever passed it keeps it: clients wait there for the next process. */
	ck_assert_int_eq(connect_to(path), 0);
	(void)close(kept);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(grpc_listener_adopt(&l, -1, &err), -EBADF);
}
END_TEST

/* clang-format off */
CHECK_MAIN("grpc_endpoint", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_open_and_close, test_stale, test_alive, test_about_to_end,
		   test_not_a_socket, test_no_directory,
		   test_too_long, test_replaced_file_is_not_removed, test_abstract,
		   test_passed_socket, test_passed_socket_of_full_length, test_passed_wrongly,
		   test_adopt,
	   },
	   .loops = {
		   { test_endpoint, ARRAY_SIZE(endpoints) },
	   })
