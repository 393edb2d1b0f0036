/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The mode of a volume's directory. Any thread. */
#ifndef BASE_MODE_H
#define BASE_MODE_H

#include <stdint.h>

#define MODE_SPECIAL 07000 /* setuid, setgid and sticky */
#define MODE_ALL 07777

/*
 * The mode that a directory with the mode have gets when wanted is asked for. Special bits that are there
 * stay, unless some are asked for: kubelet sets the setgid bit for a pod's fsGroup, and goes over the whole
 * volume again where it is gone.
 */
static inline uint32_t mode_for_existing(uint32_t wanted, uint32_t have)
{
	return (wanted & MODE_SPECIAL) != 0 ? wanted : wanted | (have & MODE_SPECIAL);
}

#endif
