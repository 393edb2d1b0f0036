/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/users.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/text.h"

#define NOTE_TEXT "v=1" /* the volume's record says the rest */
#define POLICY_KEY_DIR "dir"
#define POLICY_NAME_MAX (RECORD_NAME_MAX + 8) /* with "~archive" */

/* A note, which is in several folders. */
struct user_note {
	const char *name;
	const char *dir; /* what it is about */
	const char *text;
	const char *skip; /* folder to leave out; NULL: none */
	bool lenient; /* leave a note that we may not remove */
	bool made_folder; /* out: the folder that was added to last is new */
};

static int user_note_failed(struct nfs_client *c, int r, const char *dir, struct error *err)
{
	return nfs_error_set(err, c, r, "accessing the usage notes of '%s'", dir);
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
			 struct user_note *note, struct error *err)
{
	struct nfs_handle users;
	int r;

	r = store_make(c, folder, name, &users, &note->made_folder, err);
	if (r < 0)
		return r;
	r = store_text_create(c, &users, note->name, note->text);
	if (r == -ENOENT)
		r = -ESTALE; /* the folder has just gone with its last note */
	return r < 0 && r != -EEXIST ? user_note_failed(c, r, note->dir, err) : 0;
}

static int remove_user_note(struct nfs_client *c, const struct nfs_handle *folder, const char *name,
			    struct user_note *note, struct error *err)
{
	struct nfs_handle users;
	int r;

	if (note->skip != NULL && strcmp(name, note->skip) == 0)
		return 0;
	r = store_open(c, folder, name, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = nfs_remove(c, &users, note->name);
	if (note->lenient && (r == -EACCES || r == -EPERM))
		return 0;
	if (r < 0 && r != -ENOENT)
		return user_note_failed(c, r, note->dir, err);
	r = nfs_rmdir(c, folder, name); /* fails while there are other notes */
	/* Another replica has removed the folder; if not, the server has forgotten a handle. */
	if (r == -ESTALE && nfs_lookup(c, folder, name, &users, NULL) == -ENOENT)
		return 0;
	if (r == 0 || r == -ENOENT || r == -ENOTEMPTY || r == -EEXIST)
		return 0;
	/* Another identity's folder stays, empty: we cannot remove it. */
	if ((r == -EACCES || r == -EPERM) && directory_is_anothers(c, &users))
		return 0;
	return user_note_failed(c, r, note->dir, err);
}

typedef int (*user_note_fn)(struct nfs_client *c, const struct nfs_handle *folder, const char *name,
			    struct user_note *note, struct error *err);

/* Call fn for the notes about the directory and each one above, from the top down. */
static int for_each_prefix_note(struct nfs_client *c, const struct nfs_handle *folder,
				struct user_note *note, user_note_fn fn, struct error *err)
{
	char name[RECORD_NAME_MAX + 1];
	size_t len = 0;
	int r = 0;

	while (r == 0 && note->dir[len] != '\0') {
		len = users_next_prefix(note->dir, len);
		path_key(name, note->dir, len);
		r = fn(c, folder, name, note, err);
	}
	return r;
}

/* Call fn for the note about the directory alone, then for the others. */
static int for_each_user_note(struct nfs_client *c, const struct nfs_handle *folder,
			      struct user_note *note, user_note_fn fn, struct error *err)
{
	char name[USERS_EXACT_MAX];
	int r;

	users_exact_name(name, note->dir, strlen(note->dir));
	r = fn(c, folder, name, note, err);
	return r < 0 ? r : for_each_prefix_note(c, folder, note, fn, err);
}

int users_add(struct nfs_client *c, const char *key, const char *dir, bool *ret_noted,
	      struct error *err)
{
	struct user_note note = { .name = key, .dir = dir, .text = NOTE_TEXT };
	const struct nfs_handle *folder;
	char name[USERS_EXACT_MAX];
	int r;

	*ret_noted = false;
	if (strcmp(key, dir) == 0)
		return 0;
	r = store_folder(c, STORE_USERS, true, &folder, err);
	if (r < 0)
		return r;
	users_exact_name(name, dir, strlen(dir));
	r = add_user_note(c, folder, name, &note, err);
	*ret_noted = r == 0 && !note.made_folder;
	return r < 0 ? r : for_each_prefix_note(c, folder, &note, add_user_note, err);
}

int users_remove(struct nfs_client *c, const char *key, const char *dir, struct error *err)
{
	struct user_note note = { .name = key, .dir = dir };
	const struct nfs_handle *folder;
	int r;

	if (strcmp(key, dir) == 0)
		return 0;
	r = store_folder(c, STORE_USERS, false, &folder, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return for_each_user_note(c, folder, &note, remove_user_note, err);
}

/* -------- policies of deleted volumes -------- */

static void policy_name(char name[POLICY_NAME_MAX + 1], const char *dir,
			enum volume_on_delete policy)
{
	char key[RECORD_NAME_MAX + 1];

	path_key(key, dir, strlen(dir));
	(void)snprintf(name, POLICY_NAME_MAX + 1, "%s~%s", key, on_delete_name(policy));
}

bool users_name_is_policy(const char *name, enum volume_on_delete *ret_policy)
{
	const char *mark = strrchr(name, '~');
	enum volume_on_delete policy;

	if (mark == NULL || on_delete_parse(mark + 1, &policy) < 0)
		return false;
	if (ret_policy != NULL)
		*ret_policy = policy;
	return true;
}

int users_add_policy(struct nfs_client *c, const char *dir, enum volume_on_delete policy,
		     struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *text = NULL;
	const struct nfs_handle *folder;
	char name[POLICY_NAME_MAX + 1];
	struct user_note note = { .name = name, .dir = dir };
	int r;

	policy_name(name, dir, policy);
	if (record_set(&rec, POLICY_KEY_DIR, dir) < 0)
		return error_oom(err);
	r = record_encode(&rec, &text);
	if (r == -ENOMEM)
		return error_oom(err);
	/* A note that does not name its directory counts wherever it is found. */
	note.text = r == 0 && strlen(text) <= RECORD_LINK_BYTES ? text : NOTE_TEXT;
	r = store_folder(c, STORE_USERS, true, &folder, err);
	return r < 0 ? r : for_each_user_note(c, folder, &note, add_user_note, err);
}

int users_read_policy(struct nfs_client *c, const struct nfs_handle *users, const char *name,
		      char **ret, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	char text[NFS_LINK_MAX + 1];
	const char *dir = NULL;
	int r;

	r = store_text_read(c, users, name, text);
	if (r == -ENOENT)
		return r;
	if (r < 0 && r != -EINVAL)
		return nfs_error_set(err, c, r, "reading note '%s'", name);
	if (r == 0)
		r = record_decode(&rec, text);
	if (r == -ENOMEM)
		return error_oom(err);
	if (r == 0)
		dir = record_get(&rec, POLICY_KEY_DIR);
	if (dir != NULL && path_check_relative(dir, POLICY_KEY_DIR, NULL) < 0)
		dir = NULL;
	*ret = dir != NULL ? strdup(dir) : NULL;
	return dir != NULL && *ret == NULL ? error_oom(err) : 0;
}

/*
 * Remove a policy note from all its folders. last, if not NULL, is the folder to remove it from
 * last: an interrupted deletion looks there.
 */
static int remove_policy(struct nfs_client *c, const struct nfs_handle *folder, const char *name,
			 const char *dir, const char *last, struct error *err)
{
	struct user_note note = { .name = name, .dir = dir, .skip = last, .lenient = true };
	int r;

	r = for_each_user_note(c, folder, &note, remove_user_note, err);
	if (r < 0 || last == NULL)
		return r;
	note.skip = NULL;
	return remove_user_note(c, folder, last, &note, err);
}

int users_remove_policies(struct nfs_client *c, const char *dir, struct error *err)
{
	static const enum volume_on_delete policies[] = {
		ON_DELETE_RETAIN,
		ON_DELETE_ARCHIVE,
		ON_DELETE_DELETE,
	};
	const struct nfs_handle *folder;
	char name[POLICY_NAME_MAX + 1];
	size_t i;
	int r;

	r = store_folder(c, STORE_USERS, false, &folder, err);
	if (r == -ENOENT)
		return 0;
	for (i = 0; i < ARRAY_SIZE(policies) && r == 0; i++) {
		policy_name(name, dir, policies[i]);
		r = remove_policy(c, folder, name, dir, NULL, err);
	}
	return r;
}

static bool is_policy_name(const char *name, const void *data)
{
	(void)data;
	return users_name_is_policy(name, NULL);
}

static bool is_within(const char *path, const char *dir)
{
	const size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

int users_remove_policies_within(struct nfs_client *c, const char *dir, struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	const struct nfs_handle *folder;
	char within[RECORD_NAME_MAX + 1];
	struct nfs_handle users;
	size_t i;
	int r;

	path_key(within, dir, strlen(dir));
	r = store_folder(c, STORE_USERS, false, &folder, err);
	if (r == 0)
		r = store_open(c, folder, within, false, &users, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = store_list(c, &users, is_policy_name, NULL, SIZE_MAX, &names);
	if (r < 0)
		return user_note_failed(c, r, dir, err);
	for (i = 0; i < names.n && r == 0; i++) {
		cleanup_free char *noted = NULL;

		r = users_read_policy(c, &users, names.items[i], &noted, err);
		/* Another path, which was cut to the same key, may share the folder. */
		if (r == 0 && noted != NULL && is_within(noted, dir))
			r = remove_policy(c, folder, names.items[i], noted, within, err);
		if (r == -ENOENT)
			r = 0;
	}
	return r;
}
