/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "check/options.h"
#include "check/steps.h"
#include "check_util.h"

#define WORDS_MAX 8

static int parse(const char *const *words, struct check_options *o, struct error *err)
{
	char *argv[WORDS_MAX + 2] = { (char *)(uintptr_t) "check" };
	int argc;

	for (argc = 1; argc <= WORDS_MAX && words[argc - 1] != NULL; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	return check_options_parse(o, argc, argv, err);
}

static void set_environment(const char *server, const char *share)
{
	ck_assert(setenv("NFS_SERVER", server, 1) == 0);
	ck_assert(setenv("NFS_SHARE", share, 1) == 0);
}

START_TEST(test_options)
{
	static const char *const words[] = { "--server=a", "--share", "/b",      "-uid",
					     "7",          "-gid=8",  "--mount", "--format=json",
					     NULL };
	struct error err = { .code = ERROR_OK };
	struct check_options o;

	set_environment("", "");
	check_int("all", "result", parse(words, &o, &err), 0);
	check_str("all", "server", o.server, "a");
	check_str("all", "share", o.share, "/b");
	check_int("all", "uid", o.uid, 7);
	check_int("all", "gid", o.gid, 8);
	check_that("all", "mount", o.mount);
	check_that("all", "format", o.json);
	check_str("all", "mount options", o.mount_options, "");
}
END_TEST

START_TEST(test_environment)
{
	static const char *const none[] = { NULL };
	static const char *const one[] = { "--server", "other", "--mount-options", "vers=3,hard",
					   NULL };
	struct error err = { .code = ERROR_OK };
	struct check_options o;

	set_environment("host", "/share");
	check_int("none", "result", parse(none, &o, &err), 0);
	check_str("none", "server", o.server, "host");
	check_str("none", "share", o.share, "/share");
	check_that("none", "ids", o.uid == CHECK_NO_ID && o.gid == CHECK_NO_ID);
	check_that("none", "defaults", !o.mount && !o.json && !o.help);
	check_int("one", "result", parse(one, &o, &err), 0);
	check_str("one", "server", o.server, "other");
	check_str("one", "share", o.share, "/share");
	check_str("one", "mount options", o.mount_options, "vers=3,hard");
}
END_TEST

/* --help wins over missing options and whatever follows it. */
START_TEST(test_help)
{
	static const char *const rows[][3] = { { "--help" }, { "-h" }, { "--help", "--nonsense" } };
	struct error err = { .code = ERROR_OK };
	struct check_options o;
	size_t i;

	set_environment("", "");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_int(rows[i][0], "result", parse(rows[i], &o, &err), 0);
		check_that(rows[i][0], "help", o.help);
	}
}
END_TEST

START_TEST(test_wrong_options)
{
	static const struct {
		const char *words[4];
		const char *named; /* in the message */
	} rows[] = {
		{ { "--server=" }, "--server" },
		{ { "--share=" }, "--share" },
		{ { "--server" }, "--server" },
		{ { "--server=a/b" }, "server" },
		{ { "--server=host:2049" }, "server" },
		{ { "--share=/a/../b" }, "share" },
		{ { "--share=/a/.csi-nfs" }, "share" },
		{ { "--uid=-1" }, "--uid" },
		{ { "--uid=root" }, "--uid" },
		{ { "--uid=4294967295" }, "--uid" },
		{ { "--uid=" }, "--uid" },
		{ { "--gid", "1x" }, "--gid" },
		{ { "--mount=yes" }, "--mount" },
		{ { "--format=xml" }, "--format" },
		{ { "--mount-options=bind" }, "--mount-options" },
		{ { "--mount-options=vers=5" }, "version" },
		{ { "--mount-options=port=99999" }, "port" },
		{ { "--nonsense=1" }, "'--nonsense'" },
		{ { "--" }, "'--'" },
		{ { "-" }, "'-'" },
		{ { "word" }, "'word'" },
		{ { "--serve=a" }, "'--serve'" },
	};
	size_t i;

	set_environment("host", "/share");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		struct check_options o;

		check_that(rows[i].words[0], "failure", parse(rows[i].words, &o, &err) < 0);
		check_error(rows[i].words[0], &err, ERROR_INVALID_ARGUMENT, rows[i].named);
	}
}
END_TEST

START_TEST(test_secrets_stay_secret)
{
	static const char *const rows[] = { "vers=topsecret", "port=topsecret",
					    "mountport=topsecret", "addr=topsecret",
					    "helper=topsecret" };
	size_t i;

	set_environment("host", "/share");
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const words[] = { "--mount-options", rows[i], NULL };
		struct error err = { .code = ERROR_OK };
		struct check_options o;

		check_that(rows[i], "failure", parse(words, &o, &err) < 0);
		check_that(rows[i], "silence", strstr(err.msg, "topsecret") == NULL);
	}
}
END_TEST

START_TEST(test_json)
{
	struct json j = { .error = 0 };

	json_open(&j, NULL, '{');
	json_string(&j, "a", "x\"\\\n\x7f");
	json_open(&j, "list", '[');
	json_close(&j, ']');
	json_open(&j, "more", '[');
	json_string(&j, NULL, "\xc3\xa9");
	json_string(&j, NULL, "\xff!");
	json_open(&j, NULL, '{');
	json_number(&j, "n", UINT64_MAX);
	json_close(&j, '}');
	json_close(&j, ']');
	json_bool(&j, "yes", true);
	json_bool(&j, "no", false);
	json_raw(&j, "raw", "[1]");
	json_close(&j, '}');
	check_int("json", "error", j.error, 0);
	check_str("json", "text", j.text.data,
		  "{\"a\":\"x\\\"\\\\\\u000a\\u007f\",\"list\":[],"
		  "\"more\":[\"\xc3\xa9\",\"?!\",{\"n\":18446744073709551615}],"
		  "\"yes\":true,\"no\":false,\"raw\":[1]}");
	json_done(&j);
}
END_TEST

START_TEST(test_plain)
{
	static const struct {
		const char *from, *to;
	} rows[] = {
		{ "", "" },
		{ "/srv/k8s", "/srv/k8s" },
		{ "a\033[31mb\n", "a?[31mb?" },
		{ "\xc3\xa9", "\xc3\xa9" },
		{ "\xc2\x9b"
		  "31m",
		  "??31m" }, /* CSI of eight bits */
		{ "\xff\xc3", "??" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *got = check_plain(rows[i].from);

		check_str(rows[i].from, "plain", got, rows[i].to);
	}
}
END_TEST

START_TEST(test_bytes)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },
		{ (1 << 20) - 1, "1023.9 KiB" },
		{ UINT64_C(5) << 40, "5.0 TiB" },
		{ UINT64_MAX, "15.9 EiB" },
	};
	char text[32];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_bytes_text(rows[i].bytes, text, sizeof(text));
		check_str(rows[i].text, "text", text, rows[i].text);
	}
}
END_TEST

CHECK_MAIN("check", .tests = {
			    test_options,
			    test_environment,
			    test_help,
			    test_wrong_options,
			    test_json,
			    test_secrets_stay_secret,
			    test_plain,
			    test_bytes,
		    })
