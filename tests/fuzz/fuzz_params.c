/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "csi.pb-c.h"
#include "csi/params.h"
#include "store/volume_id.h"
#include "nfs/export.h"

#define ENTRIES_MAX 16

/* What is accepted can be made: its path is checked, and its id reads back. */
static void check_params(const struct volume_params *p)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_free char *share = path_trim(p->share), *text = NULL;
	char key[] = "pvc-1", none[] = "";
	const struct volume_id want = {
		.server = p->server,
		.share = share,
		.subdir = p->subdir != NULL ? p->subdir : key,
		.uuid = p->subdir != NULL ? key : none,
		.on_delete = p->on_delete_text != NULL ? p->on_delete_text : none,
	};
	int r;

	assert(p->mode <= 07777);
	assert(p->subdir == NULL || path_check_relative(p->subdir, "subDir", NULL) == 0);
	assert(p->subdir == NULL || !path_has_component(p->subdir, ".csi-nfs"));
	assert(!str_has_control(p->server) && strpbrk(p->server, "/#,") == NULL);
	r = nfs_export_init(&e, p->server, p->share, NULL);
	assert(r == 0 && strcmp(e.server, p->server) == 0 && e.share[0] == '/');
	text = volume_id_format(&want);
	r = volume_id_parse(&id, text);
	/* create_volume.c makes another one where this is too long. */
	if (strlen(text) > VOLUME_ID_TEXT_MAX)
		return;
	assert(r == 0);
	assert(str_eq(id.server, p->server) && str_eq(id.share, share));
	assert(str_eq(id.subdir, want.subdir) && str_eq(id.uuid, want.uuid));
	assert(str_eq(id.on_delete, want.on_delete));
}

/* A node takes a '#', which cannot be in an id. */
static void check_attributes(const struct volume_params *p)
{
	if (strchr(p->share, '#') == NULL &&
	    (p->subdir == NULL || strchr(p->subdir, '#') == NULL)) {
		check_params(p);
		return;
	}
	assert(p->mode <= 07777);
	assert(nfs_share_check_mounted(p->share, NULL) == 0);
	assert(p->subdir == NULL || path_check_mounted(p->subdir, "subDir", NULL) == 0);
	assert(p->subdir == NULL || !path_has_component(p->subdir, ".csi-nfs"));
	assert(!str_has_control(p->server) && strpbrk(p->server, "/#,") == NULL);
}

/* Lines of key=value become entries. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Csi__V1__CreateVolumeRequest__ParametersEntry entries[ENTRIES_MAX], *list[ENTRIES_MAX];
	static const struct volume_defaults none = { .server = NULL };
	static const struct volume_defaults some = { .server = "s", .share = "/", .mode = 0770 };
	struct volume_params p = { .server = NULL };
	cleanup_strv struct strv lines = { NULL, 0 };
	cleanup_free char *text = NULL;
	struct csi_map map;
	size_t n;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	text = fuzz_string(data, size);
	if (strv_split(&lines, text, '\n') < 0)
		return 0;
	for (n = 0; n < lines.n && n < ENTRIES_MAX; n++) {
		char *value = strchr(lines.items[n], '=');

		csi__v1__create_volume_request__parameters_entry__init(&entries[n]);
		entries[n].key = lines.items[n];
		if (value != NULL) {
			*value = '\0';
			entries[n].value = value + 1;
		}
		list[n] = &entries[n];
	}
	map = csi_map_of_entries(list, n);
	if (volume_params_parse(&p, &map, &none, NULL) == 0)
		check_params(&p);
	volume_params_done(&p);
	if (volume_params_parse(&p, &map, &some, NULL) == 0)
		check_params(&p);
	volume_params_done(&p);
	if (volume_attributes_parse(&p, &map, &some, NULL) == 0)
		check_attributes(&p);
	volume_params_done(&p);
	return 0;
}
