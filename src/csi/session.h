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
 *  - on a new connection, once, after -ESTALE (the server forgot a handle) or -ECONNABORTED (an
 *    idle connection turned out to be dead);
 *  - with the next identity, after PERMISSION_DENIED;
 *  - over any version of NFS, after -EPROTONOSUPPORT, where one version was preferred.
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

	/* Private. */
	const struct csi_driver *driver;
	struct nfs_export export; /* of this round; borrows its strings */
	struct nfs_export next; /* another identity, where has_next */
	struct nfs_export *identity_of; /* gets the identity that worked; NULL: nobody's */
	const struct nfs_export *any_version; /* NULL: no version is preferred */
	const struct volume_owner *owner;
	struct error *err;
	struct error refusal; /* of the first identity */
	bool began, has_next, was_refused, reconnected;
};

/* Begin with the identity of the export. driver, e and err are borrowed until the loop ends. */
void session_begin(struct session *s, const struct csi_driver *driver, const struct nfs_export *e,
		   struct error *err);

/*
 * Begin with the identity of owner, then that of the export: an export that squashes root may let
 * only the owner work, and only root may give files away where it is not squashed. A refusal of
 * both names the owner. owner is borrowed until the loop ends.
 */
void session_begin_as(struct session *s, const struct csi_driver *driver,
		      const struct nfs_export *e, const struct volume_owner *owner,
		      struct error *err);

/*
 * Begin with the identity of the export, then that of the owner of the export's root. For calls
 * that only read. The identity that was used last is left in e, unless it was refused.
 */
void session_begin_reader(struct session *s, const struct csi_driver *driver, struct nfs_export *e,
			  struct error *err);

/*
 * After session_begin_as(): speak this version of NFS where the server still has it, and else what
 * fallback says, which is borrowed.
 */
void session_prefer_version(struct session *s, unsigned int version,
			    const struct nfs_export *fallback);

/* Whether there is a round to do. False: s->result tells how the last one ended. */
bool session_next(struct session *s);

/*
 * A CO may forget what it asked for after a final code, so nothing of the request may be left then.
 * After a creation has failed on export e with the error err, turn its code into ABORTED where a
 * record of that key, or its draft, is in the folder, or where nobody can tell. The attempt that
 * failed need not have made it: an earlier one may have been killed. Errors that the driver itself
 * made up (no sys) are left alone: it knows what is there. owner as for session_begin_as().
 */
void session_check_final(const struct csi_driver *driver, const struct nfs_export *e,
			 const struct volume_owner *owner, enum store_place folder, const char *key,
			 struct error *err);

#endif
