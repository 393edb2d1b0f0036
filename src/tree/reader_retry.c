/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Entries may vanish while the tree is read, and a server may call them stale although they are
 * there: all handles are stale for a while when an export is reloaded or moves to another machine.
 * An entry counts as gone only if the server does not find its name in its directory, and the
 * directory is proved to be alive: by its handle, or by a walk from a directory above it that is
 * alive, to the same fileid.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "tree/reader_item.h"

#define LOOKS_MAX 16 /* lookups of a name that leads to something else each time */
#define RESTARTS_MAX 16 /* of the listing of a directory */
#define STALE_MS 5000 /* how long to wait until stale handles work again */
#define REPLACED 2 /* the item was replaced by another one */
#define PAUSE_FIRST_MS 10
#define PAUSE_LAST_MS 100

int reader_fail(struct reader *rd, int r, const char *verb, const char *path, struct error *err)
{
	(void)nfs_error_set(err, rd->work->from, r, "%s '%s'", verb, path != NULL ? path : "");
	/* NOT_FOUND would mean the tree itself. An entry may be there at the next attempt. */
	if (err != NULL && err->code == ERROR_NOT_FOUND)
		err->code = ERROR_ABORTED;
	return r;
}

static int fail_changes_too_often(struct reader *rd, struct error *err)
{
	(void)error_set(err, ERROR_ABORTED,
			"'%s' is replaced or changed faster than it can be read; try again when less is written to the volume",
			buf_text(&rd->path));
	return -ERESTART;
}

/* -------- proving that a directory is alive -------- */

static int stat_folder(struct reader *rd, const struct reader_folder *folder)
{
	struct nfs_attr attr;
	int r = nfs_stat(rd->work->from, &folder->handle, &attr);

	return r == 0 && attr.type != NFS_TYPE_DIRECTORY ? -ESTALE : r;
}

/* fileid: see nfs_op. */
static int lookup_full(struct reader *rd, const struct nfs_handle *dir, const char *name,
		       uint64_t fileid, struct nfs_handle *ret, struct nfs_attr *ret_attr)
{
	struct nfs_op op = {
		.type = NFS_OP_LOOKUP, .dir = dir, .name = name, .full = true, .fileid = fileid
	};
	int r = nfs_client_call(rd->work->from, &op);

	if (r == 0)
		r = nfs_complete_attr(rd->work->from, &op.handle, &op.attr);
	if (r == 0 && !op.attr.is_full)
		r = -EREMOTEIO;
	if (r < 0)
		return r;
	*ret = op.handle;
	*ret_attr = op.attr;
	return 0;
}

/* Return the name of rd->folder or of one above it. The caller frees; NULL: no memory. */
static char *folder_name(const struct reader *rd, const struct reader_folder *folder)
{
	size_t from = folder->parent->path_len + (folder->parent->path_len > 0);

	return strndup(rd->path.data + from, folder->path_len - from);
}

/*
 * Look up the name of a folder in its parent, which is alive, and use the directory found as the
 * folder. -ENOENT: the name leads to no directory.
 */
static int renew_folder(struct reader *rd, struct reader_folder *folder)
{
	cleanup_free char *name = folder_name(rd, folder);
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (name == NULL)
		return -ENOMEM;
	r = lookup_full(rd, &folder->parent->handle, name, folder->fileid, &handle, &attr);
	if (r == -ENOENT) {
		r = stat_folder(rd, folder->parent);
		return r == 0 ? -ENOENT : r;
	}
	if (r < 0)
		return r;
	if (attr.type != NFS_TYPE_DIRECTORY || !nfs_is_inside(&attr, rd->root))
		return -ENOENT;
	folder->replaced = folder->replaced || attr.fileid != folder->fileid;
	folder->handle = handle;
	folder->fileid = attr.fileid;
	return 0;
}

/* Walk to a folder from the nearest one above that is alive. -ENOENT: gone; -ESTALE: unknown. */
static int walk_to_folder(struct reader *rd, struct reader_folder *folder)
{
	struct reader_folder *alive = folder->parent, *next;
	int r = -ESTALE;

	for (; alive != NULL; alive = alive->parent) {
		r = stat_folder(rd, alive);
		if (!reader_is_gone(r))
			break;
	}
	if (alive == NULL)
		return -ESTALE;
	for (; r == 0 && alive != folder; alive = next) {
		for (next = folder; next->parent != alive; next = next->parent)
			;
		r = renew_folder(rd, next);
	}
	return r;
}

/*
 * Returns 0 if the folder's handle works; 1 if it works again or was renewed, perhaps for another
 * directory (replaced); -ENOENT if it is gone; or another negative errno with the error set.
 */
static int prove_folder(struct reader *rd, struct reader_folder *folder, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + STALE_MS * CLOCK_NS_PER_MS;
	unsigned int pause_ms = PAUSE_FIRST_MS;
	int r = stat_folder(rd, folder);

	if (r == 0)
		return 0;
	while (reader_is_gone(r)) {
		r = walk_to_folder(rd, folder);
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
	return reader_fail(rd, r, "looking for the directories above", rd->path.data, err);
}

/*
 * Look up a name in a folder. -ENOENT: it leads nowhere and the folder is alive, or the folder is
 * gone; or another negative errno with the error set.
 */
static int find_name(struct reader *rd, struct reader_folder *folder, const char *name,
		     uint64_t fileid, struct nfs_handle *ret, struct nfs_attr *ret_attr,
		     struct error *err)
{
	unsigned int looks;

	for (looks = 0; looks < LOOKS_MAX; looks++) {
		int r = lookup_full(rd, &folder->handle, name, fileid, ret, ret_attr), alive;

		if (r == 0)
			return 0;
		if (!reader_is_gone(r))
			return reader_fail(rd, r, "looking for", rd->path.data, err);
		alive = prove_folder(rd, folder, err);
		if (alive < 0 || (alive == 0 && r == -ENOENT))
			return alive < 0 ? alive : r;
	}
	return fail_changes_too_often(rd, err);
}

/* -------- entries -------- */

/*
 * Stop at the end that was read if the server keeps reporting a larger size, or a writer keeps
 * truncating the file and filling it again.
 */
static void retry_limit_size(struct reader_item *item)
{
	item->is_limited = item->cuts > READER_REREADS_MAX && item->attr.type == NFS_TYPE_FILE &&
			   item->attr.size > item->end;
	if (item->is_limited)
		item->attr.size = item->end;
}

int reader_retry_entry(struct reader *rd, struct reader_item *item, struct error *err)
{
	const struct nfs_handle before = item->handle;
	int r;

	tree_drain_reads(rd->work, false); /* reads of the rest of the file */
	if (rd->options->count) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (++item->looks > LOOKS_MAX)
		return fail_changes_too_often(rd, err);
	tree_file_done(&item->file);
	tree_file_init(&item->file, rd->work, NULL, 0);
	free(item->text);
	item->text = NULL;
	reader_item_forget_xattrs(item);
	item->error = 0;
	if (item->folder != NULL) {
		r = find_name(rd, item->folder, item->name, item->attr.fileid, &item->handle,
			      &item->attr, err);
	} else {
		/* The root has no name to look up. */
		r = nfs_stat(rd->work->from, &item->handle, &item->attr);
		if (r < 0)
			return reader_fail(rd, r, "reading", "", err);
	}
	if (r == -ENOENT && err->code == ERROR_OK) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (r < 0)
		return r;
	/* The length of one file says nothing about another one that has its name now. */
	if (!nfs_handle_is_equal(&before, &item->handle))
		item->cuts = 0;
	retry_limit_size(item);
	if (reader_item_settle(rd, item) < 0)
		return error_oom(err);
	reader_rewind(rd);
	return 1;
}

/* -------- directories -------- */

/* List from the first page again, skipping names that came before. */
static int restart_listing(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;

	if (folder->forgets) {
		(void)error_set(err, ERROR_ABORTED,
				"directory '%s' has changed while it was listed, and has too many entries to list it again; try again",
				buf_text(&rd->path));
		return -ERESTART;
	}
	if (++folder->restarts > RESTARTS_MAX)
		return fail_changes_too_often(rd, err);
	folder->cookie = 0;
	folder->cookies = (struct nfs_cookies){ .pages = 0 };
	memset(folder->verifier, 0, sizeof(folder->verifier));
	folder->eof = false;
	clock_sleep_ms(PAUSE_FIRST_MS * folder->restarts);
	return 1;
}

/* Drop a folder of which nothing was delivered, and queue the entry that has its name now. */
static int replace_folder(struct reader *rd, struct reader_item *rest, const char *name,
			  const struct nfs_handle *handle, const struct nfs_attr *attr,
			  struct error *err)
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

/* Continue with the entry that the folder's name leads to now. */
static int list_successor(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;
	cleanup_free char *name = folder_name(rd, folder);
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	if (name == NULL)
		return error_oom(err);
	r = find_name(rd, folder->parent, name, folder->fileid, &handle, &attr, err);
	if (r == -ENOENT && err->code == ERROR_OK) {
		rd->work->progress.vanished++;
		return 0;
	}
	if (r < 0)
		return r;
	folder->replaced = false;
	if (folder->cookie == 0 && folder->names.n == 0 && !folder->forgets)
		return replace_folder(rd, rest, name, &handle, &attr, err);
	if (attr.type != NFS_TYPE_DIRECTORY || !nfs_is_inside(&attr, rd->root)) {
		rd->work->progress.vanished++;
		return 0;
	}
	folder->handle = handle;
	folder->fileid = attr.fileid;
	return restart_listing(rd, rest, err);
}

static int retry_listing(struct reader *rd, struct reader_item *rest, struct error *err)
{
	struct reader_folder *folder = rest->folder;
	int r = rest->error;

	if (r == -ERESTART)
		return restart_listing(rd, rest, err);
	if (r == 0 && folder->replaced)
		return list_successor(rd, rest, err);
	if (++rest->looks > LOOKS_MAX)
		return r == -EREMOTEIO ? reader_fail(rd, r, "reading directory", rd->path.data, err)
				       : fail_changes_too_often(rd, err);
	r = prove_folder(rd, folder, err);
	if (r >= 0 && folder->replaced)
		return list_successor(rd, rest, err);
	if (r >= 0) {
		/* Pause: an immediate retry may meet the next removal by the same writer. */
		clock_sleep_ms(PAUSE_FIRST_MS * rest->looks);
		return 1;
	}
	/* The root cannot be proved gone, so it never gets -ENOENT. */
	return r == -ENOENT && err->code == ERROR_OK ? list_successor(rd, rest, err) : r;
}

int reader_retry_folder(struct reader *rd, struct reader_item *rest, struct error *err)
{
	int r;

	tree_drain_reads(rd->work, false);
	if (rd->options->count) {
		rd->work->progress.vanished++;
		return 0;
	}
	r = retry_listing(rd, rest, err);
	if (r != 1)
		return r == REPLACED ? 1 : r;
	rest->error = 0;
	rest->state = ITEM_WAITING;
	reader_rewind(rd);
	return 1;
}
