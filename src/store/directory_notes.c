/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Notes in .csi-nfs/parents/ about the directories above volumes that the driver made. Deleting the
 * last volume in such a directory removes the directory, too; a directory without a note was not
 * made by the driver.
 *
 *   parents/<path key>                                pending: a call is about to make it
 *   parents/<path key>~<fileid>.<version>.<hash>      final: it is the directory with that file id
 *                                                     and that hash of its handle, both in hex
 *
 * doc/design.md ("parents/: directories above volumes") has the steps of making and removing such a
 * directory, and says why calls for different directories of one name do not disturb each other.
 * The name of a final note has the file id for clients of the other protocol version, which may get
 * another handle for the same directory.
 *
 * A pending note counts as final if the directory exists and has no final one: its writer has died,
 * or is a version of csi-nfs that wrote only pending notes. Worker threads; blocks. Errors as
 * nfs_error_set().
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/directory_parts.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/text.h"

#define NOTE_KEY_DIR "dir" /* the path */
#define NOTE_KEY_HASH "hash" /* of the path, if that is too long for a final note */
#define HEX_BYTES 17

/* -------- texts and names -------- */

static int note_failed(struct nfs_client *c, int r, const struct directory_note *note,
		       struct error *err)
{
	return nfs_error_set(err, c, r, "accessing the note for directory '%.*s'", (int)note->len,
			     note->path);
}

/* Whether no other path has the same key. Two long paths may. */
static bool key_is_unique(const struct directory_note *note)
{
	return strlen(note->key) < RECORD_NAME_MAX;
}

static int describe_note(const struct directory_note *note, struct record *rec)
{
	cleanup_free char *dir = strndup(note->path, note->len);

	return dir == NULL ? -ENOMEM : record_set(rec, NOTE_KEY_DIR, dir);
}

/* Format the text of a final note, which is one link. The caller frees. */
static int format_final_text(const struct directory_note *note, char **ret)
{
	cleanup_record struct record rec = { .n = 0 }, brief = { .n = 0 };
	cleanup_free char *text = NULL;
	char hash[HEX_BYTES];
	int r;

	r = describe_note(note, &rec);
	if (r == 0)
		r = record_encode(&rec, &text);
	if (r < 0 || strlen(text) <= RECORD_LINK_BYTES) {
		*ret = r < 0 ? NULL : steal_ptr(&text);
		return r;
	}
	(void)snprintf(hash, sizeof(hash), "%" PRIx64, str_hash(note->path, note->len));
	r = record_set(&brief, NOTE_KEY_HASH, hash);
	return r < 0 ? r : record_encode(&brief, ret);
}

static bool record_is_about(const struct record *rec, const struct directory_note *note)
{
	const char *dir = record_get(rec, NOTE_KEY_DIR);
	char hash[HEX_BYTES];

	if (dir != NULL)
		return strlen(dir) == note->len && memcmp(dir, note->path, note->len) == 0;
	(void)snprintf(hash, sizeof(hash), "%" PRIx64, str_hash(note->path, note->len));
	return str_eq(record_get(rec, NOTE_KEY_HASH), hash);
}

static void format_final_name(struct nfs_client *c, struct directory_note *note,
			      const struct nfs_handle *handle, const struct nfs_attr *attr)
{
	(void)snprintf(note->name, sizeof(note->name), "%s~%" PRIx64 ".%u.%" PRIx64, note->key,
		       attr->fileid, c->version, str_hash(handle->data, handle->len));
}

/* The directory that a final note is about. */
struct note_subject {
	uint64_t fileid, version, hash;
};

static bool parse_number(const char **text, unsigned int base, char end, uint64_t *ret)
{
	char number[HEX_BYTES];
	size_t n = strcspn(*text, ".");

	if (n >= sizeof(number) || (*text)[n] != end)
		return false;
	memcpy(number, *text, n);
	number[n] = '\0';
	*text += end == '\0' ? n : n + 1;
	return str_parse_u64(number, base, UINT64_MAX, ret) == 0;
}

/* Parse the name of a final note. False for any other, as of a pending note's part or draft. */
static bool parse_final_name(const struct directory_note *note, const char *name,
			     struct note_subject *ret)
{
	const char *text = name + strlen(note->key);

	return *text++ == '~' && parse_number(&text, 16, '.', &ret->fileid) &&
	       parse_number(&text, 10, '.', &ret->version) &&
	       parse_number(&text, 16, '\0', &ret->hash);
}

/*
 * Whether a final note is about that directory. Handles of two protocol versions are not
 * comparable, so the file id decides between those.
 */
static bool subject_is(const struct nfs_client *c, const struct note_subject *subject,
		       const struct nfs_handle *handle, const struct nfs_attr *attr)
{
	if (subject->version == c->version)
		return subject->hash == str_hash(handle->data, handle->len);
	return subject->fileid != 0 && subject->fileid == attr->fileid;
}

/* -------- the folder -------- */

static int open_notes(struct nfs_client *c, struct directory_note *note, const char *path,
		      size_t len, bool create, struct error *err)
{
	*note = (struct directory_note){ .path = path, .len = len };
	path_key(note->key, path, len);
	return store_folder(c, STORE_PARENTS, create, &note->folder, err);
}

/*
 * Accept the result r of removing or renaming a note, and return 0, if it failed because the note
 * belongs to another identity, or is gone; else return r. On a share that several identities use,
 * each can change its own notes only.
 */
static int accept_anothers(struct nfs_client *c, int r, const struct directory_note *note,
			   const char *name)
{
	struct nfs_handle handle;
	struct nfs_attr attr;

	if (r == -EACCES || r == -EPERM) {
		int found = nfs_lookup_full(c, note->folder, name, &handle, &attr);

		if (found == -ENOENT || (found == 0 && attr.uid != c->export.uid))
			return 0;
	}
	return r == -ENOENT ? 0 : r;
}

static int remove_final_note(struct nfs_client *c, const struct directory_note *note,
			     const char *name, struct error *err)
{
	int r = accept_anothers(c, nfs_remove(c, note->folder, name), note, name);

	return r < 0 ? note_failed(c, r, note, err) : 0;
}

/* Whether there is a pending note for the path: 1, 0 or a negative errno. */
static int read_pending_note(struct nfs_client *c, const struct directory_note *note,
			     struct record *ret, struct error *err)
{
	int r = record_read(c, note->folder, note->key, ret, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return record_is_about(ret, note);
}

static int remove_pending_note(struct nfs_client *c, const struct directory_note *note,
			       struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	struct error second = { .code = ERROR_OK };
	int r;

	r = read_pending_note(c, note, &rec, err);
	if (r <= 0)
		return r;
	r = record_remove(c, note->folder, note->key, &rec, &second);
	r = accept_anothers(c, r, note, note->key);
	if (r < 0 && err != NULL && err->code == ERROR_OK)
		*err = second;
	return r;
}

static bool is_note_of_key(const char *name, const void *data)
{
	const struct directory_note *note = data;
	const size_t len = strlen(note->key);

	return str_has_prefix(name, note->key) && (name[len] == '\0' || name[len] == '~');
}

/* List the notes of the path, and perhaps of another one with the same key. */
static int list_notes(struct nfs_client *c, const struct directory_note *note, struct strv *ret,
		      struct error *err)
{
	int r = store_list(c, note->folder, is_note_of_key, note, SIZE_MAX, ret);

	return r < 0 ? note_failed(c, r, note, err) : 0;
}

/* -------- making -------- */

int directory_note_begin(struct nfs_client *c, struct directory_note *note, const char *path,
			 size_t len, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r;

	r = open_notes(c, note, path, len, true, err);
	if (r < 0)
		return r;
	if (describe_note(note, &rec) < 0)
		return error_oom(err);
	r = record_create(c, note->folder, note->key, &rec, err);
	note->begun = r == 0;
	/*
	 * Accept a pending note that exists: another call is about to make the directory, or a call
	 * was interrupted, or somebody has removed the directory by hand.
	 */
	return r == -EEXIST ? 0 : r;
}

int directory_note_finish(struct nfs_client *c, struct directory_note *note,
			  const struct nfs_handle *handle, const struct nfs_attr *attr,
			  struct error *err)
{
	cleanup_free char *text = NULL;
	int r = -ENOENT;

	format_final_name(c, note, handle, attr);
	if (key_is_unique(note))
		r = nfs_rename(c, note->folder, note->key, note->folder, note->name);
	if (r == 0)
		return 0;
	/*
	 * Another call that made or removed the directory has taken the pending note away, or the
	 * note belongs to another identity.
	 */
	r = accept_anothers(c, r, note, note->key);
	if (r < 0)
		return note_failed(c, r, note, err);
	if (format_final_text(note, &text) < 0)
		return error_oom(err);
	r = store_text_create(c, note->folder, note->name, text);
	if (r < 0 && r != -EEXIST)
		return note_failed(c, r, note, err);
	directory_note_withdraw(c, note);
	return 0;
}

void directory_note_withdraw(struct nfs_client *c, const struct directory_note *note)
{
	struct error ignored = { .code = ERROR_OK };

	if (note->begun)
		(void)remove_pending_note(c, note, &ignored);
}

/* -------- finding -------- */

/* Look for a note by the other protocol version, and for a pending one. */
static int search_notes(struct nfs_client *c, struct directory_note *note,
			const struct nfs_handle *handle, const struct nfs_attr *attr,
			struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	cleanup_record struct record rec = { .n = 0 };
	struct note_subject subject;
	size_t i;
	int r;

	r = list_notes(c, note, &names, err);
	if (r < 0)
		return r;
	for (i = 0; i < names.n; i++) {
		if (!parse_final_name(note, names.items[i], &subject) ||
		    !subject_is(c, &subject, handle, attr))
			continue;
		(void)snprintf(note->name, sizeof(note->name), "%s", names.items[i]);
		return 1;
	}
	return names.n == 0 ? 0 : read_pending_note(c, note, &rec, err);
}

static int look_for_final_note(struct nfs_client *c, struct directory_note *note,
			       const struct nfs_handle *handle, const struct nfs_attr *attr,
			       struct error *err)
{
	struct nfs_handle unused;
	int r;

	format_final_name(c, note, handle, attr);
	r = nfs_lookup(c, note->folder, note->name, &unused, NULL);
	if (r == 0)
		return 1;
	note->name[0] = '\0';
	return r == -ENOENT ? 0 : note_failed(c, r, note, err);
}

int directory_note_find(struct nfs_client *c, struct directory_note *note, const char *path,
			const struct nfs_handle *handle, const struct nfs_attr *attr,
			struct error *err)
{
	int r;

	r = open_notes(c, note, path, strlen(path), false, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = look_for_final_note(c, note, handle, attr, err);
	if (r == 0)
		r = search_notes(c, note, handle, attr, err);
	/* Look again, since a listing may miss a note that is being renamed. */
	return r != 0 ? r : look_for_final_note(c, note, handle, attr, err);
}

/* Whether a final note is about that path: 1, 0 or a negative errno. */
static int note_is_of_path(struct nfs_client *c, const struct directory_note *note,
			   const char *name, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	int r;

	if (key_is_unique(note))
		return 1;
	r = record_read(c, note->folder, name, &rec, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	return record_is_about(&rec, note);
}

int directory_note_is_there(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_strv struct strv names = { NULL, 0 };
	struct note_subject unused;
	struct directory_note note;
	size_t i;
	int r;

	r = open_notes(c, &note, path, strlen(path), false, err);
	if (r == 0)
		r = list_notes(c, &note, &names, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	for (i = 0; i < names.n && r == 0; i++)
		if (parse_final_name(&note, names.items[i], &unused))
			r = note_is_of_path(c, &note, names.items[i], err);
	return r == 0 && names.n > 0 ? read_pending_note(c, &note, &rec, err) : r;
}

/* -------- removing -------- */

int directory_note_remove(struct nfs_client *c, const struct directory_note *note,
			  struct error *err)
{
	int r = 0;

	if (note->name[0] != '\0')
		r = remove_final_note(c, note, note->name, err);
	return r < 0 ? r : remove_pending_note(c, note, err);
}

int directory_note_forget(struct nfs_client *c, const char *path, const struct nfs_handle *handle,
			  const struct nfs_attr *attr, struct error *err)
{
	struct directory_note note;
	int r;

	r = open_notes(c, &note, path, strlen(path), false, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	format_final_name(c, &note, handle, attr);
	return directory_note_remove(c, &note, err);
}

int directory_note_sweep(struct nfs_client *c, const char *path, struct error *err)
{
	cleanup_strv struct strv names = { NULL, 0 };
	struct nfs_attr attr = { .is_full = false };
	struct nfs_handle handle = { .len = 0 };
	struct note_subject subject;
	struct directory_place place;
	struct directory_note note;
	bool gone;
	size_t i;
	int r;

	r = open_notes(c, &note, path, strlen(path), false, err);
	if (r == 0)
		r = list_notes(c, &note, &names, err);
	if (r < 0 && r != -ENOENT)
		return r;
	/*
	 * Look the directory up after listing: the directory of a listed final note was made before
	 * the listing, so it is either there now or was removed.
	 */
	r = directory_look_up(c, path, &place, &handle, &attr, err);
	if (r < 0 && r != -ENOENT)
		return r;
	gone = r == -ENOENT;
	for (i = 0; i < names.n; i++) {
		if (!parse_final_name(&note, names.items[i], &subject) ||
		    (!gone && subject_is(c, &subject, &handle, &attr)))
			continue;
		r = note_is_of_path(c, &note, names.items[i], err);
		if (r > 0)
			r = remove_final_note(c, &note, names.items[i], err);
		if (r < 0)
			return r;
	}
	r = gone && names.n > 0 ? remove_pending_note(c, &note, err) : 0;
	return r < 0 ? r : gone;
}

void directory_note_sweep_above(struct nfs_client *c, const char *path)
{
	struct error ignored = { .code = ERROR_OK };
	cleanup_free char *above = strdup(path);
	char *slash;

	/* A directory that is there may be a new one, in a new parent: go on above it. */
	while (above != NULL && (slash = strrchr(above, '/')) != NULL) {
		*slash = '\0';
		(void)directory_note_sweep(c, above, &ignored);
	}
}
