/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/work.h"

#include <errno.h>

#include "base/clock.h"

#define PATIENCE_MAX 300 /* consecutive waits of PATIENCE_MS for a server that asks to try later */
#define PATIENCE_MS 100

static bool is_cancelled(const struct tree_work *work)
{
	return work->cancel != NULL && atomic_load(work->cancel);
}

void tree_op_returned(struct tree_work *work, size_t *in_flight, const struct nfs_op *op)
{
	--*in_flight;
	if (op->error != -EAGAIN)
		work->progressed = true;
}

bool tree_should_retry(struct tree_work *work, int error)
{
	if (error != -EAGAIN || work->patience >= PATIENCE_MAX || is_cancelled(work))
		return false;
	work->wait = true;
	return true;
}

int tree_check_cancel(const struct tree_work *work, struct error *err)
{
	if (!is_cancelled(work))
		return 0;
	return error_set(err, ERROR_CANCELLED, "interrupted, the driver is being stopped");
}

/* When the next report is due. */
static uint64_t report_due_ns(const struct tree_work *work)
{
	const uint64_t ms = work->report_ms != 0 ? work->report_ms : TREE_REPORT_S * 1000;

	return work->reported_ns + ms * CLOCK_NS_PER_MS;
}

/* When to return without an answer: a slow server must not delay a report that is due sooner. */
static uint64_t wake_ns(const struct tree_work *work)
{
	const uint64_t wake = work->wake_ns != 0 ? work->wake_ns : UINT64_MAX;
	const uint64_t due = work->report_ms != 0 ? report_due_ns(work) : UINT64_MAX;

	return wake < due ? wake : due;
}

/* Sleep if the server asked an operation of this work, or of an outer one, to wait. */
static bool wait_if_asked(struct tree_work *work)
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

/* With nothing in flight. In parts, so that the work can be cancelled. */
static int sleep_until_wake(const struct tree_work *work)
{
	const int left_ms = clock_left_ms(work->wake_ns);

	if (work->wake_ns == 0)
		return -EIO; /* a bug: nothing to wait for */
	clock_sleep_ms(left_ms < PATIENCE_MS ? (unsigned int)left_ms : PATIENCE_MS);
	return 0;
}

int tree_pump(struct tree_work *work, struct error *err)
{
	int r = tree_check_cancel(work, err);

	if (r < 0)
		return r;
	if (work->report != NULL && clock_now_ns() >= report_due_ns(work)) {
		work->report(&work->progress, work->data);
		/* A report may take longer than its interval; work goes on between two of them. */
		work->reported_ns = clock_now_ns();
		return 0; /* our operations may have finished during the report */
	}
	if (wait_if_asked(work))
		return 0;
	if (work->reading == 0 && work->writing == 0)
		return sleep_until_wake(work);
	r = nfs_client_run_pair(work->from, work->to, wake_ns(work));
	/*
	 * Renew the patience for a server that still answers other operations, but not once it is
	 * used up: each operation in flight would wait as long again.
	 */
	if (work->progressed && work->patience < PATIENCE_MAX)
		work->patience = 0;
	work->progressed = false;
	return r;
}

int tree_poll(struct tree_work *work, struct error *err)
{
	const uint64_t wake = work->wake_ns;
	int r;

	work->wake_ns = clock_now_ns();
	r = tree_pump(work, err);
	work->wake_ns = wake;
	return r;
}

static void drain(struct tree_work *work, bool with_writes, bool abort_slow)
{
	const uint64_t begun = clock_now_ns();
	int failures = 0;

	/* A client that fails ends its operations in flight; there are two clients. */
	while ((work->reading > 0 || (with_writes && work->writing > 0)) && failures < 2) {
		if (is_cancelled(work) ||
		    (abort_slow &&
		     clock_now_ns() - begun > NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS)) {
			nfs_client_abort(work->from);
			nfs_client_abort(work->to);
		}
		/* Reads of files start themselves again if the server asked to wait. */
		(void)wait_if_asked(work);
		if (nfs_client_run_pair(work->from, work->to, UINT64_MAX) < 0)
			failures++;
	}
}

void tree_drain(struct tree_work *work)
{
	drain(work, true, true);
}

void tree_drain_reads(struct tree_work *work, bool abort_slow)
{
	drain(work, false, abort_slow);
}
