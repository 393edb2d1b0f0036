/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_client.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "nfs/error.h"
#include "nfs/v4_send.h"
#include "nfs/v4_session.h"

void v4_client_init(struct v4_client *client, struct nfs_connection *conn,
		    void (*answered)(struct v4_client *client, int error))
{
	*client = (struct v4_client){ .conn = conn, .answered = answered };
	v4_name_client(client->name);
}

static void end_request(struct v4_client *client, int error)
{
	client->asked = false;
	if (error < 0)
		client->id = 0;
	client->answered(client, error);
}

static int reply_errno(int error, const void *results)
{
	return error < 0 ? error : nfs_status_errno(((const COMPOUND4res *)results)->status);
}

static void confirm_replied(void *data, int error, const void *results)
{
	end_request(data, reply_errno(error, results));
}

static int send_confirm(struct v4_client *client, const COMPOUND4res *res)
{
	struct v4_compound c = { .n = 0 };
	SETCLIENTID_CONFIRM4args *args;
	const SETCLIENTID4resok *ok;

	ok = &res->resarray.resarray_val[0].nfs_resop4_u.opsetclientid.SETCLIENTID4res_u.resok4;
	client->id = ok->clientid;
	args = &v4_add(&c, OP_SETCLIENTID_CONFIRM)->nfs_argop4_u.opsetclientid_confirm;
	args->clientid = ok->clientid;
	memcpy(args->setclientid_confirm, ok->setclientid_confirm,
	       sizeof(args->setclientid_confirm));
	return v4_send(client->conn, &c, confirm_replied, client);
}

static void setclientid_replied(void *data, int error, const void *results)
{
	struct v4_client *client = data;
	int r = reply_errno(error, results);

	if (r == 0)
		r = send_confirm(client, results);
	if (r < 0)
		end_request(client, r);
}

/*
 * A new verifier each time tells the server that we have restarted, so it closes what we may have
 * left open. Without a callback address it grants no delegations.
 */
static int send_setclientid(struct v4_client *client)
{
	struct v4_compound c = { .n = 0 };
	uint64_t now = clock_now_ns();
	SETCLIENTID4args *args;

	args = &v4_add(&c, OP_SETCLIENTID)->nfs_argop4_u.opsetclientid;
	memcpy(args->client.verifier, &now, sizeof(args->client.verifier));
	args->client.id.id_len = (u_int)strlen(client->name);
	args->client.id.id_val = client->name;
	args->callback.cb_location.r_netid = (char *)(uintptr_t) "tcp"; /* only read */
	args->callback.cb_location.r_addr = (char *)(uintptr_t) "0.0.0.0.0.0";
	return v4_send(client->conn, &c, setclientid_replied, client);
}

static void reclaim_complete_replied(void *data, int error, const void *results)
{
	struct v4_client *client = data;
	const COMPOUND4res *res = results;

	if (error == 0 && (uint32_t)res->status == V4_ERR_COMPLETE_ALREADY)
		error = 0;
	else
		error = reply_errno(error, results);
	if (error == 0)
		client->id = v4_session_opens(client->conn->session);
	end_request(client, error);
}

/*
 * Before it, the server takes an OPEN for one that may conflict with what others reclaim. Servers
 * write the client to their disk at this point, so that it may reclaim after a restart.
 */
static int send_reclaim_complete(struct v4_client *client)
{
	struct v4_compound c = { .n = 0 };

	(void)v4_add_later(&c, V4_OP_RECLAIM_COMPLETE);
	return v4_send(client->conn, &c, reclaim_complete_replied, client);
}

int v4_client_get(struct v4_client *client)
{
	int r;

	if (client->asked)
		return 0;
	if (client->id != 0)
		return 1;
	r = client->conn->session != NULL ? send_reclaim_complete(client)
					  : send_setclientid(client);
	client->asked = r == 0;
	return r;
}

void v4_client_lost(struct v4_client *client, uint64_t id)
{
	/* A session has its client id for as long as it lasts. */
	if (!client->asked && client->id == id && client->conn->session == NULL)
		client->id = 0;
}
