/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/unchecked.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory_change.h"
#include "store/layout.h"
#include "store/owner.h"

static void log_put_back(const struct nfs_client *c, const char *path, const char *user)
{
	if (user == NULL)
		log_warn("An archive, or a retained directory, that an interrupted deletion had moved has been put back",
			 LOG_STR("directory", path), LOG_STR("server", c->export.server),
			 LOG_STR("share", c->export.share));
	else
		log_warn("A directory that an interrupted deletion took from another volume has been put back",
			 LOG_STR("directory", path), LOG_STR("user", user),
			 LOG_STR("server", c->export.server), LOG_STR("share", c->export.share));
}

/*
 * Refuse to put a directory back where there is another one by now. The entry may hold the data of
 * its user, since a deletion leaves no unchecked entry of its own volume's directory (rule 6), or,
 * with user NULL, what a deleted volume has left to be kept.
 */
static int refuse_place(const struct nfs_client *c, const char *name, const char *path,
			const char *user, struct error *err)
{
	if (user == NULL)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s' in the trash was taken from '%s' on %s:%s by an interrupted deletion, and may hold what a deleted volume retained; there is a new directory in its place: look at both, move back what is missing, and delete the rest",
				 name, path, c->export.server, c->export.share);
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "'%s' in the trash was taken from '%s' by an interrupted deletion, and '%s' on %s:%s has a new directory there: look at both, move back what is missing, and delete the rest",
			 name, path, user, c->export.server, c->export.share);
}

/*
 * As directory_locate(), but make the directories above for an archive, and for a volume that has
 * that very directory or one in it. If the user has one of those above, it is the user's to make.
 */
static int locate_place(struct nfs_client *c, const char *path, const char *user,
			struct directory_place *ret, struct error *err)
{
	const struct owner_question q = { .scope = OWNER_AT | OWNER_IN };
	struct owner owner;
	int r = directory_locate(c, path, ret, err);

	if (r != -ENOENT)
		return r;
	r = user != NULL ? owner_find(c, path, &q, &owner, err) : 1;
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	return directory_make_parents(c, path, ret, err);
}

int unchecked_rename_back(struct nfs_client *c, const struct nfs_handle *trash, const char *name,
			  const char *path, const char *user, struct error *err)
{
	struct directory_place place;
	int r;

	r = locate_place(c, path, user, &place, err);
	if (r < 0)
		return r == -ENOENT ? 1 : r;
	r = directory_move_back(c, trash, name, &place);
	if (r == -EEXIST)
		return 0;
	if (r < 0 && r != -ENOENT)
		return nfs_error_set(err, c, r, "putting '%s' back from the trash", path);
	if (r == 0)
		log_put_back(c, path, user);
	return 1;
}

int unchecked_put_back(struct nfs_client *c, const char *name, struct error *err)
{
	char path[RECORD_NAME_MAX + 1];
	struct error why = { .code = ERROR_OK };
	const struct nfs_handle *trash;
	struct nfs_handle handle;
	const struct owner_question q = { .scope = OWNER_ALL, .policies = true, .moved = &handle };
	struct owner owner;
	struct nfs_attr attr;
	bool is_kept;
	int r;

	r = store_folder(c, STORE_TRASH, false, &trash, err);
	if (r < 0)
		return r == -ENOENT ? 1 : r;
	r = nfs_lookup(c, trash, name, &handle, &attr);
	if (r == -ENOENT)
		return 1;
	if (r < 0)
		return nfs_error_set(err, c, r, "looking up '%s' in the trash", name);
	if (attr.type != NFS_TYPE_DIRECTORY)
		return 0;
	if (!directory_trash_path(name, path))
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s' on %s:%s was moved to the trash by an interrupted deletion, and its name does not show its original path: check whether a volume is missing it, then move it back or delete it",
				 name, c->export.server, c->export.share);
	r = busy_check_not_deleted(c, path, &why);
	if (r == 0)
		r = owner_find(c, path, &q, &owner, &why);
	if (r < 0 && why.code == ERROR_ABORTED)
		return 1;
	if (r > 0) {
		r = unchecked_rename_back(c, trash, name, path, owner.key, err);
		return r == 0 ? refuse_place(c, name, path, owner.key, err) : r;
	}
	/* A policy note says that a deleted volume has left it there, or one in or around it. */
	is_kept = r == 0 && owner_is_only_kept(&owner);
	if (r == 0 && (is_kept || directory_is_archive_name(path))) {
		r = unchecked_rename_back(c, trash, name, path, NULL, err);
		/* Purge an archive if there is a newer one in its place. */
		return r == 0 && is_kept ? refuse_place(c, name, path, NULL, err) : r;
	}
	if (r < 0 && err != NULL)
		*err = why;
	return r;
}
