/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "nfs/v3_results.h"
#include "nfs/v4_compound.h"

#define MINOR_VERS_MISMATCH 10021 /* NFS4ERR_, RFC 7530 section 13.1 */

static uint64_t survey_deadline(void)
{
	return clock_now_ns() + NFS_SURVEY_TIMEOUT_MS * CLOCK_NS_PER_MS;
}

/* -------- minor versions -------- */

static int take_survey_status(void *data, const void *results)
{
	uint32_t *status = data;

	*status = ((const COMPOUND4res *)results)->status;
	return 0;
}

/*
 * PUTROOTFH outside a session is an error in 4.1, but not the one for a missing version (RFC 8881,
 * section 2.10.3).
 */
static int ask_minor(struct net_rpc *rpc, uint32_t minor, bool *ret)
{
	struct v4_compound c = { .n = 0 };
	const struct v4_message message = { .minor = minor, .compound = &c };
	uint32_t status;
	int r;

	v4_add(&c, OP_PUTROOTFH);
	r = net_rpc_ask(rpc, &v4_procedure, (void *)(uintptr_t)&message, take_survey_status,
			&status, survey_deadline());
	if (r < 0)
		return r;
	*ret = status != MINOR_VERS_MISMATCH;
	return 0;
}

int nfs_survey_minors(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		      bool ret[NFS_MINORS])
{
	struct net_rpc *rpc;
	uint32_t minor;
	int r;

	r = nfs_connect_rpc(&rpc, address, port, e);
	if (r < 0)
		return r;
	for (minor = 0; minor < NFS_MINORS && r == 0; minor++)
		r = ask_minor(rpc, minor, &ret[minor]);
	net_rpc_free(rpc, -ECONNABORTED);
	return r;
}

/* -------- exports -------- */

void nfs_listing_done(struct nfs_listing *l)
{
	size_t i;

	for (i = 0; i < l->n; i++) {
		free(l->items[i].path);
		strv_done(&l->items[i].clients);
	}
	free(l->items);
	*l = (struct nfs_listing){ .n = 0 };
}

static int take_clients(struct strv *ret, const groupnode *group)
{
	int r = 0;

	for (; group != NULL && r == 0; group = group->gr_next)
		r = strv_append(ret, group->gr_name);
	return r;
}

static int take_export(struct nfs_listing *l, const exportnode *e)
{
	struct nfs_listed *items = reallocarray(l->items, l->n + 1, sizeof(*items));

	if (items == NULL)
		return -ENOMEM;
	l->items = items;
	items[l->n] = (struct nfs_listed){ .path = strdup(e->ex_dir) };
	if (items[l->n].path == NULL)
		return -ENOMEM;
	l->n++;
	return take_clients(&items[l->n - 1].clients, e->ex_groups);
}

static int take_exports(struct nfs_listing *l, const exportnode *e)
{
	int r = 0;

	for (; e != NULL && r == 0; e = e->ex_next) {
		if (l->n == NFS_LISTED_MAX)
			l->more++;
		else
			r = take_export(l, e);
	}
	return r;
}

static int take_export_list(void *data, const void *results)
{
	return take_exports(data, *(const exports *)results);
}

int nfs_survey_exports(const struct net_address *address, uint16_t port, const struct nfs_export *e,
		       struct nfs_listing *ret)
{
	cleanup_nfs_listing struct nfs_listing listing = { .n = 0 };
	static const struct net_rpc_procedure export_procedure =
		NET_RPC_PROCEDURE(MOUNT_PROGRAM, MOUNT_V3, MOUNT3_EXPORT, zdr_void, v3_take_exports,
				  exports);
	struct net_rpc *rpc;
	int r;

	r = nfs_connect_rpc(&rpc, address, port, e);
	if (r < 0)
		return r;
	r = net_rpc_ask(rpc, &export_procedure, NULL, take_export_list, &listing,
			survey_deadline());
	net_rpc_free(rpc, -ECONNABORTED);
	if (r < 0)
		return r;
	*ret = listing;
	listing = (struct nfs_listing){ .n = 0 };
	return 0;
}
