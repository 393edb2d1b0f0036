/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* NodeGetVolumeStats: report how full a volume is, and whether its mount works. */

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
#include "node/node.h"

#define BUCKETS 256

struct sample {
	struct list link; /* in its bucket */
	char *path; /* of the mount */
	char *source; /* of the mount, "server:/path" */
	struct mount_usage usage;
	uint64_t taken_ns, asked_ns;
};

struct node_stats {
	pthread_mutex_t lock; /* guards the buckets and n; innermost */
	struct list buckets[BUCKETS]; /* of samples, by path */
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

static void sample_drop(struct node_stats *s, struct sample *sample)
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
			sample_drop(s, container_of(pos, struct sample, link));
	}
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void node_stats_sweep(struct node_stats *s)
{
	uint64_t now;
	size_t i;

	pthread_mutex_lock(&s->lock);
	now = clock_now_ns(); /* not before asked_ns of any */
	for (i = 0; i < BUCKETS; i++) {
		struct list *pos, *tmp;

		list_for_each_safe(pos, tmp, &s->buckets[i]) {
			struct sample *sample = container_of(pos, struct sample, link);

			if (now - sample->asked_ns > NODE_STATS_FORGET_S * CLOCK_NS_PER_S)
				sample_drop(s, sample);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

static struct list *stats_bucket(struct node_stats *s, const char *path)
{
	return &s->buckets[str_hash(path, strlen(path)) % BUCKETS];
}

/* Called with the lock held. Drops a sample of another source: that mount is gone. */
static struct sample *sample_find(struct node_stats *s, const char *path, const char *source)
{
	struct list *pos;

	list_for_each(pos, stats_bucket(s, path)) {
		struct sample *sample = container_of(pos, struct sample, link);

		if (strcmp(sample->path, path) != 0)
			continue;
		if (strcmp(sample->source, source) == 0)
			return sample;
		sample_drop(s, sample);
		return NULL;
	}
	return NULL;
}

/* Returns whether a sample is remembered. *ret_fresh: it is new enough to be the answer. */
static bool stats_recall(struct node_stats *s, const char *path, const char *source,
			 struct mount_usage *ret, bool *ret_fresh)
{
	struct sample *sample;
	uint64_t now;

	*ret_fresh = false;
	pthread_mutex_lock(&s->lock);
	now = clock_now_ns(); /* not before taken_ns */
	sample = sample_find(s, path, source);
	if (sample != NULL) {
		sample->asked_ns = now;
		*ret = sample->usage;
		*ret_fresh = now - sample->taken_ns < NODE_STATS_FRESH_MS * CLOCK_NS_PER_MS;
	}
	pthread_mutex_unlock(&s->lock);
	return sample != NULL;
}

/* Called with the lock held. Returns NULL without memory or room; the next call will look again. */
static struct sample *sample_add(struct node_stats *s, const char *path, const char *source)
{
	struct sample *sample;

	if (s->n == NODE_STATS_MAX)
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
	list_add_tail(stats_bucket(s, path), &sample->link);
	s->n++;
	return sample;
}

static void stats_remember(struct node_stats *s, const char *path, const char *source,
			   const struct mount_usage *usage)
{
	struct sample *sample;

	pthread_mutex_lock(&s->lock);
	sample = sample_find(s, path, source);
	if (sample == NULL)
		sample = sample_add(s, path, source);
	if (sample != NULL) {
		sample->usage = *usage;
		sample->taken_ns = sample->asked_ns = clock_now_ns();
	}
	pthread_mutex_unlock(&s->lock);
}

static int volume_not_mounted(const char *path, struct error *err)
{
	return error_set(err, ERROR_NOT_FOUND, "volume_path: no NFS volume is mounted at '%.512s'",
			 path);
}

static int volume_find_mount(struct mounter *m, const char *path, struct mount_info **ret,
			     struct error *err)
{
	int r;

	*ret = NULL;
	if (path[0] != '/' || strlen(path) > CSI_PATH_MAX)
		return volume_not_mounted(path, err);
	r = m->ops->find(m, path, ret, err);
	if (r == 0 && (*ret == NULL || !mount_info_is_nfs(*ret)))
		return volume_not_mounted(path, err);
	return r;
}

/*
 * Whether a look failed since the volume was unpublished meanwhile: its directory was gone, or
 * umount by force has failed the call.
 */
static bool volume_has_gone(struct mounter *m, const char *path)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct error why = { .code = ERROR_OK };

	return volume_find_mount(m, path, &info, &why) < 0 && why.code == ERROR_NOT_FOUND;
}

/*
 * Get the current usage. If the mount does not answer, keep the last known usage (zeros if there is
 * none) and set condition to the reason. Fail if nobody could look: that says nothing about the
 * volume.
 */
static int usage_get(const struct node_driver *driver, const Csi__V1__NodeGetVolumeStatsRequest *in,
		     struct mount_usage *usage, struct error *condition, struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct mounter *m = driver->mounter;
	const char *path = in->volume_path;
	struct mount_usage now;
	bool is_fresh;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	r = validate_required(path, "volume_path", err);
	if (r < 0)
		return r;
	r = volume_find_mount(m, path, &info, err);
	if (r < 0)
		return r;
	if (stats_recall(driver->stats, path, info->source, usage, &is_fresh) && is_fresh)
		return 0;
	r = m->ops->usage(m, path, info, &now, condition);
	if (r == -EUSERS || r == -ENXIO) {
		*err = *condition;
		return r;
	}
	if (r < 0 && volume_has_gone(m, path))
		return volume_not_mounted(path, err);
	if (r == 0) {
		*usage = now;
		stats_remember(driver->stats, path, info->source, &now);
	}
	return 0;
}

static int64_t usage_number(uint64_t n)
{
	return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static void usage_init(Csi__V1__VolumeUsage *usage, Csi__V1__VolumeUsage__Unit unit, uint64_t total,
		       uint64_t used, uint64_t available)
{
	csi__v1__volume_usage__init(usage);
	usage->unit = unit;
	usage->total = usage_number(total);
	usage->used = usage_number(used);
	usage->available = usage_number(available);
}

void node_get_volume_stats(Csi__V1__Node_Service *s, const Csi__V1__NodeGetVolumeStatsRequest *in,
			   Csi__V1__NodeGetVolumeStatsResponse_Closure closure, void *data)
{
	Csi__V1__NodeGetVolumeStatsResponse out = CSI__V1__NODE_GET_VOLUME_STATS_RESPONSE__INIT;
	Csi__V1__VolumeCondition condition = CSI__V1__VOLUME_CONDITION__INIT;
	Csi__V1__VolumeUsage entries[2], *list[2] = { &entries[0], &entries[1] };
	struct error trouble = { .code = ERROR_OK };
	struct mount_usage usage = { 0 };
	struct request *call = data;

	(void)snprintf(call->subject, sizeof(call->subject), "%s", in->volume_id);
	if (usage_get(node_driver_of(s), in, &usage, &trouble, &call->err) < 0) {
		closure(NULL, data);
		return;
	}
	usage_init(&entries[0], CSI__V1__VOLUME_USAGE__UNIT__BYTES, usage.bytes_total,
		   usage.bytes_used, usage.bytes_available);
	usage_init(&entries[1], CSI__V1__VOLUME_USAGE__UNIT__INODES, usage.inodes_total,
		   usage.inodes_used, usage.inodes_available);
	condition.abnormal = trouble.code != ERROR_OK;
	condition.message =
		(char *)(uintptr_t)(condition.abnormal ? trouble.msg : "the volume is accessible");
	out.usage = list;
	out.n_usage = ARRAY_SIZE(list);
	out.volume_condition = &condition;
	closure(&out, data);
}
