/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "tree/entry.h"

#define PATIENCE_MAX 300 /* waits of PATIENCE_MS while a server asks to try later */
#define PATIENCE_MS 100

static bool is_cancelled(const struct tree_work *work)
{
	return work->cancel != NULL && atomic_load(work->cancel);
}

void tree_op_returned(struct tree_work *work, const struct nfs_op *op)
{
	work->in_flight--;
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

static void report(struct tree_work *work)
{
	uint64_t now;

	if (work->report == NULL)
		return;
	now = clock_now_ns();
	if (now - work->reported_ns < TREE_REPORT_S * CLOCK_NS_PER_S)
		return;
	work->reported_ns = now;
	work->report(&work->progress, work->data);
}

static void be_patient(struct tree_work *work)
{
	const struct timespec ts = { .tv_nsec = PATIENCE_MS * (long)CLOCK_NS_PER_MS };

	work->wait = false;
	work->patience++;
	(void)nanosleep(&ts, NULL); /* an early wake-up only asks again early */
}

int tree_pump(struct tree_work *work, struct error *err)
{
	int r = tree_check_cancel(work, err);

	if (r < 0)
		return r;
	report(work);
	if (work->wait) {
		be_patient(work);
		return 0;
	}
	if (work->in_flight == 0)
		return -EIO; /* waiting for nothing: cannot be */
	r = nfs_client_run_pair(work->from, work->to);
	/* But once it is over for one operation, the others shall not wait as long. */
	if (work->moved && work->patience < PATIENCE_MAX)
		work->patience = 0;
	work->moved = false;
	return r;
}

void tree_drain(struct tree_work *work)
{
	int failures = 0;

	/* A client that breaks ends what is in flight on it; there are two of them. */
	while (work->in_flight > 0 && failures < 2) {
		/* Reads of files start themselves again, when the server has asked to wait. */
		if (work->wait)
			be_patient(work);
		if (nfs_client_run_pair(work->from, work->to) < 0)
			failures++;
	}
}
