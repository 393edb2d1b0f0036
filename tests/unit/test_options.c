/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "options.h"
#include "check_util.h"

#define WORDS_MAX 6

static const char *const variables[] = { "CSI_ENDPOINT", "NODE_ID", "NFS_SERVER", "NFS_SHARE" };

static void no_environment(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++)
		ck_assert(unsetenv(variables[i]) == 0);
}

static int parse(const char *const *words, struct options *o, struct error *err)
{
	char *argv[WORDS_MAX + 2] = { (char *)(uintptr_t) "csi-nfs" };
	int argc;

	for (argc = 1; argc <= WORDS_MAX && words[argc - 1] != NULL; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	return options_parse(o, argc, argv, err);
}

START_TEST(test_defaults)
{
	static const char *const words[] = { NULL };
	struct error err = { .code = ERROR_OK };
	struct options o;
	char host[256] = "";

	no_environment();
	check_int("none", "result", parse(words, &o, &err), 0);
	check_int("none", "action", o.action, ACTION_SERVE);
	check_str("none", "endpoint", o.endpoint, NULL);
	check_str("none", "driver's name", o.driver_name, "nfs.csi.k8s.io");
	check_int("none", "mode", o.mode, MODE_ALL);
	check_str("none", "server", o.server, NULL);
	check_str("none", "share", o.share, NULL);
	check_int("none", "mode of volumes", o.mount_permissions, 0);
	check_int("none", "policy", o.on_delete, ON_DELETE_DELETE);
	check_int("none", "log level", o.log_level, LOG_LEVEL_INFO);
	check_int("none", "log format", o.log_format, LOG_FORMAT_TEXT);
	ck_assert(gethostname(host, sizeof(host) - 1) == 0);
	check_str("none", "node id", o.node_id, host);
}
END_TEST

/* Write each option as "--name=value", "--name value", "-name=value" and "-name value". */
START_TEST(test_spellings)
{
	static const struct {
		const char *name;
		const char *value;
	} rows[] = {
		{ "endpoint", "unix:///run/x.sock" },
		{ "nodeid", "node-1" },
		{ "mode", "node" },
		{ "server", "[fd00::1]" },
		{ "share", "/export" },
		{ "drivername", "x.example" },
		{ "mount-permissions", "0770" },
		{ "default-ondelete-policy", "archive" },
		{ "delete-mode", "inline" },
		{ "state-dir", "/run/x" },
		{ "inline-volumes", "nfs.example:/a,[fd00::1]:/" },
		{ "log-level", "debug" },
		{ "log-format", "json" },
		{ "working-mount-dir", "/tmp" },
		{ "vol-stats-cache-expire-in-minutes", "10" },
		{ "v", "5" },
		{ "vmodule", "a=1" },
		{ "stderrthreshold", "2" },
		{ "log_dir", "/tmp" },
		{ "log-dir", "/tmp" },
		{ "alsologtostderrthreshold", "INFO" },
		{ "mount_permissions", "0770" },
	};
	static const char *const dashes[] = { "-", "--" };
	size_t i, k;

	no_environment();
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (k = 0; k < ARRAY_SIZE(dashes); k++) {
			char joined[128], name[64];
			const char *const one[] = { joined, "-v=3", NULL };
			const char *const two[] = { name, rows[i].value, "-v=3", NULL };
			const char *const alone[] = { "-v=3", name, NULL };
			struct error err = { .code = ERROR_OK };
			struct options o;

			(void)snprintf(name, sizeof(name), "%s%s", dashes[k], rows[i].name);
			(void)snprintf(joined, sizeof(joined), "%s=%s", name, rows[i].value);
			check_int(joined, "one word", parse(one, &o, &err), 0);
			check_int(name, "two words", parse(two, &o, &err), 0);
			check_error(name, &err, ERROR_OK, NULL);
			check_int(name, "no value", parse(alone, &o, &err), -EINVAL);
			check_error(name, &err, ERROR_INVALID_ARGUMENT, "value");
		}
	}
}
END_TEST

START_TEST(test_values)
{
	static const char *const words[] = { "--endpoint=unix:///run/x.sock",
					     "-nodeid=n",
					     "--mode=controller",
					     "--share=/e",
					     "--drivername=x.y",
					     "--log-format=json",
					     NULL };
	static const char *const more[] = { "--server=10.0.0.1",
					    "-mount-permissions",
					    "0750",
					    "--default-ondelete-policy=Retain",
					    "--log-level=warn",
					    NULL };
	static const char *const last[] = { "--mode=node",
					    "--mode=all",
					    "--remove-archived-volume-path",
					    "--state-dir=/run/x",
					    "--inline-volumes=a:/b",
					    NULL };
	static const char *const off[] = { "--remove-archived-volume-path",
					   "--remove-archived-volume-path=false",
					   "--inline-volumes=", NULL };
	struct error err = { .code = ERROR_OK };
	struct options o;

	no_environment();
	check_int("first", "result", parse(words, &o, &err), 0);
	check_str("first", "endpoint", o.endpoint, "unix:///run/x.sock");
	check_str("first", "node id", o.node_id, "n");
	check_int("first", "mode", o.mode, MODE_CONTROLLER);
	check_str("first", "share", o.share, "/e");
	check_str("first", "driver's name", o.driver_name, "x.y");
	check_int("first", "format", o.log_format, LOG_FORMAT_JSON);
	check_int("second", "result", parse(more, &o, &err), 0);
	check_str("second", "server", o.server, "10.0.0.1");
	check_int("second", "mode of volumes", o.mount_permissions, 0750);
	check_int("second", "policy", o.on_delete, ON_DELETE_RETAIN);
	check_int("second", "level", o.log_level, LOG_LEVEL_WARN);
	check_int("the last one counts", "result", parse(last, &o, &err), 0);
	check_int("the last one counts", "mode", o.mode, MODE_ALL);
	check_int("switch", "archives", o.replace_archive, true);
	check_str("last", "state folder", o.state_dir, "/run/x");
	check_str("last", "inline volumes", o.inline_volumes, "a:/b");
	check_int("off", "result", parse(off, &o, &err), 0);
	check_int("off", "archives", o.replace_archive, false);
	check_str("off", "inline volumes", o.inline_volumes, NULL);
	check_str("off", "state folder", o.state_dir, RUNSTATEDIR "/csi-nfs");
}
END_TEST

START_TEST(test_actions)
{
	static const struct {
		const char *name;
		const char *words[WORDS_MAX + 1];
		enum options_action action;
	} rows[] = {
		{ "help", { "--help" }, ACTION_HELP },
		{ "help, one dash", { "-help" }, ACTION_HELP },
		{ "h", { "-h" }, ACTION_HELP },
		{ "version", { "--version" }, ACTION_VERSION },
		{ "version, one dash", { "-version" }, ACTION_VERSION },
		{ "switches of klog",
		  { "-logtostderr", "-legacy_stderr_threshold_behavior=false" },
		  ACTION_SERVE },
		{ "switches of csi-driver-nfs",
		  { "--remove-archived-volume-path", "--use-tar-command-in-snapshot=true",
		    "-enable-snapshot-compression=false" },
		  ACTION_SERVE },
		{ "windows", { "--window=1", "--window=256" }, ACTION_SERVE },
		{ "help before nonsense", { "--help", "--nonsense" }, ACTION_HELP },
	};
	size_t i;

	no_environment();
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };
		struct options o;

		check_int(rows[i].name, "result", parse(rows[i].words, &o, &err), 0);
		check_error(rows[i].name, &err, ERROR_OK, NULL);
		check_int(rows[i].name, "action", o.action, rows[i].action);
	}
}
END_TEST

START_TEST(test_refused)
{
	static const struct {
		const char *name;
		const char *words[WORDS_MAX + 1];
		const char *word; /* in the message */
	} rows[] = {
		{ "empty endpoint", { "--endpoint=" }, "--endpoint" },
		{ "unknown mode", { "--mode=both" }, "--mode" },
		{ "mode in capitals", { "--mode=Node" }, "--mode" },
		{ "control in node id", { "--nodeid=a\nb" }, "--nodeid" },
		{ "bad server", { "--server=a b" }, "--server" },
		{ "server with a path", { "--server=a/b" }, "--server" },
		{ "dot dot in share", { "--share=/a/.." }, "--share" },
		{ "separator in share", { "--share=/a#b" }, "--share" },
		{ "empty driver's name", { "--drivername=" }, "--drivername" },
		{ "driver's name with a slash", { "--drivername=a/b" }, "--drivername" },
		{ "driver's name ends with a dot", { "--drivername=a." }, "--drivername" },
		{ "driver's name starts with a dash", { "--drivername", "-a" }, "--drivername" },
		{ "unknown policy",
		  { "--default-ondelete-policy=keep" },
		  "--default-ondelete-policy" },
		{ "unknown delete mode", { "--delete-mode=later" }, "--delete-mode" },
		{ "no window", { "--window=0" }, "--window" },
		{ "window of words", { "--window=wide" }, "--window" },
		{ "wide window", { "--window=257" }, "--window" },
		{ "relative state folder", { "--state-dir=run" }, "--state-dir" },
		{ "inline volume without path", { "--inline-volumes=a:/b,c" }, "--inline-volumes" },
		{ "neither true nor false",
		  { "--remove-archived-volume-path=maybe" },
		  "--remove-archived-volume-path" },
		{ "unknown level", { "--log-level=trace" }, "--log-level" },
		{ "unknown format", { "--log-format=xml" }, "--log-format" },
		{ "unknown option", { "--nonsense=1" }, "'--nonsense'" },
		{ "unknown option, one dash", { "-nonsense" }, "'-nonsense'" },
		{ "a part of an option", { "--end=1" }, "'--end'" },
		{ "option and more", { "--endpoints=1" }, "'--endpoints'" },
		{ "two dashes", { "--" }, "'--'" },
		{ "argument", { "serve" }, "'serve'" },
		{ "dash", { "-" }, "'-'" },
		{ "empty argument", { "" }, "''" },
	};
	cleanup_free char *name64 = check_repeat("a", 64), *name193 = check_repeat("n", 193);
	const char *const long_name[] = { "--drivername", name64, NULL };
	const char *const long_id[] = { "--nodeid", name193, NULL };
	struct error err = { .code = ERROR_OK };
	struct options o;
	size_t i;

	no_environment();
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error why = { .code = ERROR_OK };

		check_int(rows[i].name, "result", parse(rows[i].words, &o, &why), -EINVAL);
		check_error(rows[i].name, &why, ERROR_INVALID_ARGUMENT, rows[i].word);
		check_that(rows[i].name, "one line", strchr(why.msg, '\n') == NULL);
	}
	check_int("long driver's name", "result", parse(long_name, &o, &err), -EINVAL);
	check_error("long driver's name", &err, ERROR_INVALID_ARGUMENT, "--drivername");
	name64[63] = '\0';
	check_int("driver's name of 63", "result", parse(long_name, &o, NULL), 0);
	error_clear(&err);
	check_int("long node id", "result", parse(long_id, &o, &err), -EINVAL);
	check_error("long node id", &err, ERROR_INVALID_ARGUMENT, "--nodeid");
	name193[192] = '\0';
	check_int("node id of 192", "result", parse(long_id, &o, NULL), 0);
}
END_TEST

START_TEST(test_permissions)
{
	static const struct {
		const char *value;
		int mode; /* -1: refused */
	} rows[] = {
		{ "0", 0 },        { "00", 0 },        { "0770", 0770 },
		{ "0o770", 0770 }, { "07777", 07777 }, { "2770", 2770 },
		{ "504", 0770 },   { "4095", 07777 },  { "010000", -1 },
		{ "4096", -1 },    { "", -1 },         { "-1", -1 },
		{ "0o", -1 },      { "0888", -1 },     { "rwx", -1 },
		{ "770 ", -1 },    { "0x1ff", -1 },    { "18446744073709551616", -1 },
	};
	size_t i;

	no_environment();
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const words[] = { "--mount-permissions", rows[i].value, NULL };
		struct error err = { .code = ERROR_OK };
		struct options o;
		bool fine = rows[i].mode >= 0;

		check_int(rows[i].value, "result", parse(words, &o, &err), fine ? 0 : -EINVAL);
		check_error(rows[i].value, &err, fine ? ERROR_OK : ERROR_INVALID_ARGUMENT,
			    "--mount-permissions");
		if (fine)
			check_int(rows[i].value, "mode", o.mount_permissions, rows[i].mode);
	}
}
END_TEST

START_TEST(test_environment)
{
	static const struct {
		const char *variable;
		const char *good, *bad;
		const char *option;
	} rows[] = {
		{ "CSI_ENDPOINT", "unix:///env.sock", NULL, "--endpoint=unix:///option.sock" },
		{ "NODE_ID", "env", "a\tb", "--nodeid=option" },
		{ "NFS_SERVER", "env.example", "a b", "--server=option.example" },
		{ "NFS_SHARE", "/env", "/a/../b", "--share=/option" },
	};
	static const char *const none[] = { NULL };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const words[] = { rows[i].option, NULL };
		struct error err = { .code = ERROR_OK };
		struct options o;
		const char *values[4];

		no_environment();
		ck_assert(setenv(rows[i].variable, rows[i].good, 1) == 0);
		check_int(rows[i].variable, "result", parse(none, &o, &err), 0);
		memcpy(values, (const char *[]){ o.endpoint, o.node_id, o.server, o.share },
		       sizeof(values));
		check_str(rows[i].variable, "value", values[i], rows[i].good);
		check_int(rows[i].variable, "result with the option", parse(words, &o, &err), 0);
		memcpy(values, (const char *[]){ o.endpoint, o.node_id, o.server, o.share },
		       sizeof(values));
		check_str(rows[i].variable, "value with the option", values[i],
			  strchr(rows[i].option, '=') + 1);
		ck_assert(setenv(rows[i].variable, "", 1) == 0);
		check_int(rows[i].variable, "result when empty", parse(none, &o, &err), 0);
		if (rows[i].bad == NULL)
			continue;
		ck_assert(setenv(rows[i].variable, rows[i].bad, 1) == 0);
		check_int(rows[i].variable, "bad value", parse(none, &o, &err), -EINVAL);
		check_error(rows[i].variable, &err, ERROR_INVALID_ARGUMENT, rows[i].variable);
	}
}
END_TEST

CHECK_MAIN("options", .tests = {
			      test_defaults,
			      test_spellings,
			      test_values,
			      test_actions,
			      test_refused,
			      test_permissions,
			      test_environment,
		      })
