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
 * Two clients of one name would end each other's open files, so no two connections have the same,
 * in all containers that share a host name and a process number.
 */
void v4_client_init(struct v4_client *client, struct nfs_connection *conn,
		    void (*answered)(struct v4_client *client, int error))
{
	uint64_t random[2] = { 0, 0 };
	char host[HOST_MAX + 1] = "";
	struct timespec now;

	*client = (struct v4_client){ .conn = conn, .answered = answered };
	(void)gethostname(host, sizeof(host) - 1); /* only for who reads the server's log */
	(void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail for this clock */
	/* So few bytes come at once and whole, and without them the time is left. */
	(void)!getrandom(random, sizeof(random), 0);
	(void)snprintf(client->name, sizeof(client->name),
		       "csi-nfs/%s/%ld/%lld.%09ld/%016" PRIx64 "%016" PRIx64, host, (long)getpid(),
		       (long long)now.tv_sec, now.tv_nsec, random[0], random[1]);
}

static void end(struct v4_client *client, int error)
{
	client->asked = false;
	if (error < 0)
		client->id = 0;
	client->answered(client, error);
}

/* The errno of a reply to one of the two requests below. */
static int error_of(int error, const void *results)
{
	return error < 0 ? error : nfs_status_errno(((const COMPOUND4res *)results)->status);
}

static void confirmed(void *data, int error, const void *results)
{
	end(data, error_of(error, results));
}

static int confirm(struct v4_client *client, const COMPOUND4res *res)
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
	memcpy(args->setclientid_confirm, ok->setclientid_confirm, sizeof(args->setclientid_confirm));
	return v4_send(client->conn, &c, confirmed, client);
}

static void got_id(void *data, int error, const void *results)
{
	struct v4_client *client = data;
	int r = error_of(error, results);

	if (r == 0)
		r = confirm(client, results);
	if (r < 0)
		end(client, r);
}

/*
 * The verifier is another one each time: to the server we have started anew, and what we may have
 * left open is closed. It is told no address to call back at, so it delegates nothing.
 */
static int ask(struct v4_client *client)
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
	r = v4_send(client->conn, &c, got_id, client);
	if (r == 0)
		client->asked = true;
	return r;
}

int v4_client_get(struct v4_client *client)
{
	if (client->asked)
		return 0;
	return client->id != 0 ? 1 : ask(client);
}

void v4_client_lost(struct v4_client *client, uint64_t id)
{
	if (!client->asked && client->id == id)
		client->id = 0;
}
