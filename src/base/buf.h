/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A growable byte buffer with an optional limit. data is NULL until something is appended, and
 * NUL-terminated after that; len does not count the terminator. Not shared between threads.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max; /* 0: no limit */
};

/* Append n bytes. Return 0, -ENOMEM, or -EMSGSIZE if len would exceed max. */
int buf_append(struct buf *b, const void *data, size_t n);

/* Append a string. Errors as for buf_append(). */
int buf_puts(struct buf *b, const char *s);

/* Append formatted text. Errors as for buf_append(). */
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Return the contents as a string, "" if nothing was appended. Borrowed until the next change. */
static inline const char *buf_text(const struct buf *b)
{
	return b->data != NULL ? b->data : "";
}

/* Return the contents as a string for the caller to free, "" if empty; NULL if out of memory. */
char *buf_steal(struct buf *b);

/* Free the contents; b may be used again. */
void buf_done(struct buf *b);

#define cleanup_buf __attribute__((cleanup(buf_done)))

#endif
