/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "csi/validate.h"
#include "check_util.h"

#define MODE(name) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##name

START_TEST(test_name)
{
	static const struct {
		const char *name;
		const char *text;
		bool valid;
	} rows[] = {
		{ "usual", "pvc-1", true },
		{ "slash and dots", "../a/b", true },
		{ "separator", "a#b", true },
		{ "tab, line feed, carriage return", "\t\n\r", true },
		{ "space", " ", true },
		{ "UTF-8", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", true },
		{ "U+00A0", "\xc2\xa0", true },
		{ "U+0440, a byte 0x80 after another lead", "\xd1\x80", true },
		{ "empty", "", false },
		{ "U+0001", "a\x01", false },
		{ "U+0008", "\x08", false },
		{ "U+000B", "\x0b", false },
		{ "U+000C", "\x0c", false },
		{ "U+000E", "\x0e", false },
		{ "U+001F",
		  "a\x1f"
		  "b",
		  false },
		{ "U+007F", "\x7f", false },
		{ "U+0080", "\xc2\x80", false },
		{ "U+0085", "a\xc2\x85", false },
		{ "U+009F", "\xc2\x9f", false },
	};
	cleanup_free char *longest = check_repeat("n", 128), *too_long = check_repeat("n", 129);
	struct error err = { .code = ERROR_OK };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error why = { .code = ERROR_OK };

		check_int(rows[i].name, "result", validate_name(rows[i].text, &why),
			  rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &why, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "name");
	}
	check_int("128 bytes", "result", validate_name(longest, NULL), 0);
	check_int("129 bytes", "result", validate_name(too_long, &err), -EINVAL);
	check_error("129 bytes", &err, ERROR_INVALID_ARGUMENT, "name");
}
END_TEST

START_TEST(test_volume_id)
{
	cleanup_free char *huge = check_repeat("i", 100000);
	struct error err = { .code = ERROR_OK };

	check_int("garbage", "result", validate_volume_id("\x01 /../ #", NULL), 0);
	check_int("huge", "result", validate_volume_id(huge, NULL), 0);
	check_int("empty", "result", validate_volume_id("", &err), -EINVAL);
	check_error("empty", &err, ERROR_INVALID_ARGUMENT, "volume_id");
	error_clear(&err);
	check_int("any field", "result", validate_required("", "node_id", &err), -EINVAL);
	check_error("any field", &err, ERROR_INVALID_ARGUMENT, "node_id");
	check_int("a field with text", "result", validate_required(" ", "node_id", NULL), 0);
}
END_TEST

START_TEST(test_path)
{
	static const struct {
		const char *name;
		const char *path;
		bool valid;
	} rows[] = {
		{ "usual", "/var/lib/kubelet/pods/1/volumes/a/mount", true },
		{ "dots in names", "/a../..b/...", true },
		{ "trailing slash", "/a/", true },
		{ "doubled slash", "//a//b", true },
		{ "empty", "", false },
		{ "relative", "some/path", false },
		{ "root", "/", false },
		{ "root, by a dot", "/.", false },
		{ "root, by dots and slashes", "//././/", false },
		{ "a name that begins with a dot", "/.a", true },
		{ "a dot below a directory", "/a/.", true },
		{ "root in slashes", "///", false },
		{ "dot dot", "/a/../b", false },
		{ "dot dot last", "/a/..", false },
		{ "dot dot first", "/../a", false },
	};
	cleanup_free char *longest = check_repeat("/", 4095), *too_long = check_repeat("/", 4096);
	struct error err = { .code = ERROR_OK };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error why = { .code = ERROR_OK };

		check_int(rows[i].name, "result", validate_path(rows[i].path, "target_path", &why),
			  rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &why, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "target_path");
	}
	longest[4094] = 'a';
	too_long[4095] = 'a';
	check_int("4095 bytes", "result", validate_path(longest, "target_path", NULL), 0);
	check_int("4096 bytes", "result", validate_path(too_long, "target_path", &err), -EINVAL);
	check_error("4096 bytes", &err, ERROR_INVALID_ARGUMENT, "target_path");
}
END_TEST

START_TEST(test_map)
{
	static const struct {
		const char *name;
		size_t key, value;
		bool valid;
	} rows[] = {
		{ "empty", 0, 0, true },
		{ "at the limit", 96, 4000, true },
		{ "one more", 97, 4000, false },
		{ "long key", 4097, 0, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__CreateVolumeRequest__ParametersEntry entry =
			CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT;
		Csi__V1__CreateVolumeRequest__ParametersEntry *list[] = { &entry };
		cleanup_free char *key = check_repeat("k", rows[i].key);
		cleanup_free char *value = check_repeat("v", rows[i].value);
		const struct csi_map map = csi_map_of_entries(list, 1);
		struct error err = { .code = ERROR_OK };

		entry.key = key;
		entry.value = value;
		check_int(rows[i].name, "result", validate_map(&map, "parameters", &err),
			  rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &err, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "parameters");
	}
}
END_TEST

enum access { NO_ACCESS, MOUNT, BLOCK };

struct capability {
	Csi__V1__VolumeCapability cap;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__BlockVolume block;
	Csi__V1__VolumeCapability__AccessMode mode;
};

/* mode below 0: no access_mode at all. */
static void capability_init(struct capability *c, enum access access, int mode)
{
	csi__v1__volume_capability__init(&c->cap);
	csi__v1__volume_capability__mount_volume__init(&c->mount);
	csi__v1__volume_capability__block_volume__init(&c->block);
	csi__v1__volume_capability__access_mode__init(&c->mode);
	if (access == MOUNT) {
		c->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
		c->cap.mount = &c->mount;
	} else if (access == BLOCK) {
		c->cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK;
		c->cap.block = &c->block;
	}
	if (mode >= 0) {
		c->mode.mode = (Csi__V1__VolumeCapability__AccessMode__Mode)mode;
		c->cap.access_mode = &c->mode;
	}
}

START_TEST(test_capability)
{
	static const struct {
		const char *name;
		enum access access;
		int mode;
		bool valid;
		const char *word;
	} rows[] = {
		{ "single node writer", MOUNT, MODE(SINGLE_NODE_WRITER), true, NULL },
		{ "single node reader", MOUNT, MODE(SINGLE_NODE_READER_ONLY), true, NULL },
		{ "multi node reader", MOUNT, MODE(MULTI_NODE_READER_ONLY), true, NULL },
		{ "multi node single writer", MOUNT, MODE(MULTI_NODE_SINGLE_WRITER), true, NULL },
		{ "multi node multi writer", MOUNT, MODE(MULTI_NODE_MULTI_WRITER), true, NULL },
		{ "single node single writer", MOUNT, MODE(SINGLE_NODE_SINGLE_WRITER), true, NULL },
		{ "single node multi writer", MOUNT, MODE(SINGLE_NODE_MULTI_WRITER), true, NULL },
		{ "unknown mode", MOUNT, MODE(UNKNOWN), false, "access_mode" },
		{ "no mode", MOUNT, -1, false, "access_mode" },
		{ "mode of a later specification", MOUNT, 8, false, "access_mode" },
		{ "huge mode", MOUNT, INT_MAX, false, "access_mode" },
		{ "block", BLOCK, MODE(SINGLE_NODE_WRITER), false, "block" },
		{ "no access type", NO_ACCESS, MODE(SINGLE_NODE_WRITER), false, "access_type" },
		{ "nothing", NO_ACCESS, -1, false, "access_type" },
	};
	struct error err = { .code = ERROR_OK };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct capability good, c;
		Csi__V1__VolumeCapability *list[] = { &good.cap, &c.cap };
		struct error why = { .code = ERROR_OK };

		capability_init(&good, MOUNT, MODE(SINGLE_NODE_WRITER));
		capability_init(&c, rows[i].access, rows[i].mode);
		check_int(rows[i].name, "result", validate_capability(&c.cap, &why),
			  rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &why, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    rows[i].word);
		check_that(rows[i].name, "the message starts with the field",
			   rows[i].valid || str_has_prefix(why.msg, "volume_capability"));
		check_int(rows[i].name, "result in a list", validate_capabilities(list, 2, NULL),
			  rows[i].valid ? 0 : -EINVAL);
	}
	check_int("none", "result", validate_capabilities(NULL, 0, &err), -EINVAL);
	check_error("none", &err, ERROR_INVALID_ARGUMENT, "volume_capabilities");
}
END_TEST

START_TEST(test_flags)
{
	cleanup_free char *half = check_repeat("f", 2048), *more = check_repeat("f", 2049);
	char vers[] = "vers=3", hard[] = "hard", empty[] = "", bad[] = "a\nb", bind[] = "bind";
	const struct {
		const char *name;
		char *flags[3];
		size_t n;
		const char *options; /* joined; NULL: refused */
		bool nodes_refuse;
	} rows[] = {
		{ "none", { NULL }, 0, "" },
		{ "one", { vers }, 1, "vers=3" },
		{ "two", { vers, hard }, 2, "vers=3,hard" },
		{ "empty ones", { empty, hard, empty }, 3, "hard" },
		{ "bind", { hard, bind }, 2, "hard,bind", .nodes_refuse = true },
		{ "control", { vers, bad }, 2, NULL },
		{ "too long", { half, more }, 2, NULL },
	};
	char *fitting[] = { half, half };
	struct capability c;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		char *flags[3] = { rows[i].flags[0], rows[i].flags[1], rows[i].flags[2] };
		bool valid = rows[i].options != NULL;

		capability_init(&c, MOUNT, MODE(SINGLE_NODE_WRITER));
		c.mount.mount_flags = flags;
		c.mount.n_mount_flags = rows[i].n;
		check_int(rows[i].name, "result", validate_capability(&c.cap, &err),
			  valid ? 0 : -EINVAL);
		check_error(rows[i].name, &err, valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "mount_flags");
		if (valid) {
			cleanup_free char *options = capability_options(&c.cap);

			check_str(rows[i].name, "options", options, rows[i].options);
		}
		valid = valid && !rows[i].nodes_refuse;
		check_int(rows[i].name, "result in a list",
			  validate_capabilities(&(Csi__V1__VolumeCapability *){ &c.cap }, 1, NULL),
			  valid ? 0 : -EINVAL);
	}
	capability_init(&c, MOUNT, MODE(SINGLE_NODE_WRITER));
	c.mount.mount_flags = fitting;
	c.mount.n_mount_flags = 2;
	check_int("4096 bytes", "result", validate_capability(&c.cap, NULL), 0);
	check_int("4096 bytes and a comma", "result in a list",
		  validate_capabilities(&(Csi__V1__VolumeCapability *){ &c.cap }, 1, NULL),
		  -EINVAL);
}
END_TEST

START_TEST(test_capacity)
{
	static const struct {
		const char *name;
		int64_t required, limit;
		int64_t size;
		int result;
		enum error_code code;
		const char *word;
	} rows[] = {
		{ "empty range", 0, 0, 0, 0, ERROR_OK, NULL },
		{ "required", 10, 0, 10, 0, ERROR_OK, NULL },
		{ "limit", 0, 10, 10, 0, ERROR_OK, NULL },
		{ "both", 10, 20, 10, 0, ERROR_OK, NULL },
		{ "exactly", 10, 10, 10, 0, ERROR_OK, NULL },
		{ "odd", 10737418241, 0, 10737418241, 0, ERROR_OK, NULL },
		{ "largest", INT64_MAX, INT64_MAX, INT64_MAX, 0, ERROR_OK, NULL },
		{ "limit below", 11, 10, 0, -ERANGE, ERROR_OUT_OF_RANGE, "limit_bytes" },
		{ "negative required", -1, 0, 0, -EINVAL, ERROR_INVALID_ARGUMENT,
		  "required_bytes" },
		{ "negative limit", 0, -1, 0, -EINVAL, ERROR_INVALID_ARGUMENT, "limit_bytes" },
		{ "both negative", INT64_MIN, INT64_MIN, 0, -EINVAL, ERROR_INVALID_ARGUMENT,
		  "required_bytes" },
	};
	struct volume_capacity none;
	int64_t size = 4711;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
		struct volume_capacity capacity;
		struct error err = { .code = ERROR_OK };
		int64_t got = 4711;
		int r;

		range.required_bytes = rows[i].required;
		range.limit_bytes = rows[i].limit;
		capacity = capacity_of(&range);
		r = validate_capacity(&capacity, &got, &err);
		check_int(rows[i].name, "result", r, rows[i].result);
		check_error(rows[i].name, &err, rows[i].code, rows[i].word);
		if (r == 0)
			check_int(rows[i].name, "size", got, rows[i].size);
		else
			check_int(rows[i].name, "size, untouched", got, 4711);
	}
	none = capacity_of(NULL);
	check_int("no range", "result", validate_capacity(&none, &size, NULL), 0);
	check_int("no range", "size", size, 0);
}
END_TEST

START_TEST(test_compatible)
{
	static const struct {
		const char *name;
		int64_t size, required, limit;
		bool compatible;
	} rows[] = {
		{ "the same", 10, 10, 0, true },
		{ "more than required", 20, 10, 0, true },
		{ "less than required", 5, 10, 0, false },
		{ "between", 15, 10, 20, true },
		{ "at the limit", 20, 10, 20, true },
		{ "above the limit", 21, 10, 20, false },
		{ "nothing asked", 5, 0, 0, true },
		{ "unknown size", 0, 10, 0, false },
	};
	struct volume_capacity none;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__CapacityRange range = CSI__V1__CAPACITY_RANGE__INIT;
		struct volume_capacity capacity;

		range.required_bytes = rows[i].required;
		range.limit_bytes = rows[i].limit;
		capacity = capacity_of(&range);
		check_int(rows[i].name, "compatible",
			  capacity_is_compatible(rows[i].size, &capacity), rows[i].compatible);
	}
	none = capacity_of(NULL);
	check_that("no range", "compatible", capacity_is_compatible(5, &none));
}
END_TEST

CHECK_MAIN("validate", .tests = {
			       test_name,
			       test_volume_id,
			       test_path,
			       test_map,
			       test_capability,
			       test_flags,
			       test_capacity,
			       test_compatible,
		       })
