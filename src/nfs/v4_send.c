/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_send.h"

#include <errno.h>
#include <stdlib.h>

#include "nfs/v4_session.h"

/* A compound in flight. */
struct sent {
	struct nfs_connection *conn;
	net_rpc_replied *replied;
	void *data;
	uint8_t n;
	uint8_t opnums[]; /* of its operations; SEQUENCE not included */
};

_Static_assert(V4_OPERATIONS_MAX <= UINT8_MAX, "a compound's operations are counted in a byte");

/* Each operation of a version has a number below this, except OP_ILLEGAL. */
#define OPNUMS 128

static struct sent *sent_new(struct nfs_connection *conn, const struct v4_compound *c,
			     net_rpc_replied *replied, void *data)
{
	struct sent *sent = malloc(sizeof(*sent) + c->n);
	unsigned int i;

	if (sent == NULL)
		return NULL;
	*sent = (struct sent){ .conn = conn, .replied = replied, .data = data };
	sent->n = (uint8_t)c->n;
	for (i = 0; i < c->n; i++) {
		const uint32_t opnum = c->ops[i].argop;

		sent->opnums[i] = opnum < OPNUMS ? (uint8_t)opnum : 0;
	}
	return sent;
}

/* All results begin with their status. */
static nfsstat4 result_status(const nfs_resop4 *one)
{
	return one->nfs_resop4_u.opillegal.status;
}

/*
 * Check that the results are those of the operations, in their order, up to the first that failed,
 * whose status is that of the compound (RFC 7530, section 15.2.4). A server that refuses the whole
 * compound gives no result, or not the one of the operation that it did not begin.
 */
static bool results_are_right(const struct sent *sent, const COMPOUND4res *res)
{
	const u_int first = sent->conn->session != NULL ? 1 : 0; /* behind SEQUENCE */
	const u_int asked = sent->n + first;
	const u_int n = res->resarray.resarray_len;
	u_int i;

	if (n > asked || (n < asked && res->status == NFS4_OK))
		return false;
	for (i = 0; i < n; i++) {
		const uint32_t opnum = i < first ? V4_OP_SEQUENCE : sent->opnums[i - first];
		const nfs_resop4 *one = &res->resarray.resarray_val[i];
		const nfsstat4 status = result_status(one);
		const bool is_illegal = one->resop == OP_ILLEGAL && status != NFS4_OK && i + 1 == n;

		if ((uint32_t)one->resop != opnum && !is_illegal)
			return false;
		if (status != NFS4_OK && (i + 1 < n || status != res->status))
			return false;
	}
	return n < asked || res->status == NFS4_OK ||
	       result_status(&res->resarray.resarray_val[n - 1]) != NFS4_OK;
}

static void compound_replied(void *data, int error, const void *results)
{
	struct sent *sent = data;
	net_rpc_replied *replied = sent->replied;
	void *caller = sent->data;

	/* The outcome is unknown: let the caller look it up on a new connection. */
	if (error == -EREMOTEIO || (error == 0 && !results_are_right(sent, results))) {
		sent->conn->doomed = true;
		error = -EBADMSG;
	}
	free(sent);
	replied(caller, error, error < 0 ? NULL : results);
}

int v4_send(struct nfs_connection *conn, struct v4_compound *c, net_rpc_replied *replied,
	    void *data)
{
	struct v4_message message = { .compound = c };
	struct sent *sent;
	int r;

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	sent = sent_new(conn, c, replied, data);
	if (sent == NULL)
		return -ENOMEM;
	if (conn->session != NULL)
		r = v4_session_send(conn->session, c, compound_replied, sent);
	else
		r = net_rpc_call(conn->rpc, &v4_procedure, &message, compound_replied, sent);
	if (r < 0)
		free(sent);
	return r;
}
