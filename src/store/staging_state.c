/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/staging_state.h"

struct staging_state staging_state_of(const struct record *rec)
{
	return (struct staging_state){
		.built = record_get(rec, STAGING_KEY_BUILT),
		.handle = record_get(rec, STAGING_KEY_HANDLE),
		.version = record_get(rec, STAGING_KEY_VERSION),
		.time = record_get(rec, STAGING_KEY_TIME),
		.mode = record_get(rec, STAGING_KEY_MODE),
		.ready = record_get(rec, STAGING_KEY_READY) != NULL,
	};
}

int staging_set_ready(struct record *rec)
{
	return record_set(rec, STAGING_KEY_READY, "1");
}
