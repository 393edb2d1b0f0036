/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/remove.h"

#include <errno.h>
#include <inttypes.h>

#include "base/clock.h"
#include "nfs/calls.h"
#include "tree/remove_node.h"

void remover_fail(struct remover *rm, int r, const char *verb, const char *name)
{
	rm->stats->failed++;
	if (rm->error != 0)
		return;
	rm->error = r;
	(void)nfs_error_set(rm->err, rm->work.to, r, "%s '%s'", verb, name);
}

static int remover_fill(struct remover *rm)
{
	while (rm->work.writing < nfs_window(rm->work.to) && !list_is_empty(&rm->ready)) {
		struct remove_node *node = container_of(rm->ready.prev, struct remove_node, queue);
		int r = remove_node_check(rm, node);

		if (r > 0)
			r = remove_node_start(rm, node);
		if (r < 0)
			return r;
	}
	return 0;
}

static int remover_run(struct remover *rm)
{
	while (!rm->finished) {
		int r;

		if (rm->stats->until_ns != 0 && clock_now_ns() >= rm->stats->until_ns)
			return -ETIME;
		r = remover_fill(rm);
		if (r == 0 && !rm->finished)
			r = tree_pump(&rm->work, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

static void remover_report(const struct tree_progress *progress, void *data)
{
	const struct remover *rm = data;

	(void)progress;
	rm->stats->report(rm->stats, rm->name, rm->stats->data);
}

/* Set the error for the result of remover_run(). */
static int remover_result(struct remover *rm, int r)
{
	const struct nfs_client *c = rm->work.to;

	if (r == -ECANCELED)
		return error_set(rm->err, ERROR_CANCELLED, "removing '%s' was interrupted",
				 rm->name);
	if (r == -ETIME && !rm->finished) {
		(void)error_set(rm->err, ERROR_ABORTED, "removing '%s' is not finished", rm->name);
		return r;
	}
	if (r < 0 && r != -ETIME)
		return nfs_error_set(rm->err, c, r, "removing directory '%s'", rm->name);
	if (rm->replaced)
		return error_set(rm->err, ERROR_ABORTED,
				 "'%s' was replaced while it was removed; try again", rm->name);
	if (rm->error != 0 || rm->borders == 0)
		return rm->error;
	(void)error_set(rm->err, ERROR_FAILED_PRECONDITION,
			"'%s' on %s:%s is a mount point on the server and was left alone: unmount it there",
			rm->border, c->export.server, c->export.share);
	return -EXDEV;
}

static int remove_tree(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		       const struct nfs_handle *known, const atomic_bool *cancel,
		       struct tree_stats *stats, struct error *err)
{
	struct tree_stats unused = { .report = NULL };
	struct remover rm = {
		.work = { .from = c, .to = c, .cancel = cancel },
		.dir = dir,
		.name = name,
		.known = known,
		.stats = stats != NULL ? stats : &unused,
		.epoch = 1,
		.err = err,
	};
	int r;

	list_init(&rm.all);
	list_init(&rm.ready);
	list_init(&rm.held);
	list_init(&rm.waiting);
	r = nfs_getattr(c, dir, &rm.fs);
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up the directory that holds '%s'", name);
	if (!rm.fs.has_fsid) {
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"server '%s' does not say what file system a directory is on (no fsid): '%s' is not removed",
				c->export.server, name);
		return -EXDEV;
	}
	rm.root = remove_node_new(&rm, NULL, name);
	if (rm.root == NULL)
		return error_oom(err);
	if (rm.stats->report != NULL) {
		rm.work.report = remover_report;
		rm.work.data = &rm;
		rm.work.report_ms = rm.stats->report_ms;
		rm.work.reported_ns = rm.stats->reported_ns;
	}
	remove_node_ready(&rm, rm.root);
	r = remover_run(&rm);
	tree_drain(&rm.work); /* operations in flight point into nodes */
	while (!list_is_empty(&rm.all))
		remove_node_free(&rm, container_of(rm.all.next, struct remove_node, all));
	if (rm.stats->report != NULL)
		rm.stats->reported_ns = rm.work.reported_ns;
	rm.stats->borders += rm.borders;
	return remover_result(&rm, r);
}

int tree_remove(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		const atomic_bool *cancel, struct tree_stats *stats, struct error *err)
{
	return remove_tree(c, dir, name, NULL, cancel, stats, err);
}

int tree_remove_known(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		      const struct nfs_handle *known, struct error *err)
{
	return remove_tree(c, dir, name, known, NULL, NULL, err);
}
