/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "mount/request.h"

void mount_options_done(struct mount_options *o)
{
	free(o->rest);
	*o = (struct mount_options){ .minor = -1 };
}

/* Compare the key of an option, up to '='. A key that ends in '-' or '.' matches as a prefix. */
static bool option_has_key(const char *option, const char *key)
{
	const char last = key[strlen(key) - 1];
	size_t len = strcspn(option, "=");

	if (last == '-' || last == '.')
		return str_has_prefix(option, key);
	return strlen(key) == len && strncmp(option, key, len) == 0;
}

static bool option_is_among(const char *option, const char *const *keys, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (option_has_key(option, keys[i]))
			return true;
	return false;
}

/* Options that mount something else, or elsewhere, or run a program of the user's choice. */
static bool option_is_refused(const char *option)
{
	static const char *const keys[] = {
		"bind",       "rbind",      "move",        "remount",    "loop",      "offset",
		"sizelimit",  "encryption", "helper",      "uhelper",    "user",      "users",
		"owner",      "group",      "addr",        "clientaddr", "mountaddr", "mounthost",
		"shared",     "rshared",    "slave",       "rslave",     "private",   "rprivate",
		"unbindable", "X-mount.",   "runbindable", "make-",
	};

	return option_is_among(option, keys, ARRAY_SIZE(keys));
}

/* Options for fstab, and for how long mount.nfs retries: meaningless here, but harmless. */
static bool option_is_ignored(const char *option)
{
	static const char *const keys[] = {
		"nofail", "_netdev", "bg", "fg", "retry", "auto", "noauto", "x-", "X-", "comment",
	};

	return option_is_among(option, keys, ARRAY_SIZE(keys));
}

static int options_parse_version(struct mount_options *o, const char *value, struct error *err)
{
	static const struct {
		const char *text;
		unsigned int major;
		int minor;
	} versions[] = {
		{ "3", 3, -1 }, { "4", 4, -1 }, { "4.0", 4, 0 }, { "4.1", 4, 1 }, { "4.2", 4, 2 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(versions); i++) {
		if (strcmp(value, versions[i].text) == 0) {
			o->major = versions[i].major;
			o->minor = versions[i].minor;
			return 0;
		}
	}
	return error_set(err, ERROR_INVALID_ARGUMENT,
			 "mount options: the NFS version must be 3, 4, 4.0, 4.1 or 4.2");
}

/* Returns 1 if the option names the version, 0 if not, or a negative errno. */
static int options_take_version(struct mount_options *o, const char *option, struct error *err)
{
	const char *value = NULL;
	uint64_t minor;
	int r;

	if (str_has_prefix(option, "vers="))
		value = option + 5;
	else if (str_has_prefix(option, "nfsvers="))
		value = option + 8;
	else if (option[0] == 'v' && isdigit((unsigned char)option[1]))
		value = option + 1;
	if (value != NULL) {
		r = options_parse_version(o, value, err);
		return r < 0 ? r : 1;
	}
	if (!str_has_prefix(option, "minorversion="))
		return 0;
	if (str_parse_u64(option + 13, 10, 2, &minor) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: minorversion must be 0, 1 or 2");
	o->major = 4;
	o->minor = (int)minor;
	return 1;
}

static int options_take(struct mount_options *o, const char *option, struct buf *rest,
			struct error *err)
{
	uint64_t port;
	int r;

	if (option[0] == '\0' || option_is_ignored(option))
		return 0;
	if (option[0] == '-' || option_is_refused(option))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: '%.*s' is not allowed for a volume",
				 (int)strcspn(option, "="), option);
	r = options_take_version(o, option, err);
	if (r != 0)
		return r < 0 ? r : 0;
	if (str_has_prefix(option, "port=")) {
		if (str_parse_u64(option + 5, 10, UINT16_MAX, &port) < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount options: port must be a number from 0 to 65535");
		o->port = (uint16_t)port;
	}
	if (strcmp(option, "nolock") == 0 || strcmp(option, "local_lock=all") == 0)
		o->no_lock = true;
	if (strcmp(option, "lock") == 0)
		o->no_lock = false;
	if (option_has_key(option, "rdma") || option_has_key(option, "udp") ||
	    str_has_prefix(option, "proto=rdma") || str_has_prefix(option, "proto=udp"))
		o->no_ping = true;
	if (buf_printf(rest, "%s%s", rest->len > 0 ? "," : "", option) < 0)
		return error_oom(err);
	return 0;
}

int mount_options_parse(struct mount_options *ret, const char *text, struct error *err)
{
	cleanup_mount_options struct mount_options o = { .minor = -1 };
	cleanup_strv struct strv v = { NULL, 0 };
	cleanup_buf struct buf rest = { 0 };
	size_t i;
	int r;

	if (strlen(text) > MOUNT_OPTIONS_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: %zu bytes, the limit is %d", strlen(text),
				 MOUNT_OPTIONS_MAX);
	if (str_has_control(text))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: contain a control character");
	r = strv_split(&v, text, ',');
	if (r < 0)
		return error_oom(err);
	for (i = 0; i < v.n; i++) {
		r = options_take(&o, v.items[i], &rest, err);
		if (r < 0)
			return r;
	}
	o.rest = buf_steal(&rest);
	if (o.rest == NULL)
		return error_oom(err);
	*ret = o;
	o = (struct mount_options){ .minor = -1 };
	return 0;
}

int mount_options_check(const char *options, struct error *err)
{
	struct mount_options o;
	int r = mount_options_parse(&o, options, err);

	if (r == 0)
		mount_options_done(&o);
	return r;
}
