/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "nfs/owner.h"
#include "tree/archive.h"
#include "tree/builder.h"
#include "tree/file.h"
#include "tree/gunzip.h"
#include "tree/segments.h"

#define EXPANSION_MAX 1100 /* gzip makes 1,032 bytes of one at most; blocks of zeros do not count */
#define EXPANSION_FREE (UINT64_C(1) << 30)
#define ENTRIES_FREE UINT64_C(1000000)
#define ENTRY_BYTES 4 /* of an archive, for each further entry */
#define HOLES_FROM 65536 /* zeros in files of that size become holes */
#define IMPLIED_MODE 0755 /* of directories that an archive does not name */
#define TAR_BLOCK 512

struct unpacker {
	struct tree_work *work;
	struct tree_sink *sink;
	struct archive *archive;
	struct tree_file file;
	struct tree_chunk *chunk; /* that libarchive has, or zlib */
	struct tree_gunzip *gunzip; /* where it is gzip */
	bool begun; /* reading */
	struct buf path; /* of the directory that is open */
	size_t depth; /* of open directories, the root among them */
	uint64_t entries, entries_max;
	struct error err; /* of the file */
	int error;
};

/* As it is in the file. *ret_len becomes 0 at its end. */
static int read_file(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r;

	if (u->chunk != NULL)
		tree_file_release(&u->file, u->chunk);
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
	return 0;
}

static int bad_gzip(struct unpacker *u, int r)
{
	if (r == -ENOMEM)
		return error_oom(&u->err);
	return error_set(&u->err, ERROR_DATA_LOSS,
			 "the archive is damaged: its gzip data or checksum is wrong");
}

static int read_gzip(struct unpacker *u, const char **ret, size_t *ret_len)
{
	const char *packed;
	size_t len;
	int r;

	for (;;) {
		r = tree_gunzip_next(u->gunzip, ret, ret_len);
		if (r < 0)
			return bad_gzip(u, r);
		if (*ret_len > 0)
			return 0;
		r = read_file(u, &packed, &len);
		if (r < 0)
			return r;
		if (len == 0)
			break;
		tree_gunzip_feed(u->gunzip, packed, len);
	}
	if (tree_gunzip_is_complete(u->gunzip))
		return 0;
	return error_set(&u->err, ERROR_DATA_LOSS, "the archive is damaged: it was cut");
}

/* The first piece of the file tells whether it is gzip. */
static int read_first(struct unpacker *u, const char **ret, size_t *ret_len)
{
	int r = read_file(u, ret, ret_len);

	u->begun = true;
	if (r < 0 || !tree_gunzip_is_for(*ret, *ret_len))
		return r;
	if (tree_gunzip_new(&u->gunzip) < 0)
		return error_oom(&u->err);
	tree_gunzip_feed(u->gunzip, *ret, *ret_len);
	return read_gzip(u, ret, ret_len);
}

static int read_next(struct unpacker *u, const char **ret, size_t *ret_len)
{
	if (!u->begun)
		return read_first(u, ret, ret_len);
	return u->gunzip != NULL ? read_gzip(u, ret, ret_len) : read_file(u, ret, ret_len);
}

static la_ssize_t read_block(struct archive *a, void *data, const void **ret)
{
	struct unpacker *u = data;
	const char *block = NULL;
	size_t len = 0;

	u->error = read_next(u, &block, &len);
	if (u->error < 0) {
		archive_set_error(a, -u->error, "the archive cannot be read");
		return -1;
	}
	*ret = block;
	return (la_ssize_t)len;
}

static int failed(const struct unpacker *u, struct error *err)
{
	if (u->error < 0) {
		(void)error_set(err, u->err.code, "%s", u->err.msg);
		return u->error;
	}
	return error_set(err, ERROR_DATA_LOSS, "the archive is damaged: %s",
			 archive_error_string(u->archive) != NULL ? archive_error_string(u->archive)
								  : "unknown error");
}

static int refuse(const char *path, const char *why, struct error *err)
{
	return error_set(err, ERROR_FAILED_PRECONDITION, "the archive is refused: '%s' %s", path,
			 why);
}

/* -------- names -------- */

/* As a path below the root: without "." and slashes that say nothing; "" is the root. */
static int clean_path(const char *path, struct buf *ret, struct error *err)
{
	const char *at = path;

	if (path == NULL || path[0] == '/')
		return refuse(path != NULL ? path : "", "is no name below its root", err);
	while (*at != '\0') {
		size_t len = strcspn(at, "/");

		if (len == 2 && memcmp(at, "..", 2) == 0)
			return refuse(path, "leads out of it", err);
		if (len > 0 && !(len == 1 && at[0] == '.'))
			if ((ret->len > 0 && buf_puts(ret, "/") < 0) || buf_append(ret, at, len) < 0)
				return error_oom(err);
		at += len;
		at += strspn(at, "/");
	}
	return 0;
}

static const char *text_of(const struct buf *b)
{
	return b->data != NULL ? b->data : "";
}

/* Whether the directory that is open is path, or has it in it. */
static bool is_open_above(const struct unpacker *u, const char *path)
{
	size_t len = u->path.len;

	if (len == 0)
		return true;
	return strncmp(u->path.data, path, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* -------- directories -------- */

static int leave(struct unpacker *u, struct error *err)
{
	const char *slash = u->path.len > 0 ? strrchr(u->path.data, '/') : NULL;

	u->path.len = slash != NULL ? (size_t)(slash - u->path.data) : 0;
	if (u->path.data != NULL)
		u->path.data[u->path.len] = '\0';
	u->depth--;
	return u->sink->end(u->sink, err);
}

static int enter(struct unpacker *u, struct tree_entry *entry, struct error *err)
{
	if (u->depth == TREE_DEPTH_MAX)
		return refuse(entry->path, "is too deep in it", err);
	u->depth++;
	u->work->progress.directories++;
	if (entry->path != u->path.data) {
		u->path.len = 0;
		if (buf_puts(&u->path, entry->path) < 0)
			return error_oom(err);
	}
	return u->sink->begin(u->sink, entry, err);
}

/* A directory that the archive does not name, or that it has named before. */
static int enter_implied(struct unpacker *u, const char *path, size_t len, struct error *err)
{
	cleanup_free char *copy = strndup(path, len);
	struct tree_entry entry = { .attr = { .type = NFS_TYPE_DIRECTORY, .mode = IMPLIED_MODE } };
	const char *slash;

	if (copy == NULL)
		return error_oom(err);
	slash = strrchr(copy, '/');
	entry.path = copy;
	entry.name = slash != NULL ? slash + 1 : copy;
	return enter(u, &entry, err);
}

/* Opens the directory that path is in, and no other. */
static int go_to(struct unpacker *u, const char *path, struct error *err)
{
	const char *slash = strrchr(path, '/');
	const size_t wanted = slash != NULL ? (size_t)(slash - path) : 0;
	int r = 0;

	if (u->depth == 0)
		r = enter_implied(u, "", 0, err);
	while (r == 0 && u->path.len > 0 && (u->path.len > wanted || !is_open_above(u, path)))
		r = leave(u, err);
	while (r == 0 && u->path.len < wanted) {
		size_t len = u->path.len > 0 ? u->path.len + 1 : 0;

		r = enter_implied(u, path, len + strcspn(path + len, "/"), err);
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
 * Who has a name only (tree/pack.c) is told by that. Other names come from other systems, and their numbers
 * count, as they always have.
 */
static int take_name(const char *name, uint32_t id, uint32_t *ret)
{
	if (id != NFS_ID_UNKNOWN || str_is_empty(name))
		return 0;
	return nfs_owner_intern(name, strlen(name), ret);
}

static int take_owner(struct archive_entry *e, struct nfs_attr *ret, struct error *err)
{
	int r;

	ret->uid = (uint32_t)archive_entry_uid(e);
	ret->gid = (uint32_t)archive_entry_gid(e);
	r = take_name(archive_entry_uname(e), ret->uid, &ret->uid_name);
	if (r == 0)
		r = take_name(archive_entry_gname(e), ret->gid, &ret->gid_name);
	if (r < 0)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "the archive is refused: the owner of '%s' has a name that cannot be kept: %s",
				 archive_entry_pathname(e), strerror(-r));
	ret->is_named = ret->uid_name != 0 || ret->gid_name != 0;
	ret->has_owner = !ret->is_named;
	return 0;
}

static int take_attributes(struct archive_entry *e, struct nfs_attr *ret, struct error *err)
{
	*ret = (struct nfs_attr){
		.type = type_of(archive_entry_mode(e)),
		.mode = archive_entry_mode(e) & 07777,
		.is_full = true,
		.size = (uint64_t)archive_entry_size(e),
		.device = { (uint32_t)archive_entry_rdevmajor(e),
			    (uint32_t)archive_entry_rdevminor(e) },
		.mtime = { archive_entry_mtime(e), (uint32_t)archive_entry_mtime_nsec(e) },
	};
	ret->atime = ret->mtime;
	if (archive_entry_atime_is_set(e))
		ret->atime = (struct nfs_time){ archive_entry_atime(e),
						(uint32_t)archive_entry_atime_nsec(e) };
	return take_owner(e, ret, err);
}

static int copy_data(struct unpacker *u, const struct tree_entry *entry, struct error *err)
{
	struct tree_piece piece;
	const void *data;
	size_t len;
	la_int64_t offset;
	int r = 0;

	while (r == 0) {
		int status = archive_read_data_block(u->archive, &data, &len, &offset);

		if (status == ARCHIVE_EOF)
			break;
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return failed(u, err);
		u->work->progress.bytes += len;
		piece = (struct tree_piece){ .offset = (uint64_t)offset, .data = data, .len = len };
		r = tree_send(u->sink, &piece, entry->has_holes, err);
	}
	return r;
}

static int put(struct unpacker *u, struct tree_entry *entry, struct error *err)
{
	int r;

	if (entry->attr.type == NFS_TYPE_DIRECTORY && entry->path[0] == '\0')
		/* The root is begun once; a second time has nothing to add. */
		return u->depth == 0 ? enter(u, entry, err) : 0;
	if (entry->path[0] == '\0')
		return refuse(".", "is no directory", err);
	r = go_to(u, entry->path, err);
	if (r < 0)
		return r;
	if (entry->attr.type == NFS_TYPE_DIRECTORY)
		return enter(u, entry, err);
	r = u->sink->begin(u->sink, entry, err);
	if (r == 0 && entry->attr.type == NFS_TYPE_FILE && entry->same_as == NULL)
		r = copy_data(u, entry, err);
	u->work->progress.files++;
	return r == 0 ? u->sink->end(u->sink, err) : r;
}

static int take_entry(struct unpacker *u, struct archive_entry *e, struct error *err)
{
	cleanup_buf struct buf path = { .data = NULL }, same_as = { .data = NULL };
	struct tree_entry entry = { .link = NULL };
	const char *slash;
	int r;

	if (++u->entries > u->entries_max)
		return refuse("", "and what follows are more entries than can be right", err);
	r = clean_path(archive_entry_pathname(e), &path, err);
	if (r == 0 && archive_entry_hardlink(e) != NULL)
		r = clean_path(archive_entry_hardlink(e), &same_as, err);
	if (r == 0)
		r = take_attributes(e, &entry.attr, err);
	if (r < 0)
		return r;
	entry.path = text_of(&path);
	slash = strrchr(entry.path, '/');
	entry.name = slash != NULL ? slash + 1 : entry.path;
	if (archive_entry_hardlink(e) != NULL && same_as.len == 0)
		return refuse(entry.path, "is a link to its root", err);
	if (archive_entry_hardlink(e) != NULL) {
		entry.same_as = text_of(&same_as);
		entry.attr.type = NFS_TYPE_FILE; /* tar does not say what it is a link to */
	}
	entry.link = archive_entry_symlink(e);
	entry.has_holes = entry.attr.type == NFS_TYPE_FILE &&
			  (entry.attr.size >= HOLES_FROM || archive_entry_sparse_count(e) > 0);
	if (entry.attr.type == NFS_TYPE_SYMLINK && entry.link == NULL)
		return failed(u, err);
	if (entry.attr.type == NFS_TYPE_OTHER) {
		u->work->progress.left_out++;
		return 0;
	}
	return put(u, &entry, err);
}

/*
 * What libarchive takes for the end is that of the data, too. The file may have been cut, and tar before
 * what it wrote was compressed.
 */
static int check_mark(struct unpacker *u, struct error *err)
{
	if (archive_filter_bytes(u->archive, 0) > archive_read_header_position(u->archive))
		return 0;
	return error_set(err, ERROR_DATA_LOSS, "the archive is damaged: its end is missing");
}

static int take_entries(struct unpacker *u, struct error *err)
{
	struct archive_entry *e;
	int r = 0;

	while (r == 0) {
		int status = archive_read_next_header(u->archive, &e);

		if (status == ARCHIVE_EOF)
			break;
		if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
			return failed(u, err);
		r = take_entry(u, e, err);
	}
	if (r == 0)
		r = check_mark(u, err);
	if (r == 0 && u->depth == 0)
		r = enter_implied(u, "", 0, err);
	while (r == 0 && u->depth > 0)
		r = leave(u, err);
	return r;
}

/* -------- the archive -------- */

/* libarchive takes the end of the file for the end of the archive; a tar that was cut has no zeros there. */
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
		return 0; /* compressed data tells itself where it ends */
	r = nfs_client_call(u->work->from, &op);
	if (r < 0)
		return nfs_error_set(err, u->work->from, r, "reading the archive");
	if (op.count < sizeof(tail) || memcmp(tail, zeros, sizeof(tail)) != 0)
		return error_set(err, ERROR_DATA_LOSS, "the archive is damaged: its end is missing");
	return 0;
}

/* The checksum stands behind what libarchive wants to see. */
static int read_to_end(struct unpacker *u, struct error *err)
{
	const char *data;
	size_t len;

	do {
		u->error = read_next(u, &data, &len);
	} while (u->error == 0 && len > 0);
	return u->error < 0 ? failed(u, err) : 0;
}

static int open_archive(struct unpacker *u, struct error *err)
{
	struct archive *a = archive_read_new();

	u->archive = a;
	if (a == NULL)
		return error_oom(err);
	if (archive_read_support_filter_zstd(a) < ARCHIVE_WARN ||
	    archive_read_support_format_tar(a) < ARCHIVE_WARN ||
	    archive_read_open(a, u, NULL, read_block, NULL) != ARCHIVE_OK)
		return failed(u, err);
	return 0;
}

int tree_unpack(struct tree_work *work, const struct nfs_handle *archive, uint64_t size,
		const struct nfs_handle *parent, const char *root, struct nfs_handle *ret_root,
		struct error *err)
{
	const struct tree_builder_options options = {
		.root = root,
		.data_max = size < UINT64_MAX / EXPANSION_MAX / 2
				    ? size * EXPANSION_MAX + EXPANSION_FREE
				    : 0,
	};
	struct unpacker u = { .work = work, .entries_max = ENTRIES_FREE + size / ENTRY_BYTES };
	struct tree_builder *b;
	int r;

	if (tree_builder_new(&b, work, parent, &options) < 0)
		return error_oom(err);
	u.sink = tree_builder_sink(b);
	work->progress.total = size;
	tree_file_init(&u.file, work, archive, size);
	r = open_archive(&u, err);
	if (r == 0)
		r = check_end(&u, size, err);
	if (r == 0)
		r = take_entries(&u, err);
	if (r == 0 && u.gunzip != NULL)
		r = read_to_end(&u, err);
	if (r == 0)
		r = tree_builder_finish(b, ret_root, err);
	tree_builder_free(b);
	tree_drain(work);
	tree_file_done(&u.file);
	tree_gunzip_free(u.gunzip);
	(void)archive_read_free(u.archive);
	buf_done(&u.path);
	return r;
}
