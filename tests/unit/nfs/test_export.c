/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "net/address.h"
#include "nfs/export.h"
#include "check_util.h"

START_TEST(test_server)
{
	static const struct {
		const char *name;
		const char *server;
		bool valid;
	} rows[] = {
		{ "host name", "nfs.example.com", true },
		{ "one label", "nas", true },
		{ "service", "nfs-server.default.svc.cluster.local", true },
		{ "final dot", "nas.example.", true },
		{ "underscore", "my_nas", true },
		{ "IPv4", "10.0.0.1", true },
		{ "IPv6", "fd00::1", true },
		{ "IPv6 any", "::", true },
		{ "IPv6 with IPv4", "::ffff:10.0.0.1", true },
		{ "IPv6 with a zone", "fe80::1%eth0", true },
		{ "IPv6 in brackets", "[fd00::1]", true },
		{ "empty", "", false },
		{ "port", "nas:2049", false },
		{ "IPv6 with too much", "fd00::1::2", false },
		{ "IPv6, one bracket", "[fd00::1", false },
		{ "two pairs of brackets", "[[fd00::1]]", false },
		{ "name in brackets", "[nas]", false },
		{ "empty brackets", "[]", false },
		{ "path", "nas/export", false },
		{ "option", "-o", false },
		{ "leading dot", ".nas", false },
		{ "empty label", "nas..example", false },
		{ "two final dots", "nas.example..", false },
		{ "address with too much", "10.0.0.256", false },
		{ "address with an empty number", "10..0.1", false },
		{ "address that C can write", "010.0.0.1", true },
		{ "name of numbers and letters", "10.0.0.1a", true },
		{ "separator", "nas#x", false },
		{ "space", "na s", false },
		{ "comma", "nas,ro", false },
		{ "line feed", "nas\n", false },
		{ "UTF-8", "n\xc3\xa4s", false },
		{ "at", "root@nas", false },
		{ "empty zone", "fe80::1%", false },
		{ "zone with a separator", "fe80::1%a#b", false },
		{ "zone with a slash", "fe80::1%a/b", false },
		{ "zone with a comma", "fe80::1%a,b", false },
		{ "zone with a bracket", "fe80::1%a]:/", false },
		{ "zone with a line feed", "fe80::1%a\nb", false },
	};
	cleanup_free char *label = check_repeat("n", 63), *long_label = check_repeat("n", 64);
	cleanup_free char *name = check_repeat("n.", 126), *long_name = check_repeat("n.", 127);
	char text[300];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].name, "result", net_server_check(rows[i].server, &err),
			  rows[i].valid ? 0 : -EINVAL);
		check_error(rows[i].name, &err, rows[i].valid ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "server");
	}
	check_int("label of 63 bytes", "result", net_server_check(label, NULL), 0);
	check_int("label of 64 bytes", "result", net_server_check(long_label, NULL), -EINVAL);
	(void)snprintf(text, sizeof(text), "nas.%s", long_label);
	check_int("later label of 64 bytes", "result", net_server_check(text, NULL), -EINVAL);
	(void)snprintf(text, sizeof(text), "%sn", name);
	check_int("253 bytes", "result", net_server_check(text, NULL), 0);
	(void)snprintf(text, sizeof(text), "%sn.", name);
	check_int("253 bytes and a dot", "result", net_server_check(text, NULL), 0);
	(void)snprintf(text, sizeof(text), "%snn", name);
	check_int("254 bytes", "result", net_server_check(text, NULL), -EINVAL);
	check_int("127 labels and a dot", "result", net_server_check(long_name, NULL), 0);
}
END_TEST

START_TEST(test_init)
{
	static const struct {
		const char *name;
		const char *server, *share;
		const char *want_server, *want_share;
		const char *word; /* in the error; NULL: success */
	} rows[] = {
		{ "plain", "nas", "/a/b", "nas", "/a/b", NULL },
		{ "root", "nas", "/", "nas", "/", NULL },
		{ "empty share", "nas", "", "nas", "/", NULL },
		{ "slashes", "nas", "//a/b//", "nas", "/a/b", NULL },
		{ "relative", "nas", "a", "nas", "/a", NULL },
		{ "brackets", "[fd00::1]", "/a", "fd00::1", "/a", NULL },
		{ "bad server", "a b", "/a", NULL, NULL, "server" },
		{ "two pairs of brackets", "[[fd00::1]]", "/a", NULL, NULL, "server" },
		{ "empty server", "", "/a", NULL, NULL, "server" },
		{ "dot dot", "nas", "/a/..", NULL, NULL, "share" },
		{ "dot dot inside", "nas", "/a/../a", NULL, NULL, "share" },
		{ "dot", "nas", "/a/.", "nas", "/a", NULL },
		{ "dot inside", "nas", "/./a", "nas", "/a", NULL },
		{ "empty component", "nas", "/a//b", "nas", "/a/b", NULL },
		{ "control", "nas", "/a\t", NULL, NULL, "share" },
		{ "separator", "nas", "/a#b", NULL, NULL, "share" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_nfs_export struct nfs_export e = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		bool fine = rows[i].word == NULL;
		int r = nfs_export_init(&e, rows[i].server, rows[i].share, &err);

		check_int(rows[i].name, "result", r, fine ? 0 : -EINVAL);
		check_error(rows[i].name, &err, fine ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    rows[i].word);
		check_str(rows[i].name, "server", e.server, rows[i].want_server);
		check_str(rows[i].name, "share", e.share, rows[i].want_share);
		if (!fine)
			continue;
		check_int(rows[i].name, "uid", e.uid, geteuid());
		check_int(rows[i].name, "gid", e.gid, getegid());
		check_int(rows[i].name, "version", e.version, 0);
	}
}
END_TEST

START_TEST(test_options)
{
	static const struct {
		const char *name;
		const char *options;
		unsigned int version;
		unsigned int port, mount_port;
		const char *word; /* in the error; NULL: success */
	} rows[] = {
		{ "none", NULL, 0, 0, 0, NULL },
		{ "empty", "", 0, 0, 0, NULL },
		{ "empty pieces", ",,", 0, 0, 0, NULL },
		{ "vers=3", "vers=3", 3, 0, 0, NULL },
		{ "vers=4", "vers=4", 4, 0, 0, NULL },
		{ "vers=4.0", "vers=4.0", 4, 0, 0, NULL },
		{ "nfsvers=4.1", "nfsvers=4.1", 4, 0, 0, NULL },
		{ "v4.2", "v4.2", 4, 0, 0, NULL },
		{ "v3", "hard,v3,noatime", 3, 0, 0, NULL },
		{ "last one counts", "vers=3,nfsvers=4.1", 4, 0, 0, NULL },
		{ "ports", "port=2050,mountport=20048", 0, 2050, 20048, NULL },
		{ "largest port", "port=65535", 0, 65535, 0, NULL },
		{ "port 0", "port=2050,port=0", 0, 0, 0, NULL },
		{ "what is for the kernel", "hard,timeo=600,sec=sys,nolock,versions", 0, 0, 0,
		  NULL },
		{ "version 2", "vers=2", 0, 0, 0, "version" },
		{ "version 4.3", "vers=4.3", 0, 0, 0, "version" },
		{ "version 03", "vers=03", 0, 0, 0, "version" },
		{ "empty version", "vers=", 0, 0, 0, "version" },
		{ "v5", "v5", 0, 0, 0, "version" },
		{ "port too large", "port=65536", 0, 0, 0, "port" },
		{ "port in words", "port=nfs", 0, 0, 0, "port" },
		{ "negative port", "port=-1", 0, 0, 0, "port" },
		{ "empty mountport", "mountport=", 0, 0, 0, "mountport" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_nfs_export struct nfs_export e = { .server = NULL };
		struct error err = { .code = ERROR_OK };
		int r = nfs_export_apply_options(&e, rows[i].options, &err);

		check_int(rows[i].name, "result", r, rows[i].word != NULL ? -EINVAL : 0);
		check_error(rows[i].name, &err,
			    rows[i].word != NULL ? ERROR_INVALID_ARGUMENT : ERROR_OK, rows[i].word);
		check_int(rows[i].name, "version", e.version, rows[i].version);
		check_int(rows[i].name, "port", e.port, rows[i].port);
		check_int(rows[i].name, "mountport", e.mount_port, rows[i].mount_port);
	}
}
END_TEST

/* Later options are applied over earlier ones, or not at all. */
START_TEST(test_options_add_up)
{
	struct nfs_export e = { .server = NULL };

	check_int("first", "result", nfs_export_apply_options(&e, "vers=3,port=2050", NULL), 0);
	check_int("second", "result", nfs_export_apply_options(&e, "port=0,mountport=7", NULL), 0);
	check_int("bad", "result", nfs_export_apply_options(&e, "vers=4,port=x", NULL), -EINVAL);
	check_int("third", "result", nfs_export_apply_options(&e, NULL, NULL), 0);
	check_int("all", "version", e.version, 3);
	check_int("all", "port", e.port, 0);
	check_int("all", "mountport", e.mount_port, 7);
}
END_TEST

/* Options may be secret: messages must not show their values. */
START_TEST(test_options_secret)
{
	static const char *const options[] = { "vers=hunter2", "port=hunter2", "mountport=hunter2",
					       "v4hunter2" };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(options); i++) {
		struct nfs_export e = { .server = NULL };
		struct error err = { .code = ERROR_OK };

		check_int(options[i], "result", nfs_export_apply_options(&e, options[i], &err),
			  -EINVAL);
		check_that(options[i], "the message hides the value",
			   strstr(err.msg, "hunter2") == NULL);
	}
}
END_TEST

START_TEST(test_equal)
{
	cleanup_nfs_export struct nfs_export a = { .server = NULL }, b = { .server = NULL };

	check_int("init", "result", nfs_export_init(&a, "nas", "/a", NULL), 0);
	check_int("copy", "result", nfs_export_copy(&b, &a), 0);
	check_that("copy", "is equal", nfs_export_is_equal(&a, &b) && a.server != b.server);
	b.version = 3;
	check_that("version", "differs", !nfs_export_is_equal(&a, &b));
	b.version = a.version;
	b.port = 1;
	check_that("port", "differs", !nfs_export_is_equal(&a, &b));
	b.port = a.port;
	b.mount_port = 1;
	check_that("mountport", "differs", !nfs_export_is_equal(&a, &b));
	b.mount_port = a.mount_port;
	b.uid = a.uid + 1;
	check_that("uid", "differs", !nfs_export_is_equal(&a, &b));
	b.uid = a.uid;
	b.share[1] = 'b';
	check_that("share", "differs", !nfs_export_is_equal(&a, &b));
	b.share[1] = 'a';
	check_that("all back", "is equal", nfs_export_is_equal(&a, &b));
	b.server[0] = 'N';
	check_that("server", "differs", !nfs_export_is_equal(&a, &b));
}
END_TEST

CHECK_MAIN("export", .tests = {
			     test_server,
			     test_init,
			     test_options,
			     test_options_add_up,
			     test_options_secret,
			     test_equal,
		     })
