/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>

#include "base/clock.h"
#include "tree/entry.h"

#define PATIENCE_MAX 300 /* waits of PATIENCE_MS while a server asks to try later */
#define PATIENCE_MS 100

static bool is_cancelled(const struct tree_work *work)
{
	return work->cancel != NULL && atomic_load(work->cancel);
}

static bool is_in_flight(const struct tree_work *work)
{
	return work->reading > 0 || work->writing > 0;
}

void tree_op_returned(struct tree_work *work, size_t *in_flight, const struct nfs_op *op)
{
	--*in_flight;
	if (op->error != -EAGAIN)
		work->moved = true;
}

bool tree_is_to_be_retried(struct tree_work *work, int error)
{
	if (error != -EAGAIN || work->patience >= PATIENCE_MAX || is_cancelled(work))
		return false;
	work->wait = true;
	return true;
}

int tree_check_cancel(const struct tree_work *work, struct error *err)
{
	return is_cancelled(work)
		       ? error_set(err, ERROR_CANCELLED, "interrupted, the driver is being stopped")
		       : 0;
}

bool tree_is_report_due(uint64_t *reported_ns)
{
	uint64_t now = clock_now_ns();

	if (now - *reported_ns < TREE_REPORT_S * CLOCK_NS_PER_S)
		return false;
	*reported_ns = now;
	return true;
}

/* Waits where the server has asked to, by an operation of this work or of one outside it. */
static bool be_patient(struct tree_work *work)
{
	while (work != NULL && !work->wait)
		work = work->outer;
	if (work == NULL)
		return false;
	work->wait = false;
	work->patience++;
	clock_sleep_ms(PATIENCE_MS);
	return true;
}

int tree_pump(struct tree_work *work, struct error *err)
{
	int r = tree_check_cancel(work, err);

	if (r < 0)
		return r;
	if (work->report != NULL && tree_is_report_due(&work->reported_ns)) {
		work->report(&work->progress, work->data);
		return 0; /* it may have waited for what is in flight */
	}
	if (be_patient(work))
		return 0;
	if (!is_in_flight(work))
		return -EIO; /* waiting for nothing: cannot be */
	r = nfs_client_run_pair(work->from, work->to);
	/* But once it is over for one operation, the others shall not wait as long. */
	if (work->moved && work->patience < PATIENCE_MAX)
		work->patience = 0;
	work->moved = false;
	return r;
}

static void drain(struct tree_work *work, bool with_writes, bool soon)
{
	const uint64_t begun = clock_now_ns();
	int failures = 0;

	/* A client that breaks ends what is in flight on it; there are two of them. */
	while ((work->reading > 0 || (with_writes && work->writing > 0)) && failures < 2) {
		/* What takes a server's disk long is not worth waiting for any more. */
		if (is_cancelled(work) ||
		    (soon && clock_now_ns() - begun > NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS)) {
			nfs_client_abort(work->from);
			nfs_client_abort(work->to);
		}
		/* Reads of files start themselves again, when the server has asked to wait. */
		(void)be_patient(work);
		if (nfs_client_run_pair(work->from, work->to) < 0)
			failures++;
	}
}

void tree_drain(struct tree_work *work)
{
	drain(work, true, true);
}

void tree_drain_reads(struct tree_work *work, bool soon)
{
	drain(work, false, soon);
}
