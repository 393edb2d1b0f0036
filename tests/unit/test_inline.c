/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "check_util.h"
#include "csi.pb-c.h"
#include "node/inline.h"

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

		check_int(rows[i].list, "result", node_inline_list_check(rows[i].list, &err),
			  rows[i].word == NULL ? 0 : -EINVAL);
		check_error(rows[i].list, &err,
			    rows[i].word == NULL ? ERROR_OK : ERROR_INVALID_ARGUMENT, rows[i].word);
	}
}
END_TEST

/* Of nested entries the outermost counts, in any order. */
START_TEST(test_top)
{
	static const char list[] =
		"nfs.example:/a/b,[fd00::1]:/c/,other.example:/,nfs.example:/d/e/f,nfs.example:/d/e,"
		"nfs.example:/d/e/g";
	static const struct {
		const char *server, *path;
		const char *top; /* NULL: not allowed */
	} rows[] = {
		{ "nfs.example", "/a/b", "/a/b" },     { "NFS.example", "/a/b", "/a/b" },
		{ "nfs.example", "/a/b/c", "/a/b" },   { "nfs.example", "/a/bc", NULL },
		{ "nfs.example", "/a", NULL },         { "nfs.example", "/", NULL },
		{ "nfs.example", "/d/e/f/x", "/d/e" }, { "nfs.example", "/d/e/g", "/d/e" },
		{ "nfs.example", "/d", NULL },         { "fd00::1", "/c", "/c" },
		{ "fd00::1", "/c/d", "/c" },           { "fd00::2", "/c", NULL },
		{ "other.example", "/", "/" },         { "other.example", "/x/y", "/" },
		{ "example", "/a/b", NULL },           { "", "/", NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_free char *top = NULL, *none = NULL;

		check_int(rows[i].path, rows[i].server,
			  node_inline_top(list, rows[i].server, rows[i].path, &top), 0);
		check_str(rows[i].path, rows[i].server, top != NULL ? top : "(none)",
			  rows[i].top != NULL ? rows[i].top : "(none)");
		check_int(rows[i].path, "no list",
			  node_inline_top(NULL, rows[i].server, rows[i].path, &none), 0);
		check_that(rows[i].path, "that nothing is allowed without a list", none == NULL);
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
		check_int(rows[i].id, rows[i].value, node_inline_is_asked(rows[i].id, &context),
			  rows[i].asked);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { test_list, test_top, test_asked };

	return check_run("inline", tests, ARRAY_SIZE(tests));
}
