/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_OVERHEAD 1024 /* bytes of memory for each read besides its data */

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

void tree_file_list_xattrs(struct tree_file *f,
			   void (*xattr)(struct nfs_op *op, const char *bytes, uint32_t len),
			   void (*listed)(struct tree_file *f, const struct nfs_op *op))
{
	f->xattr = xattr;
	f->listed = listed;
}

bool tree_file_is_same(const struct nfs_attr *before, const struct nfs_attr *after)
{
	if (before->size != after->size || !nfs_time_is_equal(&before->mtime, &after->mtime) ||
	    !nfs_time_is_equal(&before->ctime, &after->ctime))
		return false;
	return !before->has_change || !after->has_change || before->change == after->change ||
	       !nfs_time_is_equal(&before->atime, &after->atime);
}

void tree_file_restrict(struct tree_file *f, const struct tree_segment *segments, size_t n)
{
	static const struct tree_segment none;

	f->segments = n > 0 ? segments : &none; /* NULL stands for everything */
	f->n_segments = n;
}

/* Find the next range to read, at or after f->next. Returns false if there is none. */
static bool file_next_range(struct tree_file *f, size_t *ret)
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

/* Take a check from those that wait to be sent. */
static void forget_check(struct tree_work *work, const struct tree_chunk *chunk)
{
	size_t i, n = 0;

	for (i = 0; i < work->n_checks; i++)
		if (work->checks[i] != chunk)
			work->checks[n++] = work->checks[i];
	work->n_checks = n;
}

void tree_file_release(struct tree_chunk *chunk)
{
	if (chunk->waits)
		forget_check(chunk->file->work, chunk);
	tree_purse_give(&chunk->file->work->ahead, chunk->want + READ_OVERHEAD);
	list_remove(&chunk->link);
	if (chunk->block != NULL)
		tree_block_drop(chunk->block);
	free(chunk);
}

static bool is_check(const struct tree_chunk *chunk)
{
	return chunk->block == NULL;
}

static void prepare_read(struct tree_chunk *chunk)
{
	chunk->op.offset = chunk->offset + chunk->got;
	chunk->op.count = (uint32_t)(chunk->want - chunk->got);
	chunk->op.buffer = chunk->block->data + chunk->got;
	chunk->op.full = chunk->file->before != NULL;
	chunk->op.xattr = chunk->lists ? chunk->file->xattr : NULL;
	chunk->op.listed = false;
}

static int chunk_start(struct tree_chunk *chunk)
{
	struct tree_work *work = chunk->file->work;
	int r;

	if (!is_check(chunk))
		prepare_read(chunk);
	chunk->op.attr = (struct nfs_attr){ .type = NFS_TYPE_UNKNOWN };
	r = nfs_client_start(work->from, &chunk->op);
	if (r == 0)
		work->reading++;
	return r;
}

/* *ret_more: the reply is short, but not at the end of the file. -EIO: such a reply has no data. */
static int chunk_take_data(struct tree_chunk *chunk, bool *ret_more)
{
	const struct nfs_op *op = &chunk->op;
	struct tree_file *f = chunk->file;
	const uint64_t end = chunk->offset + chunk->got + op->count;

	/* Servers need not return attributes with the data. */
	if (f->before != NULL && op->attr.is_full && !tree_file_is_same(f->before, &op->attr))
		f->changed = true;
	chunk->got += op->count;
	if (op->eof && chunk->got < chunk->want) {
		f->end = f->at_end && f->end < end ? f->end : end;
		f->at_end = true;
	}
	*ret_more = !op->eof && chunk->got < chunk->want;
	return *ret_more && op->count == 0 ? -EIO : 0;
}

/* The READ that lists extended attributes is over. It does not list again. */
static void chunk_end_list(struct tree_chunk *chunk)
{
	chunk->lists = false;
	chunk->file->listed(chunk->file, &chunk->op);
}

static void check_take_attributes(struct tree_chunk *chunk, const struct nfs_attr *attr)
{
	struct tree_file *f = chunk->file;

	if (!attr->is_full || !tree_file_is_same(f->before, attr))
		f->changed = true;
}

static int file_add_check(struct tree_file *f);

static void file_chunk_replied(struct nfs_op *op)
{
	struct tree_chunk *chunk = container_of(op, struct tree_chunk, op);
	struct tree_work *work = chunk->file->work;
	int r = op->error;
	bool more = false, alone = false;

	tree_op_returned(work, &work->reading, op);
	if (r == 0 && is_check(chunk))
		check_take_attributes(chunk, &op->attr);
	else if (r == 0)
		r = chunk_take_data(chunk, &more);
	/* The listing may be what the server refuses: read alone. */
	if (chunk->lists) {
		alone = r < 0 && !work->from->broken;
		chunk_end_list(chunk);
	}
	if ((r == 0 && more) || tree_should_retry(work, r) || alone) {
		r = chunk_start(chunk);
		if (r == 0)
			return;
	}
	chunk->finished = true;
	if (r == 0 && !is_check(chunk))
		r = file_add_check(chunk->file);
	chunk->error = r;
}

/* The caller has taken the chunk's memory from the purse. */
static void file_add_chunk(struct tree_file *f, struct tree_chunk *chunk, enum nfs_op_type type)
{
	chunk->file = f;
	chunk->op.type = type;
	chunk->op.dir = f->handle;
	chunk->op.done = file_chunk_replied;
	list_add_tail(&f->chunks, &chunk->link);
}

/* -------- checks -------- */

/* A batch of checks: one GETATTR for several files. */
struct check_call {
	struct nfs_op op;
	struct tree_work *work;
	struct tree_chunk *chunks[NFS_GETATTR_MAX];
	const struct nfs_handle *handles[NFS_GETATTR_MAX];
	struct nfs_attr attrs[NFS_GETATTR_MAX];
};

/* Check one file alone. */
static void chunk_check_start(struct tree_chunk *chunk)
{
	const int r = chunk_start(chunk);

	if (r < 0) {
		chunk->finished = true;
		chunk->error = r;
	}
}

static void checks_replied(struct nfs_op *op)
{
	struct check_call *call = container_of(op, struct check_call, op);
	size_t i;

	tree_op_returned(call->work, &call->work->reading, op);
	for (i = 0; i < op->n_handles; i++) {
		if (i < op->count) {
			check_take_attributes(call->chunks[i], &call->attrs[i]);
			call->chunks[i]->finished = true;
		} else {
			/* The first one has failed, and the others were not tried. */
			chunk_check_start(call->chunks[i]);
		}
	}
	free(call);
}

/* Returns 0 or a negative errno. */
static int send_check_call(struct tree_work *work, struct tree_chunk *const chunks[], size_t n)
{
	struct check_call *call = calloc(1, sizeof(*call));
	size_t i;
	int r;

	if (call == NULL)
		return -ENOMEM;
	call->work = work;
	for (i = 0; i < n; i++) {
		call->chunks[i] = chunks[i];
		call->handles[i] = chunks[i]->op.dir;
	}
	call->op = (struct nfs_op){
		.type = NFS_OP_GETATTR,
		.full = true,
		.handles = call->handles,
		.n_handles = n,
		.attrs = call->attrs,
		.done = checks_replied,
	};
	r = nfs_client_start(work->from, &call->op);
	if (r == 0)
		work->reading++;
	else
		free(call);
	return r;
}

/* Send the checks that wait. */
static void send_checks(struct tree_work *work)
{
	const size_t n = work->n_checks;
	size_t i;

	work->n_checks = 0;
	for (i = 0; i < n; i++)
		work->checks[i]->waits = false;
	if (n > 1 && send_check_call(work, work->checks, n) == 0)
		return;
	for (i = 0; i < n; i++)
		chunk_check_start(work->checks[i]);
}

/* Send the check of a file that the caller is going to wait for. */
static void file_send_check(const struct tree_file *f)
{
	if (!list_is_empty(&f->chunks) &&
	    container_of(f->chunks.prev, struct tree_chunk, link)->waits)
		send_checks(f->work);
}

/*
 * Once all data has arrived, ask for the attributes again. Those that came with the data do not
 * tell all: Linux's server sends pages of its cache, and a page may still change while it waits to
 * be sent, after the attributes were taken. A truncation, for example, clears the rest of a page.
 *
 * Nobody needs the result of a file that was read ahead yet, so its check waits until one call can
 * be made of several, or until somebody waits for the file.
 */
static int file_add_check(struct tree_file *f)
{
	struct tree_work *work = f->work;
	struct tree_chunk *chunk;
	size_t want;

	if (f->before == NULL || f->changed || f->at_end || file_next_range(f, &want) ||
	    tree_file_is_busy(f))
		return 0;
	chunk = calloc(1, sizeof(*chunk));
	if (chunk == NULL)
		return -ENOMEM;
	tree_purse_force(&work->ahead, READ_OVERHEAD);
	chunk->op.full = true;
	chunk->waits = true;
	file_add_chunk(f, chunk, NFS_OP_GETATTR);
	work->checks[work->n_checks++] = chunk;
	if (work->n_checks == nfs_getattr_max(work->from))
		send_checks(work);
	return 0;
}

/* Read want bytes at f->next. The caller has taken their memory from the purse. */
static int file_start_read(struct tree_file *f, size_t want)
{
	struct tree_chunk *chunk = calloc(1, sizeof(*chunk));
	struct tree_block *block = tree_block_new(want);
	int r;

	if (chunk == NULL || block == NULL) {
		tree_purse_give(&f->work->ahead, want + READ_OVERHEAD);
		free(chunk);
		free(block);
		return -ENOMEM;
	}
	chunk->block = block;
	chunk->lists = f->xattr != NULL && f->next == 0;
	chunk->offset = f->next;
	chunk->want = want;
	f->next += want;
	file_add_chunk(f, chunk, NFS_OP_READ);
	r = chunk_start(chunk);
	if (r < 0)
		tree_file_release(chunk);
	return r;
}

int tree_file_fill(struct tree_file *f, bool must)
{
	struct tree_work *work = f->work;
	size_t want;

	f->started = true;
	while (file_next_range(f, &want)) {
		int r;

		if (must)
			tree_purse_force(&work->ahead, want + READ_OVERHEAD);
		else if (work->reading >= nfs_window(work->from) ||
			 !tree_purse_take(&work->ahead, want + READ_OVERHEAD))
			return 0;
		r = file_start_read(f, want);
		if (r < 0)
			return r;
		must = false;
	}
	return 0;
}

static struct tree_chunk *file_first_chunk(const struct tree_file *f)
{
	return container_of(f->chunks.next, struct tree_chunk, link);
}

int tree_file_wait_first(struct tree_file *f, struct error *err)
{
	int r = tree_file_fill(f, list_is_empty(&f->chunks));

	while (r == 0 && !list_is_empty(&f->chunks) && !file_first_chunk(f)->finished) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, false);
	}
	return r == 0 && !list_is_empty(&f->chunks) ? file_first_chunk(f)->error : r;
}

int tree_file_next(struct tree_file *f, struct tree_chunk **ret, struct error *err)
{
	struct tree_chunk *chunk;
	int r;

	*ret = NULL;
	r = tree_file_fill(f, list_is_empty(&f->chunks));
	if (r < 0 || list_is_empty(&f->chunks))
		return r;
	chunk = file_first_chunk(f);
	for (file_send_check(f); !chunk->finished; file_send_check(f)) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, false);
		if (r < 0 && !chunk->finished)
			return r;
	}
	r = chunk->error;
	if (is_check(chunk))
		tree_file_release(chunk);
	else
		*ret = chunk;
	return r;
}

int tree_file_wait(struct tree_file *f, struct error *err)
{
	const struct list *pos;
	size_t want;
	int r = tree_file_fill(f, !tree_file_is_busy(f));

	for (file_send_check(f); r == 0 && tree_file_is_busy(f); file_send_check(f)) {
		r = tree_pump(f->work, err);
		if (r == 0)
			r = tree_file_fill(f, file_next_range(f, &want) && !tree_file_is_busy(f));
	}
	for (pos = f->chunks.next; r == 0 && pos != &f->chunks; pos = pos->next)
		r = container_of(pos, struct tree_chunk, link)->error;
	return r;
}

bool tree_file_is_busy(const struct tree_file *f)
{
	const struct list *pos;

	list_for_each(pos, &f->chunks) {
		const struct tree_chunk *chunk = container_of(pos, struct tree_chunk, link);

		if (!chunk->finished && !chunk->waits)
			return true;
	}
	return false;
}

void tree_file_done(struct tree_file *f)
{
	while (!list_is_empty(&f->chunks))
		tree_file_release(file_first_chunk(f));
}
