/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* NodePublishVolume: mount a volume at its target path. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mount_options.h"
#include "base/path.h"
#include "base/request.h"
#include "base/str.h"
#include "csi/params.h"
#include "csi/validate.h"
#include "node/inline.h"
#include "node/node.h"
#include "node/published.h"

#define TARGET_MODE 0750 /* of the empty directory below the mount */

/* A parsed request. */
struct publication {
	struct volume_params params;
	char *path, *top, *target, *options; /* owned; mount points to them */
	struct mount_request mount;
	bool exclusive; /* access mode SINGLE_NODE_SINGLE_WRITER */
};

/* The notes of this node about the target. */
struct target_notes {
	const char *state_dir, *volume;
	bool had_note; /* the volume was to be mounted there by an earlier call */
};

static void publication_done(struct publication *p)
{
	volume_params_done(&p->params);
	free(p->path);
	free(p->top);
	free(p->target);
	free(p->options);
}

static int publication_check(const Csi__V1__NodePublishVolumeRequest *in, struct error *err)
{
	int r = validate_volume_id(in->volume_id, err);

	if (r < 0)
		return r;
	r = validate_path(in->target_path, "target_path", err);
	if (r < 0)
		return r;
	if (in->volume_capability == NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "volume_capability is required, but missing");
	return validate_capability(in->volume_capability, err);
}

/* Join mount options. NULL without memory. */
static char *publication_options(const char *flags, const char *attribute, const char *forced)
{
	const char *const parts[] = { flags, attribute, forced };
	cleanup_buf struct buf b = { 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		if (mount_options_append(&b, parts[i]) < 0)
			return NULL;
	return buf_steal(&b);
}

/* Choose the directory from which the path is walked (mount_request.top). */
static int publication_set_top(struct publication *p, const struct node_driver *driver,
			       bool is_inline, struct error *err)
{
	const char *subdir = p->params.subdir;
	const char *option;

	if (is_inline) {
		/* A pod may mount only what the administrator has listed. */
		if (node_inline_top(driver->inline_volumes, p->params.server, p->path, &p->top) < 0)
			return error_oom(err);
		if (p->top == NULL)
			return error_set(err, ERROR_PERMISSION_DENIED,
					 "inline volumes of '%s:%s' are not allowed on this node; see --inline-volumes",
					 p->params.server, p->path);
		if (node_inline_find_refused(p->params.mount_options, &option) < 0)
			return error_oom(err);
		if (option != NULL)
			return error_set(err, ERROR_PERMISSION_DENIED,
					 "inline volumes may not have the mount option '%s': it would let a pod choose any service of '%s'",
					 option, p->params.server);
		return 0;
	}
	/* A directory between share and volume may be a volume too, which a pod can write. */
	if (subdir != NULL && strchr(subdir, '/') != NULL) {
		p->top = path_join_root(p->params.share, NULL);
		if (p->top == NULL)
			return error_oom(err);
	}
	return 0;
}

static int publication_parse(struct publication *p, const struct node_driver *driver,
			     const Csi__V1__NodePublishVolumeRequest *in, struct error *err)
{
	const struct volume_defaults defaults = { .server = driver->server,
						  .share = driver->share,
						  .mode = driver->mount_permissions };
	const struct csi_map context = csi_map_of(in, volume_context);
	const bool is_inline = node_inline_is_asked(in->volume_id, &context);
	cleanup_mount_options struct mount_options options = { .minor = -1 };
	cleanup_free char *flags = NULL;
	bool mode_is_ours;
	int r;

	r = publication_check(in, err);
	if (r < 0)
		return r;
	r = volume_attributes_parse(&p->params, &context, &defaults, err);
	if (r < 0)
		return r;
	flags = capability_options(in->volume_capability);
	p->path = path_join_root(p->params.share, p->params.subdir != NULL ? p->params.subdir : "",
				 NULL);
	p->target = path_clean(in->target_path);
	if (flags == NULL || p->path == NULL || p->target == NULL)
		return error_oom(err);
	p->options = publication_options(flags, p->params.mount_options,
					 is_inline ? NODE_INLINE_OPTIONS : NULL);
	if (p->options == NULL)
		return error_oom(err);
	r = publication_set_top(p, driver, is_inline, err);
	if (r < 0)
		return r;
	r = mount_options_parse(&options, p->options, err);
	if (r < 0)
		return r;
	p->exclusive = access_mode_is_exclusive(in->volume_capability);
	/*
	 * The root of the export keeps its mode. So do inline volumes: whoever may create a pod
	 * could open somebody else's directory.
	 */
	mode_is_ours = p->params.subdir != NULL && !is_inline &&
		       (p->top == NULL || strcmp(p->path, p->top) != 0);
	p->mount = (struct mount_request){
		.server = p->params.server,
		.path = p->path,
		.top = p->top,
		.target = p->target,
		.options = p->options,
		/* Ignore the access mode: if a volume has several, kubelet sends the first. */
		.read_only = in->readonly || options.read_only,
		.mode = mode_is_ours ? p->params.mode : 0,
	};
	return 0;
}

/*
 * Change a final code to ABORTED: the mount at the target may be that of an earlier call for the
 * same request, and the CO would forget it. It cannot be unmounted, since a pod may use it. Returns
 * r.
 */
static int target_keep(int r, struct error *err)
{
	if (r < 0 && error_is_final(err->code))
		err->code = ERROR_ABORTED;
	return r;
}

/*
 * Find out whether the mount at the target shows the volume. mountinfo may name another path if the
 * server resolved a symbolic link or the directory was renamed, and another address of the same
 * server: then mount the volume's path once more, in a private namespace, and compare. Returns 0 or
 * a negative errno, -ESTALE only if the mount at the target is stale.
 */
static int target_has_volume(struct mounter *m, const struct mount_request *wanted,
			     const struct mount_info *info, bool *ret, struct error *err)
{
	struct mount_request again = *wanted;
	int r;

	*ret = false;
	if (!mount_info_is_nfs(info))
		return 0;
	/* Mounts may all have another name of the server, which only the name service knows. */
	r = mount_info_is_on(info, wanted->server, err);
	if (r < 0)
		return target_keep(r, err);
	*ret = r > 0 && mount_info_has_path(info, wanted->path);
	if (*ret)
		return 0;
	again.one_superblock = r == 0;
	again.read_only = info->read_only; /* the kernel shares superblocks only then */
	/* A stale mount is replaced, not compared. */
	r = m->ops->verify(m, wanted->target, info, 0, err);
	if (r < 0)
		return target_keep(r, err);
	r = m->ops->compare(m, &again, ret, err);
	/* If the volume's path does not exist, something else is mounted. */
	if (r < 0 && err->code == ERROR_NOT_FOUND) {
		error_clear(err);
		return 0;
	}
	/* The other mount was stale: the path has just been removed or replaced. */
	if (r == -ESTALE)
		r = -EAGAIN;
	return target_keep(r, err);
}

/* Whether another volume was published there, and not this one. Lists the state folder. */
static bool target_is_of_another(const struct publication *p, const struct target_notes *notes)
{
	return !notes->had_note &&
	       node_published_is_of_another(notes->state_dir, notes->volume, p->target);
}

/*
 * Refuse a target that shows something else. A final code would make the CO forget the mount, so
 * give one only if that is certainly not this volume's.
 */
static int target_refuse(const struct publication *p, const struct mount_info *info,
			 const struct target_notes *notes, struct error *err)
{
	if ((!notes->had_note && !mount_info_is_nfs(info)) || target_is_of_another(p, notes))
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "target_path: '%s' has another volume mounted, from '%s'",
				 p->target, info->source);
	return error_set(err, ERROR_ABORTED,
			 "target_path: '%s' has '%s' mounted, which is not the directory of the request: that was renamed or replaced on the server, or the request names another one; unpublish the volume first",
			 p->target, info->source);
}

/* Refuse a target that has another volume mounted, or this one with the other access. */
static int target_check_mount(struct mounter *m, const struct publication *p,
			      const struct mount_info *info, const struct target_notes *notes,
			      struct error *err)
{
	const struct mount_request *wanted = &p->mount;
	bool same;
	int r;

	r = target_has_volume(m, wanted, info, &same, err);
	if (r == -ESTALE && target_is_of_another(p, notes)) {
		error_clear(err);
		return target_refuse(p, info, notes, err);
	}
	if (r < 0)
		return r;
	if (!same)
		return target_refuse(p, info, notes, err);
	if (info->read_only != wanted->read_only)
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "target_path: '%s' is already mounted %s, the request asks for %s",
				 wanted->target, info->read_only ? "read-only" : "read-write",
				 wanted->read_only ? "read-only" : "read-write");
	return 0;
}

/*
 * Unmount a stale mount, so that the volume can be mounted anew: only if it can be. A server that
 * refuses or fails to look at the directory for a while makes the mount stale, too, and it may be
 * well again later.
 */
static int target_give_up(struct mounter *m, const struct mount_request *wanted,
			  const struct mount_info *info, struct error *err)
{
	struct mount_request again = *wanted;
	cleanup_buf struct buf options = { 0 };
	int r;

	error_clear(err);
	/* The caches of the stale mount still have the old directory. */
	if (mount_options_append(&options, wanted->options) < 0 ||
	    mount_options_append(&options, "nosharecache") < 0)
		return target_keep(error_oom(err), err);
	if (options.len <= MOUNT_OPTIONS_MAX)
		again.options = options.data;
	r = m->ops->try(m, &again, err);
	if (r < 0)
		return target_keep(r == -ESTALE ? -EAGAIN : r, err);
	if (r > 0)
		return error_set(err, ERROR_ABORTED,
				 "target_path: something is mounted over a directory above '%s' and hides it; unmount that first",
				 wanted->target);
	r = m->ops->verify(m, wanted->target, info, 0, err);
	if (r == 0)
		return error_set(err, ERROR_ABORTED,
				 "target_path: the mount at '%s' was stale for a moment; try again",
				 wanted->target);
	if (r != -ESTALE)
		return target_keep(r, err);
	error_clear(err);
	return m->ops->unmount(m, wanted->target, err);
}

/*
 * Check the mount at the target, and set mode there; 0: leave it. Returns 1 if it is the volume and
 * works, 0 if nothing is mounted there or a stale mount was unmounted, or a negative errno.
 */
static int target_check(struct mounter *m, const struct publication *p, uint32_t mode,
			const struct target_notes *notes, struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	int r;

	r = m->ops->find(m, p->target, &info, err);
	if (r < 0 || info == NULL)
		return r;
	r = target_check_mount(m, p, info, notes, err);
	if (r == 0)
		r = target_keep(m->ops->verify(m, p->target, info, mode, err), err);
	if (r == 0)
		return 1;
	return r == -ESTALE ? target_give_up(m, &p->mount, info, err) : r;
}

/*
 * Returns 1 if the directory was made, 0 if something existed. A helper looks at what that is: an
 * earlier one may still mount there, and lstat() would then wait for the server.
 */
static int target_make(const char *target, struct error *err)
{
	if (mkdir(target, TARGET_MODE) == 0)
		return 1;
	if (errno == EEXIST)
		return 0;
	if (errno == ENOENT || errno == ENOTDIR)
		return error_sys(err, ERROR_FAILED_PRECONDITION, errno,
				 "target_path: the directory above '%s' does not exist", target);
	if (errno == ENAMETOOLONG)
		return error_sys(err, ERROR_INVALID_ARGUMENT, errno, "target_path: '%s'", target);
	return error_sys(err, ERROR_INTERNAL, errno, "cannot make target_path '%s'", target);
}

static int target_mount(struct mounter *m, const struct mount_request *wanted, struct error *err)
{
	int r, made;

	made = target_make(wanted->target, err);
	if (made < 0)
		return made;
	r = m->ops->mount(m, wanted, err);
	/* rmdir() fails with EBUSY if the mount happened after all; the retry will find it. */
	if (r < 0 && made > 0)
		(void)rmdir(wanted->target);
	return r;
}

/* Do as target_keep() for a request that is not even looked into, if NFS is mounted there. */
static int target_keep_mounted(struct mounter *m, const Csi__V1__NodePublishVolumeRequest *in,
			       int r, struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	cleanup_free char *target = NULL;

	if (!error_is_final(err->code) || validate_path(in->target_path, "target_path", NULL) < 0)
		return r;
	target = path_clean(in->target_path);
	if (target == NULL || m->ops->find(m, target, &info, NULL) < 0 || info == NULL ||
	    !mount_info_is_nfs(info))
		return r;
	return target_keep(r, err);
}

/*
 * After a failure, remove the note of the target, or change a final code as target_keep() does if
 * something may be mounted there: by a call that has succeeded, or by the helper of one that was
 * given up, even while this call failed. The note of such a call stays, since its mount may come
 * yet. Returns r.
 */
static int target_settle(const struct node_driver *driver, const char *target, bool had_note, int r,
			 struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct mounter *m = driver->mounter;

	if (m->ops->find(m, target, &info, NULL) < 0 || (info != NULL && mount_info_is_nfs(info)))
		return target_keep(r, err);
	/* After a timeout it may be mounted yet. */
	if (info == NULL && !had_note && err->code != ERROR_DEADLINE_EXCEEDED)
		node_published_remove(driver->state_dir, target);
	return r;
}

/* Mount the volume at the target unless it is mounted there, and note it. */
static int publication_mount(const struct node_driver *driver, const struct publication *p,
			     const char *volume, struct error *err)
{
	struct published note = { .volume = volume,
				  .target = p->target,
				  .exclusive = p->exclusive };
	struct mounter *m = driver->mounter;
	struct target_notes notes = { .state_dir = driver->state_dir, .volume = volume };
	bool needs_mode = false;
	int r, is_mounted;

	/*
	 * Once a call has succeeded, the mode is the pod's. That may be so for a mount without a
	 * note: another driver made it, or the note was lost, or could not be written.
	 */
	r = node_published_find(driver->state_dir, volume, p->target, &needs_mode, err);
	if (r < 0)
		return r;
	notes.had_note = r > 0;
	note.needs_mode = needs_mode && p->mount.mode != 0;
	is_mounted = target_check(m, p, note.needs_mode ? p->mount.mode : 0, &notes, err);
	if (is_mounted < 0)
		return is_mounted;
	if (is_mounted == 0) {
		r = m->ops->check(m, &p->mount, err);
		if (r < 0)
			return r;
		note.needs_mode = p->mount.mode != 0;
	}
	r = node_published_add(driver->state_dir, m, &note, err);
	if (r == 0 && is_mounted == 0)
		r = target_mount(m, &p->mount, err);
	if (r < 0)
		return target_settle(driver, p->target, notes.had_note, r, err);
	return note.needs_mode ? node_published_has_mode(driver->state_dir, &note, err) : 0;
}

static int publish_volume(const struct node_driver *driver,
			  const Csi__V1__NodePublishVolumeRequest *in, struct publication *p,
			  struct error *err)
{
	cleanup_key_lock struct key_lock *target_lock = NULL, *volume_lock = NULL;
	int r;

	r = publication_parse(p, driver, in, err);
	if (r < 0)
		return target_keep_mounted(driver->mounter, in, r, err);
	r = key_lock_take(driver->key_locks, "target path", p->target, &target_lock, err);
	if (r < 0)
		return r;
	r = (p->exclusive ? key_lock_take : key_lock_share)(driver->key_locks, "volume",
							    in->volume_id, &volume_lock, err);
	if (r < 0)
		return r;
	return publication_mount(driver, p, in->volume_id, err);
}

void node_publish_volume(Csi__V1__Node_Service *s, const Csi__V1__NodePublishVolumeRequest *in,
			 Csi__V1__NodePublishVolumeResponse_Closure closure, void *data)
{
	const Csi__V1__NodePublishVolumeResponse out = CSI__V1__NODE_PUBLISH_VOLUME_RESPONSE__INIT;
	struct publication publication = { .path = NULL };
	struct request *call = data;
	int r;

	(void)snprintf(call->subject, sizeof(call->subject), "%s", in->volume_id);
	r = publish_volume(node_driver_of(s), in, &publication, &call->err);
	publication_done(&publication);
	closure(r < 0 ? NULL : &out, data);
}
