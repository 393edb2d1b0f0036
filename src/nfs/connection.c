/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"

static const struct {
	unsigned int status;
	int error;
} statuses[] = {
	/*
	 * RFC 1813 section 2.6 and RFC 7530 section 13.1. Numbers below 63 are Unix errno values.
	 */
	{ 63, ENAMETOOLONG },
	{ 66, ENOTEMPTY },
	{ 69, EDQUOT },
	{ 70, ESTALE },
	{ 71, EREMOTE },
	{ 10001, ESTALE }, /* BADHANDLE */
	{ 10002, ERESTART }, /* NOT_SYNC: the directory changed under the cookie */
	{ 10003, ERESTART }, /* BAD_COOKIE: likewise */
	{ 10004, EOPNOTSUPP }, /* NOTSUPP */
	{ 10005, ERANGE }, /* TOOSMALL */
	{ 10006, EREMOTEIO }, /* SERVERFAULT */
	{ 10007, EOPNOTSUPP }, /* BADTYPE: MKNOD of this type */
	{ 10008, EAGAIN }, /* JUKEBOX, DELAY */
	{ 10012, EBUSY }, /* LOCKED: another client has the file open and denies sharing */
	{ 10013, EAGAIN }, /* GRACE */
	{ 10014, ESTALE }, /* FHEXPIRED */
	{ 10016, EACCES }, /* WRONGSEC: the export requires another security flavor */
	{ 10018, EREMOTEIO }, /* RESOURCE */
	{ 10019, EREMOTE }, /* MOVED */
	{ 10027, ENOTDIR }, /* NOT_SAME: only RMDIR verifies, that it is a directory */
	{ 10021, EPROTONOSUPPORT }, /* MINOR_VERS_MISMATCH */
	{ 10029, ELOOP }, /* SYMLINK: a path component is one */
	{ 10039, NFS_EOWNER }, /* BADOWNER */
	{ 10040, EILSEQ }, /* BADCHAR */
	{ 10041, EINVAL }, /* BADNAME */
	{ 10044, EOPNOTSUPP }, /* OP_ILLEGAL: of a later minor version */
	{ 10046, EBUSY }, /* FILE_OPEN */

	/* RFC 8881 section 15.1 and RFC 7862 section 11. */
	{ 10065, EMSGSIZE }, /* REQ_TOO_BIG */
	{ 10066, ERANGE }, /* REP_TOO_BIG */
	{ 10070, EMSGSIZE }, /* TOO_MANY_OPS */
	{ 10083, EINVAL }, /* WRONG_TYPE: what 4.0 calls INVAL */
	{ 10088, EOPNOTSUPP }, /* PARTNER_NOTSUPP */
	{ 10089, EOPNOTSUPP }, /* PARTNER_NO_AUTH */
	{ 10090, EOPNOTSUPP }, /* UNION_NOTSUPP */
	{ 10091, EOPNOTSUPP }, /* OFFLOAD_DENIED */
	{ 10094, EOPNOTSUPP }, /* OFFLOAD_NO_REQS: COPY only with a later answer */

	/* RFC 8276 section 8.3. */
	{ 10095, ENODATA }, /* NOXATTR */
	{ 10096, E2BIG }, /* XATTR2BIG */
};

int nfs_status_errno(unsigned int status)
{
	size_t i;

	if (status < 63)
		return -(int)status;
	for (i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i].status == status)
			return -statuses[i].error;
	return -EREMOTEIO;
}

int nfs_op_take_data(struct nfs_op *op, const char *data, uint32_t len, bool eof)
{
	if (len > op->count)
		return -EBADMSG;
	op->count = len;
	op->eof = eof;
	memcpy(op->buffer, data, len);
	return 0;
}

int nfs_op_take_written(struct nfs_op *op, uint32_t count, bool stable, const char *verifier)
{
	if (count > op->count)
		return -EBADMSG;
	op->count = count;
	op->stable = op->stable && stable;
	memcpy(op->verifier, verifier, sizeof(op->verifier));
	return 0;
}

int nfs_op_take_entry(struct nfs_op *op, const char *name, size_t len, struct nfs_entry *entry)
{
	char text[PATH_COMPONENT_MAX + 1];

	/* No Linux file system has longer names. Fail: a cut or missing name would be wrong. */
	if (len > PATH_COMPONENT_MAX)
		return -ENAMETOOLONG;
	/* A name with '/' could lead out of the directory. */
	if (len == 0 || memchr(name, '\0', len) != NULL || memchr(name, '/', len) != NULL)
		return -EBADMSG;
	op->cookie = entry->cookie;
	memcpy(text, name, len);
	text[len] = '\0';
	if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
		return 0;
	entry->name = text;
	op->entry(op, entry);
	return 0;
}

uint32_t nfs_read_count(const struct nfs_op *op)
{
	const uint32_t max = nfs_read_max(op->client);

	return op->count < max ? op->count : max;
}

/*
 * Operations with no bound on disk work: they free a file's blocks or flush the server's cache, as
 * the COMMIT does that goes with a COPY, and CLONE, of what was written to the source.
 */
static bool is_unbounded(const struct nfs_op *op)
{
	return op->type == NFS_OP_COMMIT || op->type == NFS_OP_REMOVE || op->type == NFS_OP_CLONE ||
	       op->type == NFS_OP_COPY || (op->type == NFS_OP_SETATTR && op->change.has_size);
}

/* Operations that the server's disk may delay. */
static bool is_slow(const struct nfs_op *op)
{
	return op->type == NFS_OP_READ || op->type == NFS_OP_WRITE ||
	       (op->type == NFS_OP_CREATE && op->buffer != NULL) || is_unbounded(op);
}

static bool op_is_change(const struct nfs_op *op)
{
	switch (op->type) {
	case NFS_OP_SETATTR:
	case NFS_OP_MKDIR:
	case NFS_OP_SYMLINK:
	case NFS_OP_REMOVE:
	case NFS_OP_RMDIR:
	case NFS_OP_RENAME:
	case NFS_OP_CREATE:
	case NFS_OP_MKNOD:
	case NFS_OP_LINK:
		return true;
	default:
		return false;
	}
}

int nfs_op_refuse(struct nfs_op *op)
{
	if (op_is_change(op))
		nfs_op_connection(op)->doomed = true;
	return -EBADMSG;
}

void nfs_op_finish(struct nfs_op *op, int error)
{
	struct nfs_connection *conn = nfs_op_connection(op);

	conn->in_flight--;
	conn->slow -= is_slow(op);
	conn->unbounded -= is_unbounded(op);
	conn->finished++;
	op->error = error;
	op->finished = true;
	if (op->done != NULL)
		op->done(op);
}

/*
 * Operations in flight end through their ordinary callbacks, so a late reply can never write to a
 * caller's stack.
 */
void nfs_connection_break(struct nfs_connection *conn, int failure)
{
	if (conn->rpc == NULL)
		return;
	conn->client.broken = true;
	conn->client.silent = failure == -ETIMEDOUT;
	net_rpc_free(steal_ptr(&conn->rpc), failure);
	if (conn->protocol->broken != NULL)
		conn->protocol->broken(conn, failure);
}

static int connection_start(struct nfs_client *c, struct nfs_op *op)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;
	int r;

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	r = conn->protocol->start(conn, op);
	if (r < 0)
		return r;
	conn->in_flight++;
	conn->slow += is_slow(op);
	conn->unbounded += is_unbounded(op);
	return 0;
}

static int connection_run(struct nfs_client *c, uint64_t deadline_ns)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;

	if (conn->rpc == NULL)
		return -ECONNABORTED;
	return nfs_connection_drive(&conn, 1, deadline_ns, UINT64_MAX);
}

static void connection_free(struct nfs_client *c)
{
	struct nfs_connection *conn = (struct nfs_connection *)c;

	if (conn->rpc != NULL && conn->in_flight == 0 && conn->protocol->leave != NULL)
		conn->protocol->leave(conn);
	nfs_connection_break(conn, -ECONNABORTED);
	nfs_export_done(&c->export);
	free(conn);
}

static const struct nfs_client_ops connection_ops = {
	.start = connection_start,
	.run = connection_run,
	.free = connection_free,
};

/* Fake clients answer at once. */
static bool is_waiting(const struct nfs_client *c)
{
	const struct nfs_connection *conn = (const struct nfs_connection *)c;

	return c->ops == &connection_ops && conn->rpc != NULL && conn->in_flight > 0;
}

int nfs_client_run_pair(struct nfs_client *a, struct nfs_client *b, uint64_t wake_ns)
{
	struct nfs_connection *conns[NFS_DRIVEN_MAX];
	size_t n = 0;

	if (is_waiting(a))
		conns[n++] = (struct nfs_connection *)a;
	if (b != NULL && b != a && is_waiting(b))
		conns[n++] = (struct nfs_connection *)b;
	if (n == 0)
		return nfs_client_run(a);
	return nfs_connection_drive(conns, n,
				    clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS,
				    wake_ns);
}

void nfs_client_abort(struct nfs_client *c)
{
	/* Fake clients have nothing in flight for long. */
	if (c->ops == &connection_ops)
		nfs_connection_break((struct nfs_connection *)c, -ECONNABORTED);
}

bool nfs_client_is_full(const struct nfs_client *c)
{
	/* Fake clients answer at once. */
	return c->ops == &connection_ops &&
	       nfs_connection_is_full((const struct nfs_connection *)c);
}

bool nfs_client_is_usable(struct nfs_client *c)
{
	const struct nfs_connection *conn = (const struct nfs_connection *)c;

	if (c->broken)
		return false;
	if (c->ops != &connection_ops)
		return true;
	/* With nothing in flight, anything that arrived is a reset or the end. */
	return net_rpc_is_quiet(conn->rpc) &&
	       (conn->protocol->is_fresh == NULL || conn->protocol->is_fresh(conn));
}

static int server_is_down(struct error *err, const struct nfs_export *e, uint16_t port, int r)
{
	if (r == -ETIMEDOUT)
		return nfs_silent_error(err, e);
	(void)error_sys(err, ERROR_UNAVAILABLE, -r, "cannot reach server '%s' on port %u",
			e->server, port);
	return -EHOSTDOWN;
}

int nfs_connect_rpc(struct net_rpc **ret, const struct net_address *address, uint16_t port,
		    const struct nfs_export *e)
{
	const struct net_rpc_user user = { .uid = e->uid, .gid = e->gid };
	int fd = e->any_port ? net_connect_unreserved(address, port) : net_connect(address, port);

	return fd < 0 ? fd : net_rpc_new(ret, fd, &user);
}

static uint16_t nfs_port(const struct nfs_export *e)
{
	return e->port != 0 ? e->port : NET_NFS_PORT;
}

int nfs_client_ping(struct nfs_client *c, struct error *err)
{
	const struct nfs_connection *conn = (const struct nfs_connection *)c;
	uint32_t low, high;
	int r;

	if (c->ops != &connection_ops)
		return 0;
	r = net_ping(&conn->address, nfs_port(&c->export), NET_NFS_PROGRAM, c->version, &low,
		     &high);
	/* A refusal of the version is an answer too. */
	if (r == 0 || r == -EPROTONOSUPPORT)
		return 0;
	return server_is_down(err, &c->export, nfs_port(&c->export), r);
}

static int version_refused(struct error *err, const struct nfs_export *e, unsigned int version,
			   uint32_t low, uint32_t high)
{
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "server '%s' does not serve NFS version %u, but versions %u to %u: set vers= in the mount options",
			 e->server, version, low, high);
}

uint64_t nfs_connection_deadline(const struct nfs_connection *conn)
{
	uint64_t deadline = clock_now_ns() + NFS_CALL_TIMEOUT_MS * CLOCK_NS_PER_MS;

	return deadline < conn->deadline_ns ? deadline : conn->deadline_ns;
}

/* deadline_ns limits all steps together; each step also has its own limit. */
static int try_protocol(struct nfs_client **ret, const struct nfs_protocol *protocol,
			const struct nfs_export *e, const struct net_address *address,
			uint64_t deadline_ns, struct error *err)
{
	cleanup_nfs_client struct nfs_client *c = NULL;
	uint16_t port = nfs_port(e);
	struct nfs_connection *conn;
	uint32_t low = 0, high = 0;
	int r;

	if (clock_now_ns() >= deadline_ns)
		return server_is_down(err, e, port, -ETIMEDOUT);
	r = net_ping(address, port, NET_NFS_PROGRAM, protocol->version, &low, &high);
	if (r == -EPROTONOSUPPORT) {
		(void)version_refused(err, e, protocol->version, low, high);
		return r;
	}
	if (r < 0)
		return server_is_down(err, e, port, r);
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return error_oom(err);
	conn->client.ops = &connection_ops;
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
		return server_is_down(err, e, port, r);
	r = protocol->attach(conn, address, err);
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
		return true;
	default:
		return false;
	}
}

/*
 * Try version 4, then 3 if the server has no version 4 or does not have this export in it: the two
 * versions may name an export differently (fsid=0). If both fail, the first error is more useful,
 * unless it only says that there is no version 4.
 */
static int negotiate(struct nfs_client **ret, const struct nfs_export *e,
		     const struct net_address *address, uint64_t deadline_ns, struct error *err)
{
	struct error first = { .code = ERROR_OK }, second = { .code = ERROR_OK };
	int r;

	r = try_protocol(ret, &nfs_protocol_v4, e, address, deadline_ns, &first);
	if (r == 0)
		return 0;
	if (first.code == ERROR_UNAVAILABLE && !is_version_refused(r)) {
		*err = first;
		return r;
	}
	if (try_protocol(ret, &nfs_protocol_v3, e, address, deadline_ns, &second) == 0)
		return 0;
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

/* A server that refuses us may mind the source port, which it does not say. */
static void set_connect_error(struct error *err, const struct nfs_export *e,
			      const struct error *last)
{
	struct error ports = { .code = ERROR_OK };
	const bool is_refused =
		last->code == ERROR_PERMISSION_DENIED || last->code == ERROR_NOT_FOUND;

	if (is_refused && !e->any_port && net_reserve_prepare(&ports) < 0)
		(void)error_set(err, last->code, "%s; %s", last->msg, ports.msg);
	else
		(void)error_set(err, last->code, "%s", last->msg);
}

int nfs_client_connect(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	const uint64_t deadline = clock_now_ns() + NFS_CONNECT_MAX_MS * CLOCK_NS_PER_MS;
	struct net_address addresses[NET_ADDRESSES_MAX];
	struct error last = { .code = ERROR_OK };
	size_t n, i;
	int r;

	r = net_resolve(e->server, addresses, &n, err);
	if (r < 0)
		return r;
	for (i = 0; i < n; i++) {
		error_clear(&last);
		r = connect_address(ret, e, &addresses[i], deadline, &last);
		/* Another address of the server only helps if this one is not reachable. */
		if (r == 0 || last.code != ERROR_UNAVAILABLE || clock_now_ns() >= deadline)
			break;
	}
	if (r < 0)
		set_connect_error(err, e, &last);
	return r;
}
