/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "node/inline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/mount_options.h"
#include "base/path.h"
#include "base/str.h"
#include "csi/params.h"
#include "net/address.h"

#define EPHEMERAL_KEY "csi.storage.k8s.io/ephemeral" /* set by kubelet */

/* kubelet gives inline volumes, and no others, ids of this form: the digits are a SHA-256. */
#define ID_PREFIX "csi-"
#define ID_DIGITS 64

/* Split an entry at ":/". The caller frees both parts, also after a failure. */
static int inline_entry_split(const char *entry, char **ret_server, char **ret_path)
{
	const char *colon = strstr(entry, ":/");
	cleanup_free char *server = colon != NULL ? strndup(entry, (size_t)(colon - entry)) : NULL;

	if (colon == NULL)
		return -EINVAL;
	*ret_server = server != NULL ? net_server_without_brackets(server) : NULL;
	*ret_path = path_join_root(colon + 1, NULL);
	return *ret_server != NULL && *ret_path != NULL ? 0 : -ENOMEM;
}

int node_inline_list_check(const char *list, struct error *err)
{
	cleanup_strv struct strv entries = { NULL, 0 };
	size_t i;
	int r;

	r = strv_split(&entries, list, ',');
	if (r < 0)
		return error_oom(err);
	for (i = 0; i < entries.n; i++) {
		cleanup_free char *server = NULL, *path = NULL;

		r = inline_entry_split(entries.items[i], &server, &path);
		if (r == -ENOMEM)
			return error_oom(err);
		if (r < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "'%s' is not of the form server:/path", entries.items[i]);
		r = volume_location_check(server, path, err);
		if (r < 0)
			return r;
	}
	return 0;
}

bool node_inline_is_asked(const char *volume_id, const struct csi_map *context)
{
	const char *value = csi_map_get(context, EPHEMERAL_KEY);

	if (value != NULL && str_eq_nocase(value, "true"))
		return true;
	return str_has_prefix(volume_id, ID_PREFIX) &&
	       strspn(volume_id + strlen(ID_PREFIX), "0123456789abcdef") == ID_DIGITS &&
	       strlen(volume_id) == strlen(ID_PREFIX) + ID_DIGITS;
}

int node_inline_find_refused(const char *options, const char **ret)
{
	static const char *const keys[] = { "port", "mountport", "nfsprog", "mountprog", NULL };

	return mount_options_find(options, keys, ret);
}

static bool inline_is_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	if (strcmp(top, "/") == 0)
		return true;
	return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

int node_inline_top(const char *list, const char *server, const char *path, char **ret)
{
	cleanup_strv struct strv entries = { NULL, 0 };
	cleanup_free char *outermost = NULL;
	size_t i;
	int r;

	if (list != NULL) {
		r = strv_split(&entries, list, ',');
		if (r < 0)
			return r;
	}
	for (i = 0; i < entries.n; i++) {
		cleanup_free char *host = NULL, *top = NULL;

		r = inline_entry_split(entries.items[i], &host, &top);
		if (r < 0)
			return r;
		if (!str_eq_nocase(host, server) || !inline_is_below(path, top))
			continue;
		if (outermost != NULL && strlen(outermost) <= strlen(top))
			continue;
		free(outermost);
		outermost = steal_ptr(&top);
	}
	*ret = steal_ptr(&outermost);
	return 0;
}
