/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/client.h"

#include <string.h>

bool nfs_handle_is_equal(const struct nfs_handle *a, const struct nfs_handle *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

unsigned int nfs_window(const struct nfs_client *c)
{
	const unsigned int window = c->window != 0 ? c->window : NFS_WINDOW;
	/* A copy within a share has a window for reading and one for writing. */
	const unsigned int half = c->slots > 2 ? c->slots / 2 : 1;

	return c->slots == 0 || window < half ? window : half;
}

size_t nfs_remove_max(const struct nfs_client *c)
{
	if (c->version != 4)
		return 1;
	/* PUTFH takes one operation. */
	return c->operations == 0 || c->operations > NFS_REMOVE_MAX ? NFS_REMOVE_MAX
								    : c->operations - 1;
}

size_t nfs_getattr_max(const struct nfs_client *c)
{
	const size_t fit = c->operations / 2; /* PUTFH and GETATTR for each */

	if (c->version != 4)
		return 1;
	if (c->operations == 0 || fit > NFS_GETATTR_MAX)
		return NFS_GETATTR_MAX;
	return fit > 0 ? fit : 1;
}

const char *nfs_version_text(const struct nfs_client *c)
{
	static const char *const minors[] = { "4.0", "4.1", "4.2" };

	return c->version == 3 ? "3" : minors[c->minor];
}

bool nfs_time_fits(const struct nfs_client *c, const struct nfs_time *time)
{
	return c->version != 3 || (time->sec >= 0 && time->sec <= UINT32_MAX);
}

static uint32_t transfer_max(uint32_t told)
{
	return told != 0 && told < NFS_TRANSFER_MAX ? told : NFS_TRANSFER_MAX;
}

uint32_t nfs_read_max(const struct nfs_client *c)
{
	return transfer_max(c->read_max);
}

uint32_t nfs_write_max(const struct nfs_client *c)
{
	return transfer_max(c->write_max);
}

uint32_t nfs_read_count(const struct nfs_op *op)
{
	const uint32_t max = nfs_read_max(op->client);

	return op->count < max ? op->count : max;
}
