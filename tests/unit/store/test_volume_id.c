/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "store/volume_id.h"
#include "store/record.h"
#include "check_util.h"

#define UID "pvc-4bcb2f4e-8f3c-4f3e-9d5b-0a1b2c3d4e5f"

START_TEST(test_parse)
{
	static const struct {
		const char *name;
		const char *text;
		const char *server, *share, *subdir, *uuid, *on_delete;
		const char *key;
	} rows[] = {
		{ "share is the root", "nfs.example##" UID "##", "nfs.example", "", UID, "", "",
		  UID },
		{ "archive", "10.0.0.1#export/k8s#" UID "##archive", "10.0.0.1", "export/k8s", UID,
		  "", "archive", UID },
		{ "subDir and retain", "nfs.example#share#ns/claim#" UID "#retain", "nfs.example",
		  "share", "ns/claim", UID, "retain", UID },
		{ "IPv6", "fd00::1#share#" UID "##", "fd00::1", "share", UID, "", "", UID },
		{ "IPv6 with a zone", "fe80::1%eth0#share#a##", "fe80::1%eth0", "share", "a", "",
		  "", "a" },
		{ "policy as the user wrote it", "s#h#a##Archive", "s", "h", "a", "", "Archive",
		  "a" },
		{ "unknown policy", "s#h#a##later", "s", "h", "a", "", "later", "a" },
		{ "three fields", "s#export/k8s#" UID, "s", "export/k8s", UID, "", "", UID },
		{ "three fields, documented for static volumes", "s#/export/#a/b/", "s", "export",
		  "a/b", "", "", "a/b" },
		{ "four fields", "s#h#sub#" UID, "s", "h", "sub", UID, "", UID },
		{ "four fields, no uuid", "s#h#" UID "#", "s", "h", UID, "", "", UID },
		{ "six fields", "s#h#a#b#retain#new", "s", "h", "a", "b", "retain", "b" },
		{ "nine fields", "s#h#a####1#2", "s", "h", "a", "", "", "a" },
		{ "slashes around", "s/#//export//#/a/b/#u#", "s", "export", "a/b", "u", "", "u" },
		{ "repeated slashes", "s#export//k8s#a//./b#u#", "s", "export/k8s", "a/b", "u", "",
		  "u" },
		{ "slash ids, repeated slashes", "s/a//b//c", "s", "a/b", "c", "", "", "c" },
		{ "slash ids", "nfs.example/share/" UID, "nfs.example", "share", UID, "", "", UID },
		{ "slash ids, deep share", "s/a/b/c/" UID, "s", "a/b/c", UID, "", "", UID },
		{ "slash ids, no share", "s//" UID, "s", "", UID, "", "", UID },
		{ "slash ids, IPv6", "fd00::1/share/a", "fd00::1", "share", "a", "", "", "a" },
		{ "hidden directory", "s#h#.snap##", "s", "h", ".snap", "", "", ".snap" },
		{ "dots in names", "s#h#a..b/...##", "s", "h", "a..b/...", "", "", "a..b/..." },
		{ "spaces and UTF-8", "s#h#a \xc3\xa4##", "s", "h", "a \xc3\xa4", "", "",
		  "a \xc3\xa4" },
		{ "escaped key", "s#h#%2E%2Fx##", "s", "h", "%2E%2Fx", "", "", "%2E%2Fx" },
		{ "like the driver's folder", "s#h#.csi-nfs2/a##", "s", "h", ".csi-nfs2/a", "", "",
		  ".csi-nfs2/a" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_id struct volume_id id = { .server = NULL };
		int r = volume_id_parse(&id, rows[i].text);

		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "server", id.server, rows[i].server);
		check_str(rows[i].name, "share", id.share, rows[i].share);
		check_str(rows[i].name, "subDir", id.subdir, rows[i].subdir);
		check_str(rows[i].name, "uuid", id.uuid, rows[i].uuid);
		check_str(rows[i].name, "onDelete", id.on_delete, rows[i].on_delete);
		check_str(rows[i].name, "key", volume_id_key(&id), rows[i].key);
	}
}
END_TEST

/*
 * Users write an IPv6 server with brackets in StorageClasses; csi-driver-nfs keeps them in its ids.
 */
START_TEST(test_parse_brackets)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };

	check_int("brackets", "result", volume_id_parse(&id, "[fd00::1]#share#a##"), 0);
	check_str("brackets", "server", id.server, "fd00::1");
	volume_id_done(&id);
	check_int("slash ids", "result", volume_id_parse(&id, "[fd00::1]/share/a"), 0);
	check_str("slash ids", "server", id.server, "fd00::1");
}
END_TEST

/* Three fields are five when they are written again, and must be read then too. */
START_TEST(test_parse_at_the_limit)
{
	static const struct {
		const char *name;
		const char *before, *after;
		int extra; /* over what fits with five fields */
		int want;
	} rows[] = {
		{ "three fields", "s#", "#a", 0, 0 },
		{ "three fields, one too many", "s#", "#a", 1, -EINVAL },
		{ "four fields", "s#", "#a#", 0, 0 },
		{ "four fields, one too many", "s#", "#a#", 1, -EINVAL },
		{ "five fields", "s#", "#a##", 0, 0 },
		{ "five fields, one too many", "s#", "#a##", 1, -EINVAL },
		{ "slash id", "s/", "/a", 0, 0 },
		{ "slash id, one too many", "s/", "/a", 1, -EINVAL },
		{ "what comes to nothing", "s#", "#////a", 0, 0 },
	};
	const int room = VOLUME_ID_TEXT_MAX - (int)strlen("s##a##");
	char share[VOLUME_ID_TEXT_MAX + 2], text[VOLUME_ID_TEXT_MAX + 16];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_id struct volume_id id = { .server = NULL },
						   again = { .server = NULL };
		cleanup_free char *written = NULL;
		int k, n = room + rows[i].extra - (strlen(rows[i].after) > 4 ? 2 : 0);

		for (k = 0; k < n; k++)
			share[k] = k % 200 == 100 ? '/' : 'h';
		share[n] = '\0';
		(void)snprintf(text, sizeof(text), "%s%s%s", rows[i].before, share, rows[i].after);
		check_int(rows[i].name, "result", volume_id_parse(&id, text), rows[i].want);
		if (rows[i].want < 0)
			continue;
		written = volume_id_format(&id);
		check_int(rows[i].name, "read again", volume_id_parse(&again, written), 0);
	}
}
END_TEST

START_TEST(test_parse_refused)
{
	static const struct {
		const char *name;
		const char *text;
	} rows[] = {
		{ "empty", "" },
		{ "a word", "garbage" },
		{ "csi-sanity's", "fake-vol-id-1a2b3c4d-5" },
		{ "two words", "server/share" },
		{ "two fields", "s#h" },
		{ "two fields and slashes", "s/h/a#b" },
		{ "only separators", "####" },
		{ "only slashes", "///" },
		{ "no server", "#h#a##" },
		{ "no subDir", "s#h###" },
		{ "no subDir, documented for static volumes", "nfs.svc.cluster.local/share##" },
		{ "subDir of slashes", "s#h#//##" },
		{ "slash ids without a server", "/share/a" },
		{ "slash ids without a subDir", "s/share/" },
		{ "dot dot as subDir", "s#h#..##" },
		{ "dot dot in subDir", "s#h#a/../../b##" },
		{ "dot dot at the end of subDir", "s#h#a/..##" },
		{ "dot as subDir", "s#h#.##" },
		{ "dot dot as share", "s#..#a##" },
		{ "dot dot in share", "s#h/../..#a##" },
		{ "dot dot as uuid", "s#h#a#..#" },
		{ "dot dot in uuid", "s#h#a#../b#" },
		{ "slash in uuid", "s#h#a#b/c#" },
		{ "dot dot as a slash id's share", "s/../a" },
		{ "dot dot as a slash id's subDir", "s/h/.." },
		{ "the driver's folder", "s#h#.csi-nfs##" },
		{ "in the driver's folder", "s#h#.csi-nfs/volumes##" },
		{ "slash id of the driver's folder", "s/h/.csi-nfs" },
		{ "line feed in server", "s\n#h#a##" },
		{ "line feed in share", "s#h\n#a##" },
		{ "escape in subDir", "s#h#\x1b[0m##" },
		{ "delete in uuid", "s#h#a#\x7f#" },
		{ "option as server", "-o#h#a##" },
		{ "server with a path", "s/x#h#a##" },
		{ "server with a port", "s:2049#h#a##" },
		{ "server with a space", "s t#h#a##" },
		{ "server in two pairs of brackets", "[[fd00::1]]#h#a##" },
		{ "server with a comma", "s,vers=3#h#a##" },
		{ "zone with a path", "fe80::1%/../x#h#a##" },
		{ "zone with a line feed", "fe80::1%\n#h#a##" },
		{ "zone with a comma", "fe80::1%a,b#h#a##" },
	};
	cleanup_free char *name256 = check_repeat("x", 256), *name300 = check_repeat("s", 300);
	char text[1024];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct volume_id id = { .server = NULL };

		check_int(rows[i].name, "result", volume_id_parse(&id, rows[i].text), -EINVAL);
		check_that(rows[i].name, "nothing returned",
			   id.server == NULL && id.subdir == NULL);
	}
	(void)snprintf(text, sizeof(text), "s#h#%s##", name256);
	check_int("long component", "result", volume_id_parse(&(struct volume_id){ 0 }, text),
		  -EINVAL);
	(void)snprintf(text, sizeof(text), "%s#h#a##", name300);
	check_int("long server", "result", volume_id_parse(&(struct volume_id){ 0 }, text),
		  -EINVAL);
}
END_TEST

START_TEST(test_format)
{
	static const struct {
		const char *name;
		const char *text;
		const char *formatted; /* NULL: the same */
	} rows[] = {
		{ "default", "nfs.example##" UID "##", NULL },
		{ "all fields", "s#a/b#c/d#u#archive", NULL },
		{ "IPv6", "fd00::1#h#a##retain", NULL },
		{ "three fields", "s#h#a", "s#h#a##" },
		{ "four fields", "s#h#a#u", "s#h#a#u#" },
		{ "more fields", "s#h#a#u#retain#x#y", "s#h#a#u#retain" },
		{ "slash id", "s/h/i/a", "s#h/i#a##" },
		{ "slashes", "s#/h/#/a/##", "s#h#a##" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_volume_id struct volume_id id = { .server = NULL };
		cleanup_free char *text = NULL;
		const char *want = rows[i].formatted != NULL ? rows[i].formatted : rows[i].text;

		check_int(rows[i].name, "result", volume_id_parse(&id, rows[i].text), 0);
		text = volume_id_format(&id);
		check_str(rows[i].name, "text", text, want);
		check_that(rows[i].name, "starts with the server", str_has_prefix(text, id.server));
	}
}
END_TEST

START_TEST(test_key_escapes)
{
	static const struct {
		const char *name;
		const char *volume;
		const char *key;
	} rows[] = {
		{ "plain", UID, UID },
		{ "slash", "a/b", "a%2Fb" },
		{ "only a slash", "/", "%2F" },
		{ "dot", ".", "%2E" },
		{ "dot dot", "..", "%2E." },
		{ "way out", "../../etc", "%2E.%2F..%2Fetc" },
		{ "hidden", ".csi-nfs", "%2Ecsi-nfs" },
		{ "dot inside", "a.b.", "a.b." },
		{ "separator", "a#b", "a%23b" },
		{ "percent", "a%2Fb", "a%252Fb" },
		{ "tab, line feed, carriage return", "\t\n\r", "%09%0A%0D" },
		{ "delete", "\x7f", "%7F" },
		{ "space and UTF-8", "a \xe2\x82\xac", "a \xe2\x82\xac" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *key = NULL;
		int r = volume_key(rows[i].volume, "server", "share", &key, NULL);

		check_int(rows[i].name, "result", r, 0);
		check_str(rows[i].name, "key", key, rows[i].key);
		check_int(rows[i].name, "path check", path_check_relative(key, "key", NULL), 0);
	}
}
END_TEST

/* Names that come close to each other, and their keys on a short and on a long export. */
START_TEST(test_key_injective)
{
	static const char *const names[] = {
		"a",    "A",    "a/",   "/a",   "a%2F", "%2Fa",     "a#",
		"a%23", ".a",   "%2Ea", "a ",   " a",   "a\n",      "a%0A",
		"a%",   "a%25", "..",   "%2E.", "a.",   "\xc3\xa4", "a\xcc\x88",
	};
	static const char *const exports[] = { "h", "export/for/kubernetes/cluster/of/the/north" };
	char *keys[2 * ARRAY_SIZE(names)];
	cleanup_free char *stem = check_repeat("n", 126);
	size_t i, k, e;

	for (e = 0; e < ARRAY_SIZE(exports); e++) {
		for (i = 0; i < ARRAY_SIZE(names); i++)
			check_int(names[i], "result",
				  volume_key(names[i], "s", exports[e], &keys[i], NULL), 0);
		/* Names of 128 bytes that differ at the very end, where they are cut. */
		for (i = 0; i < ARRAY_SIZE(names); i++) {
			char name[160];

			(void)snprintf(name, sizeof(name), "%.*s%02zu", 126, stem, i);
			check_int(name, "result",
				  volume_key(name, "s", exports[e], &keys[ARRAY_SIZE(names) + i],
					     NULL),
				  0);
		}
		for (i = 0; i < ARRAY_SIZE(keys); i++)
			for (k = i + 1; k < ARRAY_SIZE(keys); k++)
				ck_assert_msg(strcmp(keys[i], keys[k]) != 0,
					      "names %zu and %zu share the key '%s' on '%s'", i, k,
					      keys[i], exports[e]);
		for (i = 0; i < ARRAY_SIZE(keys); i++)
			free(keys[i]);
	}
}
END_TEST

/* Long names of every kind of byte, cut at every length that exports leave. */
START_TEST(test_key_fits)
{
	static const struct {
		const char *name;
		const char *unit;
		size_t n;
	} rows[] = {
		{ "ASCII", "n", 128 },
		{ "two bytes", "\xc3\xa4", 64 },
		{ "three bytes", "\xe2\x82\xac", 42 },
		{ "four bytes", "\xf0\x9f\x98\x80", 32 },
		{ "escapes", "/", 128 },
		{ "percents", "%", 128 },
		{ "escapes between", "a/", 64 },
		{ "mixed", "/\xe2\x82\xac", 32 },
	};
	size_t i, n;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *name = check_repeat(rows[i].unit, rows[i].n);

		for (n = 0; n < 85; n++) {
			cleanup_free char *share = check_repeat("e", n), *key = NULL, *again = NULL;
			cleanup_free char *text = NULL;
			struct volume_id id = { 0 };
			size_t k, left;
			char row[64];
			char archive[] = "archive", server[] = "server", none[] = "";

			(void)snprintf(row, sizeof(row), "%s, share of %zu bytes", rows[i].name, n);
			check_int(row, "result", volume_key(name, server, share, &key, NULL), 0);
			check_int(row, "result again",
				  volume_key(name, server, share, &again, NULL), 0);
			check_str(row, "key again", again, key);
			id = (struct volume_id){ server, share, key, none, archive };
			text = volume_id_format(&id);
			check_that(row, "the id has at most 128 bytes",
				   strlen(text) <= VOLUME_ID_MAX);
			check_that(row, "it can name a record", strlen(key) <= RECORD_NAME_MAX);
			check_that(row, "it is UTF-8", str_is_utf8(key, strlen(key)));
			check_int(row, "path check", path_check_relative(key, "key", NULL), 0);
			for (k = 0; key[k] != '\0'; k++) {
				left = strlen(key + k);
				check_that(row, "escapes are whole",
					   key[k] != '%' ||
						   (left > 2 &&
						    strspn(key + k + 1, "0123456789ABCDEF") >= 2));
			}
		}
	}
}
END_TEST

START_TEST(test_key_limits)
{
	static const struct {
		const char *name;
		size_t share; /* bytes of it; the server has 6 */
		bool fits;
	} rows[] = {
		{ "short", 1, true },
		{ "longest", 87, true },
		{ "one more", 88, false },
		{ "over the whole id", 200, false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *share = check_repeat("e", rows[i].share), *key = NULL;
		struct error err = { .code = ERROR_OK };
		int r = volume_key("pvc-1", "server", share, &key, &err);

		check_int(rows[i].name, "result", r, rows[i].fits ? 0 : -EINVAL);
		check_error(rows[i].name, &err, rows[i].fits ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "share");
		check_str(rows[i].name, "key", key, rows[i].fits ? "pvc-1" : NULL);
	}
}
END_TEST

CHECK_MAIN("volume_id", .tests = {
				test_parse,
				test_parse_brackets,
				test_parse_refused,
				test_parse_at_the_limit,
				test_format,
				test_key_escapes,
				test_key_injective,
				test_key_fits,
				test_key_limits,
			})
