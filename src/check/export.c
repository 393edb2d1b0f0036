/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Steps that use the export: connect, capacity, port, mount. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "check/steps.h"
#include "mount/mounter.h"
#include "nfs/calls.h"

DEFINE_CLEANUP(mounter, struct mounter *, mounter_free)
#define cleanup_mounter __attribute__((cleanup(cleanup_ptr_mounter)))

int check_result(const struct nfs_client *client, int r)
{
	if (r == 0 || !client->broken)
		return r;
	return client->silent ? -ETIMEDOUT : -ECONNABORTED;
}

bool check_is_refused(int error)
{
	return error == -EACCES || error == -EPERM;
}

const char *check_reason(int error)
{
	switch (error) {
	case -EROFS:
		return "the export or its file system is read-only";
	case -ETIMEDOUT:
	case -EHOSTDOWN:
		return "the server stopped answering";
	case -ECONNABORTED:
		return "the connection broke";
	default:
		return strerror(-error);
	}
}

void check_hint_refused(const struct check *c, struct check_step *s)
{
	check_hint(s,
		   "the export refuses calls: it must allow this machine's address (%s)%s and sec=sys",
		   c->source,
		   c->reserved_port
			   ? ""
			   : ", source ports above 1023 (option 'insecure'; this process cannot use others)");
}

/* -------- connect -------- */

static void hint_connect(const struct check *c, struct check_step *s, enum error_code code)
{
	const char *ports =
		c->reserved_port
			? ""
			: ", with source ports above 1023 (option 'insecure'), since this process cannot use others";

	switch (code) {
	case ERROR_NOT_FOUND:
		check_hint(s,
			   "export the path to this machine (%s unless NAT translates it)%s, or spell it as the server does (showmount -e); in version 4 it starts at the pseudo root, which is the export with fsid=0 if there is one",
			   c->source, ports);
		break;
	case ERROR_PERMISSION_DENIED:
		check_hint(s,
			   "export the path to this machine (%s unless NAT translates it)%s, with sec=sys; check the server's log",
			   c->source, ports);
		break;
	case ERROR_FAILED_PRECONDITION:
		check_hint(s,
			   "follow the message: change the server, or vers= in the mount options");
		break;
	default:
		check_hint(s,
			   "the server answered before: check its log, and firewalls for the other ports that NFSv3 uses");
		break;
	}
}

/* Warn if version 4 does not work: nodes fall back to 3 in fewer cases than the controller. */
static void say_version_4(const struct check *c, struct check_step *s)
{
	cleanup_nfs_client struct nfs_client *second = NULL;
	struct error err = { .code = ERROR_OK };
	struct nfs_export e = c->client->export; /* borrows its strings */

	e.version = 4;
	if (nfs_client_connect(&second, &e, &err) == 0)
		return; /* it works now */
	s->status = CHECK_WARNING;
	(void)buf_printf(&s->text, "; not over version 4: %s", err.msg);
	check_hint(s,
		   "without vers= in the mount options, nodes use version 3 only if the server has no version 4 or does not have the path in it: set vers=3, or set share to the path below the server's pseudo root");
}

static void say_connected(const struct check *c, struct check_step *s)
{
	struct nfs_client *client = c->client;
	bool xattrs;

	(void)nfs_has_xattrs(client, &client->root,
			     &xattrs); /* a broken client fails the next step */
	json_string(&s->data, "version", nfs_version_text(client));
	json_string(&s->data, "address", client->address);
	json_number(&s->data, "uid", client->export.uid);
	json_number(&s->data, "gid", client->export.gid);
	json_bool(&s->data, "xattrs", xattrs);
	check_say(s, CHECK_OK, "NFSv%s to %s as uid %" PRIu32 ", gid %" PRIu32 ", %s",
		  nfs_version_text(client), client->address, client->export.uid, client->export.gid,
		  xattrs ? "with extended attributes" : "without extended attributes");
	if (client->export.uid != c->export.uid)
		(void)buf_printf(&s->text, "; refused as uid %" PRIu32, c->export.uid);
	if (client->version == 3 && c->export.version == 0 && check_has_v4(c))
		say_version_4(c, s);
}

/* If the owner of volumes is refused, do as the controller does: connect as its own identity. */
static int connect_as_either(struct check *c, struct error *err)
{
	struct error second = { .code = ERROR_OK };
	struct nfs_export own = c->export; /* borrows its strings */
	int r;

	r = nfs_client_connect(&c->client, &c->export, err);
	if (r == 0 || err->code != ERROR_PERMISSION_DENIED || nfs_export_is_own(&c->export))
		return r;
	nfs_export_set_own(&own);
	return nfs_client_connect(&c->client, &own, &second) == 0 ? 0 : r;
}

void check_connect(struct check *c, struct check_step *s)
{
	struct error err = { .code = ERROR_OK };
	int r;

	c->reserved_port = net_may_reserve_port(c->address);
	r = connect_as_either(c, &err);
	if (r < 0) {
		check_say(s, CHECK_FAILED, "%s", err.msg);
		hint_connect(c, s, err.code);
		return;
	}
	say_connected(c, s);
}

/* -------- capacity -------- */

void check_capacity(struct check *c, struct check_step *s)
{
	struct nfs_space space = { .total = 0 };
	char total[32], available[32];
	int r;

	r = check_result(c->client, nfs_fsstat(c->client, &c->client->root, &space));
	if (r < 0) {
		check_say(s, CHECK_FAILED, "cannot read the free space: %s", check_reason(r));
		if (check_is_refused(r))
			check_hint_refused(c, s);
		else
			check_hint(s, "check the server's log");
		return;
	}
	json_number(&s->data, "total_bytes", space.total);
	json_number(&s->data, "available_bytes", space.available);
	check_bytes_text(space.total, total, sizeof(total));
	check_bytes_text(space.available, available, sizeof(available));
	if (space.total == 0) {
		check_say(s, CHECK_WARNING, "the server does not report its free space");
		check_hint(s, "leave storage capacity tracking off, since GetCapacity returns 0");
		return;
	}
	check_say(s, CHECK_OK, "%s, %s free", total, available);
	if (space.available > 0)
		return;
	s->status = CHECK_WARNING;
	check_hint(s, "the file system is full, or a quota is exhausted");
}

/* -------- port -------- */

/* Connect from an unreserved port and make a call: some servers check the port only then. */
static int try_any_port(const struct nfs_client *client, struct error *err)
{
	cleanup_nfs_client struct nfs_client *other = NULL;
	struct nfs_export e = client->export; /* borrows its strings */
	struct nfs_attr attr;
	int r;

	e.any_port = true;
	e.version = client->version;
	r = nfs_client_connect(&other, &e, err);
	if (r < 0)
		return r;
	r = nfs_getattr(other, &other->root, &attr);
	return r < 0 ? nfs_error_set(err, other, r, "getattr of the share") : 0;
}

static void say_wants_reserved(const struct check *c, struct check_step *s)
{
	check_say(s, c->reserved_port ? CHECK_WARNING : CHECK_FAILED,
		  "the export requires a source port below 1024 (option 'secure'), which this process %s use",
		  c->reserved_port ? "can" : "cannot");
	check_hint(s,
		   "an unprivileged controller cannot: set the sysctl net.ipv4.ip_unprivileged_port_start=0 in its pod, or export with 'insecure'");
}

void check_port(struct check *c, struct check_step *s)
{
	struct error err = { .code = ERROR_OK };

	json_bool(&s->data, "may_reserve", c->reserved_port);
	/* Servers may hide an export from clients that they refuse: NOT_FOUND. */
	if (try_any_port(c->client, &err) == 0) {
		check_say(s, CHECK_OK, "the export accepts source ports above 1023%s",
			  c->reserved_port ? "" : "; this process cannot use others");
		json_bool(&s->data, "wants_reserved", false);
	} else if (err.code != ERROR_PERMISSION_DENIED && err.code != ERROR_NOT_FOUND) {
		check_say(s, CHECK_FAILED, "connecting from a source port above 1023: %s", err.msg);
		check_hint(s, "try again; check the server's log");
	} else {
		say_wants_reserved(c, s);
		json_bool(&s->data, "wants_reserved", true);
	}
}

/* -------- mount -------- */

static void hint_mount(struct check_step *s, enum error_code code)
{
	switch (code) {
	case ERROR_FAILED_PRECONDITION:
	case ERROR_INVALID_ARGUMENT:
		check_hint(s, "follow the message: change this node, or the mount options");
		break;
	case ERROR_NOT_FOUND:
		check_hint(s,
			   "spell the share as the server does; in version 4 it starts at the pseudo root");
		break;
	case ERROR_PERMISSION_DENIED:
		check_hint(s,
			   "export to this node's address; a container that mounts must be privileged");
		break;
	default:
		check_hint(s, "check the logs of the server and of this kernel (dmesg)");
		break;
	}
}

static void mount_and_unmount(struct check *c, struct check_step *s, struct mounter *m,
			      const char *target)
{
	const struct mount_request q = {
		.server = c->export.server,
		.path = c->export.share,
		.target = target,
		.options = c->options.mount_options,
		.read_only = true,
	};
	struct error err = { .code = ERROR_OK }, second = { .code = ERROR_OK };
	uint64_t begun = clock_now_ns(), took;
	int r;

	r = m->ops->mount(m, &q, &err);
	took = (clock_now_ns() - begun) / CLOCK_NS_PER_MS;
	if (r < 0) {
		check_say(s, CHECK_FAILED, "%s", err.msg);
		hint_mount(s, err.code);
	} else {
		check_say(s, CHECK_OK, "mounted in %" PRIu64 " ms, and unmounted", took);
		json_number(&s->data, "mount_ms", took);
	}
	/* Also after a failure: a mount that timed out may have succeeded. */
	if (m->ops->unmount(m, target, &second) < 0) {
		check_say(s, CHECK_FAILED, "unmounting: %s", second.msg);
		check_hint(s, "unmount '%s' by hand and remove it", target);
	}
}

void check_mount(struct check *c, struct check_step *s)
{
	const char *folder = getenv("TMPDIR");
	cleanup_mounter struct mounter *m = NULL;
	struct error err = { .code = ERROR_OK };
	cleanup_free char *target = NULL;

	if (!c->options.mount) {
		check_say(s, CHECK_SKIPPED, "--mount is not set");
		return;
	}
	if (geteuid() != 0) {
		check_say(s, CHECK_SKIPPED, "only root can mount");
		return;
	}
	if (mounter_new(&m, NULL, &err) < 0) {
		check_say(s, CHECK_FAILED, "%s", err.msg);
		check_hint(s, "free some memory");
		return;
	}
	if (folder == NULL || folder[0] != '/')
		folder = "/tmp";
	if (asprintf(&target, "%s/csi-nfs-check-XXXXXX", folder) < 0)
		target = NULL;
	if (target == NULL || mkdtemp(target) == NULL) {
		check_say(s, CHECK_FAILED, "cannot make a directory in %s: %s", folder,
			  strerror(errno));
		check_hint(s, "make it writable, or set TMPDIR to a directory that is");
		return;
	}
	mount_and_unmount(c, s, m, target);
	(void)rmdir(target); /* fails after a failed unmount, which was reported */
}
