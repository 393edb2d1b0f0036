/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "node/stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/request.h"
#include "base/str.h"
#include "csi/validate.h"

#define BUCKETS 256

struct sample {
	struct list link; /* in its bucket */
	char *path;
	char *source; /* what was mounted there */
	struct mount_usage usage;
	uint64_t taken_ns, asked_ns;
};

struct node_stats {
	pthread_mutex_t lock; /* guards what follows; innermost */
	struct list buckets[BUCKETS];
	size_t n;
};

int node_stats_new(struct node_stats **ret)
{
	struct node_stats *s = calloc(1, sizeof(*s));
	size_t i;

	if (s == NULL)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	for (i = 0; i < BUCKETS; i++)
		list_init(&s->buckets[i]);
	*ret = s;
	return 0;
}

static void sample_free(struct sample *sample)
{
	free(sample->path);
	free(sample->source);
	free(sample);
}

static void drop(struct node_stats *s, struct sample *sample)
{
	list_remove(&sample->link);
	sample_free(sample);
	s->n--;
}

void node_stats_free(struct node_stats *s)
{
	size_t i;

	if (s == NULL)
		return;
	for (i = 0; i < BUCKETS; i++) {
		struct list *pos, *tmp;

		list_for_each_safe(pos, tmp, &s->buckets[i])
			drop(s, container_of(pos, struct sample, link));
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void node_stats_sweep(struct node_stats *s)
{
	uint64_t now = clock_now_ns();
	size_t i;

	pthread_mutex_lock(&s->lock);
	for (i = 0; i < BUCKETS; i++) {
		struct list *pos, *tmp;

		list_for_each_safe(pos, tmp, &s->buckets[i]) {
			struct sample *sample = container_of(pos, struct sample, link);

			if (now - sample->asked_ns > STATS_FORGET_S * CLOCK_NS_PER_S)
				drop(s, sample);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

static struct list *bucket_of(struct node_stats *s, const char *path)
{
	return &s->buckets[str_hash(path, strlen(path)) % BUCKETS];
}

/* Called with the lock held. What was mounted there before tells nothing of what is there now. */
static struct sample *find(struct node_stats *s, const char *path, const char *source)
{
	struct list *pos;

	list_for_each(pos, bucket_of(s, path)) {
		struct sample *sample = container_of(pos, struct sample, link);

		if (strcmp(sample->path, path) != 0)
			continue;
		if (strcmp(sample->source, source) == 0)
			return sample;
		drop(s, sample);
		return NULL;
	}
	return NULL;
}

/* What is remembered, if anything; *ret_fresh: it may be told as it is. */
static bool recall(struct node_stats *s, const char *path, const char *source,
		   struct mount_usage *ret, bool *ret_fresh)
{
	uint64_t now = clock_now_ns();
	struct sample *sample;

	*ret_fresh = false;
	pthread_mutex_lock(&s->lock);
	sample = find(s, path, source);
	if (sample != NULL) {
		sample->asked_ns = now;
		*ret = sample->usage;
		*ret_fresh = now - sample->taken_ns < STATS_FRESH_MS * CLOCK_NS_PER_MS;
	}
	pthread_mutex_unlock(&s->lock);
	return sample != NULL;
}

/* Called with the lock held. NULL without memory or room: then the next call looks again. */
static struct sample *add(struct node_stats *s, const char *path, const char *source)
{
	struct sample *sample;

	if (s->n == STATS_MAX)
		return NULL;
	sample = calloc(1, sizeof(*sample));
	if (sample == NULL)
		return NULL;
	sample->path = strdup(path);
	sample->source = strdup(source);
	if (sample->path == NULL || sample->source == NULL) {
		sample_free(sample);
		return NULL;
	}
	list_add_tail(bucket_of(s, path), &sample->link);
	s->n++;
	return sample;
}

static void remember(struct node_stats *s, const char *path, const char *source,
		     const struct mount_usage *usage)
{
	struct sample *sample;

	pthread_mutex_lock(&s->lock);
	sample = find(s, path, source);
	if (sample == NULL)
		sample = add(s, path, source);
	if (sample != NULL) {
		sample->usage = *usage;
		sample->taken_ns = sample->asked_ns = clock_now_ns();
	}
	pthread_mutex_unlock(&s->lock);
}

/* What a volume's mount is like. */
struct stats {
	struct mount_usage usage; /* now, or when it last answered; zeros where that is not known */
	struct error condition; /* ERROR_OK: it answers */
};

static int check(const Csi__V1__NodeGetVolumeStatsRequest *in, struct error *err)
{
	int r;

	r = validate_volume_id(in->volume_id, err);
	return r < 0 ? r : validate_required(in->volume_path, "volume_path", err);
}

static int not_mounted(const char *path, struct error *err)
{
	return error_set(err, ERROR_NOT_FOUND, "volume_path: no NFS volume is mounted at '%.512s'",
			 path);
}

static int find_mount(struct mounter *m, const char *path, struct mount_info **ret, struct error *err)
{
	int r;

	*ret = NULL;
	if (path[0] != '/' || strlen(path) > CSI_PATH_MAX)
		return not_mounted(path, err);
	r = m->ops->find(m, path, ret, err);
	if (r == 0 && (*ret == NULL || !mount_info_is_nfs(*ret)))
		return not_mounted(path, err);
	return r;
}

static int collect(const struct node_driver *driver, const Csi__V1__NodeGetVolumeStatsRequest *in,
		   struct stats *x, struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct mounter *m = driver->mounter;
	const char *path = in->volume_path;
	struct mount_usage now;
	bool fresh, known;
	int r;

	r = check(in, err);
	if (r == 0)
		r = find_mount(m, path, &info, err);
	if (r < 0)
		return r;
	known = recall(driver->stats, path, info->source, &x->usage, &fresh);
	if (known && fresh)
		return 0;
	if (m->ops->usage(m, path, info, &now, &x->condition) == 0) {
		x->usage = now;
		remember(driver->stats, path, info->source, &now);
	}
	return 0;
}

static int64_t cut(uint64_t n)
{
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static void fill_in(Csi__V1__VolumeUsage *usage, Csi__V1__VolumeUsage__Unit unit, uint64_t total,
		    uint64_t used, uint64_t available)
{
	csi__v1__volume_usage__init(usage);
	usage->unit = unit;
	usage->total = cut(total);
	usage->used = cut(used);
	usage->available = cut(available);
}

static void reply(const struct stats *x, Csi__V1__NodeGetVolumeStatsResponse_Closure closure,
		  void *data)
{
	Csi__V1__NodeGetVolumeStatsResponse out = CSI__V1__NODE_GET_VOLUME_STATS_RESPONSE__INIT;
	Csi__V1__VolumeCondition condition = CSI__V1__VOLUME_CONDITION__INIT;
	const struct mount_usage *u = &x->usage;
	Csi__V1__VolumeUsage usages[2];
	Csi__V1__VolumeUsage *list[2] = { &usages[0], &usages[1] };

	fill_in(&usages[0], CSI__V1__VOLUME_USAGE__UNIT__BYTES, u->bytes_total, u->bytes_used,
		u->bytes_available);
	fill_in(&usages[1], CSI__V1__VOLUME_USAGE__UNIT__INODES, u->inodes_total, u->inodes_used,
		u->inodes_available);
	condition.abnormal = x->condition.code != ERROR_OK;
	condition.message =
		(char *)(uintptr_t)(condition.abnormal ? x->condition.msg : "the volume answers");
	out.usage = list;
	out.n_usage = ARRAY_SIZE(list);
	out.volume_condition = &condition;
	closure(&out, data);
}

void node_node_get_volume_stats(Csi__V1__Node_Service *service,
				const Csi__V1__NodeGetVolumeStatsRequest *in,
				Csi__V1__NodeGetVolumeStatsResponse_Closure closure, void *data)
{
	const struct node_driver *driver = container_of(service, struct node_service, service)->driver;
	struct stats x = { .condition = { .code = ERROR_OK } };
	struct request *req = data;

	(void)snprintf(req->subject, sizeof(req->subject), "%s", in->volume_id);
	if (collect(driver, in, &x, &req->err) < 0)
		closure(NULL, data);
	else
		reply(&x, closure, data);
}
