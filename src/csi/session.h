/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A session is what a call does on one export, written as a loop whose body may run more than once:
 *
 * 	session_begin(&s, driver, &export, err);
 * 	while (session_next(&s))
 * 		s.result = something(s.client, ..., err);
 * 	return s.result;
 *
 * session_next() leases a client for each round and gives it back. It asks for another round
 *
 *  - on a new connection, once, after -ESTALE (the server forgot a handle), -EPROTONOSUPPORT (it
 *    stopped serving the version), -ECONNABORTED (an idle connection turned out to be dead), a
 *    -EBADMSG that broke it (a wrong reply to a change), or -ETIMEDOUT: nfs-ganesha drops an NFSv3
 *    call after some errors of its own. The new connection fails soon if the server is dead;
 *  - with the next identity, after PERMISSION_DENIED.
 *
 * The error of a round that is repeated is cleared, so the body reports to the err that the session
 * was begun with. The body must not leave the loop early. Worker threads; session_next() blocks.
 */
#ifndef CSI_SESSION_H
#define CSI_SESSION_H

#include "csi/driver.h"
#include "store/layout.h"

struct session {
	struct nfs_client *client; /* leased, in the body */
	int result; /* set by the body; after the loop, the result of the last round */
	unsigned int rounds; /* bodies begun */
	bool is_reached; /* the last connection was made: false after a refusal of the share */

	/* Private. */
	const struct csi_driver *driver;
	struct nfs_export export; /* of this round; borrows its strings */
	struct nfs_export next; /* with the other identity; valid if has_next */
	struct nfs_export *identity_of; /* takes the identity that worked; may be NULL */
	struct error *err;
	struct error refusal; /* of the first identity */
	bool refusal_is_reached; /* is_reached of that */
	bool began, has_next, was_refused, reconnected;
};

/* Begin with the identity of the export. driver, e and err are borrowed until the loop ends. */
void session_begin(struct session *s, const struct csi_driver *driver, const struct nfs_export *e,
		   struct error *err);

/*
 * Begin with the identity of owner, then that of the export: an export that squashes root may let
 * only the owner work, and one that does not lets only root give files away. If both are refused,
 * err says why the owner was. owner may be NULL.
 */
void session_begin_as(struct session *s, const struct csi_driver *driver,
		      const struct nfs_export *e, const struct volume_owner *owner,
		      struct error *err);

/*
 * Begin with the identity of the export, then that of the owner of the export's root. For calls
 * that only read. At the end e has the identity that was used last, unless that was refused.
 */
void session_begin_reader(struct session *s, const struct csi_driver *driver, struct nfs_export *e,
			  struct error *err);

/* After session_begin_as(): use this version of NFS if the server still serves it. */
void session_prefer_version(struct session *s, unsigned int version);

/* Set the identity of e to that of the last round. */
void session_get_identity(const struct session *s, struct nfs_export *e);

/* Whether there is a round to do. False: s->result is the result of the last one. */
bool session_next(struct session *s);

/*
 * After a session that ended with is_reached unset: whether err says that the share is not there,
 * or refuses this client or its version of NFS, although it has been reached before, by this call
 * or by an earlier one of this process.
 */
bool session_share_is_gone(const struct csi_driver *driver, const struct nfs_export *e,
			   const struct error *err);

/*
 * After a session that has failed: set ABORTED if its share is gone. A final code would say that
 * what the session looked for does not exist.
 */
void session_check_share(const struct session *s);

/*
 * Check the code of an error after a creation has failed with it on export e. A CO may drop the
 * request after a final code, so nothing of it may be left then. Change the code to ABORTED if the
 * folder has a record of that key or its draft, which an earlier attempt that was killed may have
 * made, or if that cannot be determined: also if the share is not there or refuses this client or
 * its version of NFS, and has been reached before, by this call or by an earlier one of this
 * process. Errors that the driver itself raised (no sys) keep their code: it knows what is there.
 * owner as for session_begin_as().
 */
void session_check_final(const struct csi_driver *driver, const struct nfs_export *e,
			 const struct volume_owner *owner, enum store_place folder, const char *key,
			 struct error *err);

#endif
