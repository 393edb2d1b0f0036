/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "net/zdr.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The longest arrays in use are compounds of tens of operations and masks of a few words. */
#define ARRAY_MAX 4096U

/* A directory page has under a thousand entries; a server may have more exports than that. */
#define LIST_MAX 4096U

/* libnfs frees this memory with the ZDR. Before libnfs 7 no public header declares the function. */
void *zdr_malloc(ZDR *zdr, uint32_t size);

/* Align what zdr_malloc() returns, which is 12 bytes past what malloc() returned. */
void *net_zdr_allocate(ZDR *zdr, uint32_t size)
{
	const uintptr_t spare = _Alignof(max_align_t) - 1;
	char *p = zdr_malloc(zdr, size + (uint32_t)spare);

	return p != NULL ? p + (-(uintptr_t)p & spare) : NULL;
}

void *net_zdr_allocate_array(ZDR *zdr, uint32_t n, uint32_t size)
{
	void *items;

	if (n > ARRAY_MAX)
		return NULL;
	items = net_zdr_allocate(zdr, n * size);
	if (items != NULL)
		memset(items, 0, (size_t)n * size);
	return items;
}

/* Step over n bytes and their padding. Returns NULL if the message ends before them. */
static char *zdr_skip(ZDR *zdr, uint32_t n)
{
	const uint32_t padded = (n + 3) & ~3U;
	char *at = zdr->buf + zdr->pos;

	if (padded < n || padded > (uint32_t)(zdr->size - zdr->pos))
		return NULL;
	zdr->pos += (int)padded;
	return at;
}

bool_t net_zdr_take_fixed(ZDR *zdr, char *to, uint32_t n)
{
	const char *at = zdr_skip(zdr, n);

	if (at == NULL)
		return FALSE;
	memcpy(to, at, n);
	return TRUE;
}

bool_t net_zdr_take_bytes(ZDR *zdr, char **ret, uint32_t *ret_len)
{
	uint32_t n;
	char *at;

	if (!zdr_u_int(zdr, &n))
		return FALSE;
	at = zdr_skip(zdr, n);
	if (at == NULL)
		return FALSE;
	*ret = at;
	*ret_len = n;
	return TRUE;
}

/* Terminate the string in its padding; copy it only if there is none. */
bool_t net_zdr_take_string(ZDR *zdr, char **ret)
{
	char *at, *copy;
	uint32_t n;

	/* A C string ends at the NUL, so it would name another file. */
	if (!net_zdr_take_bytes(zdr, &at, &n) || memchr(at, '\0', n) != NULL)
		return FALSE;
	if (n % 4 != 0) {
		at[n] = '\0';
		*ret = at;
		return TRUE;
	}
	copy = net_zdr_allocate(zdr, n + 1);
	if (copy == NULL)
		return FALSE;
	memcpy(copy, at, n);
	copy[n] = '\0';
	*ret = copy;
	return TRUE;
}

bool_t net_zdr_take_flag(ZDR *zdr, uint32_t *ret)
{
	return zdr_u_int(zdr, ret) && *ret <= 1;
}

bool_t net_zdr_take_next(ZDR *zdr, void **ret, uint32_t size, uint32_t *n)
{
	uint32_t follows;
	void *item = NULL;

	if (!zdr_u_int(zdr, &follows))
		return FALSE;
	if (follows) {
		item = (*n)++ < LIST_MAX ? net_zdr_allocate_array(zdr, 1, size) : NULL;
		if (item == NULL)
			return FALSE;
	}
	*ret = item;
	return TRUE;
}

bool_t net_zdr_put_fixed(ZDR *zdr, const char *bytes, uint32_t n)
{
	char *at = zdr_skip(zdr, n);

	if (at == NULL)
		return FALSE;
	if (n > 0)
		memcpy(at, bytes, n); /* else bytes may be NULL */
	memset(at + n, 0, ((n + 3) & ~3U) - n);
	return TRUE;
}
