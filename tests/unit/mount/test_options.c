/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "check_util.h"
#include "mount/mounter.h"
#include "mount/options.h"

static const struct {
	const char *name;
	const char *text;
	unsigned int major;
	int minor;
	uint16_t port;
	bool no_lock, no_ping;
	const char *rest;
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
	{ "keys that only begin like refused ones", "binder,mover,addressed,owners=1", 0, -1, 0,
	  false, false, "binder,mover,addressed,owners=1" },
	{ "keys of which refused ones are the end", "noaddr,unbind", 0, -1, 0, false, false,
	  "noaddr,unbind" },
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
	{ "line feed", "soft\nhard", "control" },
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
				    test_length,
				    test_rest_is_stable,
				    test_done_twice,
			    })
