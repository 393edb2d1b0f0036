/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* What a server's status means: the errno for callers, the code and the advice for people. */

#include "nfs/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "net/connect.h"
#include "nfs/client.h"

static const struct {
	unsigned int status;
	int error;
} statuses[] = {
	/*
	 * RFC 1813 section 2.6 and RFC 7530 section 13.1. Numbers below 63 are Unix errno values.
	 */
	{ 63, ENAMETOOLONG },
	{ 66, ENOTEMPTY },
	{ 69, EDQUOT },
	{ 70, ESTALE },
	{ 71, EREMOTE },
	{ 10001, ESTALE }, /* BADHANDLE */
	{ 10002, ERESTART }, /* NOT_SYNC: the directory changed under the cookie */
	{ 10003, ERESTART }, /* BAD_COOKIE: likewise */
	{ 10004, EOPNOTSUPP }, /* NOTSUPP */
	{ 10005, ERANGE }, /* TOOSMALL */
	{ 10006, EREMOTEIO }, /* SERVERFAULT */
	{ 10007, EOPNOTSUPP }, /* BADTYPE: MKNOD of this type */
	{ 10008, EAGAIN }, /* JUKEBOX, DELAY */
	{ 10012, EBUSY }, /* LOCKED: another client has the file open and denies sharing */
	{ 10013, EAGAIN }, /* GRACE */
	{ 10014, ESTALE }, /* FHEXPIRED */
	{ 10016, EACCES }, /* WRONGSEC: the export requires another security flavor */
	{ 10018, EREMOTEIO }, /* RESOURCE */
	{ 10019, EREMOTE }, /* MOVED */
	{ 10027, ENOTDIR }, /* NOT_SAME: only RMDIR verifies, that it is a directory */
	{ 10021, EPROTONOSUPPORT }, /* MINOR_VERS_MISMATCH */
	{ 10029, ELOOP }, /* SYMLINK: a path component is one */
	{ 10039, NFS_EOWNER }, /* BADOWNER */
	{ 10040, EILSEQ }, /* BADCHAR */
	{ 10041, EINVAL }, /* BADNAME */
	{ 10044, EOPNOTSUPP }, /* OP_ILLEGAL: of a later minor version */
	{ 10046, EBUSY }, /* FILE_OPEN */

	/* RFC 8881 section 15.1 and RFC 7862 section 11. */
	{ 10065, EMSGSIZE }, /* REQ_TOO_BIG */
	{ 10066, ERANGE }, /* REP_TOO_BIG */
	{ 10067, EAGAIN }, /* REP_TOO_BIG_TO_CACHE: the session asks for no caching from now on */
	{ 10070, EMSGSIZE }, /* TOO_MANY_OPS */
	{ 10083, EINVAL }, /* WRONG_TYPE: what 4.0 calls INVAL */
	{ 10088, EOPNOTSUPP }, /* PARTNER_NOTSUPP */
	{ 10089, EOPNOTSUPP }, /* PARTNER_NO_AUTH */
	{ 10090, EOPNOTSUPP }, /* UNION_NOTSUPP */
	{ 10091, EOPNOTSUPP }, /* OFFLOAD_DENIED */
	{ 10094, EOPNOTSUPP }, /* OFFLOAD_NO_REQS: COPY only with a later answer */

	/* RFC 8276 section 8.3. */
	{ 10095, ENODATA }, /* NOXATTR */
	{ 10096, E2BIG }, /* XATTR2BIG */
};

int nfs_status_errno(unsigned int status)
{
	size_t i;

	if (status < 63)
		return -(int)status;
	for (i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].status == status)
			return -statuses[i].error;
	return -EREMOTEIO;
}

static const struct reason {
	int error;
	enum error_code code;
	const char *hint; /* what to do; NULL: none */
} reasons[] = {
	{ ENOENT, ERROR_NOT_FOUND, NULL },
	{ EACCES, ERROR_PERMISSION_DENIED,
	  "the server refuses the identity that was used; check squashing and the directory's mode" },
	{ EPERM, ERROR_PERMISSION_DENIED,
	  "the server refuses the identity that was used; check squashing and the directory's owner" },
	{ EROFS, ERROR_FAILED_PRECONDITION, "the export is read-only" },
	{ ENOSPC, ERROR_RESOURCE_EXHAUSTED, "the export's file system is full" },
	{ EDQUOT, ERROR_RESOURCE_EXHAUSTED, "a quota on the server is used up" },
	{ EFBIG, ERROR_FAILED_PRECONDITION, "the file is too large for the export's file system" },
	{ EMLINK, ERROR_RESOURCE_EXHAUSTED,
	  "the file has too many names, or the directory too many subdirectories" },
	{ EEXIST, ERROR_ALREADY_EXISTS, NULL },
	{ ENOTDIR, ERROR_FAILED_PRECONDITION, "something on the path is not a directory" },
	{ ELOOP, ERROR_FAILED_PRECONDITION, "symbolic links on the server are not followed" },
	{ ENAMETOOLONG, ERROR_INVALID_ARGUMENT, NULL },
	{ EILSEQ, ERROR_INVALID_ARGUMENT, "the server does not accept these characters in a name" },
	{ EINVAL, ERROR_INVALID_ARGUMENT, NULL },
	{ EOPNOTSUPP, ERROR_FAILED_PRECONDITION, "the server does not support it" },
	{ NFS_EOWNER, ERROR_FAILED_PRECONDITION, NFS_OWNER_HINT },
	{ EREMOTE, ERROR_FAILED_PRECONDITION, "it is a referral to another server" },
	{ ESTALE, ERROR_UNAVAILABLE,
	  "the server no longer knows the directory; it will be looked up again" },
	{ EISDIR, ERROR_FAILED_PRECONDITION, "a directory is in the way" },
	{ EOVERFLOW, ERROR_FAILED_PRECONDITION, "or the server's listing does not end" },
	{ EBUSY, ERROR_UNAVAILABLE, "it is in use on the server; try again" },
	{ EINPROGRESS, ERROR_ABORTED, "another controller is writing it; try again" },
	{ ERESTART, ERROR_ABORTED, "it changed in the meantime; try again" },
	{ ETIMEDOUT, ERROR_UNAVAILABLE, NULL }, /* nfs_silent_error() */
	{ ECONNABORTED, ERROR_UNAVAILABLE, "the connection broke" },
	{ EAGAIN, ERROR_UNAVAILABLE, "the server asked to retry later" },
	{ ENOMEM, ERROR_RESOURCE_EXHAUSTED, NULL },
	/* I/O errors and server faults may be temporary, and may have left something behind. */
	{ EIO, ERROR_UNAVAILABLE, "check the server's log" },
	{ EREMOTEIO, ERROR_UNAVAILABLE, "check the server's log" },
	{ EBADRQC, ERROR_UNAVAILABLE, "the server cannot read the call; check its log" },
	{ EBADMSG, ERROR_UNAVAILABLE, "the server's reply is wrong; check its log" },
	{ EPROTO, ERROR_UNAVAILABLE, "the server has stopped serving NFS" },
	{ EPROTONOSUPPORT, ERROR_UNAVAILABLE, "the server has stopped serving this NFS version" },
};

static const struct reason *find_reason(int error)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].error == -error)
			return &reasons[i];
	return NULL;
}

enum error_code nfs_error_code(int error)
{
	const struct reason *reason = find_reason(error);

	return reason != NULL ? reason->code : ERROR_INTERNAL;
}

int nfs_silent_error(struct error *err, const struct nfs_export *e)
{
	(void)error_set(err, ERROR_UNAVAILABLE,
			"server '%s' does not answer on port %u; is it running, and does the firewall let us through?",
			e->server, e->port != 0 ? e->port : NET_NFS_PORT);
	return -EHOSTDOWN;
}

/*
 * Report the state of the server, not the operation, so that the text is the same for every call;
 * see base/error.h.
 */
static int set_state(struct error *err, const struct nfs_client *c, int error)
{
	const bool is_first = err != NULL && err->code == ERROR_OK;

	if (error == -ETIMEDOUT)
		(void)nfs_silent_error(err, &c->export);
	else
		(void)error_set(err, ERROR_UNAVAILABLE,
				"server '%s' has just started and is in its grace period: it refuses removals and renames until clients have reclaimed their open files",
				c->export.server);
	if (is_first) {
		err->sys = -error;
		err->retry_ms = error == -EAGAIN ? NFS_GRACE_RETRY_MS : 0;
		err->wait_for = net_server_number(c->export.server, c->export.port);
	}
	return error;
}

int nfs_error_set(struct error *err, const struct nfs_client *c, int error, const char *fmt, ...)
{
	const struct reason *reason = find_reason(error);
	const char *hint = reason != NULL ? reason->hint : NULL;
	const char *text = strerror(-error);
	char what[256];
	va_list ap;

	if (error == -ETIMEDOUT || (error == -EAGAIN && c->in_grace))
		return set_state(err, c, error);
	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* cut when too long */
	va_end(ap);
	/* strerror() misleads for these. */
	if (error == -EOVERFLOW)
		text = "the directory has too many entries";
	if (error == -NFS_EOWNER && c->version == 3) {
		text = "the server has not set this owner";
		hint = "its file system keeps no owners, or it maps them";
	} else if (error == -NFS_EOWNER) {
		text = "the server does not know this owner";
	}
	(void)error_set(err, nfs_error_code(error), "%s on %s:%s (NFSv%s, uid %u): %s%s%s", what,
			c->export.server, c->export.share, nfs_version_text(c), c->export.uid, text,
			hint != NULL ? "; " : "", hint != NULL ? hint : "");
	if (err != NULL && err->sys == 0)
		err->sys = -error;
	return error;
}
