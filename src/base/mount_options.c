/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/mount_options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void mount_options_done(struct mount_options *o)
{
	free(o->sec);
	free(o->rest);
	*o = (struct mount_options){ .minor = -1 };
}

int mount_options_append(struct buf *list, const char *options)
{
	if (str_is_empty(options))
		return 0;
	return buf_printf(list, "%s%s", list->len > 0 ? "," : "", options);
}

/* Options that mount something else or elsewhere, or run a program of the user's choice. */
static const char *const refused[] = {
	"-",       "addr",       "bind",        "clientaddr", "encryption", "group",
	"helper",  "loop",       "make-",       "mountaddr",  "mounthost",  "move",
	"offset",  "owner",      "private",     "rbind",      "remount",    "rprivate",
	"rshared", "rslave",     "runbindable", "shared",     "sizelimit",  "slave",
	"uhelper", "unbindable", "user",        "users",      NULL,
};

/* Options for fstab, and for the time that mount.nfs retries: meaningless here, but harmless. */
static const char *const ignored[] = {
	"_netdev", "auto", "bg", "comment", "fg", "noauto", "nofail", "retry", "x-", "X-", NULL,
};

/* Compare the key of an option, up to '='. A key that ends in '-' matches as a prefix. */
static bool option_has_key(const char *option, const char *key)
{
	const size_t len = strlen(key);

	return str_has_prefix(option, key) &&
	       (key[len - 1] == '-' || option[len] == '=' || option[len] == '\0');
}

/* keys end with NULL. Return the one that the option has, or NULL. */
static const char *option_key_among(const char *option, const char *const *keys)
{
	while (*keys != NULL && !option_has_key(option, *keys))
		keys++;
	return *keys;
}

int mount_options_find(const char *text, const char *const *keys, const char **ret)
{
	cleanup_strv struct strv v = { NULL, 0 };
	size_t i;

	*ret = NULL;
	if (strv_split(&v, text != NULL ? text : "", ',') < 0)
		return -ENOMEM;
	for (i = 0; i < v.n && *ret == NULL; i++)
		*ret = option_key_among(v.items[i], keys);
	return 0;
}

/* Return the value of KEY=VALUE, or NULL for another option. */
static const char *option_value(const char *option, const char *key)
{
	const size_t len = strlen(key);

	return str_has_prefix(option, key) && option[len] == '=' ? option + len + 1 : NULL;
}

/* Return the version in vers=V, nfsvers=V or vV, or NULL for another option. */
static const char *option_version(const char *option)
{
	const char *value = option_value(option, "vers");

	if (value == NULL)
		value = option_value(option, "nfsvers");
	if (value == NULL && option[0] == 'v' && isdigit((unsigned char)option[1]))
		value = option + 1;
	return value;
}

static int options_set_version(struct mount_options *o, const char *value, struct error *err)
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

static int option_read_port(const char *option, const char *key, uint16_t *ret, struct error *err)
{
	const char *value = option_value(option, key);
	uint64_t port;

	if (value == NULL)
		return 0;
	if (str_parse_u64(value, 10, UINT16_MAX, &port) < 0)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: %s must be a number from 0 to 65535", key);
	*ret = (uint16_t)port;
	return 0;
}

/* The transport is given as proto=NETID or, for the kernel's older options, as its bare name. */
static void options_read_transport(struct mount_options *o, const char *option)
{
	const char *proto = option_value(option, "proto");

	if (proto != NULL)
		o->rdma = str_has_prefix(proto, "rdma");
	else if (strcmp(option, "rdma") == 0)
		o->rdma = true;
	else if (strcmp(option, "tcp") == 0 || strcmp(option, "udp") == 0)
		o->rdma = false;
}

static int options_read_one(struct mount_options *o, const char *option, struct error *err)
{
	const char *version = option_version(option), *sec = option_value(option, "sec");

	if (version != NULL)
		return options_set_version(o, version, err);
	if (sec != NULL) {
		free(o->sec);
		o->sec = strdup(sec);
		return o->sec != NULL ? 0 : error_oom(err);
	}
	options_read_transport(o, option);
	return option_read_port(option, "port", &o->port, err);
}

int mount_options_read(struct mount_options *o, const char *text, struct error *err)
{
	cleanup_strv struct strv v = { NULL, 0 };
	size_t i;
	int r = 0;

	if (strv_split(&v, text != NULL ? text : "", ',') < 0)
		return error_oom(err);
	for (i = 0; i < v.n && r == 0; i++) {
		r = options_read_one(o, v.items[i], err);
		if (r == 0)
			r = option_read_port(v.items[i], "mountport", &o->mount_port, err);
	}
	if (o->rdma)
		o->port = 0;
	return r;
}

/* The kernel refuses an address of the other family; a bare "tcp" names none. */
static void options_read_family(struct mount_options *o, const char *option)
{
	const char *proto = option_value(option, "proto");

	if (proto != NULL)
		o->family = proto[0] != '\0' && proto[strlen(proto) - 1] == '6' ? 6 : 4;
	else if (strcmp(option, "tcp") == 0 || strcmp(option, "udp") == 0 ||
		 strcmp(option, "rdma") == 0)
		o->family = 0;
}

static int options_parse_one(struct mount_options *o, const char *option, struct buf *rest,
			     struct error *err)
{
	const char *minor = option_value(option, "minorversion");
	const int last_minor = o->minor;
	uint64_t n;
	int r;

	if (option_key_among(option, ignored) != NULL)
		return 0;
	if (option_key_among(option, refused) != NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "mount options: '%.*s' is not allowed for a volume",
				 (int)strcspn(option, "="), option);
	if (minor != NULL) {
		if (str_parse_u64(minor, 10, 2, &n) < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount options: minorversion must be 0, 1 or 2");
		o->major = 4;
		o->minor = (int)n;
		return 0;
	}
	r = options_read_one(o, option, err);
	/* As the kernel has it, "4" leaves the minor version alone. */
	if (o->major == 4 && o->minor < 0)
		o->minor = last_minor;
	if (r < 0 || option_version(option) != NULL)
		return r;
	if (option_has_key(option, "ro") || option_has_key(option, "rw")) {
		/* ro=1 would make the file system read-only, and leave the mount writable. */
		if (option[2] != '\0')
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount options: '%.2s' takes no value", option);
		o->read_only = option[1] == 'o';
	}
	options_read_family(o, option);
	if (strcmp(option, "nosuid") == 0 || strcmp(option, "suid") == 0)
		o->no_suid = option[0] == 'n';
	if (strcmp(option, "nodev") == 0 || strcmp(option, "dev") == 0)
		o->no_dev = option[0] == 'n';
	if (strcmp(option, "nolock") == 0 || strcmp(option, "local_lock=all") == 0)
		o->no_lock = true;
	if (strcmp(option, "lock") == 0)
		o->no_lock = false;
	if (option_has_key(option, "rdma") || option_has_key(option, "udp") ||
	    str_has_prefix(option, "proto=rdma") || str_has_prefix(option, "proto=udp"))
		o->no_ping = true;
	return mount_options_append(rest, option) < 0 ? error_oom(err) : 0;
}

/* Return the text behind a quoted SELinux context at the start of text, or text. */
static const char *skip_context(const char *text)
{
	static const char *const keys[] = { "context", "fscontext", "defcontext", "rootcontext" };
	size_t i, len;

	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *value = option_value(text, keys[i]);

		if (value == NULL || value[0] != '"')
			continue;
		/* Refuse '=': a parser that splits the context at its commas would see values. */
		len = strcspn(value + 1, "\"=\\");
		if (value[1 + len] == '"' && (value[2 + len] == ',' || value[2 + len] == '\0'))
			return value + 2 + len;
	}
	return text;
}

static int check_quotes(const char *text, struct error *err)
{
	while (*text != '\0') {
		text = skip_context(text);
		text += strcspn(text, ",\"\\");
		if (*text == '"')
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount options: quotation marks are allowed only around an SELinux context, as in context=\"u:r:t:s0:c1,c2\"");
		if (*text == '\\')
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "mount options: a backslash is not allowed");
		text += *text == ',';
	}
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
	if (strv_split(&v, text, ',') < 0)
		return error_oom(err);
	for (i = 0; i < v.n; i++) {
		r = options_parse_one(&o, v.items[i], &rest, err);
		if (r < 0)
			return r;
	}
	r = check_quotes(text, err);
	if (r < 0)
		return r;
	o.rest = buf_steal(&rest);
	if (o.rest == NULL)
		return error_oom(err);
	/* What was left out may have had one of two marks, as in context="a,x-b". */
	r = check_quotes(o.rest, err);
	if (r < 0)
		return r;
	*ret = o;
	o = (struct mount_options){ .minor = -1 };
	return 0;
}

int mount_options_check(const char *text, struct error *err)
{
	cleanup_mount_options struct mount_options o = { .minor = -1 };

	return mount_options_parse(&o, text != NULL ? text : "", err);
}
