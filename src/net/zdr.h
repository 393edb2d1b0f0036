/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Checked XDR primitives in place of libnfs's own. The decoders of libnfs 4.0 trust the server:
 * its primitives compare lengths as signed numbers or not at all, multiply array sizes in 32 bits,
 * and recurse as deep as a list is long, so a few bytes from a broken or hostile server could
 * crash the driver.
 *
 * zdr.c defines functions with the names that libnfs's decoders call. The dynamic linker prefers
 * the program's definition, unless libnfs was linked with -Bsymbolic or -Bsymbolic-functions, which
 * bind the calls inside the library without any message. net_zdr_check() finds that out, and no
 * connection is made without it (net_rpc_new()). A static libnfs fails to link instead: its own
 * definitions are then duplicates.
 */
#ifndef NET_ZDR_H
#define NET_ZDR_H

#include <stddef.h>

#include <nfsc/libnfs-zdr.h>

#include "base/error.h"

/*
 * Check that libnfs's decoders call our primitives. Returns 0, or -ELIBBAD with
 * FAILED_PRECONDITION and a message that says what to do. Any thread; checks once, then cheap.
 */
int net_zdr_check(struct error *err);

/* Allocate memory that is freed with the ZDR, for decoders. NULL: no memory. */
void *net_zdr_allocate(ZDR *zdr, uint32_t size);

/* A decoder that begins with one of the replaced primitives. */
struct net_zdr_decoder {
	const char *primitive;
	zdrproc_t decode; /* results of at most NET_ZDR_DECODED_MAX bytes */
};

#define NET_ZDR_DECODED_MAX 64

/* The check itself, for tests: the same for the decoders given. */
int net_zdr_check_decoders(const struct net_zdr_decoder *decoders, size_t n, struct error *err);

#endif
