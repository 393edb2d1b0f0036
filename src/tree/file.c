/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_BESIDE 1024 /* that a read takes besides its data: files of a few bytes are many */

void tree_file_init(struct tree_file *f, struct tree_work *work, const struct nfs_handle *handle,
		    uint64_t size)
{
	*f = (struct tree_file){ .work = work, .handle = handle, .size = size };
	list_init(&f->chunks);
}

void tree_file_watch(struct tree_file *f, const struct nfs_attr *before)
{
	f->before = before;
}

static bool is_same_time(const struct nfs_time *a, const struct nfs_time *b)
{
	return a->sec == b->sec && a->nsec == b->nsec;
}

bool tree_file_is_same(const struct nfs_attr *before, const struct nfs_attr *after)
{
	if (before->size != after->size || !is_same_time(&before->mtime, &after->mtime) ||
	    !is_same_time(&before->ctime, &after->ctime))
		return false;
	return !before->has_change || !after->has_change || before->change == after->change ||
	       !is_same_time(&before->atime, &after->atime);
}

/* What came with every piece is compared: whatever the order in which the server has read them. */
static void compare(struct tree_file *f, const struct nfs_attr *after)
{
	if (f->before == NULL)
		return;
	if (!after->is_full)
		f->unsure = true;
	else if (!tree_file_is_same(f->before, after))
		f->changed = true;
}

void tree_file_restrict(struct tree_file *f, const struct tree_segment *segments, size_t n)
{
	static const struct tree_segment none;

	f->segments = n > 0 ? segments : &none; /* NULL stands for everything */
	f->n_segments = n;
}

/* The next part that is to be read, from f->next on; false: there is none. */
static bool next_part(struct tree_file *f, size_t *ret)
{
	uint64_t end = f->size;

	if (f->segments != NULL) {
		while (f->segment < f->n_segments &&
		       f->next >= f->segments[f->segment].offset + f->segments[f->segment].len)
			f->segment++;
		if (f->segment == f->n_segments)
			return false;
		if (f->next < f->segments[f->segment].offset)
			f->next = f->segments[f->segment].offset;
		end = f->segments[f->segment].offset + f->segments[f->segment].len;
	}
	if (f->at_end || f->next >= end)
		return false;
	*ret = nfs_read_max(f->work->from);
	if (end - f->next < *ret)
		*ret = (size_t)(end - f->next);
	return true;
}

static void chunk_free(struct tree_chunk *chunk)
{
	chunk->file->work->fetched -= chunk->want + BYTES_BESIDE;
	list_remove(&chunk->link);
	tree_block_drop(chunk->block);
	free(chunk);
}

static int start(struct tree_chunk *chunk)
{
	struct tree_work *work = chunk->file->work;
	int r;

	chunk->op.offset = chunk->offset + chunk->got;
	chunk->op.count = (uint32_t)(chunk->want - chunk->got);
	chunk->op.buffer = chunk->block->data + chunk->got;
	chunk->op.full = chunk->file->before != NULL;
	chunk->op.attr = (struct nfs_attr){ .type = NFS_TYPE_UNKNOWN };
	r = nfs_client_start(work->from, &chunk->op);
	if (r == 0)
		work->reading++;
	return r;
}

/* Servers may give less than they are asked for, but not nothing. */
static int take(struct tree_chunk *chunk, bool *ret_again)
{
	const struct nfs_op *op = &chunk->op;

	struct tree_file *f = chunk->file;
	const uint64_t end = chunk->offset + chunk->got + op->count;

	compare(f, &op->attr);
	chunk->got += op->count;
	if (op->eof && chunk->got < chunk->want) {
		f->end = f->at_end && f->end < end ? f->end : end;
		f->at_end = true;
	}
	*ret_again = !op->eof && chunk->got < chunk->want;
	return *ret_again && op->count == 0 ? -EIO : 0;
}

static void replied(struct nfs_op *op)
{
	struct tree_chunk *chunk = container_of(op, struct tree_chunk, op);
	struct tree_work *work = chunk->file->work;
	int r = op->error;
	bool again;

	tree_op_returned(work, &work->reading, op);
	if (r == 0)
		r = take(chunk, &again);
	else
		again = tree_is_to_be_retried(work, r);
	if (again && r != -EIO)
		r = start(chunk);
	if (again && r == 0)
		return;
	chunk->error = r;
	chunk->finished = true;
}

int tree_file_fill(struct tree_file *f, bool must)
{
	struct tree_work *work = f->work;
	size_t want;

	f->started = true;
	while (next_part(f, &want)) {
		struct tree_chunk *chunk;
		int r;

		if (!must && (work->reading >= nfs_window(work->from) ||
			      work->fetched + want + BYTES_BESIDE > TREE_FETCHED_MAX))
			return 0;
		chunk = calloc(1, sizeof(*chunk));
		if (chunk == NULL)
			return -ENOMEM;
		chunk->block = tree_block_new(want);
		if (chunk->block == NULL) {
			free(chunk);
			return -ENOMEM;
		}
		chunk->file = f;
		chunk->offset = f->next;
		chunk->want = want;
		chunk->op.type = NFS_OP_READ;
		chunk->op.dir = f->handle;
		chunk->op.done = replied;
		list_add_tail(&f->chunks, &chunk->link);
		work->fetched += want + BYTES_BESIDE;
		f->next += want;
		r = start(chunk);
		if (r < 0) {
			chunk_free(chunk);
			return r;
		}
		must = false;
	}
	return 0;
}

static struct tree_chunk *first_of(const struct tree_file *f)
{
	return container_of(f->chunks.next, struct tree_chunk, link);
}

int tree_file_wait_first(struct tree_file *f, struct error *err)
{
	int r = tree_file_fill(f, list_is_empty(&f->chunks));

	while (r == 0 && !list_is_empty(&f->chunks) && !first_of(f)->finished) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, false);
	}
	return r == 0 && !list_is_empty(&f->chunks) ? first_of(f)->error : r;
}

int tree_file_next(struct tree_file *f, struct tree_chunk **ret, struct error *err)
{
	struct tree_chunk *chunk;
	int r;

	*ret = NULL;
	r = tree_file_fill(f, list_is_empty(&f->chunks));
	if (r < 0 || list_is_empty(&f->chunks))
		return r;
	chunk = first_of(f);
	while (!chunk->finished) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, false);
		if (r < 0 && !chunk->finished)
			return r;
	}
	*ret = chunk;
	return chunk->error;
}

int tree_file_wait(struct tree_file *f, struct error *err)
{
	const struct list *pos;
	size_t want;
	int r = tree_file_fill(f, !tree_file_is_busy(f));

	while (r == 0 && tree_file_is_busy(f)) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, next_part(f, &want) && !tree_file_is_busy(f));
	}
	for (pos = f->chunks.next; r == 0 && pos != &f->chunks; pos = pos->next)
		r = container_of(pos, struct tree_chunk, link)->error;
	return r;
}

void tree_file_release(struct tree_file *f, struct tree_chunk *chunk)
{
	(void)f;
	chunk_free(chunk);
}

bool tree_file_is_busy(const struct tree_file *f)
{
	const struct list *pos;

	for (pos = f->chunks.next; pos != &f->chunks; pos = pos->next)
		if (!container_of(pos, struct tree_chunk, link)->finished)
			return true;
	return false;
}

void tree_file_done(struct tree_file *f)
{
	while (!list_is_empty(&f->chunks))
		chunk_free(container_of(f->chunks.next, struct tree_chunk, link));
}
