/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A share in memory, and clients of it that behave as nfs/client.h says, so that what stands on
 * that seam is tested without a server. Failures are set by number: "the third operation from now,
 * -ECONNABORTED, after it took effect". The share outlives its clients, as a server does. Any number of
 * clients and threads.
 */
#ifndef FAKE_NFS_H
#define FAKE_NFS_H

#include "nfs/client.h"

struct fake_nfs;

/* Which operation fails, and how. */
struct fake_failure {
	unsigned int nth; /* the first operation from now is 1; 0: none fails */
	int error; /* negative; -ECONNABORTED and -ETIMEDOUT break the client */
	bool after; /* the operation takes effect, only its reply is lost */
	bool all; /* every operation from the nth on, not it alone */
	unsigned int types; /* 1 << enum nfs_op_type: only these count; 0: all */
};

/* What a READDIR reply has of its entries, beside their names. */
enum fake_entries {
	FAKE_ENTRIES_MIXED, /* handle and attributes of every second one */
	FAKE_ENTRIES_FULL,
	FAKE_ENTRIES_BARE,
};

/* How it tells and takes owners. */
enum fake_owners {
	FAKE_OWNERS_NUMBERED,
	FAKE_OWNERS_NAMED, /* "u1000@fake", which it takes back */
	FAKE_OWNERS_STRANGE, /* in numbers; whom it is given by name it takes for nobody */
	FAKE_OWNERS_NONE, /* it tells none */
};

/* Which replies tell the file system. */
enum fake_fsid {
	FAKE_FSID_ALL,
	FAKE_FSID_ASKED, /* GETATTR alone */
	FAKE_FSID_NEVER,
};

/* What servers may do as they like. */
struct fake_habits {
	unsigned int page; /* entries of a READDIR reply; 0: three */
	enum fake_entries entries;
	bool bare; /* no reply has a handle or attributes where version 3 allows that */
	uint32_t transfer_max; /* bytes that a READ gives and a WRITE takes; 0: what is asked for */
	bool empty; /* READs bring nothing, and are not at the end */
	enum fake_owners owners;
	enum fake_fsid fsid;
	bool modes; /* the modes of directories count, for all but root */
	bool folds; /* "A" is another name of "a" */
	bool used_lags; /* no room is taken by what has been written */
	bool late; /* names are removed and looked up at once, and all else is answered before that */
};

/* Called before each operation: where a test changes the share under way. Operations may not be started. */
typedef void (*fake_nfs_watch_fn)(struct fake_nfs *f, const struct nfs_op *op, void *data);

/* An empty root directory. The caller frees, after all clients. */
struct fake_nfs *fake_nfs_new(void);
void fake_nfs_free(struct fake_nfs *f);

/* A new client: nfs_client_free() frees it. */
struct nfs_client *fake_nfs_connect(struct fake_nfs *f);

/* Has nfs_client_run_pair(a, b) drive b, too. */
void fake_nfs_pair(struct nfs_client *a, struct nfs_client *b);

/* For nfs_pool_new(): connects to the share that fake_nfs_serve() named last. */
int fake_nfs_connect_fn(struct nfs_client **ret, const struct nfs_export *e, struct error *err);
void fake_nfs_serve(struct fake_nfs *f);

void fake_nfs_fail(struct fake_nfs *f, const struct fake_failure *failure);

/* Operations since the last fake_nfs_fail(), those of its types only. */
unsigned int fake_nfs_operations(struct fake_nfs *f);

/* Permission bits that the server takes away from MKDIR's mode, as a umask does. */
void fake_nfs_umask(struct fake_nfs *f, uint32_t mask);

/* Treats root as nobody from now on. */
#define FAKE_NFS_NOBODY 65534
void fake_nfs_squash(struct fake_nfs *f);

void fake_nfs_habits(struct fake_nfs *f, const struct fake_habits *habits);

/* Another verifier of writes, as after a crash. */
void fake_nfs_restart(struct fake_nfs *f);

void fake_nfs_watch(struct fake_nfs *f, fake_nfs_watch_fn watch, void *data);

/* Makes a directory, a file or a link, with all directories above it. text NULL: not a link. */
void fake_nfs_put(struct fake_nfs *f, const char *path, enum nfs_type type, const char *text);

/* Data of a file, which is made. What was never written is a hole. */
void fake_nfs_write(struct fake_nfs *f, const char *path, uint64_t offset, const char *data,
		    size_t len);
void fake_nfs_truncate(struct fake_nfs *f, const char *path, uint64_t size);
void fake_nfs_read(struct fake_nfs *f, const char *path, uint64_t offset, char *data, size_t len);

/* Gives what is at path another name. */
void fake_nfs_link(struct fake_nfs *f, const char *path, const char *as);

/* Sets mode, owner and times, of a device which, and either half of fsid where that is not 0. */
void fake_nfs_set(struct fake_nfs *f, const char *path, const struct nfs_attr *attr);

/* What a client would find at path; false: nothing. */
bool fake_nfs_get(struct fake_nfs *f, const char *path, struct nfs_handle *ret_handle,
		  struct nfs_attr *ret_attr);

/* Takes away what is at path, with all that is in it. */
void fake_nfs_remove(struct fake_nfs *f, const char *path);

/* Whether there is something at path, and what. */
enum nfs_type fake_nfs_type(struct fake_nfs *f, const char *path); /* UNKNOWN: nothing */
uint32_t fake_nfs_mode(struct fake_nfs *f, const char *path);
uint32_t fake_nfs_owner(struct fake_nfs *f, const char *path);

/*
 * All paths of the share, sorted, a line each: directories with a slash at the end. skip leaves out a
 * path and what is below it; it may be NULL. The caller frees.
 */
char *fake_nfs_list(struct fake_nfs *f, const char *skip);

/*
 * All that there is to know of the tree at path, but for where it is: two trees are the same where their
 * dumps are. The caller frees.
 */
char *fake_nfs_dump(struct fake_nfs *f, const char *path);

#endif
