/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A mounter that keeps a list instead of mounting, so that the node service can be tested without a
 * kernel NFS client and without privileges. Single thread.
 */
#ifndef FAKE_MOUNTER_H
#define FAKE_MOUNTER_H

#include "mount/mounter.h"

#define FAKE_MOUNTS_MAX 8

struct fake_mount {
	char target[256]; /* "": free */
	char source[256];
	char top[256]; /* "": none */
	char options[256];
	bool read_only;
	uint32_t mode;
};

struct fake_mounter {
	struct mounter mounter;
	struct fake_mount mounts[FAKE_MOUNTS_MAX];
	unsigned int n_mounted; /* calls of mount() that mounted */
	enum error_code check_error;
	enum error_code mount_error; /* of the next mount(), compare() and try() */
	enum error_code unmount_error;
	enum error_code find_error;
	enum error_code look_error; /* of verify() and usage() */
	bool same; /* result of compare() */
	unsigned int n_tried; /* calls of try() */
	bool compare_is_stale; /* the mount that compare() makes is */
	unsigned int n_compared;
	bool one_superblock; /* of the last compare() */
	bool stale; /* verify() and usage() find a stale mount, until the next mount() */
	uint32_t verified_mode; /* of the last verify() */
	unsigned int n_looks;
	void (*before_mount)(void); /* called by mount() before all else; NULL: nothing */
	void (*after_look)(void); /* called by verify() and usage() after all else; NULL: nothing */
};

void fake_mounter_init(struct fake_mounter *m);

/* The mount at target, or NULL. */
const struct fake_mount *fake_mounter_at(const struct fake_mounter *m, const char *target);

#endif
