/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/claim.h"

#include <errno.h>
#include <stdlib.h>

#include "csi/session.h"

struct claim {
	const struct csi_driver *driver;
	struct nfs_export export;
	struct volume_owner owner;
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
	if (owner != NULL)
		claim->owner = *owner;
	if (busy_note_init(&claim->note, kind, dir) < 0 || nfs_export_copy(&claim->export, e) < 0) {
		claim_free(claim);
		return error_oom(err);
	}
	session_begin_as(&s, driver, &claim->export, &claim->owner, &why);
	while (session_next(&s))
		s.result = busy_note_write(s.client, &claim->note, &why);
	if (s.result == 0) {
		*ret = claim;
		return 0;
	}
	claim_free(claim);
	if (share_takes_no_note(why.code))
		return 0;
	*err = why;
	return s.result;
}

int claim_renew(struct claim *claim, struct nfs_client *c, struct error *err)
{
	return claim != NULL ? busy_note_renew(c, &claim->note, err) : 0;
}

void claim_drop(struct claim *claim)
{
	struct error ignored = { .code = ERROR_OK };
	struct session s;

	if (claim == NULL)
		return;
	session_begin_as(&s, claim->driver, &claim->export, &claim->owner, &ignored);
	while (session_next(&s))
		s.result = busy_note_erase(s.client, &claim->note, &ignored);
	claim_free(claim);
}
