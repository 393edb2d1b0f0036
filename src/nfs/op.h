/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * One NFS operation, the same for every protocol version: arguments, results, and a completion
 * callback. A file handle and one name below it identify an object, never a path, so nothing is
 * resolved twice and symbolic links are never followed.
 */
#ifndef NFS_OP_H
#define NFS_OP_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NFS_HANDLE_MAX 128 /* NFS4_FHSIZE, RFC 7530 section 2.1; version 3 has 64 */
#define NFS_LINK_MAX 4095 /* longest symbolic link on Linux; XFS stores up to 1,024 */
#define NFS_NAME_MAX 255
#define NFS_OWNER_MAX 255 /* bytes in an owner's name */
#define NFS_COPY_ID_BYTES 16
#define NFS_XATTR_NAME_MAX 255 /* without the "user." that Linux puts in front; Linux takes 250 */

/* uid or gid of an owner known by name only; many servers use this number for nobody. */
#define NFS_ID_UNKNOWN ((uint32_t)-2)

/* The server does not know the owner to set, or set another one. */
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
	NFS_TYPE_OTHER, /* a version 4 type that no Linux file system has */
};

struct nfs_time {
	int64_t sec;
	uint32_t nsec;
};

static inline bool nfs_time_is_equal(const struct nfs_time *a, const struct nfs_time *b)
{
	return a->sec == b->sec && a->nsec == b->nsec;
}

struct nfs_device {
	uint32_t major, minor;
};

struct nfs_attr {
	enum nfs_type type;
	bool has_mode;
	uint32_t mode; /* permission bits with setuid, setgid and sticky */
	/*
	 * A version 4 server sends owners only if asked. has_owner: both uid and gid are known.
	 * is_named: both owners are known, at least one only by name. Neither: the four fields
	 * below are not valid.
	 */
	bool has_owner;
	bool is_named;
	uint32_t uid, gid; /* NFS_ID_UNKNOWN: sent as a name only */
	uint32_t uid_name, gid_name; /* numbers from nfs/owner.h; 0: sent as a number */

	/* File system id: always asked for, but a version 4 server may leave it out. */
	bool has_fsid;
	uint64_t fsid, fsid_minor; /* fsid_minor: version 4 only */

	/*
	 * From LOOKUP and READDIR: the name is a mount point, and this is the root of what is
	 * mounted there. That may be another directory of the same file system (a bind mount), or a
	 * file system with the same id. A version 4 server also tells it in GETATTR of that root,
	 * whichever name led there.
	 */
	bool is_mount;

	/* From a version 4 server only with nfs_op.full, and it may leave some out. */
	bool is_full; /* all fields below are known; ctime and change may be missing */
	uint32_t links;
	uint64_t size, used; /* bytes; used: on disk */
	uint64_t fileid; /* unique within fsid */
	struct nfs_device device;
	struct nfs_time atime, mtime;
	struct nfs_time ctime; /* last change of data or attributes, by the server's clock */
	bool has_change;
	uint64_t change; /* version 4: differs after each change */
};

/* Check whether both are known to be on the same file system. See also nfs_is_inside(). */
static inline bool nfs_fsid_is_equal(const struct nfs_attr *a, const struct nfs_attr *b)
{
	return a->has_fsid && b->has_fsid && a->fsid == b->fsid && a->fsid_minor == b->fsid_minor;
}

/* Check whether what was found below root belongs to it: a mount point below it does not. */
static inline bool nfs_is_inside(const struct nfs_attr *attr, const struct nfs_attr *root)
{
	return nfs_fsid_is_equal(attr, root) && !attr->is_mount;
}

/* Attributes that SETATTR, CREATE and MKNOD set, in one step: all or none. */
struct nfs_change {
	bool has_mode, has_uid, has_gid, has_size, has_times;
	uint32_t mode, uid, gid;
	uint32_t uid_name, gid_name; /* version 4: sent instead of uid and gid; 0: none */
	uint64_t size;
	struct nfs_time atime, mtime;
};

/* Space in an object's file system, or in the quota that the server applies to it. */
struct nfs_space {
	uint64_t total; /* bytes */
	uint64_t available; /* to us */
};

enum nfs_op_type {
	NFS_OP_LOOKUP, /* dir, name, fileid -> handle, attr */
	NFS_OP_GETATTR, /* dir -> attr with owner; in version 4 also handles -> attrs, count */
	NFS_OP_SETATTR, /* dir, change; with full -> new attr, if the server sends it */
	NFS_OP_MKDIR, /* dir, name, mode -> handle, all attributes and the owner */
	NFS_OP_SYMLINK, /* dir, name, text; fails with -EEXIST rather than replace */
	NFS_OP_READLINK, /* dir -> link; in version 4 also dir, name -> link */
	/* dir, name or names -> count removed before the first failure; no directories */
	NFS_OP_REMOVE,
	NFS_OP_RMDIR, /* dir, name; -ENOTDIR for anything but a directory */
	NFS_OP_RENAME, /* dir, name, to_dir, to_name */
	NFS_OP_READDIR, /* dir, cookie -> entry() for each, cookie, eof; -ERESTART: start over */
	NFS_OP_FSSTAT, /* dir -> space */

	/* Files. Without a name, dir is the file itself. */
	/*
	 * dir, name, change -> handle, attr; -EEXIST if the name is taken. With whole, also writes
	 * count bytes of buffer and sets then, if one call can do all of it.
	 */
	NFS_OP_CREATE,
	NFS_OP_MKNOD, /* dir, name, node, device, change -> handle */
	NFS_OP_LINK, /* dir, the file -> to_dir, to_name */
	/*
	 * dir, offset, count, buffer -> count, eof; with full -> attr, if the server sends it. With
	 * xattr, also lists the file's extended attributes: see nfs_op.listed.
	 */
	NFS_OP_READ,
	NFS_OP_WRITE, /* dir, offset, count, buffer, stable -> count, verifier */
	NFS_OP_COMMIT, /* dir, offset, count (0: to the end) -> verifier */

	/*
	 * Version 4.2, see nfs_client.offload. -EOPNOTSUPP, -EXDEV or -EINVAL: not on this server,
	 * not with this file system, or not with these files.
	 */
	NFS_OP_CLONE, /* the file dir, the file to_dir gets the same data -> its attr, verifier */
	/*
	 * Likewise, at offset, length -> length copied, stable, verifier. With allow_async, the
	 * server may reply first: is_async and copy_id tell, and verifier is as it was before.
	 */
	NFS_OP_COPY,
	/* the file dir, copy_id -> length copied so far; ended and copy_error, once it has */
	NFS_OP_COPY_STATUS,
	NFS_OP_COPY_CANCEL, /* the file dir, copy_id */
	NFS_OP_SEEK, /* the file dir, offset, hole -> offset, of the next data; -ENXIO: none */

	/*
	 * Extended attributes, version 4.2 (RFC 8276). -EOPNOTSUPP: the server, the file system or
	 * the protocol has none. Names lack the "user." that Linux puts in front.
	 */
	NFS_OP_XATTR_SUPPORT, /* dir; -EOPNOTSUPP where its file system has none */
	NFS_OP_GETXATTR, /* dir, name -> xattr() with the value; -ENODATA: there is none */
	NFS_OP_SETXATTR, /* dir, name, buffer, count; replaces. -E2BIG, -EMSGSIZE: too large */
	NFS_OP_LISTXATTRS, /* dir, cookie -> xattr() for each name, cookie, eof */
	NFS_OPS,
};

/*
 * Bytes of names that one LISTXATTRS asks for: all that Linux lists of a file. knfsd of Linux 6.1
 * answers BAD_COOKIE to a request that goes on where another one of 4 KiB ended.
 */
#define NFS_XATTR_PAGE 65536

/*
 * Names in one REMOVE of version 4. Linux before 5.17 allows 16 operations in a compound; one of
 * them is PUTFH. Sessions of knfsd and nfs-ganesha allow more, but 30, 46 and 60 names removed
 * 5,000 files no faster: with many compounds in flight, round trips do not count.
 */
#define NFS_REMOVE_MAX 15

/* Files in one GETATTR of version 4: two operations for each, and SEQUENCE; see NFS_REMOVE_MAX. */
#define NFS_GETATTR_MAX 7

/* No server has a file of this number. */
#define NFS_FILEID_ANY UINT64_MAX

/* Bytes in one READ or WRITE at most; servers may allow fewer, see nfs_read_max(). */
#define NFS_TRANSFER_MAX (256 * 1024)

/* Bytes of a file that CREATE writes as well; a session keeps a copy of them until the reply. */
#define NFS_WHOLE_MAX 32768

/*
 * A directory entry, borrowed for the entry() call. "." and ".." are left out. No name is empty,
 * has a '/' or is longer than NFS_NAME_MAX: a listing with one fails.
 */
struct nfs_entry {
	const char *name;
	uint64_t cookie;
	/* From READDIR: of the mount point, not of what is mounted on it. 0: unknown, as in v4. */
	uint64_t fileid;
	struct nfs_attr attr;
	struct nfs_handle handle; /* len 0: the server sent none */
};

/*
 * nfs-ganesha fails a READDIR with these if an entry is removed while it lists the directory:
 * NOENT, over version 4 also SERVERFAULT. A second READDIR of the same page succeeds.
 */
static inline bool nfs_readdir_lost_entry(int error)
{
	return error == -ENOENT || error == -EREMOTEIO;
}

struct nfs_op {
	enum nfs_op_type type;

	/* Arguments. Pointers are borrowed until the operation is started. */
	const struct nfs_handle *dir; /* the directory, or the object itself */
	const char *name;
	const char *const *names; /* version 4 REMOVE: instead of name */
	size_t n_names; /* NFS_REMOVE_MAX at most */
	const struct nfs_handle *const *handles; /* version 4 GETATTR: instead of dir */
	size_t n_handles; /* nfs_getattr_max() at most */
	struct nfs_attr *attrs; /* of each handle, out; the caller's, borrowed until finished */
	const struct nfs_handle *to_dir;
	const char *to_name;
	const char *text;
	uint32_t mode;
	/*
	 * LOOKUP in version 3, to find out whether something is mounted there: the file id of
	 * the entry as READDIR has it, or NFS_FILEID_ANY if that is not known, which takes a call
	 * more. 0: don't find out.
	 */
	uint64_t fileid;
	/* LOOKUP in version 3, internal: file id that ".." must have; 0: don't look. */
	uint64_t parent_fileid;
	struct nfs_change change;
	struct nfs_change then; /* CREATE with whole: set after the data was written */
	uint64_t cookie; /* where to continue; 0: the start */
	/*
	 * READDIR: cookie verifier, in and out, zeros for the first page. WRITE, COMMIT: write
	 * verifier, out. CLONE, asynchronous COPY: write verifier before the operation, out.
	 */
	char verifier[8];
	/*
	 * LOOKUP, GETATTR, READDIR, SETATTR: all attributes and the owner. READ: without the owner.
	 */
	bool full;
	enum nfs_type node; /* MKNOD */
	struct nfs_device device;
	uint64_t offset;
	/*
	 * READ, WRITE: bytes, in and out. Out: REMOVE: names removed; GETATTR of handles: how many
	 * of them have attributes, all before the first failure.
	 */
	uint32_t count;
	/*
	 * READ: the caller's, of count bytes, borrowed until finished. WRITE, SETXATTR, CREATE:
	 * only read from; of CREATE borrowed until finished.
	 */
	char *buffer;
	/* WRITE: data and attributes are on disk before the reply, in and out. COPY: out. */
	bool stable;
	/*
	 * CREATE: count is at most nfs_client.whole_max, which is not 0. Out: everything was done,
	 * and is on disk; attr is full. Else the file exists, with no data, part of it or all.
	 */
	bool whole;
	uint64_t length; /* COPY: bytes, in and out. COPY_STATUS: out */
	bool allow_async; /* COPY: the server may reply before it has copied */
	bool is_async; /* COPY: out, it did; with -EOPNOTSUPP, it copies in no other way */
	char copy_id[NFS_COPY_ID_BYTES]; /* of an asynchronous copy, out of COPY */
	bool ended; /* COPY_STATUS */
	int copy_error; /* COPY_STATUS: why the copy has ended, 0 or a negative errno */
	bool hole; /* SEEK: look for a hole; the end of the file is one */
	void (*entry)(struct nfs_op *op, const struct nfs_entry *entry);
	/*
	 * Takes a value, or a name; borrowed for the call, and not terminated. For READ only if
	 * nfs_client.lists_max is at least count; NULL: don't list.
	 */
	void (*xattr)(struct nfs_op *op, const char *bytes, uint32_t len);
	bool listed; /* READ: xattr() got all names */

	/* Results. */
	bool finished;
	int error; /* 0 or a negative errno; -EAGAIN: the server asks to retry later */
	bool in_grace; /* with -EAGAIN: until its grace period is over */
	struct nfs_handle handle;
	struct nfs_attr attr;
	struct nfs_space space;
	char *link; /* READLINK: the caller's buffer of NFS_LINK_MAX + 1 bytes */
	bool eof;

	struct nfs_client *client; /* set by nfs_client_start() */

	/* Called once when finished, on the thread that drives the client. May be NULL. */
	void (*done)(struct nfs_op *op);
	void *data; /* the caller's */
};

/* Check whether the server's disk may delay an operation. */
bool nfs_op_is_slow(const struct nfs_op *op);

/*
 * Check for a slow operation with no bound on the disk work: it frees a file's blocks or flushes
 * the server's cache, as does CLONE, of what was written to the source, and the COMMIT that goes
 * with a COPY.
 */
bool nfs_op_is_unbounded(const struct nfs_op *op);

/* Check whether an operation changes something on the server, besides the data of files. */
bool nfs_op_is_change(const struct nfs_op *op);

/*
 * Store the results of an operation in op. Return 0, or -EBADMSG for more data than op asked for,
 * or for a name that no entry of a directory can have; -ENAMETOOLONG for one that none has on
 * Linux. stable: WRITE's data is on the disk.
 */
int nfs_op_take_data(struct nfs_op *op, const char *data, uint32_t len, bool eof);
int nfs_op_take_written(struct nfs_op *op, uint32_t count, bool stable, const char *verifier);

/* Pass on an entry, unless it is "." or "..". name: of len bytes, without a NUL behind them. */
int nfs_op_take_entry(struct nfs_op *op, const char *name, size_t len, struct nfs_entry *entry);

#endif
