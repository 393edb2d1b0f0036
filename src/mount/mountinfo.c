/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/mountinfo.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libmount.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "net/ping.h"

static void unref_table(struct libmnt_table *table)
{
	mnt_unref_table(table);
}

static void free_iter(struct libmnt_iter *iter)
{
	mnt_free_iter(iter);
}

DEFINE_CLEANUP(table, struct libmnt_table *, unref_table)
DEFINE_CLEANUP(iter, struct libmnt_iter *, free_iter)

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

/*
 * "ro" among the options of the mount itself; those of the file system, which other mounts share,
 * stand in a field of their own.
 */
static bool is_read_only(struct libmnt_fs *fs)
{
	const char *options = mnt_fs_get_vfs_options(fs);

	return options != NULL && mnt_optstr_get_option(options, "ro", NULL, NULL) == 0;
}

/* NFS shows the address of its server as an option of the file system. */
static char *copy_address(struct libmnt_fs *fs)
{
	const char *options = mnt_fs_get_fs_options(fs);
	char *value;
	size_t len;

	if (options == NULL || mnt_optstr_get_option(options, "addr", &value, &len) != 0)
		return NULL;
	return strndup(value, len);
}

static bool has_value(const char *options, const char *key, const char *value)
{
	char *text;
	size_t len;

	return mnt_optstr_get_option(options, key, &text, &len) == 0 && len == strlen(value) &&
	       strncmp(text, value, len) == 0;
}

/* How its server is asked whether it is there. */
static void copy_service(struct mount_info *info, struct libmnt_fs *fs)
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
	if (has_value(options, "vers", "3"))
		info->major = 3;
	info->no_ping = mnt_optstr_get_option(options, "proto", &value, &len) == 0 &&
			!has_value(options, "proto", "tcp") && !has_value(options, "proto", "tcp6");
}

static int copy_info(struct mount_info *info, struct libmnt_fs *fs, dev_t *ret_device)
{
	const char *source = mnt_fs_get_source(fs), *fstype = mnt_fs_get_fstype(fs);

	free(info->source);
	free(info->fstype);
	info->source = strdup(source != NULL ? source : "");
	info->fstype = strdup(fstype != NULL ? fstype : "");
	free(info->address);
	info->address = copy_address(fs);
	copy_service(info, fs);
	info->read_only = is_read_only(fs);
	info->depth++;
	*ret_device = mnt_fs_get_devno(fs);
	return info->source != NULL && info->fstype != NULL ? 0 : -ENOMEM;
}

/* The kernel lists mounts in the order in which they were made: the last one is on top. */
static int collect(struct libmnt_table *table, struct libmnt_iter *iter, const char *path,
		   struct mount_info *info, dev_t *ret_device)
{
	struct libmnt_fs *fs;
	int r;

	for (;;) {
		r = mnt_table_next_fs(table, iter, &fs);
		if (r != 0)
			return r > 0 ? 0 : r;
		if (!str_eq(mnt_fs_get_target(fs), path))
			continue;
		r = copy_info(info, fs, ret_device);
		if (r < 0)
			return r;
	}
}

/* Mounts of one export have one superblock, wherever they are. */
static bool is_elsewhere(struct libmnt_table *table, struct libmnt_iter *iter, const char *path,
			 dev_t device)
{
	struct libmnt_fs *fs;

	mnt_reset_iter(iter, MNT_ITER_FORWARD);
	while (mnt_table_next_fs(table, iter, &fs) == 0)
		if (mnt_fs_get_devno(fs) == device && !str_eq(mnt_fs_get_target(fs), path))
			return true;
	return false;
}

int mountinfo_find(const char *file, const char *path, struct mount_info **ret)
{
	__attribute__((cleanup(cleanup_ptr_table))) struct libmnt_table *table = mnt_new_table();
	__attribute__((cleanup(cleanup_ptr_iter))) struct libmnt_iter *iter =
		mnt_new_iter(MNT_ITER_FORWARD);
	struct mount_info *info;
	dev_t device = 0;
	int r;

	if (table == NULL || iter == NULL)
		return -ENOMEM;
	r = mnt_table_parse_file(table, file);
	if (r != 0)
		return r < 0 ? r : -EIO;
	info = calloc(1, sizeof(*info));
	if (info == NULL)
		return -ENOMEM;
	r = collect(table, iter, path, info, &device);
	info->shares_superblock = r == 0 && is_elsewhere(table, iter, path, device);
	if (r < 0 || info->depth == 0) {
		mount_info_free(info);
		info = NULL;
	}
	if (r == 0)
		*ret = info;
	return r;
}

/* The path in "host:/path" or "[address]:/path". NULL where there is none. */
static const char *path_of(const char *source)
{
	const char *end = source[0] == '[' ? strstr(source, "]:/") : strstr(source, ":/");

	if (end == NULL)
		return NULL;
	return end + (source[0] == '[' ? 2 : 1);
}

static bool has_address(const char *server, const char *address)
{
	struct net_address addresses[NET_ADDRESSES_MAX];
	size_t n, i;

	if (net_resolve(server, addresses, &n, NULL) < 0)
		return false;
	for (i = 0; i < n; i++) {
		char text[64];

		net_address_text(&addresses[i], text, sizeof(text));
		if (strcmp(text, address) == 0)
			return true;
	}
	return false;
}

bool mount_info_is_on(const struct mount_info *info, const char *server)
{
	const bool v6 = info->source[0] == '[';
	const char *path = path_of(info->source);
	size_t len;

	if (path == NULL)
		return false;
	len = (size_t)(path - info->source) - (v6 ? 3 : 1);
	if (strlen(server) == len && strncmp(info->source + v6, server, len) == 0)
		return true;
	return info->address != NULL && has_address(server, info->address);
}

bool mount_info_is_of(const struct mount_info *info, const char *server, const char *path)
{
	const char *have = path_of(info->source);

	return have != NULL && strcmp(have, path) == 0 && mount_info_is_on(info, server);
}

bool mount_info_is_nfs(const struct mount_info *info)
{
	return strcmp(info->fstype, "nfs") == 0 || strcmp(info->fstype, "nfs4") == 0;
}
