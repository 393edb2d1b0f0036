/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Settings of a volume that a StorageClass names and a record keeps. Pure functions, any thread.
 */
#ifndef STORE_SETTINGS_H
#define STORE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

enum volume_on_delete { ON_DELETE_DELETE, ON_DELETE_RETAIN, ON_DELETE_ARCHIVE };

/* What a directory that is there already, of a subDir, means to a new volume. */
enum volume_existing {
	EXISTING_ADOPT, /* it becomes the volume, with what is in it, as csi-driver-nfs does */
	EXISTING_REQUIRE, /* it has to be there: none is made */
	EXISTING_REFUSE, /* it must not be there */
};

/* Who a volume's directory belongs to, and so the identity of the calls about it. */
struct volume_owner {
	bool has_uid, has_gid; /* what is not given is the process's own */
	uint32_t uid, gid;
};

/* Settings that may change during the life of a volume. */
enum volume_mutable {
	MUTABLE_MODE = 1 << 0,
	MUTABLE_OWNER = 1 << 1,
	MUTABLE_ON_DELETE = 1 << 2,
};

struct volume_settings {
	unsigned int given; /* of enum volume_mutable: only these change */
	uint32_t mode; /* 0: leave that of the directory alone */
	struct volume_owner owner;
	enum volume_on_delete on_delete;
};

/* A size that is asked for, in bytes. */
struct volume_capacity {
	int64_t required; /* 0: none */
	int64_t limit; /* 0: none */
};

/* Whether a volume of that size is what was asked for. */
bool capacity_is_compatible(int64_t size, const struct volume_capacity *capacity);

/* "delete", "retain" or "archive", in any case; "" is delete. Returns 0 or -EINVAL. */
int on_delete_parse(const char *text, enum volume_on_delete *ret);
const char *on_delete_name(enum volume_on_delete value);

/* "adopt", "require" or "refuse", in any case. Returns 0 or -EINVAL. */
int existing_parse(const char *text, enum volume_existing *ret);
const char *existing_name(enum volume_existing value);

#endif
