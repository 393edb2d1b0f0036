/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A JSON writer: appends brackets, keys and values in the order of the calls, and inserts commas.
 * Check error once, at the end. Initialize to zero. Not shared between threads.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
	struct buf text;
	bool comma; /* the next value in these brackets needs a comma before it */
	int error; /* 0, or -ENOMEM: the text is incomplete */
};

/* Append '{' or '['. key is NULL for the outermost value and within '['. Keys are not escaped. */
void json_open(struct json *j, const char *key, char bracket);

/* Append '}' or ']'. */
void json_close(struct json *j, char bracket);

void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);

/* Append JSON text as a value. */
void json_raw(struct json *j, const char *key, const char *value);

void json_done(struct json *j);

/*
 * Append s as a JSON string, with quotes. If s is not UTF-8, replace each byte above 127 by '?',
 * since parsers reject other encodings. Errors as for buf_append().
 */
int json_put_quoted(struct buf *b, const char *s);

#endif
