/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "csi.pb-c.h"
#include "grpc/dispatch.h"
#include "grpc/frame.h"
#include "grpc/limits.h"
#include "grpc/scan.h"
#include "check_util.h"

#define BYTES(s) s, sizeof(s) - 1

/* ---- Scanning: rows are bytes of a CreateVolumeRequest ---- */

/* Fields: name 1, volume_capabilities 3 (mount 2: fs_type 1), parameters 4 (key 1, value 2). */
static const struct row {
	const char *name;
	const char *bytes;
	size_t n;
	enum error_code code;
	const char *text; /* in the message */
} rows[] = {
	{ "nothing", BYTES(""), ERROR_OK, NULL },
	{ "a name", BYTES("\x0a\x03pvc"), ERROR_OK, NULL },
	{ "an empty name", BYTES("\x0a\x00"), ERROR_OK, NULL },
	{ "a name in UTF-8", BYTES("\x0a\x02\xc3\xa4"), ERROR_OK, NULL },
	{ "unknown fields of all wire types",
	  BYTES("\xf8\x7f\x01\xf9\x7f"
		"12345678"
		"\xfa\x7f\x01\0\xfd\x7f"
		"1234"),
	  ERROR_OK, NULL },
	{ "NUL in bytes nobody knows",
	  BYTES("\xfa\x7f\x03"
		"a\0b"),
	  ERROR_OK, NULL },
	{ "NUL in a name",
	  BYTES("\x0a\x03"
		"a\0b"),
	  ERROR_INVALID_ARGUMENT, "name contains a NUL" },
	{ "NUL alone", BYTES("\x0a\x01\0"), ERROR_INVALID_ARGUMENT, "name contains" },
	{ "NUL two messages down", BYTES("\x1a\x05\x12\x03\x0a\x01\0"), ERROR_INVALID_ARGUMENT,
	  "volume_capabilities.mount.fs_type contains" },
	{ "NUL in a map's key", BYTES("\x22\x03\x0a\x01\0"), ERROR_INVALID_ARGUMENT,
	  "parameters.key contains" },
	{ "NUL in a map's value", BYTES("\x22\x07\x0a\x01k\x12\x02v\0"), ERROR_INVALID_ARGUMENT,
	  "parameters.value contains" },
	{ "NUL in the second of two",
	  BYTES("\x0a\x01"
		"a\x0a\x02"
		"b\0"),
	  ERROR_INVALID_ARGUMENT, "name contains" },
	{ "bad UTF-8", BYTES("\x0a\x02\xc3\x28"), ERROR_INTERNAL, "name is not valid UTF-8" },
	{ "bad UTF-8 in a map", BYTES("\x22\x03\x12\x01\xff"), ERROR_INTERNAL,
	  "parameters.value is not" },
	{ "cut length", BYTES("\x0a"), ERROR_INTERNAL, "not a valid protobuf" },
	{ "cut string",
	  BYTES("\x0a\x05"
		"ab"),
	  ERROR_INTERNAL, "not a valid protobuf" },
	{ "huge length", BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), ERROR_INTERNAL,
	  "not a valid" },
	{ "cut nested message", BYTES("\x1a\x02\x12\x05"), ERROR_INTERNAL,
	  "at volume_capabilities" },
	{ "nested message longer than its parent",
	  BYTES("\x1a\x02\x12\x03\x0a\x01"
		"a"),
	  ERROR_INTERNAL, "at volume_capabilities" },
	{ "field number 0", BYTES("\x02\x00"), ERROR_INTERNAL, "not a valid" },
	{ "field number beyond 32 bits", BYTES("\xf8\xff\xff\xff\xff\x01\x00"), ERROR_INTERNAL,
	  "not a valid" },
	{ "varint without end", BYTES("\xf8\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
	  ERROR_INTERNAL, "not a valid" },
	{ "cut varint", BYTES("\xf8\x7f\x80"), ERROR_INTERNAL, "not a valid" },
	{ "cut 64 bits",
	  BYTES("\xf9\x7f"
		"1234567"),
	  ERROR_INTERNAL, "not a valid" },
	{ "cut 32 bits",
	  BYTES("\xfd\x7f"
		"123"),
	  ERROR_INTERNAL, "not a valid" },
	{ "group", BYTES("\xfb\x7f\xfc\x7f"), ERROR_INTERNAL, "not a valid" },
	{ "wire type 6", BYTES("\xfe\x7f"), ERROR_INTERNAL, "not a valid" },
	{ "wire type 7", BYTES("\xff\x7f"), ERROR_INTERNAL, "not a valid" },
};

START_TEST(test_rows)
{
	const struct row *row = &rows[_i];
	struct error err = { .code = ERROR_OK };
	/* Exactly as long as the message, so that a sanitizer finds reads past its end. */
	uint8_t *copy = malloc(row->n > 0 ? row->n : 1);
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, row->bytes, row->n);
	r = grpc_scan(&csi__v1__create_volume_request__descriptor, copy, row->n, &err);
	ck_assert_msg(err.code == row->code && (r < 0) == (row->code != ERROR_OK),
		      "%s: got %s '%s', want %s", row->name, error_code_name(err.code), err.msg,
		      error_code_name(row->code));
	if (row->text != NULL)
		ck_assert_msg(strstr(err.msg, row->text) != NULL, "%s: '%s'", row->name, err.msg);
	free(copy);
}
END_TEST

/* A message that contains itself; CSI has none. */
static const ProtobufCMessageDescriptor nest_descriptor;
static const ProtobufCFieldDescriptor nest_field = {
	.name = "nest",
	.id = 1,
	.label = PROTOBUF_C_LABEL_NONE,
	.type = PROTOBUF_C_TYPE_MESSAGE,
	.descriptor = &nest_descriptor,
};
static const ProtobufCIntRange nest_ranges[] = { { 1, 0 }, { 0, 1 } };
static const ProtobufCMessageDescriptor nest_descriptor = {
	.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
	.name = "Nest",
	.n_fields = 1,
	.fields = &nest_field,
	.n_field_ranges = 1,
	.field_ranges = nest_ranges,
};

static int scan_nested(unsigned int depth, struct error *err)
{
	uint8_t bytes[2 * 60];
	unsigned int i;

	ck_assert_uint_le(depth, 60);
	for (i = 0; i < depth; i++) {
		bytes[2 * i] = 0x0a;
		bytes[2 * i + 1] = (uint8_t)(2 * (depth - i - 1));
	}
	return grpc_scan(&nest_descriptor, bytes, 2 * depth, err);
}

START_TEST(test_depth)
{
	struct error err = { .code = ERROR_OK };

	ck_assert_int_eq(scan_nested(GRPC_SCAN_DEPTH_MAX, &err), 0);
	ck_assert_int_lt(scan_nested(GRPC_SCAN_DEPTH_MAX + 1, &err), 0);
	ck_assert_int_eq(err.code, ERROR_INTERNAL);
}
END_TEST

/* ---- Dispatching, to an Identity service controlled by the request's bytes ---- */

static unsigned int n_probes;

static void test_get_plugin_info(Csi__V1__Identity_Service *service,
				 const Csi__V1__GetPluginInfoRequest *input,
				 Csi__V1__GetPluginInfoResponse_Closure closure, void *data)
{
	struct request *request = data;

	(void)service;
	(void)input;
	(void)error_set(&request->err, ERROR_NOT_FOUND, "no name");
	closure(NULL, data);
}

static void test_get_plugin_capabilities(Csi__V1__Identity_Service *service,
					 const Csi__V1__GetPluginCapabilitiesRequest *input,
					 Csi__V1__GetPluginCapabilitiesResponse_Closure closure,
					 void *data)
{
	(void)service;
	(void)input;
	closure(NULL, data);
}

static void test_probe(Csi__V1__Identity_Service *service, const Csi__V1__ProbeRequest *input,
		       Csi__V1__ProbeResponse_Closure closure, void *data)
{
	Csi__V1__ProbeResponse reply = CSI__V1__PROBE_RESPONSE__INIT;
	Google__Protobuf__BoolValue ready = GOOGLE__PROTOBUF__BOOL_VALUE__INIT;

	(void)service;
	(void)input;
	n_probes++;
	ready.value = true;
	reply.ready = &ready;
	closure(&reply, data);
}

static Csi__V1__Identity_Service identity = CSI__V1__IDENTITY__INIT(test_);

static bool probe_is_quick(const char *method)
{
	return strcmp(method, "Probe") == 0;
}

static const struct grpc_service services[] = {
	{ .service = (ProtobufCService *)&identity, .is_quick = probe_is_quick },
};

static const struct {
	const char *path;
	const char *method; /* NULL: UNIMPLEMENTED */
	bool quick;
} paths[] = {
	{ "/csi.v1.Identity/Probe", "Probe", true },
	{ "/csi.v1.Identity/GetPluginInfo", "GetPluginInfo", false },
	{ "/csi.v1.Identity/probe", NULL, false },
	{ "/csi.v1.Identity/Prob", NULL, false },
	{ "/csi.v1.Identity/", NULL, false },
	{ "/csi.v1.Identity", NULL, false },
	{ "/csi.v1.Identit/Probe", NULL, false },
	{ "/csi.v1.Identity2/Probe", NULL, false },
	{ "/csi.v1.Identity/Probe/", NULL, false },
	{ "/a/csi.v1.Identity/Probe", NULL, false },
	{ "csi.v1.Identity/Probe", NULL, false },
	{ "//Probe", NULL, false },
	{ "/", NULL, false },
	{ "", NULL, false },
};

START_TEST(test_find)
{
	struct error err = { .code = ERROR_OK };
	struct grpc_method method;
	int r = grpc_dispatch_find(services, ARRAY_SIZE(services), paths[_i].path, &method, &err);

	if (paths[_i].method == NULL) {
		ck_assert_msg(r < 0 && err.code == ERROR_UNIMPLEMENTED, "'%s': %s", paths[_i].path,
			      error_code_name(err.code));
		return;
	}
	ck_assert_msg(r == 0, "'%s': %s", paths[_i].path, err.msg);
	ck_assert_str_eq(method.descriptor->name, paths[_i].method);
	ck_assert_int_eq(method.quick, paths[_i].quick);
}
END_TEST

/* Run a method of Identity on a copy of the bytes. */
static struct grpc_invocation run(const char *path, const void *bytes, size_t n)
{
	struct grpc_invocation inv = { .reply = NULL };
	struct grpc_method method;
	uint8_t *copy = n > 0 ? malloc(n) : NULL;

	if (n > 0) {
		ck_assert_ptr_nonnull(copy);
		memcpy(copy, bytes, n);
	}
	ck_assert_int_eq(grpc_dispatch_find(services, 1, path, &method, NULL), 0);
	grpc_dispatch_run(&method, copy, n, &inv);
	return inv;
}

START_TEST(test_run)
{
	struct grpc_invocation inv = run("/csi.v1.Identity/Probe", "", 0);

	ck_assert_uint_eq(inv.reply_len, GRPC_FRAME_PREFIX_SIZE + 4);
	ck_assert_mem_eq(inv.reply, "\0\0\0\0\4\x0a\2\x08\1", inv.reply_len);
	free(inv.reply);
	inv = run("/csi.v1.Identity/GetPluginInfo", "", 0);
	ck_assert_ptr_null(inv.reply);
	ck_assert_int_eq(inv.request.err.code, ERROR_NOT_FOUND);
	ck_assert_str_eq(inv.request.err.msg, "no name");
	inv = run("/csi.v1.Identity/GetPluginCapabilities", "", 0);
	ck_assert_ptr_null(inv.reply);
	ck_assert_int_eq(inv.request.err.code, ERROR_INTERNAL);
}
END_TEST

START_TEST(test_run_bad_request)
{
	struct grpc_invocation inv;

	n_probes = 0;
	inv = run("/csi.v1.Identity/Probe", "\x0a\x05", 2);
	ck_assert_ptr_null(inv.reply);
	ck_assert_int_eq(inv.request.err.code, ERROR_INTERNAL);
	ck_assert_uint_eq(n_probes, 0);
}
END_TEST

START_TEST(test_run_over_budget)
{
	const size_t n = GRPC_MESSAGE_MAX / 3;
	struct grpc_invocation inv;
	uint8_t *bytes = malloc(3 * n);
	size_t i;

	ck_assert_ptr_nonnull(bytes);
	for (i = 0; i < n; i++)
		memcpy(bytes + 3 * i, "\xfa\x7f\0", 3);
	n_probes = 0;
	inv = run("/csi.v1.Identity/Probe", bytes, 3 * n);
	ck_assert_ptr_null(inv.reply);
	ck_assert_int_eq(inv.request.err.code, ERROR_RESOURCE_EXHAUSTED);
	ck_assert_uint_eq(n_probes, 0);
	free(bytes);
}
END_TEST

CHECK_MAIN("grpc_scan",
	   .tests = { test_depth, test_run, test_run_bad_request, test_run_over_budget },
	   .loops = { { test_rows, ARRAY_SIZE(rows) }, { test_find, ARRAY_SIZE(paths) } })
