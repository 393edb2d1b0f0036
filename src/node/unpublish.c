/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* NodeUnpublishVolume: unmount a volume and remove its target path. */

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/request.h"
#include "csi/validate.h"
#include "node/node.h"
#include "node/published.h"

/* A file is at the path. If not, a part of the path is none, and nothing can be there. */
static int target_check_file(const char *target, struct error *err)
{
	struct stat st;

	if (lstat(target, &st) < 0)
		return 0;
	return error_set(err, ERROR_FAILED_PRECONDITION,
			 "target_path: '%s' is not a directory; remove it", target);
}

/* rmdir() says EROFS also of what is not there. */
static int target_check_there(const char *target, struct error *err)
{
	struct stat st;

	if (lstat(target, &st) < 0 && errno == ENOENT)
		return 0;
	return error_sys(err, ERROR_INTERNAL, EROFS,
			 "target_path: cannot remove '%s'; check this node's file system", target);
}

/* Remove an empty directory only: unpublishing never deletes data. */
static int target_remove(const char *target, struct error *err)
{
	if (rmdir(target) == 0)
		return 0;
	switch (errno) {
	case ENOENT:
	case ENAMETOOLONG:
		return 0;
	case ENOTDIR:
		return target_check_file(target, err);
	case EROFS:
		return target_check_there(target, err);
	case EBUSY:
		return error_sys(err, ERROR_ABORTED, errno,
				 "target_path: '%s' is still mounted; try again", target);
	default:
		return error_sys(err, ERROR_INTERNAL, errno,
				 "target_path: cannot remove '%s'; check its contents", target);
	}
}

static int unpublish_volume(const struct node_driver *driver,
			    const Csi__V1__NodeUnpublishVolumeRequest *in, struct error *err)
{
	cleanup_key_lock struct key_lock *target_lock = NULL;
	struct mounter *m = driver->mounter;
	cleanup_free char *target = NULL;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	r = validate_path(in->target_path, "target_path", err);
	if (r < 0)
		return r;
	target = path_clean(in->target_path);
	if (target == NULL)
		return error_oom(err);
	r = key_lock_take(driver->key_locks, "target path", target, &target_lock, err);
	if (r < 0)
		return r;
	r = m->ops->unmount(m, target, err);
	if (r < 0)
		return r;
	r = target_remove(target, err);
	if (r < 0)
		return r;
	node_published_remove(driver->state_dir, target);
	return 0;
}

void node_unpublish_volume(Csi__V1__Node_Service *s, const Csi__V1__NodeUnpublishVolumeRequest *in,
			   Csi__V1__NodeUnpublishVolumeResponse_Closure closure, void *data)
{
	const Csi__V1__NodeUnpublishVolumeResponse out =
		CSI__V1__NODE_UNPUBLISH_VOLUME_RESPONSE__INIT;
	struct request *call = data;
	int r;

	(void)snprintf(call->subject, sizeof(call->subject), "%s", in->volume_id);
	r = unpublish_volume(node_driver_of(s), in, &call->err);
	closure(r < 0 ? NULL : &out, data);
}
