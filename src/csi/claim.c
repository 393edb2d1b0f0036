/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/claim.h"

#include <errno.h>
#include <stdlib.h>

#include "csi/session.h"

struct claim {
	const struct csi_driver *driver;
	struct nfs_export export; /* with the identity that wrote the note */
	struct busy_note note;
};

static void claim_free(struct claim *claim)
{
	busy_note_done(&claim->note);
	nfs_export_done(&claim->export);
	free(claim);
}

static bool share_takes_no_note(enum error_code code)
{
	return code == ERROR_PERMISSION_DENIED || code == ERROR_FAILED_PRECONDITION ||
	       code == ERROR_RESOURCE_EXHAUSTED;
}

int claim_take(struct claim **ret, const struct csi_driver *driver, const struct nfs_export *e,
	       const struct volume_owner *owner, enum busy_kind kind, const char *dir,
	       struct error *err)
{
	struct error why = { .code = ERROR_OK };
	struct claim *claim = calloc(1, sizeof(*claim));
	struct session s;

	*ret = NULL;
	if (claim == NULL)
		return error_oom(err);
	claim->driver = driver;
	if (busy_note_init(&claim->note, kind, dir) < 0 || nfs_export_copy(&claim->export, e) < 0) {
		claim_free(claim);
		return error_oom(err);
	}
	session_begin_as(&s, driver, e, owner, &why);
	while (session_next(&s))
		s.result = busy_note_write(s.client, &claim->note, &why);
	session_check_share(&s);
	if (s.result == 0) {
		session_get_identity(&s, &claim->export);
		*ret = claim;
		return 0;
	}
	claim_free(claim);
	if (share_takes_no_note(why.code))
		return 0;
	*err = why;
	return s.result;
}

/* Use c only if it has the identity that wrote the note: others may be shut out of the folder. */
static bool may_renew(const struct claim *claim, const struct nfs_client *c)
{
	return !c->broken && c->export.uid == claim->export.uid &&
	       c->export.gid == claim->export.gid;
}

int claim_renew(struct claim *claim, struct nfs_client *c, struct error *err)
{
	struct session s;

	if (claim == NULL)
		return 0;
	if (may_renew(claim, c))
		return busy_note_renew(c, &claim->note, err);
	session_begin(&s, claim->driver, &claim->export, err);
	while (session_next(&s))
		s.result = busy_note_renew(s.client, &claim->note, err);
	session_check_share(&s);
	return s.result;
}

void claim_drop(struct claim *claim)
{
	struct error ignored = { .code = ERROR_OK };
	struct session s;

	if (claim == NULL)
		return;
	session_begin(&s, claim->driver, &claim->export, &ignored);
	while (session_next(&s))
		s.result = busy_note_erase(s.client, &claim->note, &ignored);
	claim_free(claim);
}
