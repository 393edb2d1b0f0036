/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "csi/copy_job.h"
#include "fake/nfs.h"
#include "check_util.h"

#define FILES 100
#define LEASE_S 12

/* Offset of the clock: a REMOVE takes a second. */
static _Atomic int64_t later_s;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = check_real_clock(id, ts);

	ts->tv_sec += atomic_load(&later_s);
	return r;
}

/* A job on a share that has the remains of an attempt. */
struct remains {
	struct fake_nfs *f;
	struct csi_driver driver;
	struct tree_budget budget;
	atomic_bool stopping;
	struct copy_job job;
	uint64_t used_ns[3], longest_ns; /* of the clients that wait meanwhile */
	unsigned int removed, stop_at; /* files */
};

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct remains *rem = data;
	const struct nfs_client *const waiting[] = { rem->job.idle[0], rem->job.idle[1],
						     rem->job.work.from };
	const uint64_t now = clock_now_ns();
	size_t i;

	(void)f;
	for (i = 0; i < ARRAY_SIZE(waiting); i++) {
		if (now - rem->used_ns[i] > rem->longest_ns)
			rem->longest_ns = now - rem->used_ns[i];
		if (op->client == waiting[i])
			rem->used_ns[i] = now;
	}
	if (op->type != NFS_OP_REMOVE)
		return;
	atomic_fetch_add(&later_s, 1);
	if (++rem->removed == rem->stop_at)
		atomic_store(&rem->stopping, true);
}

static void remains_init(struct remains *rem)
{
	static struct claim *const claims[2];
	unsigned int i;

	*rem = (struct remains){ .f = fake_nfs_new() };
	for (i = 0; i < FILES; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), NFS_STATE_DIR "/work/attempt/%u", i);
		fake_nfs_put(rem->f, path, NFS_TYPE_FILE, NULL);
	}
	rem->driver.budget = &rem->budget;
	rem->driver.stopping = &rem->stopping;
	copy_job_open(&rem->job, &rem->driver, "pvc-1", fake_nfs_connect(rem->f),
		      fake_nfs_connect(rem->f), claims);
	rem->job.work.from = fake_nfs_connect(rem->f);
	rem->job.work.to = fake_nfs_connect(rem->f);
	rem->job.work.to->window = 1;
	rem->job.work.report_ms = LEASE_S * 1000 / 3;
	for (i = 0; i < ARRAY_SIZE(rem->used_ns); i++)
		rem->used_ns[i] = clock_now_ns();
	fake_nfs_watch(rem->f, watch, rem);
}

static void remains_done(struct remains *rem)
{
	struct nfs_client *const clients[] = { rem->job.idle[0], rem->job.idle[1],
					       rem->job.work.from, rem->job.work.to };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clients); i++)
		nfs_client_free(clients[i]);
	fake_nfs_free(rem->f);
}

/* The call's sessions and notes outlast the removal of what a late attempt has made. */
START_TEST(test_remains)
{
	struct error err = { .code = ERROR_OK };
	const struct nfs_handle *work;
	const uint64_t begun = clock_now_ns();
	struct remains rem;

	remains_init(&rem);
	check_int("remains", "result", copy_job_begin(&rem.job, "attempt", &work, &err), 0);
	check_that("remains", "they are removed",
		   fake_nfs_type(rem.f, NFS_STATE_DIR "/work/attempt") == NFS_TYPE_UNKNOWN);
	check_that("remains", "that takes several leases",
		   clock_now_ns() - begun > 5 * LEASE_S * CLOCK_NS_PER_S);
	check_that("remains", "no session ends", rem.longest_ns < LEASE_S * CLOCK_NS_PER_S);
	check_that("remains", "the notes are renewed",
		   clock_now_ns() - rem.job.renewed_ns < 2 * LEASE_S * CLOCK_NS_PER_S);
	remains_done(&rem);
}
END_TEST

/* A driver that is being stopped does not wait for it. */
START_TEST(test_stopping)
{
	struct error err = { .code = ERROR_OK };
	const struct nfs_handle *work;
	struct remains rem;

	remains_init(&rem);
	rem.stop_at = 10;
	check_int("stopping", "result", copy_job_begin(&rem.job, "attempt", &work, &err),
		  -ECANCELED);
	check_error("stopping", &err, ERROR_CANCELLED, "'attempt'");
	check_that("stopping", "at once", rem.removed < 20);
	remains_done(&rem);
}
END_TEST

CHECK_MAIN("copy_job", .tests = { test_remains, test_stopping })
