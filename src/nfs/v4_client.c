/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v4_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "nfs/v4_compound.h"

#define HOST_MAX 64

/*
 * Two clients with the same name would end each other's open files, so make the name unique among
 * connections and among containers with the same host name and pid.
 */
void v4_client_init(struct v4_client *client, struct nfs_connection *conn,
		    void (*answered)(struct v4_client *client, int error))
{
	uint64_t random[2] = { 0, 0 };
	char host[HOST_MAX + 1] = "";
	struct timespec now;

	*client = (struct v4_client){ .conn = conn, .answered = answered };
	(void)gethostname(host, sizeof(host) - 1); /* only for readers of the server's log */
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	/* getrandom() returns so few bytes at once; if it fails, the time has to do. */
	(void)!getrandom(random, sizeof(random), 0);
	(void)snprintf(client->name, sizeof(client->name),
		       "csi-nfs/%s/%ld/%lld.%09ld/%016" PRIx64 "%016" PRIx64, host, (long)getpid(),
		       (long long)now.tv_sec, now.tv_nsec, random[0], random[1]);
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

	if (res->resarray.resarray_len == 0)
		return -EREMOTEIO;
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
	int r;

	args = &v4_add(&c, OP_SETCLIENTID)->nfs_argop4_u.opsetclientid;
	memcpy(args->client.verifier, &now, sizeof(args->client.verifier));
	args->client.id.id_len = (u_int)strlen(client->name);
	args->client.id.id_val = client->name;
	args->callback.cb_location.r_netid = (char *)(uintptr_t) "tcp"; /* only read */
	args->callback.cb_location.r_addr = (char *)(uintptr_t) "0.0.0.0.0.0";
	r = v4_send(client->conn, &c, setclientid_replied, client);
	if (r < 0)
		return r;
	client->asked = true;
	return 0;
}

int v4_client_get(struct v4_client *client)
{
	if (client->asked)
		return 0;
	return client->id != 0 ? 1 : send_setclientid(client);
}

void v4_client_lost(struct v4_client *client, uint64_t id)
{
	if (!client->asked && client->id == id)
		client->id = 0;
}
