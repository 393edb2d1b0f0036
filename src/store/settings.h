/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The settings of a volume, which a StorageClass names and a record keeps. Pure functions, any
 * thread.
 */
#ifndef STORE_SETTINGS_H
#define STORE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

enum volume_on_delete { ON_DELETE_DELETE, ON_DELETE_RETAIN, ON_DELETE_ARCHIVE };

/* How a new volume treats an existing directory with the name of its subDir. */
enum volume_existing {
	EXISTING_ADOPT, /* it becomes the volume, with its contents, as in csi-driver-nfs */
	EXISTING_REQUIRE, /* it must exist: none is made */
	EXISTING_REFUSE, /* it must not exist */
};

/* The owner of a volume's directory. NFS calls about the volume use this identity. */
struct volume_owner {
	bool has_uid, has_gid; /* one that is not given is the process's own */
	uint32_t uid, gid;
};

/* Settings that ControllerModifyVolume can change. */
enum volume_mutable {
	MUTABLE_MODE = 1 << 0,
	MUTABLE_ON_DELETE = 1 << 1,
};

struct volume_settings {
	unsigned int given; /* of enum volume_mutable; the owner has flags of its own */
	uint32_t mode; /* 0: leave the directory's alone */
	struct volume_owner owner;
	enum volume_on_delete on_delete;
};

/* A requested size, in bytes. */
struct volume_capacity {
	int64_t required; /* 0: none */
	int64_t limit; /* 0: none */
};

/* Whether a volume of that size fits the request. */
bool capacity_is_compatible(int64_t size, const struct volume_capacity *capacity);

/* Parse "delete", "retain" or "archive", in any case; "" is delete. Return 0 or -EINVAL. */
int on_delete_parse(const char *text, enum volume_on_delete *ret);
const char *on_delete_name(enum volume_on_delete value);

/* Return the stricter policy. Retain is stricter than archive, and archive than delete. */
enum volume_on_delete on_delete_stricter(enum volume_on_delete a, enum volume_on_delete b);

/* Parse "adopt", "require" or "refuse", in any case. Return 0 or -EINVAL. */
int existing_parse(const char *text, enum volume_existing *ret);
const char *existing_name(enum volume_existing value);

#endif
