/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <stdlib.h>

#include "csi.pb-c.h"
#include "csi/map.h"
#include "check_util.h"

#define ENTRIES_MAX 4

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

START_TEST(test_get)
{
	static const struct {
		const char *name;
		const char *pairs[2 * ENTRIES_MAX];
		size_t n;
		const char *key;
		const char *value;
	} rows[] = {
		{ "empty map", { NULL }, 0, "a", NULL },
		{ "found", { "a", "1", "b", "2" }, 2, "b", "2" },
		{ "not found", { "a", "1" }, 1, "b", NULL },
		{ "any case", { "SUBdir", "1" }, 1, "subDir", "1" },
		{ "last of the same", { "a", "1", "b", "2", "a", "3" }, 3, "a", "3" },
		{ "last of two spellings", { "a", "1", "A", "2" }, 2, "a", "2" },
		{ "empty value", { "a", "" }, 1, "a", "" },
		{ "empty key", { "", "1" }, 1, "", "1" },
		{ "a part of the key", { "abc", "1" }, 1, "ab", NULL },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__CreateVolumeRequest__ParametersEntry entries[ENTRIES_MAX];
		Csi__V1__CreateVolumeRequest__ParametersEntry *list[ENTRIES_MAX];
		Csi__V1__CreateVolumeRequest in = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
		struct csi_map map;

		for (k = 0; k < rows[i].n; k++) {
			csi__v1__create_volume_request__parameters_entry__init(&entries[k]);
			entries[k].key = text(rows[i].pairs[2 * k]);
			entries[k].value = text(rows[i].pairs[2 * k + 1]);
			list[k] = &entries[k];
		}
		in.parameters = list;
		in.n_parameters = rows[i].n;
		map = csi_map_of(&in, parameters);
		check_int(rows[i].name, "entries", map.n, rows[i].n);
		check_str(rows[i].name, "value", csi_map_get(&map, rows[i].key), rows[i].value);
	}
}
END_TEST

/* On the wire: duplicates, and entries without key, without value, with neither. */
START_TEST(test_wire)
{
	static const uint8_t bytes[] = {
		0x22, 0x06, 0x0a, 0x01, 'a', 0x12, 0x01, '1', /* a: 1 */
		0x22, 0x03, 0x12, 0x01, '2', /* : 2 */
		0x22, 0x03, 0x0a, 0x01, 'b', /* b: */
		0x22, 0x06, 0x0a, 0x01, 'a', 0x12, 0x01, '3', /* a: 3 */
		0x22, 0x00, /* : */
	};
	static const struct {
		const char *name;
		const char *key, *value;
		bool replaced;
	} rows[] = {
		{ "first", "a", "1", true },         { "without key", "", "2", true },
		{ "without value", "b", "", false }, { "again", "a", "3", false },
		{ "with neither", "", "", false },
	};
	Csi__V1__CreateVolumeRequest *in =
		csi__v1__create_volume_request__unpack(NULL, sizeof(bytes), bytes);
	struct csi_map map;
	size_t i;

	ck_assert_msg(in != NULL, "the message unpacks");
	map = csi_map_of(in, parameters);
	check_int("all", "entries", map.n, ARRAY_SIZE(rows));
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_str(rows[i].name, "key", csi_map_key(&map, i), rows[i].key);
		check_str(rows[i].name, "value", csi_map_value(&map, i), rows[i].value);
		check_int(rows[i].name, "replaced", csi_map_is_replaced(&map, i), rows[i].replaced);
	}
	check_str("last one", "value", csi_map_get(&map, "A"), "3");
	csi__v1__create_volume_request__free_unpacked(in, NULL);
}
END_TEST

/* Each map field has a message type of its own. */
START_TEST(test_types)
{
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry context =
		CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__VOLUME_CONTEXT_ENTRY__INIT;
	Csi__V1__DeleteVolumeRequest__SecretsEntry secret =
		CSI__V1__DELETE_VOLUME_REQUEST__SECRETS_ENTRY__INIT;
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry *contexts[] = { &context };
	Csi__V1__DeleteVolumeRequest__SecretsEntry *secrets[] = { &secret };
	Csi__V1__NodePublishVolumeRequest publish = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__DeleteVolumeRequest delete = CSI__V1__DELETE_VOLUME_REQUEST__INIT;
	struct csi_map map;

	context.key = text("server");
	context.value = text("s");
	publish.volume_context = contexts;
	publish.n_volume_context = 1;
	secret.key = text("mountOptions");
	secret.value = text("vers=3");
	delete.secrets = secrets;
	delete.n_secrets = 1;
	map = csi_map_of(&publish, volume_context);
	check_str("volume_context", "value", csi_map_get(&map, "SERVER"), "s");
	map = csi_map_of(&delete, secrets);
	check_str("secrets", "value", csi_map_get(&map, "mountoptions"), "vers=3");
}
END_TEST

CHECK_MAIN("map", .tests = { test_get, test_wire, test_types })
