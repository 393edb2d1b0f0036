/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "csi.pb-c.h"
#include "csi/params.h"
#include "check_util.h"

#define PAIRS_MAX 8

typedef int parse_fn(struct volume_params *ret, const struct csi_map *map,
		     const struct volume_defaults *defaults, struct error *err);

static const struct volume_defaults no_defaults = { .server = NULL };

/* Parses a NULL-terminated list of keys and values, each an entry as they come off the wire. */
static int parse_pairs(parse_fn *parse, const char *const *pairs,
		       const struct volume_defaults *defaults, struct volume_params *ret,
		       struct error *err)
{
	Csi__V1__CreateVolumeRequest__ParametersEntry entries[PAIRS_MAX];
	Csi__V1__CreateVolumeRequest__ParametersEntry *list[PAIRS_MAX];
	struct csi_map map;
	size_t n;

	for (n = 0; n < PAIRS_MAX && pairs[2 * n] != NULL; n++) {
		csi__v1__create_volume_request__parameters_entry__init(&entries[n]);
		entries[n].key = (char *)(uintptr_t)pairs[2 * n];
		entries[n].value = (char *)(uintptr_t)pairs[2 * n + 1];
		list[n] = &entries[n];
	}
	map = csi_map_of_entries(list, n);
	return parse(ret, &map, defaults, err);
}

#define SRV "server", "s", "share", "/e"
#define META                                                                                       \
	"csi.storage.k8s.io/pvc/name", "claim", "csi.storage.k8s.io/pvc/namespace", "ns",          \
		"csi.storage.k8s.io/pv/name", "pvc-1"

START_TEST(test_accepted)
{
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *server, *share, *subdir, *on_delete_text;
		enum volume_on_delete on_delete;
		uint32_t mode;
	} rows[] = {
		{ "least", { SRV }, "s", "/e", NULL, NULL, ON_DELETE_DELETE, 0 },
		{ "any case",
		  { "SERVER", "s", "Share", "/e", "SUBDIR", "a", "OnDelete", "Retain" },
		  "s",
		  "/e",
		  "a",
		  "Retain",
		  ON_DELETE_RETAIN,
		  0 },
		{ "share of slashes", { "server", "s", "share", "//" }, "s", "//", NULL, NULL, 0, 0 },
		{ "relative share", { "server", "s", "share", "a/b/" }, "s", "a/b/", NULL, NULL, 0, 0 },
		{ "IPv6", { "server", "fd00::1", "share", "/e" }, "fd00::1", "/e", NULL, NULL, 0, 0 },
		{ "IPv6 in brackets",
		  { "server", "[fd00::1]", "share", "/e" },
		  "fd00::1",
		  "/e",
		  NULL,
		  NULL,
		  0,
		  0 },
		{ "last of the same key", { "server", "x", SRV }, "s", "/e", NULL, NULL, 0, 0 },
		{ "bad but replaced", { "subDir", "..", SRV, "subDir", "a" }, "s", "/e", "a", NULL, 0, 0 },
		{ "nested subDir", { SRV, "subDir", "/a/b/c/" }, "s", "/e", "a/b/c", NULL, 0, 0 },
		{ "empty subDir", { SRV, "subDir", "" }, "s", "/e", NULL, NULL, 0, 0 },
		{ "all templates",
		  { SRV, META, "subDir",
		    "${pvc.metadata.namespace}/${pvc.metadata.name}-${pv.metadata.name}" },
		  "s",
		  "/e",
		  "ns/claim-pvc-1",
		  NULL,
		  0,
		  0 },
		{ "slice",
		  { SRV, META, "subDir", "${pvc.metadata.name:1:3}" },
		  "s",
		  "/e",
		  "lai",
		  NULL,
		  0,
		  0 },
		{ "slice to the end",
		  { SRV, META, "subDir", "x${pvc.metadata.name:3}" },
		  "s",
		  "/e",
		  "xim",
		  NULL,
		  0,
		  0 },
		{ "slice over the end",
		  { SRV, META, "subDir", "x${pvc.metadata.name:3:99}${pvc.metadata.name:77:1}" },
		  "s",
		  "/e",
		  "xim",
		  NULL,
		  0,
		  0 },
		{ "default not needed",
		  { SRV, META, "subDir", "${pvc.metadata.name:-other}" },
		  "s",
		  "/e",
		  "claim",
		  NULL,
		  0,
		  0 },
		{ "default",
		  { SRV, "subDir", "${pvc.metadata.namespace:-none}/${pvc.metadata.name:-a:b}" },
		  "s",
		  "/e",
		  "none/a:b",
		  NULL,
		  0,
		  0 },
		{ "existing directory",
		  { SRV, "existingDirectory", "Require" },
		  "s",
		  "/e",
		  NULL,
		  NULL,
		  0,
		  0 },
		{ "template twice",
		  { SRV, META, "subDir", "${pvc.metadata.name}/${pvc.metadata.name}" },
		  "s",
		  "/e",
		  "claim/claim",
		  NULL,
		  0,
		  0 },
		{ "template before its key",
		  { "subDir", "x${pv.metadata.name}", SRV, META },
		  "s",
		  "/e",
		  "xpvc-1",
		  NULL,
		  0,
		  0 },
		{ "values are not templates",
		  { SRV, "subDir", "${pvc.metadata.name}", "csi.storage.k8s.io/pvc/name",
		    "${pv.metadata.name}" },
		  "s",
		  "/e",
		  "${pv.metadata.name}",
		  NULL,
		  0,
		  0 },
		{ "a dollar is a dollar", { SRV, "subDir", "a$b}{" }, "s", "/e", "a$b}{", NULL, 0, 0 },
		{ "mode", { SRV, "mountPermissions", "0777" }, "s", "/e", NULL, NULL, 0, 0777 },
		{ "mode without a leading zero",
		  { SRV, "mountPermissions", "755" },
		  "s",
		  "/e",
		  NULL,
		  NULL,
		  0,
		  0755 },
		{ "largest mode", { SRV, "mountPermissions", "7777" }, "s", "/e", NULL, NULL, 0, 07777 },
		{ "mode 0", { SRV, "mountPermissions", "0" }, "s", "/e", NULL, NULL, 0, 0 },
		{ "empty mode", { SRV, "mountPermissions", "" }, "s", "/e", NULL, NULL, 0, 0 },
		{ "archive",
		  { SRV, "onDelete", "ARCHIVE" },
		  "s",
		  "/e",
		  NULL,
		  "ARCHIVE",
		  ON_DELETE_ARCHIVE,
		  0 },
		{ "delete", { SRV, "onDelete", "delete" }, "s", "/e", NULL, "delete", ON_DELETE_DELETE, 0 },
		{ "sidecar keys",
		  { SRV, "csi.storage.k8s.io/provisioner-secret-name", "x", "csi.storage.k8s.io/fstype",
		    "ext4", "csiProvisionerSecretName", "y", "csiNodePublishSecretNamespace", "z" },
		  "s",
		  "/e",
		  NULL,
		  NULL,
		  0,
		  0 },
		{ "fsType nfs", { SRV, "fstype", "nfs" }, "s", "/e", NULL, NULL, 0, 0 },
		{ "fsType nfs4", { SRV, "fsType", "nfs4" }, "s", "/e", NULL, NULL, 0, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_params_parse, rows[i].pairs, &no_defaults, &p, &err);

		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "server", p.server, rows[i].server);
		check_str(rows[i].name, "share", p.share, rows[i].share);
		check_str(rows[i].name, "subDir", p.subdir, rows[i].subdir);
		check_str(rows[i].name, "onDelete's text", p.on_delete_text, rows[i].on_delete_text);
		check_int(rows[i].name, "onDelete", p.on_delete, rows[i].on_delete);
		check_int(rows[i].name, "mode", p.mode, rows[i].mode);
	}
}
END_TEST

START_TEST(test_refused)
{
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *word; /* in the message */
	} rows[] = {
		{ "nothing", { NULL }, "server" },
		{ "no server", { "share", "/e" }, "server" },
		{ "no share", { "server", "s" }, "share" },
		{ "empty server", { "server", "", "share", "/e" }, "server" },
		{ "empty brackets", { "server", "[]", "share", "/e" }, "server" },
		{ "two pairs of brackets", { "server", "[[fd00::1]]", "share", "/e" }, "server" },
		{ "server with a slash", { "server", "s/x", "share", "/e" }, "server" },
		{ "server with a port", { "server", "s:2049", "share", "/e" }, "server" },
		{ "server with a separator", { "server", "s#x", "share", "/e" }, "server" },
		{ "server that is an option", { "server", "-s", "share", "/e" }, "server" },
		{ "zone with a separator", { "server", "fe80::1%a#b", "share", "/e" }, "server" },
		{ "empty share", { "server", "s", "share", "" }, "share" },
		{ "dot dot in share", { "server", "s", "share", "/a/../b" }, "share" },
		{ "empty component in share", { "server", "s", "share", "/a//b" }, "share" },
		{ "separator in share", { "server", "s", "share", "/a#b" }, "share" },
		{ "control in share", { "server", "s", "share", "/a\x01" }, "share" },
		{ "dot dot as subDir", { SRV, "subDir", ".." }, "subDir" },
		{ "dot dot in subDir", { SRV, "subDir", "a/../b" }, "subDir" },
		{ "dot in subDir", { SRV, "subDir", "a/./b" }, "subDir" },
		{ "empty component in subDir", { SRV, "subDir", "a//b" }, "subDir" },
		{ "subDir of slashes", { SRV, "subDir", "//" }, "subDir" },
		{ "separator in subDir", { SRV, "subDir", "a#b" }, "subDir" },
		{ "line feed in subDir", { SRV, "subDir", "a\nb" }, "subDir" },
		{ "the driver's folder", { SRV, "subDir", ".csi-nfs" }, "subDir" },
		{ "in the driver's folder", { SRV, "subDir", "/.csi-nfs/trash" }, "subDir" },
		{ "the driver's folder by template",
		  { SRV, META, "subDir", ".csi-nfs/${pvc.metadata.name}" },
		  "subDir" },
		{ "template gives dot dot",
		  { SRV, "csi.storage.k8s.io/pvc/name", "..", "subDir", "a/${pvc.metadata.name}" },
		  "subDir" },
		{ "template without a value",
		  { SRV, "subDir", "${pvc.metadata.name}" },
		  "pvc.metadata.name" },
		{ "template with an empty value",
		  { SRV, "csi.storage.k8s.io/pv/name", "", "subDir", "a${pv.metadata.name}" },
		  "pv.metadata.name" },
		{ "unknown template", { SRV, META, "subDir", "${pvc.metadata.labels}" }, "subDir" },
		{ "template in another case",
		  { SRV, META, "subDir", "${PVC.metadata.name}" },
		  "subDir" },
		{ "slice of letters", { SRV, META, "subDir", "${pvc.metadata.name:a}" }, "subDir" },
		{ "slice of three", { SRV, META, "subDir", "${pvc.metadata.name:1:2:3}" }, "subDir" },
		{ "slice of nothing", { SRV, META, "subDir", "${pvc.metadata.name:}" }, "subDir" },
		{ "slice with a sign", { SRV, META, "subDir", "${pvc.metadata.name:1:-1}" }, "subDir" },
		{ "slice that cuts a character",
		  { SRV, "csi.storage.k8s.io/pvc/name", "\xc3\xbc", "subDir",
		    "${pvc.metadata.name:1}" },
		  "subDir" },
		{ "slice that leaves nothing",
		  { SRV, META, "subDir", "${pvc.metadata.name:50}" },
		  "subDir" },
		{ "slice of no value", { SRV, "subDir", "${pvc.metadata.name:0:3}" }, "subDir" },
		{ "default for an unknown one", { SRV, "subDir", "${x:-y}" }, "subDir" },
		{ "dot dot as default", { SRV, "subDir", "${pvc.metadata.name:-..}" }, "subDir" },
		{ "existing directory of another kind",
		  { SRV, "existingDirectory", "maybe" },
		  "existingDirectory" },
		{ "empty template", { SRV, META, "subDir", "a${}" }, "subDir" },
		{ "template without an end", { SRV, META, "subDir", "${pvc.metadata.name" }, "subDir" },
		{ "no octal digit", { SRV, "mountPermissions", "0788" }, "mountPermissions" },
		{ "mode too large", { SRV, "mountPermissions", "10000" }, "mountPermissions" },
		{ "huge mode",
		  { SRV, "mountPermissions", "77777777777777777777777" },
		  "mountPermissions" },
		{ "negative mode", { SRV, "mountPermissions", "-1" }, "mountPermissions" },
		{ "mode as Go writes it", { SRV, "mountPermissions", "0o755" }, "mountPermissions" },
		{ "mode in letters", { SRV, "mountPermissions", "rwxr-xr-x" }, "mountPermissions" },
		{ "mode with a space", { SRV, "mountPermissions", "755 " }, "mountPermissions" },
		{ "unknown onDelete", { SRV, "onDelete", "keep" }, "onDelete" },
		{ "onDelete with a space", { SRV, "onDelete", "retain " }, "onDelete" },
		{ "other file system", { SRV, "fsType", "ext4" }, "fsType" },
		{ "unknown key", { SRV, "colour", "red" }, "colour" },
		{ "unknown key, empty", { SRV, "", "red" }, "parameter" },
		{ "key with a space", { "server ", "s", "share", "/e" }, "server " },
		{ "mountOptions are no parameter", { SRV, "mountOptions", "vers=3" }, "mountOptions" },
		{ "two spellings", { SRV, "subDir", "a", "subdir", "a" }, "subDir" },
		{ "two spellings of server", { "Server", "s", SRV }, "Server" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_params_parse, rows[i].pairs, &no_defaults, &p, &err);

		check_int(rows[i].name, "result", r, -EINVAL);
		check_error(rows[i].name, &err, ERROR_INVALID_ARGUMENT, rows[i].word);
		check_that(rows[i].name, "nothing returned", p.server == NULL && p.share == NULL);
	}
}
END_TEST

START_TEST(test_defaults)
{
	static const struct volume_defaults defaults = { .server = "[fd00::9]",
							 .share = "/default",
							 .mode = 0770,
							 .on_delete = ON_DELETE_RETAIN };
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *server, *share;
		uint32_t mode;
		enum volume_on_delete on_delete;
	} rows[] = {
		{ "nothing given", { NULL }, "fd00::9", "/default", 0770, ON_DELETE_RETAIN },
		{ "server given", { "server", "s" }, "s", "/default", 0770, ON_DELETE_RETAIN },
		{ "share given", { "share", "/e" }, "fd00::9", "/e", 0770, ON_DELETE_RETAIN },
		{ "mode given", { "mountPermissions", "0" }, "fd00::9", "/default", 0, ON_DELETE_RETAIN },
		{ "mode empty", { "mountPermissions", "" }, "fd00::9", "/default", 0770, ON_DELETE_RETAIN },
		{ "delete given", { "onDelete", "delete" }, "fd00::9", "/default", 0770, ON_DELETE_DELETE },
		{ "archive given", { "onDelete", "archive" }, "fd00::9", "/default", 0770, ON_DELETE_ARCHIVE },
		/* As csi-driver-nfs: empty is not given. Otherwise data goes that was to be kept. */
		{ "onDelete empty", { "onDelete", "" }, "fd00::9", "/default", 0770, ON_DELETE_RETAIN },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_params_parse, rows[i].pairs, &defaults, &p, &err);

		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "server", p.server, rows[i].server);
		check_str(rows[i].name, "share", p.share, rows[i].share);
		check_int(rows[i].name, "mode", p.mode, rows[i].mode);
		check_int(rows[i].name, "onDelete", p.on_delete, rows[i].on_delete);
	}
}
END_TEST

START_TEST(test_attributes)
{
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *word; /* of the error; NULL: fine */
		const char *subdir, *options;
		uint32_t mode;
	} rows[] = {
		{ "least", { SRV }, NULL, NULL, NULL, 0 },
		{ "all",
		  { SRV, "subDir", "a/b", "mountOptions", "vers=4.1,soft", "mountPermissions", "0700" },
		  NULL,
		  "a/b",
		  "vers=4.1,soft",
		  0700 },
		{ "any case", { SRV, "SUBDIR", "a", "MOUNTOPTIONS", "ro" }, NULL, "a", "ro", 0 },
		{ "template", { SRV, META, "subDir", "${pvc.metadata.name}" }, NULL, "claim", NULL, 0 },
		{ "unknown keys of the CO",
		  { SRV, "storage.kubernetes.io/csiProvisionerIdentity", "1", "colour", "red",
		    "csi.storage.k8s.io/ephemeral", "true",
		    "csi.storage.k8s.io/serviceAccount.tokens", "{}" },
		  NULL,
		  NULL,
		  NULL,
		  0 },
		{ "parameters of creation",
		  { SRV, "onDelete", "nonsense", "fsType", "ext4" },
		  NULL,
		  NULL,
		  NULL,
		  0 },
		{ "no server", { "share", "/e" }, "server", NULL, NULL, 0 },
		{ "no share", { "server", "s" }, "share", NULL, NULL, 0 },
		{ "dot dot", { SRV, "subDir", "../a" }, "subDir", NULL, NULL, 0 },
		{ "the driver's folder", { SRV, "subDir", ".csi-nfs/trash" }, "subDir", NULL, NULL, 0 },
		{ "bad octal", { SRV, "mountPermissions", "9" }, "mountPermissions", NULL, NULL, 0 },
		{ "two spellings", { SRV, "subDir", "a", "SubDir", "b" }, "subDir", NULL, NULL, 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_attributes_parse, rows[i].pairs, &no_defaults, &p, &err);

		check_error(rows[i].name, &err,
			    rows[i].word != NULL ? ERROR_INVALID_ARGUMENT : ERROR_OK, rows[i].word);
		check_int(rows[i].name, "result", r, rows[i].word != NULL ? -EINVAL : 0);
		check_str(rows[i].name, "subDir", p.subdir, rows[i].subdir);
		check_str(rows[i].name, "mountOptions", p.mount_options, rows[i].options);
		check_int(rows[i].name, "mode", p.mode, rows[i].mode);
	}
}
END_TEST

START_TEST(test_on_delete)
{
	static const char *const bad[] = { "keep", "retai", "retained", " retain", "0" };
	enum volume_on_delete value = ON_DELETE_ARCHIVE;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		check_int(bad[i], "result", on_delete_parse(bad[i], &value), -EINVAL);
	check_int("bad", "untouched", value, ON_DELETE_ARCHIVE);
	check_int("empty", "result", on_delete_parse("", &value), 0);
	check_int("empty", "value", value, ON_DELETE_DELETE);
	for (i = ON_DELETE_DELETE; i <= ON_DELETE_ARCHIVE; i++) {
		const char *name = on_delete_name((enum volume_on_delete)i);

		check_int(name, "result", on_delete_parse(name, &value), 0);
		check_int(name, "value", value, i);
	}
}
END_TEST

CHECK_MAIN("params", .tests = {
			     test_accepted,
			     test_refused,
			     test_defaults,
			     test_attributes,
			     test_on_delete,
		     })
