/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"
#include "check_util.h"
#include "mount/mountinfo.h"

#define ROOT "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=remount-ro\n"
#define PODS "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi"
#define V4_SUPER "rw,vers=4.2,rsize=1048576,hard,proto=tcp,clientaddr=192.0.2.9,addr=192.0.2.1"
#define V3_SUPER "rw,vers=3,rsize=1048576,hard,nolock,proto=tcp,mountproto=tcp,addr=192.0.2.1"

static const struct {
	const char *name;
	const char *text; /* of the file */
	const char *path;
	unsigned int depth; /* 0: nothing is mounted there */
	const char *source, *fstype;
	bool read_only, is_nfs, no_suid, no_dev;
} rows[] = {
	{ "v4",
	  ROOT "40 22 0:51 / " PODS "/pv/mount rw,relatime shared:9 - nfs4 s:/a " V4_SUPER "\n",
	  PODS "/pv/mount", 1, "s:/a", "nfs4", false, true },
	{ "v3", ROOT "40 22 0:51 / /t rw,relatime - nfs s:/a " V3_SUPER "\n", "/t", 1, "s:/a",
	  "nfs", false, true },
	{ "read-only mount of a writable file system",
	  ROOT "40 22 0:51 / /t ro,relatime - nfs4 s:/a " V4_SUPER "\n", "/t", 1, "s:/a", "nfs4",
	  true, true },
	{ "writable mount of a read-only file system",
	  ROOT "40 22 0:51 / /t rw,relatime - nfs4 s:/a ro,vers=4.2\n", "/t", 1, "s:/a", "nfs4",
	  false, true },
	{ "options that only look like ro",
	  ROOT "40 22 0:51 / /t rw,nosuid,nodev,noexec - nfs4 s:/a rw,vers=4.2,proto=tcp\n", "/t",
	  1, "s:/a", "nfs4", false, true, .no_suid = true, .no_dev = true },
	{ "ro behind others", ROOT "40 22 0:51 / /t nosuid,ro - nfs4 s:/a " V4_SUPER "\n", "/t", 1,
	  "s:/a", "nfs4", true, true, .no_suid = true },
	{ "flags of the file system are not the mount's",
	  ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw,nosuid,nodev\n", "/t", 1, "s:/a", "nfs4", false,
	  true },
	{ "space, tab, line feed and backslash in the target",
	  ROOT "40 22 0:51 / /t\\040a\\011b\\012c\\134d rw - nfs4 s:/a rw\n", "/t a\tb\nc\\d", 1,
	  "s:/a", "nfs4", false, true },
	{ "space and # in the source", ROOT "40 22 0:51 / /t rw - nfs4 s:/a\\040b\\043c rw\n", "/t",
	  1, "s:/a b#c", "nfs4", false, true },
	{ "IPv6 server", ROOT "40 22 0:51 / /t rw - nfs4 [fd00::1]:/a rw\n", "/t", 1,
	  "[fd00::1]:/a", "nfs4", false, true },
	{ "no optional fields", ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw\n", "/t", 1, "s:/a", "nfs4",
	  false, true },
	{ "many optional fields",
	  ROOT "40 22 0:51 / /t rw shared:9 master:3 propagate_from:2 unbindable - nfs4 s:/a rw\n",
	  "/t", 1, "s:/a", "nfs4", false, true },
	{ "stacked: the last one is on top",
	  ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw\n41 40 0:52 / /t ro - nfs s:/b rw\n", "/t", 2,
	  "s:/b", "nfs", true, true },
	{ "three of one",
	  ROOT "40 22 0:51 / /t ro - nfs4 s:/a rw\n41 40 0:51 / /t ro - nfs4 s:/a rw\n"
	       "42 41 0:51 / /t rw - nfs4 s:/a rw\n",
	  "/t", 3, "s:/a", "nfs4", false, true },
	{ "another file system on top",
	  ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw\n41 40 0:53 / /t rw - tmpfs tmpfs rw\n", "/t", 2,
	  "tmpfs", "tmpfs", false, false },
	{ "no NFS", ROOT "40 22 0:53 / /t rw - tmpfs tmpfs rw\n", "/t", 1, "tmpfs", "tmpfs", false,
	  false },
	{ "the NFS server's own file system", ROOT "40 22 0:54 / /t rw - nfsd nfsd rw\n", "/t", 1,
	  "nfsd", "nfsd", false, false },
	{ "nothing", ROOT, "/t", 0, NULL, NULL, false, false },
	{ "above the target", ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw\n", "/t/below", 0, NULL, NULL,
	  false, false },
	{ "below the target", ROOT "40 22 0:51 / /t/below rw - nfs4 s:/a rw\n", "/t", 0, NULL, NULL,
	  false, false },
	{ "a longer name", ROOT "40 22 0:51 / /target rw - nfs4 s:/a rw\n", "/t", 0, NULL, NULL,
	  false, false },
	{ "a server of that name", ROOT "40 22 0:51 / /m rw - nfs4 /t rw\n", "/t", 0, NULL, NULL,
	  false, false },
	{ "the last line has no end", ROOT "40 22 0:51 / /t rw - nfs4 s:/a rw", "/t", 1, "s:/a",
	  "nfs4", false, true },
	{ "empty file", "", "/t", 0, NULL, NULL, false, false },
};

static char place[CHECK_FOLDER];
static char table[CHECK_FOLDER + 16];

static void setup(void)
{
	check_make_folder(place);
	(void)snprintf(table, sizeof(table), "%s/mountinfo", place);
}

static void teardown(void)
{
	unlink(table);
	rmdir(place);
}

static void write_table(const char *text)
{
	FILE *f = fopen(table, "we");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void check_found(size_t i, const struct mount_info *info)
{
	const char *name = rows[i].name;

	if (rows[i].depth == 0) {
		check_that(name, "that nothing is found", info == NULL);
		return;
	}
	check_that(name, "that it is found", info != NULL);
	check_int(name, "depth", info->depth, rows[i].depth);
	check_str(name, "source", info->source, rows[i].source);
	check_str(name, "fstype", info->fstype, rows[i].fstype);
	check_int(name, "read_only", info->read_only, rows[i].read_only);
	check_int(name, "no_suid", info->no_suid, rows[i].no_suid);
	check_int(name, "no_dev", info->no_dev, rows[i].no_dev);
	check_int(name, "is_nfs", mount_info_is_nfs(info), rows[i].is_nfs);
}

START_TEST(test_find)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct mount_info *info = (struct mount_info *)&place; /* must be overwritten */

		write_table(rows[i].text);
		check_int(rows[i].name, "result", mountinfo_find(table, rows[i].path, &info), 0);
		check_found(i, info);
		mount_info_free(info);
	}
}
END_TEST

/* The kernel tells by poll() that mounts have changed since the file was opened. */
static int changes;

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	(void)ms;
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(fds->events, POLLPRI);
	fds->revents = 0;
	if (changes == 0)
		return 0;
	if (--changes == 0)
		write_table(rows[0].text);
	fds->revents = POLLPRI;
	return 1;
}

/* A line that is missing in the first readings, as before Linux 5.8 if another mount ends then. */
START_TEST(test_find_what_was_skipped)
{
	struct mount_info *info = NULL;

	write_table(ROOT);
	changes = 3;
	ck_assert_int_eq(mountinfo_find(table, rows[0].path, &info), 0);
	check_found(0, info);
	mount_info_free(info);
	/* It ends, however often they change. */
	changes = 1000;
	ck_assert_int_eq(mountinfo_find(table, rows[0].path, &info), 0);
	check_found(0, info);
	mount_info_free(info);
	changes = 0;
}
END_TEST

/* A node with 5,000 volumes, ours in the middle. */
START_TEST(test_find_among_many)
{
	struct mount_info *info = NULL;
	FILE *f;
	int i;

	write_table(ROOT);
	f = fopen(table, "a");
	ck_assert_ptr_nonnull(f);
	for (i = 0; i < 5000; i++)
		fprintf(f, "%d 22 0:%d / /pods/%d rw - nfs4 s:/%d " V4_SUPER "\n", i + 40, i + 51,
			i, i);
	fclose(f);
	ck_assert_int_eq(mountinfo_find(table, "/pods/2500", &info), 0);
	ck_assert_ptr_nonnull(info);
	ck_assert_str_eq(info->source, "s:/2500");
	ck_assert_int_eq(info->depth, 1);
	mount_info_free(info);
}
END_TEST

START_TEST(test_find_no_file)
{
	struct mount_info *info = NULL;

	ck_assert_int_lt(mountinfo_find("/nonexistent/mountinfo", "/t", &info), 0);
	ck_assert_ptr_null(info);
}
END_TEST

/* The kernel's own list: if it can be read, "/proc" is mounted. */
START_TEST(test_find_real)
{
	struct mount_info *info = NULL;

	ck_assert_int_eq(mountinfo_find("/proc/self/mountinfo", "/proc", &info), 0);
	ck_assert_ptr_nonnull(info);
	ck_assert_int_ge(info->depth, 1);
	mount_info_free(info);
	info = NULL;
	ck_assert_int_eq(mountinfo_find("/proc/self/mountinfo", "/nonexistent", &info), 0);
	ck_assert_ptr_null(info);
}
END_TEST

static const struct {
	const char *name;
	const char *target; /* "@" stands for the folder of the test */
	int r;
	const char *path;
} targets[] = {
	{ "plain", "@/real/t", 0, "@/real/t" },
	{ "does not exist itself", "@/real/none", 0, "@/real/none" },
	{ "slashes at the end", "@/real/t///", 0, "@/real/t" },
	{ "slashes in the middle", "@//real///t", 0, "@/real/t" },
	{ "the directory above is a link", "@/link/t", 0, "@/real/t" },
	{ "dots above", "@/real/./sub/../t", 0, "@/real/t" },
	{ "the target is a link, which is not followed", "@/real/away", 0, "@/real/away" },
	{ "the directory above is missing", "@/none/t", -ENOENT, NULL },
	{ "the directory above is a dangling link", "@/dangling/t", -ENOENT, NULL },
	/* Nothing is mounted below a file, as a lookup then finds. */
	{ "the directory above is a file", "@/file/t", 0, "@/file/t" },
	{ "the directory above is a loop", "@/loop/t", -ELOOP, NULL },
	{ "below the root", "/t", 0, "/t" },
	{ "slashes before", "///t", 0, "/t" },
	{ "relative", "t", -EINVAL, NULL },
	{ "empty", "", -EINVAL, NULL },
};

/* Replace a leading "@" with the folder. The caller frees. */
static char *in_folder(const char *text, const char *folder)
{
	char *path = NULL;

	if (text == NULL)
		return NULL;
	ck_assert_int_ge(text[0] == '@' ? asprintf(&path, "%s%s", folder, text + 1)
					: asprintf(&path, "%s", text),
			 0);
	return path;
}

/* Make a folder with the entries that targets[] needs; its own path contains no links. */
static char *make_folder(void)
{
	static const struct {
		const char *name, *to; /* to NULL: a directory */
	} entries[] = {
		{ "@/real", NULL },   { "@/real/sub", NULL },        { "@/real/t", NULL },
		{ "@/link", "real" }, { "@/real/away", "/nowhere" }, { "@/dangling", "none" },
		{ "@/loop", "loop" },
	};
	char made[CHECK_FOLDER], *folder, *path;
	size_t i;
	int fd;

	check_make_folder(made);
	folder = realpath(made, NULL);
	ck_assert_ptr_nonnull(folder);
	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		path = in_folder(entries[i].name, folder);
		ck_assert_int_eq(entries[i].to != NULL ? symlink(entries[i].to, path)
						       : mkdir(path, 0700),
				 0);
		free(path);
	}
	path = in_folder("@/file", folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	free(path);
	return folder;
}

static void remove_folder(char *folder)
{
	static const char *const names[] = { "@/real/away", "@/real/t", "@/real/sub",
					     "@/real",      "@/link",   "@/dangling",
					     "@/loop",      "@/file",   "@" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		char *path = in_folder(names[i], folder);

		ck_assert_int_eq(remove(path), 0);
		free(path);
	}
	free(folder);
}

START_TEST(test_resolve)
{
	char *folder = make_folder();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		char *target = in_folder(targets[i].target, folder);
		char *want = in_folder(targets[i].path, folder);
		char *got = NULL;

		check_int(targets[i].name, "result", mountinfo_resolve(target, &got), targets[i].r);
		check_str(targets[i].name, "path", got, want);
		free(target);
		free(want);
		free(got);
	}
	remove_folder(folder);
}
END_TEST

/* Port, version and transport, by which the server can be pinged. */
START_TEST(test_service)
{
	static const struct {
		const char *name;
		const char *options;
		unsigned int port, major;
		bool no_ping;
	} services[] = {
		{ "version 4", V4_SUPER, 0, 4, false },
		{ "version 3", V3_SUPER, 0, 3, false },
		{ "port", "rw,vers=4.1,proto=tcp,port=12049,addr=192.0.2.1", 12049, 4, false },
		{ "the other port", "rw,vers=3,mountport=20048,proto=tcp6,addr=fd00::1", 0, 3,
		  false },
		{ "not a port", "rw,vers=4.0,port=65536,proto=tcp", 0, 4, false },
		{ "rdma", "rw,vers=4.2,proto=rdma,port=20049", 20049, 4, true },
		{ "udp", "rw,vers=3,proto=udp", 0, 3, true },
		{ "nothing told", "rw", 0, 4, false },
	};
	char *folder = make_folder();
	char *file = in_folder("@/mountinfo", folder);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(services); i++) {
		struct mount_info *info = NULL;
		FILE *f = fopen(file, "we");

		ck_assert_ptr_nonnull(f);
		fprintf(f, ROOT "40 22 0:51 / /t rw - nfs s:/a %s\n", services[i].options);
		fclose(f);
		check_int(services[i].name, "result", mountinfo_find(file, "/t", &info), 0);
		check_int(services[i].name, "port", info->port, services[i].port);
		check_int(services[i].name, "version", info->major, services[i].major);
		check_int(services[i].name, "no ping", info->no_ping, services[i].no_ping);
		mount_info_free(info);
	}
	unlink(file);
	free(file);
	remove_folder(folder);
}
END_TEST

/* It passes, and a mount may be there: the code must not be final. */
START_TEST(test_no_descriptor)
{
	struct rlimit before, none;
	struct mount_info *info = NULL;
	struct error err = { .code = ERROR_OK };
	int r;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = mountinfo_find_mounted("/t", &info, &err);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_int_eq(r, -EMFILE);
	check_error("limit", &err, ERROR_ABORTED, "mountinfo");
	ck_assert_ptr_null(info);
}
END_TEST

START_TEST(test_free_nothing)
{
	struct mount_info *info = calloc(1, sizeof(*info));

	mount_info_free(NULL);
	ck_assert_ptr_nonnull(info);
	mount_info_free(info); /* half built */
}
END_TEST

CHECK_MAIN("mountinfo", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_find,
		   test_find_what_was_skipped,
		   test_find_among_many,
		   test_find_no_file,
		   test_find_real,
		   test_service,
		   test_resolve,
		   test_no_descriptor,
		   test_free_nothing,
	   })
