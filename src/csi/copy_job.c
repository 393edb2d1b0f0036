/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_job.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "tree/reader.h"
#include "tree/remove.h"

#define ATTEMPTS_MAX 4
#define BYTES_PER_ENTRY 65536 /* an entry takes about as long as so much data */

/* Of everything that has to be done: the part of an archive, or of a tree that was counted. */
static double done_part(const struct tree_progress *p)
{
	const double all =
		(double)p->all_bytes + (double)(p->all_files + p->all_directories) * BYTES_PER_ENTRY;
	double part = 0;

	if (p->total > 0)
		part = (double)p->done / (double)p->total;
	else if (all > 0)
		part = ((double)p->bytes + (double)(p->files + p->directories) * BYTES_PER_ENTRY) /
		       all;
	return part < 1 ? part : 1; /* the tree may have grown meanwhile */
}

static uint64_t ms_since_start(const struct transfer *t)
{
	return (clock_now_ns() - t->started_ns) / CLOCK_NS_PER_MS + 1;
}

static void log_progress(const struct transfer *t, const struct tree_progress *p, const char *message)
{
	uint64_t ms = ms_since_start(t);
	double part = done_part(p);
	uint64_t left_s = part > 0 ? (uint64_t)((1 - part) / part * (double)ms / 1000) : 0;

	log_info(message, LOG_STR("what", t->what), LOG_NUM("files", p->files),
		 LOG_NUM("directories", p->directories), LOG_NUM("bytes", p->bytes),
		 LOG_NUM("all_files", p->all_files), LOG_NUM("all_bytes", p->all_bytes),
		 LOG_NUM("bytes_per_second", p->bytes * 1000 / ms), LOG_NUM("seconds", ms / 1000),
		 LOG_NUM("seconds_left", left_s), LOG_NUM("changed", p->changed),
		 LOG_NUM("vanished", p->vanished), LOG_NUM("left_out", p->left_out),
		 LOG_NUM("clamped", p->clamped));
}

static void log_end(const struct transfer *t)
{
	const struct tree_progress *p = &t->work.progress;
	uint64_t ms = ms_since_start(t);

	log_info("Copied", LOG_STR("what", t->what), LOG_NUM("files", p->files),
		 LOG_NUM("directories", p->directories), LOG_NUM("bytes", p->bytes),
		 LOG_NUM("bytes_per_second", p->bytes * 1000 / ms), LOG_NUM("seconds", ms / 1000),
		 LOG_NUM("changed", p->changed), LOG_NUM("vanished", p->vanished),
		 LOG_NUM("left_out", p->left_out), LOG_NUM("clamped", p->clamped));
	if (p->clamped > 0)
		log_warn("NFSv3 has no times before 1970 and after 2106: those were set to the nearest that it has",
			 LOG_STR("what", t->what), LOG_NUM("entries", p->clamped));
}

/* For the time that is left. What cannot be counted is copied nevertheless, if it can be. */
static void count_tree(struct transfer *t)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *tree = t->tree;

	t->tree = NULL;
	if (tree != NULL)
		(void)tree_count(&t->work, tree, t->attr, &ignored);
}

static void report(const struct tree_progress *progress, void *data)
{
	struct transfer *t = data;
	const bool counting = progress != &t->work.progress; /* which has a progress of its own */
	struct error ignored = { .code = ERROR_OK };
	struct nfs_attr unused;
	size_t i;

	count_tree(t);
	log_progress(t, progress, counting ? "Counting" : "Copying");
	/* A connection that breaks shows when it is used again. */
	for (i = 0; i < ARRAY_SIZE(t->idle); i++)
		(void)nfs_getattr(t->idle[i], &t->idle[i]->root, &unused);
	/* One that is lost is found to be so at the end. */
	(void)transfer_renew_claims(t, &ignored);
	if (counting)
		(void)nfs_getattr(t->work.to, &t->work.to->root, &unused); /* nothing is written to it */
}

/* Two versions may give one name to different directories (fsid=0): the roots have to be the same. */
static bool is_same(struct nfs_client *a, const struct nfs_handle *in_a, struct nfs_client *b,
		    const struct nfs_handle *in_b)
{
	struct nfs_attr x, y;

	return nfs_stat(a, in_a, &x) == 0 && nfs_stat(b, in_b, &y) == 0 && x.is_full && y.is_full &&
	       x.fileid == y.fileid;
}

/* The driver's own folder, too, where there is one: roots have the same number on many file systems. */
static bool is_same_share(struct nfs_client *a, struct nfs_client *b)
{
	struct nfs_handle in_a, in_b;
	int r;

	if (!is_same(a, &a->root, b, &b->root))
		return false;
	r = nfs_lookup(a, &a->root, NFS_STATE_DIR, &in_a, NULL);
	if (r < 0)
		return r == -ENOENT && nfs_lookup(b, &b->root, NFS_STATE_DIR, &in_b, NULL) == r;
	return nfs_lookup(b, &b->root, NFS_STATE_DIR, &in_b, NULL) == 0 &&
	       is_same(a, &in_a, b, &in_b);
}

static int lease_like(const struct csi_driver *driver, struct nfs_client *c,
		      struct nfs_client **ret, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export e = c->export; /* borrows its strings */

	if (c->version != 3) {
		e.version = 3;
		if (nfs_pool_lease(driver->pool, &e, ret, &ignored) == 0) {
			if (is_same_share(*ret, c))
				return 0;
			nfs_pool_return(driver->pool, *ret);
		}
	}
	*ret = NULL;
	return nfs_pool_lease(driver->pool, &c->export, ret, err);
}

static int take_place(struct transfer *t, struct error *err)
{
	t->has_place = atomic_fetch_add(t->driver->transfers, 1) < TRANSFERS_MAX;
	if (t->has_place)
		return 0;
	atomic_fetch_sub(t->driver->transfers, 1);
	return error_set(err, ERROR_ABORTED,
			 "%d copies and archives are being made already; try again later",
			 TRANSFERS_MAX);
}

int transfer_open(struct transfer *t, const struct csi_driver *driver, const char *what,
		  struct nfs_client *from, struct nfs_client *to, struct error *err)
{
	int r;

	*t = (struct transfer){ .driver = driver, .what = what, .idle = { from, to } };
	t->started_ns = t->work.reported_ns = clock_now_ns();
	t->work.report = report;
	t->work.data = t;
	t->work.cancel = driver->stopping;
	r = take_place(t, err);
	if (r == 0)
		r = lease_like(driver, to, &t->work.to, err);
	if (r < 0)
		return r;
	if (nfs_export_is_equal(&from->export, &to->export)) {
		t->work.from = t->work.to;
		return 0;
	}
	return lease_like(driver, from, &t->work.from, err);
}

int transfer_begin(struct transfer *t, const char *name, const struct nfs_handle **ret_work,
		   struct error *err)
{
	int r = store_folder(t->work.to, STORE_WORK, true, ret_work, err);

	return r < 0 ? r : tree_remove(t->work.to, *ret_work, name, NULL, NULL, err);
}

bool transfer_is_to_be_retried(struct transfer *t, int r, struct error *err)
{
	const struct tree_progress none = { .files = 0 };
	struct error unused = { .code = ERROR_OK };

	if (r != -ERESTART || ++t->attempts >= ATTEMPTS_MAX ||
	    tree_check_cancel(&t->work, &unused) < 0)
		return false;
	log_info("A copy is begun again", LOG_STR("what", t->what), LOG_STR("reason", err->msg));
	error_clear(err);
	t->work.progress = none;
	return true;
}

void transfer_set_tree(struct transfer *t, const struct nfs_handle *tree, const struct nfs_attr *attr)
{
	t->tree = tree;
	t->attr = attr;
}

int transfer_check_source(struct transfer *t, const char *path, const struct nfs_handle *handle,
			  struct error *err)
{
	struct nfs_client *c = t->work.from;
	struct directory_place place;
	struct nfs_handle now;
	int r;

	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &now, NULL);
	if (r < 0 && r != -ENOENT && r != -ESTALE)
		return nfs_error_set(err, c, r, "volume directory '%s'", path);
	if (r == 0 && nfs_handle_is_equal(&now, handle))
		return 0;
	return error_set(err, ERROR_ABORTED, "volume directory '%s' went away while it was read",
			 path);
}

void transfer_set_claims(struct transfer *t, struct claim *source, struct claim *made)
{
	t->claims[0] = source;
	t->claims[1] = made;
}

int transfer_renew_claims(struct transfer *t, struct error *err)
{
	int r;

	r = claim_renew(t->claims[0], t->idle[0], err);
	return r < 0 ? r : claim_renew(t->claims[1], t->idle[1], err);
}

void transfer_close(struct transfer *t, int r)
{
	if (t->work.from != t->work.to)
		nfs_pool_return(t->driver->pool, t->work.from);
	nfs_pool_return(t->driver->pool, t->work.to);
	if (t->has_place)
		atomic_fetch_sub(t->driver->transfers, 1);
	if (r == 0)
		log_end(t);
}
