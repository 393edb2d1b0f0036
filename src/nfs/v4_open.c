/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "nfs/v4_client.h"
#include "nfs/v4_compound.h"

/*
 * As many OPENs at a time: over a network half of them are half as many files. An owner costs the
 * server a little memory until the lease is over, and is only made for what is in flight.
 */
#define OWNERS_MAX NFS_WINDOW

/* How often an OPEN may meet a lost lease or an owner that the server has other ideas of. */
#define TRIES_MAX 3

/* One file that is being created. */
struct creation {
	struct list waiting; /* in v4_opener.waiting, while it has no owner */
	struct nfs_op *op;
	struct v4_opener *opener;
	struct owner *owner; /* while it is in flight */
	unsigned int tries;
	stateid4 stateid; /* of the open file */
	struct nfs_handle dir;
	char name[]; /* both copied: the caller's may be gone when its turn comes */
};

/* An open-owner: a name and the number of its next request. */
struct owner {
	bool busy;
	uint64_t clientid; /* that it was made for; 0: it has to be made anew */
	uint32_t number; /* its name */
	uint32_t seqid;
};

struct v4_opener {
	struct nfs_connection *conn;
	struct v4_client client;
	uint32_t owners_made;
	struct owner owners[OWNERS_MAX];
	struct list waiting; /* of creations */
};

static void client_answered(struct v4_client *client, int error);

static int opener_of(struct nfs_connection *conn, struct v4_opener **ret)
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

static int new_creation(struct creation **ret, struct v4_opener *o, struct nfs_op *op)
{
	size_t size = strlen(op->name) + 1;
	struct creation *c = calloc(1, sizeof(*c) + size);

	if (c == NULL)
		return -ENOMEM;
	list_init(&c->waiting);
	c->op = op;
	c->opener = o;
	c->dir = *op->dir;
	memcpy(c->name, op->name, size);
	*ret = c;
	return 0;
}

static struct owner *take_owner(struct v4_opener *o)
{
	struct owner *owner;

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

static void release_owner(struct creation *c)
{
	if (c->owner != NULL)
		c->owner->busy = false;
	c->owner = NULL;
}

/* The server's idea of its next number is not known, or not ours: it goes on under a new name. */
static void forget_owner(struct creation *c)
{
	c->owner->clientid = 0;
}

static void finish(struct creation *c, int error)
{
	struct nfs_op *op = c->op;

	release_owner(c);
	free(c);
	nfs_op_finish(op, error);
}

static void finish_waiting(struct v4_opener *o, int error)
{
	struct list all, *item, *next;

	/* Whoever hears of it may start others, which are none of these. */
	list_init(&all);
	list_for_each_safe(item, next, &o->waiting) {
		list_remove(item);
		list_add_tail(&all, item);
	}
	while (!list_is_empty(&all)) {
		item = all.next;
		list_remove(item);
		finish(container_of(item, struct creation, waiting), error);
	}
}

static void send_waiting(struct v4_opener *o);

static void client_answered(struct v4_client *client, int error)
{
	struct v4_opener *o = container_of(client, struct v4_opener, client);

	if (error < 0)
		finish_waiting(o, error);
	else
		send_waiting(o);
}

/* -------- OPEN, OPEN_CONFIRM, CLOSE -------- */

/* A creation has its result: what waits goes on before the caller hears of it. */
static void end(struct creation *c, int error)
{
	release_owner(c);
	send_waiting(c->opener);
	finish(c, error);
}

/* Whether the server counts a request of an owner that it answers so (RFC 7530, section 9.1.7). */
static bool is_counted(nfsstat4 status)
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
 * Finds the result of the owner's request, and counts it. False where the server did not get that
 * far: then the owner is as before.
 */
static bool take_counted(struct creation *c, const COMPOUND4res *res, nfs_opnum4 opnum,
			 nfs_resop4 *ret)
{
	if (!find_result(res, opnum, ret))
		return false;
	/* All results begin with their status. */
	if (is_counted(ret->nfs_resop4_u.opopen.status))
		c->owner->seqid++;
	return true;
}

/*
 * The file is there, and that is all that the caller wants to know. What the server may still hold
 * open it closes with the lease.
 */
static void end_without_close(struct creation *c)
{
	forget_owner(c);
	end(c, 0);
}

static void end_broken(struct creation *c, int error)
{
	forget_owner(c);
	end(c, error);
}

static void close_replied(void *data, int error, const void *results)
{
	struct creation *c = data;
	nfs_resop4 one;

	if (error < 0)
		end_broken(c, error);
	else if (!take_counted(c, results, OP_CLOSE, &one) ||
		 one.nfs_resop4_u.opclose.status != NFS4_OK)
		end_without_close(c);
	else
		end(c, 0);
}

static void send_close(struct creation *c)
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
	struct creation *c = data;
	const OPEN_CONFIRM4res *confirm;
	nfs_resop4 one;

	if (error < 0) {
		end_broken(c, error);
		return;
	}
	confirm = &one.nfs_resop4_u.opopen_confirm;
	if (!take_counted(c, results, OP_OPEN_CONFIRM, &one) || confirm->status != NFS4_OK) {
		end_without_close(c);
		return;
	}
	c->stateid = confirm->OPEN_CONFIRM4res_u.resok4.open_stateid;
	send_close(c);
}

static void send_open_confirm(struct creation *c)
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

static void retry(struct creation *c, int error)
{
	struct v4_opener *o = c->opener;

	if (++c->tries == TRIES_MAX) {
		end(c, error);
		return;
	}
	release_owner(c);
	list_add_tail(o->waiting.next, &c->waiting); /* before all others */
	send_waiting(o);
}

static void open_failed(struct creation *c, nfsstat4 status)
{
	struct v4_opener *o = c->opener;
	int error = nfs_status_errno(status);

	switch (status) {
	case NFS4ERR_STALE_CLIENTID:
	case NFS4ERR_EXPIRED:
		v4_client_lost(&o->client, c->owner->clientid);
		retry(c, error);
		break;
	case NFS4ERR_BAD_SEQID:
		forget_owner(c);
		retry(c, error);
		break;
	default:
		end(c, error);
		break;
	}
}

/* The attributes are a courtesy, without the handle nothing goes on. */
static void opened(struct creation *c, const COMPOUND4res *res, const OPEN4resok *ok)
{
	struct nfs_op *op = c->op;
	nfs_resop4 one;

	c->stateid = ok->stateid;
	op->handle.len = 0;
	if (find_result(res, OP_GETFH, &one) && one.nfs_resop4_u.opgetfh.status == NFS4_OK)
		v4_take_handle(&one, &op->handle);
	if (find_result(res, OP_GETATTR, &one) && one.nfs_resop4_u.opgetattr.status == NFS4_OK)
		v4_take_attr(&one.nfs_resop4_u.opgetattr.GETATTR4res_u.resok4.obj_attributes,
			     &op->attr, &op->handle);
	if (op->handle.len == 0)
		end_broken(c, res->status != NFS4_OK ? nfs_status_errno(res->status) : -EREMOTEIO);
	else if (ok->rflags & OPEN4_RESULT_CONFIRM)
		send_open_confirm(c);
	else
		send_close(c);
}

static void open_replied(void *data, int error, const void *results)
{
	struct creation *c = data;
	const COMPOUND4res *res = results;
	const OPEN4res *open;
	nfs_resop4 one;

	if (error < 0) {
		end_broken(c, error);
		return;
	}
	open = &one.nfs_resop4_u.opopen;
	if (!take_counted(c, res, OP_OPEN, &one))
		end(c, nfs_status_errno(res->status));
	else if (open->status != NFS4_OK)
		open_failed(c, open->status);
	else
		opened(c, res, &open->OPEN4res_u.resok4);
}

static int send_open(struct creation *c)
{
	struct v4_compound compound = { .n = 0 };
	struct owner *owner = c->owner;
	char name[V4_OWNER_DIGITS_MAX + 1];
	OPEN4args *args;

	v4_add_putfh(&compound, &c->dir);
	args = &v4_add(&compound, OP_OPEN)->nfs_argop4_u.opopen;
	args->seqid = owner->seqid;
	args->share_access = OPEN4_SHARE_ACCESS_WRITE;
	args->share_deny = OPEN4_SHARE_DENY_NONE;
	args->owner.clientid = owner->clientid;
	args->owner.owner.owner_len = (u_int)snprintf(name, sizeof(name), "%" PRIu32, owner->number);
	args->owner.owner.owner_val = name;
	args->openhow.opentype = OPEN4_CREATE;
	args->openhow.openflag4_u.how.mode = GUARDED4;
	args->openhow.openflag4_u.how.createhow4_u.createattrs = v4_change(&compound, &c->op->change);
	args->claim.claim = CLAIM_NULL;
	args->claim.open_claim4_u.file = v4_text(c->name);
	v4_add(&compound, OP_GETFH);
	v4_add_getattr(&compound, V4_OWNER);
	return v4_send(c->opener->conn, &compound, open_replied, c);
}

/* Sends what waits, as far as there are owners for it. */
static void send_waiting(struct v4_opener *o)
{
	while (!list_is_empty(&o->waiting) && nfs_connection_is_up(o->conn)) {
		struct creation *c = container_of(o->waiting.next, struct creation, waiting);
		int r;

		r = v4_client_get(&o->client);
		if (r < 0)
			finish_waiting(o, r);
		if (r != 1)
			return;
		c->owner = take_owner(o);
		if (c->owner == NULL)
			return;
		list_remove(&c->waiting);
		r = send_open(c);
		if (r < 0)
			finish(c, r);
	}
}

/* As send_waiting() for this one, but nothing has ended when it fails. */
static int send_or_wait(struct v4_opener *o, struct creation *c)
{
	int r;

	r = v4_client_get(&o->client);
	if (r < 0)
		return r;
	if (r == 1)
		c->owner = take_owner(o);
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
	struct creation *c;
	int r;

	r = opener_of(conn, &o);
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
