/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fake/nfs.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"
#include "nfs/owner.h"

#define DIRECTORY_PAGE 3 /* entries of a READDIR reply: small, so that there are several */
#define DIRECTORY_PAGE_MAX 1024
#define BLOCK 4096 /* what a file's room on the disk is counted in */
#define FIRST_SECOND 1000000000 /* the share's clock starts here, and moves on with each change */
#define NAMES_MIN 256 /* buckets of the table of names */
#define SET_ID_BITS 06000
#define COPIES_MAX 64 /* that go on after their reply */
#define XATTR_PAGE 2 /* names of a LISTXATTRS reply */

struct xattr {
	struct xattr *next; /* sorted by name */
	char *name, *value;
	size_t len;
};

/* What a handle is of. Never two for one id; gone with its last name. */
struct inode {
	uint64_t id;
	unsigned int links;
	enum nfs_type type;
	uint32_t mode, uid, gid;
	uint64_t fsid, fsid_minor;
	bool is_mount; /* something is mounted at its name, with the same fsid */
	struct nfs_time atime, mtime, ctime;
	struct nfs_device device;
	char *text; /* of a symbolic link */
	struct xattr *xattrs;
	char **blocks; /* of a file; NULL: a hole */
	size_t n_blocks;
	uint64_t size, used;
	struct inode *parent; /* of a directory */
	struct list children; /* of a directory: struct node, sorted by name */
	size_t line; /* of the dump that is being made: where it came first */
};

/* A name in a directory. */
struct node {
	struct list link; /* in the directory */
	struct node *next; /* in the bucket */
	uint64_t cookie;
	struct inode *parent, *inode;
	char *name;
};

/* A copy that goes on after its reply. */
struct copy {
	uint64_t id; /* 0: none */
	uint64_t from, to; /* inodes */
	uint64_t offset, length, done;
	unsigned int steps, steps_left;
};

struct fake_nfs {
	pthread_mutex_t lock; /* guards everything */
	struct inode *root;
	struct inode **inodes; /* by id; NULL: gone */
	uint64_t last_id, last_cookie;
	struct node **names; /* a hash table */
	size_t n_names, n_buckets;
	/* The last directory that a test's path led to: the next path often begins the same. */
	char *near;
	struct inode *near_dir; /* NULL: unknown */
	int64_t now;
	struct fake_failure failure;
	struct fake_habits habits;
	unsigned int operations;
	uint32_t mask;
	bool squash;
	char verifier[8]; /* of writes */
	struct copy copies[COPIES_MAX];
	uint64_t n_copies; /* ever */
	unsigned int n_copied; /* calls of COPY */
	fake_nfs_watch_fn watch;
	void *watch_data;
	struct fake_client *clients; /* the newest first */
	uint64_t lagging; /* id of the file whose READs have the attributes below; 0: none */
	struct nfs_attr lag;
};

struct queued {
	struct nfs_op *op;
	bool performed; /* only its reply is to come */
	int result;
};

struct fake_client {
	struct nfs_client client;
	struct fake_nfs *fake;
	struct fake_client *next; /* in fake's list */
	struct fake_client *peer; /* driven by the same thread; NULL: none */
	struct queued queue[NFS_WINDOW * 4];
	size_t n_queue;
	bool is_cut;
};

static const char directory_verifier[8] = "readdir";

static struct fake_nfs *served;

static void *must(void *p)
{
	assert(p != NULL);
	return p;
}

/* -------- objects and their names -------- */

static struct nfs_time now(struct fake_nfs *f)
{
	return (struct nfs_time){ .sec = FIRST_SECOND + ++f->now };
}

static struct inode *inode_new(struct fake_nfs *f, enum nfs_type type, uint32_t mode)
{
	struct inode *inode = must(calloc(1, sizeof(*inode)));

	list_init(&inode->children);
	inode->id = ++f->last_id;
	inode->type = type;
	inode->mode = mode;
	inode->fsid = 1;
	inode->atime = inode->mtime = inode->ctime = now(f);
	if ((inode->id & (inode->id - 1)) == 0)
		f->inodes = must(
			reallocarray(f->inodes, (size_t)inode->id * 2, sizeof(struct inode *)));
	f->inodes[inode->id] = inode;
	return inode;
}

static void truncate_to(struct inode *inode, uint64_t size)
{
	const uint64_t kept = (size + BLOCK - 1) / BLOCK; /* on 32 bits more than a size_t */

	while (inode->n_blocks > kept) {
		inode->n_blocks--;
		inode->used -= inode->blocks[inode->n_blocks] != NULL ? BLOCK : 0;
		free(inode->blocks[inode->n_blocks]);
	}
	if (size % BLOCK != 0 && inode->n_blocks == kept && inode->blocks[kept - 1] != NULL)
		memset(inode->blocks[kept - 1] + size % BLOCK, 0, BLOCK - size % BLOCK);
	inode->size = size;
}

/* Return where the attribute is, or would be. */
static struct xattr **xattr_slot(struct inode *inode, const char *name)
{
	struct xattr **slot = &inode->xattrs;

	while (*slot != NULL && strcmp((*slot)->name, name) < 0)
		slot = &(*slot)->next;
	return slot;
}

static bool has_xattr(struct inode *inode, const char *name)
{
	struct xattr **slot = xattr_slot(inode, name);

	return *slot != NULL && strcmp((*slot)->name, name) == 0;
}

static void remove_xattr(struct inode *inode, const char *name)
{
	struct xattr **slot = xattr_slot(inode, name), *gone = *slot;

	if (!has_xattr(inode, name))
		return;
	*slot = gone->next;
	free(gone->name);
	free(gone->value);
	free(gone);
}

static void put_xattr(struct inode *inode, const char *name, const char *value, size_t len)
{
	struct xattr *xattr = must(calloc(1, sizeof(*xattr))), **slot;

	xattr->name = must(strdup(name));
	xattr->value = must(malloc(len + 1));
	memcpy(xattr->value, value, len);
	xattr->len = len;
	remove_xattr(inode, name);
	slot = xattr_slot(inode, name);
	xattr->next = *slot;
	*slot = xattr;
}

static void node_free(struct fake_nfs *f, struct node *node);

static void inode_free(struct fake_nfs *f, struct inode *inode)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &inode->children)
		node_free(f, container_of(pos, struct node, link));
	truncate_to(inode, 0);
	while (inode->xattrs != NULL)
		remove_xattr(inode, inode->xattrs->name);
	f->inodes[inode->id] = NULL;
	free(inode->blocks);
	free(inode->text);
	free(inode);
}

static struct node **bucket_of(struct fake_nfs *f, const struct inode *dir, const char *name)
{
	uint64_t hash = dir->id;

	for (; *name != '\0'; name++)
		hash = hash * 31 + (uint64_t)tolower((unsigned char)*name);
	return &f->names[(hash ^ hash >> 16) % f->n_buckets];
}

static void grow_names(struct fake_nfs *f)
{
	struct node **old = f->names;
	const size_t n = f->n_buckets;
	size_t i;

	f->n_buckets = n == 0 ? NAMES_MIN : 4 * n;
	f->names = must(calloc(f->n_buckets, sizeof(*f->names)));
	for (i = 0; i < n; i++) {
		while (old[i] != NULL) {
			struct node *node = old[i];
			struct node **bucket = bucket_of(f, node->parent, node->name);

			old[i] = node->next;
			node->next = *bucket;
			*bucket = node;
		}
	}
	free(old);
}

static struct node *child(struct fake_nfs *f, const struct inode *dir, const char *name)
{
	int (*compare)(const char *a, const char *b) = f->habits.folds ? strcasecmp : strcmp;
	struct node *node = *bucket_of(f, dir, name);

	while (node != NULL && (node->parent != dir || compare(node->name, name) != 0))
		node = node->next;
	return node;
}

/* Sorted, so that listings do not depend on history. */
static void attach(struct fake_nfs *f, struct inode *dir, struct node *node)
{
	struct list *pos = dir->children.prev;
	struct node **bucket;

	if (++f->n_names > f->n_buckets)
		grow_names(f);
	bucket = bucket_of(f, dir, node->name);
	while (pos != &dir->children &&
	       strcmp(container_of(pos, struct node, link)->name, node->name) > 0)
		pos = pos->prev;
	list_add_tail(pos->next, &node->link);
	node->next = *bucket;
	*bucket = node;
	node->parent = dir;
	if (node->inode->type == NFS_TYPE_DIRECTORY)
		node->inode->parent = dir;
	dir->mtime = dir->ctime = node->inode->ctime = now(f);
}

static void detach(struct fake_nfs *f, struct node *node)
{
	struct node **at = bucket_of(f, node->parent, node->name);

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	f->n_names--;
	f->near_dir = NULL;
	list_remove(&node->link);
	node->parent->mtime = node->parent->ctime = node->inode->ctime = now(f);
}

static struct node *node_new(struct fake_nfs *f, struct inode *dir, const char *name,
			     struct inode *inode)
{
	struct node *node = must(calloc(1, sizeof(*node)));

	list_init(&node->link);
	node->cookie = ++f->last_cookie;
	node->inode = inode;
	node->name = must(strdup(name));
	inode->links++;
	attach(f, dir, node);
	return node;
}

static void node_free(struct fake_nfs *f, struct node *node)
{
	detach(f, node);
	if (--node->inode->links == 0)
		inode_free(f, node->inode);
	free(node->name);
	free(node);
}

static struct inode *by_handle(struct fake_nfs *f, const struct nfs_handle *handle)
{
	uint64_t id;

	assert(handle->len == sizeof(id));
	memcpy(&id, handle->data, sizeof(id));
	assert(id > 0 && id <= f->last_id);
	return f->inodes[id];
}

/* Names as those of servers that map ids, of all but numbers that it has been told to keep. */
static uint32_t name_of(uint32_t id)
{
	char name[32];
	uint32_t number;
	int n = id == 0 ? snprintf(name, sizeof(name), "root@fake")
			: snprintf(name, sizeof(name), "u%u@fake", id);

	if (nfs_owner_intern(name, (size_t)n, &number) < 0)
		abort();
	return number;
}

/* What a name stands for; one that is not its own is nobody's. */
static uint32_t id_of(const struct fake_nfs *f, uint32_t name, uint32_t id)
{
	const char *text = name != 0 ? nfs_owner_name(name) : NULL;

	if (text == NULL)
		return id;
	if (f->habits.owners == FAKE_OWNERS_STRANGE)
		return FAKE_NFS_NOBODY;
	return text[0] == 'u' ? (uint32_t)strtoul(text + 1, NULL, 10) : 0;
}

/* As a server of version 4 sends them, where it does not send numbers. */
static void name_owners(const struct fake_nfs *f, struct nfs_attr *attr)
{
	if (f->habits.owners == FAKE_OWNERS_NONE)
		attr->has_owner = false;
	if (f->habits.owners != FAKE_OWNERS_NAMED)
		return;
	attr->uid_name = name_of(attr->uid);
	attr->gid_name = name_of(attr->gid);
	if (attr->uid != 0)
		attr->uid = NFS_ID_UNKNOWN;
	if (attr->gid != 0)
		attr->gid = NFS_ID_UNKNOWN;
	attr->has_owner = attr->uid == 0 && attr->gid == 0;
	attr->is_named = !attr->has_owner;
}

static void describe(const struct fake_nfs *f, const struct inode *inode, struct nfs_handle *handle,
		     struct nfs_attr *attr)
{
	memset(handle, 0, sizeof(*handle));
	handle->len = sizeof(inode->id);
	memcpy(handle->data, &inode->id, sizeof(inode->id));
	*attr = (struct nfs_attr){
		.type = inode->type,
		.has_mode = !f->habits.no_modes,
		.mode = f->habits.no_modes ? 0 : inode->mode,
		.has_owner = true,
		.uid = inode->uid,
		.gid = inode->gid,
		.is_full = true,
		.links = inode->type == NFS_TYPE_DIRECTORY ? 2 : inode->links,
		.size = inode->type == NFS_TYPE_DIRECTORY ? BLOCK : inode->size,
		.used = inode->type == NFS_TYPE_DIRECTORY ? BLOCK : inode->used,
		.fileid = inode->id,
		.has_fsid = true,
		.fsid = inode->fsid,
		.fsid_minor = inode->fsid_minor,
		.device = inode->device,
		.atime = inode->atime,
		.mtime = inode->mtime,
		.ctime = inode->ctime,
	};
	if (f->habits.used_lags && inode->type == NFS_TYPE_FILE)
		attr->used = 0;
	if (f->habits.used_all && inode->type == NFS_TYPE_FILE)
		attr->used = attr->size;
	name_owners(f, attr);
}

/* -------- operations -------- */

static int check_name(const char *name)
{
	assert(name[0] != '\0' && strchr(name, '/') == NULL);
	assert(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	return strlen(name) > NFS_NAME_MAX ? -ENAMETOOLONG : 0;
}

/* As a version 4 server that leaves it out where it is not asked for alone, or that has none. */
static void hide_fsid(const struct fake_nfs *f, enum nfs_op_type type, struct nfs_attr *attr)
{
	if (f->habits.fsid == FAKE_FSID_NEVER ||
	    (f->habits.fsid == FAKE_FSID_ASKED && type != NFS_OP_GETATTR))
		attr->has_fsid = false;
}

static int do_lookup(struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	struct node *node = child(f, dir, op->name);

	if (node == NULL)
		return -ENOENT;
	describe(f, node->inode, &op->handle, &op->attr);
	op->attr.is_mount = node->inode->is_mount;
	hide_fsid(f, op->type, &op->attr);
	if (f->habits.bare)
		op->attr = (struct nfs_attr){ .type = NFS_TYPE_UNKNOWN };
	return 0;
}

static bool is_root(const struct fake_nfs *f, const struct nfs_op *op)
{
	return op->client->export.uid == 0 && !f->squash;
}

/*
 * Set attributes as chmod(2), chown(2) and truncate(2) do: only root changes the owner, and only
 * the owner sets the mode. A new owner clears setuid, as on Linux.
 */
static int do_setattr(struct fake_nfs *f, struct inode *inode, const struct nfs_op *op,
		      const struct nfs_change *change)
{
	uint32_t uid = op->client->export.uid;

	if (!is_root(f, op) && (uid != inode->uid || (change->has_uid && change->uid != uid)))
		return -EPERM;
	inode->ctime = now(f);
	if (change->has_mode)
		inode->mode = change->mode;
	if (change->has_uid && !f->habits.no_owners)
		inode->uid = id_of(f, change->uid_name, change->uid);
	if (change->has_gid && !f->habits.no_owners)
		inode->gid = id_of(f, change->gid_name, change->gid);
	if ((change->has_uid || change->has_gid) && inode->type != NFS_TYPE_DIRECTORY)
		inode->mode &= ~(uint32_t)SET_ID_BITS;
	if (change->has_size && inode->type != NFS_TYPE_FILE)
		return -EINVAL;
	if (change->has_size && change->size != inode->size) {
		truncate_to(inode, change->size);
		inode->mtime = now(f);
	}
	if (change->has_times) {
		inode->atime = change->atime;
		inode->mtime = change->mtime;
		if (f->habits.time_min != 0 && inode->mtime.sec < f->habits.time_min)
			inode->mtime = (struct nfs_time){ f->habits.time_min, 0 };
	}
	return 0;
}

static enum nfs_type made_type(const struct nfs_op *op)
{
	switch (op->type) {
	case NFS_OP_MKDIR:
		return NFS_TYPE_DIRECTORY;
	case NFS_OP_SYMLINK:
		return NFS_TYPE_SYMLINK;
	case NFS_OP_CREATE:
		return NFS_TYPE_FILE;
	default:
		return op->node;
	}
}

static char *block_at(struct inode *inode, uint64_t offset)
{
	size_t i = (size_t)(offset / BLOCK);

	return i < inode->n_blocks ? inode->blocks[i] : NULL;
}

static char *make_block(struct inode *inode, uint64_t offset)
{
	size_t i = (size_t)(offset / BLOCK), n = i + 1;

	if (n > inode->n_blocks) {
		inode->blocks = must(reallocarray(inode->blocks, n, sizeof(char *)));
		memset(inode->blocks + inode->n_blocks, 0, (n - inode->n_blocks) * sizeof(char *));
		inode->n_blocks = n;
	}
	if (inode->blocks[i] == NULL) {
		inode->blocks[i] = must(calloc(1, BLOCK));
		inode->used += BLOCK;
	}
	return inode->blocks[i];
}

static void write_to(struct inode *inode, uint64_t offset, const char *data, size_t len)
{
	while (len > 0) {
		size_t at = (size_t)(offset % BLOCK), n = len < BLOCK - at ? len : BLOCK - at;

		memcpy(make_block(inode, offset) + at, data, n);
		offset += n;
		data += n;
		len -= n;
		if (offset > inode->size)
			inode->size = offset;
	}
}

uint32_t fake_nfs_whole_max;
uint32_t fake_nfs_lists_max;

/* Whether the data was written and the attributes were set. */
static bool do_contents(struct fake_nfs *f, struct inode *inode, const struct nfs_op *op)
{
	assert(op->count <= op->client->whole_max);
	if (f->habits.whole == FAKE_WHOLE_NO_DATA)
		return false;
	if (op->count > 0)
		write_to(inode, 0, op->buffer, op->count);
	inode->mtime = inode->ctime = now(f);
	return f->habits.whole == FAKE_WHOLE_ALL && do_setattr(f, inode, op, &op->then) == 0;
}

static int do_make(struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	enum nfs_type type = made_type(op);
	struct inode *inode;
	int r;

	if (type == NFS_TYPE_SYMLINK && f->habits.no_links != 0)
		return f->habits.no_links;
	if (child(f, dir, op->name) != NULL)
		return -EEXIST;
	if (type == NFS_TYPE_SYMLINK && strlen(op->text) > NFS_LINK_MAX)
		return -ENAMETOOLONG;
	inode = inode_new(f, type, 0777);
	inode->uid =
		f->squash && op->client->export.uid == 0 ? FAKE_NFS_NOBODY : op->client->export.uid;
	inode->gid = op->client->export.gid;
	if (type == NFS_TYPE_SYMLINK)
		inode->text = must(strdup(op->text));
	else if (type == NFS_TYPE_DIRECTORY)
		inode->mode = op->mode & ~f->mask;
	if (op->type == NFS_OP_MKNOD)
		inode->device = op->device;
	if (op->type == NFS_OP_MKNOD || op->type == NFS_OP_CREATE) {
		r = do_setattr(f, inode, op, &op->change);
		if (r < 0) {
			inode_free(f, inode);
			return r;
		}
		inode->mode &= ~f->mask;
	}
	node_new(f, dir, op->name, inode);
	op->whole = op->whole && !f->habits.bare && do_contents(f, inode, op);
	if (!f->habits.bare)
		describe(f, inode, &op->handle, &op->attr);
	return 0;
}

static int remove_name(struct fake_nfs *f, struct inode *dir, const struct nfs_op *op,
		       const char *name)
{
	struct node *node = child(f, dir, name);
	bool rmdir = op->type == NFS_OP_RMDIR;

	if (node == NULL)
		return -ENOENT;
	if (rmdir && node->inode->type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (!rmdir && node->inode->type == NFS_TYPE_DIRECTORY)
		return -EISDIR;
	if (!list_is_empty(&node->inode->children))
		return -ENOTEMPTY;
	node_free(f, node);
	return 0;
}

/* Of several names, up to the first that fails. */
static int do_remove(struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	int r = 0;

	if (op->n_names == 0)
		return remove_name(f, dir, op, op->name);
	assert(op->client->version == 4 && op->n_names <= NFS_REMOVE_MAX);
	for (op->count = 0; r == 0 && op->count < op->n_names; op->count += r == 0)
		r = remove_name(f, dir, op, op->names[op->count]);
	return r;
}

#define MAY_READ 4U
#define MAY_WRITE 2U
#define MAY_SEARCH 1U

/* Whether the mode lets the client do that in a directory. */
static bool may(const struct fake_nfs *f, const struct inode *dir, const struct nfs_op *op,
		uint32_t what)
{
	const struct nfs_export *e = &op->client->export;
	uint32_t bits = e->uid == dir->uid   ? dir->mode >> 6
			: e->gid == dir->gid ? dir->mode >> 3
					     : dir->mode;

	return !f->habits.modes || is_root(f, op) || (bits & what) == what;
}

static int do_rename(struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	struct inode *to = by_handle(f, op->to_dir), *p;
	struct node *node = child(f, dir, op->name), *there;
	int r = check_name(op->to_name);

	if (to == NULL)
		return -ESTALE;
	if (to->type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (node == NULL)
		return -ENOENT;
	if (r < 0)
		return r;
	for (p = to; p != NULL; p = p->parent)
		if (p == node->inode)
			return -EINVAL;
	there = child(f, to, op->to_name);
	if (there != NULL && there->inode == node->inode)
		return 0;
	/* As on Linux, which writes "..". */
	if (!may(f, to, op, MAY_WRITE | MAY_SEARCH) ||
	    (to != dir && node->inode->type == NFS_TYPE_DIRECTORY &&
	     !may(f, node->inode, op, MAY_WRITE)))
		return -EACCES;
	if (there != NULL) {
		if (!list_is_empty(&there->inode->children))
			return -ENOTEMPTY;
		if ((there->inode->type == NFS_TYPE_DIRECTORY) !=
		    (node->inode->type == NFS_TYPE_DIRECTORY))
			return -EEXIST;
		node_free(f, there);
	}
	detach(f, node);
	free(node->name);
	node->name = must(strdup(op->to_name));
	attach(f, to, node);
	return 0;
}

static int do_link(struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	struct inode *to = by_handle(f, op->to_dir);
	int r = check_name(op->to_name);

	if (to == NULL)
		return -ESTALE;
	if (to->type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (inode->type == NFS_TYPE_DIRECTORY)
		return -EPERM;
	if (r == 0 && child(f, to, op->to_name) != NULL)
		r = -EEXIST;
	if (r == 0)
		node_new(f, to, op->to_name, inode);
	return r;
}

static bool has_attributes(const struct fake_nfs *f, const struct node *node)
{
	switch (f->habits.entries) {
	case FAKE_ENTRIES_FULL:
		return true;
	case FAKE_ENTRIES_BARE:
		return false;
	default:
		return node->cookie % 2 == 0;
	}
}

/* The entries that come next, by cookie, so that one that goes meanwhile ends no walk. */
static size_t page_of(const struct inode *dir, uint64_t cookie, struct node **page, size_t max,
		      bool *ret_eof)
{
	struct list *pos;
	size_t n = 0;

	*ret_eof = true;
	list_for_each(pos, &dir->children) {
		struct node *node = container_of(pos, struct node, link);
		size_t k;

		if (node->cookie <= cookie)
			continue;
		*ret_eof = *ret_eof && n < max;
		if (n == max && node->cookie > page[n - 1]->cookie)
			continue;
		if (n < max)
			n++;
		for (k = n - 1; k > 0 && page[k - 1]->cookie > node->cookie; k--)
			page[k] = page[k - 1];
		page[k] = node;
	}
	return n;
}

static int do_readdir(const struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	static const char none[sizeof(op->verifier)] = { 0 };
	struct node *page[DIRECTORY_PAGE_MAX];
	size_t n, i;

	/* RFC 1813, section 3.3.17: zeros from the start on, and then what the server said. */
	if (memcmp(op->verifier, op->cookie == 0 ? none : directory_verifier, sizeof(none)) != 0)
		return -EINVAL;
	memcpy(op->verifier, directory_verifier, sizeof(op->verifier));
	n = page_of(dir, op->cookie, page, f->habits.page != 0 ? f->habits.page : DIRECTORY_PAGE,
		    &op->eof);
	for (i = 0; i < n; i++) {
		struct nfs_entry entry = { .name = page[i]->name, .cookie = page[i]->cookie };

		if (has_attributes(f, page[i]) && may(f, dir, op, MAY_SEARCH))
			describe(f, page[i]->inode, &entry.handle, &entry.attr);
		entry.attr.is_mount = entry.handle.len > 0 && page[i]->inode->is_mount;
		hide_fsid(f, op->type, &entry.attr);
		op->cookie = entry.cookie;
		op->entry(op, &entry);
	}
	return 0;
}

static void read_from(struct inode *inode, uint64_t offset, char *data, size_t len)
{
	while (len > 0) {
		size_t at = (size_t)(offset % BLOCK), n = len < BLOCK - at ? len : BLOCK - at;
		const char *block = block_at(inode, offset);

		if (block != NULL)
			memcpy(data, block + at, n);
		else
			memset(data, 0, n);
		offset += n;
		data += n;
		len -= n;
	}
}

static int do_listxattrs(const struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	const uint64_t from = f->habits.xattr_stuck ? 0 : op->cookie;
	const struct xattr *xattr = inode->xattrs;
	uint64_t i;

	for (i = 0; i < from && xattr != NULL; i++)
		xattr = xattr->next;
	for (; i < from + XATTR_PAGE && xattr != NULL; i++, xattr = xattr->next)
		op->xattr(op, xattr->name, (uint32_t)strlen(xattr->name));
	op->cookie = f->habits.xattr_stuck ? op->cookie + 1 : i;
	op->eof = xattr == NULL && !f->habits.xattr_stuck;
	return 0;
}

static void list_with_data(const struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	const struct xattr *xattr = inode->xattrs;
	unsigned int n = 0;

	assert(op->count <= op->client->lists_max);
	for (; xattr != NULL; xattr = xattr->next)
		n++;
	op->listed = f->habits.xattrs && !f->habits.xattr_stuck && n <= XATTR_PAGE;
	for (xattr = inode->xattrs; op->listed && xattr != NULL; xattr = xattr->next)
		op->xattr(op, xattr->name, (uint32_t)strlen(xattr->name));
}

static int do_read(const struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	uint64_t left = op->offset < inode->size ? inode->size - op->offset : 0;
	struct nfs_handle unused;

	assert(op->count <= NFS_TRANSFER_MAX);
	if (op->xattr != NULL && f->habits.reads_alone)
		return -EREMOTEIO;
	if (op->xattr != NULL)
		list_with_data(f, inode, op);
	if (f->habits.transfer_max != 0 && op->count > f->habits.transfer_max)
		op->count = f->habits.transfer_max;
	if (op->count > left)
		op->count = (uint32_t)left;
	if (f->habits.empty)
		op->count = 0;
	op->eof = op->count == left;
	read_from(inode, op->offset, op->buffer, op->count);
	if (op->full && !f->habits.bare)
		describe(f, inode, &unused, &op->attr);
	if (inode->id == f->lagging)
		op->attr = f->lag;
	return 0;
}

static int do_write(struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	assert(op->count > 0 && op->count <= nfs_write_max(op->client));
	if (f->habits.transfer_max != 0 && op->count > f->habits.transfer_max)
		op->count = f->habits.transfer_max;
	write_to(inode, op->offset, op->buffer, op->count);
	inode->mtime = inode->ctime = now(f);
	memcpy(op->verifier, f->verifier, sizeof(op->verifier));
	return 0;
}

static int do_seek(const struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	uint64_t at = op->offset;

	if ((f->habits.offload & ~f->habits.refused & NFS_OFFLOAD_SEEK) == 0)
		return -EOPNOTSUPP;
	if (f->habits.bad_seek) {
		op->offset = at > 0 ? at - 1 : 0;
		return 0;
	}
	while (at < inode->size && at / BLOCK < inode->n_blocks &&
	       (block_at(inode, at) == NULL) != op->hole)
		at += BLOCK - at % BLOCK;
	if (at / BLOCK >= inode->n_blocks && !op->hole) /* one hole up to the end */
		at = inode->size;
	if (at >= inode->size && !op->hole)
		return -ENXIO;
	op->offset = at < inode->size ? at : inode->size;
	return 0;
}

static void copy_bytes(struct inode *from, struct inode *to, uint64_t offset, uint64_t len,
		       bool keep_holes)
{
	static const char zeros[BLOCK];
	size_t n;

	for (uint64_t at = offset; at < offset + len; at += n) {
		const char *block = block_at(from, at);

		if (keep_holes && at / BLOCK >= from->n_blocks)
			break; /* a hole to the end, perhaps of terabytes */
		n = BLOCK - (size_t)(at % BLOCK);
		if (n > offset + len - at)
			n = (size_t)(offset + len - at);
		/* A clone keeps holes, a copy fills them. */
		if (block != NULL)
			write_to(to, at, block + at % BLOCK, n);
		else if (!keep_holes)
			write_to(to, at, zeros, n);
	}
	if (to->size < offset + len)
		to->size = offset + len;
}

/* -------- copies that go on -------- */

static bool copies_async(struct fake_nfs *f, const struct nfs_op *op)
{
	const struct fake_async *async = &f->habits.async;

	return op->allow_async ? async->asked || async->only : async->uninvited;
}

/* Copy on up to this length. */
static void copy_to(struct fake_nfs *f, struct copy *copy, uint64_t length)
{
	struct inode *from = f->inodes[copy->from], *to = f->inodes[copy->to];

	if (from == NULL || to == NULL)
		return;
	copy_bytes(from, to, copy->offset + copy->done, length - copy->done, false);
	copy->done = length;
	to->mtime = to->ctime = now(f);
}

static int start_copy(struct fake_nfs *f, const struct inode *from, const struct inode *to,
		      struct nfs_op *op)
{
	struct copy *copy = f->copies;

	while (copy->id != 0)
		copy++;
	assert(copy < f->copies + COPIES_MAX);
	*copy = (struct copy){
		.id = ++f->n_copies,
		.from = from->id,
		.to = to->id,
		.offset = op->offset,
		.length = op->length,
		.steps = f->habits.async.steps,
		.steps_left = f->habits.async.steps,
	};
	if (f->habits.async.max != 0 && copy->length > f->habits.async.max)
		copy->length = f->habits.async.max;
	op->is_async = true;
	op->stable = false;
	memset(op->copy_id, 0, sizeof(op->copy_id));
	memcpy(op->copy_id, &copy->id, sizeof(copy->id));
	if (f->habits.async.no_verifier && !op->allow_async)
		memset(op->verifier, 0, sizeof(op->verifier));
	if (copy->steps == 0)
		copy_to(f, copy, copy->length);
	return 0;
}

static void step_copy(struct fake_nfs *f, struct copy *copy)
{
	if (copy->steps_left > 0) {
		copy->steps_left--;
		copy_to(f, copy, copy->length * (copy->steps - copy->steps_left) / copy->steps);
	} else if (f->habits.async.endless) {
		/* It writes its last bytes again and again. */
		copy->done = copy->length - 1;
		copy_to(f, copy, copy->length);
	}
}

/* Each operation is a moment in which the server copies on. */
static void step_copies(struct fake_nfs *f)
{
	size_t i;

	for (i = 0; i < COPIES_MAX; i++)
		if (f->copies[i].id != 0)
			step_copy(f, &f->copies[i]);
}

static struct copy *find_copy(struct fake_nfs *f, const struct nfs_op *op)
{
	uint64_t id;
	size_t i;

	memcpy(&id, op->copy_id, sizeof(id));
	for (i = 0; i < COPIES_MAX; i++)
		if (id != 0 && f->copies[i].id == id)
			return &f->copies[i];
	return NULL;
}

static int do_copy_status(struct fake_nfs *f, struct nfs_op *op)
{
	struct copy *copy = find_copy(f, op);

	if (f->habits.async.status_error < 0)
		return f->habits.async.status_error;
	if (copy == NULL)
		return -EREMOTEIO;
	op->length = copy->done;
	op->ended = !f->habits.async.endless && copy->steps_left == 0;
	op->copy_error = op->ended ? f->habits.async.error : 0;
	if (op->ended)
		copy->id = 0;
	return 0;
}

static int do_copy_cancel(struct fake_nfs *f, const struct nfs_op *op)
{
	struct copy *copy = find_copy(f, op);

	if (f->habits.async.cancel_error < 0)
		return f->habits.async.cancel_error;
	if (copy == NULL)
		return -EREMOTEIO;
	copy->id = 0;
	return 0;
}

static int do_copy(struct fake_nfs *f, struct inode *from, struct nfs_op *op)
{
	const unsigned int bit = op->type == NFS_OP_CLONE ? NFS_OFFLOAD_CLONE : NFS_OFFLOAD_COPY;
	struct inode *to = by_handle(f, op->to_dir);
	struct nfs_handle unused;

	op->is_async = false;
	if (to == NULL)
		return -ESTALE;
	if ((f->habits.offload & ~f->habits.refused & bit) == 0)
		return bit == NFS_OFFLOAD_CLONE ? -EXDEV : -EOPNOTSUPP;
	memcpy(op->verifier, f->verifier, sizeof(op->verifier));
	if (op->type == NFS_OP_CLONE) {
		op->length = f->habits.lazy_clone ? 0 : from->size;
		to->size = 0;
	} else if (op->offset + op->length > from->size) {
		return -EINVAL;
	} else if (f->n_copied++ >= f->habits.async.after) {
		op->is_async = f->habits.async.only && !op->allow_async;
		if (op->is_async)
			return -EOPNOTSUPP;
		if (copies_async(f, op))
			return start_copy(f, from, to, op);
	}
	if (op->type == NFS_OP_COPY && f->habits.copy_max != 0 && op->length > f->habits.copy_max)
		op->length = f->habits.copy_max;
	copy_bytes(from, to, op->offset, op->length, op->type == NFS_OP_CLONE);
	to->mtime = to->ctime = now(f);
	if (op->type == NFS_OP_CLONE)
		describe(f, to, &unused, &op->attr);
	return 0;
}

static int do_getxattr(struct inode *inode, struct nfs_op *op)
{
	const struct xattr *xattr = *xattr_slot(inode, op->name);

	if (!has_xattr(inode, op->name))
		return -ENODATA;
	op->error = 0;
	op->xattr(op, xattr->value, (uint32_t)xattr->len);
	return op->error;
}

static int do_setxattr(struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	if (!may(f, inode, op, MAY_WRITE))
		return -EACCES;
	if (f->habits.xattr_max != 0 && op->count > f->habits.xattr_max)
		return -E2BIG;
	put_xattr(inode, op->name, op->buffer, op->count);
	inode->ctime = now(f);
	return 0;
}

static int do_xattr(struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	if (!f->habits.xattrs)
		return -EOPNOTSUPP;
	switch (op->type) {
	case NFS_OP_GETXATTR:
		return do_getxattr(inode, op);
	case NFS_OP_SETXATTR:
		return do_setxattr(f, inode, op);
	case NFS_OP_LISTXATTRS:
		return do_listxattrs(f, inode, op);
	default:
		return 0;
	}
}

static int perform_on(struct fake_nfs *f, struct inode *inode, struct nfs_op *op)
{
	struct nfs_handle unused;
	int r;

	switch (op->type) {
	case NFS_OP_GETATTR:
		describe(f, inode, &unused, &op->attr);
		op->attr.is_mount = inode->is_mount; /* as of Linux, of the root of a mount */
		hide_fsid(f, op->type, &op->attr);
		return 0;
	case NFS_OP_SETATTR:
		r = do_setattr(f, inode, op, &op->change);
		if (r == 0 && op->full && !f->habits.bare)
			describe(f, inode, &unused, &op->attr);
		return r;
	case NFS_OP_FSSTAT:
		op->space = (struct nfs_space){ .total = 1 << 30,
						.available = f->habits.is_full ? 0 : 1 << 29 };
		return 0;
	case NFS_OP_READLINK:
		if (inode->type != NFS_TYPE_SYMLINK)
			return -EINVAL;
		memcpy(op->link, inode->text, strlen(inode->text) + 1);
		return 0;
	case NFS_OP_LINK:
		return do_link(f, inode, op);
	case NFS_OP_READ:
		return inode->type == NFS_TYPE_FILE ? do_read(f, inode, op) : -EINVAL;
	case NFS_OP_WRITE:
		return inode->type == NFS_TYPE_FILE ? do_write(f, inode, op) : -EINVAL;
	case NFS_OP_CLONE:
	case NFS_OP_COPY:
		return inode->type == NFS_TYPE_FILE ? do_copy(f, inode, op) : -EINVAL;
	case NFS_OP_COPY_STATUS:
		return do_copy_status(f, op);
	case NFS_OP_COPY_CANCEL:
		return do_copy_cancel(f, op);
	case NFS_OP_SEEK:
		return inode->type == NFS_TYPE_FILE ? do_seek(f, inode, op) : -EINVAL;
	case NFS_OP_XATTR_SUPPORT:
	case NFS_OP_GETXATTR:
	case NFS_OP_SETXATTR:
	case NFS_OP_LISTXATTRS:
		return do_xattr(f, inode, op);
	default:
		memcpy(op->verifier, f->verifier, sizeof(op->verifier));
		return 0;
	}
}

static int perform_in(struct fake_nfs *f, struct inode *dir, struct nfs_op *op)
{
	int r = op->type != NFS_OP_READDIR ? check_name(op->name) : 0;
	uint32_t needed = op->type == NFS_OP_READDIR  ? MAY_READ
			  : op->type == NFS_OP_LOOKUP ? MAY_SEARCH
						      : MAY_WRITE | MAY_SEARCH;

	if (r < 0)
		return r;
	if (!may(f, dir, op, needed))
		return -EACCES;
	switch (op->type) {
	case NFS_OP_LOOKUP:
		return do_lookup(f, dir, op);
	case NFS_OP_MKDIR:
	case NFS_OP_SYMLINK:
	case NFS_OP_CREATE:
	case NFS_OP_MKNOD:
		return do_make(f, dir, op);
	case NFS_OP_REMOVE:
	case NFS_OP_RMDIR:
		return do_remove(f, dir, op);
	case NFS_OP_RENAME:
		return do_rename(f, dir, op);
	case NFS_OP_READDIR:
		return do_readdir(f, dir, op);
	default:
		return -EINVAL;
	}
}

/* Of several files, up to the first that fails. */
static int do_getattrs(struct fake_nfs *f, struct nfs_op *op)
{
	assert(op->client->version == 4 && op->n_handles <= NFS_GETATTR_MAX);
	for (op->count = 0; op->count < op->n_handles; op->count++) {
		struct inode *inode = by_handle(f, op->handles[op->count]);
		struct nfs_handle unused;

		if (inode == NULL)
			return -ESTALE;
		describe(f, inode, &unused, &op->attrs[op->count]);
	}
	return 0;
}

static int perform(struct fake_nfs *f, struct nfs_op *op)
{
	const unsigned int of_objects =
		1U << NFS_OP_GETATTR | 1U << NFS_OP_SETATTR | 1U << NFS_OP_FSSTAT |
		1U << NFS_OP_READLINK | 1U << NFS_OP_LINK | 1U << NFS_OP_READ | 1U << NFS_OP_WRITE |
		1U << NFS_OP_COMMIT | 1U << NFS_OP_CLONE | 1U << NFS_OP_COPY | 1U << NFS_OP_SEEK |
		1U << NFS_OP_COPY_STATUS | 1U << NFS_OP_COPY_CANCEL | 1U << NFS_OP_XATTR_SUPPORT |
		1U << NFS_OP_GETXATTR | 1U << NFS_OP_SETXATTR | 1U << NFS_OP_LISTXATTRS;
	struct inode *inode;
	struct node *node;

	if (op->n_handles > 0)
		return do_getattrs(f, op);
	inode = by_handle(f, op->dir);
	if (inode == NULL)
		return -ESTALE;
	if (op->type == NFS_OP_READLINK && op->name != NULL) {
		node = child(f, inode, op->name);
		if (node == NULL)
			return -ENOENT;
		inode = node->inode;
	}
	if ((of_objects & 1U << op->type) != 0)
		return perform_on(f, inode, op);
	return inode->type == NFS_TYPE_DIRECTORY ? perform_in(f, inode, op) : -ENOTDIR;
}

/* -------- clients -------- */

static bool is_to_fail(struct fake_nfs *f, const struct nfs_op *op)
{
	struct fake_failure *x = &f->failure;

	if (x->types != 0 && (x->types & 1U << op->type) == 0)
		return false;
	f->operations++;
	if (x->nth == 0 || f->operations < x->nth)
		return false;
	if (f->operations > x->nth)
		return x->all;
	/* What fails a call for several files also fails the next one, for the first of them. */
	x->nth += op->n_handles > 0;
	return true;
}

static bool is_answered_late(const struct fake_nfs *f, enum nfs_op_type type)
{
	return f->habits.late &&
	       (1U << type & (1U << NFS_OP_REMOVE | 1U << NFS_OP_RMDIR | 1U << NFS_OP_LOOKUP)) != 0;
}

static int fake_start(struct nfs_client *c, struct nfs_op *op)
{
	struct fake_client *client = container_of(c, struct fake_client, client);
	struct fake_nfs *f = client->fake;
	struct queued *q;

	if (c->broken)
		return -ECONNABORTED;
	assert(client->n_queue < ARRAY_SIZE(client->queue));
	q = &client->queue[client->n_queue++];
	*q = (struct queued){ .op = op, .performed = is_answered_late(f, op->type) };
	if (q->performed) {
		pthread_mutex_lock(&f->lock);
		q->result = perform(f, op);
		pthread_mutex_unlock(&f->lock);
	}
	return 0;
}

static void finish(struct nfs_op *op, int error)
{
	op->error = error;
	op->finished = true;
	if (op->done != NULL)
		op->done(op);
}

/* The connection is gone: nothing that is in flight will be answered. */
static void break_client(struct fake_client *client, int error)
{
	client->client.broken = true;
	while (client->n_queue > 0)
		finish(client->queue[--client->n_queue].op, error);
}

/* What comes next: in the order in which it was started, but for what is answered late. */
static struct queued take(struct fake_client *client)
{
	struct queued q;
	size_t i = 0;

	while (i < client->n_queue && client->queue[i].performed)
		i++;
	if (i == client->n_queue)
		i = 0;
	q = client->queue[i];
	client->n_queue--;
	memmove(client->queue + i, client->queue + i + 1, (client->n_queue - i) * sizeof(q));
	return q;
}

static int run_one(struct fake_client *client)
{
	struct fake_nfs *f = client->fake;
	struct queued q = take(client);
	struct nfs_op *op = q.op;
	bool fails;
	int r = q.result;

	if (f->watch != NULL)
		f->watch(f, op, f->watch_data);
	if (client->is_cut) {
		finish(op, -ECONNABORTED);
		break_client(client, -ECONNABORTED);
		return 0;
	}
	pthread_mutex_lock(&f->lock);
	step_copies(f);
	fails = is_to_fail(f, op);
	if (!q.performed && (!fails || f->failure.after))
		r = perform(f, op);
	if (fails)
		r = f->failure.error;
	pthread_mutex_unlock(&f->lock);
	finish(op, r);
	if (fails && (r == -ECONNABORTED || r == -ETIMEDOUT))
		break_client(client, r);
	return 0;
}

static int fake_run(struct nfs_client *c, uint64_t deadline_ns)
{
	struct fake_client *client = container_of(c, struct fake_client, client);

	(void)deadline_ns;
	if (client->n_queue > 0)
		return run_one(client);
	if (client->peer != NULL && client->peer->n_queue > 0)
		return run_one(client->peer);
	return c->broken ? -ECONNABORTED : -ETIMEDOUT;
}

static void fake_free(struct nfs_client *c)
{
	struct fake_client *client = container_of(c, struct fake_client, client), **link, *other;
	struct fake_nfs *f = client->fake;

	if (f != NULL) {
		pthread_mutex_lock(&f->lock);
		for (link = &f->clients; *link != client; link = &(*link)->next)
			;
		*link = client->next;
		for (other = f->clients; other != NULL; other = other->next)
			if (other->peer == client)
				other->peer = NULL;
		pthread_mutex_unlock(&f->lock);
	}
	nfs_export_done(&c->export);
	free(client);
}

static const struct nfs_client_ops fake_ops = { fake_start, fake_run, fake_free };

static struct nfs_client *connect_to(struct fake_nfs *f, const struct nfs_export *e)
{
	struct fake_client *client = must(calloc(1, sizeof(*client)));
	struct nfs_attr unused;
	int r;

	client->fake = f;
	client->client.ops = &fake_ops;
	client->client.version = 3;
	if (e->version != 3) {
		client->client.version = fake_nfs_whole_max > 0 ? 4 : 3;
		client->client.offload = f->habits.offload;
		client->client.whole_max = fake_nfs_whole_max;
		client->client.lists_max = fake_nfs_lists_max;
	}
	r = nfs_export_copy(&client->client.export, e);
	assert(r == 0);
	pthread_mutex_lock(&f->lock);
	describe(f, f->root, &client->client.root, &unused);
	client->next = f->clients;
	f->clients = client;
	pthread_mutex_unlock(&f->lock);
	return &client->client;
}

struct nfs_client *fake_nfs_connect(struct fake_nfs *f)
{
	char server[] = "fake", share[] = "/share";
	const struct nfs_export e = { .server = server, .share = share };

	return connect_to(f, &e);
}

void fake_nfs_cut(struct nfs_client *c)
{
	container_of(c, struct fake_client, client)->is_cut = true;
}

void fake_nfs_pair(struct nfs_client *a, struct nfs_client *b)
{
	container_of(a, struct fake_client, client)->peer =
		container_of(b, struct fake_client, client);
}

void fake_nfs_pair_newest(struct nfs_client *c, const char *share)
{
	struct fake_client *client = container_of(c, struct fake_client, client), *other;
	struct fake_nfs *f = client->fake;

	pthread_mutex_lock(&f->lock);
	for (other = f->clients; other != NULL; other = other->next)
		if (strcmp(other->client.export.share, share) == 0)
			break;
	client->peer = other;
	if (other != NULL)
		other->peer = client;
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_serve(struct fake_nfs *f)
{
	served = f;
}

int fake_nfs_connect_fn(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	if (served == NULL)
		return error_set(err, ERROR_UNAVAILABLE, "server '%s' does not answer", e->server);
	*ret = connect_to(served, e);
	return 0;
}

struct fake_nfs *fake_nfs_new(void)
{
	struct fake_nfs *f = must(calloc(1, sizeof(*f)));

	pthread_mutex_init(&f->lock, NULL);
	grow_names(f);
	f->root = inode_new(f, NFS_TYPE_DIRECTORY, 0755);
	f->verifier[0] = 1;
	return f;
}

void fake_nfs_free(struct fake_nfs *f)
{
	struct fake_client *client;

	if (served == f)
		served = NULL;
	for (client = f->clients; client != NULL; client = client->next)
		client->fake = NULL;
	inode_free(f, f->root);
	pthread_mutex_destroy(&f->lock);
	free(f->names);
	free(f->near);
	free(f->inodes);
	free(f);
}

void fake_nfs_fail(struct fake_nfs *f, const struct fake_failure *failure)
{
	pthread_mutex_lock(&f->lock);
	f->failure = failure != NULL ? *failure : (struct fake_failure){ .nth = 0 };
	f->operations = 0;
	pthread_mutex_unlock(&f->lock);
}

unsigned int fake_nfs_operations(struct fake_nfs *f)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->operations;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void fake_nfs_umask(struct fake_nfs *f, uint32_t mask)
{
	f->mask = mask;
}

void fake_nfs_squash(struct fake_nfs *f)
{
	f->squash = true;
}

void fake_nfs_habits(struct fake_nfs *f, const struct fake_habits *habits)
{
	assert(habits->page <= DIRECTORY_PAGE_MAX);
	f->habits = *habits;
}

void fake_nfs_restart(struct fake_nfs *f)
{
	f->verifier[0]++;
	memset(f->copies, 0, sizeof(f->copies));
}

unsigned int fake_nfs_copies(struct fake_nfs *f)
{
	unsigned int n = 0;
	size_t i;

	pthread_mutex_lock(&f->lock);
	for (i = 0; i < COPIES_MAX; i++)
		n += f->copies[i].id != 0;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void fake_nfs_watch(struct fake_nfs *f, fake_nfs_watch_fn watch, void *data)
{
	f->watch = watch;
	f->watch_data = data;
}

/* -------- what tests do to the share, and see of it -------- */

static struct inode *step(struct fake_nfs *f, struct inode *dir, const char *name, bool make,
			  struct node **ret_node)
{
	struct node *node = child(f, dir, name);

	if (node == NULL && make)
		node = node_new(f, dir, name, inode_new(f, NFS_TYPE_DIRECTORY, 0755));
	*ret_node = node;
	return node != NULL ? node->inode : NULL;
}

/* What is at path, or NULL; with make, directories are made on the way, and the last one too. */
static struct inode *resolve(struct fake_nfs *f, const char *path, bool make,
			     struct node **ret_node)
{
	const size_t len = f->near_dir != NULL ? strlen(f->near) : 0;
	const bool is_near = len > 0 && strncmp(path, f->near, len) == 0 && path[len] == '/';
	struct inode *inode = is_near ? f->near_dir : f->root, *dir = inode;
	struct node *node = NULL;
	struct strv parts;
	const char *slash;
	size_t i;
	int r;

	r = strv_split(&parts, is_near ? path + len + 1 : path, '/');
	assert(r == 0);
	for (i = 0; path[0] != '\0' && i < parts.n && inode != NULL; i++) {
		dir = inode;
		inode = step(f, inode, parts.items[i], make, &node);
	}
	slash = strrchr(path, '/');
	if (inode != NULL && slash != NULL && dir != f->near_dir) {
		free(f->near);
		f->near = must(strndup(path, (size_t)(slash - path)));
		f->near_dir = dir;
	}
	strv_done(&parts);
	if (ret_node != NULL)
		*ret_node = node;
	return inode;
}

void fake_nfs_put(struct fake_nfs *f, const char *path, enum nfs_type type, const char *text)
{
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, true, NULL);
	inode->type = type;
	if (text != NULL) {
		free(inode->text);
		inode->text = must(strdup(text));
		inode->mode = 0777;
	}
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_write(struct fake_nfs *f, const char *path, uint64_t offset, const char *data,
		    size_t len)
{
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, true, NULL);
	inode->type = NFS_TYPE_FILE;
	write_to(inode, offset, data, len);
	inode->ctime = now(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_set_xattr(struct fake_nfs *f, const char *path, const char *name, const char *value,
			size_t len)
{
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, false, NULL);
	if (value != NULL)
		put_xattr(inode, name, value, len);
	else
		remove_xattr(inode, name);
	inode->ctime = now(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_truncate(struct fake_nfs *f, const char *path, uint64_t size)
{
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, false, NULL);
	truncate_to(inode, size);
	inode->ctime = now(f);
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_lag(struct fake_nfs *f, const char *path)
{
	struct nfs_handle unused;
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = path != NULL ? resolve(f, path, false, NULL) : NULL;
	f->lagging = inode != NULL ? inode->id : 0;
	if (inode != NULL)
		describe(f, inode, &unused, &f->lag);
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_link(struct fake_nfs *f, const char *path, const char *as)
{
	struct inode *inode;
	struct node *node;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, false, NULL);
	(void)resolve(f, as, true, &node);
	inode_free(f, node->inode);
	node->inode = inode;
	inode->links++;
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_set(struct fake_nfs *f, const char *path, const struct nfs_attr *attr)
{
	struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, false, NULL);
	inode->mode = attr->mode;
	inode->uid = attr->uid;
	inode->gid = attr->gid;
	if (inode->type == NFS_TYPE_BLOCK || inode->type == NFS_TYPE_CHARACTER)
		inode->device = attr->device;
	inode->atime = attr->atime;
	inode->mtime = attr->mtime;
	if (attr->fsid != 0)
		inode->fsid = attr->fsid;
	if (attr->fsid_minor != 0)
		inode->fsid_minor = attr->fsid_minor;
	inode->is_mount = attr->is_mount;
	inode->ctime = now(f);
	pthread_mutex_unlock(&f->lock);
}

bool fake_nfs_get(struct fake_nfs *f, const char *path, struct nfs_handle *ret_handle,
		  struct nfs_attr *ret_attr)
{
	const struct inode *inode;

	pthread_mutex_lock(&f->lock);
	inode = resolve(f, path, false, NULL);
	if (inode != NULL)
		describe(f, inode, ret_handle, ret_attr);
	pthread_mutex_unlock(&f->lock);
	return inode != NULL;
}

void fake_nfs_read(struct fake_nfs *f, const char *path, uint64_t offset, char *data, size_t len)
{
	pthread_mutex_lock(&f->lock);
	read_from(resolve(f, path, false, NULL), offset, data, len);
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_remove(struct fake_nfs *f, const char *path)
{
	struct node *node;

	pthread_mutex_lock(&f->lock);
	if (resolve(f, path, false, &node) != NULL)
		node_free(f, node);
	pthread_mutex_unlock(&f->lock);
}

static struct nfs_attr attr_of(struct fake_nfs *f, const char *path)
{
	struct nfs_attr attr = { .type = NFS_TYPE_UNKNOWN, .uid = UINT32_MAX };
	struct nfs_handle unused;

	(void)fake_nfs_get(f, path, &unused, &attr); /* else that is the answer */
	return attr;
}

enum nfs_type fake_nfs_type(struct fake_nfs *f, const char *path)
{
	return attr_of(f, path).type;
}

uint32_t fake_nfs_mode(struct fake_nfs *f, const char *path)
{
	return attr_of(f, path).mode;
}

uint32_t fake_nfs_owner(struct fake_nfs *f, const char *path)
{
	return attr_of(f, path).uid;
}

/* Append the paths below dir, whose own path and "/" are in path. */
static void list_below(const struct inode *dir, struct buf *path, const char *skip, struct buf *b)
{
	const size_t len = path->len;
	struct list *pos;

	list_for_each(pos, &dir->children) {
		const struct node *node = container_of(pos, struct node, link);
		int r = buf_puts(path, node->name);

		assert(r == 0);
		if (skip == NULL || strcmp(path->data, skip) != 0) {
			if (node->inode->type == NFS_TYPE_DIRECTORY)
				r = buf_puts(path, "/");
			r |= buf_append(b, path->data, path->len) | buf_puts(b, "\n");
			assert(r == 0);
			list_below(node->inode, path, skip, b);
		}
		path->len = len;
	}
}

char *fake_nfs_list(struct fake_nfs *f, const char *skip)
{
	cleanup_buf struct buf path = { 0 };
	struct buf b = { 0 };

	pthread_mutex_lock(&f->lock);
	list_below(f->root, &path, skip, &b);
	pthread_mutex_unlock(&f->lock);
	return must(buf_steal(&b));
}

static void dump_xattrs(const struct inode *inode, struct buf *b)
{
	const struct xattr *xattr;

	for (xattr = inode->xattrs; xattr != NULL; xattr = xattr->next) {
		int r = buf_printf(b, " %s=%zu,%llx", xattr->name, xattr->len,
				   (unsigned long long)str_hash(xattr->value, xattr->len));

		assert(r == 0);
	}
}

/* 0 for a block of zeros. The four sums do not wait for each other: gigabytes go through here. */
static uint64_t block_hash(const char *block)
{
	uint64_t words[4], sums[4] = { 1, 2, 3, 4 }, any = 0;

	for (size_t at = 0; at < BLOCK; at += sizeof(words)) {
		memcpy(words, block + at, sizeof(words));
		for (size_t i = 0; i < 4; i++) {
			any |= words[i];
			sums[i] = (sums[i] ^ words[i]) * 1099511628211;
		}
	}
	return any == 0 ? 0 : str_hash(sums, sizeof(sums));
}

/* Of the data alone: a hole is zeros. */
static uint64_t hash_of(struct inode *inode)
{
	uint64_t hash = 1, of_block, i;

	for (i = 0; i < inode->size && i / BLOCK < inode->n_blocks; i += BLOCK) {
		const char *block = block_at(inode, i);

		of_block = block != NULL ? block_hash(block) : 0;
		if (of_block != 0)
			hash = (hash ^ of_block) * 1099511628211 + i;
	}
	return hash;
}

static void dump_inode(struct inode *inode, const char *name, size_t depth, size_t *line,
		       struct buf *b)
{
	struct list *pos;
	int r;

	if (inode->line == 0)
		inode->line = *line;
	r = buf_printf(b, "%zu %s: %d %o %u:%u %lld.%u %lld.%u %u,%u '%s' is %zu", depth, name,
		       (int)inode->type, inode->mode, inode->uid, inode->gid,
		       (long long)inode->mtime.sec, inode->mtime.nsec, (long long)inode->atime.sec,
		       inode->atime.nsec, inode->device.major, inode->device.minor,
		       inode->text != NULL ? inode->text : "", *line - inode->line);
	assert(r == 0);
	if (inode->type == NFS_TYPE_FILE) {
		r = buf_printf(b, " %llu %llu %llx", (unsigned long long)inode->size,
			       (unsigned long long)inode->used, (unsigned long long)hash_of(inode));
		assert(r == 0);
	}
	dump_xattrs(inode, b);
	r = buf_puts(b, "\n");
	assert(r == 0);
	++*line;
	list_for_each(pos, &inode->children) {
		const struct node *node = container_of(pos, struct node, link);

		dump_inode(node->inode, node->name, depth + 1, line, b);
	}
}

char *fake_nfs_dump(struct fake_nfs *f, const char *path)
{
	struct buf b = { 0 };
	struct inode *inode;
	size_t line = 1;
	uint64_t i;

	pthread_mutex_lock(&f->lock);
	for (i = 1; i <= f->last_id; i++)
		if (f->inodes[i] != NULL)
			f->inodes[i]->line = 0;
	inode = resolve(f, path, false, NULL);
	if (inode != NULL)
		dump_inode(inode, "", 0, &line, &b);
	pthread_mutex_unlock(&f->lock);
	return must(inode != NULL ? buf_steal(&b) : strdup(""));
}
