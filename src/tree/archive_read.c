/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "nfs/owner.h"
#include "tree/archive.h"
#include "tree/archive_times.h"
#include "tree/builder.h"
#include "tree/file.h"
#include "tree/gunzip.h"
#include "tree/libarchive.h"
#include "tree/sparse.h"
#include "tree/zstd_frames.h"

/* Limits on the contents by the size of the archive, with an allowance for small ones. */
#define EXPANSION_MAX 1100 /* gzip expands at most 1,032 times; blocks of zeros do not count */
#define EXPANSION_FREE (UINT64_C(1) << 30)
#define ENTRIES_FREE UINT64_C(1000000)
#define IMPLIED_FREE UINT64_C(100000) /* directories without an entry, each time one is opened */
#define ENTRY_BYTES 4 /* of the archive, for each additional entry or such directory */
#define HOLES_FROM 65536 /* in files of at least this size, blocks of zeros become holes */
#define IMPLIED_MODE 0755 /* of directories without an entry */
#define TAR_BLOCK 512
#define PADDING_MAX (UINT64_C(64) << 20) /* after the end of a tar; GNU tar writes up to 32 MiB */

#define NAME_SHOWN 200 /* bytes of it in a message, before the reason */

/*
 * Limit of what libarchive reads of one entry before its data: headers and map of holes. It keeps
 * 48 bytes for each range of a map, which may take 4 in the archive. The longest map that
 * tree_pack() writes has 65,536 ranges of 36 bytes, beside 512 KiB of extended attributes.
 */
#define HEADER_MIB_MAX 3

struct unpacker {
	struct tree_work *work;
	struct tree_builder *builder; /* NULL: the archive is only checked */
	struct tree_sink *sink; /* of the builder */
	struct archive *archive;
	struct tree_file file;
	struct tree_chunk *chunk; /* in use by libarchive or zlib */
	struct tree_gunzip *gunzip; /* NULL: not gzip */
	bool is_zstd;
	struct tree_zstd_frames zstd;
	const char *rest; /* of the chunk, without gzip */
	size_t rest_len;
	struct tree_archive_sum read; /* of the file so far */
	uint64_t streamed; /* bytes given to libarchive so far, after gzip */
	uint64_t nonzero_end; /* end of the last byte among them that is not zero */
	bool in_header; /* libarchive reads the header of an entry */
	la_int64_t header_at; /* where that begins, in the tar */
	struct buf path; /* of the open directory */
	size_t depth; /* open directories, with the root */
	uint64_t entries, entries_max;
	uint64_t implied, implied_max; /* directories opened without an entry, also repeatedly */
	int error; /* of reading the file */
	struct error err;
};

static int fail_damaged(const char *why, struct error *err)
{
	return error_set(err, ERROR_DATA_LOSS, "the archive is damaged: %s", why);
}

/* -------- the archive file -------- */

/* Return the next piece of the file. Length 0: its end. */
static int read_raw(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r;

	if (u->chunk != NULL)
		tree_file_release(u->chunk);
	r = tree_file_next(&u->file, &u->chunk, &u->err);
	if (r < 0) {
		u->chunk = NULL;
		return nfs_error_set(&u->err, u->work->from, r, "reading the archive");
	}
	*ret_len = 0;
	if (u->chunk == NULL)
		return 0;
	*ret = u->chunk->block->data;
	*ret_len = u->chunk->got;
	u->work->progress.done += u->chunk->got;
	u->read.bytes += u->chunk->got;
	u->read.crc32 = (uint32_t)crc32_z(u->read.crc32, (const Bytef *)*ret, *ret_len);
	return 0;
}

static int read_gzip(struct unpacker *u, const char **ret, size_t *ret_len)
{
	const char *packed = NULL;
	size_t len = 0;
	int r;

	for (;;) {
		r = tree_gunzip_next(u->gunzip, ret, ret_len);
		if (r == -ENOMEM)
			return error_oom(&u->err);
		if (r < 0)
			return fail_damaged("its gzip data or checksum is wrong", &u->err);
		if (*ret_len > 0)
			return 0;
		r = read_raw(u, &packed, &len);
		if (r < 0)
			return r;
		if (len == 0)
			break;
		tree_gunzip_feed(u->gunzip, packed, len);
	}
	if (tree_gunzip_is_complete(u->gunzip))
		return 0;
	return fail_damaged("it was truncated", &u->err);
}

/*
 * Return the next piece of zstd, which libarchive decompresses. Pieces are small, so that
 * check_header() runs often: libarchive may ask for the next piece only after it has used all the
 * output of the last one.
 */
static int read_zstd(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r = u->rest_len > 0 ? 0 : read_raw(u, &u->rest, &u->rest_len);

	if (r < 0)
		return r;
	*ret = u->rest;
	*ret_len = 0;
	if (u->rest_len == 0)
		return 0;
	r = tree_zstd_next(&u->zstd, u->rest, u->rest_len, ret_len);
	if (r == -EFBIG)
		return error_set(&u->err, ERROR_FAILED_PRECONDITION,
				 "the archive is refused: its zstd window is larger than %d MiB; recompress it without --long and --ultra",
				 TREE_ZSTD_WINDOW_MIB_MAX);
	if (r < 0)
		return fail_damaged("its zstd data is wrong", &u->err);
	u->rest += *ret_len;
	u->rest_len -= *ret_len;
	return 0;
}

static int read_unpacked(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r;

	if (u->gunzip != NULL)
		return read_gzip(u, ret, ret_len);
	if (u->is_zstd)
		return read_zstd(u, ret, ret_len);
	r = u->rest_len > 0 ? 0 : read_raw(u, &u->rest, &u->rest_len);
	*ret = u->rest;
	*ret_len = u->rest_len;
	u->rest_len = 0;
	return r;
}

/* Read the first piece, and see how the file is compressed. */
static int read_first(struct unpacker *u)
{
	int r = read_raw(u, &u->rest, &u->rest_len);

	if (r < 0)
		return r;
	u->is_zstd = tree_zstd_matches(u->rest, u->rest_len);
	if (!tree_gunzip_matches(u->rest, u->rest_len))
		return 0;
	if (tree_gunzip_new(&u->gunzip) < 0)
		return error_oom(&u->err);
	tree_gunzip_feed(u->gunzip, u->rest, u->rest_len);
	return 0;
}

/* Return the next piece for libarchive. Length 0: the end. */
static int read_next(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r = read_unpacked(u, ret, ret_len);
	size_t len;

	if (r < 0)
		return r;
	for (len = *ret_len; len > 0 && (*ret)[len - 1] == '\0';)
		len--;
	if (len > 0)
		u->nonzero_end = u->streamed + len;
	u->streamed += *ret_len;
	return 0;
}

/*
 * libarchive limits the size of a header, but not of a map of holes, which is the beginning of a
 * file's data. Count the bytes that it has used, after decompression, not those that it was given.
 */
static int check_header(struct unpacker *u)
{
	if (!u->in_header ||
	    archive_filter_bytes(u->archive, 0) - u->header_at <= (la_int64_t)HEADER_MIB_MAX << 20)
		return 0;
	return error_set(&u->err, ERROR_FAILED_PRECONDITION,
			 "the archive is refused: an entry has more than %d MiB of headers and map of holes; make the archive without such maps, as tar does without --sparse",
			 HEADER_MIB_MAX);
}

static la_ssize_t read_block(struct archive *a, void *data, const void **ret)
{
	struct unpacker *u = data;
	const char *block = NULL;
	size_t len = 0;

	u->error = check_header(u);
	if (u->error == 0)
		u->error = read_next(u, &block, &len);
	if (u->error < 0) {
		archive_set_error(a, -u->error, "the archive cannot be read");
		return -1;
	}
	*ret = block;
	return (la_ssize_t)len;
}

static int unpacker_error(const struct unpacker *u, struct error *err)
{
	const char *why = archive_error_string(u->archive);

	if (u->error == 0 && archive_errno(u->archive) == ENOMEM)
		return error_oom(err);
	if (u->error == 0)
		return fail_damaged(why != NULL ? why : "unknown error", err);
	(void)error_set(err, u->err.code, "%s", u->err.msg);
	return u->error;
}

static int refuse_entry(const char *path, const char *why, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "the archive is refused: '%.*s%s' %s",
			 NAME_SHOWN, path, strlen(path) > NAME_SHOWN ? "..." : "", why);
}

static int refuse_length(const char *path, const char *what, int max, struct error *err)
{
	char why[64];

	(void)snprintf(why, sizeof(why), "has a %s of more than %d bytes", what, max);
	return refuse_entry(path, why, err);
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
		return refuse_entry(path != NULL ? path : "", "is not a path below its root", err);
	while (*at != '\0') {
		size_t len = strcspn(at, "/");

		if (len == 2 && memcmp(at, "..", 2) == 0)
			return refuse_entry(path, "leads out of it", err);
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
		return refuse_entry(entry->path, "is too deep in it", err);
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
static const char *name_for_message(struct archive_entry *e)
{
	const char *name = archive_entry_pathname(e);

	return name != NULL ? name : "?";
}

/* Refuse numbers that NFS would truncate. */
static int check_numbers(struct archive_entry *e, struct error *err)
{
	const char *path = name_for_message(e);
	const mode_t type = archive_entry_filetype(e);

	if (!is_owner_id(archive_entry_uid(e)))
		return refuse_entry(path, "has a user id that does not fit 32 bits", err);
	if (!is_owner_id(archive_entry_gid(e)))
		return refuse_entry(path, "has a group id that does not fit 32 bits", err);
	if ((archive_entry_mode(e) & ~(mode_t)(S_IFMT | 07777)) != 0)
		return refuse_entry(path, "has an invalid mode", err);
	if (archive_entry_size(e) < 0)
		return refuse_entry(path, "has a negative size", err);
	if (!is_time(archive_times_mtime(e)) || !is_time(archive_times_atime(e)))
		return refuse_entry(path, "has a time that does not fit 64 bits", err);
	if ((type == AE_IFBLK || type == AE_IFCHR) &&
	    (!is_device_number(archive_entry_rdevmajor(e)) ||
	     !is_device_number(archive_entry_rdevminor(e))))
		return refuse_entry(path, "has a device number that does not fit 32 bits", err);
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
				 NAME_SHOWN, name_for_message(e), strerror(-r));
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

static int unpack_data(struct unpacker *u, const struct tree_entry *entry, struct error *err)
{
	for (;;) {
		struct tree_piece piece = { .block = NULL };
		const void *data;
		la_int64_t offset;
		int r, status = archive_read_data_block(u->archive, &data, &piece.len, &offset);

		if (status == ARCHIVE_EOF)
			return 0;
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return unpacker_error(u, err);
		u->work->progress.bytes += piece.len;
		piece.offset = (uint64_t)offset;
		piece.data = data;
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
		return refuse_entry(".", "is not a directory", err);
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

static int unpack_entry(struct unpacker *u, struct archive_entry *e, struct error *err)
{
	cleanup_buf struct buf path = { .data = NULL }, hardlink_to = { .data = NULL };
	const char *hardlink = archive_entry_hardlink(e), *slash;
	struct tree_entry entry = { .link = NULL };
	int r;

	if (++u->entries > u->entries_max)
		return refuse_entry("", "and the rest are more entries than its size allows", err);
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
		return refuse_entry(entry.path, "is a link to its root", err);
	if (hardlink != NULL) {
		entry.hardlink_to = buf_text(&hardlink_to);
		entry.attr.type = NFS_TYPE_FILE; /* tar does not store the target's type */
	}
	entry.link = archive_entry_symlink(e);
	entry.has_holes = entry.attr.type == NFS_TYPE_FILE &&
			  (entry.attr.size >= HOLES_FROM || archive_entry_sparse_count(e) > 0);
	if (entry.attr.type == NFS_TYPE_SYMLINK && str_is_empty(entry.link))
		return refuse_entry(entry.path, "is a symbolic link whose target cannot be read",
				    err);
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

/*
 * Read the next header, and nothing else: data that is left is skipped before, because it may be
 * longer than any header.
 */
static int next_header(struct unpacker *u, struct archive_entry **ret)
{
	int status;

	u->header_at = archive_filter_bytes(u->archive, 0);
	u->in_header = true;
	status = archive_read_next_header(u->archive, ret);
	u->in_header = false;
	return status;
}

static int fail_compressed_twice(struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "the archive is refused: it is compressed twice");
}

static int fail_no_tar(struct unpacker *u, struct error *err)
{
	const void *data;
	la_int64_t offset;
	size_t len;
	int status = archive_read_data_block(u->archive, &data, &len, &offset);

	if (u->error < 0 || status != ARCHIVE_OK)
		return unpacker_error(u, err);
	if (tree_zstd_matches(data, len) || tree_gunzip_matches(data, len))
		return fail_compressed_twice(err);
	return fail_damaged("Unrecognized archive format", err);
}

/* Read all entries; extract them if there is a builder. */
static int read_entries(struct unpacker *u, struct error *err)
{
	int r = 0;

	for (;;) {
		struct archive_entry *e;
		int status = next_header(u, &e);

		if (status == ARCHIVE_EOF)
			break;
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return unpacker_error(u, err);
		if (archive_format(u->archive) == ARCHIVE_FORMAT_RAW)
			return fail_no_tar(u, err);
		/*
		 * A warning with a message is about the encoding of a name. libarchive 3.8 and
		 * later warns without one about a number in a pax header that it cannot parse, and
		 * uses another: 0 for an owner, which is root.
		 */
		if (status == ARCHIVE_WARN && archive_error_string(u->archive) == NULL)
			return refuse_entry(name_for_message(e), "has a number that cannot be read",
					    err);
		if (u->builder != NULL)
			r = unpack_entry(u, e, err);
		if (r < 0)
			return r;
		if (archive_read_data_skip(u->archive) == ARCHIVE_FATAL)
			return unpacker_error(u, err);
	}
	/*
	 * libarchive accepts a tar without an end: it may have been truncated before compression.
	 */
	if (archive_filter_bytes(u->archive, 0) <= archive_read_header_position(u->archive))
		return fail_damaged("its end is missing", err);
	return 0;
}

static int close_folders(struct unpacker *u, struct error *err)
{
	int r = u->depth == 0 ? push_implied_folder(u, "", 0, err) : 0;

	while (r == 0 && u->depth > 0)
		r = pop_folder(u, err);
	return r;
}

/* -------- the whole archive -------- */

/* Check that an uncompressed tar ends with zeros: libarchive accepts one that was truncated. */
static int check_end(struct unpacker *u, uint64_t size, struct error *err)
{
	char tail[TAR_BLOCK], zeros[TAR_BLOCK] = { 0 };
	struct nfs_op op = {
		.type = NFS_OP_READ,
		.dir = u->file.handle,
		.offset = size >= sizeof(tail) ? size - sizeof(tail) : 0,
		.count = sizeof(tail),
		.buffer = tail,
	};
	int r;

	if (u->gunzip != NULL || archive_filter_code(u->archive, 0) != ARCHIVE_FILTER_NONE)
		return 0; /* compressed data marks its end */
	r = nfs_client_call(u->work->from, &op);
	if (r < 0)
		return nfs_error_set(err, u->work->from, r, "reading the archive");
	if (op.count < sizeof(tail) || memcmp(tail, zeros, sizeof(tail)) != 0)
		return fail_damaged("its end is missing", err);
	return 0;
}

/*
 * Read the rest of the file, which libarchive does not need, for the checksums. Only zeros may
 * follow the end of a tar: with other data, that end is damage in the middle, or the first of
 * several archives was extracted.
 */
static int read_to_end(struct unpacker *u, const struct tree_archive_sum *sum, struct error *err)
{
	const bool is_plain = archive_filter_code(u->archive, 0) == ARCHIVE_FILTER_NONE;
	const uint64_t end = (uint64_t)archive_filter_bytes(u->archive, 0);
	const char *data;
	size_t len;

	/* libarchive does not return what follows the tar in zstd: only the sum covers that. */
	if (!is_plain && sum == NULL)
		return 0;
	do {
		u->error = read_next(u, &data, &len);
		if (u->error < 0)
			return unpacker_error(u, err);
		if (is_plain && u->nonzero_end > end)
			return fail_damaged("more data follows its end", err);
		if (is_plain && sum == NULL && u->streamed - end > PADDING_MAX)
			return fail_damaged("too many zeros follow its end", err);
	} while (len > 0);
	return 0;
}

static int check_length(uint64_t bytes, const struct tree_archive_sum *sum, struct error *err)
{
	if (sum == NULL || bytes == sum->bytes)
		return 0;
	return error_set(err, ERROR_DATA_LOSS,
			 "the archive is damaged: it has %" PRIu64
			 " bytes, and was made with %" PRIu64,
			 bytes, sum->bytes);
}

static int check_sum(const struct unpacker *u, const struct tree_archive_sum *sum,
		     struct error *err)
{
	int r = check_length(u->read.bytes, sum, err);

	if (r < 0 || sum == NULL || u->read.crc32 == sum->crc32)
		return r;
	return fail_damaged("its checksum is not the one with which it was made", err);
}

/*
 * Do not let libarchive detect filters itself: it would decompress an archive that is compressed
 * twice, with a window of any size, while it opens the archive. The format "raw" matches everything
 * that is not a tar.
 */
static int unpacker_open(struct unpacker *u, struct error *err)
{
	struct archive *a = archive_read_new();

	u->archive = a;
	if (a == NULL)
		return error_oom(err);
	u->error = read_first(u);
	if (u->error < 0 ||
	    (u->is_zstd && archive_read_append_filter(a, ARCHIVE_FILTER_ZSTD) < ARCHIVE_WARN) ||
	    archive_read_support_format_tar(a) < ARCHIVE_WARN ||
	    archive_read_support_format_raw(a) < ARCHIVE_WARN ||
	    archive_read_open(a, u, NULL, read_block, NULL) != ARCHIVE_OK)
		return unpacker_error(u, err);
	if (archive_filter_code(a, u->is_zstd) != ARCHIVE_FILTER_NONE)
		return fail_compressed_twice(err);
	return 0;
}

/* Read the archive, of size bytes, to its end; extract it if there is a builder. */
static int read_archive(struct unpacker *u, const struct nfs_handle *archive, uint64_t size,
			const struct tree_archive_sum *sum, struct error *err)
{
	int r;

	u->work->progress.total = size;
	tree_file_init(&u->file, u->work, archive, size);
	r = check_length(size, sum, err);
	if (r < 0)
		return r;
	r = unpacker_open(u, err);
	if (r < 0)
		return r;
	r = check_end(u, size, err);
	if (r < 0)
		return r;
	r = read_entries(u, err);
	if (r < 0)
		return r;
	if (u->builder != NULL) {
		r = close_folders(u, err);
		if (r < 0)
			return r;
	}
	r = read_to_end(u, sum, err);
	if (r < 0)
		return r;
	return check_sum(u, sum, err);
}

static void unpacker_done(struct unpacker *u)
{
	tree_builder_free(u->builder);
	tree_drain(u->work);
	tree_file_done(&u->file);
	tree_gunzip_free(u->gunzip);
	(void)archive_read_free(u->archive);
	buf_done(&u->path);
}

int tree_unpack(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		const struct tree_archive_sum *sum, const struct nfs_handle *parent,
		const char *root, struct error *err)
{
	const struct tree_builder_options options = {
		.root = root,
		.repeats = true,
		.data_max = size < UINT64_MAX / EXPANSION_MAX / 2
				    ? size * EXPANSION_MAX + EXPANSION_FREE
				    : 0,
	};
	struct unpacker u = {
		.work = work,
		.entries_max = ENTRIES_FREE + size / ENTRY_BYTES,
		.implied_max = IMPLIED_FREE + size / ENTRY_BYTES,
	};
	int r;

	r = libarchive_load(err);
	if (r < 0)
		return r;
	if (tree_builder_new(&u.builder, work, parent, &options) < 0)
		return error_oom(err);
	u.sink = tree_builder_sink(u.builder);
	r = read_archive(&u, archive, size, sum, err);
	if (r == 0)
		r = tree_builder_finish(u.builder, err);
	unpacker_done(&u);
	return r;
}

int tree_archive_check(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		       struct error *err)
{
	struct unpacker u = { .work = work };
	int r = libarchive_load(err);

	if (r < 0)
		return r;
	r = read_archive(&u, archive, size, NULL, err);
	unpacker_done(&u);
	return r;
}
