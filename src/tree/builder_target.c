/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder_target.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static size_t size_of(const struct builder_target *target)
{
	return sizeof(*target) + strlen(target->path) + 1;
}

static struct builder_target **place_of(struct builder_targets *targets, const char *path)
{
	struct builder_target **pos =
		&targets->buckets[str_hash(path, strlen(path)) % BUILDER_TARGET_BUCKETS];

	while (*pos != NULL && strcmp((*pos)->path, path) != 0)
		pos = &(*pos)->next_in_bucket;
	return pos;
}

void builder_targets_init(struct builder_targets *targets)
{
	list_init(&targets->age);
}

static void forget(struct builder_targets *targets, struct builder_target **pos)
{
	struct builder_target *target = *pos;

	*pos = target->next_in_bucket;
	target->next_in_bucket = NULL;
	target->forgotten = true;
	list_remove(&target->age);
	targets->bytes -= size_of(target);
	if (target->users == 0)
		free(target);
}

void builder_targets_done(struct builder_targets *targets)
{
	while (!list_is_empty(&targets->age)) {
		struct builder_target *first =
			container_of(targets->age.next, struct builder_target, age);

		forget(targets, place_of(targets, first->path));
	}
}

struct builder_target *builder_target_find(struct builder_targets *targets, const char *path)
{
	struct builder_target *target = *place_of(targets, path);

	if (target != NULL) {
		list_remove(&target->age);
		list_add_tail(&targets->age, &target->age);
	}
	return target;
}

void builder_target_forget(struct builder_targets *targets, const char *path)
{
	struct builder_target **pos = place_of(targets, path);

	if (*pos != NULL)
		forget(targets, pos);
}

struct builder_target *builder_target_add(struct builder_targets *targets, const char *path)
{
	size_t len = strlen(path);
	struct builder_target *target = calloc(1, sizeof(*target) + len + 1);
	struct builder_target **pos;

	if (target == NULL)
		return NULL;
	memcpy(target->path, path, len + 1);
	list_init(&target->waiting);
	target->users = 1;
	builder_target_forget(targets, path);
	targets->bytes += size_of(target);
	while (targets->bytes > BUILDER_TARGET_BYTES && !list_is_empty(&targets->age)) {
		struct builder_target *first =
			container_of(targets->age.next, struct builder_target, age);

		forget(targets, place_of(targets, first->path));
	}
	pos = place_of(targets, path);
	*pos = target;
	list_add_tail(&targets->age, &target->age);
	return target;
}

void builder_target_use(struct builder_target *target)
{
	target->users++;
}

void builder_target_release(struct builder_target *target)
{
	if (target != NULL && --target->users == 0 && target->forgotten)
		free(target);
}
