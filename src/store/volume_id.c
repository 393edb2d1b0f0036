/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/volume_id.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "net/address.h"
#include "nfs/export.h"
#include "store/layout.h"
#include "store/record.h"

#define FIELDS_MIN 3 /* of five; any after the fifth are ignored, as in csi-driver-nfs */
#define ON_DELETE_BYTES 7 /* for "archive" and "retain" */
#define URL_PREFIX "nfs://"
#define SEPARATORS 4
#define HASH_CHARS 16
#define KEY_MIN (HASH_CHARS + 8)

void volume_id_done(struct volume_id *id)
{
	free(id->server);
	free(id->share);
	free(id->subdir);
	free(id->uuid);
	free(id->on_delete);
	*id = (struct volume_id){ .server = NULL };
}

const char *volume_id_key(const struct volume_id *id)
{
	return id->uuid[0] != '\0' ? id->uuid : id->subdir;
}

bool volume_id_has_address_of(const struct volume_id *a, const struct volume_id *b)
{
	return strcmp(a->server, b->server) == 0 && strcmp(a->share, b->share) == 0;
}

char *volume_id_format(const struct volume_id *id)
{
	cleanup_buf struct buf b = { 0 };

	if (buf_printf(&b, "%s#%s#%s#%s#%s", id->server, id->share, id->subdir, id->uuid,
		       id->on_delete) < 0)
		return NULL;
	return buf_steal(&b);
}

static void split_fields(const struct strv *v, struct volume_id *id)
{
	cleanup_free char *server = path_trim(v->items[0]);

	id->server = server != NULL ? net_server_without_brackets(server) : NULL;
	id->share = path_trim(v->items[1]);
	id->subdir = path_trim(v->items[2]);
	id->uuid = strdup(v->n > 3 ? v->items[3] : "");
	id->on_delete = strdup(v->n > 4 ? v->items[4] : "");
}

/* csi-driver-nfs up to 3.0: {server}/{share}/{subDir}, with slashes allowed in share. */
static int split_slashed(const char *text, struct volume_id *id)
{
	const char *first = strchr(text, '/');
	const char *last = strrchr(text, '/');
	cleanup_free char *server = NULL, *share = NULL;

	if (strchr(text, '#') != NULL)
		return -EINVAL;
	if (first == NULL || first == text || first == last || last[1] == '\0')
		return -EINVAL;
	server = strndup(text, (size_t)(first - text));
	id->server = server != NULL ? net_server_without_brackets(server) : NULL;
	share = strndup(first + 1, (size_t)(last - first - 1));
	id->share = share != NULL ? path_trim(share) : NULL;
	id->subdir = strdup(last + 1);
	id->uuid = strdup("");
	id->on_delete = strdup("");
	return 0;
}

/* Whether the id can be read again after it is written with all five fields. */
static bool id_is_writable(const struct volume_id *id)
{
	return strlen(id->server) + strlen(id->share) + strlen(id->subdir) + strlen(id->uuid) +
		       strlen(id->on_delete) + SEPARATORS <=
	       VOLUME_ID_TEXT_MAX;
}

/* Whether the id stays within its share, and out of the driver's own folder. */
static bool id_is_safe(const struct volume_id *id)
{
	if (net_server_check(id->server, NULL) < 0)
		return false;
	if (id->share[0] != '\0' && (path_check_relative(id->share, "share", NULL) < 0 ||
				     path_has_component(id->share, NFS_STATE_DIR)))
		return false;
	if (path_check_relative(id->subdir, "subDir", NULL) < 0 ||
	    path_has_component(id->subdir, NFS_STATE_DIR))
		return false;
	if (id->uuid[0] == '\0')
		return true;
	return strchr(id->uuid, '/') == NULL && path_check_relative(id->uuid, "uuid", NULL) == 0;
}

int volume_id_parse(struct volume_id *ret, const char *text)
{
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_strv struct strv v = { NULL, 0 };
	int r;

	if (strlen(text) > VOLUME_ID_TEXT_MAX)
		return -EINVAL;
	/* Tutorials use this form for handwritten handles. */
	if (str_has_prefix(text, URL_PREFIX) && strchr(text, '#') == NULL)
		text += strlen(URL_PREFIX);
	r = strv_split(&v, text, '#');
	if (r < 0)
		return r;
	if (v.n >= FIELDS_MIN)
		split_fields(&v, &id);
	else
		r = split_slashed(text, &id);
	if (r < 0)
		return r;
	if (id.server == NULL || id.share == NULL || id.subdir == NULL || id.uuid == NULL ||
	    id.on_delete == NULL)
		return -ENOMEM;
	if (!id_is_safe(&id) || !id_is_writable(&id))
		return -EINVAL;
	*ret = id;
	id = (struct volume_id){ .server = NULL };
	return 0;
}

/*
 * Escape what cannot be in a key: also '%', so that no two names share a key, '~', which marks
 * parts of records, and a leading '.', which would hide the directory or even name the driver's
 * own.
 */
static int escape_name(const char *name, struct buf *b)
{
	const char *p;
	int r = 0;

	for (p = name; *p != '\0' && r == 0; p++) {
		unsigned char c = (unsigned char)*p;

		if (c < 0x20 || c == 0x7f || strchr("/#%~", c) != NULL || (c == '.' && p == name))
			r = buf_printf(b, "%%%02X", c);
		else
			r = buf_append(b, p, 1);
	}
	return r;
}

/* Return the length of the longest prefix that splits neither a UTF-8 character nor a %XX. */
static size_t cut_escaped(const char *s, size_t max)
{
	size_t n = str_utf8_cut(s, max);

	if (n >= 1 && s[n - 1] == '%')
		return n - 1;
	if (n >= 2 && s[n - 2] == '%')
		return n - 2;
	return n;
}

int volume_key(const char *name, const char *server, const char *share, char **ret,
	       struct error *err)
{
	size_t taken = strlen(server) + strlen(share) + SEPARATORS + ON_DELETE_BYTES;
	size_t max = taken < VOLUME_ID_MAX ? VOLUME_ID_MAX - taken : 0;
	cleanup_buf struct buf b = { 0 };
	int r;

	if (max < KEY_MIN)
		return error_set(err, ERROR_INVALID_ARGUMENT,
				 "server and share: together too long for a volume id (%zu bytes; at most %d fit)",
				 strlen(server) + strlen(share),
				 VOLUME_ID_MAX - SEPARATORS - ON_DELETE_BYTES - KEY_MIN);
	if (max > RECORD_NAME_MAX)
		max = RECORD_NAME_MAX;
	r = escape_name(name, &b);
	if (r == 0 && b.len > max) {
		b.len = cut_escaped(b.data, max - HASH_CHARS - 1);
		r = buf_printf(&b, "-%016" PRIx64, str_hash(name, strlen(name)));
	}
	if (r < 0)
		return error_oom(err);
	*ret = buf_steal(&b);
	return *ret != NULL ? 0 : error_oom(err);
}

int volume_id_pair_parse(struct volume_id_pair *ret, const char *own, const char *source)
{
	int r = own != NULL && source != NULL ? volume_id_parse(&ret->own, own) : -EINVAL;

	return r < 0 ? r : volume_id_parse(&ret->source, source);
}

bool volume_id_pair_has_source_of(const struct volume_id_pair *a, const struct volume_id_pair *b)
{
	return volume_id_has_address_of(&a->own, &a->source) &&
	       volume_id_has_address_of(&b->own, &b->source) &&
	       strcmp(a->source.subdir, b->source.subdir) == 0 &&
	       strcmp(a->source.uuid, b->source.uuid) == 0;
}

void volume_id_pair_done(struct volume_id_pair *pair)
{
	volume_id_done(&pair->own);
	volume_id_done(&pair->source);
}
