/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/op.h"

#include <errno.h>
#include <string.h>

#include "base/path.h"

bool nfs_op_is_unbounded(const struct nfs_op *op)
{
	return op->type == NFS_OP_COMMIT || op->type == NFS_OP_REMOVE || op->type == NFS_OP_CLONE ||
	       op->type == NFS_OP_COPY || (op->type == NFS_OP_SETATTR && op->change.has_size);
}

bool nfs_op_is_slow(const struct nfs_op *op)
{
	return op->type == NFS_OP_READ || op->type == NFS_OP_WRITE ||
	       (op->type == NFS_OP_CREATE && op->buffer != NULL) || nfs_op_is_unbounded(op);
}

bool nfs_op_is_change(const struct nfs_op *op)
{
	switch (op->type) {
	case NFS_OP_SETATTR:
	case NFS_OP_MKDIR:
	case NFS_OP_SYMLINK:
	case NFS_OP_REMOVE:
	case NFS_OP_RMDIR:
	case NFS_OP_RENAME:
	case NFS_OP_CREATE:
	case NFS_OP_MKNOD:
	case NFS_OP_LINK:
		return true;
	default:
		return false;
	}
}

int nfs_op_take_data(struct nfs_op *op, const char *data, uint32_t len, bool eof)
{
	if (len > op->count)
		return -EBADMSG;
	op->count = len;
	op->eof = eof;
	memcpy(op->buffer, data, len);
	return 0;
}

int nfs_op_take_written(struct nfs_op *op, uint32_t count, bool stable, const char *verifier)
{
	if (count > op->count)
		return -EBADMSG;
	op->count = count;
	op->stable = op->stable && stable;
	memcpy(op->verifier, verifier, sizeof(op->verifier));
	return 0;
}

int nfs_op_take_entry(struct nfs_op *op, const char *name, size_t len, struct nfs_entry *entry)
{
	char text[PATH_COMPONENT_MAX + 1];

	/* No Linux file system has longer names. Fail: a cut or missing name would be wrong. */
	if (len > PATH_COMPONENT_MAX)
		return -ENAMETOOLONG;
	/* A name with '/' could lead out of the directory. */
	if (len == 0 || memchr(name, '\0', len) != NULL || memchr(name, '/', len) != NULL)
		return -EBADMSG;
	op->cookie = entry->cookie;
	memcpy(text, name, len);
	text[len] = '\0';
	if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0)
		return 0;
	entry->name = text;
	op->entry(op, entry);
	return 0;
}
