/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/transfer.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "nfs/calls.h"

static void log_progress(const struct transfer *t, const char *message)
{
	const struct tree_progress *p = &t->work.progress;
	uint64_t ms = (clock_now_ns() - t->started_ns) / CLOCK_NS_PER_MS + 1;
	uint64_t left_s =
		p->done > 0 && p->total > p->done ? (p->total - p->done) * ms / p->done / 1000 : 0;

	log_info(message, LOG_STR("what", t->what), LOG_NUM("files", p->files),
		 LOG_NUM("directories", p->directories), LOG_NUM("bytes", p->bytes),
		 LOG_NUM("bytes_per_second", p->bytes * 1000 / ms), LOG_NUM("seconds", ms / 1000),
		 LOG_NUM("seconds_left", left_s), LOG_NUM("changed", p->changed),
		 LOG_NUM("vanished", p->vanished), LOG_NUM("left_out", p->left_out));
}

static void report(const struct tree_progress *progress, void *data)
{
	(void)progress;
	log_progress(data, "Copying");
}

/* Two versions may give one name to different directories (fsid=0): the roots have to be the same. */
static bool is_same_root(struct nfs_client *a, const struct nfs_client *b)
{
	struct nfs_client *other =
		(struct nfs_client *)(uintptr_t)b; /* nobody else uses it meanwhile */
	struct nfs_attr x, y;

	return nfs_stat(a, &a->root, &x) == 0 && nfs_stat(other, &other->root, &y) == 0 &&
	       x.is_full && y.is_full && x.fileid == y.fileid;
}

static int lease_like(const struct csi_driver *driver, const struct nfs_client *c,
		      struct nfs_client **ret, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export e = c->export; /* borrows its strings */

	if (c->version != 3) {
		e.version = 3;
		if (nfs_pool_lease(driver->pool, &e, ret, &ignored) == 0) {
			if (is_same_root(*ret, c))
				return 0;
			nfs_pool_return(driver->pool, *ret);
		}
	}
	*ret = NULL;
	return nfs_pool_lease(driver->pool, &c->export, ret, err);
}

static int count(struct transfer *t, struct error *err)
{
	t->counted = atomic_fetch_add(t->driver->transfers, 1) < TRANSFERS_MAX;
	if (t->counted)
		return 0;
	atomic_fetch_sub(t->driver->transfers, 1);
	return error_set(err, ERROR_ABORTED,
			 "%d copies and archives are being made already; try again later",
			 TRANSFERS_MAX);
}

int transfer_open(struct transfer *t, const struct csi_driver *driver, const char *what,
		  const struct nfs_client *from, const struct nfs_client *to, struct error *err)
{
	int r;

	*t = (struct transfer){ .driver = driver, .what = what };
	t->started_ns = t->work.reported_ns = clock_now_ns();
	t->work.report = report;
	t->work.data = t;
	t->work.cancel = driver->stopping;
	r = count(t, err);
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

void transfer_close(struct transfer *t, int r)
{
	if (t->work.from != t->work.to)
		nfs_pool_return(t->driver->pool, t->work.from);
	nfs_pool_return(t->driver->pool, t->work.to);
	if (t->counted)
		atomic_fetch_sub(t->driver->transfers, 1);
	if (r == 0)
		log_progress(t, "Copied");
}
