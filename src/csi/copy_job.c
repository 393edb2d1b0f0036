/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "csi/copy_job.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/copy_clients.h"
#include "csi/copy_turn.h"
#include "nfs/calls.h"
#include "store/directory.h"
#include "store/holder.h"
#include "store/layout.h"
#include "store/volume.h"
#include "tree/reader.h"
#include "tree/remove.h"

#define ATTEMPTS_MAX 4
#define SLOTS_ENOUGH 32 /* of a session, for a clone of small files as fast as over version 3 */
#define CLONED_BYTES_MIN 131072 /* mean size of files that are worth being cloned one by one */
#define BYTES_PER_ENTRY 65536 /* creating an entry takes about as long as writing this much */

/* The fraction of an archive or of a counted tree that is done; 0: unknown. */
static double part_done(const struct tree_progress *p)
{
	const double all = (double)p->all_bytes +
			   (double)(p->all_files + p->all_directories) * BYTES_PER_ENTRY;
	double part = 0;

	if (p->total > 0)
		part = (double)p->done / (double)p->total;
	else if (all > 0)
		part = ((double)p->bytes + (double)(p->files + p->directories) * BYTES_PER_ENTRY) /
		       all;
	return part < 1 ? part : 1; /* the tree may have grown */
}

static uint64_t ms_since_start(const struct copy_job *job)
{
	return (clock_now_ns() - job->started_ns) / CLOCK_NS_PER_MS + 1;
}

static void log_progress(const struct copy_job *job, const struct tree_progress *p,
			 const char *message)
{
	uint64_t ms = ms_since_start(job);
	double part = part_done(p);
	uint64_t left_s = part > 0 ? (uint64_t)((1 - part) / part * (double)ms / 1000) : 0;

	log_info(message, LOG_STR("what", job->what), LOG_NUM("files", p->files),
		 LOG_NUM("directories", p->directories), LOG_NUM("bytes", p->bytes),
		 LOG_NUM("all_files", p->all_files), LOG_NUM("all_bytes", p->all_bytes),
		 LOG_NUM("bytes_per_second", p->bytes * 1000 / ms), LOG_NUM("seconds", ms / 1000),
		 LOG_NUM("seconds_left", left_s), LOG_NUM("changed", p->changed),
		 LOG_NUM("vanished", p->vanished), LOG_NUM("left_out", p->left_out),
		 LOG_NUM("clamped", p->clamped), LOG_NUM("times_cut", p->times_cut),
		 LOG_NUM("xattrs_lost", p->xattrs_lost));
}

static const char *xattr_loss_text(int error)
{
	switch (error) {
	case -EOPNOTSUPP:
		return "the target has none: it needs NFSv4.2 and a file system that keeps them";
	case -EPERM:
	case -EACCES:
		return "not permitted, or outside the user. namespace, the only one NFS supports";
	case -E2BIG:
	case -EMSGSIZE:
	case -ERANGE:
	case -ENOSPC:
		return "too large for the target, for NFS or for an archive";
	default:
		return strerror(-error);
	}
}

static void log_xattrs_lost(const struct copy_job *job)
{
	const struct tree_progress *p = &job->work.progress;

	if (p->xattrs_lost > 0)
		log_warn("Extended attributes were not kept", LOG_STR("what", job->what),
			 LOG_NUM("attributes", p->xattrs_lost),
			 LOG_STR("reason", xattr_loss_text(p->xattr_error)));
}

static void log_end(const struct copy_job *job)
{
	const struct tree_progress *p = &job->work.progress;
	uint64_t ms = ms_since_start(job);

	log_info("Copied", LOG_STR("what", job->what), LOG_NUM("files", p->files),
		 LOG_NUM("directories", p->directories), LOG_NUM("bytes", p->bytes),
		 LOG_NUM("bytes_per_second", p->bytes * 1000 / ms), LOG_NUM("seconds", ms / 1000),
		 LOG_NUM("changed", p->changed), LOG_NUM("vanished", p->vanished),
		 LOG_NUM("left_out", p->left_out), LOG_NUM("clamped", p->clamped),
		 LOG_NUM("times_cut", p->times_cut), LOG_NUM("xattrs_lost", p->xattrs_lost));
	log_xattrs_lost(job);
	if (p->clamped > 0)
		log_warn("NFSv3 cannot store times before 1970 or after 2106, and file systems have limits of their own; times were clamped",
			 LOG_STR("what", job->what), LOG_NUM("entries", p->clamped));
	if (p->times_cut > 0)
		log_warn("libarchive has 32-bit times on this system: times after 2038 were restored as times before 1970",
			 LOG_STR("what", job->what), LOG_NUM("entries", p->times_cut));
}

/* A tree that cannot be counted may still be copied: ignore errors. */
static void count_tree(struct copy_job *job)
{
	struct error ignored = { .code = ERROR_OK };

	if (job->path == NULL || job->is_counted)
		return;
	job->is_counted = true; /* first, since tree_count() calls report() */
	(void)tree_count(&job->work, &job->tree, &job->attr, &ignored);
}

/* Renew both, whatever becomes of the first, and return the first error. */
static int renew_claims(struct copy_job *job, struct error *err)
{
	struct error second = { .code = ERROR_OK };
	int r = claim_renew(job->claims[0], job->idle[0], err);
	int r2 = claim_renew(job->claims[1], job->idle[1], r < 0 ? &second : err);

	return r < 0 ? r : r2;
}

static void keep_alive(struct nfs_client *c)
{
	struct nfs_attr unused;

	(void)nfs_getattr(c, &c->root, &unused);
}

/* A lost note fails copy_job_close() at the end. */
static void renew_claims_in_time(struct copy_job *job)
{
	const uint64_t now = clock_now_ns(), idle_ns = 3 * (now - job->renewed_ns);
	struct error err = { .code = ERROR_OK };

	if (idle_ns < store_holder_patience_s() * CLOCK_NS_PER_S &&
	    idle_ns < 3 * TREE_REPORT_S * CLOCK_NS_PER_S)
		return;
	job->renewed_ns = now;
	if (renew_claims(job, &err) < 0)
		log_warn("A note that the copy is under way was not renewed",
			 LOG_STR("what", job->what), LOG_STR("error", err.msg));
}

/* Keep the notes, and the sessions of all clients. */
static void copy_job_stay(struct copy_job *job)
{
	const struct tree_work *work = &job->work;

	renew_claims_in_time(job);
	/*
	 * The call's own clients are idle. So is one of the work's clients while it counts, or
	 * while the server copies. Never wait for one that is busy: it may hang, and the notes have
	 * to be renewed. A broken client is noticed at its next use.
	 */
	keep_alive(job->idle[0]);
	keep_alive(job->idle[1]);
	if (work->reading == 0 && (work->writing == 0 || work->from != work->to))
		keep_alive(work->from);
	if (work->writing == 0 && work->from != work->to)
		keep_alive(work->to);
}

static void report(const struct tree_progress *progress, void *data)
{
	struct copy_job *job = data;
	const bool counting = progress != &job->work.progress; /* tree_count() passes its own */
	const char *const work_name = job->kind == COPY_CHECK ? "Checking" : "Copying";

	copy_job_stay(job);
	if (clock_now_ns() - job->logged_ns < TREE_REPORT_S * CLOCK_NS_PER_S)
		return;
	job->logged_ns = clock_now_ns();
	count_tree(job);
	log_progress(job, progress, counting ? "Counting" : work_name);
}

/* Have report() called in time for sessions, leases and notes that are shorter than usual. */
static void set_report_interval(struct copy_job *job)
{
	const struct nfs_client *const clients[] = { job->idle[0], job->idle[1], job->work.from,
						     job->work.to };
	const uint32_t patience_s = store_holder_patience_s();
	uint32_t lease_s = patience_s < 3 * TREE_REPORT_S ? patience_s : 3 * TREE_REPORT_S;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(clients); i++)
		if (clients[i] != NULL && clients[i]->lease_s != 0 && clients[i]->lease_s < lease_s)
			lease_s = clients[i]->lease_s;
	job->work.report_ms = lease_s < 3 * TREE_REPORT_S ? lease_s * 1000 / 3 : 0;
}

_Static_assert(NFS_SERVER_PLACES > COPY_TURNS_OF_SERVER * COPY_JOB_CLIENTS,
	       "copies leave a place to other calls");

void copy_job_open(struct copy_job *job, const struct csi_driver *driver, const char *what,
		   struct nfs_client *from, struct nfs_client *to, struct claim *const claims[2])
{
	*job = (struct copy_job){
		.driver = driver, .what = what, .idle = { from, to }, .claims = claims
	};
	job->started_ns = job->logged_ns = job->renewed_ns = job->work.reported_ns = clock_now_ns();
	job->work.report = report;
	job->work.data = job;
	job->work.cancel = driver->stopping;
	job->work.ahead.budget = job->work.unwritten.budget = driver->budget;
}

static void report_removal(const struct tree_stats *stats, const char *name, void *data)
{
	(void)stats;
	(void)name;
	copy_job_stay(data);
}

/* An attempt that gave up late leaves a large tree. Not to the trash: the next needs its room. */
static int copy_job_remove(struct copy_job *job, const struct nfs_handle *dir, const char *name,
			   struct error *err)
{
	struct tree_stats stats = {
		.report = report_removal,
		.data = job,
		.report_ms = job->work.report_ms,
		.reported_ns = job->work.reported_ns,
	};
	int r;

	job->work.writing++; /* the client is busy */
	r = tree_remove(job->work.to, dir, name, job->work.cancel, &stats, err);
	job->work.writing--;
	return r;
}

int copy_job_begin(struct copy_job *job, const char *name, const struct nfs_handle **ret_work,
		   struct error *err)
{
	int r = store_folder(job->work.to, STORE_WORK, true, ret_work, err);

	/* An attempt may find that an end has no extended attributes after all; ask it again. */
	if (job->attempts == 0) {
		job->from_xattrs = job->work.from_xattrs;
		job->to_xattrs = job->work.to_xattrs;
	}
	job->work.name = name;
	job->work.from_xattrs = job->from_xattrs;
	job->work.to_xattrs = job->to_xattrs;
	return r < 0 ? r : copy_job_remove(job, *ret_work, name, err);
}

bool copy_job_is_to_be_retried(struct copy_job *job, int r, struct error *err)
{
	const struct tree_progress none = { .files = 0 };
	struct error unused = { .code = ERROR_OK };

	if (r != -ERESTART || ++job->attempts >= ATTEMPTS_MAX ||
	    tree_check_cancel(&job->work, &unused) < 0)
		return false;
	log_info("Restarting a copy", LOG_STR("what", job->what), LOG_STR("reason", err->msg));
	error_clear(err);
	job->work.progress = none;
	job->is_counted = false;
	return true;
}

static int copy_job_find_directory(struct copy_job *job, struct nfs_client *c, const char *path,
				   struct error *err)
{
	struct directory_place place;
	int r;

	r = directory_locate(c, path, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &job->tree, &job->attr);
	if (r == 0)
		r = nfs_stat(c, &job->tree, &job->attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "directory '%s'", path);
	/* Copying a link or a file would succeed, without any of the volume's data. */
	if (job->attr.type != NFS_TYPE_DIRECTORY)
		return error_set(err, ERROR_FAILED_PRECONDITION,
				 "'%s' on %s:%s is %s: put the directory itself there", path,
				 c->export.server, c->export.share,
				 job->attr.type == NFS_TYPE_SYMLINK
					 ? "a symbolic link, which csi-nfs does not follow"
					 : "not a directory");
	job->path = path;
	return 0;
}

static bool is_narrow(const struct nfs_client *c)
{
	return c->slots != 0 && c->slots < SLOTS_ENOUGH;
}

/*
 * Whether to check if the tree has any extended attributes. Without them, it could be copied faster
 * over another NFS version. This needs mount options that leave the version open, and a session
 * with few slots: Linux gives a session fewer slots the more threads its server has, and the less
 * memory.
 */
static bool may_leave_version(const struct copy_job *job)
{
	return job->kind == COPY_CLONE && job->work.from_xattrs &&
	       (nfs_export_leaves_version(&job->idle[0]->export) ||
		nfs_export_leaves_version(&job->idle[1]->export)) &&
	       (is_narrow(job->work.from) || is_narrow(job->work.to));
}

/* If the tree cannot be read, assume attributes; the copy reports the error. */
static bool has_xattrs(struct copy_job *job)
{
	struct error ignored = { .code = ERROR_OK };
	bool found;

	job->is_counted = true; /* first, since it calls report() */
	if (tree_find_xattrs(&job->work, &job->tree, &job->attr, &found, &ignored) == 0 && !found)
		return false;
	job->is_counted = false;
	return true;
}

/* Whether the tree is of small files, which a server copies no faster than it writes them. */
static bool has_small_files(struct copy_job *job)
{
	const struct tree_progress *p = &job->work.progress;

	count_tree(job);
	return p->all_files > 0 && p->all_bytes / p->all_files < CLONED_BYTES_MIN;
}

/* Whether a reason remains to stay on the leased version. */
static bool is_version_needed(struct copy_job *job)
{
	if (job->work.from_xattrs)
		return true;
	if (job->can_offload)
		return !has_small_files(job);
	return job->kind != COPY_CLONE_PLAIN;
}

static int lease(struct copy_job *job, const char *path, bool same_version, struct error *err)
{
	int r = copy_clients_lease(job->driver, job->idle[0], job->idle[1], path, same_version,
				   &job->work, err);

	if (r == 0)
		set_report_interval(job);
	return r;
}

/*
 * Refuse a tree around the share of the copy: its folder of unfinished work would be in the tree,
 * so the copy would hold a copy of itself, and so on until the disk is full. If the paths do not
 * tell, the reader finds out (work.name), later.
 */
static int check_apart(const struct nfs_client *from, const char *path, const struct nfs_client *to,
		       struct error *err)
{
	const bool is_one = strcmp(from->export.server, to->export.server) == 0 ||
			    copy_clients_share_server(from, to);
	cleanup_free char *tree = path_join_root(from->export.share, path, NULL);
	cleanup_free char *share = path_join_root(to->export.share, NULL);
	const size_t len = tree != NULL ? strlen(tree) : 0;

	if (tree == NULL || share == NULL)
		return error_oom(err);
	if (!is_one || strncmp(tree, share, len) != 0 || (share[len] != '/' && share[len] != '\0'))
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "share '%s' lies in the directory '%s' that is to be copied to it; use another share",
			 share, tree);
}

int copy_job_find_tree(struct copy_job *job, enum copy_kind kind, const char *path,
		       struct error *err)
{
	struct nfs_client *from = job->idle[0], *to = job->idle[1];
	bool stays; /* on its version, for extended attributes */
	int r;

	job->kind = kind;
	r = check_apart(from, path, to, err);
	if (r == 0)
		r = copy_job_find_directory(job, from, path, err);
	if (r == 0)
		r = copy_clients_find_xattrs(from, &job->tree, to, kind, &job->work, err);
	if (r < 0)
		return r;
	stays = job->work.from_xattrs && job->work.to_xattrs && !is_narrow(from) && !is_narrow(to);
	if (kind == COPY_CLONE)
		r = copy_clients_can_offload(job->driver, from, &job->attr, to, !stays, err);
	if (r < 0)
		return r;
	job->can_offload = r > 0;
	r = lease(job, path, job->can_offload, err);
	if (r == 0)
		r = copy_job_find_directory(job, job->work.from, path, err);
	if (r < 0)
		return r;
	if (may_leave_version(job) && !has_xattrs(job)) {
		job->kind = COPY_CLONE_PLAIN;
		job->work.from_xattrs = job->work.to_xattrs = false;
	}
	if (is_version_needed(job))
		return 0;
	copy_clients_return(job->driver, &job->work);
	r = lease(job, path, false, err);
	return r < 0 ? r : copy_job_find_directory(job, job->work.from, path, err);
}

int copy_job_find_volume(struct copy_job *job, enum copy_kind kind, const struct volume_ref *ref,
			 struct error *err)
{
	const char *path;
	int r = volume_directory(job->idle[0], &ref->id, &ref->record, &path, err);

	return r < 0 ? r : copy_job_find_tree(job, kind, path, err);
}

int copy_job_lease_for_archive(struct copy_job *job, enum copy_kind kind, const char *path,
			       struct error *err)
{
	int r;

	job->kind = kind;
	if (kind == COPY_CHECK)
		return lease(job, path, false, err);
	r = copy_clients_find_xattrs(job->idle[0], NULL, job->idle[1], job->kind, &job->work, err);
	return r < 0 ? r : lease(job, path, false, err);
}

static int copy_job_check_source(struct copy_job *job, struct error *err)
{
	struct nfs_client *c = job->work.from;
	struct directory_place place;
	struct nfs_handle now;
	int r;

	if (job->path == NULL)
		return 0;
	r = directory_locate(c, job->path, &place, err);
	if (r == 0)
		r = nfs_lookup(c, &place.parent, place.base, &now, NULL);
	if (r < 0 && r != -ENOENT && r != -ESTALE)
		return nfs_error_set(err, c, r, "directory '%s'", job->path);
	if (r == 0 && nfs_handle_is_equal(&now, &job->tree))
		return 0;
	return error_set(err, ERROR_ABORTED, "directory '%s' went away while it was read",
			 job->path);
}

int copy_job_close(struct copy_job *job, int r, struct error *err)
{
	if (r == 0)
		r = copy_job_check_source(job, err);
	if (r == 0)
		r = renew_claims(job, err);
	copy_clients_return(job->driver, &job->work);
	if (r == 0 && job->kind != COPY_CHECK)
		log_end(job);
	return r;
}
