/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/users.h"

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/path_key.h"

#define NOTE_TEXT "v=1" /* the volume's record says the rest */

static int user_note_failed(struct nfs_client *c, int r, const char *dir, struct error *err)
{
	return nfs_error_set(err, c, r, "noting who uses '%s'", dir);
}

size_t users_next_prefix(const char *dir, size_t len)
{
	if (len > 0)
		len++;
	return len + strcspn(dir + len, "/");
}

void users_exact_name(char name[USERS_EXACT_MAX], const char *dir, size_t len)
{
	path_key(name, dir, len);
	(void)strcat(name, "%"); /* no key of a directory ends like this */
}

static int add_user_note(struct nfs_client *c, const struct nfs_handle *folder, const char *name,
			 const char *key, const char *dir, struct error *err)
{
	struct nfs_handle users;
	int r;

	r = store_open(c, folder, name, true, &users, err);
	if (r < 0)
		return r;
	r = nfs_symlink(c, &users, key, NOTE_TEXT);
	if (r == -ENOENT)
		r = -ESTALE; /* its last note has just gone, and it with the note */
	return r < 0 && r != -EEXIST ? user_note_failed(c, r, dir, err) : 0;
}

static int remove_user_note(struct nfs_client *c, const struct nfs_handle *folder, const char *name,
			    const char *key, const char *dir, struct error *err)
{
	struct nfs_handle users;
	int r;

	r = store_open(c, folder, name, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_remove(c, &users, key);
	if (r < 0 && r != -ENOENT)
		return user_note_failed(c, r, dir, err);
	r = nfs_rmdir(c, folder, name); /* fails while there are other notes */
	if (r == -ESTALE)
		r = nfs_lookup(c, folder, name, &users, NULL); /* did another replica remove it? */
	if (r == 0 || r == -ENOENT || r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	/* Another identity's folder stays, empty: we cannot remove it. */
	if ((r == -EACCES || r == -EPERM) && directory_is_anothers(c, &users))
		return 0;
	return user_note_failed(c, r, dir, err);
}

/*
 * Call fn for the note about the directory alone, then for those about it and each directory above.
 */
static int for_each_user_note(struct nfs_client *c, const struct nfs_handle *folder,
			      const char *key, const char *dir,
			      int (*fn)(struct nfs_client *c, const struct nfs_handle *folder,
					const char *name, const char *key, const char *dir,
					struct error *err),
			      struct error *err)
{
	char name[USERS_EXACT_MAX];
	size_t len = 0;
	int r;

	users_exact_name(name, dir, strlen(dir));
	r = fn(c, folder, name, key, dir, err);
	while (r == 0 && dir[len] != '\0') {
		len = users_next_prefix(dir, len);
		path_key(name, dir, len);
		r = fn(c, folder, name, key, dir, err);
	}
	return r;
}

int users_add(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = store_folder(c, STORE_USERS, true, &folder, err);
	return r < 0 ? r : for_each_user_note(c, folder, key, dir, add_user_note, err);
}

int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	const struct nfs_handle *folder;
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = store_folder(c, STORE_USERS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return for_each_user_note(c, folder, key, dir, remove_user_note, err);
}
