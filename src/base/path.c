/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/path.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

static int check_component(const char *c, size_t len, const char *field, struct error *err)
{
	if (len == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: empty path component", field);
	if ((len == 1 && c[0] == '.') || (len == 2 && c[0] == '.' && c[1] == '.'))
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "%s: '%.*s' is not allowed as a path component", field, (int)len,
				 c);
	if (len > PATH_COMPONENT_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "%s: a path component has %zu bytes, the limit is %d", field, len,
				 PATH_COMPONENT_MAX);
	return 0;
}

int path_check_mounted(const char *path, const char *field, struct error *err)
{
	size_t len = strlen(path);
	int r;

	if (len == 0)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: must not be empty", field);
	if (len > PATH_LENGTH_MAX)
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: has %zu bytes, the limit is %d",
				 field, len, PATH_LENGTH_MAX);
	if (str_has_control(path))
		return error_set(err, ERROR_INVALID_ARGUMENT, "%s: contains a control character",
				 field);
	for (;;) {
		size_t n = strcspn(path, "/");

		r = check_component(path, n, field, err);
		if (r < 0)
			return r;
		if (path[n] == '\0')
			return 0;
		path += n + 1;
	}
}

int path_check_relative(const char *path, const char *field, struct error *err)
{
	if (strchr(path, '#') != NULL)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "%s: '#' is not allowed, it separates the fields of volume ids",
				 field);
	return path_check_mounted(path, field, err);
}

bool path_has_component(const char *path, const char *component)
{
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n == strlen(component) && strncasecmp(path, component, n) == 0)
			return true;
		if (path[n] == '\0')
			return false;
		path += n + 1;
	}
}

static bool is_ascii(const char *name, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((unsigned char)name[i] >= 0x80)
			return false;
	return true;
}

bool path_may_be_same_name(const char *a, size_t n, const char *b, size_t m)
{
	if (!is_ascii(a, n) || !is_ascii(b, m))
		return true;
	return n == m && strncasecmp(a, b, n) == 0;
}

enum path_relation path_compare(const char *path, const char *other)
{
	for (;;) {
		size_t n = strcspn(path, "/"), m = strcspn(other, "/");

		if (!path_may_be_same_name(path, n, other, m))
			return PATH_IS_APART;
		path += n;
		other += m;
		if (*path == '\0')
			return *other == '\0' ? PATH_IS_SAME : PATH_IS_AROUND;
		if (*other == '\0')
			return PATH_IS_IN;
		path++;
		other++;
	}
}

char *path_clean(const char *path)
{
	char *clean = malloc(strlen(path) + 2); /* "/" for "", and the NUL byte */
	char *out = clean;

	if (clean == NULL)
		return NULL;
	for (;;) {
		size_t n = strcspn(path, "/");

		if (n > 1 || (n == 1 && path[0] != '.')) {
			*out++ = '/';
			memcpy(out, path, n);
			out += n;
		}
		if (path[n] == '\0')
			break;
		path += n + 1;
	}
	if (out == clean)
		*out++ = '/';
	*out = '\0';
	return clean;
}

char *path_trim(const char *path)
{
	cleanup_free char *clean = path_clean(path);

	return clean != NULL ? strdup(clean + 1) : NULL;
}

uint64_t path_hash(const char *path, size_t len)
{
	char lower[PATH_LENGTH_MAX];
	size_t i;

	for (i = 0; i < len && i < sizeof(lower); i++)
		lower[i] = path[i] >= 'A' && path[i] <= 'Z' ? (char)(path[i] - 'A' + 'a') : path[i];
	return str_hash(lower, i);
}

static int append_part(struct buf *b, const char *part)
{
	cleanup_free char *clean = path_clean(part);

	if (clean == NULL)
		return -ENOMEM;
	return clean[1] != '\0' ? buf_puts(b, clean) : 0;
}

char *path_join_root(const char *first, ...)
{
	cleanup_buf struct buf b = { 0 };
	const char *part;
	va_list ap;
	int r = 0;

	va_start(ap, first);
	for (part = first; part != NULL && r == 0; part = va_arg(ap, const char *))
		r = append_part(&b, part);
	va_end(ap);
	if (r == 0 && b.len == 0)
		r = buf_append(&b, "/", 1);
	return r < 0 ? NULL : buf_steal(&b);
}
