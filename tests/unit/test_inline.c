/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <string.h>

#include "check_util.h"
#include "csi.pb-c.h"
#include "csi/inline.h"

#define DIGITS "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(test_list)
{
	static const struct {
		const char *list;
		const char *word; /* NULL: good */
	} rows[] = {
		{ "nfs.example:/a", NULL },
		{ "nfs.example:/", NULL },
		{ "192.0.2.1:/a/b,[fd00::1]:/c", NULL },
		{ "", "server:/path" },
		{ "nfs.example", "nfs.example" },
		{ "nfs.example:a", "server:/path" },
		{ "nfs.example:/a,", "server:/path" },
		{ "nfs example:/a", "server" },
		{ ":/a", "server" },
		{ "nfs.example:/a/../b", "share" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error err = { .code = ERROR_OK };

		check_int(rows[i].list, "result", inline_list_check(rows[i].list, &err),
			  rows[i].word == NULL ? 0 : -EINVAL);
		check_error(rows[i].list, &err,
			    rows[i].word == NULL ? ERROR_OK : ERROR_INVALID_ARGUMENT, rows[i].word);
	}
}
END_TEST

START_TEST(test_allowed)
{
	static const char list[] = "nfs.example:/a/b,[fd00::1]:/c/,other.example:/";
	static const struct {
		const char *server, *path;
		bool allowed;
	} rows[] = {
		{ "nfs.example", "/a/b", true },
		{ "NFS.example", "/a/b", true },
		{ "nfs.example", "/a/b/c", true },
		{ "nfs.example", "/a/bc", false },
		{ "nfs.example", "/a", false },
		{ "nfs.example", "/", false },
		{ "fd00::1", "/c", true },
		{ "fd00::1", "/c/d", true },
		{ "fd00::2", "/c", false },
		{ "other.example", "/", true },
		{ "other.example", "/x/y", true },
		{ "example", "/a/b", false },
		{ "", "/", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		check_int(rows[i].path, rows[i].server,
			  inline_is_allowed(list, rows[i].server, rows[i].path), rows[i].allowed);
		check_int(rows[i].path, "no list",
			  inline_is_allowed(NULL, rows[i].server, rows[i].path), false);
	}
}
END_TEST

START_TEST(test_asked)
{
	static const struct {
		const char *id, *key, *value;
		bool asked;
	} rows[] = {
		{ "v", "k", "true", false },
		{ "v", "csi.storage.k8s.io/ephemeral", "true", true },
		{ "v", "csi.storage.k8s.io/ephemeral", "True", true },
		{ "v", "csi.storage.k8s.io/ephemeral", "false", false },
		{ "v", "csi.storage.k8s.io/ephemeral", "", false },
		{ "csi-" DIGITS, "k", "v", true },
		{ "csi-" DIGITS, "csi.storage.k8s.io/ephemeral", "false", true },
		{ "csi-" DIGITS "0", "k", "v", false },
		{ "csi-" DIGITS "#share", "k", "v", false },
		{ "csi-0123", "k", "v", false },
		{ "csj-" DIGITS, "k", "v", false },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		Csi__V1__NodePublishVolumeRequest__VolumeContextEntry entry =
			CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__VOLUME_CONTEXT_ENTRY__INIT;
		Csi__V1__NodePublishVolumeRequest__VolumeContextEntry *entries[] = { &entry };
		const struct csi_map context = csi_map_of_entries((const void *)entries, 1);

		entry.key = (char *)(uintptr_t)rows[i].key;
		entry.value = (char *)(uintptr_t)rows[i].value;
		check_int(rows[i].id, rows[i].value, inline_is_asked(rows[i].id, &context),
			  rows[i].asked);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { test_list, test_allowed, test_asked };

	return check_run("inline", tests, ARRAY_SIZE(tests));
}
