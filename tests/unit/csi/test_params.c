/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "csi.pb-c.h"
#include "csi/params.h"
#include "csi/snapshot_params.h"
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
#define PVC_NAME "csi.storage.k8s.io/pvc/name"
#define PVC_NAMESPACE "csi.storage.k8s.io/pvc/namespace"
#define PV_NAME "csi.storage.k8s.io/pv/name"
#define META PVC_NAME, "claim", PVC_NAMESPACE, "ns", PV_NAME, "pvc-1"
#define PVC "${pvc.metadata.name}"
#define NS "${pvc.metadata.namespace}"
#define PV "${pv.metadata.name}"

START_TEST(test_accepted)
{
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *server, *share; /* NULL: those of SRV */
		const char *subdir, *policy;
		enum volume_on_delete on_delete;
		uint32_t mode;
		bool has_existing;
		enum volume_existing existing;
	} rows[] = {
		{ "least", { SRV } },
		{ "any case", { "SERVER", "s", "Share", "/e", "SUBDIR", "a" }, .subdir = "a" },
		{ "share of slashes", { "server", "s", "share", "//" }, .share = "//" },
		{ "relative share", { "server", "s", "share", "a/b/" }, .share = "a/b/" },
		{ "IPv6", { "server", "fd00::1", "share", "/e" }, .server = "fd00::1" },
		{ "brackets", { "server", "[fd00::1]", "share", "/e" }, .server = "fd00::1" },
		{ "last of the same key", { "server", "x", SRV } },
		{ "bad but replaced", { "subDir", "..", SRV, "subDir", "a" }, .subdir = "a" },
		{ "empty subDir", { SRV, "subDir", "" } },
		{ "before its key", { "subDir", PV, SRV, META }, .subdir = "pvc-1" },
		{ "no template", { SRV, "subDir", PVC, PVC_NAME, PV }, .subdir = PV },
		{ "existing directory",
		  { SRV, "existingDirectory", "Require" },
		  .has_existing = true,
		  .existing = EXISTING_REQUIRE },
		{ "mode", { SRV, "mountPermissions", "0777" }, .mode = 0777 },
		{ "mode without a leading zero", { SRV, "mountPermissions", "755" }, .mode = 0755 },
		{ "largest mode", { SRV, "mountPermissions", "7777" }, .mode = 07777 },
		{ "mode 0", { SRV, "mountPermissions", "0" } },
		{ "empty mode", { SRV, "mountPermissions", "" } },
		{ "delete", { SRV, "onDelete", "delete" }, .policy = "delete", ON_DELETE_DELETE },
		{ "retain", { SRV, "OnDelete", "Retain" }, .policy = "Retain", ON_DELETE_RETAIN },
		{ "archive",
		  { SRV, "onDelete", "ARCHIVE" },
		  .policy = "ARCHIVE",
		  ON_DELETE_ARCHIVE },
		{ "secret", { SRV, "csi.storage.k8s.io/provisioner-secret-name", "x" } },
		{ "fstype", { SRV, "csi.storage.k8s.io/fstype", "ext4" } },
		{ "old secret", { SRV, "csiProvisionerSecretName", "y" } },
		{ "old namespace", { SRV, "csiNodePublishSecretNamespace", "z" } },
		{ "fsType nfs", { SRV, "fstype", "nfs" } },
		{ "fsType nfs4", { SRV, "fsType", "nfs4" } },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_params_parse, rows[i].pairs, &no_defaults, &p, &err);
		const char *server = rows[i].server != NULL ? rows[i].server : "s";
		const char *share = rows[i].share != NULL ? rows[i].share : "/e";

		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "server", p.server, server);
		check_str(rows[i].name, "share", p.share, share);
		check_str(rows[i].name, "subDir", p.subdir, rows[i].subdir);
		check_str(rows[i].name, "onDelete's text", p.on_delete_text, rows[i].policy);
		check_int(rows[i].name, "onDelete", p.on_delete, rows[i].on_delete);
		check_int(rows[i].name, "mode", p.mode, rows[i].mode);
		check_int(rows[i].name, "existingDirectory", p.existing, rows[i].existing);
		check_int(rows[i].name, "is given", p.has_existing, rows[i].has_existing);
	}
}
END_TEST

START_TEST(test_subdir)
{
	static const struct {
		const char *name, *value, *subdir;
		bool no_metadata;
	} rows[] = {
		{ "nested", "/a/b/c/", "a/b/c" },
		{ "all templates", NS "/" PVC "-" PV, "ns/claim-pvc-1" },
		{ "twice", PVC "/" PVC, "claim/claim" },
		{ "slice", "${pvc.metadata.name:1:3}", "lai" },
		{ "to the end", "x${pvc.metadata.name:3}", "xim" },
		{ "over the end", "x${pvc.metadata.name:3:99}${pvc.metadata.name:77:1}", "xim" },
		{ "default not needed", "${pvc.metadata.name:-other}", "claim" },
		{ "default", "${pvc.metadata.namespace:-none}", "none", .no_metadata = true },
		{ "its colon", "x/${pvc.metadata.name:-a:b}", "x/a:b", .no_metadata = true },
		{ "a dollar is a dollar", "a$b}{", "a$b}{" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *with[] = { SRV, "subDir", rows[i].value, META, NULL };
		const char *without[] = { SRV, "subDir", rows[i].value, NULL };
		const char *const *pairs = rows[i].no_metadata ? without : with;
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };

		(void)parse_pairs(volume_params_parse, pairs, &no_defaults, &p, &err);
		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_str(rows[i].name, "subDir", p.subdir, rows[i].subdir);
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
		{ "separator in share", { "server", "s", "share", "/a#b" }, "share" },
		{ "control in share", { "server", "s", "share", "/a\x01" }, "share" },
		{ "dot dot as subDir", { SRV, "subDir", ".." }, "subDir" },
		{ "dot dot in subDir", { SRV, "subDir", "a/../b" }, "subDir" },
		{ "dot as subDir", { SRV, "subDir", "./" }, "subDir" },
		{ "subDir of slashes", { SRV, "subDir", "//" }, "subDir" },
		{ "separator in subDir", { SRV, "subDir", "a#b" }, "subDir" },
		{ "line feed in subDir", { SRV, "subDir", "a\nb" }, "subDir" },
		{ "the driver's folder", { SRV, "subDir", ".csi-nfs" }, "subDir" },
		{ "in the driver's folder", { SRV, "subDir", "/.csi-nfs/trash" }, "subDir" },
		{ "by template", { SRV, META, "subDir", ".csi-nfs/" PVC }, "subDir" },
		{ "template gives dot dot", { SRV, PVC_NAME, "..", "subDir", "a/" PVC }, "subDir" },
		{ "template without a value", { SRV, "subDir", PVC }, "pvc.metadata.name" },
		{ "empty value", { SRV, PV_NAME, "", "subDir", "a" PV }, "pv.metadata.name" },
		{ "unknown template", { SRV, META, "subDir", "${pvc.metadata.labels}" }, "subDir" },
		{ "another case", { SRV, META, "subDir", "${PVC.metadata.name}" }, "subDir" },
		{ "slice of letters", { SRV, META, "subDir", "${pvc.metadata.name:a}" }, "subDir" },
		{ "of three", { SRV, META, "subDir", "${pvc.metadata.name:1:2:3}" }, "subDir" },
		{ "of nothing", { SRV, META, "subDir", "${pvc.metadata.name:}" }, "subDir" },
		{ "with a sign", { SRV, META, "subDir", "${pvc.metadata.name:1:-1}" }, "subDir" },
		{ "cuts",
		  { SRV, PVC_NAME, "\xc3\xbc", "subDir", "${pvc.metadata.name:1}" },
		  "subDir" },
		{ "leaves nothing", { SRV, META, "subDir", "${pvc.metadata.name:50}" }, "subDir" },
		{ "of no value", { SRV, "subDir", "${pvc.metadata.name:0:3}" }, "subDir" },
		{ "default for an unknown one", { SRV, "subDir", "${x:-y}" }, "subDir" },
		{ "a variable as default",
		  { SRV, META, "subDir", "${pvc.metadata.name:-${pv.metadata.name}}" },
		  "subDir" },
		{ "dot dot as default", { SRV, "subDir", "${pvc.metadata.name:-..}" }, "subDir" },
		{ "maybe", { SRV, "existingDirectory", "maybe" }, "existingDirectory" },
		{ "empty template", { SRV, META, "subDir", "a${}" }, "subDir" },
		{ "template without an end",
		  { SRV, META, "subDir", "${pvc.metadata.name" },
		  "subDir" },
		{ "no octal digit", { SRV, "mountPermissions", "0788" }, "mountPermissions" },
		{ "mode too large", { SRV, "mountPermissions", "10000" }, "mountPermissions" },
		{ "huge mode",
		  { SRV, "mountPermissions", "7777777777777777777777" },
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
		{ "mountOptions are no parameter",
		  { SRV, "mountOptions", "vers=3" },
		  "mountOptions" },
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
		const char *server, *share; /* NULL: the default */
		int mode; /* -1: the default */
		enum volume_on_delete on_delete;
	} rows[] = {
		{ "nothing given", { NULL }, NULL, NULL, -1, ON_DELETE_RETAIN },
		{ "server given", { "server", "s" }, "s", NULL, -1, ON_DELETE_RETAIN },
		{ "share given", { "share", "/e" }, NULL, "/e", -1, ON_DELETE_RETAIN },
		{ "mode given", { "mountPermissions", "0" }, NULL, NULL, 0, ON_DELETE_RETAIN },
		{ "mode empty", { "mountPermissions", "" }, NULL, NULL, -1, ON_DELETE_RETAIN },
		{ "delete given", { "onDelete", "delete" }, NULL, NULL, -1, ON_DELETE_DELETE },
		{ "archive given", { "onDelete", "archive" }, NULL, NULL, -1, ON_DELETE_ARCHIVE },
		/* Empty means not given, as in csi-driver-nfs: data may have to be kept. */
		{ "onDelete empty", { "onDelete", "" }, NULL, NULL, -1, ON_DELETE_RETAIN },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_params struct volume_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_pairs(volume_params_parse, rows[i].pairs, &defaults, &p, &err);
		const char *server = rows[i].server != NULL ? rows[i].server : "fd00::9";
		const char *share = rows[i].share != NULL ? rows[i].share : "/default";

		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "server", p.server, server);
		check_str(rows[i].name, "share", p.share, share);
		check_int(rows[i].name, "mode", p.mode, rows[i].mode < 0 ? 0770 : rows[i].mode);
		check_int(rows[i].name, "onDelete", p.on_delete, rows[i].on_delete);
	}
}
END_TEST

START_TEST(test_attributes)
{
	static char large[4096];
	static const struct {
		const char *name;
		const char *pairs[2 * PAIRS_MAX + 1];
		const char *word; /* of the error; NULL: fine */
		const char *subdir, *options;
		uint32_t mode;
	} rows[] = {
		{ "least", { SRV } },
		{ "subDir", { SRV, "subDir", "a/b" }, .subdir = "a/b" },
		{ "its case", { SRV, "SUBDIR", "a" }, .subdir = "a" },
		{ "options", { SRV, "mountOptions", "vers=4.1,soft" }, .options = "vers=4.1,soft" },
		{ "their case", { SRV, "MOUNTOPTIONS", "ro" }, .options = "ro" },
		{ "mode", { SRV, "mountPermissions", "0700" }, .mode = 0700 },
		{ "template", { SRV, META, "subDir", PVC }, .subdir = "claim" },
		/* csi-driver-nfs has made directories of these names. */
		{ "repeated slash", { SRV, "subDir", "/a//./b/" }, .subdir = "a/b" },
		{ "separator of ids",
		  { "server", "s", "share", "/e#", "subDir", "a#b" },
		  .subdir = "a#b" },
		{ "unknown variable", { SRV, META, "subDir", "${x}/" PVC }, .subdir = "${x}/claim" },
		{ "without a value", { SRV, "subDir", PVC "/a" }, .subdir = PVC "/a" },
		{ "template without an end",
		  { SRV, META, "subDir", PVC "${x" },
		  .subdir = "claim${x" },
		/* Unknown keys, as the orchestrator adds them. */
		{ "identity", { SRV, "storage.kubernetes.io/csiProvisionerIdentity", "1" } },
		{ "ephemeral", { SRV, "csi.storage.k8s.io/ephemeral", "true" } },
		{ "tokens", { SRV, "csi.storage.k8s.io/serviceAccount.tokens", "{}" } },
		{ "any other", { SRV, "colour", "red" } },
		{ "parameters of creation", { SRV, "onDelete", "nonsense", "fsType", "ext4" } },
		{ "no server", { "share", "/e" }, .word = "server" },
		{ "no share", { "server", "s" }, .word = "share" },
		{ "dot dot", { SRV, "subDir", "../a" }, .word = "subDir" },
		{ "the driver's folder", { SRV, "subDir", ".csi-nfs/trash" }, .word = "subDir" },
		{ "bad octal", { SRV, "mountPermissions", "9" }, .word = "mountPermissions" },
		{ "two spellings", { SRV, "subDir", "a", "SubDir", "b" }, .word = "subDir" },
		{ "too long", { SRV, "colour", large }, .word = "volume_context: has 4115 bytes" },
		{ "long tokens", { SRV, "csi.storage.k8s.io/serviceAccount.tokens", large } },
		{ "long identity", { SRV, "storage.kubernetes.io/csiProvisionerIdentity", large } },
	};
	size_t i;

	memset(large, 'a', sizeof(large) - 1);
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

static int parse_snapshot(const char *const pairs[], struct snapshot_params *ret, struct error *err)
{
	Csi__V1__CreateSnapshotRequest__ParametersEntry entries[3], *list[3];
	Csi__V1__CreateSnapshotRequest in = CSI__V1__CREATE_SNAPSHOT_REQUEST__INIT;
	struct csi_map map;

	for (; in.n_parameters < 3 && pairs[2 * in.n_parameters] != NULL; in.n_parameters++) {
		const size_t i = in.n_parameters;

		csi__v1__create_snapshot_request__parameters_entry__init(&entries[i]);
		entries[i].key = (char *)(uintptr_t)pairs[2 * i];
		entries[i].value = (char *)(uintptr_t)pairs[2 * i + 1];
		list[i] = &entries[i];
	}
	in.parameters = list;
	map = csi_map_of(&in, parameters);
	return snapshot_params_parse(ret, &map, TREE_COMPRESSION_GZIP, err);
}

START_TEST(test_snapshot_class)
{
	static const struct {
		const char *name;
		const char *pairs[8];
		enum tree_compression compression;
		bool is_tree;
		const char *word; /* of the refusal; NULL: accepted */
	} rows[] = {
		{ "nothing", { NULL }, TREE_COMPRESSION_GZIP },
		{ "tree", { "format", "tree" }, TREE_COMPRESSION_GZIP, .is_tree = true },
		{ "any case", { "Format", "TREE" }, TREE_COMPRESSION_GZIP, .is_tree = true },
		{ "archive", { "format", "archive" }, TREE_COMPRESSION_GZIP },
		{ "both", { "format", "archive", "compression", "zstd" }, TREE_COMPRESSION_ZSTD },
		{ "compressed tree",
		  { "format", "tree", "compression", "gzip" },
		  .word = "archives" },
		{ "the other way", { "compression", "none", "format", "tree" }, .word = "archives" },
		{ "another format", { "format", "zip" }, .word = "archive or tree" },
		{ "empty format", { "format", "" }, .word = "archive or tree" },
		{ "another compression", { "compression", "xz" }, .word = "none, gzip or zstd" },
		{ "unknown", { "colour", "red" }, .word = "colour" },
		{ "two spellings", { "format", "tree", "FORMAT", "archive" }, .word = "format" },
		{ "twice", { "format", "zip", "format", "tree" }, TREE_COMPRESSION_GZIP, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct snapshot_params p = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = parse_snapshot(rows[i].pairs, &p, &err);

		check_error(rows[i].name, &err,
			    rows[i].word != NULL ? ERROR_INVALID_ARGUMENT : ERROR_OK, rows[i].word);
		check_int(rows[i].name, "result", r, rows[i].word != NULL ? -EINVAL : 0);
		if (r == 0) {
			check_int(rows[i].name, "compression", p.compression, rows[i].compression);
			check_int(rows[i].name, "is a tree", p.format == SNAPSHOT_TREE,
				  rows[i].is_tree);
		}
		snapshot_params_done(&p);
	}
}
END_TEST

CHECK_MAIN("params", .tests = {
			     test_accepted,
			     test_subdir,
			     test_refused,
			     test_defaults,
			     test_attributes,
			     test_on_delete,
			     test_snapshot_class,
		     })
