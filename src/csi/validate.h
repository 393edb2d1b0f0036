/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Checks of request fields that several calls share. Each returns 0, or -EINVAL (-ERANGE for
 * sizes) with a message that starts with the field's name. Pure functions, any thread.
 */
#ifndef CSI_VALIDATE_H
#define CSI_VALIDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "csi.pb-c.h"
#include "csi/map.h"
#include "store/settings.h"

#define CSI_STRING_MAX 128 /* CSI specification, "Size Limits" */
#define CSI_MAP_MAX 4096
#define CSI_FLAGS_MAX 4096 /* VolumeCapability.MountVolume.mount_flags */
#define CSI_PATH_MAX 4095

int validate_required(const char *value, const char *field, struct error *err);

/* Check a volume's name: present, not too long, without characters that the specification bans. */
int validate_name(const char *name, struct error *err);

int validate_volume_id(const char *id, struct error *err);

/* Check for an absolute path without ".." of at most CSI_PATH_MAX bytes. */
int validate_path(const char *path, const char *field, struct error *err);

/* Check the bytes of a map, keys and values together. */
int validate_map_size(size_t size, const char *field, struct error *err);
int validate_map(const struct csi_map *map, const char *field, struct error *err);

/* Check that access type and access mode are present and supported. */
int validate_capability(const Csi__V1__VolumeCapability *cap, struct error *err);

/* Whether a file system type names NFS or is empty. */
bool fs_type_is_nfs(const char *type);

/*
 * Check all capabilities, with their file system types, and their mount flags as a node would;
 * there must be at least one. Also returns -ENOMEM.
 */
int validate_capabilities(Csi__V1__VolumeCapability *const *caps, size_t n, struct error *err);

/* Whether the access mode allows a single target path (SINGLE_NODE_SINGLE_WRITER). */
bool access_mode_is_exclusive(const Csi__V1__VolumeCapability *cap);

/* Join the mount flags with commas; "" for none. NULL without memory. The caller frees. */
char *capability_options(const Csi__V1__VolumeCapability *cap);

/* The range of a request, which may be NULL. */
struct volume_capacity capacity_of(const Csi__V1__CapacityRange *range);

/*
 * Get the size to provision: the required size, else the limit, else 0. Errors: INVALID_ARGUMENT
 * for negative sizes, OUT_OF_RANGE for a limit below the required size.
 */
int validate_capacity(const struct volume_capacity *capacity, int64_t *ret_size, struct error *err);

#endif
