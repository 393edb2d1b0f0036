/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The entries of an archive that is extracted: names, directories, attributes and data. Anybody may
 * have made the archive, so names that lead out of it and numbers that do not fit are refused.
 */

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "nfs/owner.h"
#include "tree/archive_times.h"
#include "tree/sparse.h"
#include "tree/unpacker.h"

#define HOLES_FROM 65536 /* in files of at least this size, blocks of zeros become holes */
#define IMPLIED_MODE 0755 /* of directories without an entry */

#define NAME_SHOWN 200 /* bytes of it in a message, before the reason */

int unpacker_refuse_entry(const char *path, const char *why, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "the archive is refused: '%.*s%s' %s",
			 NAME_SHOWN, path, strlen(path) > NAME_SHOWN ? "..." : "", why);
}

static int refuse_length(const char *path, const char *what, int max, struct error *err)
{
	char why[64];

	(void)snprintf(why, sizeof(why), "has a %s of more than %d bytes", what, max);
	return unpacker_refuse_entry(path, why, err);
}

/* -------- names -------- */

/*
 * Normalize a path: remove "." and redundant slashes. "" is the root. Its length is limited because
 * the builder keeps hundreds of names, and a few KiB of gzip become a megabyte of one.
 */
static int clean_path(const char *path, struct buf *ret, struct error *err)
{
	const char *at = path;

	if (path == NULL || path[0] == '/')
		return unpacker_refuse_entry(path != NULL ? path : "",
					     "is not a path below its root", err);
	while (*at != '\0') {
		size_t len = strcspn(at, "/");

		if (len == 2 && memcmp(at, "..", 2) == 0)
			return unpacker_refuse_entry(path, "leads out of it", err);
		if (len > NFS_NAME_MAX)
			return refuse_length(path, "name", NFS_NAME_MAX, err);
		if (len > 0 && !(len == 1 && at[0] == '.'))
			if ((ret->len > 0 && buf_puts(ret, "/") < 0) ||
			    buf_append(ret, at, len) < 0)
				return error_oom(err);
		if (ret->len > TREE_PATH_MAX)
			return refuse_length(path, "path", TREE_PATH_MAX, err);
		at += len;
		at += strspn(at, "/");
	}
	return 0;
}

/* Return whether path is the open directory or below it. */
static bool is_open_above(const struct unpacker *u, const char *path)
{
	size_t len = u->path.len;

	if (len == 0)
		return true;
	return strncmp(u->path.data, path, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* -------- directories -------- */

static int pop_folder(struct unpacker *u, struct error *err)
{
	const char *slash = u->path.len > 0 ? strrchr(u->path.data, '/') : NULL;

	u->path.len = slash != NULL ? (size_t)(slash - u->path.data) : 0;
	if (u->path.data != NULL)
		u->path.data[u->path.len] = '\0';
	u->depth--;
	return u->sink->end(u->sink, err);
}

static int push_folder(struct unpacker *u, struct tree_entry *entry, struct error *err)
{
	if (u->depth == TREE_DEPTH_MAX)
		return unpacker_refuse_entry(entry->path, "is too deep in it", err);
	u->depth++;
	u->work->progress.directories++;
	if (entry->path != u->path.data) {
		u->path.len = 0;
		if (buf_puts(&u->path, entry->path) < 0)
			return error_oom(err);
	}
	return u->sink->begin(u->sink, entry, err);
}

/*
 * Open a directory that has no entry in the archive, or whose entry came before. The builder waits
 * for each of them, and an entry may close and open as many as the tree is deep, so they are
 * limited apart from entries. Archives in the order of the tree open none twice.
 */
static int push_implied_folder(struct unpacker *u, const char *path, size_t len, struct error *err)
{
	cleanup_free char *copy = strndup(path, len);
	struct tree_entry entry = { .attr = { .type = NFS_TYPE_DIRECTORY, .mode = IMPLIED_MODE } };
	const char *slash;

	if (copy == NULL)
		return error_oom(err);
	if (++u->implied > u->implied_max)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "the archive is refused: it returns to directories more often than its size allows; make it in the order of the tree, as tar does without a list of files");
	slash = strrchr(copy, '/');
	entry.path = copy;
	entry.name = slash != NULL ? slash + 1 : copy;
	return push_folder(u, &entry, err);
}

/* Close and open directories until the one that holds path is open. */
static int seek_parent_of(struct unpacker *u, const char *path, struct error *err)
{
	const char *slash = strrchr(path, '/');
	const size_t wanted = slash != NULL ? (size_t)(slash - path) : 0;
	int r = 0;

	if (u->depth == 0)
		r = push_implied_folder(u, "", 0, err);
	while (r == 0 && u->path.len > 0 && (u->path.len > wanted || !is_open_above(u, path)))
		r = pop_folder(u, err);
	while (r == 0 && u->path.len < wanted) {
		size_t len = u->path.len > 0 ? u->path.len + 1 : 0;

		r = push_implied_folder(u, path, len + strcspn(path + len, "/"), err);
	}
	return r;
}

int unpacker_close_folders(struct unpacker *u, struct error *err)
{
	int r = u->depth == 0 ? push_implied_folder(u, "", 0, err) : 0;

	while (r == 0 && u->depth > 0)
		r = pop_folder(u, err);
	return r;
}

/* -------- entries -------- */

static enum nfs_type type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return NFS_TYPE_FILE;
	case S_IFDIR:
		return NFS_TYPE_DIRECTORY;
	case S_IFLNK:
		return NFS_TYPE_SYMLINK;
	case S_IFIFO:
		return NFS_TYPE_FIFO;
	case S_IFBLK:
		return NFS_TYPE_BLOCK;
	case S_IFCHR:
		return NFS_TYPE_CHARACTER;
	default:
		return NFS_TYPE_OTHER;
	}
}

/*
 * Use the name only with NFS_ID_UNKNOWN, which tree_pack() writes for an owner that has only a
 * name. Other tools write names beside numbers that count.
 */
static int convert_owner_name(const char *name, uint32_t id, uint32_t *ret)
{
	if (id != NFS_ID_UNKNOWN || str_is_empty(name))
		return 0;
	return nfs_owner_intern(name, strlen(name), ret);
}

/* UINT32_MAX means "leave the owner alone" to servers: the file would be the driver's. */
static bool is_owner_id(la_int64_t id)
{
	return id >= 0 && id < UINT32_MAX;
}

/* libarchive returns the smallest or largest number for a time out of range. */
static bool is_time(la_int64_t sec)
{
	return sec > INT64_MIN && sec < INT64_MAX;
}

static bool is_device_number(dev_t number)
{
	return number <= UINT32_MAX;
}

/* A name that cannot be converted is NULL. */
const char *unpacker_name_for_message(struct archive_entry *e)
{
	const char *name = archive_entry_pathname(e);

	return name != NULL ? name : "?";
}

/* Refuse numbers that NFS would truncate. */
static int check_numbers(struct archive_entry *e, struct error *err)
{
	const char *path = unpacker_name_for_message(e);
	const mode_t type = archive_entry_filetype(e);

	if (!is_owner_id(archive_entry_uid(e)))
		return unpacker_refuse_entry(path, "has a user id that does not fit 32 bits", err);
	if (!is_owner_id(archive_entry_gid(e)))
		return unpacker_refuse_entry(path, "has a group id that does not fit 32 bits", err);
	if ((archive_entry_mode(e) & ~(mode_t)(S_IFMT | 07777)) != 0)
		return unpacker_refuse_entry(path, "has an invalid mode", err);
	if (archive_entry_size(e) < 0)
		return unpacker_refuse_entry(path, "has a negative size", err);
	if (!is_time(archive_times_mtime(e)) || !is_time(archive_times_atime(e)))
		return unpacker_refuse_entry(path, "has a time that does not fit 64 bits", err);
	if ((type == AE_IFBLK || type == AE_IFCHR) &&
	    (!is_device_number(archive_entry_rdevmajor(e)) ||
	     !is_device_number(archive_entry_rdevminor(e))))
		return unpacker_refuse_entry(path, "has a device number that does not fit 32 bits",
					     err);
	return 0;
}

static int convert_owner(struct archive_entry *e, struct nfs_attr *ret, struct error *err)
{
	int r;

	ret->uid = (uint32_t)archive_entry_uid(e);
	ret->gid = (uint32_t)archive_entry_gid(e);
	r = convert_owner_name(archive_entry_uname(e), ret->uid, &ret->uid_name);
	if (r == 0)
		r = convert_owner_name(archive_entry_gname(e), ret->gid, &ret->gid_name);
	if (r < 0)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "the archive is refused: the owner of '%.*s' has a name that cannot be kept: %s",
				 NAME_SHOWN, unpacker_name_for_message(e), strerror(-r));
	ret->is_named = ret->uid_name != 0 || ret->gid_name != 0;
	ret->has_owner = !ret->is_named;
	return 0;
}

static int convert_attributes(struct archive_entry *e, struct nfs_attr *ret, struct error *err)
{
	*ret = (struct nfs_attr){
		.type = type_of(archive_entry_mode(e)),
		.mode = archive_entry_mode(e) & 07777,
		.is_full = true,
		.size = (uint64_t)archive_entry_size(e),
		.device = { (uint32_t)archive_entry_rdevmajor(e),
			    (uint32_t)archive_entry_rdevminor(e) },
		.mtime = { archive_times_mtime(e), (uint32_t)archive_entry_mtime_nsec(e) },
	};
	ret->atime = ret->mtime;
	if (archive_entry_atime_is_set(e))
		ret->atime = (struct nfs_time){ archive_times_atime(e),
						(uint32_t)archive_entry_atime_nsec(e) };
	return convert_owner(e, ret, err);
}

/* -------- extended attributes -------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * Decode %XX and return the new length. libarchive escapes all but printable ASCII when it writes
 * and decodes nothing when it reads; GNU tar escapes '=' and '%'.
 */
static size_t decode_name(char *name)
{
	size_t from = 0, to = 0;

	while (name[from] != '\0') {
		const int high = name[from] == '%' ? hex_digit(name[from + 1]) : -1;
		const int low = high >= 0 ? hex_digit(name[from + 2]) : -1;

		name[to++] = low >= 0 ? (char)(high * 16 + low) : name[from];
		from += low >= 0 ? 3 : 1;
	}
	return to;
}

static int add_xattr(struct unpacker *u, struct tree_xattrs *set, const char *name,
		     const void *value, size_t len)
{
	cleanup_free char *decoded = NULL;
	int r;

	if (strncmp(name, TREE_XATTR_USER, strlen(TREE_XATTR_USER)) != 0) {
		tree_xattrs_lose(u->work, 1, -EPERM);
		return 0;
	}
	decoded = strdup(name + strlen(TREE_XATTR_USER));
	if (decoded == NULL)
		return -ENOMEM;
	r = tree_xattrs_add(set, decoded, decode_name(decoded));
	if (r == 0) {
		r = tree_xattrs_set(set, set->n - 1, value, len);
		if (r < 0)
			tree_xattrs_remove(set, set->n - 1);
	}
	if (r < 0 && r != -ENOMEM)
		tree_xattrs_lose(u->work, 1, r);
	return r == -ENOMEM ? r : 0;
}

/* Hard links get none: in archives of some tools they repeat the attributes of the file. */
static int convert_xattrs(struct unpacker *u, struct archive_entry *e, struct tree_xattrs **ret)
{
	struct tree_xattrs *set;
	const char *name;
	const void *value;
	size_t len;
	int r = 0;

	if (archive_entry_xattr_reset(e) == 0 || archive_entry_hardlink(e) != NULL)
		return 0;
	set = tree_xattrs_new();
	if (set == NULL)
		return -ENOMEM;
	while (r == 0 && archive_entry_xattr_next(e, &name, &value, &len) == ARCHIVE_OK)
		r = add_xattr(u, set, name, value, len);
	*ret = set;
	return r;
}

/*
 * Where nothing may be missing, the data must have the size that the header says. libarchive sees
 * to that, but for a map of holes that contradicts the header or the data behind it.
 */
static int check_data_end(const struct tree_entry *entry, uint64_t end, struct error *err)
{
	if (end == entry->attr.size || (entry->has_holes && end < entry->attr.size))
		return 0;
	return unpacker_fail_damaged("the size of a file and its map of holes do not agree", err);
}

static int unpack_data(struct unpacker *u, const struct tree_entry *entry, struct error *err)
{
	uint64_t end = 0;

	for (;;) {
		struct tree_piece piece = { .block = NULL };
		const void *data;
		la_int64_t offset;
		int r, status = archive_read_data_block(u->archive, &data, &piece.len, &offset);

		if (status == ARCHIVE_EOF)
			return check_data_end(entry, end, err);
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return unpacker_error(u, err);
		u->work->progress.bytes += piece.len;
		piece.offset = (uint64_t)offset;
		piece.data = data;
		if (piece.len > 0 && end < piece.offset + piece.len)
			end = piece.offset + piece.len;
		r = tree_sparse_send(u->sink, &piece, entry->has_holes, err);
		if (r < 0)
			return r;
	}
}

/* The root stays open, so a later entry for it changes attributes that are set at the end. */
static int unpack_root(struct unpacker *u, struct tree_entry *entry, struct error *err)
{
	if (u->depth == 0)
		return push_folder(u, entry, err);
	tree_builder_set_root(u->builder, &entry->attr);
	if (entry->xattrs != NULL)
		tree_xattrs_lose(u->work, entry->xattrs->n, -EEXIST);
	return 0;
}

static int unpack_to_sink(struct unpacker *u, struct tree_entry *entry, struct error *err)
{
	const bool is_directory = entry->attr.type == NFS_TYPE_DIRECTORY;
	int r;

	if (entry->path[0] == '\0' && !is_directory)
		return unpacker_refuse_entry(".", "is not a directory", err);
	if (entry->path[0] == '\0')
		return unpack_root(u, entry, err);
	r = seek_parent_of(u, entry->path, err);
	if (r < 0)
		return r;
	if (is_directory)
		return push_folder(u, entry, err);
	r = u->sink->begin(u->sink, entry, err);
	if (r == 0 && entry->attr.type == NFS_TYPE_FILE && entry->hardlink_to == NULL)
		r = unpack_data(u, entry, err);
	u->work->progress.files++;
	return r == 0 ? u->sink->end(u->sink, err) : r;
}

int unpacker_extract_entry(struct unpacker *u, struct archive_entry *e, struct error *err)
{
	cleanup_buf struct buf path = { .data = NULL }, hardlink_to = { .data = NULL };
	const char *hardlink = archive_entry_hardlink(e), *slash;
	struct tree_entry entry = { .link = NULL };
	int r;

	if (++u->entries > u->entries_max)
		return unpacker_refuse_entry("",
					     "and the rest are more entries than its size allows",
					     err);
	r = clean_path(archive_entry_pathname(e), &path, err);
	if (r < 0)
		return r;
	if (hardlink != NULL) {
		r = clean_path(hardlink, &hardlink_to, err);
		if (r < 0)
			return r;
	}
	r = check_numbers(e, err);
	if (r < 0)
		return r;
	r = convert_attributes(e, &entry.attr, err);
	if (r < 0)
		return r;
	entry.path = buf_text(&path);
	slash = strrchr(entry.path, '/');
	entry.name = slash != NULL ? slash + 1 : entry.path;
	if (hardlink != NULL && hardlink_to.len == 0)
		return unpacker_refuse_entry(entry.path, "is a link to its root", err);
	if (hardlink != NULL) {
		entry.hardlink_to = buf_text(&hardlink_to);
		entry.attr.type = NFS_TYPE_FILE; /* tar does not store the target's type */
	}
	entry.link = archive_entry_symlink(e);
	entry.has_holes = entry.attr.type == NFS_TYPE_FILE &&
			  (entry.attr.size >= HOLES_FROM || archive_entry_sparse_count(e) > 0);
	if (entry.attr.type == NFS_TYPE_SYMLINK && str_is_empty(entry.link))
		return unpacker_refuse_entry(entry.path,
					     "is a symbolic link whose target cannot be read", err);
	if (entry.link != NULL && strlen(entry.link) > NFS_LINK_MAX)
		return refuse_length(entry.path, "target", NFS_LINK_MAX, err);
	if (entry.attr.type == NFS_TYPE_OTHER) {
		u->work->progress.left_out++;
		return 0;
	}
	if (hardlink == NULL && (archive_times_may_be_cut(entry.attr.mtime.sec) ||
				 archive_times_may_be_cut(entry.attr.atime.sec)))
		u->work->progress.times_cut++;
	r = convert_xattrs(u, e, &entry.xattrs) < 0 ? error_oom(err)
						    : unpack_to_sink(u, &entry, err);
	tree_xattrs_drop(entry.xattrs);
	return r;
}
