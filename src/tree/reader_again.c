/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * What was found in a tree may not be there any more, and a server may say so of what is: while an export
 * is reloaded, or moves to another machine, every handle is stale for a while. So a name is gone only where
 * the server says that it is not in its directory, and the directory itself is known to be alive: by its
 * handle, or found again by name from one above it that is, and the same by its number.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/reader_item.h"

#define LOOKS_MAX 16 /* at a name that leads to something else each time */
#define TIMES_MAX 16 /* that a directory begins again */
#define STALE_MS 5000 /* for which handles that are stale may become good again */
#define REPLACED 2 /* there is another item in the place of this one */
#define PAUSE_FIRST_MS 10
#define PAUSE_LAST_MS 100

int reader_failed(struct reader *rd, int r, const char *verb, const char *path, struct error *err)
{
	(void)nfs_error_set(err, rd->work->from, r, "%s '%s'", verb, path != NULL ? path : "");
	/* Not the tree, but something in it, which the next attempt may not meet. */
	if (err != NULL && err->code == ERROR_NOT_FOUND)
		err->code = ERROR_ABORTED;
	return r;
}

static int changes_too_often(struct reader *rd, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"'%s' is replaced or changed each time before it has been read; try again when less is written to the volume",
			rd->path.data != NULL ? rd->path.data : "");
	return -ERESTART;
}

/* -------- whether a directory is alive -------- */

static int stat_folder(struct reader *rd, const struct reader_folder *folder)
{
	struct nfs_attr attr;
	int r = nfs_stat(rd->work->from, &folder->handle, &attr);

	return r == 0 && attr.type != NFS_TYPE_DIRECTORY ? -ESTALE : r;
}

static int look_up(struct reader *rd, const struct nfs_handle *dir, const char *name,
		   struct nfs_handle *ret, struct nfs_attr *ret_attr)
{
	struct nfs_op op = { .type = NFS_OP_LOOKUP, .dir = dir, .name = name, .full = true };
	int r = nfs_client_call(rd->work->from, &op);

	if (r == 0 && !op.attr.is_full)
		r = nfs_stat(rd->work->from, &op.handle, &op.attr);
	if (r == 0 && !op.attr.is_full)
		r = -EREMOTEIO;
	if (r < 0)
		return r;
	*ret = op.handle;
	*ret_attr = op.attr;
	return 0;
}

/* The name of a folder that the sink is in, or one above it. The caller frees; NULL: no memory. */
static char *name_of(const struct reader *rd, const struct reader_folder *folder)
{
	size_t from = folder->parent->path_len + (folder->parent->path_len > 0);

	return strndup(rd->path.data + from, folder->path_len - from);
}

/*
 * From a folder that is alive to the one in it on the way to the other, or to what has taken its
 * place. -ENOENT: there is no directory.
 */
static int step_down(struct reader *rd, const struct reader_folder *from, struct reader_folder *to)
{
	cleanup_free char *name = name_of(rd, to);
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (name == NULL)
		return -ENOMEM;
	r = look_up(rd, &from->handle, name, &handle, &attr);
	if (r == 0 && (attr.type != NFS_TYPE_DIRECTORY || !nfs_fsid_is_equal(&attr, rd->root)))
		return -ENOENT;
	if (r == 0) {
		to->replaced = to->replaced || attr.fileid != to->fileid;
		to->handle = handle;
		to->fileid = attr.fileid;
	}
	if (r != -ENOENT)
		return r;
	r = stat_folder(rd, from);
	return r == 0 ? -ENOENT : r;
}

/* One that is above the other, and the next below that on the way. */
static struct reader_folder *below(const struct reader_folder *above, struct reader_folder *folder)
{
	while (folder->parent != above)
		folder = folder->parent;
	return folder;
}

/* Finds a folder by name again. -ENOENT: it has gone; -ESTALE: there is no telling. */
static int walk_to(struct reader *rd, struct reader_folder *folder)
{
	const struct reader_folder *alive = folder->parent;
	int r = -ESTALE;

	while (alive != NULL) {
		r = stat_folder(rd, alive);
		if (!reader_is_gone(r))
			break;
		alive = alive->parent;
	}
	if (alive == NULL)
		return -ESTALE;
	while (r == 0 && alive != folder) {
		struct reader_folder *next = below(alive, folder);

		r = step_down(rd, alive, next);
		alive = next;
	}
	return r;
}

/*
 * Returns 0: its handle leads to it; 1: it does again, or the handle is another by now, that of another
 * directory perhaps (replaced); -ENOENT: it has gone; or another negative errno, with the error set.
 */
static int prove(struct reader *rd, struct reader_folder *folder, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + STALE_MS * CLOCK_NS_PER_MS;
	unsigned int pause_ms = PAUSE_FIRST_MS;
	int r = stat_folder(rd, folder);

	if (r == 0)
		return 0;
	while (reader_is_gone(r)) {
		r = walk_to(rd, folder);
		if (r == 0)
			return 1;
		if (r == -ENOENT)
			return r;
		if (r != -ESTALE || clock_left_ms(deadline) <= 0)
			break;
		if (tree_check_cancel(rd->work, err) < 0)
			return -ECANCELED;
		clock_sleep_ms(pause_ms);
		pause_ms = pause_ms < PAUSE_LAST_MS / 2 ? pause_ms * 2 : PAUSE_LAST_MS;
		r = stat_folder(rd, folder);
		if (r == 0)
			return 1;
	}
	return reader_failed(rd, r, "looking for what is above", rd->path.data, err);
}

/*
 * What the name leads to. -ENOENT: nothing, in a directory that is alive, or none is there any more; or another
 * negative errno, with the error set.
 */
static int find(struct reader *rd, struct reader_folder *folder, const char *name,
		struct nfs_handle *ret, struct nfs_attr *ret_attr, struct error *err)
{
	unsigned int looks;

	for (looks = 0; looks < LOOKS_MAX; looks++) {
		int r = look_up(rd, &folder->handle, name, ret, ret_attr), alive;

		if (r == 0)
			return 0;
		if (!reader_is_gone(r))
			return reader_failed(rd, r, "looking for", rd->path.data, err);
		alive = prove(rd, folder, err);
		if (alive < 0 || (alive == 0 && r == -ENOENT))
			return alive < 0 ? alive : r;
	}
	return changes_too_often(rd, err);
}

/* -------- entries -------- */

static void reset(struct reader_item *item)
{
	tree_file_done(&item->file);
	item->file = (struct tree_file){ .work = item->reader->work };
	list_init(&item->file.chunks);
	free(item->text);
	item->text = NULL;
	item->error = 0;
}

/* A server that goes on telling a size that the file has not: it was read up to its end. */
static void limit_size(struct reader_item *item)
{
	if (item->cuts > 1 && item->attr.type == NFS_TYPE_FILE && item->attr.size > item->end)
		item->attr.size = item->end;
}

/* The root has no name here: it is the same, or this attempt has ended. */
static int look_at_root(struct reader *rd, struct reader_item *item, struct error *err)
{
	int r = nfs_stat(rd->work->from, &item->handle, &item->attr);

	return r < 0 ? reader_failed(rd, r, "reading", "", err) : 0;
}

int reader_look_again(struct reader *rd, struct reader_item *item, struct error *err)
{
	int r;

	tree_drain_reads(rd->work, false); /* further data may have been asked for */
	if (rd->options->count) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (++item->looks > LOOKS_MAX)
		return changes_too_often(rd, err);
	reset(item);
	r = item->folder == NULL
		    ? look_at_root(rd, item, err)
		    : find(rd, item->folder, item->name, &item->handle, &item->attr, err);
	if (r == -ENOENT && err->code == ERROR_OK) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (r < 0)
		return r;
	limit_size(item);
	if (reader_item_settle(rd, item) < 0)
		return error_oom(err);
	reader_rewind(rd);
	return 1;
}

/* -------- directories -------- */

/* From its first page on, without what has been given: its place in it is lost, or it is another one. */
static int begin_again(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;

	if (folder->forgets) {
		(void)error_set(err, ERROR_ABORTED,
				"directory '%s' has changed while it was listed, and has too many entries to begin it again; try again",
				rd->path.data != NULL ? rd->path.data : "");
		return -ERESTART;
	}
	if (++folder->times > TIMES_MAX)
		return changes_too_often(rd, err);
	folder->cookie = 0;
	memset(folder->verifier, 0, sizeof(folder->verifier));
	folder->eof = false;
	clock_sleep_ms(PAUSE_FIRST_MS * folder->times);
	return 1;
}

/* Nothing has been begun in it: it is as if it had not been. What is there now comes in its place. */
static int replace(struct reader *rd, struct reader_item *rest, const char *name,
		   const struct nfs_handle *handle, const struct nfs_attr *attr, struct error *err)
{
	struct reader_folder *parent = rest->folder->parent;
	struct reader_item *item;
	int r = rd->sink->drop(rd->sink, err);

	if (r < 0)
		return r;
	item = reader_item_new(rd, ITEM_ENTRY, parent, name);
	if (item == NULL)
		return error_oom(err);
	rd->work->progress.directories--;
	rd->folder = parent;
	item->handle = *handle;
	item->attr = *attr;
	list_add_tail(&rest->link, &item->link);
	reader_item_free(rest);
	reader_rewind(rd);
	return reader_item_settle(rd, item) < 0 ? error_oom(err) : REPLACED;
}

static bool is_untouched(const struct reader_folder *folder)
{
	return folder->cookie == 0 && folder->names.n == 0 && !folder->forgets;
}

/* It is not what its name leads to any more. */
static int list_successor(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;
	cleanup_free char *name = name_of(rd, folder);
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (name == NULL)
		return error_oom(err);
	r = find(rd, folder->parent, name, &handle, &attr, err);
	if (r == -ENOENT && err->code == ERROR_OK) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (r < 0)
		return r;
	folder->replaced = false;
	if (is_untouched(folder))
		return replace(rd, rest, name, &handle, &attr, err);
	if (attr.type != NFS_TYPE_DIRECTORY || !nfs_fsid_is_equal(&attr, rd->root)) {
		rd->work->progress.vanished++;
		return 0;
	}
	folder->handle = handle;
	folder->fileid = attr.fileid;
	return begin_again(rd, rest, err);
}

static int list_on(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;
	int r = rest->error;

	if (r == -ERESTART)
		return begin_again(rd, rest, err);
	if (r == 0 && folder->replaced)
		return list_successor(rd, rest, err);
	if (++rest->looks > LOOKS_MAX)
		return changes_too_often(rd, err);
	r = prove(rd, folder, err);
	if (r >= 0)
		return folder->replaced ? list_successor(rd, rest, err) : 1;
	/* Of the root there is no name, and no proof. */
	return r == -ENOENT && err->code == ERROR_OK ? list_successor(rd, rest, err) : r;
}

int reader_list_again(struct reader *rd, struct reader_item *rest, struct error *err)
{
	int r;

	tree_drain_reads(rd->work, false);
	if (rd->options->count) {
		rd->work->progress.vanished++;
		return 0;
	}
	r = list_on(rd, rest, err);
	if (r != 1)
		return r == REPLACED ? 1 : r;
	rest->error = 0;
	rest->state = ITEM_WAITING;
	reader_rewind(rd);
	return 1;
}
