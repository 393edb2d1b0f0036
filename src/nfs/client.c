/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/connect.h"

#define RETRY_FIRST_MS 50
#define RETRY_LAST_MS 1000

void nfs_client_free(struct nfs_client *c)
{
	if (c != NULL)
		c->ops->free(c);
}

bool nfs_handle_is_equal(const struct nfs_handle *a, const struct nfs_handle *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

unsigned int nfs_window(const struct nfs_client *c)
{
	const unsigned int window = c->window != 0 ? c->window : NFS_WINDOW;
	/* A copy within a share has a window for reading and one for writing. */
	const unsigned int half = c->slots > 2 ? c->slots / 2 : 1;

	return c->slots == 0 || window < half ? window : half;
}

int nfs_client_start(struct nfs_client *c, struct nfs_op *op)
{
	op->client = c;
	op->finished = false;
	op->error = 0;
	return c->ops->start(c, op);
}

int nfs_client_run(struct nfs_client *c)
{
	return c->ops->run(c, clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS);
}

size_t nfs_remove_max(const struct nfs_client *c)
{
	if (c->version != 4)
		return 1;
	/* One operation is PUTFH. */
	return c->operations == 0 || c->operations > NFS_REMOVE_MAX ? NFS_REMOVE_MAX
								    : c->operations - 1;
}

const char *nfs_version_text(const struct nfs_client *c)
{
	static const char *const minors[] = { "4.0", "4.1", "4.2" };

	return c->version == 3 ? "3" : minors[c->minor];
}

bool nfs_time_fits(const struct nfs_client *c, const struct nfs_time *time)
{
	return c->version != 3 || (time->sec >= 0 && time->sec <= UINT32_MAX);
}

static uint32_t transfer_max(uint32_t told)
{
	return told != 0 && told < NFS_TRANSFER_MAX ? told : NFS_TRANSFER_MAX;
}

uint32_t nfs_read_max(const struct nfs_client *c)
{
	return transfer_max(c->read_max);
}

uint32_t nfs_write_max(const struct nfs_client *c)
{
	return transfer_max(c->write_max);
}

static int make_attempt(struct nfs_client *c, struct nfs_op *op, uint64_t deadline_ns)
{
	int r = nfs_client_start(c, op);

	if (r < 0)
		return r;
	while (!op->finished) {
		r = c->ops->run(c, deadline_ns);
		if (r < 0 && !op->finished)
			return r;
		/* No error past the deadline: the server is alive and at work. */
		if (clock_now_ns() >= deadline_ns)
			deadline_ns = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	}
	return op->error;
}

int nfs_client_call(struct nfs_client *c, struct nfs_op *op)
{
	const uint64_t begun = clock_now_ns();
	uint64_t deadline = begun + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;
	unsigned int wait_ms = RETRY_FIRST_MS;
	int r;

	c->in_grace = false;
	for (;;) {
		r = make_attempt(c, op, deadline);
		if (r == -EAGAIN && c->in_grace)
			deadline = begun + NFS_GRACE_TIMEOUT_MS * CLOCK_NS_PER_MS;
		if (r != -EAGAIN || clock_left_ms(deadline) <= (int)wait_ms)
			return r;
		clock_sleep_ms(wait_ms);
		if (wait_ms < RETRY_LAST_MS / 2)
			wait_ms *= 2;
	}
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
	{ EEXIST, ERROR_ALREADY_EXISTS, NULL },
	{ ENOTDIR, ERROR_FAILED_PRECONDITION, "something on the path is not a directory" },
	{ ELOOP, ERROR_FAILED_PRECONDITION, "symbolic links on the server are not followed" },
	{ ENAMETOOLONG, ERROR_INVALID_ARGUMENT, NULL },
	{ EILSEQ, ERROR_INVALID_ARGUMENT, "the server does not take these characters in a name" },
	{ EINVAL, ERROR_INVALID_ARGUMENT, NULL },
	{ EOPNOTSUPP, ERROR_FAILED_PRECONDITION, "the server does not support it" },
	{ NFS_EOWNER, ERROR_FAILED_PRECONDITION, NFS_OWNER_HINT },
	{ EREMOTE, ERROR_FAILED_PRECONDITION, "it is a referral to another server" },
	{ ESTALE, ERROR_UNAVAILABLE,
	  "the server no longer knows the directory; it will be looked up again" },
	{ EINPROGRESS, ERROR_ABORTED, "another controller is writing it; try again" },
	{ ERESTART, ERROR_ABORTED, "it changed meanwhile; try again" },
	{ ETIMEDOUT, ERROR_UNAVAILABLE, NULL }, /* nfs_silent_error() */
	{ ECONNABORTED, ERROR_UNAVAILABLE, "the connection broke" },
	{ EAGAIN, ERROR_UNAVAILABLE, "the server asks to retry later" },
	{ ENOMEM, ERROR_RESOURCE_EXHAUSTED, NULL },
	/* I/O errors and server faults may be temporary, and may have left something behind. */
	{ EIO, ERROR_UNAVAILABLE, "look into the server's log" },
	{ EREMOTEIO, ERROR_UNAVAILABLE, "look into the server's log" },
	{ EBADRQC, ERROR_UNAVAILABLE, "the server cannot read the call; look into its log" },
	{ EBADMSG, ERROR_UNAVAILABLE, "the server's reply is wrong; look into its log" },
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

/* This and set_in_grace() say the same whichever operation it was, see base/error.h. */
static int set_silent(struct error *err, const struct nfs_client *c)
{
	const bool first = err != NULL && err->code == ERROR_OK;

	(void)nfs_silent_error(err, &c->export);
	if (first) {
		err->sys = ETIMEDOUT;
		err->retry_ms = 0;
	}
	return -ETIMEDOUT;
}

static int set_in_grace(struct error *err, const struct nfs_client *c)
{
	const bool first = err != NULL && err->code == ERROR_OK;

	(void)error_set(err, ERROR_UNAVAILABLE,
			"server '%s' has just started and is in its grace period: until clients have claimed their open files again, it removes and renames nothing",
			c->export.server);
	if (first) {
		err->sys = EAGAIN;
		err->retry_ms = NFS_GRACE_RETRY_MS;
	}
	return -EAGAIN;
}

int nfs_error_set(struct error *err, const struct nfs_client *c, int error, const char *fmt, ...)
{
	const struct reason *reason = find_reason(error);
	const char *hint = reason != NULL ? reason->hint : NULL;
	const char *text = strerror(-error);
	char what[256];
	va_list ap;

	if (error == -ETIMEDOUT)
		return set_silent(err, c);
	if (error == -EAGAIN && c->in_grace)
		return set_in_grace(err, c);
	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* cut when too long */
	va_end(ap);
	/* NFS_EOWNER borrows an errno whose text is about something else. */
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
