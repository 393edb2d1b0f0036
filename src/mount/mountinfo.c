/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libmount.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "net/ping.h"

#define MOUNTINFO "/proc/self/mountinfo"
#define READS_MAX 5 /* while mounts change all the time */

static void table_unref(struct libmnt_table *table)
{
	mnt_unref_table(table);
}

static void iter_free(struct libmnt_iter *iter)
{
	mnt_free_iter(iter);
}

DEFINE_CLEANUP(table, struct libmnt_table *, table_unref)
DEFINE_CLEANUP(iter, struct libmnt_iter *, iter_free)

void mount_info_free(struct mount_info *info)
{
	if (info == NULL)
		return;
	free(info->source);
	free(info->fstype);
	free(info->address);
	free(info);
}

int mountinfo_resolve(const char *target, char **ret)
{
	cleanup_free char *copy = strdup(target);
	cleanup_free char *above = NULL;
	char *base;
	size_t len;

	if (copy == NULL)
		return -ENOMEM;
	for (len = strlen(copy); len > 1 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
	base = strrchr(copy, '/');
	if (base == NULL)
		return -EINVAL;
	*base++ = '\0';
	above = realpath(copy[0] != '\0' ? copy : "/", NULL);
	if (above == NULL)
		return -errno;
	if (asprintf(ret, "%s/%s", strcmp(above, "/") == 0 ? "" : above, base) < 0)
		return -ENOMEM;
	return 0;
}

int mountinfo_resolve_target(const char *target, char **ret, struct error *err)
{
	int r = mountinfo_resolve(target, ret);

	if (r == 0 || r == -ENOENT)
		return r;
	if (r == -ENOTDIR || r == -ENAMETOOLONG) /* nothing can be there */
		return -ENOENT;
	/* As below: nobody knows what is mounted there. */
	return error_sys(err, ERROR_ABORTED, -r, "cannot resolve the directory above '%s'", target);
}

/* Look at the options of this mount, not at those of the file system, which mounts share. */
static bool fs_has_flag(struct libmnt_fs *fs, const char *flag)
{
	const char *options = mnt_fs_get_vfs_options(fs);

	return options != NULL && mnt_optstr_get_option(options, flag, NULL, NULL) == 0;
}

/* NFS shows the address of the server as an option of the file system. */
static char *fs_copy_address(struct libmnt_fs *fs)
{
	const char *options = mnt_fs_get_fs_options(fs);
	char *value;
	size_t len;

	if (options == NULL || mnt_optstr_get_option(options, "addr", &value, &len) != 0)
		return NULL;
	return strndup(value, len);
}

static bool options_have_value(const char *options, const char *key, const char *value)
{
	char *text;
	size_t len;

	return mnt_optstr_get_option(options, key, &text, &len) == 0 && len == strlen(value) &&
	       strncmp(text, value, len) == 0;
}

/* Copy port, version and transport, by which the server can be pinged. */
static void info_copy_service(struct mount_info *info, struct libmnt_fs *fs)
{
	const char *options = mnt_fs_get_fs_options(fs);
	uint64_t port = 0;
	char *value;
	size_t len;

	info->port = 0;
	info->major = 4;
	info->no_ping = false;
	if (options == NULL)
		return;
	if (mnt_optstr_get_option(options, "port", &value, &len) == 0) {
		cleanup_free char *text = strndup(value, len);

		if (text != NULL && str_parse_u64(text, 10, UINT16_MAX, &port) == 0)
			info->port = (uint16_t)port;
	}
	if (options_have_value(options, "vers", "3"))
		info->major = 3;
	info->no_ping = mnt_optstr_get_option(options, "proto", &value, &len) == 0 &&
			!options_have_value(options, "proto", "tcp") &&
			!options_have_value(options, "proto", "tcp6");
}

/* A mount, as the table tells it from others. */
struct mount_key {
	dev_t device; /* of the superblock */
	int id;
};

static int info_copy(struct mount_info *info, struct libmnt_fs *fs, struct mount_key *ret)
{
	const char *source = mnt_fs_get_source(fs), *fstype = mnt_fs_get_fstype(fs);

	free(info->source);
	free(info->fstype);
	info->source = strdup(source != NULL ? source : "");
	info->fstype = strdup(fstype != NULL ? fstype : "");
	free(info->address);
	info->address = fs_copy_address(fs);
	info_copy_service(info, fs);
	info->read_only = fs_has_flag(fs, "ro");
	info->no_suid = fs_has_flag(fs, "nosuid");
	info->no_dev = fs_has_flag(fs, "nodev");
	info->depth++;
	*ret = (struct mount_key){ .device = mnt_fs_get_devno(fs), .id = mnt_fs_get_id(fs) };
	return info->source != NULL && info->fstype != NULL ? 0 : -ENOMEM;
}

/* The kernel lists mounts in the order in which they were made, so the last one is on top. */
static int info_collect(struct libmnt_table *table, struct libmnt_iter *iter, const char *path,
			struct mount_info *info, struct mount_key *ret)
{
	struct libmnt_fs *fs;
	int r;

	for (;;) {
		r = mnt_table_next_fs(table, iter, &fs);
		if (r != 0)
			return r > 0 ? 0 : r;
		if (!str_eq(mnt_fs_get_target(fs), path))
			continue;
		r = info_copy(info, fs, ret);
		if (r < 0)
			return r;
	}
}

/* Whether a mount at another path shares the superblock, as mounts of one export do. */
static bool device_is_elsewhere(struct libmnt_table *table, struct libmnt_iter *iter,
				const char *path, dev_t device)
{
	struct libmnt_fs *fs;

	mnt_reset_iter(iter, MNT_ITER_FORWARD);
	while (mnt_table_next_fs(table, iter, &fs) == 0)
		if (mnt_fs_get_devno(fs) == device && !str_eq(mnt_fs_get_target(fs), path))
			return true;
	return false;
}

/* -------- read the table -------- */

/* Append the file to text, as far as it can be read. Returns 0 or the error of the rest. */
static int text_read(struct buf *text, int fd)
{
	char piece[4096];
	ssize_t n;

	while ((n = read(fd, piece, sizeof(piece))) > 0)
		if (buf_append(text, piece, (size_t)n) < 0)
			return -ENOMEM;
	return n < 0 ? -errno : 0;
}

/*
 * Read the file once more if mounts have changed meanwhile, which the kernel tells by poll(2):
 * before Linux 5.8 the end of one mount can hide the line of another one.
 */
static int text_read_unchanged(struct buf *text, const char *file)
{
	int i, r = 0;

	for (i = 0; i < READS_MAX; i++) {
		cleanup_close int fd = open(file, O_RDONLY | O_CLOEXEC);
		struct pollfd p = { .fd = fd, .events = POLLPRI };

		if (fd < 0)
			return -errno;
		text->len = 0;
		r = text_read(text, fd);
		if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLPRI))
			break;
	}
	return r;
}

/*
 * Parse the lines before the one that cannot be read. Returns 0 if all could be read, or the error
 * of the others, as a negative errno. -ENAMETOOLONG: in the file system of a mount, which may be
 * any pod's, its directory has been moved so deep that the path takes more than a page.
 */
static int table_parse(struct libmnt_table *table, const char *file)
{
	cleanup_buf struct buf text = { 0 };
	FILE *stream;
	int r = text_read_unchanged(&text, file);

	/* The last one was not read to its end. */
	while (r < 0 && text.len > 0 && text.data[text.len - 1] != '\n')
		text.len--;
	if (text.len == 0)
		return r;
	stream = fmemopen(text.data, text.len, "r");
	if (stream == NULL)
		return -ENOMEM;
	if (mnt_table_parse_stream(table, stream, file) != 0)
		r = -EIO;
	(void)fclose(stream);
	return r;
}

/*
 * Check what was found in part of the table, a mount id or 0 for nothing, against the path itself;
 * why is the error of the rest. Returns 0 if there is no doubt, else why. Does not ask the server.
 */
static int check_part(const char *path, int id, int why)
{
#ifdef STATX_MNT_ID
	const uint64_t root = STATX_ATTR_MOUNT_ROOT;
	struct statx st;

	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		  STATX_MNT_ID, &st) < 0)
		return errno == ENOENT && id == 0 ? 0 : why;
	if (!(st.stx_attributes_mask & root) || !(st.stx_mask & STATX_MNT_ID))
		return why;
	if (!(st.stx_attributes & root))
		return id == 0 ? 0 : why;
	return id != 0 && st.stx_mnt_id == (uint64_t)id ? 0 : why;
#else
	(void)path;
	(void)id;
	return why;
#endif
}

int mountinfo_find(const char *file, const char *path, struct mount_info **ret)
{
	__attribute__((cleanup(cleanup_ptr_table))) struct libmnt_table *table = mnt_new_table();
	__attribute__((cleanup(cleanup_ptr_iter))) struct libmnt_iter *iter =
		mnt_new_iter(MNT_ITER_FORWARD);
	cleanup_mount_info struct mount_info *info = calloc(1, sizeof(*info));
	struct mount_key key = { .id = 0 };
	int r, why;

	if (table == NULL || iter == NULL || info == NULL)
		return -ENOMEM;
	why = table_parse(table, file);
	if (why < 0 && why != -ENAMETOOLONG)
		return why;
	r = info_collect(table, iter, path, info, &key);
	if (r == 0 && why < 0)
		r = check_part(path, key.id, why);
	if (r < 0)
		return r;
	/* In doubt it shares: then it is not unmounted by force. */
	info->shares_superblock = why < 0 || device_is_elsewhere(table, iter, path, key.device);
	*ret = info->depth > 0 ? steal_ptr(&info) : NULL;
	return 0;
}

int mountinfo_find_mounted(const char *path, struct mount_info **ret, struct error *err)
{
	int r = mountinfo_find(MOUNTINFO, path, ret);

	if (r == 0)
		return 0;
	/* No final code: a mount of an earlier call may be there, and EMFILE and ENFILE pass. */
	if (r == -ENAMETOOLONG)
		return error_set(err, ERROR_ABORTED,
				 "cannot read %s: a pod has moved the directory of some mount so deep that the kernel cannot show its path; end the pods that use that volume",
				 MOUNTINFO);
	return error_sys(err, ERROR_ABORTED, -r, "cannot read %s", MOUNTINFO);
}

void mount_info_server(const struct mount_info *info, char server[NET_SERVER_MAX + 1])
{
	const char *name = info->address != NULL ? info->address : info->source;
	const char *end = info->address != NULL ? NULL : strstr(name, ":/");

	(void)snprintf(server, NET_SERVER_MAX + 1, "%.*s",
		       end != NULL ? (int)(end - name) : NET_SERVER_MAX, name);
}

/* The path in "host:/path" or "[address]:/path"; NULL if there is none. */
static const char *source_path(const char *source)
{
	const char *end = source[0] == '[' ? strstr(source, "]:/") : strstr(source, ":/");

	if (end == NULL)
		return NULL;
	return end + (source[0] == '[' ? 2 : 1);
}

static int server_has_address(const char *server, const char *address, struct error *err)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	size_t n, i;
	int r;

	r = net_resolve(server, addresses, &n, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		char text[64];

		net_address_text(&addresses[i], text, sizeof(text));
		if (strcmp(text, address) == 0)
			return 1;
	}
	return 0;
}

int mount_info_is_on(const struct mount_info *info, const char *server, struct error *err)
{
	const bool v6 = info->source[0] == '[';
	const char *path = source_path(info->source);
	size_t len;

	if (path == NULL)
		return 0;
	len = (size_t)(path - info->source) - (v6 ? 3 : 1);
	if (strlen(server) == len && strncmp(info->source + v6, server, len) == 0)
		return 1;
	return info->address != NULL ? server_has_address(server, info->address, err) : 0;
}

bool mount_info_has_path(const struct mount_info *info, const char *path)
{
	const char *have = source_path(info->source);

	return have != NULL && strcmp(have, path) == 0;
}

bool mount_info_is_nfs(const struct mount_info *info)
{
	return strcmp(info->fstype, "nfs") == 0 || strcmp(info->fstype, "nfs4") == 0;
}
