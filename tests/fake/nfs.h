/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A share in memory, with clients that behave as nfs/client.h says: tests code above that seam
 * without a server. Failures are set by number: "the third operation from now, -ECONNABORTED, after
 * it took effect". The share outlives its clients, as a server does. It may have any number of
 * clients, on any threads.
 */
#ifndef FAKE_NFS_H
#define FAKE_NFS_H

#include "nfs/client.h"

struct fake_nfs;

/* The operation that fails, and how. */
struct fake_failure {
	unsigned int nth; /* the first operation from now is 1; 0: none fails */
	int error; /* negative; -ECONNABORTED and -ETIMEDOUT break the client */
	bool after; /* the operation takes effect, only its reply is lost */
	bool all; /* every operation from the nth on, not it alone */
	unsigned int types; /* 1 << enum nfs_op_type: only these count; 0: all */
};

/* What a READDIR reply has for each entry besides its name. */
enum fake_entries {
	FAKE_ENTRIES_MIXED, /* handle and attributes for every second entry */
	FAKE_ENTRIES_FULL,
	FAKE_ENTRIES_BARE,
};

/* How the server sends owners, and accepts them. */
enum fake_owners {
	FAKE_OWNERS_NUMBERED,
	FAKE_OWNERS_NAMED, /* "u1000@fake", accepted in the same form */
	FAKE_OWNERS_STRANGE, /* sends numbers; maps any name to nobody */
	FAKE_OWNERS_NONE, /* sends no owners */
};

/* The replies that have a file system ID. */
enum fake_fsid {
	FAKE_FSID_ALL,
	FAKE_FSID_ASKED, /* only GETATTR */
	FAKE_FSID_NEVER,
};

/* How far CREATE with nfs_op.whole gets. */
enum fake_whole {
	FAKE_WHOLE_ALL,
	FAKE_WHOLE_NO_DATA, /* the file is made, and no more */
	FAKE_WHOLE_NO_ATTRIBUTES,
};

/* COPY that goes on after its reply. */
struct fake_async {
	bool only; /* a synchronous COPY is refused: the server copies in no other way */
	bool uninvited; /* one goes on all the same */
	bool asked; /* a COPY that may go on does so */
	unsigned int after; /* this many calls of COPY are made at once; then it is as above */
	unsigned int steps; /* operations until a copy has ended */
	uint64_t max; /* bytes; 0: as requested */
	bool endless; /* it never ends */
	int error; /* at its end */
	int status_error, cancel_error; /* of COPY_STATUS and COPY_CANCEL */
	bool no_verifier; /* in the reply to a synchronous COPY */
};

/* Behavior that the protocol leaves to the server. */
struct fake_habits {
	unsigned int page; /* entries of a READDIR reply; 0: three */
	enum fake_entries entries;
	bool bare; /* replies lack handles and attributes wherever version 3 allows it */
	uint32_t transfer_max; /* bytes of one READ or WRITE; 0: as requested */
	bool empty; /* READs return no data and no EOF */
	enum fake_owners owners;
	enum fake_fsid fsid;
	bool modes; /* enforce the modes of directories for all but root */
	bool folds; /* "A" is another name of "a" */
	bool no_modes; /* no reply has a mode */
	bool no_owners; /* SETATTR leaves the owner as it is */
	bool used_lags; /* written data does not count as used space */
	bool used_all; /* holes count as used space */
	unsigned int offload; /* NFS_OFFLOAD_ that clients think the server has */
	unsigned int refused; /* of these, those that it refuses */
	uint64_t copy_max; /* bytes of one COPY; 0: as requested */
	struct fake_async async;
	bool lazy_clone; /* CLONE succeeds and copies nothing */
	bool bad_seek; /* SEEK finds what is before the offset, at 0 both data and a hole */
	int no_links; /* SYMLINK fails with this, also for an existing name; 0: it works */
	enum fake_whole whole;
	bool xattrs; /* objects may have extended attributes */
	uint32_t xattr_max; /* bytes of a value; 0: no limit */
	bool is_full; /* FSSTAT tells that no space is left */
	bool reads_alone; /* refuses a READ that lists extended attributes */
	bool xattr_stuck; /* LISTXATTRS returns its first page again and again */
	int64_t time_min; /* the first second that the file system has; 0: it has all */
	bool late; /* REMOVE and LOOKUP run at once, but are answered after all else */
};

/*
 * nfs_client.whole_max of clients that connect from now on, by version 4 if it is not 0. A bare
 * server does the first part.
 */
extern uint32_t fake_nfs_whole_max;

/* Likewise nfs_client.lists_max. Where a LISTXATTRS takes several pages, a READ lists no names. */
extern uint32_t fake_nfs_lists_max;

/* Called before each operation, so that a test can change the share. Must not start operations. */
typedef void (*fake_nfs_watch_fn)(struct fake_nfs *f, const struct nfs_op *op, void *data);

/* Create a share with an empty root directory. The caller frees it, after all clients. */
struct fake_nfs *fake_nfs_new(void);
void fake_nfs_free(struct fake_nfs *f);

/* Connect a new client. nfs_client_free() frees it. */
struct nfs_client *fake_nfs_connect(struct fake_nfs *f);

/*
 * Cut the client's connection, as the death of its process does: the operation before which this is
 * called, and those that follow, are not performed, and fail with -ECONNABORTED.
 */
void fake_nfs_cut(struct nfs_client *c);

/* Make nfs_client_run_pair(a, b) drive b, too. */
void fake_nfs_pair(struct nfs_client *a, struct nfs_client *b);

/* Likewise for c and the newest client of that share, if there is one, both ways. */
void fake_nfs_pair_newest(struct nfs_client *c, const char *share);

/*
 * For nfs_pool_new(): connect to the share of the last fake_nfs_serve(). An export that asks for
 * version 3 gets nothing that only later ones have.
 */
int fake_nfs_connect_fn(struct nfs_client **ret, const struct nfs_export *e, struct error *err);
void fake_nfs_serve(struct fake_nfs *f);

void fake_nfs_fail(struct fake_nfs *f, const struct fake_failure *failure);

/* Count the operations since the last fake_nfs_fail(), only those of its types. */
unsigned int fake_nfs_operations(struct fake_nfs *f);

/* Set the bits that the server clears in MKDIR's mode, as a umask does. */
void fake_nfs_umask(struct fake_nfs *f, uint32_t mask);

/* Treat root as nobody from now on. */
#define FAKE_NFS_NOBODY 65534
void fake_nfs_squash(struct fake_nfs *f);

void fake_nfs_habits(struct fake_nfs *f, const struct fake_habits *habits);

/* Copies that go on at present. */
unsigned int fake_nfs_copies(struct fake_nfs *f);

/* Change the write verifier and forget the copies that go on, as a server crash does. */
void fake_nfs_restart(struct fake_nfs *f);

void fake_nfs_watch(struct fake_nfs *f, fake_nfs_watch_fn watch, void *data);

/* Create an object, with all directories above it. text is a link's target, else NULL. */
void fake_nfs_put(struct fake_nfs *f, const char *path, enum nfs_type type, const char *text);

/* Write to a file, creating it if needed. Parts never written are holes. */
void fake_nfs_write(struct fake_nfs *f, const char *path, uint64_t offset, const char *data,
		    size_t len);
void fake_nfs_truncate(struct fake_nfs *f, const char *path, uint64_t size);
void fake_nfs_read(struct fake_nfs *f, const char *path, uint64_t offset, char *data, size_t len);

/*
 * READs of the file report the attributes that it has now, whatever becomes of it, as of a server
 * that takes them before the data. NULL: no file.
 */
void fake_nfs_lag(struct fake_nfs *f, const char *path);

/* Add the name as to the object at path. */
void fake_nfs_link(struct fake_nfs *f, const char *path, const char *as);

/*
 * Set mode, owner, times, a device's numbers, is_mount, and each half of fsid that is not 0. The
 * path "" is the root.
 */
void fake_nfs_set(struct fake_nfs *f, const char *path, const struct nfs_attr *attr);

/* Look up path as a client would. Returns false if nothing is there. */
bool fake_nfs_get(struct fake_nfs *f, const char *path, struct nfs_handle *ret_handle,
		  struct nfs_attr *ret_attr);

/* Set an extended attribute, or remove it: value is NULL. The name is as NFS has it. */
void fake_nfs_set_xattr(struct fake_nfs *f, const char *path, const char *name, const char *value,
			size_t len);

/* Remove the object at path, with everything in it. */
void fake_nfs_remove(struct fake_nfs *f, const char *path);

/* Type, mode and owner of the object at path. */
enum nfs_type fake_nfs_type(struct fake_nfs *f, const char *path); /* UNKNOWN: no object */
uint32_t fake_nfs_mode(struct fake_nfs *f, const char *path);
uint32_t fake_nfs_owner(struct fake_nfs *f, const char *path);

/*
 * Return all paths of the share, sorted, one a line; directories end with a slash. skip, if not
 * NULL, leaves out a path and everything below it. The caller frees.
 */
char *fake_nfs_list(struct fake_nfs *f, const char *skip);

/*
 * Describe the tree at path completely, except for its location: two trees are equal if their dumps
 * are. The caller frees.
 */
char *fake_nfs_dump(struct fake_nfs *f, const char *path);

#endif
