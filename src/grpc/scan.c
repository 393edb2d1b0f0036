/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "grpc/scan.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "grpc/limits.h"

#define VARINT_MAX 10
#define WIRE_TYPE_BITS 3
#define FIELD_NAME_SIZE 256

/* Path to a field; name is NULL for the outermost message. */
struct place {
	const struct place *parent;
	const char *name;
	unsigned int depth;
};

struct cursor {
	const uint8_t *p;
	size_t left;
};

static int scan_message(const struct place *at, const ProtobufCMessageDescriptor *desc,
			struct cursor c, struct error *err);

/* Write "a.b.c", truncated to size; the names in our descriptors fit. Return the length. */
static size_t put_place(const struct place *at, char *name, size_t size)
{
	size_t len = 0;
	int n;

	if (at->parent != NULL)
		len = put_place(at->parent, name, size);
	if (at->name == NULL)
		return len;
	n = snprintf(name + len, size - len, "%s%s", len > 0 ? "." : "", at->name);
	if (n < 0)
		return len;
	return (size_t)n < size - len ? len + (size_t)n : size - 1;
}

static int set_malformed(const struct place *at, struct error *err)
{
	char name[FIELD_NAME_SIZE] = "";

	(void)put_place(at, name, sizeof(name));
	return error_set(err, ERROR_INTERNAL, "request is not a valid protobuf message%s%s",
			 name[0] != '\0' ? ", at " : "", name);
}

static bool skip_bytes(struct cursor *c, uint64_t n)
{
	if (n > c->left)
		return false;
	c->p += n;
	c->left -= (size_t)n;
	return true;
}

static bool take_varint(struct cursor *c, uint64_t *ret)
{
	uint64_t value = 0;
	unsigned int i;

	for (i = 0; i < VARINT_MAX && i < c->left; i++) {
		uint8_t byte = c->p[i];

		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if ((byte & 0x80) == 0) {
			*ret = value;
			return skip_bytes(c, i + 1);
		}
	}
	return false;
}

static int scan_string(const struct place *at, struct cursor c, struct error *err)
{
	char name[FIELD_NAME_SIZE] = "";

	if (c.left == 0)
		return 0;
	if (memchr(c.p, '\0', c.left) != NULL) {
		(void)put_place(at, name, sizeof(name));
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s contains a NUL character", name);
	}
	if (!str_is_utf8((const char *)c.p, c.left)) {
		(void)put_place(at, name, sizeof(name));
		return error_set(err, ERROR_INTERNAL, "%s is not valid UTF-8", name);
	}
	return 0;
}

/* Scan a length-delimited field; field is NULL if the descriptor does not know it. */
static int scan_bytes(const struct place *at, const ProtobufCFieldDescriptor *field,
		      struct cursor c, struct error *err)
{
	struct place within = { .parent = at, .depth = at->depth + 1 };

	if (field == NULL)
		return 0;
	within.name = field->name;
	if (field->type == PROTOBUF_C_TYPE_STRING)
		return scan_string(&within, c, err);
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return scan_message(&within, field->descriptor, c, err);
	return 0;
}

/* Reject groups (wire types 3 and 4), as protobuf-c does. */
static int scan_field(const struct place *at, const ProtobufCMessageDescriptor *desc,
		      struct cursor *c, struct error *err)
{
	const ProtobufCFieldDescriptor *field;
	struct cursor value;
	uint64_t tag, n;
	bool ok;

	if (!take_varint(c, &tag) || tag > UINT32_MAX || tag >> WIRE_TYPE_BITS == 0)
		return set_malformed(at, err);
	switch (tag & ((1U << WIRE_TYPE_BITS) - 1)) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		ok = take_varint(c, &n);
		break;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		ok = skip_bytes(c, sizeof(uint64_t));
		break;
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		ok = skip_bytes(c, sizeof(uint32_t));
		break;
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		if (!take_varint(c, &n) || n > c->left)
			return set_malformed(at, err);
		value = (struct cursor){ c->p, (size_t)n };
		(void)skip_bytes(c, n); /* checked above */
		tag >>= WIRE_TYPE_BITS;
		field = protobuf_c_message_descriptor_get_field(desc, (unsigned int)tag);
		return scan_bytes(at, field, value, err);
	default:
		ok = false;
		break;
	}
	return ok ? 0 : set_malformed(at, err);
}

static int scan_message(const struct place *at, const ProtobufCMessageDescriptor *desc,
			struct cursor c, struct error *err)
{
	int r;

	if (at->depth > GRPC_SCAN_DEPTH_MAX)
		return error_set(err, ERROR_INTERNAL, "request nests messages too deep");
	while (c.left > 0) {
		r = scan_field(at, desc, &c, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int grpc_scan(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
	      struct error *err)
{
	struct place top = { .parent = NULL, .name = NULL, .depth = 0 };

	return scan_message(&top, desc, (struct cursor){ data, len }, err);
}
