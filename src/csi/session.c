/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/session.h"

#include <errno.h>
#include <string.h>

#include "nfs/calls.h"
#include "store/record.h"

void session_begin(struct session *s, const struct csi_driver *driver, const struct nfs_export *e,
		   struct error *err)
{
	*s = (struct session){ .driver = driver, .export = *e, .err = err };
}

void session_begin_as(struct session *s, const struct csi_driver *driver,
		      const struct nfs_export *e, const struct volume_owner *owner,
		      struct error *err)
{
	session_begin(s, driver, e, err);
	if (owner != NULL && owner->has_uid)
		s->export.uid = owner->uid;
	if (owner != NULL && owner->has_gid)
		s->export.gid = owner->gid;
	s->next = *e;
	s->has_next = !nfs_export_is_equal(&s->export, e);
}

void session_begin_reader(struct session *s, const struct csi_driver *driver, struct nfs_export *e,
			  struct error *err)
{
	session_begin(s, driver, e, err);
	s->identity_of = e;
}

void session_prefer_version(struct session *s, unsigned int version)
{
	nfs_export_prefer(&s->export, version);
	nfs_export_prefer(&s->next, version);
}

void session_get_identity(const struct session *s, struct nfs_export *e)
{
	e->uid = s->export.uid;
	e->gid = s->export.gid;
}

/* Give the client back. Return whether the round is to be repeated on a new connection. */
static bool session_return_client(struct session *s)
{
	/* The server no longer knows the handles, or no longer serves the version. */
	const bool is_stale = s->result == -ESTALE || s->result == -EPROTONOSUPPORT;
	bool is_lost;

	if (s->client == NULL)
		return false;
	/* No reply, or one that cannot be right: what the call did has to be looked up. */
	is_lost = s->result == -ECONNABORTED ||
		  ((s->result == -EBADMSG || s->result == -ETIMEDOUT) && s->client->broken);
	if (is_stale)
		s->client->broken = true; /* it caches handles */
	nfs_pool_return(s->driver->pool, s->client);
	s->client = NULL;
	if (is_stale)
		nfs_pool_drop(s->driver->pool, &s->export);
	if ((!is_stale && !is_lost) || s->reconnected)
		return false;
	s->reconnected = true;
	return true;
}

/*
 * Return whether the root of the export has an owner that is not the identity that was refused. If
 * the server cannot be asked at present, the session fails with that error instead of the refusal,
 * which would be final.
 */
static bool session_ask_root_owner(struct session *s)
{
	struct error why = { .code = ERROR_OK };
	struct nfs_attr attr = { .has_owner = false };
	struct session ask;

	session_begin(&ask, s->driver, &s->export, &why);
	while (session_next(&ask)) {
		ask.result = nfs_getattr(ask.client, &ask.client->root, &attr);
		if (ask.result < 0)
			ask.result = nfs_error_set(&why, ask.client, ask.result,
						   "looking up the owner of the share");
	}
	if (ask.result < 0 && !error_is_final(why.code)) {
		*s->err = why;
		s->result = ask.result;
	}
	if (ask.result < 0 || !attr.has_owner || attr.uid == s->export.uid)
		return false;
	s->next = s->export;
	s->next.uid = attr.uid;
	s->next.gid = attr.gid;
	return true;
}

/* After PERMISSION_DENIED: repeat the round with the other identity, if there is one. */
static bool session_change_identity(struct session *s)
{
	if (s->was_refused)
		return false;
	s->refusal = *s->err;
	s->refusal_is_reached = s->is_reached;
	if (s->identity_of != NULL)
		s->has_next = session_ask_root_owner(s);
	if (!s->has_next)
		return false;
	s->was_refused = true;
	s->export = s->next;
	s->reconnected = false;
	return true;
}

/* Look at how the round ended. Return whether there is another one. */
static bool session_ends_round(struct session *s)
{
	if (session_return_client(s))
		return true;
	if (s->result == 0)
		known_exports_remember(s->driver->known, &s->export);
	/*
	 * Purge what other processes left, which may be what an aborted call waits for. Without
	 * memory, the next call asks again.
	 */
	if (s->result == 0 || s->err->code == ERROR_ABORTED) {
		(void)purger_note(s->driver->purger, &s->export);
	} else if (s->err->code == ERROR_PERMISSION_DENIED) {
		if (session_change_identity(s))
			return true;
		if (s->was_refused) {
			*s->err = s->refusal;
			s->is_reached = s->refusal_is_reached;
			return false;
		}
	}
	if (s->identity_of != NULL)
		session_get_identity(s, s->identity_of);
	return false;
}

bool session_next(struct session *s)
{
	for (;;) {
		if (s->began && !session_ends_round(s))
			return false;
		if (s->began)
			error_clear(s->err);
		s->began = true;
		s->result = nfs_pool_lease(s->driver->pool, &s->export, &s->client, s->err);
		s->is_reached = s->result == 0;
		if (s->is_reached) {
			known_exports_reach(s->driver->known, &s->export);
			s->rounds++;
			return true;
		}
		s->client = NULL;
	}
}

static bool is_same_error(const struct error *a, const struct error *b)
{
	return a->code == b->code && a->sys == b->sys && strcmp(a->msg, b->msg) == 0;
}

bool session_share_is_gone(const struct csi_driver *driver, const struct nfs_export *e,
			   const struct error *err)
{
	return (err->code == ERROR_NOT_FOUND || err->code == ERROR_PERMISSION_DENIED ||
		err->code == ERROR_FAILED_PRECONDITION) &&
	       known_exports_have(driver->known, e);
}

void session_check_share(const struct session *s)
{
	if (s->result < 0 && !s->is_reached && session_share_is_gone(s->driver, &s->export, s->err))
		s->err->code = ERROR_ABORTED;
}

void session_check_final(const struct csi_driver *driver, const struct nfs_export *e,
			 const struct volume_owner *owner, enum store_place folder, const char *key,
			 struct error *err)
{
	bool has_folder = false, is_begun = false;
	struct error second = { .code = ERROR_OK };
	const struct nfs_handle *handle;
	struct session s;

	if (err->sys == 0 || !error_is_final(err->code))
		return;
	session_begin_as(&s, driver, e, owner, &second);
	while (session_next(&s)) {
		s.result = store_folder(s.client, folder, false, &handle, &second);
		has_folder = s.result == 0;
		if (has_folder)
			s.result = record_is_begun(s.client, handle, key, &second);
		is_begun = s.result > 0;
		if (s.result > 0 || s.result == -ENOENT)
			s.result = 0;
	}
	if (s.result == 0 && !is_begun)
		return;
	/*
	 * This lookup failed with the very same error before it reached the folder, so the creation
	 * did not get as far as a record either. But a share that is gone may have one.
	 */
	if (s.result < 0 && !has_folder && is_same_error(&second, err) &&
	    (s.is_reached || !session_share_is_gone(driver, e, err)))
		return;
	err->code = ERROR_ABORTED;
}
