/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Owners of new entries. An owner that the source server sent as a name is set by that name: on the
 * same server, or on another one of version 4, which may know it. If an owner cannot be set, or the
 * server says OK and sets none, the build fails rather than give the file to somebody else.
 */

#include <errno.h>

#include "nfs/error.h"
#include "nfs/owner.h"
#include "tree/builder_node.h"

#define ROOT_UID 0

static bool owner_is_known(const struct nfs_attr *attr)
{
	return attr->has_owner || attr->is_named;
}

/* The same server knows its own names, so they are set even if there is a number. */
static bool work_is_on_one_server(const struct tree_work *work)
{
	const struct nfs_export *from = &work->from->export, *to = &work->to->export;

	if (work->from == work->to)
		return true;
	return work->from->version == 4 && from->server != NULL && to->server != NULL &&
	       nfs_export_is_same_server(from, to);
}

/*
 * Return the name to set for an owner; 0: set the number. me and my_name are our own identity, from
 * the owner of the new root: a server that sends it as a name may not accept its number.
 */
static uint32_t owner_name_to_set(const struct tree_work *work, uint32_t name, uint32_t id,
				  uint32_t my_name, uint32_t me)
{
	if (work->to->version != 4)
		return 0;
	if (name != 0 && (id == NFS_ID_UNKNOWN || work_is_on_one_server(work)))
		return name;
	return id == me && me != NFS_ID_UNKNOWN ? my_name : 0;
}

int builder_owner_learn(struct tree_builder *b, const struct nfs_attr *made)
{
	b->me = *made;
	b->owners = owner_is_known(made) && made->uid == ROOT_UID;
	/* A user without a name on the server (NFS_ID_UNKNOWN) is not root there. */
	if (owner_is_known(made) || made->uid == NFS_ID_UNKNOWN ||
	    b->work->to->export.uid != ROOT_UID)
		return 0;
	if (b->error == 0)
		b->error =
			error_set(&b->err, ERROR_FAILED_PRECONDITION,
				  "making '%s' on %s:%s: the server does not report its owner; %s",
				  b->options->root, b->work->to->export.server,
				  b->work->to->export.share, NFS_OWNER_HINT);
	return b->error;
}

bool builder_owner_is_set(const struct builder_node *node)
{
	const struct nfs_attr *made = &node->made, *attr = &node->attr;

	return owner_is_known(made) && owner_is_known(attr) &&
	       nfs_owner_is_same(made->uid_name, made->uid, attr->uid_name, attr->uid) &&
	       nfs_owner_is_same(made->gid_name, made->gid, attr->gid_name, attr->gid);
}

uint32_t builder_owner_mode(const struct builder_node *node)
{
	const struct nfs_attr *me = &node->builder->me, *attr = &node->attr;
	const bool known = owner_is_known(me) && owner_is_known(attr);
	uint32_t mode = attr->mode & 07777;

	if (node->builder->owners || attr->type == NFS_TYPE_DIRECTORY)
		return mode;
	if (!known || !nfs_owner_is_same(me->uid_name, me->uid, attr->uid_name, attr->uid))
		mode &= ~(uint32_t)BUILDER_SET_UID;
	if (!known || !nfs_owner_is_same(me->gid_name, me->gid, attr->gid_name, attr->gid))
		mode &= ~(uint32_t)BUILDER_SET_GID;
	return mode;
}

static int refuse_owner(const struct builder_node *node, const char *why)
{
	struct tree_builder *b = node->builder;

	if (b->error == 0)
		b->error = error_set(&b->err, ERROR_FAILED_PRECONDITION,
				     "making '%s' on %s:%s: its owner %s; %s", node->name,
				     b->work->to->export.server, b->work->to->export.share, why,
				     NFS_OWNER_HINT);
	return b->error;
}

int builder_owner_put(const struct builder_node *node, struct nfs_change *change)
{
	const struct tree_builder *b = node->builder;
	const struct nfs_attr *attr = &node->attr;

	if (!b->owners || node->no_attr || builder_owner_is_set(node))
		return 0;
	if (!owner_is_known(attr))
		return refuse_owner(node,
				    "is not known, because the source server does not report it");
	change->has_uid = change->has_gid = true;
	change->uid = attr->uid;
	change->gid = attr->gid;
	change->uid_name =
		owner_name_to_set(b->work, attr->uid_name, attr->uid, b->me.uid_name, b->me.uid);
	change->gid_name =
		owner_name_to_set(b->work, attr->gid_name, attr->gid, b->me.gid_name, b->me.gid);
	if (attr->is_named && b->work->to->version != 4)
		return refuse_owner(node, "is known by name only, and NFSv3 has no names");
	return 0;
}

int builder_owner_check(const struct builder_node *node, const struct nfs_change *change)
{
	const struct nfs_attr *now = &node->op.attr;

	if ((!change->has_uid && !change->has_gid) || !owner_is_known(now))
		return 0;
	/* Not every server keeps owners of symbolic links, and they matter little. */
	if (node->attr.type == NFS_TYPE_SYMLINK && now->has_owner)
		return 0;
	if (nfs_owner_is_other(change, now))
		return -NFS_EOWNER;
	node->builder->owners_kept = true;
	return 0;
}

bool builder_owner_is_unproved(const struct builder_node *node, const struct nfs_change *change)
{
	if ((!change->has_uid && !change->has_gid) || owner_is_known(&node->op.attr) ||
	    node->attr.type == NFS_TYPE_SYMLINK)
		return false;
	return !node->builder->owners_kept ||
	       (builder_owner_mode(node) & (BUILDER_SET_UID | BUILDER_SET_GID)) != 0;
}
