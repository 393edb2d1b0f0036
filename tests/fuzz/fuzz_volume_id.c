/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "store/volume_id.h"
#include "net/address.h"
#include "store/record.h"

/* What is taken for an id stays within the share, and says the same when it is written again. */
static void check_id(const struct volume_id *id)
{
	cleanup_volume_id struct volume_id again = { .server = NULL };
	cleanup_free char *text = volume_id_format(id);
	int r;

	assert(net_server_check(id->server, NULL) == 0);
	assert(!str_has_control(id->server) && strpbrk(id->server, "/#,") == NULL);
	assert(id->share[0] == '\0' || path_check_relative(id->share, "share", NULL) == 0);
	assert(path_check_relative(id->subdir, "subDir", NULL) == 0);
	assert(!path_has_component(id->subdir, ".csi-nfs"));
	assert(id->uuid[0] == '\0' || path_check_relative(id->uuid, "uuid", NULL) == 0);
	assert(strchr(id->uuid, '/') == NULL);
	assert(text != NULL);
	r = volume_id_parse(&again, text);
	assert(r == 0);
	assert(str_eq(again.server, id->server) && str_eq(again.share, id->share));
	assert(str_eq(again.subdir, id->subdir) && str_eq(again.uuid, id->uuid));
	assert(str_eq(again.on_delete, id->on_delete));
	assert(volume_id_key(id)[0] != '\0');
}

/* Any name gives a key that can be a directory, a record and a part of an id. */
static void check_key(const char *name)
{
	cleanup_free char *key = NULL, *again = NULL;
	int r;

	r = volume_key(name, "server", "share/of/some/length", &key, NULL);
	assert(r == 0);
	r = volume_key(name, "server", "share/of/some/length", &again, NULL);
	assert(r == 0 && strcmp(key, again) == 0);
	assert(name[0] == '\0' || path_check_relative(key, "key", NULL) == 0);
	assert(strchr(key, '/') == NULL && key[0] != '.');
	assert(strlen(key) <= RECORD_NAME_MAX && strlen(key) <= VOLUME_ID_MAX);
	assert(!str_is_utf8(name, strlen(name)) || str_is_utf8(key, strlen(key)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_free char *text = NULL;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	text = fuzz_string(data, size);
	if (volume_id_parse(&id, text) == 0)
		check_id(&id);
	check_key(text);
	return 0;
}
