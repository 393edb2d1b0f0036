/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/purge.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "nfs/calls.h"
#include "nfs/state.h"
#include "tree/remove.h"

#define RETRY_FIRST_S 5
#define RETRY_LAST_S 600
#define DUE_NEVER UINT64_MAX
#define START_DELAY_MS 100 /* DeleteVolume answers first: the purge would keep the server busy */
#define BATCH_MAX 256 /* names taken from the trash at a time */

struct job {
	struct list link;
	struct nfs_export export;
	uint64_t due_ns; /* DUE_NEVER: its trash was empty when it was last looked at */
	unsigned int retry_s; /* 0: the last attempt went well */
};

struct purger {
	struct nfs_pool *pool;
	purger_report_fn report;
	atomic_bool stop;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows; never held across network traffic */
	pthread_cond_t changed;
	bool started;
	struct list jobs;
};

int purger_new(struct purger **ret, struct nfs_pool *pool, purger_report_fn report)
{
	struct purger *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;

	if (p == NULL)
		return -ENOMEM;
	p->pool = pool;
	p->report = report;
	list_init(&p->jobs);
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	*ret = p;
	return 0;
}

static void job_free(struct job *job)
{
	nfs_export_done(&job->export);
	free(job);
}

static struct job *find(struct purger *p, const struct nfs_export *e)
{
	struct list *pos;

	list_for_each(pos, &p->jobs) {
		struct job *job = container_of(pos, struct job, link);

		if (nfs_export_is_equal(&job->export, e))
			return job;
	}
	return NULL;
}

/* Waits for a job that is due, and takes it off the list. NULL: to stop. */
static struct job *next_job(struct purger *p)
{
	struct job *due = NULL;

	pthread_mutex_lock(&p->lock);
	while (due == NULL && !atomic_load(&p->stop)) {
		uint64_t now = clock_now_ns(), first = UINT64_MAX;
		struct list *pos;

		list_for_each(pos, &p->jobs) {
			struct job *job = container_of(pos, struct job, link);

			if (job->due_ns < first) {
				first = job->due_ns;
				due = job;
			}
		}
		if (due != NULL && first > now) {
			const struct timespec until = {
				.tv_sec = (time_t)(first / CLOCK_NS_PER_S),
				.tv_nsec = (long)(first % CLOCK_NS_PER_S),
			};

			due = NULL;
			(void)pthread_cond_timedwait(&p->changed, &p->lock, &until);
		} else if (due == NULL) {
			(void)pthread_cond_wait(&p->changed, &p->lock);
		}
	}
	if (due != NULL)
		list_remove(&due->link);
	pthread_mutex_unlock(&p->lock);
	return due;
}

struct batch {
	struct purger *purger;
	const struct nfs_export *export;
	char *names[BATCH_MAX];
	size_t n;
};

/* What was deleted with another identity is for a job with that one: this one may not remove it. */
static int take_name(void *data, const struct nfs_entry *entry)
{
	struct batch *batch = data;
	struct nfs_export owner = *batch->export;

	if (batch->n == BATCH_MAX)
		return 0; /* the next batch has it */
	nfs_state_trash_identity(entry->name, &owner);
	if (!nfs_export_is_equal(&owner, batch->export))
		return purger_note(batch->purger, &owner);
	batch->names[batch->n] = strdup(entry->name);
	if (batch->names[batch->n] == NULL)
		return -ENOMEM;
	batch->n++;
	return 0;
}

static int remove_batch(struct purger *p, struct nfs_client *c, const struct nfs_handle *trash,
			struct batch *batch, struct tree_stats *stats, struct error *err)
{
	int result = 0;
	size_t i;

	for (i = 0; i < batch->n; i++) {
		int r = result == -ECANCELED || c->broken
				? 0
				: tree_remove(c, trash, batch->names[i], &p->stop, stats, err);

		/* One that cannot be removed does not keep the others. */
		if (r < 0)
			result = r;
		free(batch->names[i]);
	}
	return result;
}

static int empty_trash(struct purger *p, struct nfs_client *c, struct tree_stats *stats,
		       struct error *err)
{
	const struct nfs_handle *trash;
	int r;

	r = nfs_state_folder(c, NFS_FOLDER_TRASH, false, &trash, err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	for (;;) {
		struct batch batch = { .purger = p, .export = &c->export };
		int read;

		read = nfs_readdir(c, trash, take_name, &batch);
		if (read == -ESTALE)
			nfs_state_forget(c);
		r = remove_batch(p, c, trash, &batch, stats, err);
		if (read < 0)
			return nfs_error_set(err, c, read, "reading the trash");
		if (r < 0 || batch.n == 0)
			return r;
	}
}

/* One try to empty a share's trash. */
struct attempt {
	const struct purger *purger;
	const struct job *job;
	uint64_t started_ns;
};

static void report(const struct attempt *a, const struct tree_stats *stats, const char *name,
		   const struct error *err)
{
	const struct purger_report report = {
		.export = &a->job->export,
		.name = name,
		.files = stats->files,
		.directories = stats->directories,
		.ms = (clock_now_ns() - a->started_ns) / CLOCK_NS_PER_MS + 1,
		.err = err,
	};

	if (a->purger->report != NULL)
		a->purger->report(&report);
}

static void report_progress(const struct tree_stats *stats, const char *name, void *data)
{
	report(data, stats, name, NULL);
}

static void run_job(struct purger *p, struct job *job)
{
	struct attempt a = { .purger = p, .job = job, .started_ns = clock_now_ns() };
	struct tree_stats stats = {
		.report = report_progress,
		.data = &a,
		.reported_ns = a.started_ns,
	};
	struct error err = { .code = ERROR_OK };
	struct nfs_client *c;
	int r;

	r = nfs_pool_lease(p->pool, &job->export, &c, &err);
	if (r == 0) {
		r = empty_trash(p, c, &stats, &err);
		nfs_pool_return(p->pool, c);
	}
	if (r == -ECANCELED)
		return;
	if (r < 0 || stats.files + stats.directories > 0)
		report(&a, &stats, NULL, r < 0 ? &err : NULL);
	if (r == 0)
		job->retry_s = 0;
	else if (job->retry_s == 0)
		job->retry_s = RETRY_FIRST_S;
	else
		job->retry_s = job->retry_s * 2 > RETRY_LAST_S ? RETRY_LAST_S : job->retry_s * 2;
}

/* Back onto the list, which also remembers what has been done, unless it was asked for again. */
static void put_back(struct purger *p, struct job *job)
{
	bool again;

	pthread_mutex_lock(&p->lock);
	again = find(p, &job->export) != NULL;
	if (!again) {
		job->due_ns = job->retry_s > 0 ? clock_now_ns() + job->retry_s * CLOCK_NS_PER_S
					       : DUE_NEVER;
		list_add_tail(&p->jobs, &job->link);
	}
	pthread_mutex_unlock(&p->lock);
	if (again)
		job_free(job);
}

static void *purge_thread(void *data)
{
	struct purger *p = data;
	struct job *job;

	for (job = next_job(p); job != NULL; job = next_job(p)) {
		run_job(p, job);
		put_back(p, job);
	}
	return NULL;
}

/* Called with the lock held. */
static int start_thread(struct purger *p)
{
	int r = 0;

	if (!p->started) {
		r = -pthread_create(&p->thread, NULL, purge_thread, p);
		p->started = r == 0;
	}
	pthread_cond_signal(&p->changed);
	return r;
}

static int add(struct purger *p, const struct nfs_export *e, bool known_too)
{
	const uint64_t due = clock_now_ns() + START_DELAY_MS * CLOCK_NS_PER_MS;
	struct job *job = NULL, *known;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	known = find(p, e);
	if (known != NULL && known_too)
		known->due_ns = due;
	if (known == NULL) {
		job = calloc(1, sizeof(*job));
		r = job != NULL ? nfs_export_copy(&job->export, e) : -ENOMEM;
		if (r == 0) {
			job->due_ns = due;
			list_add_tail(&p->jobs, &job->link);
		} else {
			free(job);
		}
	}
	if (r == 0 && (known == NULL || known_too))
		r = start_thread(p);
	pthread_mutex_unlock(&p->lock);
	return r;
}

int purger_add(struct purger *p, const struct nfs_export *e)
{
	return add(p, e, true);
}

int purger_note(struct purger *p, const struct nfs_export *e)
{
	return add(p, e, false);
}

void purger_free(struct purger *p)
{
	struct list *pos, *tmp;

	if (p == NULL)
		return;
	atomic_store(&p->stop, true);
	pthread_mutex_lock(&p->lock);
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
	if (p->started)
		pthread_join(p->thread, NULL);
	list_for_each_safe(pos, tmp, &p->jobs)
		job_free(container_of(pos, struct job, link));
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
