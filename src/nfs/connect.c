/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Connecting to an export: which address, which version, and whether the server is alive. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "nfs/connection.h"
#include "nfs/error.h"

static int cannot_reach(struct error *err, const struct nfs_export *e, uint16_t port, int r)
{
	if (r == -ETIMEDOUT)
		return nfs_silent_error(err, e);
	(void)error_sys(err, ERROR_UNAVAILABLE, -r, "cannot reach server '%s' on port %u",
			e->server, port);
	return net_is_own_failure(r) ? r : -EHOSTDOWN;
}

int nfs_connect_rpc(struct net_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e)
{
	const struct net_rpc_user user = { .uid = e->uid, .gid = e->gid };
	int fd = e->any_port ? net_connect_unreserved(address, port) : net_connect(address, port);

	return fd < 0 ? fd : net_rpc_new(ret, fd, &user);
}

static uint16_t export_port(const struct nfs_export *e)
{
	return e->port != 0 ? e->port : NET_NFS_PORT;
}

int nfs_client_ping(struct nfs_client *c, struct error *err)
{
	const struct nfs_connection *conn = nfs_connection_of(c);
	uint32_t low, high;
	int r;

	if (conn == NULL)
		return 0;
	r = net_ping(&conn->address, export_port(&c->export), NET_NFS_PROGRAM, c->version, &low,
		     &high);
	/* A refusal of the version is an answer too. */
	if (r == 0 || r == -EPROTONOSUPPORT)
		return 0;
	return cannot_reach(err, &c->export, export_port(&c->export), r);
}

uint64_t nfs_connection_deadline(const struct nfs_connection *conn)
{
	uint64_t deadline = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;

	return deadline < conn->deadline_ns ? deadline : conn->deadline_ns;
}

/* Mount services answer for any path; only operations in it would fail, each in its own way. */
static int check_root(const struct nfs_client *c, struct error *err)
{
	const struct nfs_export *e = &c->export;

	if (c->root_type == NFS_TYPE_DIRECTORY || c->root_type == NFS_TYPE_UNKNOWN)
		return 0;
	if (c->root_type == NFS_TYPE_SYMLINK)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "export %s:%s is a symbolic link, which csi-nfs does not follow: name the directory itself",
				 e->server, e->share);
	return error_set(err, ERROR_FAILED_PRECONDITION, "export %s:%s is not a directory",
			 e->server, e->share);
}

/* deadline_ns limits all steps together; each step also has its own limit. */
static int try_protocol(struct nfs_client **ret, const struct nfs_protocol *protocol,
			const struct nfs_export *e, const struct net_address *address,
			uint64_t deadline_ns, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = NULL;
	uint16_t port = export_port(e);
	struct nfs_connection *conn;
	uint32_t low = 0, high = 0;
	int r;

	if (clock_now_ns() >= deadline_ns)
		return cannot_reach(err, e, port, -ETIMEDOUT);
	r = net_ping(address, port, NET_NFS_PROGRAM, protocol->version, &low, &high);
	if (r == -EPROTONOSUPPORT) {
		(void)error_set(err, ERROR_FAILED_PRECONDITION,
				"server '%s' does not serve NFS version %u, but versions %u to %u: set vers= in the mount options",
				e->server, protocol->version, low, high);
		return r;
	}
	if (r < 0)
		return cannot_reach(err, e, port, r);
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return error_oom(err);
	conn->client.ops = &nfs_connection_ops;
	conn->protocol = protocol;
	conn->address = *address;
	conn->deadline_ns = deadline_ns;
	c = &conn->client;
	c->version = protocol->version;
	net_address_text(address, c->address, sizeof(c->address));
	r = nfs_export_copy(&c->export, e);
	if (r < 0)
		return error_oom(err);
	r = nfs_connect_rpc(&conn->rpc, address, port, e);
	if (r < 0)
		return cannot_reach(err, e, port, r);
	r = protocol->attach(conn, address, err);
	/* Only if the NFS service timed out: rpcbind and the mount service say little about it. */
	if (r == -ETIMEDOUT && c->silent)
		return -EHOSTDOWN;
	if (r == 0)
		r = check_root(c, err);
	if (r < 0)
		return r;
	*ret = steal_ptr(&c);
	return 0;
}

/* A server may answer the NULL call of version 4 and still not have it, or fail in all of it. */
static bool is_version_refused(int error)
{
	switch (error) {
	case -EPROTONOSUPPORT:
	case -EOPNOTSUPP:
	case -EPROTO:
	case -EREMOTEIO:
	case -EBADMSG:
	case -EBADRQC:
	case -ECONNABORTED: /* it hangs up */
		return true;
	default:
		return false;
	}
}

/*
 * Try version 4, then 3 if the server has no version 4 or does not have this export in it: the two
 * versions may name an export differently (fsid=0). If both fail, the first error is more useful,
 * unless it only says that there is no version 4. A connection that breaks may have to do with
 * anything, such as a failover: only a server that hangs up twice does not have version 4.
 */
static int negotiate(struct nfs_client **ret, const struct nfs_export *e,
		     const struct net_address *address, uint64_t deadline_ns, struct error *err)
{
	struct error first = { .code = ERROR_OK }, second = { .code = ERROR_OK };
	int r, r3;

	r = try_protocol(ret, &nfs_protocol_v4, e, address, deadline_ns, &first);
	if (r == -ECONNABORTED) {
		error_clear(&first);
		r = try_protocol(ret, &nfs_protocol_v4, e, address, deadline_ns, &first);
	}
	if (r == 0)
		return 0;
	if (first.code == ERROR_UNAVAILABLE && !is_version_refused(r)) {
		*err = first;
		return r;
	}
	r3 = try_protocol(ret, &nfs_protocol_v3, e, address, deadline_ns, &second);
	if (r3 == 0)
		return 0;
	/* It has gone down in between. */
	if (r == -ECONNABORTED && r3 == -EHOSTDOWN) {
		*err = second;
		return r3;
	}
	*err = r == -EPROTONOSUPPORT && second.code != ERROR_FAILED_PRECONDITION ? second : first;
	return r;
}

static int connect_address(struct nfs_client **ret, const struct nfs_export *e,
			   const struct net_address *address, uint64_t deadline_ns,
			   struct error *err)
{
	if (e->version == 3)
		return try_protocol(ret, &nfs_protocol_v3, e, address, deadline_ns, err);
	if (e->version == 4)
		return try_protocol(ret, &nfs_protocol_v4, e, address, deadline_ns, err);
	return negotiate(ret, e, address, deadline_ns, err);
}

static bool is_refusal(const struct error *err)
{
	return err->code == ERROR_PERMISSION_DENIED || err->code == ERROR_NOT_FOUND;
}

/* A server that refuses us may mind the source port, which it does not say. */
static void set_connect_error(struct error *err, const struct nfs_export *e,
			      const struct error *last, int r)
{
	struct error ports = { .code = ERROR_OK };
	size_t len;

	if (err == NULL || err->code != ERROR_OK)
		return;
	*err = *last;
	/* Whoever words it, it is what the server has answered. */
	if (err->sys == 0)
		err->sys = -r;
	len = strlen(err->msg);
	if (is_refusal(last) && !e->any_port && net_reserve_prepare(&ports) < 0)
		(void)snprintf(err->msg + len, sizeof(err->msg) - len, "; %s", ports.msg);
}

int nfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + NFS_CONNECT_MAX_MS * CLOCK_NS_PER_MS;
	struct error last = { .code = ERROR_OK }, refusal = { .code = ERROR_OK }; /* the first */
	struct net_address addresses[NET_ADDRESSES_MAX];
	int r, refused = 0;
	size_t n, i;

	r = net_resolve(e->server, addresses, &n, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		error_clear(&last);
		r = connect_address(ret, e, &addresses[i], deadline, &last);
		if (r == 0)
			return 0;
		if (is_refusal(&last) && refused == 0) {
			refusal = last;
			refused = r;
		}
		/*
		 * Another address helps if this one is not reachable, or if the server refuses the
		 * address from which we have called it: exports may be for IPv4 networks only.
		 */
		if ((last.code != ERROR_UNAVAILABLE && !is_refusal(&last)) ||
		    clock_now_ns() >= deadline)
			break;
	}
	if (refused != 0) {
		last = refusal;
		r = refused;
	}
	set_connect_error(err, e, &last, r);
	return r;
}
