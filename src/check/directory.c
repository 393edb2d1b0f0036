/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* A step that makes a directory on the share, like a volume's, and removes it again. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "check/steps.h"
#include "nfs/calls.h"

#define NAME_SIZE 64
#define FIRST_MODE 0700
#define SECOND_MODE 0750
#define PROBE "probe" /* in the directory */
#define COPY_PROBE "copy" /* likewise */
#define PROBE_BYTES 4096 /* in it */
#define PROBE_MS 10000 /* for an operation on it */
#define PROBE_PAUSE_MS 100 /* before one that the server delays is repeated */
#define OTHER_ID 12345 /* that a pod may run as */

/* The directory that the step makes. */
struct trial {
	char name[NAME_SIZE];
	const struct nfs_export *wanted; /* has the uid and gid that should own it */
	struct nfs_client *client; /* borrowed; made the directory */
	struct nfs_handle handle;
	struct nfs_attr attr; /* after the change of its mode */
	bool left; /* could not be removed and may still exist */
	bool probed; /* there may be an entry PROBE in it */
	bool copied; /* there may be a COPY_PROBE */
};

static bool is_transport(int error)
{
	return error == -ETIMEDOUT || error == -ECONNABORTED;
}

/* owner holds the attributes of the exported directory. */
static void hint_squashed(struct check_step *s, const struct nfs_attr *owner)
{
	if (owner->has_owner && owner->uid != 0)
		check_hint(s,
			   "the server probably squashes root: set uid %" PRIu32 " and gid %" PRIu32
			   ", the directory's owner, in the StorageClass (here --uid and --gid), or export with no_root_squash",
			   owner->uid, owner->gid);
	else
		check_hint(s,
			   "the server probably squashes root: export with no_root_squash, or chown the directory on the server and set its new uid and gid in the StorageClass (here --uid and --gid)");
}

static void trial_refused(const struct check *c, struct check_step *s, const struct trial *t)
{
	struct nfs_attr owner = { .has_owner = false };

	if (check_is_refused(nfs_getattr(t->client, &t->client->root, &owner))) {
		check_hint_refused(c, s);
		return;
	}
	if (owner.has_owner && owner.has_mode)
		(void)buf_printf(&s->text,
				 "; the exported directory belongs to uid %" PRIu32 ", gid %" PRIu32
				 ", mode %04" PRIo32,
				 owner.uid, owner.gid, owner.mode);
	if (t->wanted->uid == 0)
		hint_squashed(s, &owner);
	else
		check_hint(s,
			   "let uid %" PRIu32
			   " write there (chown or chmod on the server), or set the uid and gid of a user who may in the StorageClass (here --uid and --gid)",
			   t->wanted->uid);
}

static void trial_failed(const struct check *c, struct check_step *s, const struct trial *t,
			 const char *what, int error)
{
	check_say(s, CHECK_FAILED, "%s '%s' as uid %" PRIu32 ", gid %" PRIu32 ": %s", what, t->name,
		  t->wanted->uid, t->wanted->gid, check_reason(error));
	if (check_is_refused(error))
		trial_refused(c, s, t);
	else if (error == -EROFS)
		check_hint(s,
			   "export it with 'rw', and mount its file system on the server read-write");
	else if (error == -ENOSPC || error == -EDQUOT)
		check_hint(s, "free space on the server's file system, or raise the quota");
	else
		check_hint(s, "check the server's log%s",
			   t->left ? ", and remove the directory by hand if it exists" : "");
}

static int remove_by(struct nfs_client *c, const struct trial *t)
{
	/* RMDIR tells if one is still there. */
	if (t->probed)
		(void)nfs_remove(c, &t->handle, PROBE);
	if (t->copied)
		(void)nfs_remove(c, &t->handle, COPY_PROBE);
	return nfs_rmdir(c, &c->root, t->name);
}

/* Remove the directory, over a new connection if the old one broke. */
static int trial_remove(const struct trial *t)
{
	cleanup_nfs_client struct nfs_client *fresh = NULL;
	struct error ignored = { .code = ERROR_OK }; /* the errno is enough */
	int r;

	r = check_result(t->client, remove_by(t->client, t));
	if (is_transport(r)) {
		r = nfs_client_connect(&fresh, &t->client->export, &ignored);
		if (r == 0)
			r = remove_by(fresh, t);
	}
	return r == -ENOENT ? 0 : r;
}

/*
 * Make the directory, and change its owner if the client has another identity. After a failure,
 * remove it: the server may have made it although its reply was lost.
 */
static int trial_make(struct trial *t)
{
	const struct nfs_export *as = &t->client->export;
	const struct nfs_change owner = {
		.has_uid = true, .uid = t->wanted->uid, .has_gid = true, .gid = t->wanted->gid
	};
	bool made;
	int r;

	r = nfs_mkdir(t->client, &t->client->root, t->name, FIRST_MODE, &t->handle, &t->attr);
	made = r == 0;
	if (r == 0 && (as->uid != owner.uid || as->gid != owner.gid))
		r = nfs_setattr(t->client, &t->handle, &owner);
	r = check_result(t->client, r);
	/* Return the first error, not that of the removal. */
	if (r < 0 && r != -EEXIST && trial_remove(t) < 0)
		t->left = made || is_transport(r);
	return r;
}

/* If the owner may not write, do as the controller does: make it as its own identity, and chown. */
static int trial_make_as_either(struct trial *t, struct nfs_client **ret_other)
{
	struct nfs_client *first = t->client;
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export own = first->export; /* borrows its strings */
	int r, second;

	r = trial_make(t);
	if (!check_is_refused(r) || nfs_export_is_own(&first->export))
		return r;
	nfs_export_set_own(&own);
	if (nfs_client_connect(ret_other, &own, &ignored) < 0)
		return r;
	t->client = *ret_other;
	second = trial_make(t);
	return check_is_refused(second) ? r : second;
}

/* Report the owner of the directory, and whether the export squashes users. */
static void say_owner(struct check_step *s, const struct trial *t)
{
	const struct nfs_attr *attr = &t->attr;
	uint32_t uid = t->wanted->uid;

	if (!attr->has_owner) {
		check_say(s, CHECK_WARNING,
			  "made, changed and removed; cannot tell whether root is squashed, because the server sends owners as names");
		check_hint(s,
			   "let the server send numeric owners (knfsd: nfs4_disable_idmapping=Y)");
		return;
	}
	json_number(&s->data, "owner_uid", attr->uid);
	json_number(&s->data, "owner_gid", attr->gid);
	json_bool(&s->data, "squashed", attr->uid != uid);
	if (attr->uid == uid) {
		check_say(s, CHECK_OK, "made as uid %" PRIu32 ", changed and removed; %s",
			  t->client->export.uid,
			  uid == 0                       ? "root is not squashed"
			  : t->client->export.uid == uid ? "it belonged to that uid"
							 : "its owner was changed to --uid");
		return;
	}
	check_say(s, CHECK_WARNING,
		  "made as uid %" PRIu32 ", changed and removed; it belonged to uid %" PRIu32
		  ": the server squashes %s",
		  t->client->export.uid, attr->uid, uid == 0 ? "root" : "users");
	check_hint(s,
		   "volumes will belong to uid %" PRIu32 ", gid %" PRIu32
		   ": for pods that run as another user, set uid and gid or mountPermissions in the StorageClass",
		   attr->uid, attr->gid);
}

static int trial_remove_probe(struct trial *t)
{
	int r = check_result(t->client, nfs_remove(t->client, &t->handle, PROBE));

	t->probed = r < 0;
	return r;
}

/* Say how the share keeps records: as symbolic links, or as files where it refuses links. */
static int trial_probe_links(struct check_step *s, struct trial *t)
{
	struct nfs_handle unused;
	int r, refused;

	t->probed = true;
	refused = check_result(t->client, nfs_symlink(t->client, &t->handle, PROBE, "v=1"));
	if (is_transport(refused))
		return refused;
	json_bool(&s->data, "symbolic_links", refused == 0);
	if (refused == 0)
		return trial_remove_probe(t);
	r = nfs_create(t->client, &t->handle, PROBE, 0600, &unused);
	r = check_result(t->client, r);
	if (r < 0)
		return r;
	(void)buf_printf(&s->text, "; no symbolic links (%s): records will be files",
			 check_reason(refused));
	return trial_remove_probe(t);
}

/* -------- operations that are optional in version 4.2 -------- */

static int probe_once(struct nfs_client *c, struct nfs_op *op, uint64_t end_ns)
{
	int r = nfs_client_start(c, op);

	while (r == 0 && !op->finished && clock_now_ns() < end_ns)
		r = nfs_client_run_pair(c, NULL, end_ns);
	if (r == 0 && !op->finished) {
		nfs_client_abort(c);
		return -ETIMEDOUT;
	}
	return check_result(c, op->finished ? op->error : r);
}

/* Like nfs_client_call(), but a small file needs no minutes: the step does not end on signals. */
static int probe_call(struct nfs_client *c, struct nfs_op *op)
{
	const uint64_t end_ns = clock_now_ns() + PROBE_MS * CLOCK_NS_PER_MS;
	int r;

	for (;;) {
		r = probe_once(c, op, end_ns);
		if (r != -EAGAIN || clock_now_ns() >= end_ns)
			return r;
		clock_sleep_ms(PROBE_PAUSE_MS);
	}
}

static int probe_clone(struct nfs_client *c, const struct nfs_handle *from,
		       const struct nfs_handle *to)
{
	struct nfs_op op = { .type = NFS_OP_CLONE, .dir = from, .to_dir = to };

	return probe_call(c, &op);
}

static int probe_copy(struct nfs_client *c, const struct nfs_handle *from,
		      const struct nfs_handle *to)
{
	struct nfs_op op = { .type = NFS_OP_COPY, .dir = from, .to_dir = to };
	int r;

	op.length = PROBE_BYTES;
	r = probe_call(c, &op);
	/* The server has it, but replies before the data is copied, or would. */
	return op.is_async && (r == 0 || r == -EOPNOTSUPP) ? -EINPROGRESS : r;
}

static int probe_seek(struct nfs_client *c, const struct nfs_handle *from,
		      const struct nfs_handle *to)
{
	struct nfs_op op = { .type = NFS_OP_SEEK, .dir = from };

	(void)to;
	return probe_call(c, &op);
}

static int probe_xattrs(struct nfs_client *c, const struct nfs_handle *from,
			const struct nfs_handle *to)
{
	bool has = false;
	int r = check_result(c, nfs_has_xattrs(c, from, &has));

	(void)to;
	return r < 0 || has ? r : -EOPNOTSUPP;
}

static const struct {
	const char *name, *key; /* in the text, in the data */
	int (*probe)(struct nfs_client *c, const struct nfs_handle *from,
		     const struct nfs_handle *to);
} features[] = {
	{ "CLONE", "clone", probe_clone },
	{ "COPY", "copy", probe_copy },
	{ "SEEK", "seek", probe_seek },
	{ "extended attributes", "xattrs", probe_xattrs },
};

/* Make the files to probe with in dir, the directory's handle of client c. */
static int trial_make_files(struct trial *t, struct nfs_client *c, const struct nfs_handle *dir,
			    struct nfs_handle *from, struct nfs_handle *to)
{
	static char data[PROBE_BYTES];
	struct nfs_op write = { .type = NFS_OP_WRITE, .dir = from };
	int r;

	t->probed = t->copied = true;
	r = nfs_create(c, dir, PROBE, 0600, from);
	if (r == 0)
		r = nfs_create(c, dir, COPY_PROBE, 0600, to);
	write.buffer = data;
	write.count = sizeof(data);
	return r == 0 ? probe_call(c, &write) : check_result(c, r);
}

static void say_feature(struct check_step *s, const char *before, size_t i, int result)
{
	const char *text = result == 0 ? "" : result == -EINPROGRESS ? "asynchronous " : "no ";

	json_bool(&s->data, features[i].key, result == 0 || result == -EINPROGRESS);
	(void)buf_printf(&s->text, "%s%s%s", i == 0 ? before : ", ", text, features[i].name);
}

/*
 * Report what the server can do with files by itself. before: the text in front. If something goes
 * wrong, *ret_what is it.
 */
static int probe_features(struct check_step *s, struct trial *t, struct nfs_client *c,
			  const struct nfs_handle *dir, const char *before, const char **ret_what)
{
	struct nfs_handle from, to;
	size_t i;
	int r;

	*ret_what = "files";
	r = trial_make_files(t, c, dir, &from, &to);
	for (i = 0; r == 0 && i < ARRAY_SIZE(features); i++) {
		const int result = features[i].probe(c, &from, &to);

		*ret_what = features[i].name;
		if (is_transport(result))
			r = result;
		else
			say_feature(s, before, i, result);
	}
	return r;
}

/*
 * Only version 4.2 has them, and clones may go over it for their sake where others are preferred,
 * so look there, too. Step "versions" says why that version does not work.
 */
static void probe_features_over_another(const struct check *c, struct check_step *s,
					struct trial *t)
{
	cleanup_nfs_client struct nfs_client *other = NULL;
	struct error ignored = { .code = ERROR_OK };
	struct nfs_export e = t->client->export; /* borrows its strings */
	const char *what = "the directory";
	struct nfs_handle dir;
	int r;

	e.server = t->client->address; /* others of the name may be silent */
	e.version = 4;
	e.has_minor = true;
	e.minor = 2;
	if (!c->serves_4 || !c->minors_known || !c->minors[2] ||
	    nfs_client_connect(&other, &e, &ignored) < 0)
		return;
	r = check_result(other, nfs_lookup(other, &other->root, t->name, &dir, NULL));
	if (r == -ENOENT) /* the path names another directory there */
		return;
	if (r == 0)
		r = probe_features(s, t, other, &dir, "; over 4.2: ", &what);
	if (r == 0)
		return;
	s->status = s->status == CHECK_OK ? CHECK_WARNING : s->status;
	(void)buf_printf(&s->text, "; over 4.2, %s: %s", what, check_reason(r));
	check_hint(s, "check the server's log; copies may go over 4.2 unless vers= is set");
}

/* A session that waited for another one may be over. *owner: the client of the trial. */
static void trial_renew_client(struct trial *t, struct nfs_client **owner)
{
	struct error ignored = { .code = ERROR_OK }; /* the next call fails */
	struct nfs_client *fresh = NULL;

	if (nfs_client_is_usable(t->client) ||
	    nfs_client_connect(&fresh, &t->client->export, &ignored) < 0)
		return;
	nfs_client_free(*owner);
	*owner = t->client = fresh;
}

/* -------- all of the step -------- */

/* Try what uid and gid of a StorageClass, clones and restored files need: any owner. */
static int trial_probe_owner(struct check_step *s, const struct trial *t)
{
	const struct nfs_change change = {
		.has_uid = true, .uid = OTHER_ID, .has_gid = true, .gid = OTHER_ID
	};
	struct nfs_attr now;
	int r;

	/* Only root may give away, and not where the warning about squashing says enough. */
	if (t->client->export.uid != 0 || !t->attr.has_owner || t->attr.uid != t->wanted->uid)
		return 0;
	r = nfs_setattr(t->client, &t->handle, &change);
	if (r == 0)
		r = nfs_getattr(t->client, &t->handle, &now);
	if (r == 0 && now.uid != OTHER_ID)
		r = -EOPNOTSUPP; /* ignored */
	r = check_result(t->client, r);
	if (is_transport(r))
		return r;
	json_bool(&s->data, "sets_owner", r == 0);
	if (r == 0)
		return 0;
	if (s->status == CHECK_OK)
		s->status = CHECK_WARNING;
	(void)buf_printf(&s->text, "; its owner cannot be changed to uid %d: %s", OTHER_ID,
			 r != -NFS_EOWNER          ? check_reason(r)
			 : t->client->version == 3 ? "the server ignores it"
						   : "the server does not know that uid");
	check_hint(s,
		   "leave uid and gid out of the StorageClass, and expect clones and restored snapshots to fail where files have other owners");
	return 0;
}

/* *owner: the client of the trial. */
static void trial_examine(const struct check *c, struct check_step *s, struct trial *t,
			  struct nfs_client **owner)
{
	const bool is_newest = t->client->version == 4 && t->client->minor == 2;
	const char *what;
	char doing[64];
	int r;

	r = nfs_setmode(t->client, &t->handle, SECOND_MODE);
	if (r == 0)
		r = nfs_getattr(t->client, &t->handle, &t->attr);
	r = check_result(t->client, r);
	if (r < 0) {
		trial_failed(c, s, t, "changing the mode of", r);
		return;
	}
	say_owner(s, t);
	r = trial_probe_links(s, t);
	if (r < 0) {
		trial_failed(c, s, t, "making a symbolic link or file in", r);
		return;
	}
	r = is_newest ? probe_features(s, t, t->client, &t->handle, "; ", &what) : 0;
	if (r < 0) {
		(void)snprintf(doing, sizeof(doing), "%s in", what);
		trial_failed(c, s, t, doing, r);
		return;
	}
	r = trial_probe_owner(s, t);
	if (r < 0) {
		trial_failed(c, s, t, "changing the owner of", r);
		return;
	}
	if (is_newest)
		return;
	probe_features_over_another(c, s, t);
	trial_renew_client(t, owner);
}

void check_directory(struct check *c, struct check_step *s)
{
	struct trial t = { .wanted = &c->export, .client = c->client };
	cleanup_nfs_client struct nfs_client *other = NULL;
	struct timespec now;
	int r;

	/* Nanoseconds make the name unique: in containers, every process id may be 1. */
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)snprintf(t.name, sizeof(t.name), ".csi-nfs-check-%d-%lld.%09ld", (int)getpid(),
		       (long long)now.tv_sec, now.tv_nsec);
	json_string(&s->data, "name", t.name);
	json_number(&s->data, "uid", c->export.uid);
	json_number(&s->data, "gid", c->export.gid);
	r = trial_make_as_either(&t, &other);
	if (r < 0) {
		trial_failed(c, s, &t, "making directory", r);
		return;
	}
	trial_examine(c, s, &t, other != NULL ? &other : &c->client);
	r = trial_remove(&t);
	if (r == 0)
		return;
	check_say(s, CHECK_FAILED, "directory '%s' was made but cannot be removed: %s", t.name,
		  check_reason(r));
	check_hint(s, "remove it by hand, and check the server's log");
}
