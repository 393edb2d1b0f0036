/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A growable byte buffer with a ceiling. data stays NULL until something is appended; text
 * buffers are kept terminated (the terminator is not counted in len). Not shared between threads.
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

/* Appends n bytes. Returns 0, -ENOMEM, or -EMSGSIZE when len would pass max. */
int buf_append(struct buf *b, const void *data, size_t n);

/* Appends a string. Errors as buf_append(). */
int buf_puts(struct buf *b, const char *s);

/* Appends formatted text. Errors as buf_append(). */
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drops the first n bytes, n <= len. */
void buf_consume(struct buf *b, size_t n);

/* Hands the bytes over as a terminated string ("" where nothing was appended); NULL without memory. */
char *buf_steal(struct buf *b);

/* Frees the contents; b may be used again. */
void buf_done(struct buf *b);

#define cleanup_buf __attribute__((cleanup(buf_done)))

#endif
