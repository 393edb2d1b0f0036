/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* GetCapacity: the free space of the share in the parameters, else of the default share. */

#include "csi/controller.h"
#include "csi/map.h"
#include "csi/session.h"
#include "csi/validate.h"
#include "nfs/calls.h"

/* A driver that knows no share, and is given none, has no capacity. That is no error. */
static bool has_location(const struct csi_driver *driver, const struct csi_map *parameters)
{
	return (driver->server != NULL || csi_map_get(parameters, "server") != NULL) &&
	       (driver->share != NULL || csi_map_get(parameters, "share") != NULL);
}

/* There is no room for volumes that CreateVolume would refuse, such as block volumes. */
static bool has_support(const Csi__V1__GetCapacityRequest *in)
{
	struct error ignored = { .code = ERROR_OK };

	return in->n_volume_capabilities == 0 ||
	       validate_capabilities(in->volume_capabilities, in->n_volume_capabilities,
				     &ignored) == 0;
}

static int get_space(const struct csi_driver *driver, const Csi__V1__GetCapacityRequest *in,
		     struct nfs_space *space, struct error *err)
{
	const struct csi_map parameters = csi_map_of(in, parameters);
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	cleanup_volume_params struct volume_params params = { .server = NULL };
	const struct volume_defaults defaults = csi_driver_defaults(driver);
	struct session s;
	int r;

	if (!has_location(driver, &parameters) || !has_support(in))
		return 0;
	/* The request names no volume, so the variables of a subDir have no values. */
	r = volume_location_parse(&params, &parameters, &defaults, err);
	if (r < 0)
		return r;
	r = csi_driver_export(driver, &e, params.server, params.share, NULL, err);
	if (r < 0)
		return r;
	session_begin(&s, driver, &e, err);
	while (session_next(&s)) {
		s.result = nfs_fsstat(s.client, &s.client->root, space);
		if (s.result < 0)
			s.result =
				nfs_error_set(err, s.client, s.result, "asking for the free space");
	}
	return s.result;
}

CONTROLLER_METHOD(get_capacity, GetCapacity)
{
	Csi__V1__GetCapacityResponse out = CSI__V1__GET_CAPACITY_RESPONSE__INIT;
	struct nfs_space space = { 0, 0 };
	struct request *req = data;

	if (get_space(csi_driver_of(service), in, &space, &req->err) < 0) {
		closure(NULL, data);
		return;
	}
	out.available_capacity = space.available > INT64_MAX ? INT64_MAX : (int64_t)space.available;
	closure(&out, data);
}
