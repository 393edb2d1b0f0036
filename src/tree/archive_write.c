/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/error.h"
#include "nfs/owner.h"
#include "tree/archive.h"
#include "tree/archive_times.h"
#include "tree/builder.h"
#include "tree/libarchive.h"
#include "tree/locale.h"
#include "tree/reader.h"

/*
 * Limit on the zeros that replace missing data, in all files of an archive together. A server can
 * report any size without having the data, and the archive may be on another server.
 */
#define PADDING_MAX (UINT64_C(16) << 30)

#define POLL_ZEROS 16384 /* pieces of zeros, 1 GiB: about a millisecond */
#define BLOCK_BYTES (256 * 1024) /* of output that libarchive collects per write_block() */
#define FOLDER_MODE 0700 /* archives hold what their volumes keep private */
#define FILE_MODE 0600

static const struct {
	const char *name, *suffix;
} compressions[] = {
	[TREE_COMPRESSION_NONE] = { "none", ".tar" },
	[TREE_COMPRESSION_GZIP] = { "gzip", ".tar.gz" },
	[TREE_COMPRESSION_ZSTD] = { "zstd", ".tar.zst" },
};

int tree_compression_parse(const char *text, enum tree_compression *ret)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(compressions); i++) {
		if (!str_eq_nocase(text, compressions[i].name))
			continue;
		*ret = (enum tree_compression)i;
		return 0;
	}
	return -EINVAL;
}

const char *tree_compression_suffix(enum tree_compression compression)
{
	return compressions[compression].suffix;
}

struct packer {
	struct tree_sink sink;
	struct tree_work *work;
	struct tree_sink *output; /* takes the archive file */
	struct archive *archive;
	struct archive_entry *entry;
	struct tree_archive_sum written;
	uint64_t position; /* in the entry's data */
	uint64_t size; /* of the entry's data */
	uint64_t missing; /* of the data that the archive has room for, what has not come */
	uint64_t padding; /* zeros in place of such data, so far */
	bool has_data; /* the entry is a file with data */
	bool is_mapped;
	char *dropped; /* path of an archived entry that must come again; NULL: none */
	int error; /* of the output */
	struct error err;
};

static la_ssize_t write_block(struct archive *a, void *data, const void *block, size_t len)
{
	struct packer *p = data;
	const struct tree_piece piece = { .offset = p->written.bytes, .data = block, .len = len };

	if (p->error == 0)
		p->error = p->output->data(p->output, &piece, &p->err);
	if (p->error < 0) {
		archive_set_error(a, -p->error, "the archive cannot be written");
		return -1;
	}
	p->written.bytes += len;
	p->written.crc32 = (uint32_t)crc32_z(p->written.crc32, block, len);
	return (la_ssize_t)len;
}

static int packer_error(const struct packer *p, struct error *err)
{
	if (p->error < 0) {
		(void)error_set(err, p->err.code, "%s", p->err.msg);
		return p->error;
	}
	return error_set(err, ERROR_INTERNAL, "libarchive: %s",
			 archive_error_string(p->archive) != NULL ? archive_error_string(p->archive)
								  : "unknown error");
}

static mode_t type_bits(enum nfs_type type)
{
	switch (type) {
	case NFS_TYPE_DIRECTORY:
		return S_IFDIR;
	case NFS_TYPE_SYMLINK:
		return S_IFLNK;
	case NFS_TYPE_FIFO:
		return S_IFIFO;
	case NFS_TYPE_BLOCK:
		return S_IFBLK;
	case NFS_TYPE_CHARACTER:
		return S_IFCHR;
	default:
		return S_IFREG;
	}
}

static void put_segments(struct archive_entry *e, const struct tree_entry *from)
{
	size_t i;

	for (i = 0; i < from->n_segments; i++)
		archive_entry_sparse_add_entry(e, (la_int64_t)from->segments[i].offset,
					       (la_int64_t)from->segments[i].len);
	/* A file that is one hole needs a map, too. */
	if (from->n_segments == 0)
		archive_entry_sparse_add_entry(e, (la_int64_t)from->attr.size, 0);
}

/* Returns false for a time that libarchive has no room for. */
static bool put_entry(struct packer *p, const struct tree_entry *from)
{
	const struct nfs_attr *attr = &from->attr;
	struct archive_entry *e = p->entry;

	archive_entry_clear(e);
	archive_entry_copy_pathname(e, from->path[0] != '\0' ? from->path : ".");
	archive_entry_set_mode(e, type_bits(attr->type) | (attr->mode & 07777));
	archive_entry_set_uid(e, attr->uid);
	archive_entry_set_gid(e, attr->gid);
	if (attr->uid_name != 0)
		archive_entry_set_uname(e, nfs_owner_name(attr->uid_name));
	if (attr->gid_name != 0)
		archive_entry_set_gname(e, nfs_owner_name(attr->gid_name));
	archive_entry_set_size(e, p->has_data ? (la_int64_t)attr->size : 0);
	if (from->hardlink_to != NULL)
		archive_entry_copy_hardlink(e, from->hardlink_to);
	else if (attr->type == NFS_TYPE_SYMLINK)
		archive_entry_copy_symlink(e, from->link);
	archive_entry_set_rdevmajor(e, attr->device.major);
	archive_entry_set_rdevminor(e, attr->device.minor);
	if (p->is_mapped)
		put_segments(e, from);
	return archive_times_set(e, attr->mtime.sec, attr->mtime.nsec, attr->atime.sec,
				 attr->atime.nsec);
}

/* Add the "user." of Linux, which archiving tools expect and NFS leaves out. */
static int put_xattrs(struct archive_entry *e, const struct tree_xattrs *set)
{
	cleanup_buf struct buf name = { .data = NULL };
	size_t i;

	for (i = 0; set != NULL && i < set->n; i++) {
		const struct tree_xattr *xattr = &set->items[i];

		name.len = 0;
		if (buf_printf(&name, TREE_XATTR_USER "%s", xattr->name) < 0)
			return -ENOMEM;
		archive_entry_xattr_add_entry(e, name.data, xattr->value, xattr->len);
	}
	return 0;
}

static int fail_start_over(const char *path, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"'%s' was replaced or removed while being read; the archive must be restarted",
			path);
	return -ERESTART;
}

/*
 * A dropped entry stays in the archive. That is fine if the next entry has the same name, because
 * extracting keeps the later one, unless that is a directory or is not archived.
 */
static int check_dropped(struct packer *p, const struct tree_entry *from, struct error *err)
{
	const enum nfs_type type = from != NULL ? from->attr.type : NFS_TYPE_OTHER;

	if (p->dropped == NULL)
		return 0;
	if (type == NFS_TYPE_DIRECTORY || type == NFS_TYPE_SOCKET || type == NFS_TYPE_OTHER ||
	    strcmp(from->path, p->dropped) != 0)
		return fail_start_over(p->dropped, err);
	free(p->dropped);
	p->dropped = NULL;
	return 0;
}

/* Each entry repeats its path, so nested directories take quadratic space. */
static int check_depth(const char *path, struct error *err)
{
	size_t depth = 0, i;

	for (i = 0; path[i] != '\0'; i++)
		depth += path[i] == '/';
	if (depth < TREE_ARCHIVE_DEPTH_MAX)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "an archive takes at most %d levels of directories: '%.200s...' exceeds that",
			 TREE_ARCHIVE_DEPTH_MAX, path);
}

/* The bytes between the holes of a file that is mapped, else all. */
static uint64_t data_bytes(const struct tree_entry *from)
{
	uint64_t bytes = from->is_mapped ? 0 : from->attr.size;
	size_t i;

	for (i = 0; from->is_mapped && i < from->n_segments; i++)
		bytes += from->segments[i].len;
	return bytes;
}

static int packer_begin(struct tree_sink *sink, const struct tree_entry *from, struct error *err)
{
	struct packer *p = container_of(sink, struct packer, sink);
	int r = check_dropped(p, from, err);

	if (r == 0)
		r = check_depth(from->path, err);
	if (r < 0)
		return r;
	if (from->attr.type == NFS_TYPE_SOCKET || from->attr.type == NFS_TYPE_OTHER) {
		p->work->progress.left_out++;
		log_debug("Leaving a socket out of an archive", LOG_STR("path", from->path));
		return 0;
	}
	if (!from->attr.has_owner && !from->attr.is_named)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "archiving '%s': the server does not report its owner; %s",
				 from->path, NFS_OWNER_HINT);
	p->has_data = from->attr.type == NFS_TYPE_FILE && from->hardlink_to == NULL;
	p->is_mapped = from->is_mapped;
	p->position = 0;
	p->size = from->attr.size;
	p->missing = p->has_data ? data_bytes(from) : 0;
	if (!put_entry(p, from))
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "archiving '%s': one of its times does not fit libarchive's 32-bit time_t",
				 from->path);
	if (from->hardlink_to == NULL && put_xattrs(p->entry, from->xattrs) < 0)
		return error_oom(err);
	return archive_write_header(p->archive, p->entry) >= ARCHIVE_WARN ? 0
									  : packer_error(p, err);
}

static int put_data(struct packer *p, const char *data, size_t len, struct error *err)
{
	if (archive_write_data(p->archive, data, len) < 0)
		return packer_error(p, err);
	p->position += len;
	return 0;
}

/* libarchive has to be given the zeros of holes, but does not write them. */
static int put_zeros(struct packer *p, uint64_t end, struct error *err)
{
	static const char zeros[65536];
	uint64_t n;

	for (n = 1; p->position < end; n++) {
		uint64_t left = end - p->position;
		int r = n % POLL_ZEROS == 0 ? tree_poll(p->work, err)
					    : tree_check_cancel(p->work, err);

		if (r == 0)
			r = put_data(p, zeros, left < sizeof(zeros) ? (size_t)left : sizeof(zeros),
				     err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int packer_data(struct tree_sink *sink, const struct tree_piece *piece, struct error *err)
{
	struct packer *p = container_of(sink, struct packer, sink);
	int r = put_zeros(p, piece->offset, err);

	p->missing -= piece->len;
	return r < 0 ? r : put_data(p, piece->data, piece->len, err);
}

/* If a file was truncated after its header was written, pad it with zeros. */
static int packer_end(struct tree_sink *sink, struct error *err)
{
	struct packer *p = container_of(sink, struct packer, sink);
	int r = 0;

	if (p->has_data)
		r = put_zeros(p, p->size, err);
	p->has_data = false;
	return r;
}

static int packer_drop(struct tree_sink *sink, struct error *err)
{
	struct packer *p = container_of(sink, struct packer, sink);
	const char *path = archive_entry_pathname(p->entry);
	bool is_file = p->has_data;
	int r;

	if (p->missing > PADDING_MAX - p->padding)
		return fail_start_over(path != NULL ? path : "", err);
	p->padding += p->missing;
	r = packer_end(sink, err);
	if (r < 0)
		return r;
	if (!is_file || path == NULL)
		return fail_start_over(path != NULL ? path : "", err);
	p->dropped = strdup(path);
	return p->dropped != NULL ? 0 : error_oom(err);
}

static int add_filter(struct archive *a, enum tree_compression compression)
{
	switch (compression) {
	case TREE_COMPRESSION_GZIP:
		return archive_write_add_filter_gzip(a);
	case TREE_COMPRESSION_ZSTD:
		return archive_write_add_filter_zstd(a);
	default:
		return archive_write_add_filter_none(a);
	}
}

static int packer_open(struct packer *p, enum tree_compression compression, struct error *err)
{
	struct archive *a = archive_write_new();

	p->archive = a;
	p->entry = archive_entry_new();
	if (a == NULL || p->entry == NULL)
		return error_oom(err);
	/* Names that are not UTF-8 are written as they are, and marked as binary. */
	if (archive_write_set_format_pax(a) != ARCHIVE_OK ||
	    archive_write_set_format_option(a, "pax", "xattrheader", "SCHILY") != ARCHIVE_OK ||
	    add_filter(a, compression) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(a, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK ||
	    archive_write_open(a, p, NULL, write_block, NULL) != ARCHIVE_OK)
		return packer_error(p, err);
	return 0;
}

static int begin_output(struct tree_sink *output, const char *file, struct error *err)
{
	struct timespec now;
	struct tree_entry entry = { .path = "", .name = "" };
	int r;

	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	entry.attr = (struct nfs_attr){
		.type = NFS_TYPE_DIRECTORY,
		.mode = FOLDER_MODE,
		.has_owner = true, /* root, if we may set owners */
		.mtime = { now.tv_sec, (uint32_t)now.tv_nsec },
		.atime = { now.tv_sec, (uint32_t)now.tv_nsec },
		.is_full = true,
	};
	r = output->begin(output, &entry, err);
	if (r < 0)
		return r;
	entry.path = entry.name = file;
	entry.attr.type = NFS_TYPE_FILE;
	entry.attr.mode = FILE_MODE;
	entry.attr.size = UINT64_MAX; /* not known yet */
	return output->begin(output, &entry, err);
}

static int write_archive(struct packer *p, const struct nfs_handle *tree,
			 const struct nfs_attr *attr, struct error *err)
{
	const struct tree_reader_options options = { .map = true };
	int r = tree_read(p->work, tree, attr, &options, &p->sink, err);

	if (r < 0)
		return r;
	r = check_dropped(p, NULL, err);
	if (r < 0)
		return r;
	if (archive_write_close(p->archive) != ARCHIVE_OK)
		return packer_error(p, err);
	r = p->output->end(p->output, err); /* the file */
	if (r < 0)
		return r;
	return p->output->end(p->output, err); /* the directory */
}

static int pack(struct packer *p, struct tree_builder *b, const struct nfs_handle *tree,
		const struct nfs_attr *attr, const char *file, enum tree_compression compression,
		struct error *err)
{
	int r;

	r = packer_open(p, compression, err);
	if (r < 0)
		return r;
	r = begin_output(p->output, file, err);
	if (r < 0)
		return r;
	r = write_archive(p, tree, attr, err);
	if (r < 0)
		return r;
	return tree_builder_finish(b, err);
}

int tree_archive_prepare(struct error *err)
{
	return libarchive_load(err);
}

int tree_pack(struct tree_work *work, const struct nfs_handle *tree, const struct nfs_attr *attr,
	      const struct nfs_handle *parent, const char *folder, const char *file,
	      enum tree_compression compression, struct tree_archive_sum *ret_sum,
	      struct error *err)
{
	const struct tree_builder_options options = { .root = folder };
	cleanup_locale locale_t before = (locale_t)0;
	struct packer p = {
		.sink = { .begin = packer_begin,
			  .data = packer_data,
			  .end = packer_end,
			  .drop = packer_drop },
		.work = work,
	};
	struct tree_builder *b;
	int r;

	/* First: constructors of libraries get the locale that processes start with. */
	r = libarchive_load(err);
	if (r < 0)
		return r;
	before = tree_locale_enter();
	if (tree_builder_new(&b, work, parent, &options) < 0)
		return error_oom(err);
	p.output = tree_builder_sink(b);
	r = pack(&p, b, tree, attr, file, compression, err);
	if (r == 0)
		*ret_sum = p.written;
	/* Closing frees zlib's memory. Fail first, or the unfinished entry would be padded. */
	if (r < 0 && p.archive != NULL) {
		p.error = r;
		(void)archive_write_fail(p.archive);
		(void)archive_write_close(p.archive);
	}
	free(p.dropped);
	archive_entry_free(p.entry);
	(void)archive_write_free(p.archive);
	tree_builder_free(b);
	return r;
}
