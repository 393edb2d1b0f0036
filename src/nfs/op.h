/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One NFS operation, the same for every protocol version: what goes in, what comes out, and a
 * function that is called when it is finished. Objects are named by file handle and one name below
 * it, never by path: nothing is resolved twice and symbolic links are never followed.
 */
#ifndef NFS_OP_H
#define NFS_OP_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NFS_HANDLE_MAX 128 /* NFS4_FHSIZE, RFC 7530 section 2.1; version 3 has 64 */
#define NFS_LINK_MAX 4095 /* longest symbolic link of Linux file systems; XFS stores 1,024 */
#define NFS_NAME_MAX 255
#define NFS_OWNER_MAX 255 /* bytes of an owner's name */

/* In place of a uid or gid that has only a name: what many servers have for nobody. */
#define NFS_ID_UNKNOWN ((uint32_t)-2)

/* The errno of a server that does not know the owner that is set, or sets another one. */
#define NFS_EOWNER EKEYREJECTED

struct nfs_client;

struct nfs_handle {
	uint32_t len;
	char data[NFS_HANDLE_MAX];
};

enum nfs_type {
	NFS_TYPE_UNKNOWN, /* the server sent no attributes */
	NFS_TYPE_FILE,
	NFS_TYPE_DIRECTORY,
	NFS_TYPE_SYMLINK,
	NFS_TYPE_FIFO,
	NFS_TYPE_SOCKET,
	NFS_TYPE_BLOCK, /* device */
	NFS_TYPE_CHARACTER,
	NFS_TYPE_OTHER, /* something of version 4 that no file system of Linux has */
};

struct nfs_time {
	int64_t sec;
	uint32_t nsec;
};

struct nfs_device {
	uint32_t major, minor;
};

struct nfs_attr {
	enum nfs_type type;
	bool has_mode;
	uint32_t mode; /* permission bits with setuid, setgid and sticky */
	bool has_owner; /* in numbers; of a version 4 server only where it is asked for */
	bool is_named; /* not so, but each of the two is known, by number or by name */
	uint32_t uid, gid; /* only where one of these holds; NFS_ID_UNKNOWN: there is a name only */
	uint32_t uid_name, gid_name; /* as nfs/owner.h numbers them; 0: the server sent a number */

	/* The file system. It is always asked for, and a version 4 server may still leave it out. */
	bool has_fsid;
	uint64_t fsid, fsid_minor; /* fsid_minor: of version 4 */

	/* Of a version 4 server only with nfs_op.full; the server may still leave one of them out. */
	bool is_full; /* all that follows is known */
	uint32_t links;
	uint64_t size, used; /* bytes; used: on the disk */
	uint64_t fileid; /* unique within fsid */
	struct nfs_device device;
	struct nfs_time atime, mtime;
	struct nfs_time ctime; /* of the last change of data or attributes, by the server's clock */
	bool has_change;
	uint64_t change; /* version 4: another value after each change */
};

/* Whether both are known to be on one file system. */
static inline bool nfs_fsid_is_equal(const struct nfs_attr *a, const struct nfs_attr *b)
{
	return a->has_fsid && b->has_fsid && a->fsid == b->fsid && a->fsid_minor == b->fsid_minor;
}

/* What SETATTR changes, and what CREATE and MKNOD begin with, in one step: all of it or nothing. */
struct nfs_change {
	bool has_mode, has_uid, has_gid, has_size, has_times;
	uint32_t mode, uid, gid;
	uint32_t uid_name, gid_name; /* for version 4, in place of the number; 0: the number */
	uint64_t size;
	struct nfs_time atime, mtime;
};

/* Of the file system that an object is on, or of the quota that the server applies to it. */
struct nfs_space {
	uint64_t total; /* bytes */
	uint64_t available; /* to us */
};

enum nfs_op_type {
	NFS_OP_LOOKUP, /* dir, name -> handle, attr */
	NFS_OP_GETATTR, /* dir -> attr with owner */
	NFS_OP_SETATTR, /* dir, change; with full -> attr afterwards, if the server tells */
	NFS_OP_MKDIR, /* dir, name, mode -> handle, attr with owner */
	NFS_OP_SYMLINK, /* dir, name, text; fails with -EEXIST rather than replace */
	NFS_OP_READLINK, /* dir -> link; version 4 with a name: of what is there */
	NFS_OP_REMOVE, /* dir, name or names -> count: anything but directories, up to the first failure */
	NFS_OP_RMDIR, /* dir, name: an empty directory; -ENOTDIR for anything else */
	NFS_OP_RENAME, /* dir, name, to_dir, to_name */
	NFS_OP_READDIR, /* dir, cookie -> entry() for each, cookie, eof; -ERESTART: begin at cookie 0 */
	NFS_OP_FSSTAT, /* dir -> space */

	/* Files. dir is the file, where there is no name. */
	NFS_OP_CREATE, /* dir, name, change -> handle, attr; -EEXIST where there is something */
	NFS_OP_MKNOD, /* dir, name, node, device, change -> handle */
	NFS_OP_LINK, /* dir, the file -> to_dir, to_name */
	NFS_OP_READ, /* dir, offset, count, buffer -> count, eof; with full -> attr afterwards, if told */
	NFS_OP_WRITE, /* dir, offset, count, buffer, stable -> count, verifier */
	NFS_OP_COMMIT, /* dir, offset, count (0: to the end) -> verifier */
	NFS_OPS,
};

/*
 * Names that one REMOVE takes of version 4, where a server allows 16 operations in a compound: Linux before
 * 5.17 does.
 */
#define NFS_REMOVE_MAX 15

/* Bytes that one READ or WRITE asks for at most; servers may allow fewer, see nfs_read_max(). */
#define NFS_TRANSFER_MAX (256 * 1024)

/* A directory entry, borrowed during the entry() call. "." and ".." are left out. */
struct nfs_entry {
	const char *name;
	uint64_t cookie;
	struct nfs_attr attr;
	struct nfs_handle handle; /* len 0: the server sent none */
};

struct nfs_op {
	enum nfs_op_type type;

	/* In; pointers are borrowed until the operation is started. */
	const struct nfs_handle *dir; /* the directory, or the object itself */
	const char *name;
	const char *const *names; /* REMOVE of version 4: n_names of them, NFS_REMOVE_MAX at most, for name */
	size_t n_names;
	const struct nfs_handle *to_dir;
	const char *to_name;
	const char *text;
	uint32_t mode;
	struct nfs_change change;
	uint64_t cookie; /* where to go on; 0: from the start */
	char verifier[8]; /* READDIR: of the previous page; zeros for the first. WRITE, COMMIT: out */
	bool full; /* LOOKUP, GETATTR, READDIR, SETATTR: all attributes, with the owner. READ: but for it */
	enum nfs_type node; /* of MKNOD */
	struct nfs_device device;
	uint64_t offset;
	uint32_t count; /* READ, WRITE: bytes, in and out. REMOVE: names that are gone, of names */
	char *buffer; /* READ: the caller's, of count bytes. WRITE: only read, until it is finished */
	bool stable; /* WRITE: on the disk before the answer, with all that belongs to the file */
	void (*entry)(struct nfs_op *op, const struct nfs_entry *entry);

	/* Out. */
	bool finished;
	int error; /* 0 or a negative errno; -EAGAIN: the server asks to try later */
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct nfs_space space;
	char *link; /* READLINK: NFS_LINK_MAX + 1 bytes of the caller's */
	bool eof;

	struct nfs_client *client; /* set by nfs_client_start() */

	/* Called on the thread that drives the client, once, when finished. May be NULL. */
	void (*done)(struct nfs_op *op);
	void *data; /* the caller's */
};

#endif
