/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/hardlinks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"

#define BUCKETS 4096
#define COMPLETE_MAX 4096 /* files remembered after the last name that the server counts */
#define PATH_BYTES_MAX (6U * 1024 * 1024) /* of all paths */

struct hardlink_file {
	struct hardlink_file *next; /* in the bucket */
	struct tree_hardlink_id id;
	uint32_t left; /* names not seen yet, by the server's count */
	struct list complete; /* in tree_hardlinks.complete once left is 0 */
	char path[];
};

struct tree_hardlinks {
	struct hardlink_file *buckets[BUCKETS];
	struct hardlink_file *removed; /* last; the caller may still use its path */
	struct list complete; /* files with all names seen, oldest first */
	size_t n, max, n_complete;
	size_t bytes; /* of paths */
	bool settled, names_differ; /* see tree_hardlinks_settle() */
};

int tree_hardlinks_new(struct tree_hardlinks **ret, size_t max)
{
	struct tree_hardlinks *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return -ENOMEM;
	l->max = max;
	l->names_differ = true; /* until it is settled */
	list_init(&l->complete);
	*ret = l;
	return 0;
}

void tree_hardlinks_free(struct tree_hardlinks *l)
{
	size_t i;

	if (l == NULL)
		return;
	for (i = 0; i < BUCKETS; i++) {
		struct hardlink_file *file = l->buckets[i], *next;

		for (; file != NULL; file = next) {
			next = file->next;
			free(file);
		}
	}
	free(l->removed);
	free(l);
}

static bool has_same_number(const struct tree_hardlink_id *a, const struct tree_hardlink_id *b)
{
	return a->fileid == b->fileid && a->fsid == b->fsid && a->fsid_minor == b->fsid_minor;
}

static bool hardlink_id_is_equal(const struct tree_hardlinks *l, const struct tree_hardlink_id *a,
				 const struct tree_hardlink_id *b)
{
	return has_same_number(a, b) &&
	       (a->handle == b->handle || (l->names_differ && a->state == b->state));
}

static struct hardlink_file **hardlink_bucket(struct tree_hardlinks *l,
					      const struct tree_hardlink_id *id)
{
	const uint64_t n = id->fileid;

	return &l->buckets[(n ^ n >> 12 ^ n >> 24) % BUCKETS];
}

/* Return the pointer in the bucket's chain that leads to the file, or the NULL at its end. */
static struct hardlink_file **hardlink_slot(struct tree_hardlinks *l,
					    const struct tree_hardlink_id *id)
{
	struct hardlink_file **slot = hardlink_bucket(l, id);

	while (*slot != NULL && !hardlink_id_is_equal(l, &(*slot)->id, id))
		slot = &(*slot)->next;
	return slot;
}

static void hardlink_remove(struct tree_hardlinks *l, struct hardlink_file **slot)
{
	struct hardlink_file *file = *slot;

	*slot = file->next;
	if (!list_is_empty(&file->complete))
		l->n_complete--;
	list_remove(&file->complete);
	l->n--;
	l->bytes -= strlen(file->path);
	free(l->removed);
	l->removed = file;
}

static bool hardlinks_are_full(const struct tree_hardlinks *l, size_t len)
{
	return l->n >= l->max || l->bytes + len > PATH_BYTES_MAX;
}

static int hardlink_add(struct tree_hardlinks *l, const struct tree_hardlink_id *id, uint32_t names,
			const char *path)
{
	struct hardlink_file **slot, *file;
	size_t len = strlen(path);

	while (l->n_complete > COMPLETE_MAX || (l->n_complete > 0 && hardlinks_are_full(l, len))) {
		file = container_of(l->complete.next, struct hardlink_file, complete);
		hardlink_remove(l, hardlink_slot(l, &file->id));
	}
	if (hardlinks_are_full(l, len))
		return 0;
	file = malloc(sizeof(*file) + len + 1);
	if (file == NULL)
		return -ENOMEM;
	slot = hardlink_slot(l, id);
	file->next = *slot;
	file->id = *id;
	file->left = names - 1;
	list_init(&file->complete);
	memcpy(file->path, path, len + 1);
	*slot = file;
	l->n++;
	l->bytes += len;
	return 0;
}

struct tree_hardlink_id tree_hardlink_id_of(const struct nfs_handle *handle,
					    const struct nfs_attr *attr)
{
	const uint64_t state[] = { attr->size, (uint64_t)attr->mtime.sec, attr->mtime.nsec,
				   (uint64_t)attr->ctime.sec, attr->ctime.nsec };

	return (struct tree_hardlink_id){
		.fileid = attr->fileid,
		.fsid = attr->fsid,
		.fsid_minor = attr->fsid_minor,
		.handle = str_hash(handle->data, handle->len),
		.state = str_hash(state, sizeof(state)),
	};
}

bool tree_hardlinks_are_unsure(struct tree_hardlinks *l, const struct tree_hardlink_id *id)
{
	const struct hardlink_file *file;
	bool other = false;

	if (l->settled)
		return false;
	for (file = *hardlink_bucket(l, id); file != NULL; file = file->next) {
		if (!has_same_number(&file->id, id))
			continue;
		if (file->id.handle == id->handle)
			return false;
		other = other || file->id.state == id->state;
	}
	return other;
}

void tree_hardlinks_settle(struct tree_hardlinks *l, bool names_differ)
{
	l->settled = true;
	l->names_differ = names_differ;
}

int tree_hardlinks_find(struct tree_hardlinks *l, const struct tree_hardlink_id *id, uint32_t names,
			const char *path, const char **ret)
{
	struct hardlink_file *file = *hardlink_slot(l, id);

	*ret = NULL;
	if (file == NULL)
		return hardlink_add(l, id, names, path);
	*ret = file->path;
	if (file->left > 0 && --file->left == 0) {
		list_add_tail(&l->complete, &file->complete);
		l->n_complete++;
	}
	return 0;
}

bool tree_hardlinks_have(struct tree_hardlinks *l, const struct tree_hardlink_id *id)
{
	return *hardlink_slot(l, id) != NULL;
}

void tree_hardlinks_forget(struct tree_hardlinks *l, const struct tree_hardlink_id *id)
{
	struct hardlink_file **slot = hardlink_slot(l, id);

	if (*slot != NULL)
		hardlink_remove(l, slot);
}
