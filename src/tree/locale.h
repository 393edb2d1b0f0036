/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Inside of tree/: libarchive takes names to be in the locale's encoding, and pax wants UTF-8. */
#ifndef TREE_LOCALE_H
#define TREE_LOCALE_H

#include <locale.h>
#include <stddef.h>

/* Makes this thread's locale UTF-8. Returns the one before; (locale_t)0 where there is none to be had. */
static inline locale_t tree_locale_enter(void)
{
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);

	return utf8 != (locale_t)0 ? uselocale(utf8) : (locale_t)0;
}

static inline void tree_locale_leave(const locale_t *before)
{
	if (*before != (locale_t)0)
		freelocale(uselocale(*before));
}

#define cleanup_locale __attribute__((cleanup(tree_locale_leave)))

#endif
