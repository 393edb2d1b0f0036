/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The copy of one large file that bare measures. */
#ifndef BENCH_TRANSFER_H
#define BENCH_TRANSFER_H

#include "nfs/client.h"

#define TRANSFER_WINDOW_MAX 64

/*
 * Copies the first bytes of the file from in the root of the export to a new one named to: pieces as
 * large as the server takes, of which bytes is a multiple, window of them being read or written at a
 * time, and one COMMIT at the end. Returns 0 or a negative errno, unreported.
 */
int transfer_file(struct nfs_client *c, const char *from, const char *to, uint64_t bytes,
		  unsigned int window);

#endif
