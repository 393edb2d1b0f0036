/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * XDR of what a server sends, into libnfs's types. libnfs's own decoders trust the server: their
 * primitives, in libnfs 4.0, compare lengths as signed numbers or not at all, multiply array sizes
 * in 32 bits, and recurse as deep as a list is long, so a few bytes from a broken or hostile server
 * could crash the driver. So results are decoded here and in nfs/v3_results.c and
 * nfs/v4_results.c; libnfs encodes arguments, which are ours, and reads single numbers.
 *
 * Decoders return TRUE, or FALSE for a message that cannot be read. What they return in pointers
 * lies in the message or in memory that zdr_destroy() frees.
 */
#ifndef NET_ZDR_H
#define NET_ZDR_H

#include <stdint.h>

#include <nfsc/libnfs-zdr.h>

/*
 * libnfs's encoders do not look for the end of the buffer when they write padding, or opaque data
 * of fixed size, at most 16 bytes: give them a buffer that is this many bytes longer than they are
 * told.
 */
#define NET_ZDR_ENCODE_SPARE 64

/* Allocate memory that is freed with the ZDR, for any type. NULL: no memory. */
void *net_zdr_allocate(ZDR *zdr, uint32_t size);

/* The same for n zeroed items. NULL for more of them than any reply in use has. */
void *net_zdr_allocate_array(ZDR *zdr, uint32_t n, uint32_t size);

/* Opaque data of fixed size: copied. */
bool_t net_zdr_take_fixed(ZDR *zdr, char *to, uint32_t n);

/* Opaque data of any size, in the message. */
bool_t net_zdr_take_bytes(ZDR *zdr, char **ret, uint32_t *ret_len);

/* A string, terminated. */
bool_t net_zdr_take_string(ZDR *zdr, char **ret);

/* A union's flag: 0 or 1. */
bool_t net_zdr_take_flag(ZDR *zdr, uint32_t *ret);

/*
 * A list is a flag before each item, and a last one that is 0. Store the next item, zeroed, in
 * *ret, or NULL at the end. Count the items in *n, which is 0 before the first: a list longer than
 * any reply in use has cannot be read.
 */
bool_t net_zdr_take_next(ZDR *zdr, void **ret, uint32_t size, uint32_t *n);

/* Encode opaque data of fixed size, of any length. FALSE: no room. */
bool_t net_zdr_put_fixed(ZDR *zdr, const char *bytes, uint32_t n);

#endif
