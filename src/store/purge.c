/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Scheduling: which share has its turn, and on which thread. */

#include "store/purge.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/list.h"
#include "store/purge_share.h"

#define START_DELAY_MS 100 /* DeleteVolume answers first: the purge keeps the server busy */
#define FORGET_S 86400 /* after which a failing share that nobody asks for is dropped */

/*
 * See store/purge.h for its states. Guarded by purger.lock, except for share while it is running.
 */
struct job {
	struct list link;
	struct purge_share share; /* while running: the thread's, except for its export */
	uint64_t due_ns;
	uint64_t used_ns; /* when it was last requested */
	uint64_t ended_ns; /* when its last turn ended */
	bool running;
	bool again; /* repeat it: it was requested while it was running */
	bool is_reached; /* while it was running, a call has reached the server */
	bool has_work; /* since the last turn began, something was put into the trash */
};

enum worker_state {
	WORKER_NONE,
	WORKER_ALIVE,
	WORKER_ENDED, /* to be joined */
};

struct worker {
	struct purger *purger;
	pthread_t thread;
	enum worker_state state;
};

struct purger {
	struct nfs_pool *pool;
	purger_report_fn report;
	atomic_bool stop;
	pthread_mutex_t lock; /* guards all that follows; taken alone */
	pthread_cond_t changed; /* an earlier job, a server is free, a thread has ended, or stop */
	struct worker workers[PURGE_WORKERS_MAX];
	unsigned int waiting; /* threads in wait_until() */
	struct list jobs;
	size_t n_jobs;
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

/* -------- jobs; called with the lock held -------- */

static void job_free(struct purger *p, struct job *job)
{
	list_remove(&job->link);
	p->n_jobs--;
	purge_share_done(&job->share);
	free(job);
}

static struct job *find_job(struct purger *p, const struct nfs_export *e)
{
	struct list *pos;

	list_for_each(pos, &p->jobs) {
		struct job *job = container_of(pos, struct job, link);

		if (nfs_export_is_equal(&job->share.export, e))
			return job;
	}
	return NULL;
}

/* Drop the waiting job requested least recently. The next use of the share adds it again. */
static int make_room(struct purger *p)
{
	struct job *oldest = NULL;
	struct list *pos;

	if (p->n_jobs < PURGE_SHARES_MAX)
		return 0;
	list_for_each(pos, &p->jobs) {
		struct job *job = container_of(pos, struct job, link);

		if (!job->running && (oldest == NULL || job->used_ns < oldest->used_ns))
			oldest = job;
	}
	if (oldest == NULL)
		return -ENOSPC;
	job_free(p, oldest);
	return 0;
}

static int add_job(struct purger *p, const struct nfs_export *e, uint64_t now, struct job **ret)
{
	struct job *job;
	int r;

	r = make_room(p);
	if (r < 0)
		return r;
	job = calloc(1, sizeof(*job));
	if (job == NULL || purge_share_init(&job->share, e) < 0) {
		free(job);
		return -ENOMEM;
	}
	job->due_ns = now + START_DELAY_MS * CLOCK_NS_PER_MS;
	list_add_tail(&p->jobs, &job->link);
	p->n_jobs++;
	*ret = job;
	return 0;
}

static bool is_server_busy(const struct purger *p, const struct job *job)
{
	const struct list *pos;

	list_for_each(pos, &p->jobs) {
		const struct job *other = container_of(pos, struct job, link);

		if (other->running &&
		    nfs_export_is_same_server(&job->share.export, &other->share.export))
			return true;
	}
	return false;
}

/* Return the job that is overdue the longest, or NULL and the time when to look again. */
static struct job *next_job(struct purger *p, uint64_t *ret_until)
{
	const uint64_t now = clock_now_ns();
	struct job *first = NULL;
	struct list *pos;

	*ret_until = UINT64_MAX;
	list_for_each(pos, &p->jobs) {
		struct job *job = container_of(pos, struct job, link);

		if (job->running)
			continue;
		if (job->due_ns > now) {
			if (job->due_ns < *ret_until)
				*ret_until = job->due_ns;
			continue;
		}
		if ((first == NULL || job->due_ns < first->due_ns) && !is_server_busy(p, job))
			first = job;
	}
	return first;
}

/*
 * A call has reached the server. Return whether the job is due earlier than it was. What this means
 * for a job that is running is decided at the end of its turn.
 */
static bool job_is_hastened(struct job *job)
{
	const uint64_t due_ns = job->ended_ns + PURGE_RETRY_REACHED_S * CLOCK_NS_PER_S;

	job->is_reached = job->running;
	if (job->running || !job->share.is_away)
		return false;
	if (job->share.retry_s > PURGE_RETRY_REACHED_S)
		job->share.retry_s = PURGE_RETRY_REACHED_S;
	if (due_ns >= job->due_ns)
		return false;
	job->due_ns = due_ns;
	return true;
}

static void end_turn(struct purger *p, struct job *job, uint64_t due_ns)
{
	const uint64_t now = clock_now_ns();

	job->running = false;
	job->ended_ns = now;
	job->due_ns = due_ns;
	if (job->again)
		job->due_ns = now + START_DELAY_MS * CLOCK_NS_PER_MS;
	else if (job->is_reached)
		(void)job_is_hastened(job);
	job->again = false;
	job->is_reached = false;
	if (job->share.retry_s > 0 && now - job->used_ns > FORGET_S * CLOCK_NS_PER_S)
		job_free(p, job);
}

/* -------- threads -------- */

static void *purge_thread(void *data);

/*
 * Make sure that a thread waits for due jobs while others work. Called with the lock held. Return
 * 0, or -EAGAIN if there is no thread at all.
 */
static int need_watcher(struct purger *p)
{
	size_t alive = 0, i;
	int r = -EAGAIN;

	if (atomic_load(&p->stop))
		return 0;
	if (p->waiting > 0) {
		pthread_cond_signal(&p->changed);
		return 0;
	}
	for (i = 0; i < PURGE_WORKERS_MAX; i++)
		alive += p->workers[i].state == WORKER_ALIVE;
	for (i = 0; i < PURGE_WORKERS_MAX && r != 0; i++) {
		struct worker *worker = &p->workers[i];

		if (worker->state == WORKER_ALIVE)
			continue;
		if (worker->state == WORKER_ENDED)
			(void)pthread_join(worker->thread,
					   NULL); /* it does not take the lock any more */
		worker->state = WORKER_NONE;
		worker->purger = p;
		r = -pthread_create(&worker->thread, NULL, purge_thread, worker);
		if (r == 0)
			worker->state = WORKER_ALIVE;
	}
	/* Threads at work look for more when they are done. */
	return alive > 0 ? 0 : r;
}

static int note_other_identity(void *data, const struct nfs_export *e);

/* Run a turn, without the lock. */
static void run_job(struct purger *p, struct job *job)
{
	const struct purge_turn turn = {
		.stop = &p->stop,
		.report = p->report,
		.note = note_other_identity,
		.data = p,
	};
	uint64_t due_ns;

	job->running = true;
	job->share.has_work = job->share.has_work || job->has_work;
	job->has_work = false;
	if (p->n_jobs > 1)
		(void)need_watcher(p);
	pthread_mutex_unlock(&p->lock);
	due_ns = purge_share_turn(&job->share, p->pool, &turn);
	pthread_mutex_lock(&p->lock);
	end_turn(p, job, due_ns);
	/* Other shares of the server have waited for this. */
	pthread_cond_signal(&p->changed);
}

static void wait_until(struct purger *p, uint64_t until_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
		.tv_nsec = (long)(until_ns % CLOCK_NS_PER_S),
	};

	p->waiting++;
	if (until_ns == UINT64_MAX)
		(void)pthread_cond_wait(&p->changed, &p->lock);
	else
		(void)pthread_cond_timedwait(&p->changed, &p->lock, &until);
	p->waiting--;
}

static void *purge_thread(void *data)
{
	struct worker *worker = data;
	struct purger *p = worker->purger;

	pthread_mutex_lock(&p->lock);
	while (!atomic_load(&p->stop)) {
		uint64_t until;
		struct job *job = next_job(p, &until);

		if (job != NULL)
			run_job(p, job);
		else if (p->waiting == 0)
			wait_until(p, until);
		else
			break; /* one thread without a job is enough */
	}
	worker->state = WORKER_ENDED;
	if (atomic_load(&p->stop))
		pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* -------- from outside -------- */

enum request_flags {
	REQUEST_HAS_WORK = 1 << 0, /* the trash is not empty, as far as the caller knows */
	REQUEST_RESTARTS = 1 << 1, /* make an existing job due, too */
	REQUEST_IS_REACHED = 1 << 2, /* a call has just reached the server */
};

static int request_job(struct purger *p, const struct nfs_export *e, unsigned int flags)
{
	const bool restarts = (flags & REQUEST_RESTARTS) != 0;
	const uint64_t now = clock_now_ns();
	struct job *job;
	bool is_earlier;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	job = find_job(p, e);
	is_earlier = job == NULL || restarts;
	if (job == NULL)
		r = add_job(p, e, now, &job);
	else if ((flags & REQUEST_IS_REACHED) != 0 && job_is_hastened(job))
		is_earlier = true;
	if (r == 0) {
		job->used_ns = now;
		job->has_work = job->has_work || (flags & REQUEST_HAS_WORK) != 0;
	}
	if (r == 0 && restarts) {
		job->again = job->running;
		job->due_ns = now + START_DELAY_MS * CLOCK_NS_PER_MS;
	}
	if (r == 0 && is_earlier)
		r = need_watcher(p);
	pthread_mutex_unlock(&p->lock);
	return r;
}

int purger_add(struct purger *p, const struct nfs_export *e)
{
	return request_job(p, e, REQUEST_HAS_WORK | REQUEST_RESTARTS);
}

int purger_note(struct purger *p, const struct nfs_export *e)
{
	return request_job(p, e, REQUEST_IS_REACHED);
}

static int note_other_identity(void *data, const struct nfs_export *e)
{
	return request_job(data, e, REQUEST_HAS_WORK);
}

/* Called with the lock held. */
static bool has_threads(const struct purger *p)
{
	size_t i;

	for (i = 0; i < PURGE_WORKERS_MAX; i++)
		if (p->workers[i].state == WORKER_ALIVE)
			return true;
	return false;
}

bool purger_stop(struct purger *p, unsigned int ms)
{
	const uint64_t until = clock_now_ns() + ms * CLOCK_NS_PER_MS;
	bool ended;

	atomic_store(&p->stop, true);
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->changed);
	while (has_threads(p) && clock_now_ns() < until)
		wait_until(p, until);
	ended = !has_threads(p);
	pthread_mutex_unlock(&p->lock);
	return ended;
}

void purger_free(struct purger *p)
{
	bool is_there[PURGE_WORKERS_MAX];
	struct list *pos, *tmp;
	size_t i;

	if (p == NULL)
		return;
	atomic_store(&p->stop, true);
	pthread_mutex_lock(&p->lock);
	pthread_cond_broadcast(&p->changed);
	for (i = 0; i < PURGE_WORKERS_MAX; i++)
		is_there[i] = p->workers[i].state != WORKER_NONE;
	pthread_mutex_unlock(&p->lock);
	for (i = 0; i < PURGE_WORKERS_MAX; i++)
		if (is_there[i])
			pthread_join(p->workers[i].thread, NULL);
	list_for_each_safe(pos, tmp, &p->jobs)
		job_free(p, container_of(pos, struct job, link));
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
