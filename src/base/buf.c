/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int reserve(struct buf *b, size_t n)
{
	size_t need, cap;
	char *data;

	if (n > SIZE_MAX / 2 - b->len)
		return -ENOMEM;
	need = b->len + n + 1;
	if (b->max > 0 && need - 1 > b->max)
		return -EMSGSIZE;
	if (need <= b->cap)
		return 0;
	cap = b->cap < 64 ? 64 : b->cap;
	while (cap < need)
		cap *= 2;
	data = realloc(b->data, cap);
	if (data == NULL)
		return -ENOMEM;
	b->data = data;
	b->cap = cap;
	return 0;
}

int buf_append(struct buf *b, const void *data, size_t n)
{
	int r = reserve(b, n);

	if (r < 0)
		return r;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
	return 0;
}

int buf_puts(struct buf *b, const char *s)
{
	return buf_append(b, s, strlen(s));
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	r = reserve(b, (size_t)n);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	(void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

char *buf_steal(struct buf *b)
{
	char *data;

	if (b->data == NULL && reserve(b, 0) < 0)
		return NULL;
	data = b->data;
	data[b->len] = '\0';
	*b = (struct buf){ .max = b->max };
	return data;
}

void buf_done(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ .max = b->max };
}
