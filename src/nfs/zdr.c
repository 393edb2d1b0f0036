/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Functions of libnfs that its decoders call by name, in our place of its own: those of version 4.0
 * trust what a server sends. Lengths are compared as signed numbers, or not at all, arrays are
 * allocated by a product of 32 bits, and lists are decoded by as deep a recursion as they are long,
 * so that some bytes of a broken server could end the driver. What they allocate may also lie
 * unaligned. The dynamic linker prefers what the program defines to what a library does; that it has
 * is shown by tests/unit/nfs/test_rpc.c.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <nfsc/libnfs-zdr.h>

/* The longest that is sent are compounds of some tens, and masks of some words. */
#define ARRAY_MAX 4096U

/* A page of a directory has under a thousand entries; a server may have more exports than that. */
#define DEPTH_MAX 4096U

/* libnfs's, which frees it with the ZDR; in none of its public headers. */
void *zdr_malloc(ZDR *zdr, uint32_t size);

/* libnfs's has an offset of 12 bytes from what malloc() gives. */
static void *allocate(ZDR *zdr, uint32_t size)
{
	const uintptr_t spare = _Alignof(max_align_t) - 1;
	char *p = zdr_malloc(zdr, size + (uint32_t)spare);

	return p != NULL ? p + (-(uintptr_t)p & spare) : NULL;
}

static bool_t has(const ZDR *zdr, uint32_t n)
{
	return zdr->pos <= zdr->size && n <= (uint32_t)(zdr->size - zdr->pos);
}

/* Steps over n bytes and their padding. NULL where they are not all there. */
static char *pass(ZDR *zdr, uint32_t n)
{
	uint32_t padded = (n + 3) & ~3U;
	char *at = zdr->buf + zdr->pos;

	if (padded < n || !has(zdr, padded))
		return NULL;
	if (zdr->x_op == ZDR_ENCODE)
		memset(at + n, 0, padded - n);
	zdr->pos += (int)padded;
	return at;
}

bool_t libnfs_zdr_opaque(ZDR *zdr, char *data, uint32_t n)
{
	char *at = pass(zdr, n);

	if (at == NULL)
		return FALSE;
	if (n == 0)
		return TRUE; /* data may be NULL */
	if (zdr->x_op == ZDR_ENCODE)
		memcpy(at, data, n);
	else
		memcpy(data, at, n);
	return TRUE;
}

/* What is decoded stays where it is, unless there is a place for it. */
bool_t libnfs_zdr_bytes(ZDR *zdr, char **data, uint32_t *n, uint32_t max)
{
	(void)max; /* of the protocol: as libnfs, what is too long is left to who uses it */
	if (!zdr_u_int(zdr, n))
		return FALSE;
	if (zdr->x_op == ZDR_ENCODE || *data != NULL)
		return libnfs_zdr_opaque(zdr, *data, *n);
	*data = pass(zdr, *n);
	return *data != NULL;
}

/* Where there is padding it has room for the end of a string. */
static char *take_string(ZDR *zdr, uint32_t n)
{
	char *at = pass(zdr, n), *copy;

	if (at == NULL || n % 4 != 0) {
		if (at != NULL)
			at[n] = '\0';
		return at;
	}
	copy = allocate(zdr, n + 1);
	if (copy == NULL)
		return NULL;
	memcpy(copy, at, n);
	copy[n] = '\0';
	return copy;
}

bool_t libnfs_zdr_string(ZDR *zdr, char **text, uint32_t max)
{
	uint32_t n = zdr->x_op == ZDR_ENCODE ? (uint32_t)strlen(*text) : 0;

	(void)max;
	if (!zdr_u_int(zdr, &n))
		return FALSE;
	if (zdr->x_op == ZDR_ENCODE)
		return libnfs_zdr_opaque(zdr, *text, n);
	*text = take_string(zdr, n);
	return *text != NULL;
}

bool_t libnfs_zdr_array(ZDR *zdr, char **items, uint32_t *n, uint32_t max, uint32_t size,
			zdrproc_t item)
{
	uint32_t i;

	(void)max;
	if (!zdr_u_int(zdr, n) || *n > ARRAY_MAX)
		return FALSE;
	if (zdr->x_op == ZDR_DECODE) {
		*items = allocate(zdr, *n * size);
		if (*items == NULL)
			return FALSE;
		memset(*items, 0, (size_t)*n * size);
	}
	for (i = 0; i < *n; i++)
		if (!item(zdr, *items + (size_t)i * size))
			return FALSE;
	return TRUE;
}

/* The link to the rest of a list, which is decoded from within. */
bool_t libnfs_zdr_pointer(ZDR *zdr, char **next, uint32_t size, zdrproc_t item)
{
	static __thread unsigned int depth;
	bool_t follows = *next != NULL, decoded;

	if (!zdr_bool(zdr, &follows))
		return FALSE;
	if (!follows) {
		*next = NULL;
		return TRUE;
	}
	if (zdr->x_op == ZDR_DECODE) {
		*next = depth < DEPTH_MAX ? allocate(zdr, size) : NULL;
		if (*next == NULL)
			return FALSE;
		memset(*next, 0, size);
	}
	depth++;
	decoded = item(zdr, *next);
	depth--;
	return decoded;
}
