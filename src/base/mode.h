/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Modes of volume directories. Any thread. */
#ifndef BASE_MODE_H
#define BASE_MODE_H

#include <stdint.h>

#define MODE_SPECIAL 07000 /* setuid, setgid and sticky */
#define MODE_SETGID 02000
#define MODE_ALL 07777
#define MODE_OF_FSGROUP 0770 /* what kubelet adds for a pod's fsGroup, with the setgid bit */

/*
 * Return the mode to set on a directory that has mode have, if wanted is requested. Keep special
 * bits unless wanted has some: kubelet sets the setgid bit for a pod's fsGroup, and changes the
 * whole volume again if the bit is missing.
 */
static inline uint32_t mode_for_existing(uint32_t wanted, uint32_t have)
{
	return (wanted & MODE_SPECIAL) != 0 ? wanted : wanted | (have & MODE_SPECIAL);
}

/*
 * As mode_for_existing(), for a node, whose pods rely on fsGroup: where the setgid bit is kept,
 * keep what kubelet has added with it.
 */
static inline uint32_t mode_for_mounted(uint32_t wanted, uint32_t have)
{
	const uint32_t mode = mode_for_existing(wanted, have);

	if ((wanted & MODE_SPECIAL) != 0 || (have & MODE_SETGID) == 0)
		return mode;
	return mode | (have & MODE_OF_FSGROUP);
}

#endif
