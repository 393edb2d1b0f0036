/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mount_options.h"
#include "base/str.h"
#include "check_util.h"

static const struct {
	const char *name;
	const char *text;
	unsigned int major;
	int minor;
	uint16_t port;
	bool no_lock, no_ping;
	const char *rest;
	bool read_only;
	const char *sec; /* NULL: not given */
} good[] = {
	{ "none", "", 0, -1, 0, false, false, "" },
	{ "one for the kernel", "hard", 0, -1, 0, false, false, "hard" },
	{ "order is kept", "soft,timeo=20,retrans=1", 0, -1, 0, false, false,
	  "soft,timeo=20,retrans=1" },
	{ "empty ones vanish", ",,soft,,hard,", 0, -1, 0, false, false, "soft,hard" },
	{ "vers=3", "vers=3", 3, -1, 0, false, false, "" },
	{ "vers=4", "vers=4", 4, -1, 0, false, false, "" },
	{ "vers=4.0", "vers=4.0", 4, 0, 0, false, false, "" },
	{ "nfsvers=4.1", "nfsvers=4.1", 4, 1, 0, false, false, "" },
	{ "v4.2", "v4.2", 4, 2, 0, false, false, "" },
	{ "v3", "v3", 3, -1, 0, false, false, "" },
	{ "version is taken out", "soft,vers=4.1,hard", 4, 1, 0, false, false, "soft,hard" },
	{ "last version wins", "vers=3,nfsvers=4.2", 4, 2, 0, false, false, "" },
	{ "last version wins, v3", "v4.2,vers=3", 3, -1, 0, false, false, "" },
	{ "minorversion", "vers=4,minorversion=1", 4, 1, 0, false, false, "" },
	{ "minorversion before the version", "minorversion=1,vers=4", 4, 1, 0, false, false, "" },
	{ "minorversion and a version with a minor one", "minorversion=1,vers=4.2", 4, 2, 0, false,
	  false, "" },
	{ "a version with a minor one, and 4", "v4.1,soft,nfsvers=4", 4, 1, 0, false, false,
	  "soft" },
	{ "minorversion and version 3", "minorversion=1,vers=3", 3, -1, 0, false, false, "" },
	{ "version 3 clears it", "minorversion=1,vers=3,vers=4", 4, -1, 0, false, false, "" },
	{ "minorversion alone", "minorversion=0", 4, 0, 0, false, false, "" },
	{ "port", "port=2050", 0, -1, 2050, false, false, "port=2050" },
	{ "port 0", "port=0", 0, -1, 0, false, false, "port=0" },
	{ "last port wins", "port=1,port=65535", 0, -1, 65535, false, false, "port=1,port=65535" },
	{ "mountport is no port", "mountport=20048", 0, -1, 0, false, false, "mountport=20048" },
	{ "nolock", "vers=3,nolock", 3, -1, 0, true, false, "nolock" },
	{ "local_lock=all", "local_lock=all", 0, -1, 0, true, false, "local_lock=all" },
	{ "local_lock=flock", "local_lock=flock", 0, -1, 0, false, false, "local_lock=flock" },
	{ "lock after nolock", "nolock,lock", 0, -1, 0, false, false, "nolock,lock" },
	{ "nolock after lock", "lock,nolock", 0, -1, 0, true, false, "lock,nolock" },
	{ "tcp", "proto=tcp", 0, -1, 0, false, false, "proto=tcp" },
	{ "udp", "udp,vers=3", 3, -1, 0, false, true, "udp" },
	{ "proto=udp6", "proto=udp6", 0, -1, 0, false, true, "proto=udp6" },
	{ "rdma", "rdma", 0, -1, 0, false, true, "rdma" },
	{ "proto=rdma", "proto=rdma", 0, -1, 0, false, true, "proto=rdma" },
	/* For booting or for other programs; the kernel does not know all of them. */
	{ "for fstab", "nofail,_netdev,soft,auto,noauto,comment=x", 0, -1, 0, false, false,
	  "soft" },
	{ "in the background", "bg,soft,fg", 0, -1, 0, false, false, "soft" },
	{ "retry", "retry=10,soft", 0, -1, 0, false, false, "soft" },
	{ "for other programs", "x-systemd.automount,X-note=y,soft", 0, -1, 0, false, false,
	  "soft" },
	{ "retrans is not retry", "retrans=2", 0, -1, 0, false, false, "retrans=2" },
	/* As kubelet sends it for SELinux: the commas are part of the value. */
	{ "context", "context=\"u:r:t:s0:c1,c2\",soft", 0, -1, 0, false, false,
	  "context=\"u:r:t:s0:c1,c2\",soft" },
	{ "contexts", "soft,fscontext=\"a:b\",context=\"c,d-e\"", 0, -1, 0, false, false,
	  "soft,fscontext=\"a:b\",context=\"c,d-e\"" },
	{ "context without quotes", "context=u:r:t:s0", 0, -1, 0, false, false,
	  "context=u:r:t:s0" },
	{ "keys that only begin like refused ones", "binder,mover,addressed,owners=1", 0, -1, 0,
	  false, false, "binder,mover,addressed,owners=1" },
	{ "keys of which refused ones are the end", "noaddr,unbind", 0, -1, 0, false, false,
	  "noaddr,unbind" },
	{ "X-mount. is for other programs", "X-mount.mkdir=0777,soft", 0, -1, 0, false, false,
	  "soft" },
	{ "ro", "ro", 0, -1, 0, false, false, "ro", .read_only = true },
	{ "rw after ro", "ro,rw", 0, -1, 0, false, false, "ro,rw" },
	{ "ro after rw", "rw,ro,soft", 0, -1, 0, false, false, "rw,ro,soft", .read_only = true },
	{ "keys that only begin like ro", "root,rome=1", 0, -1, 0, false, false, "root,rome=1" },
	{ "sec", "sec=krb5", 0, -1, 0, false, false, "sec=krb5", .sec = "krb5" },
	{ "last sec wins", "sec=krb5,soft,sec=sys", 0, -1, 0, false, false, "sec=krb5,soft,sec=sys",
	  .sec = "sys" },
	{ "mountport is the kernel's to check", "mountport=x", 0, -1, 0, false, false,
	  "mountport=x" },
	{ "bytes above 0x7f", "fsc=\xc3\xa4", 0, -1, 0, false, false, "fsc=\xc3\xa4" },
};

START_TEST(test_good)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		struct error err = { .code = ERROR_OK };
		struct mount_options o;
		int r = mount_options_parse(&o, good[i].text, &err);

		check_int(good[i].name, "result", r, 0);
		check_error(good[i].name, &err, ERROR_OK, NULL);
		check_int(good[i].name, "major", o.major, good[i].major);
		check_int(good[i].name, "minor", o.minor, good[i].minor);
		check_int(good[i].name, "port", o.port, good[i].port);
		check_int(good[i].name, "no_lock", o.no_lock, good[i].no_lock);
		check_int(good[i].name, "no_ping", o.no_ping, good[i].no_ping);
		check_str(good[i].name, "rest", o.rest, good[i].rest);
		check_int(good[i].name, "read_only", o.read_only, good[i].read_only);
		check_str(good[i].name, "sec", o.sec, good[i].sec);
		check_int(good[i].name, "mount_port", o.mount_port, 0);
		mount_options_done(&o);
		check_int(good[i].name, "check", mount_options_check(good[i].text, NULL), 0);
	}
}
END_TEST

/* word: must be in the message, so that the user finds the option. */
static const struct {
	const char *name;
	const char *text;
	const char *word;
} bad[] = {
	{ "bind", "bind", "'bind'" },
	{ "rbind", "rbind", "'rbind'" },
	{ "move", "move", "'move'" },
	{ "remount among others", "soft,remount,hard", "'remount'" },
	{ "loop with a value", "loop=/dev/loop0", "'loop'" },
	{ "offset", "offset=1", "'offset'" },
	{ "helper", "helper=sh", "'helper'" },
	{ "uhelper", "uhelper=sh", "'uhelper'" },
	{ "user", "user", "'user'" },
	{ "user with a value", "user=bob", "'user'" },
	{ "users", "users", "'users'" },
	{ "owner", "owner", "'owner'" },
	{ "addr", "addr=192.0.2.1", "'addr'" },
	{ "addr without a value", "addr", "'addr'" },
	{ "addr hidden in quotes", "context=\"x,addr=192.0.2.1,y\"", "'addr'" },
	{ "bind hidden in quotes", "context=\"x,bind", "'bind'" },
	{ "mountaddr", "mountaddr=192.0.2.1", "'mountaddr'" },
	{ "mounthost", "mounthost=h", "'mounthost'" },
	{ "private", "private", "'private'" },
	{ "rshared", "rshared", "'rshared'" },
	{ "rslave", "rslave", "'rslave'" },
	{ "unbindable", "unbindable", "'unbindable'" },
	{ "sizelimit", "sizelimit=1", "'sizelimit'" },
	{ "encryption", "encryption=x", "'encryption'" },
	{ "group", "group", "'group'" },
	{ "clientaddr", "clientaddr=192.0.2.1", "'clientaddr'" },
	{ "shared", "shared", "'shared'" },
	{ "slave", "slave", "'slave'" },
	{ "rprivate", "rprivate", "'rprivate'" },
	{ "runbindable", "runbindable", "'runbindable'" },
	{ "make-private", "make-private", "'make-private'" },
	{ "make-rshared", "make-rshared", "'make-rshared'" },
	{ "dash", "-o", "'-o'" },
	{ "dash, later", "soft,--bind", "'--bind'" },
	{ "version 2", "vers=2", "version" },
	{ "v2", "v2", "version" },
	{ "version 4.3", "nfsvers=4.3", "version" },
	{ "version 9", "vers=9", "version" },
	{ "version empty", "vers=", "version" },
	{ "version with a space", "vers= 4", "version" },
	{ "v4 and more", "v4.1x", "version" },
	{ "bad version before a good one", "vers=x,vers=3", "version" },
	{ "minorversion 3", "minorversion=3", "minorversion" },
	{ "minorversion text", "minorversion=x", "minorversion" },
	{ "port too large", "port=65536", "port" },
	{ "port negative", "port=-1", "port" },
	{ "port empty", "port=", "port" },
	{ "port hexadecimal", "port=0x801", "port" },
	{ "ro with a value", "ro=1", "'ro' takes no value" },
	{ "rw with a value", "ro,rw=0", "'rw' takes no value" },
	{ "line feed", "soft\nhard", "control" },
	/* libmount drops what follows such a mark, or takes commas as text. */
	{ "quotation mark", "x=\"", "quotation" },
	{ "quotation mark alone", "\"", "quotation" },
	{ "quotation mark, then nosuid", "x=\",nosuid,nodev", "quotation" },
	{ "quotation mark behind options", "soft,x=a\"", "quotation" },
	{ "two, of another option", "x=\"a,b\"", "quotation" },
	{ "context whose end is left out", "context=\"u:r,x-end\",nosuid", "quotation" },
	{ "context without an end", "context=\"u:r,nosuid", "quotation" },
	{ "context with text behind it", "context=\"u:r\"x,nosuid", "quotation" },
	{ "context with a mark behind it", "context=\"u:r\"\",nosuid", "quotation" },
	{ "mark within a context without quotes", "context=u\"r,nosuid", "quotation" },
	{ "option with a value within a context", "context=\"u,port=1,r\"", "quotation" },
	{ "key that ends like one", "xcontext=\"u:r\"", "quotation" },
	{ "second context without an end", "context=\"a\",context=\"", "quotation" },
	{ "backslash", "x=\\,nosuid", "backslash" },
	{ "backslash at the end", "x=a\\", "backslash" },
	{ "backslash in a context", "context=\"a\\\"", "quotation" },
	{ "tab", "soft\t", "control" },
	{ "delete", "a\x7f", "control" },
};

START_TEST(test_bad)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		struct error err = { .code = ERROR_OK };
		struct mount_options o = { .major = 77 };

		check_int(bad[i].name, "result", mount_options_parse(&o, bad[i].text, &err),
			  -EINVAL);
		check_error(bad[i].name, &err, ERROR_INVALID_ARGUMENT, bad[i].word);
		check_int(bad[i].name, "output, which is to be left alone,", o.major, 77);
		check_int(bad[i].name, "check", mount_options_check(bad[i].text, NULL), -EINVAL);
	}
}
END_TEST

/* Values may be secret, and a refusal goes into a status and a log. */
START_TEST(test_values_are_not_shown)
{
	static const char *const texts[] = {
		"helper=hunter2",      "addr=hunter2",         "vers=hunter2",
		"port=hunter2",        "minorversion=hunter2", "soft,mounthost=hunter2",
		"secret=hunter2,bind", "bind,secret=hunter2",  "secret=hunter2\n",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		struct error err = { .code = ERROR_OK };

		check_int(texts[i], "result", mount_options_check(texts[i], &err), -EINVAL);
		check_error(texts[i], &err, ERROR_INVALID_ARGUMENT, NULL);
		check_that(texts[i], "that the value stays out of the message",
			   strstr(err.msg, "hunter2") == NULL);
	}
}
END_TEST

/* What the controller reads: only how to reach the server, whatever nodes would refuse. */
START_TEST(test_read)
{
	static const struct {
		const char *name;
		const char *text;
		unsigned int major;
		int minor;
		uint16_t port, mount_port;
		const char *sec; /* NULL: not given */
		const char *word; /* in the error; NULL: success */
	} rows[] = {
		{ "no text", NULL, 4, 1, 2050, 20048, "krb5" },
		{ "empty", "", 4, 1, 2050, 20048, "krb5" },
		{ "for the kernel", "hard,,timeo=600,versions", 4, 1, 2050, 20048, "krb5" },
		{ "version", "vers=3", 3, -1, 2050, 20048, "krb5" },
		{ "last version wins", "v3,nfsvers=4.2", 4, 2, 2050, 20048, "krb5" },
		{ "4 is the newest", "vers=4", 4, -1, 2050, 20048, "krb5" },
		{ "minorversion is for mounts", "minorversion=7", 4, 1, 2050, 20048, "krb5" },
		{ "last port wins", "port=1,port=2", 4, 1, 2, 20048, "krb5" },
		{ "default ports", "port=0,mountport=0", 4, 1, 0, 0, "krb5" },
		{ "RDMA's port", "proto=rdma,port=20049", 4, 1, 0, 20048, "krb5" },
		{ "RDMA's port first", "port=20049,proto=rdma6", 4, 1, 0, 20048, "krb5" },
		{ "rdma", "rdma,port=20049", 4, 1, 0, 20048, "krb5" },
		{ "RDMA without a port", "proto=rdma", 4, 1, 0, 20048, "krb5" },
		{ "TCP after RDMA", "proto=rdma,proto=tcp,port=2051", 4, 1, 2051, 20048, "krb5" },
		{ "tcp after rdma", "rdma,tcp,port=2051", 4, 1, 2051, 20048, "krb5" },
		{ "mountport", "mountport=65535", 4, 1, 2050, 65535, "krb5" },
		{ "last sec wins", "sec=sys,sec=krb5p", 4, 1, 2050, 20048, "krb5p" },
		{ "empty sec", "sec=", 4, 1, 2050, 20048, "" },
		{ "sec without a value", "sec,second=1", 4, 1, 2050, 20048, "krb5" },
		{ "what nodes refuse", "bind,-o,helper=sh,addr=x,vers=3", 3, -1, 2050, 20048,
		  "krb5" },
		{ "control characters", "soft\n,\tport=1", 4, 1, 2050, 20048, "krb5" },
		{ "version 2", "vers=2", .word = "version" },
		{ "version and a line feed", "vers=3\n", .word = "version" },
		{ "port", "port=65536", .word = "port" },
		{ "mountport in words", "mountport=x", .word = "mountport" },
		{ "empty mountport", "mountport=", .word = "mountport" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_mount_options struct mount_options o = {
			.major = 4, .minor = 1, .port = 2050, .mount_port = 20048
		};
		const enum error_code code =
			rows[i].word == NULL ? ERROR_OK : ERROR_INVALID_ARGUMENT;
		struct error err = { .code = ERROR_OK };

		o.sec = strdup("krb5");
		check_int(rows[i].name, "result", mount_options_read(&o, rows[i].text, &err),
			  code == ERROR_OK ? 0 : -EINVAL);
		check_error(rows[i].name, &err, code, rows[i].word);
		if (code != ERROR_OK)
			continue;
		check_int(rows[i].name, "major", o.major, rows[i].major);
		check_int(rows[i].name, "minor", o.minor, rows[i].minor);
		check_int(rows[i].name, "port", o.port, rows[i].port);
		check_int(rows[i].name, "mountport", o.mount_port, rows[i].mount_port);
		check_str(rows[i].name, "sec", o.sec, rows[i].sec);
		check_str(rows[i].name, "rest", o.rest, NULL);
	}
}
END_TEST

/* The secret of a class names one of them, its mount options the other. */
START_TEST(test_rdma_in_two_texts)
{
	static const char *const texts[][2] = { { "proto=rdma", "port=20049" },
						{ "port=20049", "proto=rdma" } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(texts); i++) {
		cleanup_mount_options struct mount_options o = { .minor = -1 };
		struct error err = { .code = ERROR_OK };

		ck_assert_int_eq(mount_options_read(&o, texts[i][0], &err), 0);
		ck_assert_int_eq(mount_options_read(&o, texts[i][1], &err), 0);
		check_int(texts[i][0], "port", o.port, 0);
	}
}
END_TEST

START_TEST(test_append)
{
	static const struct {
		const char *name;
		const char *parts[3];
		const char *list;
	} rows[] = {
		{ "nothing", { NULL, "", NULL }, "" },
		{ "one", { "", "hard", NULL }, "hard" },
		{ "several", { "hard,soft", NULL, "ro" }, "hard,soft,ro" },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_buf struct buf list = { 0 };
		cleanup_free char *text = NULL;

		for (k = 0; k < ARRAY_SIZE(rows[i].parts); k++)
			check_int(rows[i].name, "result",
				  mount_options_append(&list, rows[i].parts[k]), 0);
		text = buf_steal(&list);
		check_str(rows[i].name, "list", text, rows[i].list);
	}
}
END_TEST

START_TEST(test_no_options)
{
	check_int("NULL", "result", mount_options_check(NULL, NULL), 0);
}
END_TEST

START_TEST(test_length)
{
	char *longest = check_repeat("a", MOUNT_OPTIONS_MAX);
	char *too_long = check_repeat("a", MOUNT_OPTIONS_MAX + 1);
	struct error err = { .code = ERROR_OK };
	struct mount_options o;

	check_int("longest", "result", mount_options_parse(&o, longest, &err), 0);
	check_str("longest", "rest", o.rest, longest);
	mount_options_done(&o);
	check_int("too long", "result", mount_options_check(too_long, &err), -EINVAL);
	check_error("too long", &err, ERROR_INVALID_ARGUMENT, "4096");
	free(longest);
	free(too_long);
}
END_TEST

/* Driver and helper both parse the options, and must agree. */
START_TEST(test_rest_is_stable)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		struct mount_options a, b;

		check_int(good[i].name, "first", mount_options_parse(&a, good[i].text, NULL), 0);
		check_int(good[i].name, "second", mount_options_parse(&b, a.rest, NULL), 0);
		check_str(good[i].name, "rest of the rest", b.rest, a.rest);
		check_int(good[i].name, "version in the rest", b.major, 0);
		check_int(good[i].name, "port again", b.port, a.port);
		check_int(good[i].name, "no_lock again", b.no_lock, a.no_lock);
		mount_options_done(&a);
		mount_options_done(&b);
	}
}
END_TEST

START_TEST(test_done_twice)
{
	struct mount_options o;

	ck_assert_int_eq(mount_options_parse(&o, "soft", NULL), 0);
	mount_options_done(&o);
	ck_assert_ptr_null(o.rest);
	mount_options_done(&o);
	ck_assert_int_eq(o.minor, -1);
}
END_TEST

CHECK_MAIN("mount_options", .tests = {
				    test_good,
				    test_bad,
				    test_values_are_not_shown,
				    test_read,
				    test_rdma_in_two_texts,
				    test_append,
				    test_no_options,
				    test_length,
				    test_rest_is_stable,
				    test_done_twice,
			    })
