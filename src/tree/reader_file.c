/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Files, which others may write to, cut or replace while they are read. What the server tells with each piece
 * of data is compared with what the file was like before the first: one that has changed is read again, from
 * what its name leads to by then. Small ones are read before they are begun, so that nothing has to be taken
 * back.
 */

#include <errno.h>

#include "base/log.h"
#include "nfs/calls.h"
#include "tree/reader_item.h"
#include "tree/segments.h"

#define WHOLE_MAX (1024U * 1024) /* bytes of a file that is read before it is begun */
#define REREADS_MAX 3 /* of a file that is written to; then it is kept as it came */
#define CUTS_MAX 8 /* of a file that is shorter each time than it was said to be */

/* Files of less than a part of HOLES_PART of what they seem to be are holes, and of those that much is read. */
#define HOLES_PART 1024
#define HOLES_MAX (UINT64_C(4) << 40)

/*
 * Holes are read as zeros, as fast as any data: a file of a petabyte would take weeks. How much room a file
 * takes does not tell that there is nothing in it, as servers count late; only that it is not all data.
 */
static int check_holes(struct reader *rd, const struct reader_item *item, struct error *err)
{
	const struct nfs_attr *attr = &item->attr;

	if (attr->used > attr->size / HOLES_PART || item->looks > 0)
		return 0;
	rd->holes = attr->size < UINT64_MAX - rd->holes ? rd->holes + attr->size : UINT64_MAX;
	if (rd->holes <= HOLES_MAX)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' seems to have %llu bytes and takes %llu on the server: files that are all holes, of more than 4 TiB together, are not copied; make it shorter or remove it",
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
			/* What was read of a file that has become shorter shall not keep all of it. */
			.block = chunk->got == chunk->want ? chunk->block : NULL,
		};
		r = tree_send(rd->sink, &piece, skip, err);
		tree_file_release(&item->file, chunk);
		if (r == 0)
			r = reader_fill(rd);
		if (r < 0)
			return r;
	}
}

/* Where the holes of a file are takes a reading of it. */
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
		tree_file_release(&f, chunk);
	} while (r == 0);
	if (r < 0)
		tree_drain_reads(rd->work, false);
	tree_file_done(&f);
	item->file.changed = f.changed;
	item->file.unsure = f.unsure;
	item->file.at_end = f.at_end;
	item->file.end = f.end;
	return r;
}

/* -------- whether it was the same all the time -------- */

static int keep(struct reader *rd, struct reader_item *item)
{
	if (item->kept)
		return 0;
	item->kept = true;
	rd->work->progress.changed++;
	log_info("A file was written to each time it was read", LOG_STR("path", rd->path.data),
		 LOG_NUM("times", item->rereads + 1));
	return 0;
}

/* A server need not tell with the data. */
static int ask(struct reader *rd, const struct reader_item *item, bool *ret_changed)
{
	struct nfs_attr attr;
	int r = nfs_stat(rd->work->from, &item->handle, &attr);

	if (r == 0)
		*ret_changed = !attr.is_full || !tree_file_is_same(&item->attr, &attr);
	return r;
}

static int is_cut(struct reader *rd, struct reader_item *item, struct error *err)
{
	item->end = item->file.end;
	if (++item->cuts <= CUTS_MAX)
		return -ERESTART;
	(void)error_set(err, ERROR_ABORTED, "'%s' becomes shorter each time it is read; try again",
			rd->path.data);
	return -ERESTART;
}

/* All of it has been read. -ERESTART: it is to be read again; with the error set, it is not. */
static int check_same(struct reader *rd, struct reader_item *item, struct error *err)
{
	bool changed = item->file.changed;
	int r = 0;

	if (item->file.at_end)
		return is_cut(rd, item, err);
	/* Its size is not the server's: what is there behind that was written meanwhile. */
	if (item->cuts > 1)
		return keep(rd, item);
	if (!changed && item->file.unsure)
		r = ask(rd, item, &changed);
	if (r < 0 || !changed)
		return r;
	if (item->rereads == REREADS_MAX)
		return keep(rd, item);
	item->rereads++;
	return -ERESTART;
}

/* -------- delivering -------- */

/* What is known before the entry is begun. */
static int prepare(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		   struct tree_segments *segments, bool *ret_whole, struct error *err)
{
	int r;

	*ret_whole = item->attr.size <= WHOLE_MAX;
	if (item->attr.size == 0)
		return 0;
	if (!item->file.started)
		reader_item_open(item);
	if (reader_maps(rd, &item->attr)) {
		*ret_whole = false;
		r = find_segments(rd, item, segments, err);
		entry->is_mapped = true;
		entry->segments = segments->items;
		entry->n_segments = segments->n;
		tree_file_restrict(&item->file, segments->items, segments->n);
	} else if (*ret_whole) {
		r = tree_file_wait(&item->file, err);
	} else {
		return tree_file_wait_first(&item->file, err);
	}
	return r == 0 ? check_same(rd, item, err) : r;
}

static int send_data(struct reader *rd, struct reader_item *item, bool is_whole, struct error *err)
{
	int r;

	if (item->attr.size == 0)
		return 0;
	r = send_chunks(rd, item, err);
	return r == 0 && !is_whole ? check_same(rd, item, err) : r;
}

static int send_whole(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		      struct error *err)
{
	const uint64_t bytes = rd->work->progress.bytes;
	struct tree_segments segments = { .n = 0 };
	bool is_whole;
	int r, dropped;

	r = prepare(rd, item, entry, &segments, &is_whole, err);
	if (r < 0)
		goto out;
	r = rd->sink->begin(rd->sink, entry, err);
	if (r < 0)
		goto out;
	r = send_data(rd, item, is_whole, err);
	if (r == 0) {
		r = rd->sink->end(rd->sink, err);
	} else if ((reader_is_gone(r) || r == -ERESTART) && err->code == ERROR_OK) {
		tree_drain_reads(rd->work, false);
		dropped = rd->sink->drop(rd->sink, err);
		r = dropped < 0 ? dropped : r;
		rd->work->progress.bytes = bytes;
	}
out:
	/* What is read ahead points to them. */
	if (segments.n > 0)
		tree_drain_reads(rd->work, false);
	tree_segments_done(&segments);
	return r;
}

int reader_send_file(struct reader *rd, struct reader_item *item, struct tree_entry *entry,
		     struct error *err)
{
	const struct tree_link_id id = tree_link_id_of(&item->handle, &item->attr);
	int r;

	if (entry->same_as != NULL) {
		r = rd->sink->begin(rd->sink, entry, err);
		if (r == 0)
			r = rd->sink->end(rd->sink, err);
	} else {
		r = check_holes(rd, item, err);
		if (r == 0)
			r = send_whole(rd, item, entry, err);
	}
	if ((reader_is_gone(r) || r == -ERESTART) && err->code == ERROR_OK) {
		if (item->attr.links > 1)
			tree_links_forget(rd->links, &id);
		return reader_look_again(rd, item, err);
	}
	if (r < 0 && err->code == ERROR_OK)
		return reader_failed(rd, r, "reading", rd->path.data, err);
	if (r == 0)
		rd->work->progress.files++;
	return r;
}
