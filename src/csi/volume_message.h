/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A volume in a reply, made from its record. Any thread.
 */
#ifndef CSI_VOLUME_MESSAGE_H
#define CSI_VOLUME_MESSAGE_H

#include "csi.pb-c.h"
#include "store/record.h"

struct volume_message {
	Csi__V1__Volume volume;
	Csi__V1__VolumeCondition condition;
	/* Private. */
	Csi__V1__Volume__VolumeContextEntry *context;
	Csi__V1__Volume__VolumeContextEntry **context_list;
	Csi__V1__VolumeContentSource source;
	Csi__V1__VolumeContentSource__SnapshotSource snapshot_source;
	Csi__V1__VolumeContentSource__VolumeSource volume_source;
};

/*
 * Fill in m, which has to stay where it is. id and rec are borrowed while m is used. Return 0 or
 * -ENOMEM; volume_message_done() is due in either case.
 */
int volume_message_init(struct volume_message *m, const char *id, const struct record *rec);

/* Set the condition: problem is borrowed; NULL: there is none. */
void volume_message_set_condition(struct volume_message *m, const char *problem);

void volume_message_done(struct volume_message *m);
#define cleanup_volume_message __attribute__((cleanup(volume_message_done)))

#endif
