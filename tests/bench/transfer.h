/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The copy of one large file that bare measures. */
#ifndef BENCH_TRANSFER_H
#define BENCH_TRANSFER_H

#include "nfs/client.h"

#define TRANSFER_WINDOW_MAX 64

/*
 * Copy the first bytes of the file from, in the root of the export, to a new file to. bytes must be
 * a multiple of the server's transfer size. Up to window reads and writes are in flight, and one
 * COMMIT ends the copy. Returns 0 or a negative errno; reports nothing.
 */
int transfer_file(struct nfs_client *c, const char *from, const char *to, uint64_t bytes,
		  unsigned int window);

#endif
