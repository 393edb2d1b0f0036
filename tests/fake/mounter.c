/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fake/mounter.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/list.h"
#include "base/str.h"

static struct fake_mounter *fake_of(struct mounter *m)
{
	return container_of(m, struct fake_mounter, mounter);
}

static struct fake_mount *fake_slot(struct fake_mounter *m, const char *target)
{
	size_t i;

	for (i = 0; i < FAKE_MOUNTS_MAX; i++)
		if (strcmp(m->mounts[i].target, target) == 0)
			return &m->mounts[i];
	return NULL;
}

const struct fake_mount *fake_mounter_at(const struct fake_mounter *m, const char *target)
{
	size_t i;

	for (i = 0; i < FAKE_MOUNTS_MAX; i++)
		if (strcmp(m->mounts[i].target, target) == 0)
			return &m->mounts[i];
	return NULL;
}

static bool options_have_ro(const char *options)
{
	struct strv v;
	bool ro = false;
	size_t i;
	int r;

	r = strv_split(&v, options, ',');
	assert(r == 0);
	for (i = 0; i < v.n; i++)
		if (strcmp(v.items[i], "ro") == 0 || strcmp(v.items[i], "rw") == 0)
			ro = strcmp(v.items[i], "ro") == 0;
	strv_done(&v);
	return ro;
}

static int fake_check(struct mounter *base, const struct mount_request *request, struct error *err)
{
	struct fake_mounter *m = fake_of(base);

	(void)request;
	return m->check_error == ERROR_OK
		       ? 0
		       : error_set(err, m->check_error, "the fake mounter was told to fail");
}

static int fake_mount(struct mounter *base, const struct mount_request *request, struct error *err)
{
	struct fake_mounter *m = fake_of(base);
	struct fake_mount *mount;
	struct stat st;
	int n;

	if (m->before_mount != NULL)
		m->before_mount();
	if (m->mount_error != ERROR_OK)
		return error_set(err, m->mount_error, "the fake mounter was told to fail");
	assert(stat(request->target, &st) == 0 && S_ISDIR(st.st_mode));
	mount = fake_slot(m, "");
	assert(mount != NULL);
	(void)snprintf(mount->target, sizeof(mount->target), "%s", request->target);
	n = snprintf(mount->source, sizeof(mount->source),
		     strchr(request->server, ':') != NULL ? "[%s]:%s" : "%s:%s", request->server,
		     request->path);
	assert(n > 0 && (size_t)n < sizeof(mount->source));
	(void)snprintf(mount->top, sizeof(mount->top), "%s",
		       request->top != NULL ? request->top : "");
	(void)snprintf(mount->options, sizeof(mount->options), "%s", request->options);
	mount->read_only = request->read_only || options_have_ro(request->options);
	mount->mode = request->mode;
	m->n_mounted++;
	m->stale = false;
	return 0;
}

static int fake_compare(struct mounter *base, const struct mount_request *request, bool *ret_same,
			struct error *err)
{
	struct fake_mounter *m = fake_of(base);

	assert(fake_mounter_at(m, request->target) != NULL);
	m->n_compared++;
	m->one_superblock = request->one_superblock;
	if (m->compare_is_stale)
		return error_sys(err, ERROR_UNAVAILABLE, ESTALE, "the second mount");
	if (m->mount_error != ERROR_OK)
		return error_set(err, m->mount_error, "the fake mounter was told to fail");
	*ret_same = m->same;
	return 0;
}

static int fake_try(struct mounter *base, const struct mount_request *request, struct error *err)
{
	struct fake_mounter *m = fake_of(base);

	(void)request;
	m->n_tried++;
	return m->mount_error == ERROR_OK
		       ? 0
		       : error_set(err, m->mount_error, "the fake mounter was told to fail");
}

static int fake_unmount(struct mounter *base, const char *target, struct error *err)
{
	struct fake_mounter *m = fake_of(base);
	struct fake_mount *mount = fake_slot(m, target);

	if (m->unmount_error != ERROR_OK)
		return error_set(err, m->unmount_error, "the fake mounter was told to fail");
	if (mount != NULL)
		memset(mount, 0, sizeof(*mount));
	return 0;
}

static int fake_find(struct mounter *base, const char *target, struct mount_info **ret,
		     struct error *err)
{
	struct fake_mounter *m = fake_of(base);
	const struct fake_mount *mount = fake_mounter_at(m, target);

	if (m->find_error != ERROR_OK)
		return error_set(err, m->find_error, "the fake mounter was told to fail");
	*ret = NULL;
	if (mount == NULL)
		return 0;
	*ret = calloc(1, sizeof(**ret));
	assert(*ret != NULL);
	(*ret)->source = strdup(mount->source);
	(*ret)->fstype = strdup("nfs4");
	(*ret)->read_only = mount->read_only;
	(*ret)->depth = 1;
	return 0;
}

static int fake_look(struct fake_mounter *m, struct error *err)
{
	m->n_looks++;
	if (m->after_look != NULL)
		m->after_look();
	if (m->look_error != ERROR_OK)
		return error_set(err, m->look_error, "the fake mounter was told to fail");
	if (!m->stale)
		return 0;
	(void)error_set(err, ERROR_UNAVAILABLE, "the fake mount is stale");
	return -ESTALE;
}

static int fake_verify(struct mounter *base, const char *target, const struct mount_info *info,
		       uint32_t mode, struct error *err)
{
	struct fake_mounter *m = fake_of(base);

	assert(fake_mounter_at(m, target) != NULL && info != NULL);
	m->verified_mode = mode;
	return fake_look(m, err);
}

static int fake_usage(struct mounter *base, const char *target, const struct mount_info *info,
		      struct mount_usage *ret, struct error *err)
{
	struct fake_mounter *m = fake_of(base);

	assert(fake_mounter_at(m, target) != NULL && info != NULL);
	*ret = (struct mount_usage){ .bytes_total = 100,
				     .bytes_used = 40,
				     .bytes_available = 50,
				     .inodes_total = 10,
				     .inodes_used = 4,
				     .inodes_available = 6 };
	return fake_look(m, err);
}

void fake_mounter_init(struct fake_mounter *m)
{
	static const struct mounter_ops ops = { .check = fake_check,
						.mount = fake_mount,
						.compare = fake_compare,
						.try = fake_try,
						.unmount = fake_unmount,
						.verify = fake_verify,
						.usage = fake_usage,
						.find = fake_find };

	*m = (struct fake_mounter){ .mounter = { .ops = &ops } };
}
