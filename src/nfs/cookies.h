/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Finds a directory listing that runs in a circle: a server that leads back to a cookie that it
 * gave before would keep the reader forever. Brent's algorithm needs no memory for the cookies: it
 * compares each with the one of page 1, 2, 4, 8 ... Zeroed: at the start of a listing.
 */
#ifndef NFS_COOKIES_H
#define NFS_COOKIES_H

#include <stdbool.h>
#include <stdint.h>

struct nfs_cookies {
	uint64_t mark, last;
	uint64_t pages; /* since the mark was set */
	uint64_t next; /* pages until it is set again */
};

/*
 * Take the cookie at the end of a page that is not the last one. Returns true if the listing does
 * not move on, at the latest after three times the pages of the circle.
 */
static inline bool nfs_cookies_repeat(struct nfs_cookies *c, uint64_t cookie)
{
	if (cookie == c->last || cookie == c->mark)
		return true;
	c->last = cookie;
	if (++c->pages <= c->next)
		return false;
	c->mark = cookie;
	c->pages = 0;
	c->next = 2 * c->next + 1;
	return false;
}

#endif
