/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/rpc.h"
#include "nfs/v3_results.h"
#include "nfs/v4_compound.h"

#define MARK_BYTES 4
#define LAST 0x80000000U

static const struct net_rpc_procedure procedures[] = {
	NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_MNT, zdr_void, v3_take_mountres3,
			  mountres3),
	NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_EXPORT, zdr_void, v3_take_exports,
			  exports),
	NET_RPC_PROCEDURE(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, zdr_void, v4_decode_results,
			  COMPOUND4res),
};

#define V3(NAME)                                                                                   \
	NET_RPC_PROCEDURE(NFS_PROGRAM, NFS_V3, NFS3_NULL, zdr_void, v3_take_##NAME##3res,          \
			  NAME##3res)

/* Chosen by first bytes with this bit. */
#define V3_BIT 0x80

static const struct net_rpc_procedure v3[] = {
	V3(GETATTR), V3(SETATTR), V3(LOOKUP),      V3(READLINK), V3(READ),   V3(WRITE),  V3(CREATE),
	V3(RENAME),  V3(READDIR), V3(READDIRPLUS), V3(FSSTAT),   V3(FSINFO), V3(COMMIT), V3(LINK),
};

struct outcome {
	const struct net_rpc_procedure *procedure;
	unsigned int finished;
	int error;
	size_t seen; /* bytes, so that they are looked at */
};

static size_t look_at_exports(const exportnode *e)
{
	const groupnode *group;
	size_t seen = 0;

	for (; e != NULL; e = e->ex_next) {
		seen += strlen(e->ex_dir);
		for (group = e->ex_groups; group != NULL; group = group->gr_next)
			seen += strlen(group->gr_name);
	}
	return seen;
}

static size_t look_at_compound(const COMPOUND4res *res)
{
	size_t seen = 0;
	u_int i;

	for (i = 0; i < res->resarray.resarray_len; i++)
		seen += (size_t)res->resarray.resarray_val[i].nfs_resop4_u.opgetattr.status;
	return seen;
}

static void replied(void *data, int error, const void *results)
{
	struct outcome *o = data;

	o->finished++;
	o->error = error;
	assert((error == 0) == (results != NULL));
	if (error == 0 && o->procedure->decode == (zdrproc_t)v3_take_exports)
		o->seen = look_at_exports(*(const exports *)results);
	else if (error == 0 && o->procedure->decode == (zdrproc_t)v4_decode_results)
		o->seen = look_at_compound(results);
}

/* The mark and the xid are right, unless raw; all else is the input's. In two parts. */
static struct outcome answer(const struct net_rpc_procedure *procedure, const uint8_t *data,
			     size_t size, size_t first, bool raw)
{
	struct outcome o = { .procedure = procedure };
	struct net_rpc *rpc;
	struct pollfd p;
	uint32_t call[2], head[2];
	int fds[2], r;

	assert(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
	assert(net_rpc_new(&rpc, fds[0], NULL) == 0);
	assert(net_rpc_call(rpc, procedure, NULL, replied, &o) == 0);
	assert(net_rpc_send(rpc, &p) == 0);
	assert(recv(fds[1], call, sizeof(call), 0) == sizeof(call));
	head[0] = htonl(LAST | (uint32_t)(size + sizeof(head) - MARK_BYTES));
	head[1] = call[1];
	if (!raw)
		assert(send(fds[1], head, sizeof(head), 0) == sizeof(head));
	assert(send(fds[1], data, first, 0) == (ssize_t)first);
	r = net_rpc_receive(rpc);
	if (r == 0 && size > first) {
		assert(send(fds[1], data + first, size - first, 0) == (ssize_t)(size - first));
		r = net_rpc_receive(rpc);
	}
	assert(r == 0 || r == -ECONNABORTED);
	net_rpc_free(rpc, -ECONNABORTED);
	close(fds[1]);
	assert(o.finished == 1);
	return o;
}

/* A first byte chooses the procedure, and where the rest is cut. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct net_rpc_procedure *procedure;
	struct outcome whole, cut;

	if (size == 0 || size > FUZZ_INPUT_MAX)
		return 0;
	if (data[0] & V3_BIT)
		procedure = &v3[data[0] % (sizeof(v3) / sizeof(v3[0]))];
	else
		procedure = &procedures[data[0] % (sizeof(procedures) / sizeof(procedures[0]))];
	whole = answer(procedure, data + 1, size - 1, size - 1, false);
	cut = answer(procedure, data + 1, size - 1, data[0] % size, false);
	assert(whole.error == cut.error && whole.seen == cut.seen);
	(void)answer(procedure, data + 1, size - 1, size - 1, true);
	return 0;
}
