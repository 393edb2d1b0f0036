/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake/nfs.h"
#include "nfs/state.h"
#include "tree/entry.h"
#include "tree/purge.h"
#include "check_util.h"

#define FILES 50
#define TRASH NFS_STATE_DIR "/trash"
#define PATIENCE_S 20

/* By how much the monotonic clock is wrong: a purge that lasts has not to be waited for. */
static _Atomic int64_t later_s;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_MONOTONIC)
		ts->tv_sec += atomic_load(&later_s);
	return r;
}

/* What the purger has said. */
static struct {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned int progress; /* reports while it went on */
	unsigned int ends; /* and of attempts that were over */
	uint64_t files, directories, ms;
	char name[64], share[64];
	struct error err;
} said = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void note(const struct purger_report *report)
{
	pthread_mutex_lock(&said.lock);
	if (report->name != NULL) {
		said.progress++;
		(void)snprintf(said.name, sizeof(said.name), "%s", report->name);
	} else {
		said.ends++;
	}
	(void)snprintf(said.share, sizeof(said.share), "%s", report->export->share);
	said.files = report->files;
	said.directories = report->directories;
	said.ms = report->ms;
	if (report->err != NULL)
		said.err = *report->err;
	pthread_cond_signal(&said.changed);
	pthread_mutex_unlock(&said.lock);
}

/* Purges the share until the first attempt is over. */
static void purge(const char *row, struct fake_nfs *f)
{
	char server[] = "fake", share[] = "/share";
	struct nfs_export e = { .server = server, .share = share };
	struct timespec until;
	struct nfs_pool *pool;
	struct purger *p;

	nfs_export_set_own(&e);
	said.progress = said.ends = 0;
	error_clear(&said.err);
	fake_nfs_serve(f);
	ck_assert(nfs_pool_new(&pool, fake_nfs_connect_fn, 0) == 0);
	ck_assert(purger_new(&p, pool, note) == 0);
	ck_assert(purger_add(p, &e) == 0);
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&said.lock);
	while (said.ends == 0)
		if (pthread_cond_timedwait(&said.changed, &said.lock, &until) == ETIMEDOUT)
			break;
	pthread_mutex_unlock(&said.lock);
	purger_free(p);
	nfs_pool_free(pool);
	check_int(row, "ends", said.ends, 1);
	check_str(row, "share", said.share, "/share");
	check_that(row, "time", said.ms > 0);
}

static struct fake_nfs *share_new(void)
{
	struct fake_nfs *f = fake_nfs_new();
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), TRASH "/gone.1.2.3/in/%u", i);
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	}
	return f;
}

START_TEST(test_done)
{
	struct fake_nfs *f = share_new();

	purge("done", f);
	check_int("done", "progress", said.progress, 0);
	check_int("done", "files", said.files, FILES);
	check_int("done", "directories", said.directories, 2);
	check_int("done", "error", said.err.code, ERROR_OK);
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_failed)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -EACCES, .all = true, .types = 1U << NFS_OP_RMDIR
	};
	struct fake_nfs *f = share_new();

	fake_nfs_fail(f, &failure);
	purge("failed", f);
	check_int("failed", "files", said.files, FILES);
	check_int("failed", "directories", said.directories, 0);
	check_error("failed", &said.err, ERROR_PERMISSION_DENIED, "'in'");
	fake_nfs_free(f);
}
END_TEST

/* Each removal of a file takes a second. */
static void be_slow(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	if (op->type == NFS_OP_REMOVE)
		atomic_fetch_add(&later_s, 1);
}

START_TEST(test_progress)
{
	struct fake_nfs *f = share_new();

	fake_nfs_watch(f, be_slow, NULL);
	purge("progress", f);
	check_int("progress", "reports", said.progress, FILES / TREE_REPORT_S);
	check_str("progress", "name", said.name, "gone.1.2.3");
	check_int("progress", "files", said.files, FILES);
	check_int("progress", "seconds", said.ms / 1000, FILES);
	fake_nfs_free(f);
}
END_TEST

CHECK_MAIN("tree/purge", test_done, test_failed, test_progress)
