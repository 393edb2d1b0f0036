/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Files may be written to, truncated or replaced while they are read. The attributes that come with
 * each piece of data, and after the last one, are compared with those before the first. If a file
 * has changed, its name is looked up again, and whatever has that name now is read. Small files are
 * read in full before they are begun, so that the sink need not drop them.
 */

#include <errno.h>

#include "base/log.h"
#include "nfs/calls.h"
#include "tree/reader_item.h"
#include "tree/sparse.h"

/* builder_step.c cannot drop a file that it creates and writes in one call. */
_Static_assert(NFS_WHOLE_MAX <= READER_WHOLE_MAX, "a file made in one call is read in full first");

#define SEEKS_MAX 8192 /* parts of data in one file; with more of them, it is read */
#define CUTS_MAX 8 /* reads that find the file shorter than its attributes say */

/* Files that use at most 1/HOLES_PART of their size are all holes; HOLES_MAX limits their sum. */
#define HOLES_PART 1024
#define HOLES_MAX (UINT64_C(4) << 40)

/*
 * Holes are read as zeros, at the speed of data: a file of a petabyte would take weeks. Servers
 * update the space used late, so a small number does not prove that a file has no data. A file that
 * is looked up again counts once, with the largest size that it had.
 */
static int check_holes(struct reader *rd, struct reader_item *item, struct error *err)
{
	const struct nfs_attr *attr = &item->attr;
	uint64_t more;

	if (attr->used > attr->size / HOLES_PART || attr->size <= item->holes)
		return 0;
	more = attr->size - item->holes;
	item->holes = attr->size;
	rd->holes = more < UINT64_MAX - rd->holes ? rd->holes + more : UINT64_MAX;
	if (rd->holes <= HOLES_MAX)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' has %llu bytes, of which %llu are allocated: files that are almost all holes, of more than 4 TiB together, are not copied; truncate or remove it",
			 rd->path.data, (unsigned long long)attr->size,
			 (unsigned long long)attr->used);
}

static int send_chunks(struct reader *rd, struct reader_item *item, struct error *err)
{
	bool skip = tree_has_holes(&item->attr) && !rd->options->map;
	struct tree_chunk *chunk;
	struct tree_piece piece;
	int r;

	for (;;) {
		r = tree_file_next(&item->file, &chunk, err);
		if (r < 0 || chunk == NULL)
			return r;
		rd->work->progress.bytes += chunk->got;
		piece = (struct tree_piece){
			.offset = chunk->offset,
			.data = chunk->block->data,
			.len = chunk->got,
			/* Don't pin a full block for a short read. */
			.block = chunk->got == chunk->want ? chunk->block : NULL,
		};
		r = tree_sparse_send(rd->sink, &piece, skip, err);
		tree_file_release(chunk);
		if (r == 0)
			r = reader_fill(rd);
		if (r < 0)
			return r;
	}
}

/* Read the file once to find its segments. */
static int find_segments(struct reader *rd, struct reader_item *item,
			 struct tree_segments *segments, struct error *err)
{
	struct tree_file f;
	struct tree_chunk *chunk;
	int r;

	tree_file_init(&f, rd->work, &item->handle, item->attr.size);
	tree_file_watch(&f, &item->attr);
	do {
		r = tree_file_next(&f, &chunk, err);
		if (r < 0 || chunk == NULL)
			break;
		r = tree_segments_add(segments, chunk->offset, chunk->block->data, chunk->got);
		tree_file_release(chunk);
	} while (r == 0);
	if (r < 0)
		tree_drain_reads(rd->work, false);
	tree_file_done(&f);
	item->file.changed = f.changed;
	item->file.at_end = f.at_end;
	item->file.end = f.end;
	return r;
}

/* -------- what the server does -------- */

/* Return the offset of the next data or hole, or a negative errno; -ENXIO: there is none. */
static int seek(struct reader *rd, const struct reader_item *item, bool hole, uint64_t *offset)
{
	struct nfs_op op = {
		.type = NFS_OP_SEEK,
		.dir = &item->handle,
		.offset = *offset,
		.hole = hole,
	};
	int r = nfs_client_call(rd->work->from, &op);

	if (r == 0 && op.offset < *offset)
		r = -EOPNOTSUPP; /* a broken server: do without SEEK */
	*offset = op.offset;
	return r;
}

/*
 * Find the segments by SEEK. Returns 1; 0 if there are too many, or the server does not have it; or
 * a negative errno.
 */
static int seek_segments(struct reader *rd, const struct reader_item *item,
			 struct tree_segments *segments, struct error *err)
{
	const uint64_t size = item->attr.size;
	uint64_t data = 0, end = 0;
	unsigned int n;
	int r = 0;

	for (n = 0; r == 0 && end < size; n++) {
		r = tree_poll(rd->work, err);
		if (r < 0)
			return r;
		data = end;
		r = seek(rd, item, false, &data);
		if (r < 0 || data >= size)
			break;
		/* Do not take the rest for data: it may have holes of terabytes. */
		if (n == SEEKS_MAX) {
			tree_segments_done(segments);
			return 0;
		}
		end = data;
		r = seek(rd, item, true, &end);
		/* nfs-ganesha 4 finds both data and a hole wherever it is asked. */
		if (r == 0 && end == data)
			r = -EOPNOTSUPP;
		if (end > size)
			end = size;
		if (r == 0 && tree_segments_append(segments, data, end - data) < 0)
			return -ENOMEM;
	}
	if (r == 0 || r == -ENXIO)
		return 1;
	if (r == -EOPNOTSUPP || r == -EINVAL || r == -EREMOTEIO) {
		rd->work->offload &= ~NFS_OFFLOAD_SEEK;
		tree_segments_done(segments);
		return 0;
	}
	return r;
}

/*
 * Compare the attributes after the server has copied the file, as tree_file_watch() does for reads.
 */
static int reader_check_source(struct reader *rd, struct reader_item *item)
{
	struct nfs_attr now;
	int r = nfs_stat(rd->work->from, &item->handle, &now);

	if (r < 0)
		return r;
	if (now.size < item->attr.size) {
		item->file.at_end = true;
		item->file.end = now.size;
	}
	item->file.changed = !tree_file_is_same(&item->attr, &now);
	return 0;
}

/* -------- files that change -------- */

/* Deliver the file as it was read. */
static void keep_as_read(struct reader *rd, struct reader_item *item)
{
	if (item->kept)
		return;
	item->kept = true;
	rd->work->progress.changed++;
	log_info("A file was written to each time it was read", LOG_STR("path", rd->path.data),
		 LOG_NUM("times", item->rereads + item->cuts + 1));
}

/* Check a file that was read to its end. -ERESTART: read it again, unless the error is set. */
static int check_unchanged(struct reader *rd, struct reader_item *item, struct error *err)
{
	if (item->file.at_end) {
		item->end = item->file.end;
		if (++item->cuts > CUTS_MAX)
			(void)error_set(err, ERROR_ABORTED,
					"'%s' becomes shorter each time it is read; try again",
					rd->path.data);
		return -ERESTART;
	}
	if (item->is_limited) {
		keep_as_read(rd, item);
		return 0;
	}
	if (!item->file.changed)
		return 0;
	if (item->rereads == READER_REREADS_MAX) {
		keep_as_read(rd, item);
		return 0;
	}
	item->rereads++;
	return -ERESTART;
}

/* -------- delivering -------- */

static void use_segments(struct reader_item *item, const struct tree_segments *segments,
			 struct tree_entry *entry)
{
	entry->is_mapped = true;
	entry->segments = segments->items;
	entry->n_segments = segments->n;
	tree_file_restrict(&item->file, segments->items, segments->n);
}

/* Have SEEK find the segments of the file, if it can. */
static int map_by_seek(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		       struct tree_segments *segments, struct error *err)
{
	int r = seek_segments(rd, item, segments, err);

	if (r <= 0)
		return r;
	use_segments(item, segments, entry);
	/* Without data nothing is read, and a truncated file looks like a hole. */
	r = reader_check_source(rd, item);
	return r == 0 ? check_unchanged(rd, item, err) : r;
}

/* Read what must be known before the entry is begun. *ret_whole: all of its data was read. */
static int read_before_begin(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
			     struct tree_segments *segments, bool *ret_whole, struct error *err)
{
	int r;

	*ret_whole = item->attr.size <= READER_WHOLE_MAX;
	if (item->attr.size == 0) {
		if (item->is_limited)
			keep_as_read(rd, item);
		return 0;
	}
	if (!item->file.started)
		reader_item_open(item);
	/* An archive takes holes as zeros, also those that SEEK finds. */
	r = rd->options->map ? check_holes(rd, item, err) : 0;
	/* CLONE needs no segments, and takes the file at one moment, whoever writes to it. */
	if (r == 0 && reader_seeks(rd, &item->attr) && !reader_clones(rd, item))
		r = map_by_seek(rd, item, entry, segments, err);
	if (r < 0 || entry->is_mapped)
		return r;
	if (reader_offloads(rd, item))
		return 0;
	if (reader_maps(rd, &item->attr)) {
		*ret_whole = false;
		r = find_segments(rd, item, segments, err);
		use_segments(item, segments, entry);
	} else if (*ret_whole) {
		r = tree_file_wait(&item->file, err);
	} else {
		r = tree_file_wait_first(&item->file, err);
		/* Begin no file that has ended early: an archive would have to pad it. */
		if (r < 0 || !item->file.at_end)
			return r;
	}
	return r == 0 ? check_unchanged(rd, item, err) : r;
}

/* As tree_sink.copy(). */
static int copy_data(struct reader *rd, struct reader_item *item, const struct tree_entry *entry,
		     struct error *err)
{
	int r = 0;

	if (reader_offloads(rd, item))
		r = rd->sink->copy(rd->sink, entry, &item->handle, err);
	item->is_cut = r == -ERESTART;
	return r;
}

/* Deliver the data: the server copies it, or we do. */
static int deliver_data(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
			struct tree_segments *segments, struct error *err)
{
	const bool clones = reader_clones(rd, item);
	int r = copy_data(rd, item, entry, err);

	/* CLONE was refused: read_before_begin() has left this to be done. */
	if (r == 0 && clones && reader_seeks(rd, &item->attr)) {
		r = map_by_seek(rd, item, entry, segments, err);
		if (r == 0 && entry->is_mapped)
			r = copy_data(rd, item, entry, err);
	}
	/* CLONE takes any number of holes, and what is mapped is read without them. */
	if (r == 0 && !rd->options->map && !entry->is_mapped)
		r = check_holes(rd, item, err);
	if (r == 0)
		return send_chunks(rd, item, err);
	return r > 0 ? reader_check_source(rd, item) : r;
}

/* Return whether the file is to be delivered again. */
static bool file_must_retry(int r, const struct error *err)
{
	return (reader_is_gone(r) || r == -ERESTART) && err->code == ERROR_OK;
}

static int send_data(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err)
{
	const uint64_t bytes = rd->work->progress.bytes;
	struct tree_segments segments = { .n = 0 };
	bool is_whole;
	int r, dropped;

	r = read_before_begin(rd, item, entry, &segments, &is_whole, err);
	if (r < 0)
		goto out;
	r = rd->sink->begin(rd->sink, entry, err);
	if (r < 0)
		goto out;
	if (item->attr.size > 0) {
		r = deliver_data(rd, item, entry, &segments, err);
		if (r == 0 && !is_whole)
			r = check_unchanged(rd, item, err);
	}
	if (r == 0) {
		r = rd->sink->end(rd->sink, err);
	} else if (file_must_retry(r, err)) {
		tree_drain_reads(rd->work, false);
		dropped = rd->sink->drop(rd->sink, err);
		r = dropped < 0 ? dropped : r;
		rd->work->progress.bytes = bytes;
	}
out:
	/* Reads in flight point to the segments. */
	if (segments.n > 0)
		tree_drain_reads(rd->work, false);
	tree_segments_done(&segments);
	return r;
}

/* Data that was read ahead, before the first name was delivered, may still be in flight. */
static int send_link(struct reader *rd, struct reader_item *item, const struct tree_entry *entry,
		     struct error *err)
{
	int r = 0;

	while (r == 0 && tree_file_is_busy(&item->file))
		r = tree_pump(rd->work, err);
	if (r == 0)
		r = rd->sink->begin(rd->sink, entry, err);
	return r == 0 ? rd->sink->end(rd->sink, err) : r;
}

int reader_send_file(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err)
{
	const struct tree_hardlink_id id = tree_hardlink_id_of(&item->handle, &item->attr);
	int r;

	if (entry->hardlink_to != NULL)
		r = send_link(rd, item, entry, err);
	else
		r = send_data(rd, item, entry, err);
	if (file_must_retry(r, err)) {
		if (item->attr.links > 1)
			tree_hardlinks_forget(rd->links, &id);
		return reader_retry_entry(rd, item, err);
	}
	if (r < 0 && err->code == ERROR_OK)
		return reader_fail(rd, r, "reading", rd->path.data, err);
	if (r == 0)
		rd->work->progress.files++;
	return r;
}
