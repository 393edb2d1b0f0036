/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "node/node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/path.h"
#include "base/request.h"
#include "base/str.h"
#include "csi/params.h"
#include "csi/unimplemented.h"
#include "csi/validate.h"
#include "node/inline.h"
#include "node/stats.h"

#define TARGET_MODE 0750 /* of the empty directory below the mount */

static const struct node_driver *driver_of(Csi__V1__Node_Service *service)
{
	return container_of(service, struct node_service, service)->driver;
}

/* What NodePublishVolume works with, taken from the request. */
struct publication {
	struct volume_params params;
	char *path; /* on the server */
	char *top; /* directory from which the path is walked; NULL: the server is asked for all of it */
	char *options; /* mount flags, then the mountOptions attribute */
	bool read_only;
	bool exclusive; /* SINGLE_NODE_SINGLE_WRITER */
};

static void publication_done(struct publication *x)
{
	volume_params_done(&x->params);
	free(x->path);
	free(x->top);
	free(x->options);
}

static int check_publish(const Csi__V1__NodePublishVolumeRequest *in, struct error *err)
{
	const struct csi_map context = csi_map_of(in, volume_context);
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r == 0)
		r = validate_path(in->target_path, "target_path", err);
	if (r == 0 && in->volume_capability == NULL)
		r = error_set(err, ERROR_INVALID_ARGUMENT,
			      "volume_capability: missing, it is required");
	if (r == 0)
		r = validate_capability(in->volume_capability, err);
	if (r == 0)
		r = validate_map(&context, "volume_context", err);
	return r;
}

/* The last one of a kind wins. Empty parts, and NULL, vanish. */
static char *join_options(const char *flags, const char *attribute, const char *forced)
{
	const char *const parts[] = { flags, attribute, forced };
	cleanup_buf struct buf b = { 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		if (!str_is_empty(parts[i]) &&
		    buf_printf(&b, "%s%s", b.len > 0 ? "," : "", parts[i]) < 0)
			return NULL;
	return b.len > 0 ? buf_steal(&b) : strdup("");
}

/* A pod may name what it mounts only where the administrator has said so. */
static int take_inline_top(const struct node_driver *driver, struct publication *x, struct error *err)
{
	int r = inline_top(driver->inline_volumes, x->params.server, x->path, &x->top);

	if (r < 0)
		return error_oom(err);
	if (x->top != NULL)
		return 0;
	return error_set(err, ERROR_PERMISSION_DENIED,
			 "inline volumes of '%s:%s' are not allowed on this node; see --inline-volumes",
			 x->params.server, x->path);
}

/* What lies between a share and a volume may be a volume as well, and a pod write there. */
static int take_top(struct publication *x, struct error *err)
{
	if (x->params.subdir == NULL || strchr(x->params.subdir, '/') == NULL)
		return 0;
	x->top = path_join_root(x->params.share, NULL);
	return x->top != NULL ? 0 : error_oom(err);
}

static int prepare(const struct node_driver *driver, const Csi__V1__NodePublishVolumeRequest *in,
		   struct publication *x, struct error *err)
{
	const struct volume_defaults defaults = { .server = driver->server,
						  .share = driver->share,
						  .mode = driver->mount_permissions };
	const struct csi_map context = csi_map_of(in, volume_context);
	const bool is_inline = inline_is_asked(in->volume_id, &context);
	cleanup_free char *flags = NULL;
	int r;

	r = check_publish(in, err);
	if (r == 0)
		r = volume_attributes_parse(&x->params, &context, &defaults, err);
	if (r < 0)
		return r;
	flags = capability_options(in->volume_capability);
	x->path = path_join_root(x->params.share, x->params.subdir != NULL ? x->params.subdir : "",
				 NULL);
	if (flags == NULL || x->path == NULL)
		return error_oom(err);
	x->options = join_options(flags, x->params.mount_options, is_inline ? INLINE_OPTIONS : NULL);
	if (x->options == NULL)
		return error_oom(err);
	/* Not by the access mode: of a volume's several ones kubelet sends the first. */
	x->read_only = in->readonly;
	x->exclusive = access_mode_is_exclusive(in->volume_capability);
	r = is_inline ? take_inline_top(driver, x, err) : take_top(x, err);
	return r < 0 ? r : mount_options_check(x->options, err);
}

/* "ro" as a mount flag is as good as the request's readonly. */
static bool options_are_read_only(const char *options)
{
	bool read_only = false;

	for (;;) {
		size_t n = strcspn(options, ",");

		if (n == 2 && strncmp(options, "ro", n) == 0)
			read_only = true;
		if (n == 2 && strncmp(options, "rw", n) == 0)
			read_only = false;
		if (options[n] == '\0')
			return read_only;
		options += n + 1;
	}
}

/* Without a subDir the volume is the export's root, whose mode is not ours; nor is that of an inline top. */
static uint32_t mode_of(const struct publication *x)
{
	if (x->params.subdir == NULL || (x->top != NULL && strcmp(x->path, x->top) == 0))
		return 0;
	return x->params.mode;
}

static struct mount_request request_of(const struct publication *x, const char *target)
{
	return (struct mount_request){
		.server = x->params.server,
		.path = x->path,
		.top = x->top,
		.target = target,
		.options = x->options,
		.read_only = x->read_only,
		.mode = mode_of(x),
	};
}

/*
 * Whether the mount is of the volume. Where mountinfo has another path for it, a symbolic link on the server
 * may have led there, or the directory was renamed: then what the volume's path is now decides.
 */
static int is_of_volume(struct mounter *m, const struct publication *x, const struct mount_info *info,
			const char *target, bool *ret, struct error *err)
{
	const struct mount_request request = request_of(x, target);
	int r;

	*ret = mount_info_is_of(info, x->params.server, x->path);
	if (*ret || !mount_info_is_nfs(info) || !mount_info_is_on(info, x->params.server))
		return 0;
	/* A stale one is not compared: it is made anew. */
	r = m->ops->verify(m, target, info, 0, err);
	if (r < 0)
		return r;
	r = m->ops->compare(m, &request, ret, err);
	/* What is mounted is not it where there is none. */
	if (r < 0 && err->code == ERROR_NOT_FOUND) {
		error_clear(err);
		return 0;
	}
	return r;
}

/* Something is mounted at the target already: the same, or another volume. */
static int check_mounted(struct mounter *m, const struct publication *x,
			 const struct mount_info *info, const char *target, struct error *err)
{
	bool read_only = x->read_only || options_are_read_only(x->options), same;
	int r;

	r = is_of_volume(m, x, info, target, &same, err);
	if (r < 0)
		return r;
	if (!same)
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "target_path: '%s' has another volume mounted, from '%s'", target,
				 info->source);
	if (info->read_only != read_only)
		return error_set(err, ERROR_ALREADY_EXISTS,
				 "target_path: '%s' is mounted %s already, and is asked for %s",
				 target, info->read_only ? "read-only" : "read-write",
				 read_only ? "read-only" : "read-write");
	return 0;
}

/* Returns 1 when the directory was made, 0 when it was there. Nothing is mounted on it. */
static int make_target(const char *target, struct error *err)
{
	if (mkdir(target, TARGET_MODE) == 0)
		return 1;
	if (errno == EEXIST)
		return 0;
	if (errno == ENOENT)
		return error_sys(err, ERROR_FAILED_PRECONDITION, errno,
				 "target_path: the directory above '%s' does not exist", target);
	return error_sys(err, ERROR_INTERNAL, errno, "cannot make target_path '%s'", target);
}

/*
 * What is mounted there may be what is asked for. Returns 1 when it is, 0 when nothing is mounted, or was
 * and was stale, or a negative errno.
 */
static int check_target(struct mounter *m, const struct publication *x, const char *target,
			struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	int r;

	r = m->ops->find(m, target, &info, err);
	if (r < 0 || info == NULL)
		return r;
	r = check_mounted(m, x, info, target, err);
	if (r == 0)
		r = m->ops->verify(m, target, info, mode_of(x), err);
	if (r != -ESTALE)
		return r < 0 ? r : 1;
	error_clear(err);
	return m->ops->unmount(m, target, err);
}

static int mount_volume(const struct node_driver *driver, const struct publication *x,
			const char *target, struct error *err)
{
	const struct mount_request request = request_of(x, target);
	struct mounter *m = driver->mounter;
	int r, made;

	made = make_target(target, err);
	if (made < 0)
		return made;
	r = m->ops->mount(m, &request, err);
	if (r < 0 && made > 0)
		/* It stays where the mount went through after all: the retry finds that. */
		(void)rmdir(target);
	return r;
}

/* A mount that was given up may have come about. */
static void forget_unmounted(const struct node_driver *driver, const char *target)
{
	cleanup_mount_info struct mount_info *info = NULL;
	struct mounter *m = driver->mounter;

	if (m->ops->find(m, target, &info, NULL) == 0 && info == NULL)
		publications_remove(driver->publications, target);
}

static int publish(const struct node_driver *driver, const Csi__V1__NodePublishVolumeRequest *in,
		   struct publication *x, struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL, *volume = NULL;
	const char *target = in->target_path;
	int r, there;

	r = prepare(driver, in, x, err);
	if (r == 0)
		r = inflight_acquire(driver->inflight, "target path", target, &lock, err);
	if (r == 0 && x->exclusive)
		r = inflight_acquire(driver->inflight, "volume", in->volume_id, &volume, err);
	if (r < 0)
		return r;
	there = check_target(driver->mounter, x, target, err);
	if (there < 0)
		return there;
	r = publications_add(driver->publications, driver->mounter, in->volume_id, target,
			     x->exclusive, err);
	if (r < 0 || there > 0)
		return r;
	r = mount_volume(driver, x, target, err);
	if (r < 0)
		forget_unmounted(driver, target);
	return r;
}

static void node_node_publish_volume(Csi__V1__Node_Service *service,
				     const Csi__V1__NodePublishVolumeRequest *in,
				     Csi__V1__NodePublishVolumeResponse_Closure closure, void *data)
{
	const Csi__V1__NodePublishVolumeResponse out = CSI__V1__NODE_PUBLISH_VOLUME_RESPONSE__INIT;
	struct publication x = { .path = NULL };
	struct request *req = data;
	int r;

	(void)snprintf(req->subject, sizeof(req->subject), "%s", in->volume_id);
	r = publish(driver_of(service), in, &x, &req->err);
	publication_done(&x);
	closure(r < 0 ? NULL : &out, data);
}

/* Only ever an empty directory: what a volume holds is not to be touched by its unmounting. */
static int remove_target(const char *target, struct error *err)
{
	if (rmdir(target) == 0 || errno == ENOENT)
		return 0;
	if (errno == EBUSY)
		return error_sys(err, ERROR_ABORTED, errno,
				 "target_path: '%s' is still mounted; try again", target);
	return error_sys(err, ERROR_INTERNAL, errno,
			 "target_path: cannot remove '%s'; look at what is in it", target);
}

static int unpublish(const struct node_driver *driver, const Csi__V1__NodeUnpublishVolumeRequest *in,
		     struct error *err)
{
	cleanup_inflight_lock struct inflight_lock *lock = NULL;
	struct mounter *m = driver->mounter;
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r == 0)
		r = validate_path(in->target_path, "target_path", err);
	if (r == 0)
		r = inflight_acquire(driver->inflight, "target path", in->target_path, &lock, err);
	if (r == 0)
		r = m->ops->unmount(m, in->target_path, err);
	if (r == 0)
		r = remove_target(in->target_path, err);
	if (r == 0)
		publications_remove(driver->publications, in->target_path);
	return r;
}

static void node_node_unpublish_volume(Csi__V1__Node_Service *service,
				       const Csi__V1__NodeUnpublishVolumeRequest *in,
				       Csi__V1__NodeUnpublishVolumeResponse_Closure closure,
				       void *data)
{
	const Csi__V1__NodeUnpublishVolumeResponse out =
		CSI__V1__NODE_UNPUBLISH_VOLUME_RESPONSE__INIT;
	struct request *req = data;
	int r;

	(void)snprintf(req->subject, sizeof(req->subject), "%s", in->volume_id);
	r = unpublish(driver_of(service), in, &req->err);
	closure(r < 0 ? NULL : &out, data);
}

static void node_node_get_info(Csi__V1__Node_Service *service, const Csi__V1__NodeGetInfoRequest *in,
			       Csi__V1__NodeGetInfoResponse_Closure closure, void *data)
{
	Csi__V1__NodeGetInfoResponse out = CSI__V1__NODE_GET_INFO_RESPONSE__INIT;

	(void)in;
	out.node_id = (char *)(uintptr_t)driver_of(service)->node_id; /* only read while packed */
	closure(&out, data);
}

#define CAPABILITY(name) CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__##name

static const Csi__V1__NodeServiceCapability__RPC__Type capabilities[] = {
	CAPABILITY(GET_VOLUME_STATS),
	CAPABILITY(VOLUME_CONDITION),
	CAPABILITY(SINGLE_NODE_MULTI_WRITER),
};

static void node_node_get_capabilities(Csi__V1__Node_Service *service,
				       const Csi__V1__NodeGetCapabilitiesRequest *in,
				       Csi__V1__NodeGetCapabilitiesResponse_Closure closure,
				       void *data)
{
	Csi__V1__NodeServiceCapability__RPC rpcs[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeServiceCapability entries[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeServiceCapability *list[ARRAY_SIZE(capabilities)];
	Csi__V1__NodeGetCapabilitiesResponse out = CSI__V1__NODE_GET_CAPABILITIES_RESPONSE__INIT;
	size_t i;

	(void)service;
	(void)in;
	for (i = 0; i < ARRAY_SIZE(capabilities); i++) {
		csi__v1__node_service_capability__rpc__init(&rpcs[i]);
		csi__v1__node_service_capability__init(&entries[i]);
		rpcs[i].type = capabilities[i];
		entries[i].type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
		entries[i].rpc = &rpcs[i];
		list[i] = &entries[i];
	}
	out.capabilities = list;
	out.n_capabilities = ARRAY_SIZE(list);
	closure(&out, data);
}

#define NO_STAGE "NFS volumes are mounted by NodePublishVolume"
#define NO_EXPAND "NFS volumes need nothing done on the node to grow"

UNIMPLEMENTED(Node, node, node_stage_volume, NodeStageVolume, NO_STAGE)
UNIMPLEMENTED(Node, node, node_unstage_volume, NodeUnstageVolume, NO_STAGE)
UNIMPLEMENTED(Node, node, node_expand_volume, NodeExpandVolume, NO_EXPAND)

void node_service_init(struct node_service *s, const struct node_driver *driver)
{
	const Csi__V1__Node_Service methods = CSI__V1__NODE__INIT(node_);

	s->service = methods;
	s->driver = driver;
}
