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

static int copy_info(struct mount_info *info, struct libmnt_fs *fs)
{
	const char *source = mnt_fs_get_source(fs), *fstype = mnt_fs_get_fstype(fs);

	free(info->source);
	free(info->fstype);
	info->source = strdup(source != NULL ? source : "");
	info->fstype = strdup(fstype != NULL ? fstype : "");
	info->read_only = is_read_only(fs);
	info->depth++;
	return info->source != NULL && info->fstype != NULL ? 0 : -ENOMEM;
}

/* The kernel lists mounts in the order in which they were made: the last one is on top. */
static int collect(struct libmnt_table *table, struct libmnt_iter *iter, const char *path,
		   struct mount_info *info)
{
	struct libmnt_fs *fs;
	int r;

	for (;;) {
		r = mnt_table_next_fs(table, iter, &fs);
		if (r != 0)
			return r > 0 ? 0 : r;
		if (!str_eq(mnt_fs_get_target(fs), path))
			continue;
		r = copy_info(info, fs);
		if (r < 0)
			return r;
	}
}

int mountinfo_find(const char *file, const char *path, struct mount_info **ret)
{
	__attribute__((cleanup(cleanup_ptr_table))) struct libmnt_table *table = mnt_new_table();
	__attribute__((cleanup(cleanup_ptr_iter))) struct libmnt_iter *iter =
		mnt_new_iter(MNT_ITER_FORWARD);
	struct mount_info *info;
	int r;

	if (table == NULL || iter == NULL)
		return -ENOMEM;
	r = mnt_table_parse_file(table, file);
	if (r != 0)
		return r < 0 ? r : -EIO;
	info = calloc(1, sizeof(*info));
	if (info == NULL)
		return -ENOMEM;
	r = collect(table, iter, path, info);
	if (r < 0 || info->depth == 0) {
		mount_info_free(info);
		info = NULL;
	}
	if (r == 0)
		*ret = info;
	return r;
}

bool mountinfo_is_nfs(const struct mount_info *info)
{
	return strcmp(info->fstype, "nfs") == 0 || strcmp(info->fstype, "nfs4") == 0;
}
