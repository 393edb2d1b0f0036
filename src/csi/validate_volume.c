/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* ValidateVolumeCapabilities. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/controller.h"
#include "csi/validate.h"
#include "csi/volume_ref.h"
#include "net/address.h"
#include "store/volume.h"

static int find_volume(const struct csi_driver *driver,
		       const Csi__V1__ValidateVolumeCapabilitiesRequest *in, struct volume_ref *ref,
		       struct error *err)
{
	const struct csi_map secrets = csi_map_of(in, secrets);
	int r;

	r = validate_volume_id(in->volume_id, err);
	if (r < 0)
		return r;
	if (in->n_volume_capabilities == 0)
		return validate_capabilities(NULL, 0, err);
	r = volume_ref_find(ref, driver, in->volume_id, &secrets, err);
	if (r < 0)
		return r;
	r = volume_ref_read(ref, driver, err);
	if (r == 0)
		r = volume_ref_check(ref, driver, err);
	if (r == 0 && volume_ref_set_address(ref) < 0)
		return error_oom(err);
	return r;
}

/*
 * Whether both values of a key are the same. Server and share may be spelled in several ways: the
 * record has that of the class, unless the share has moved, and then that of the id. Return 1, 0 or
 * -ENOMEM.
 */
static int is_same_value(const char *key, const char *a, const char *b)
{
	const bool is_server = str_eq_nocase(key, "server");
	cleanup_free char *one = is_server ? net_server_without_brackets(a) : path_trim(a);
	cleanup_free char *other = is_server ? net_server_without_brackets(b) : path_trim(b);

	return one != NULL && other != NULL ? strcmp(one, other) == 0 : -ENOMEM;
}

/*
 * Whether server, share and subDir are the volume's own, as far as the context has them. Return 1,
 * 0 or -ENOMEM.
 */
static int context_matches(const struct record *rec, const struct csi_map *context)
{
	static const char *const keys[] = { "server", "share", "subDir" };
	size_t i, k;
	int r = 1;

	for (i = 0; i < rec->n && r > 0; i++) {
		const char *key = volume_context_key(&rec->pairs[i]);
		const char *given;

		for (k = 0; key != NULL && k < ARRAY_SIZE(keys) && r > 0; k++) {
			given = str_eq_nocase(key, keys[k]) ? csi_map_get(context, key) : NULL;
			if (given != NULL)
				r = is_same_value(key, given, rec->pairs[i].value);
		}
	}
	return r;
}

/* What is confirmed of a capability. */
struct confirmed_capability {
	Csi__V1__VolumeCapability cap;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__AccessMode access_mode;
};

/*
 * Copy the fields that were looked at; borrow their values. The CO compares, so that a driver which
 * does not know a field, or ignores it, does not confirm it (CSI specification, Confirmed).
 */
static void confirm_capability(struct confirmed_capability *c, const Csi__V1__VolumeCapability *cap)
{
	csi__v1__volume_capability__init(&c->cap);
	csi__v1__volume_capability__mount_volume__init(&c->mount);
	csi__v1__volume_capability__access_mode__init(&c->access_mode);
	c->mount.fs_type = cap->mount->fs_type;
	c->mount.mount_flags = cap->mount->mount_flags;
	c->mount.n_mount_flags = cap->mount->n_mount_flags;
	c->access_mode.mode = cap->access_mode->mode;
	c->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	c->cap.mount = &c->mount;
	c->cap.access_mode = &c->access_mode;
}

/* Answer that all capabilities, which were checked, are supported. */
static int confirm(const Csi__V1__ValidateVolumeCapabilitiesRequest *in,
		   Csi__V1__ValidateVolumeCapabilitiesResponse_Closure closure, void *data,
		   struct error *err)
{
	Csi__V1__ValidateVolumeCapabilitiesResponse out =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__INIT;
	Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed confirmed =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__CONFIRMED__INIT;
	const size_t n = in->n_volume_capabilities;
	cleanup_free struct confirmed_capability *caps = calloc(n, sizeof(*caps));
	cleanup_free Csi__V1__VolumeCapability **list =
		calloc(n, sizeof(Csi__V1__VolumeCapability *));
	size_t i;

	if (caps == NULL || list == NULL)
		return error_oom(err);
	for (i = 0; i < n; i++) {
		confirm_capability(&caps[i], in->volume_capabilities[i]);
		list[i] = &caps[i].cap;
	}
	confirmed.volume_capabilities = list;
	confirmed.n_volume_capabilities = n;
	out.confirmed = &confirmed;
	closure(&out, data);
	return 0;
}

static void validate_volume_reply(const Csi__V1__ValidateVolumeCapabilitiesRequest *in,
				  const struct record *rec,
				  Csi__V1__ValidateVolumeCapabilitiesResponse_Closure closure,
				  void *data)
{
	Csi__V1__ValidateVolumeCapabilitiesResponse out =
		CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__INIT;
	const struct csi_map context = csi_map_of(in, volume_context);
	struct error why = { .code = ERROR_OK };
	struct request *req = data;
	int r;

	/* "Not supported" is an answer, not an error. */
	r = validate_capabilities(in->volume_capabilities, in->n_volume_capabilities, &why);
	if (r == 0) {
		r = context_matches(rec, &context);
		if (r == 0)
			(void)error_set(&why, ERROR_INVALID_ARGUMENT,
					"volume_context: is not that of the volume");
		if (r < 0)
			r = error_oom(&why);
	}
	if (r == -ENOMEM) {
		req->err = why;
		closure(NULL, data);
		return;
	}
	if (why.code != ERROR_OK) {
		out.message = why.msg;
		closure(&out, data);
		return;
	}
	if (confirm(in, closure, data, &req->err) < 0)
		closure(NULL, data);
}

CONTROLLER_METHOD(validate_volume_capabilities, ValidateVolumeCapabilities)
{
	cleanup_volume_ref struct volume_ref ref = { .version = 0 };
	struct request *req = data;

	csi_set_subject(req, in->volume_id);
	if (find_volume(csi_driver_of(service), in, &ref, &req->err) < 0)
		closure(NULL, data);
	else
		validate_volume_reply(in, &ref.record, closure, data);
}
