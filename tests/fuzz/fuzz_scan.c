/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include "base/error.h"
#include "base/str.h"
#include "csi.pb-c.h"
#include "grpc/scan.h"

static const ProtobufCMessageDescriptor *const types[] = {
	&csi__v1__create_volume_request__descriptor,
	&csi__v1__delete_volume_request__descriptor,
	&csi__v1__node_publish_volume_request__descriptor,
	&csi__v1__validate_volume_capabilities_request__descriptor,
};

/* Strings of the top level: none may have lost anything at a NUL. */
static void check_strings(const ProtobufCMessage *message, const uint8_t *data, size_t size)
{
	unsigned int i;

	for (i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
		const char *s;

		if (field->type != PROTOBUF_C_TYPE_STRING ||
		    field->label == PROTOBUF_C_LABEL_REPEATED)
			continue;
		memcpy(&s, (const char *)message + field->offset, sizeof(s));
		assert(str_is_utf8(s, strlen(s)));
		/* It is in the input in full, with its length before it. */
		assert(s[0] == '\0' || memmem(data, size, s, strlen(s)) != NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t i;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct error err = { .code = ERROR_OK };
		int r = grpc_scan(types[i], data, size, &err);
		ProtobufCMessage *message;

		assert((r == 0) == (err.code == ERROR_OK));
		assert(r == 0 || err.code == ERROR_INVALID_ARGUMENT || err.code == ERROR_INTERNAL);
		assert(r == 0 || err.msg[0] != '\0');
		if (r < 0)
			continue;
		message = protobuf_c_message_unpack(types[i], NULL, size, data);
		if (message == NULL)
			continue;
		check_strings(message, data, size);
		protobuf_c_message_free_unpacked(message, NULL);
	}
	return 0;
}
