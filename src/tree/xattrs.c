/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "tree/xattrs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tree/work.h"

#define OVERHEAD 32 /* of two pieces of memory */
#define TAR_ESCAPED 3 /* bytes that a byte of a name may take in a tar */

/* Bytes of memory for an item without its value, or of a tar's headers, where that is more. */
static size_t item_size(size_t len)
{
	return sizeof(struct tree_xattr) + OVERHEAD + TAR_ESCAPED * len + 1;
}

struct tree_xattrs *tree_xattrs_new(void)
{
	struct tree_xattrs *set = calloc(1, sizeof(*set));

	if (set != NULL)
		set->shares = 1;
	return set;
}

struct tree_xattrs *tree_xattrs_share(struct tree_xattrs *set)
{
	set->shares++;
	return set;
}

void tree_xattrs_drop(struct tree_xattrs *set)
{
	if (set == NULL || --set->shares > 0)
		return;
	while (set->n > 0)
		tree_xattrs_remove(set, set->n - 1);
	free(set->items);
	free(set);
}

int tree_xattrs_add(struct tree_xattrs *set, const char *name, size_t len)
{
	const size_t bytes = item_size(len);
	struct tree_xattr *items;
	char *copy;

	if (len == 0 || len > NFS_XATTR_NAME_MAX || memchr(name, '\0', len) != NULL)
		return -EINVAL;
	if (bytes > TREE_XATTRS_MAX - set->bytes)
		return -E2BIG;
	copy = strndup(name, len);
	items = reallocarray(set->items, set->n + 1, sizeof(*items));
	if (items != NULL)
		set->items = items;
	if (copy == NULL || items == NULL) {
		free(copy);
		return -ENOMEM;
	}
	items[set->n++] = (struct tree_xattr){ .name = copy };
	set->bytes += bytes;
	return 0;
}

int tree_xattrs_set(struct tree_xattrs *set, size_t i, const void *value, size_t len)
{
	char *copy;

	if (len > TREE_XATTRS_MAX - set->bytes)
		return -E2BIG;
	copy = malloc(len + 1);
	if (copy == NULL)
		return -ENOMEM;
	if (len > 0)
		memcpy(copy, value, len);
	set->items[i].value = copy;
	set->items[i].len = (uint32_t)len;
	set->bytes += len;
	return 0;
}

void tree_xattrs_remove(struct tree_xattrs *set, size_t i)
{
	struct tree_xattr *item = &set->items[i];

	set->bytes -= item_size(strlen(item->name)) + item->len;
	free(item->name);
	free(item->value);
	*item = set->items[--set->n];
}

void tree_xattrs_lose(struct tree_work *work, uint64_t n, int error)
{
	if (n > 0 && work->progress.xattrs_lost == 0)
		work->progress.xattr_error = error;
	work->progress.xattrs_lost += n;
}

bool tree_xattrs_is_loss(int error)
{
	switch (error) {
	case -E2BIG:
	case -EACCES:
	case -EILSEQ:
	case -EINVAL:
	case -EMSGSIZE:
	case -ENAMETOOLONG:
	case -ENODATA:
	case -ENOSPC:
	case -EOPNOTSUPP:
	case -EPERM:
	case -ERANGE:
		return true;
	default:
		return false;
	}
}
