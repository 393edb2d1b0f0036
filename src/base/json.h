/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Writes JSON: brackets, keys and values in the order of the calls; commas come by themselves. A
 * failed allocation is kept in error, so that only the end has to look. Not shared between threads.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct json {
	struct buf text;
	bool comma; /* a value stands before, within the same brackets */
	int error; /* the first failure: -ENOMEM; the text is of no use then */
};

/* bracket is '{' or '['. key: NULL within '[' and for the outermost value; else not escaped. */
void json_open(struct json *j, const char *key, char bracket);

/* bracket is '}' or ']'. */
void json_close(struct json *j, char bracket);

void json_string(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_bool(struct json *j, const char *key, bool value);

/* Takes a finished JSON text over as a value. */
void json_raw(struct json *j, const char *key, const char *value);

void json_done(struct json *j);

/*
 * Appends s as a JSON string, with its quotes. Where s is not UTF-8 the bytes above 127 become
 * question marks: they would break a reader. Errors as buf_append().
 */
int json_put_quoted(struct buf *b, const char *s);

#endif
