/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/builder_target.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static size_t target_size(const struct builder_target *target)
{
	return sizeof(*target) + strlen(target->path) + 1;
}

static void target_free(struct builder_targets *targets, struct builder_target *target)
{
	targets->bytes -= target_size(target);
	free(target);
}

/* Return the pointer in the bucket's chain that leads to the target, or the NULL at its end. */
static struct builder_target **target_slot(struct builder_targets *targets, const char *path)
{
	struct builder_target **slot =
		&targets->buckets[str_hash(path, strlen(path)) % BUILDER_TARGET_BUCKETS];

	while (*slot != NULL && strcmp((*slot)->path, path) != 0)
		slot = &(*slot)->next_in_bucket;
	return slot;
}

void builder_targets_init(struct builder_targets *targets)
{
	list_init(&targets->age);
}

void builder_target_forget(struct builder_targets *targets, const char *path)
{
	struct builder_target **slot = target_slot(targets, path);
	struct builder_target *target = *slot;

	if (target == NULL)
		return;
	*slot = target->next_in_bucket;
	target->next_in_bucket = NULL;
	target->forgotten = true;
	list_remove(&target->age);
	if (target->users == 0)
		target_free(targets, target);
}

void builder_targets_done(struct builder_targets *targets)
{
	while (!list_is_empty(&targets->age))
		builder_target_forget(targets,
				      container_of(targets->age.next, struct builder_target, age)
					      ->path);
}

bool builder_targets_make_room(struct builder_targets *targets, const char *path)
{
	const size_t size = sizeof(struct builder_target) + strlen(path) + 1;
	struct list *pos = targets->age.next, *next;

	for (; targets->bytes + size > BUILDER_TARGET_BYTES && pos != &targets->age; pos = next) {
		const struct builder_target *target = container_of(pos, struct builder_target, age);

		next = pos->next;
		/* To forget one in use would free nothing. */
		if (target->users == 0)
			builder_target_forget(targets, target->path);
	}
	return targets->bytes + size <= BUILDER_TARGET_BYTES;
}

struct builder_target *builder_target_find(struct builder_targets *targets, const char *path)
{
	struct builder_target *target = *target_slot(targets, path);

	if (target != NULL) {
		list_remove(&target->age);
		list_add_tail(&targets->age, &target->age);
	}
	return target;
}

struct builder_target *builder_target_add(struct builder_targets *targets, const char *path)
{
	size_t len = strlen(path);
	struct builder_target *target = calloc(1, sizeof(*target) + len + 1);

	if (target == NULL)
		return NULL;
	memcpy(target->path, path, len + 1);
	list_init(&target->waiting);
	target->users = 1;
	builder_target_forget(targets, path);
	(void)builder_targets_make_room(targets, path); /* the caller has waited for it */
	targets->bytes += target_size(target);
	*target_slot(targets, path) = target;
	list_add_tail(&targets->age, &target->age);
	return target;
}

void builder_target_use(struct builder_target *target)
{
	target->users++;
}

void builder_target_release(struct builder_targets *targets, struct builder_target *target)
{
	if (target != NULL && --target->users == 0 && target->forgotten)
		target_free(targets, target);
}
