/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "net/zdr.h"
#include "nfs/error.h"
#include "nfs/v4_session_parts.h"

/* A change with two long names and owners, or a symbolic link, or a small file. */
#define CHANGE_BYTES (16384U + NFS_WHOLE_MAX)

#define LEASE_MS 20000 /* of a server that does not say; RFC 8881 has no lower limit */

/*
 * sr_status_flags of a server that has lost or revoked state, RFC 8881 section 18.46. A server may
 * also set STATUS_RESTARTED until it gets RECLAIM_COMPLETE.
 */
#define STATUS_REVOKED (0x8U | 0x10U | 0x20U)
#define STATUS_RESTARTED 0x100U

/* -------- requests -------- */

static void request_free(struct v4_request *r)
{
	list_remove(&r->link);
	free(r->body);
	free(r);
}

static void request_finish(struct v4_request *r, int error, const void *results)
{
	net_rpc_replied *replied = r->replied;
	void *data = r->data;

	request_free(r);
	replied(data, error, results);
}

void v4_request_finish_all(struct list *requests, int error)
{
	while (!list_is_empty(requests))
		request_finish(container_of(requests->next, struct v4_request, link), error, NULL);
}

/* Operations that are not idempotent. */
static bool opnum_is_change(uint32_t opnum)
{
	switch (opnum) {
	case OP_CREATE:
	case OP_LINK:
	case OP_OPEN:
	case OP_REMOVE:
	case OP_RENAME:
		return true;
	default:
		return false;
	}
}

static bool has_change(const struct v4_compound *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++)
		if (opnum_is_change(c->ops[i].argop))
			return true;
	return false;
}

/* All results but the last are those of operations that succeeded. */
static bool has_made_change(const COMPOUND4res *res)
{
	u_int i;

	for (i = 0; i + 1 < res->resarray.resarray_len; i++)
		if (opnum_is_change(res->resarray.resarray_val[i].resop))
			return true;
	return false;
}

/* Keep the operations of a compound that may have to be sent later, or again. */
static int request_keep_body(struct v4_request *r, const struct v4_compound *c)
{
	const size_t rooms[] = { CHANGE_BYTES, V4_MESSAGE_BYTES };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		cleanup_free char *body = malloc(rooms[i] + NET_ZDR_ENCODE_SPARE);
		bool_t fits;
		ZDR zdr;

		if (body == NULL)
			return -ENOMEM;
		zdrmem_create(&zdr, body, (uint32_t)rooms[i], ZDR_ENCODE);
		fits = v4_encode_operations(&zdr, c);
		r->body_len = zdr_getpos(&zdr);
		zdr_destroy(&zdr);
		if (!fits)
			continue;
		r->body = malloc(r->body_len);
		if (r->body == NULL)
			return -ENOMEM;
		memcpy(r->body, body, r->body_len);
		return 0;
	}
	return -EMSGSIZE;
}

/* -------- slots -------- */

/* Return the lowest free slot, or -1. */
static int find_free_slot(const struct v4_session *s)
{
	uint32_t i;

	for (i = 0; i < s->n_slots; i++)
		if (!s->slots[i].busy)
			return (int)i;
	return -1;
}

static uint32_t highest_slot(const struct v4_session *s)
{
	uint32_t i, highest = 0;

	for (i = 0; i < V4_SLOTS_MAX; i++)
		if (s->slots[i].busy)
			highest = i;
	return highest;
}

static void request_replied(void *data, int error, const void *results);

int v4_request_send(struct v4_request *r, const struct v4_compound *c, struct net_rpc *rpc)
{
	struct v4_session *s = r->session;
	union v4_later_args sequence = {
		.sequence = {
			.sequence = s->slots[r->slot].sequence,
			.slot = r->slot,
			.highest_slot = highest_slot(s),
			.cache = r->is_cached,
		},
	};
	struct v4_message message = {
		.minor = s->minor,
		.sequence = &sequence,
		.compound = r->body == NULL ? c : NULL,
		.body = r->body,
		.body_len = r->body_len,
		.n = r->n,
	};

	memcpy(sequence.sequence.session, s->id, sizeof(s->id));
	return net_rpc_call(rpc, &v4_procedure, &message, request_replied, r);
}

static int request_start(struct v4_request *r, const struct v4_compound *c, uint32_t slot)
{
	struct v4_session *s = r->session;
	int error;

	r->slot = slot;
	r->is_cached = r->is_change && s->caches;
	s->slots[slot].busy = true;
	error = v4_request_send(r, c, s->conn->rpc);
	if (error < 0)
		s->slots[slot].busy = false;
	return error;
}

static void send_waiting_requests(struct v4_session *s)
{
	while (!list_is_empty(&s->waiting) && s->conn->rpc != NULL) {
		struct v4_request *r = container_of(s->waiting.next, struct v4_request, link);
		const int slot = find_free_slot(s);
		int error;

		if (slot < 0)
			return;
		list_remove(&r->link);
		error = request_start(r, NULL, (uint32_t)slot);
		if (error < 0)
			request_finish(r, error, NULL);
	}
}

/* -------- replies -------- */

void v4_session_follow_target(struct v4_session *s, uint32_t target)
{
	const uint32_t max = s->fore.slots < V4_SLOTS_MAX ? s->fore.slots : V4_SLOTS_MAX;

	s->n_slots = target < max ? target + 1 : max;
	s->conn->client.slots = s->n_slots;
}

/*
 * Take the result of SEQUENCE. Returns 0 if the server has begun with the other operations, else
 * why it has not: nothing was done.
 */
static int take_sequence(struct v4_request *r, const COMPOUND4res *res)
{
	struct v4_session *s = r->session;
	struct v4_slot *slot = &s->slots[r->slot];
	const union v4_later_result *result = NULL;
	const nfs_resop4 *one = res->resarray.resarray_val;

	if (res->resarray.resarray_len == 0 || (uint32_t)one->resop != V4_OP_SEQUENCE) {
		s->is_lost = true;
		return res->status == NFS4_OK ? -EREMOTEIO : nfs_status_errno(res->status);
	}
	result = v4_later_result(one);
	switch ((uint32_t)one->nfs_resop4_u.opillegal.status) {
	case NFS4_OK:
		break;
	case V4_ERR_REQ_TOO_BIG:
	case V4_ERR_TOO_MANY_OPS:
		return -EMSGSIZE;
	case V4_ERR_REP_TOO_BIG_TO_CACHE: /* try again without */
		s->caches = false;
		return -EAGAIN;
	case NFS4ERR_DELAY:
		return -EAGAIN; /* the number is not used up */
	default:
		/* BADSESSION, DEADSESSION, BADSLOT ...: what we know of the session is wrong. */
		s->is_lost = true;
		return -ECONNABORTED;
	}
	if (memcmp(result->sequence.session, s->id, sizeof(s->id)) != 0 ||
	    result->sequence.slot != r->slot || result->sequence.sequence != slot->sequence) {
		s->is_lost = true;
		return -EREMOTEIO;
	}
	slot->sequence++;
	v4_session_follow_target(s, result->sequence.target_slot);
	if ((result->sequence.flags & STATUS_REVOKED) != 0 ||
	    (s->may_open && (result->sequence.flags & STATUS_RESTARTED) != 0))
		s->is_stale = true;
	return 0;
}

/*
 * Check whether a change that was sent again has to be sent once more: the server is still working
 * on the first request, or has changed nothing. error: from take_sequence(). If SEQUENCE itself was
 * delayed, keep the slot's sequence number: it belongs to the first request (RFC 8881, section
 * 2.10.6.1).
 */
static bool is_delayed(const struct v4_session *s, int error, const COMPOUND4res *res)
{
	if (!s->is_settling || s->is_lost)
		return false;
	return res->status == NFS4ERR_DELAY &&
	       (error == -EAGAIN || (error == 0 && !has_made_change(res)));
}

static void request_replied(void *data, int error, const void *results)
{
	struct v4_request *r = data;
	struct v4_session *s = r->session;
	const COMPOUND4res *res = results; /* NULL after an error */

	if (error == -ECONNABORTED && r->is_change && !s->is_lost) {
		list_add_tail(&s->lost, &r->link); /* see v4_session_broken() */
		return;
	}
	s->settled++;
	s->used_ns = clock_now_ns();
	if (error == 0) {
		error = take_sequence(r, res);
		if (is_delayed(s, error, res)) {
			list_add_tail(&s->lost, &r->link);
			return;
		}
		/* The server has not kept the reply: the caller looks what the change did. */
		if (error == 0 && (uint32_t)res->status == V4_ERR_RETRY_UNCACHED_REP)
			error = -ECONNABORTED;
		/* The cache holds less than the server said; the caller tries again without it. */
		if (error == 0 && (uint32_t)res->status == V4_ERR_REP_TOO_BIG_TO_CACHE)
			s->caches = false;
	} else if (error != -ECONNABORTED && error != -ETIMEDOUT) {
		s->is_lost = true; /* whether the number of the slot is used up is not known */
		/* This refusal says nothing of what the first request has done. */
		if (s->is_settling)
			error = -ECONNABORTED;
	}
	s->slots[r->slot].busy = false;
	/* The loop that receives replies breaks the connection: it must not go while it is read. */
	s->conn->doomed = s->conn->doomed || s->is_lost;
	request_finish(r, error, error < 0 ? NULL : results);
	if (!s->is_settling)
		send_waiting_requests(s);
}

/* -------- sending -------- */

int v4_session_send(struct v4_session *s, struct v4_compound *c, net_rpc_replied *replied,
		    void *data)
{
	/* A callback may start operations in a slot that is free again: the others came first. */
	const int slot = list_is_empty(&s->waiting) ? find_free_slot(s) : -1;
	struct v4_request *r;
	int error = 0;

	if (s->is_ended || s->is_lost)
		return -ECONNABORTED;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	list_init(&r->link);
	r->session = s;
	r->n = c->n;
	r->is_change = has_change(c);
	r->replied = replied;
	r->data = data;
	if (r->is_change || slot < 0)
		error = request_keep_body(r, c);
	if (error == 0 && slot < 0)
		list_add_tail(&s->waiting, &r->link);
	else if (error == 0)
		error = request_start(r, c, (uint32_t)slot);
	if (error < 0)
		request_free(r);
	return error;
}

bool v4_session_is_fresh(const struct v4_session *s)
{
	const uint32_t lease_s = s->conn->client.lease_s;
	const uint64_t lease_ms = lease_s != 0 ? lease_s * UINT64_C(1000) : LEASE_MS;

	return !s->is_stale && !s->is_lost &&
	       clock_now_ns() - s->used_ns < lease_ms / 2 * CLOCK_NS_PER_MS;
}
