/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/mount_options.h"
#include "base/str.h"

/* The helper process parses what the driver has parsed and must come to the same. */
static void check_parsed(const struct mount_options *o)
{
	cleanup_mount_options struct mount_options again = { .minor = -1 };
	int r;

	assert(o->major == 0 || o->major == 3 || o->major == 4);
	assert(o->minor >= -1 && o->minor <= 2 && (o->minor < 0 || o->major == 4));
	assert(!str_has_control(o->rest) && o->rest[0] != '-' && o->rest[0] != ',');
	r = mount_options_parse(&again, o->rest, NULL);
	assert(r == 0 && strcmp(again.rest, o->rest) == 0);
	assert(again.major == 0 && again.minor == -1 && again.port == o->port);
	assert(str_eq(again.sec, o->sec) && again.read_only == o->read_only);
	assert(again.no_lock == o->no_lock && again.no_ping == o->no_ping);
}

/* Controller and nodes reach the same server by the same options. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_mount_options struct mount_options parsed = { .minor = -1 }, read = { .minor = -1 };
	struct error err = { .code = ERROR_OK };
	cleanup_free char *text = NULL;
	int r;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	text = fuzz_string(data, size);
	r = mount_options_parse(&parsed, text, &err);
	assert(r == mount_options_check(text, NULL));
	/* A message with a value, which may be secret, would have the '=' before it. */
	assert(r == 0 || (r == -EINVAL && str_has_prefix(err.msg, "mount options: ")));
	assert(strchr(err.msg, '=') == NULL);
	if (r == 0)
		check_parsed(&parsed);
	if (mount_options_read(&read, text, NULL) < 0 || r < 0)
		return 0;
	assert(read.port == parsed.port && str_eq(read.sec, parsed.sec));
	assert(strstr(text, "minorversion=") != NULL ||
	       (read.major == parsed.major && read.minor == parsed.minor));
	return 0;
}
