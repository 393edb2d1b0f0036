/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/layout.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"

#define FOLDER_MODE 0700
#define FOLDER_MODE_SHARED 01777

static const char *const folder_names[] = {
	[STORE_TOP] = NFS_STATE_DIR, [STORE_VOLUMES] = "volumes",     [STORE_PARENTS] = "parents",
	[STORE_USERS] = "users",     [STORE_SNAPSHOTS] = "snapshots", [STORE_WORK] = "work",
	[STORE_TRASH] = "trash",     [STORE_BUSY] = "busy",
};

static_assert(ARRAY_SIZE(folder_names) == NFS_FOLDERS, "a client keeps a handle for each folder");

/*
 * Make a folder. If root turns out to be another user on the server, it is squashed and needs the
 * shared mode. Without the right mode the folder still works for the identity that made it.
 */
static int make_store_folder(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			     struct nfs_handle *ret, struct nfs_attr *ret_attr)
{
	uint32_t mode = c->export.uid == 0 ? FOLDER_MODE : FOLDER_MODE_SHARED;
	int r;

	r = nfs_mkdir(c, dir, name, mode, ret, ret_attr);
	if (r < 0)
		return r;
	if (ret_attr->has_owner && ret_attr->uid != 0)
		mode = FOLDER_MODE_SHARED;
	if (ret_attr->mode != mode)
		(void)nfs_setmode(c, ret, mode);
	return 0;
}

static int open_or_make(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			bool create, struct nfs_handle *ret, bool *ret_made, struct error *err)
{
	struct nfs_handle handle;
	struct nfs_attr attr;
	int r;

	*ret_made = false;
	r = nfs_lookup(c, dir, name, &handle, &attr);
	if (r == -ENOENT && create) {
		r = make_store_folder(c, dir, name, &handle, &attr);
		*ret_made = r == 0;
		/* Somebody else made it in between. */
		if (r == -EEXIST)
			r = nfs_lookup(c, dir, name, &handle, &attr);
		if (r == -ENOENT)
			r = -ESTALE; /* vanished again, which is not what ENOENT means to callers */
	}
	if (r == -ENOENT)
		return r;
	if (r < 0)
		return nfs_error_set(err, c, r, "%s '%s'", create ? "making" : "opening", name);
	/* A link or file of that name is somebody else's: nothing below it may be trusted. */
	if (attr.type != NFS_TYPE_DIRECTORY)
		return nfs_error_set(err, c, -ENOTDIR, "'%s' is not a directory: remove it", name);
	*ret = handle;
	return 0;
}

int store_open(struct nfs_client *c, const struct nfs_handle *dir, const char *name, bool create,
	       struct nfs_handle *ret, struct error *err)
{
	bool made;

	return open_or_make(c, dir, name, create, ret, &made, err);
}

int store_make(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
	       struct nfs_handle *ret, bool *ret_made, struct error *err)
{
	return open_or_make(c, dir, name, true, ret, ret_made, err);
}

int store_folder(struct nfs_client *c, enum store_place folder, bool create,
		 const struct nfs_handle **ret, struct error *err)
{
	struct nfs_handle *top = &c->folders[STORE_TOP], *handle = &c->folders[folder];
	int r;

	if (top->len == 0) {
		r = store_open(c, &c->root, NFS_STATE_DIR, create, top, err);
		if (r < 0)
			return r;
	}
	if (handle->len == 0) {
		r = store_open(c, top, folder_names[folder], create, handle, err);
		if (r < 0)
			return r;
	}
	*ret = handle;
	return 0;
}

struct name_list {
	store_match_fn match;
	const void *data;
	size_t max;
	struct strv *names;
};

static int add_matching_name(void *data, const struct nfs_entry *entry)
{
	struct name_list *list = data;

	if (list->match != NULL && !list->match(entry->name, list->data))
		return 0;
	if (list->names->n == list->max)
		return -ECANCELED;
	return strv_append(list->names, entry->name);
}

int store_list(struct nfs_client *c, const struct nfs_handle *dir, store_match_fn match,
	       const void *data, size_t max, struct strv *names)
{
	struct name_list list = { .match = match, .data = data, .max = max, .names = names };

	return nfs_readdir(c, dir, add_matching_name, &list);
}

#define HASH_BYTES 17

void store_trash_key(char ret[STORE_TRASH_KEY_MAX + 1], const char *key)
{
	const size_t len = strlen(key);
	size_t cut;

	if (len <= STORE_TRASH_KEY_WHOLE) {
		memcpy(ret, key, len + 1);
		return;
	}
	cut = str_utf8_cut(key, STORE_TRASH_KEY_MAX - HASH_BYTES);
	memcpy(ret, key, cut);
	(void)snprintf(ret + cut, HASH_BYTES + 1, "-%016" PRIx64, path_hash(key, len));
}

static void format_trash_name(char name[NFS_NAME_MAX + 1], const struct nfs_export *e,
			      const char *key, const char *mark)
{
	static _Atomic unsigned int counter;
	char prefix[STORE_TRASH_KEY_MAX + 1];
	struct timespec now;
	int n;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	store_trash_key(prefix, key);
	n = snprintf(name, NFS_NAME_MAX + 1, "%s.%" PRIx64 ".%x.%s%x", prefix,
		     (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec,
		     (unsigned int)getpid(), mark, counter++);
	if (!nfs_export_is_own(e))
		(void)snprintf(name + n, NFS_NAME_MAX + 1 - (size_t)n, "@%" PRIu32 ":%" PRIu32,
			       e->uid, e->gid);
}

void store_trash_name(char name[NFS_NAME_MAX + 1], const struct nfs_export *e, const char *key)
{
	format_trash_name(name, e, key, "");
}

#define UNCHECKED_MARK "h"

void store_trash_name_unchecked(char name[NFS_NAME_MAX + 1], const struct nfs_export *e,
				const char *key)
{
	format_trash_name(name, e, key, UNCHECKED_MARK);
}

#define TRASH_FIELDS 3 /* after the key, each with a dot before it */

/* Return where the fields of a name begin, with the first dot; NULL: it has none. */
static const char *trash_fields(const char *name)
{
	size_t dots = 0, len = strlen(name);

	while (len > 0 && dots < TRASH_FIELDS)
		if (name[--len] == '.')
			dots++;
	return dots == TRASH_FIELDS ? name + len : NULL;
}

bool store_trash_name_is_of(const char *name, const char *key)
{
	char prefix[STORE_TRASH_KEY_MAX + 1];
	const char *fields = trash_fields(name);

	store_trash_key(prefix, key);
	return fields != NULL && (size_t)(fields - name) == strlen(prefix) &&
	       memcmp(name, prefix, strlen(prefix)) == 0;
}

bool store_trash_name_is_unchecked(const char *name)
{
	return trash_fields(name) != NULL && str_has_prefix(strrchr(name, '.') + 1, UNCHECKED_MARK);
}

uint64_t store_trash_name_age_s(const char *name)
{
	const char *fields = trash_fields(name);
	uint64_t made_ns, now_ns;
	struct timespec now;

	made_ns = fields != NULL ? strtoull(fields + 1, NULL, 16) : 0;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	now_ns = (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
	/* After the clock was set back, an entry must not stay for years. */
	return (now_ns > made_ns ? now_ns - made_ns : made_ns - now_ns) / CLOCK_NS_PER_S;
}

void store_trash_name_key(const char *name, char ret[STORE_TRASH_KEY_MAX + 1])
{
	const char *fields = trash_fields(name);
	const size_t len = fields != NULL ? (size_t)(fields - name) : 0;

	(void)snprintf(ret, STORE_TRASH_KEY_MAX + 1, "%.*s", (int)len, name);
}

void store_trash_identity(const char *name, struct nfs_export *e)
{
	const char *at = strrchr(name, '@');
	uint64_t uid, gid;
	char number[16];
	size_t len;

	nfs_export_set_own(e);
	if (at == NULL)
		return;
	len = strcspn(at + 1, ":");
	if (at[1 + len] == '\0' || len >= sizeof(number))
		return;
	memcpy(number, at + 1, len);
	number[len] = '\0';
	if (str_parse_u64(number, 10, UINT32_MAX, &uid) < 0 ||
	    str_parse_u64(at + 2 + len, 10, UINT32_MAX, &gid) < 0)
		return;
	e->uid = (uint32_t)uid;
	e->gid = (uint32_t)gid;
}
