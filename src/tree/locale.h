/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* For src/tree only: libarchive takes names as encoded by the locale, and pax wants UTF-8. */
#ifndef TREE_LOCALE_H
#define TREE_LOCALE_H

#include <locale.h>
#include <stddef.h>

/* Switch this thread to UTF-8. Returns its locale before; (locale_t)0 if UTF-8 is not available. */
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
