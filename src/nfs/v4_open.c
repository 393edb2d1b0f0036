/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "nfs/error.h"
#include "nfs/v4_client.h"
#include "nfs/v4_send.h"
#include "nfs/v4_session.h"

/*
 * OPENs in flight. Over a network, half as many OPENs create half as many files per second. An
 * owner costs the server a little memory until the lease ends, and is only made when needed.
 */
#define OWNERS_MAX NFS_WINDOW

/* The stateid of the OPEN before (RFC 8881, section 16.2.3.1.2). */
static const stateid4 current_stateid = { .seqid = 1 };

/* Tries of an OPEN that finds its lease lost or its sequence number refused. */
#define TRIES_MAX 3

/* A file being created. */
struct file_creation {
	struct list waiting; /* link in v4_opener.waiting, while WAITING */
	struct nfs_op *op;
	struct v4_opener *opener;
	struct open_owner *owner; /* NULL while WAITING */
	unsigned int tries;
	bool whole; /* the caller wants the data written as well */
	stateid4 stateid; /* of the open file */
	struct nfs_handle dir;
	char name[]; /* dir and name are copies: the caller's may be gone when the OPEN is sent */
};

/* An open-owner: a name and the sequence number of its next request. */
struct open_owner {
	bool busy;
	uint64_t clientid; /* it was made for this one; 0: discarded, make a new one */
	uint32_t number; /* its name, in digits */
	uint32_t seqid;
};

struct v4_opener {
	struct nfs_connection *conn;
	struct v4_client client;
	uint32_t owners_made;
	bool closes_apart; /* the server does not know the stateid of an OPEN in its compound */
	struct open_owner owners[OWNERS_MAX];
	struct list waiting; /* of creations */
};

static void client_answered(struct v4_client *client, int error);

static int get_opener(struct nfs_connection *conn, struct v4_opener **ret)
{
	struct v4_opener *o = conn->opener;

	if (o == NULL) {
		o = calloc(1, sizeof(*o));
		if (o == NULL)
			return -ENOMEM;
		o->conn = conn;
		list_init(&o->waiting);
		v4_client_init(&o->client, conn, client_answered);
		conn->opener = o;
	}
	*ret = o;
	return 0;
}

static int new_creation(struct file_creation **ret, struct v4_opener *o, struct nfs_op *op)
{
	size_t size = strlen(op->name) + 1;
	struct file_creation *c = calloc(1, sizeof(*c) + size);

	if (c == NULL)
		return -ENOMEM;
	list_init(&c->waiting);
	c->op = op;
	c->opener = o;
	c->whole = op->whole;
	op->whole = false;
	c->dir = *op->dir;
	memcpy(c->name, op->name, size);
	*ret = c;
	return 0;
}

static struct open_owner *claim_owner(struct v4_opener *o)
{
	struct open_owner *owner;

	for (owner = o->owners; owner < o->owners + OWNERS_MAX; owner++) {
		if (owner->busy)
			continue;
		owner->busy = true;
		if (owner->clientid == 0 || owner->clientid != o->client.id) {
			owner->clientid = o->client.id;
			owner->number = ++o->owners_made;
			owner->seqid = 0;
		}
		return owner;
	}
	return NULL;
}

static void release_owner(struct file_creation *c)
{
	if (c->owner != NULL)
		c->owner->busy = false;
	c->owner = NULL;
}

/* Discard the owner's name, because the sequence number that the server expects is not known. */
static void discard_owner(struct file_creation *c)
{
	c->owner->clientid = 0;
}

static void finish_creation(struct file_creation *c, int error)
{
	struct nfs_op *op = c->op;

	release_owner(c);
	free(c);
	nfs_op_finish(op, error);
}

static void finish_waiting(struct v4_opener *o, int error)
{
	struct list all, *item, *next;

	/* Take the whole list first: the callbacks may start other creations. */
	list_init(&all);
	list_for_each_safe(item, next, &o->waiting) {
		list_remove(item);
		list_add_tail(&all, item);
	}
	while (!list_is_empty(&all)) {
		item = all.next;
		list_remove(item);
		finish_creation(container_of(item, struct file_creation, waiting), error);
	}
}

static void send_waiting_creations(struct v4_opener *o);

static void client_answered(struct v4_client *client, int error)
{
	struct v4_opener *o = container_of(client, struct v4_opener, client);

	if (error < 0)
		finish_waiting(o, error);
	else
		send_waiting_creations(o);
}

/* -------- OPEN, OPEN_CONFIRM, CLOSE -------- */

/* A creation has its result. Send the next one before the caller's callback. */
static void end_creation(struct file_creation *c, int error)
{
	release_owner(c);
	send_waiting_creations(c->opener);
	finish_creation(c, error);
}

/* Check whether this status advances the owner's sequence number (RFC 7530, section 9.1.7). */
static bool advances_seqid(nfsstat4 status)
{
	switch (status) {
	case NFS4ERR_STALE_CLIENTID:
	case NFS4ERR_STALE_STATEID:
	case NFS4ERR_BAD_STATEID:
	case NFS4ERR_BAD_SEQID:
	case NFS4ERR_BADZDR:
	case NFS4ERR_RESOURCE:
	case NFS4ERR_NOFILEHANDLE:
	case NFS4ERR_MOVED:
		return false;
	default:
		return true;
	}
}

static bool find_result(const COMPOUND4res *res, nfs_opnum4 opnum, nfs_resop4 *ret)
{
	u_int i;

	for (i = 0; i < res->resarray.resarray_len; i++) {
		const nfs_resop4 *one = &res->resarray.resarray_val[i];

		if (one->resop == opnum) {
			*ret = *one;
			return true;
		}
	}
	return false;
}

/*
 * Find the result of the owner's request and advance its sequence number. Returns false if the
 * server did not get that far, and the owner is unchanged.
 */
static bool take_owner_result(struct file_creation *c, const COMPOUND4res *res, nfs_opnum4 opnum,
			      nfs_resop4 *ret)
{
	if (!find_result(res, opnum, ret))
		return false;
	/* All results begin with their status. */
	if (advances_seqid(ret->nfs_resop4_u.opopen.status))
		c->owner->seqid++;
	return true;
}

/*
 * The file exists, which is all that the caller needs. If the server still holds it open, it closes
 * it when the lease ends.
 */
static void end_without_close(struct file_creation *c)
{
	discard_owner(c);
	end_creation(c, 0);
}

static void end_broken(struct file_creation *c, int error)
{
	discard_owner(c);
	end_creation(c, error);
}

static void close_replied(void *data, int error, const void *results)
{
	struct file_creation *c = data;
	nfs_resop4 one;

	if (error < 0)
		end_broken(c, error);
	else if (!take_owner_result(c, results, OP_CLOSE, &one) ||
		 one.nfs_resop4_u.opclose.status != NFS4_OK)
		end_without_close(c);
	else
		end_creation(c, 0);
}

static void send_close(struct file_creation *c)
{
	struct v4_compound compound = { .n = 0 };
	CLOSE4args *args;
	int r;

	v4_add_putfh(&compound, &c->op->handle);
	args = &v4_add(&compound, OP_CLOSE)->nfs_argop4_u.opclose;
	args->seqid = c->owner->seqid;
	args->open_stateid = c->stateid;
	r = v4_send(c->opener->conn, &compound, close_replied, c);
	if (r < 0)
		end_broken(c, r);
}

static void open_confirm_replied(void *data, int error, const void *results)
{
	struct file_creation *c = data;
	const OPEN_CONFIRM4res *confirm;
	nfs_resop4 one;

	if (error < 0) {
		end_broken(c, error);
		return;
	}
	confirm = &one.nfs_resop4_u.opopen_confirm;
	if (!take_owner_result(c, results, OP_OPEN_CONFIRM, &one) || confirm->status != NFS4_OK) {
		end_without_close(c);
		return;
	}
	c->stateid = confirm->OPEN_CONFIRM4res_u.resok4.open_stateid;
	send_close(c);
}

static void send_open_confirm(struct file_creation *c)
{
	struct v4_compound compound = { .n = 0 };
	OPEN_CONFIRM4args *args;
	int r;

	v4_add_putfh(&compound, &c->op->handle);
	args = &v4_add(&compound, OP_OPEN_CONFIRM)->nfs_argop4_u.opopen_confirm;
	args->seqid = c->owner->seqid;
	args->open_stateid = c->stateid;
	r = v4_send(c->opener->conn, &compound, open_confirm_replied, c);
	if (r < 0)
		end_broken(c, r);
}

static void retry_open(struct file_creation *c, int error)
{
	struct v4_opener *o = c->opener;

	if (++c->tries == TRIES_MAX) {
		end_creation(c, error);
		return;
	}
	release_owner(c);
	list_add_tail(o->waiting.next, &c->waiting); /* first in the list */
	send_waiting_creations(o);
}

/* A session needs no confirmation, and its compounds can close what they have opened. */
static bool closes_at_once(const struct v4_opener *o)
{
	return o->conn->session != NULL && !o->closes_apart;
}

static void take_open_error(struct file_creation *c, nfsstat4 status)
{
	struct v4_opener *o = c->opener;
	int error = nfs_status_errno(status);

	c->op->in_grace = status == NFS4ERR_GRACE;
	switch (status) {
	case NFS4ERR_STALE_CLIENTID:
	case NFS4ERR_EXPIRED:
		v4_client_lost(&o->client, c->owner->clientid);
		retry_open(c, error);
		break;
	case NFS4ERR_BAD_SEQID:
		discard_owner(c);
		retry_open(c, error);
		break;
	default:
		end_creation(c, error);
		break;
	}
}

/* Whether the data was written and the attributes were set, with all of it on disk. */
static bool is_done_whole(const struct nfs_op *op, const COMPOUND4res *res)
{
	const WRITE4res *written = NULL;
	nfs_resop4 one;

	if (op->count > 0) {
		if (!find_result(res, OP_WRITE, &one))
			return false;
		written = &one.nfs_resop4_u.opwrite;
		if (written->status != NFS4_OK || written->WRITE4res_u.resok4.count != op->count ||
		    written->WRITE4res_u.resok4.committed != FILE_SYNC4)
			return false;
	}
	return find_result(res, OP_SETATTR, &one) && one.nfs_resop4_u.opsetattr.status == NFS4_OK &&
	       op->attr.is_full;
}

/* Why the file that was made has no handle. The OPEN is not to be repeated: it would be EEXIST. */
static int handle_error(nfsstat4 status)
{
	const int error = nfs_status_errno(status);

	return error == 0 || error == -EAGAIN ? -EREMOTEIO : error;
}

/* Attributes are optional; the handle is required. */
static void take_open(struct file_creation *c, const COMPOUND4res *res, const OPEN4resok *ok)
{
	struct nfs_op *op = c->op;
	nfs_resop4 one;

	c->stateid = ok->stateid;
	op->handle.len = 0;
	if (find_result(res, OP_GETFH, &one) && one.nfs_resop4_u.opgetfh.status == NFS4_OK)
		v4_take_handle(&one, &op->handle);
	if (find_result(res, OP_GETATTR, &one) && one.nfs_resop4_u.opgetattr.status == NFS4_OK)
		v4_take_attr(&one.nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes,
			     op->client, &op->attr, &op->handle);
	op->whole = c->whole && is_done_whole(op, res);
	if (op->handle.len > 0 && closes_at_once(c->opener) && find_result(res, OP_CLOSE, &one)) {
		if (one.nfs_resop4_u.opclose.status == NFS4_OK) {
			end_creation(c, 0);
			return;
		}
		c->opener->closes_apart = true;
	}
	if (op->handle.len == 0)
		end_broken(c, handle_error(res->status));
	else if (ok->rflags & OPEN4_RESULT_CONFIRM)
		send_open_confirm(c);
	else
		send_close(c);
}

static void open_replied(void *data, int error, const void *results)
{
	struct file_creation *c = data;
	const COMPOUND4res *res = results;
	const OPEN4res *open;
	nfs_resop4 one;

	if (error < 0) {
		end_broken(c, error);
		return;
	}
	open = &one.nfs_resop4_u.opopen;
	if (!take_owner_result(c, res, OP_OPEN, &one))
		end_creation(c, nfs_status_errno(res->status));
	else if (open->status != NFS4_OK)
		take_open_error(c, open->status);
	else
		take_open(c, res, &open->OPEN4res_u.resok4);
}

/* Write the data and set the attributes of the current file, which need not be open. */
static void add_contents(struct v4_compound *compound, const struct nfs_op *op)
{
	WRITE4args *args;

	if (op->count > 0) {
		args = &v4_add(compound, OP_WRITE)->nfs_argop4_u.opwrite;
		args->stable = FILE_SYNC4;
		args->data.data_len = op->count;
		args->data.data_val = op->buffer;
	}
	v4_add(compound, OP_SETATTR)->nfs_argop4_u.opsetattr.obj_attributes =
		v4_change(compound, &op->then);
	v4_add_getattr(compound, V4_FULL);
}

static int send_open(struct file_creation *c)
{
	struct v4_compound compound = { .n = 0 };
	struct open_owner *owner = c->owner;
	struct nfs_op *op = c->op;
	char name[V4_OWNER_DIGITS_MAX + 1];
	OPEN4args *args;

	v4_add_putfh(&compound, &c->dir);
	args = &v4_add(&compound, OP_OPEN)->nfs_argop4_u.opopen;
	args->seqid = owner->seqid;
	/* Linux syncs a file that was opened for writing at CLOSE, even if nothing was written. */
	args->share_access = OPEN4_SHARE_ACCESS_READ;
	args->share_deny = OPEN4_SHARE_DENY_NONE;
	args->owner.clientid = owner->clientid;
	args->owner.owner.owner_len =
		(u_int)snprintf(name, sizeof(name), "%" PRIu32, owner->number);
	args->owner.owner.owner_val = name;
	args->openhow.opentype = OPEN4_CREATE;
	args->openhow.openflag4_u.how.mode = GUARDED4;
	args->openhow.openflag4_u.how.createhow4_u.createattrs = v4_change(&compound, &op->change);
	args->claim.claim = CLAIM_NULL;
	args->claim.open_claim4_u.file = v4_text(c->name);
	v4_add(&compound, OP_GETFH);
	c->whole = c->whole && closes_at_once(c->opener) && op->count <= op->client->whole_max;
	if (!c->whole)
		v4_add_getattr(&compound, V4_OWNER);
	if (closes_at_once(c->opener))
		v4_add(&compound, OP_CLOSE)->nfs_argop4_u.opclose.open_stateid = current_stateid;
	if (c->whole)
		add_contents(&compound, op);
	return v4_send(c->opener->conn, &compound, open_replied, c);
}

/* Send waiting creations while there are free owners. */
static void send_waiting_creations(struct v4_opener *o)
{
	while (!list_is_empty(&o->waiting) && nfs_connection_is_up(o->conn)) {
		struct file_creation *c =
			container_of(o->waiting.next, struct file_creation, waiting);
		int r;

		r = v4_client_get(&o->client);
		if (r < 0)
			finish_waiting(o, r);
		if (r != 1)
			return;
		c->owner = claim_owner(o);
		if (c->owner == NULL)
			return;
		list_remove(&c->waiting);
		r = send_open(c);
		if (r < 0)
			finish_creation(c, r);
	}
}

/* Like send_waiting_creations() for c, but on failure c is left to the caller. */
static int send_or_wait(struct v4_opener *o, struct file_creation *c)
{
	int r;

	r = v4_client_get(&o->client);
	if (r < 0)
		return r;
	if (r == 1)
		c->owner = claim_owner(o);
	if (c->owner == NULL) {
		list_add_tail(&o->waiting, &c->waiting);
		return 0;
	}
	r = send_open(c);
	if (r < 0)
		release_owner(c);
	return r;
}

int v4_open_start(struct nfs_connection *conn, struct nfs_op *op)
{
	struct v4_opener *o;
	struct file_creation *c;
	int r;

	r = get_opener(conn, &o);
	if (r < 0)
		return r;
	r = new_creation(&c, o, op);
	if (r < 0)
		return r;
	r = send_or_wait(o, c);
	if (r < 0)
		free(c);
	return r;
}

void v4_open_broken(struct nfs_connection *conn, int failure)
{
	struct v4_opener *o = conn->opener;

	if (o == NULL)
		return;
	finish_waiting(o, failure);
	conn->opener = NULL;
	free(o);
}
