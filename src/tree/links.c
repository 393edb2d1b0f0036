/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/links.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/str.h"

#define BUCKETS 4096
#define DONE_MAX 4096 /* files of which all names seem to have come */
#define PATH_BYTES_MAX (6U * 1024 * 1024) /* of all paths that are remembered */

struct known {
	struct known *next;
	struct tree_link_id id;
	uint32_t left; /* names that are still to come, by the server's count */
	struct list done; /* in tree_links.done once none is */
	char path[];
};

struct tree_links {
	struct known *buckets[BUCKETS];
	struct known *last; /* that was taken out: its path may be in the caller's hands */
	struct list done; /* those that no more names should come of, the oldest first */
	size_t n, max, n_done;
	size_t bytes;
};

int tree_links_new(struct tree_links **ret, size_t max)
{
	struct tree_links *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return -ENOMEM;
	l->max = max;
	list_init(&l->done);
	*ret = l;
	return 0;
}

void tree_links_free(struct tree_links *l)
{
	size_t i;

	if (l == NULL)
		return;
	for (i = 0; i < BUCKETS; i++) {
		struct known *k = l->buckets[i], *next;

		for (; k != NULL; k = next) {
			next = k->next;
			free(k);
		}
	}
	free(l->last);
	free(l);
}

static bool is_same(const struct tree_link_id *a, const struct tree_link_id *b)
{
	return a->fileid == b->fileid && a->fsid == b->fsid && a->fsid_minor == b->fsid_minor &&
	       (a->handle == b->handle || a->state == b->state);
}

static struct known **find(struct tree_links *l, const struct tree_link_id *id)
{
	const uint64_t n = id->fileid;
	struct known **at = &l->buckets[(n ^ n >> 12 ^ n >> 24) % BUCKETS];

	while (*at != NULL && !is_same(&(*at)->id, id))
		at = &(*at)->next;
	return at;
}

static void take_out(struct tree_links *l, struct known **at)
{
	struct known *k = *at;

	*at = k->next;
	if (!list_is_empty(&k->done))
		l->n_done--;
	list_remove(&k->done);
	l->n--;
	l->bytes -= strlen(k->path);
	free(l->last);
	l->last = k;
}

/*
 * A server whose count of names is old has it too low, while links are made or just after. So what should
 * be done stays a while longer, as long as there is room.
 */
static void make_room(struct tree_links *l, size_t len)
{
	while (l->n_done > DONE_MAX ||
	       (l->n_done > 0 && (l->n >= l->max || l->bytes + len > PATH_BYTES_MAX)))
		take_out(l, find(l, &container_of(l->done.next, struct known, done)->id));
}

static int add(struct tree_links *l, const struct tree_link_id *id, uint32_t names, const char *path)
{
	struct known **bucket;
	size_t len = strlen(path);
	struct known *k;

	make_room(l, len);
	bucket = find(l, id); /* which what was taken out may have stood before */
	if (l->n >= l->max || l->bytes + len > PATH_BYTES_MAX)
		return 0;
	k = malloc(sizeof(*k) + len + 1);
	if (k == NULL)
		return -ENOMEM;
	k->next = *bucket;
	k->id = *id;
	k->left = names - 1;
	list_init(&k->done);
	memcpy(k->path, path, len + 1);
	*bucket = k;
	l->n++;
	l->bytes += len;
	return 0;
}

struct tree_link_id tree_link_id_of(const struct nfs_handle *handle, const struct nfs_attr *attr)
{
	const uint64_t state[] = { attr->size, (uint64_t)attr->mtime.sec, attr->mtime.nsec,
				   (uint64_t)attr->ctime.sec, attr->ctime.nsec };

	return (struct tree_link_id){
		.fileid = attr->fileid,
		.fsid = attr->fsid,
		.fsid_minor = attr->fsid_minor,
		.handle = str_hash(handle->data, handle->len),
		.state = str_hash(state, sizeof(state)),
	};
}

int tree_links_find(struct tree_links *l, const struct tree_link_id *id, uint32_t names,
		    const char *path, const char **ret)
{
	struct known **at = find(l, id), *k = *at;

	*ret = NULL;
	if (k == NULL)
		return add(l, id, names, path);
	*ret = k->path;
	if (k->left > 0 && --k->left == 0) {
		list_add_tail(&l->done, &k->done);
		l->n_done++;
	}
	return 0;
}

void tree_links_forget(struct tree_links *l, const struct tree_link_id *id)
{
	struct known **at = find(l, id);

	if (*at != NULL)
		take_out(l, at);
}
