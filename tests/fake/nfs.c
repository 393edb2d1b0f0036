/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fake/nfs.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/str.h"

#define DIRECTORY_PAGE 3 /* entries of a READDIR reply: small, so that there are several */

struct node {
	struct list link; /* in the directory above, sorted by name */
	struct node *parent;
	struct list children;
	uint64_t id; /* what a handle of it holds */
	enum nfs_type type;
	uint32_t mode, uid, gid;
	char *text;
	char *name;
};

struct fake_nfs {
	pthread_mutex_t lock; /* guards everything */
	struct node *root;
	uint64_t last_id;
	struct fake_failure failure;
	unsigned int operations;
	uint32_t mask;
	bool squash;
};

struct fake_client {
	struct nfs_client client;
	struct fake_nfs *fake;
	struct nfs_op *queue[NFS_WINDOW * 2];
	size_t n_queue;
};

static struct fake_nfs *served;

static void *must(void *p)
{
	assert(p != NULL);
	return p;
}

static struct node *node_new(struct fake_nfs *f, const char *name, enum nfs_type type, uint32_t mode)
{
	struct node *node = must(calloc(1, sizeof(*node)));

	list_init(&node->link);
	list_init(&node->children);
	node->id = ++f->last_id;
	node->type = type;
	node->mode = mode;
	node->name = must(strdup(name));
	return node;
}

static void node_free(struct node *node)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &node->children)
		node_free(container_of(pos, struct node, link));
	list_remove(&node->link);
	free(node->text);
	free(node->name);
	free(node);
}

/* Sorted, so that cookies and listings do not depend on history. */
static void attach(struct node *dir, struct node *node)
{
	struct list *pos;

	list_for_each(pos, &dir->children)
		if (strcmp(container_of(pos, struct node, link)->name, node->name) > 0)
			break;
	list_add_tail(pos, &node->link);
	node->parent = dir;
}

static struct node *child(const struct node *dir, const char *name)
{
	struct list *pos;

	list_for_each(pos, &dir->children) {
		struct node *node = container_of(pos, struct node, link);

		if (strcmp(node->name, name) == 0)
			return node;
	}
	return NULL;
}

static struct node *find_id(struct node *node, uint64_t id)
{
	struct list *pos;

	if (node->id == id)
		return node;
	list_for_each(pos, &node->children) {
		struct node *found = find_id(container_of(pos, struct node, link), id);

		if (found != NULL)
			return found;
	}
	return NULL;
}

static struct node *by_handle(struct fake_nfs *f, const struct nfs_handle *handle)
{
	uint64_t id;

	assert(handle->len == sizeof(id));
	memcpy(&id, handle->data, sizeof(id));
	return find_id(f->root, id);
}

static void describe(const struct node *node, struct nfs_handle *handle, struct nfs_attr *attr)
{
	memset(handle, 0, sizeof(*handle));
	handle->len = sizeof(node->id);
	memcpy(handle->data, &node->id, sizeof(node->id));
	*attr = (struct nfs_attr){
		.type = node->type,
		.has_mode = true,
		.mode = node->mode,
		.has_owner = true,
		.uid = node->uid,
		.gid = node->gid,
	};
}

static int check_name(const char *name)
{
	assert(name[0] != '\0' && strchr(name, '/') == NULL);
	assert(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	return strlen(name) > NFS_NAME_MAX ? -ENAMETOOLONG : 0;
}

static int do_lookup(struct node *dir, struct nfs_op *op)
{
	struct node *node = child(dir, op->name);

	if (node == NULL)
		return -ENOENT;
	describe(node, &op->handle, &op->attr);
	return 0;
}

static int do_make(struct fake_nfs *f, struct node *dir, struct nfs_op *op)
{
	bool link = op->type == NFS_OP_SYMLINK;
	struct node *node;

	if (child(dir, op->name) != NULL)
		return -EEXIST;
	if (link && strlen(op->text) > NFS_LINK_MAX)
		return -ENAMETOOLONG;
	node = node_new(f, op->name, link ? NFS_TYPE_SYMLINK : NFS_TYPE_DIRECTORY,
			link ? 0777 : op->mode & ~f->mask);
	node->uid =
		f->squash && op->client->export.uid == 0 ? FAKE_NFS_NOBODY : op->client->export.uid;
	node->gid = op->client->export.gid;
	if (link)
		node->text = must(strdup(op->text));
	attach(dir, node);
	describe(node, &op->handle, &op->attr);
	return 0;
}

static int do_remove(struct node *dir, struct nfs_op *op)
{
	struct node *node = child(dir, op->name);
	bool rmdir = op->type == NFS_OP_RMDIR;

	if (node == NULL)
		return -ENOENT;
	if (rmdir && node->type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (!rmdir && node->type == NFS_TYPE_DIRECTORY)
		return -EISDIR;
	if (!list_is_empty(&node->children))
		return -ENOTEMPTY;
	node_free(node);
	return 0;
}

static int do_rename(struct fake_nfs *f, struct node *dir, struct nfs_op *op)
{
	struct node *node = child(dir, op->name), *to = by_handle(f, op->to_dir), *there, *p;
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
		if (p == node)
			return -EINVAL;
	there = child(to, op->to_name);
	if (there == node)
		return 0;
	if (there != NULL) {
		if (!list_is_empty(&there->children))
			return -ENOTEMPTY;
		if ((there->type == NFS_TYPE_DIRECTORY) != (node->type == NFS_TYPE_DIRECTORY))
			return -EEXIST;
		node_free(there);
	}
	list_remove(&node->link);
	free(node->name);
	node->name = must(strdup(op->to_name));
	attach(to, node);
	return 0;
}

/* Cookies are ids: an entry that goes meanwhile ends no walk. Every second entry has no attributes. */
static int do_readdir(struct node *dir, struct nfs_op *op)
{
	struct nfs_entry entries[DIRECTORY_PAGE];
	struct list *pos;
	size_t n = 0, i;

	op->eof = true;
	list_for_each(pos, &dir->children) {
		struct node *node = container_of(pos, struct node, link);
		size_t k;

		if (node->id <= op->cookie)
			continue;
		/* The smallest ids above the cookie. */
		for (k = n; k > 0 && entries[k - 1].cookie > node->id; k--)
			if (k < DIRECTORY_PAGE)
				entries[k] = entries[k - 1];
		op->eof = op->eof && n < DIRECTORY_PAGE;
		if (k == DIRECTORY_PAGE)
			continue;
		entries[k] = (struct nfs_entry){ .name = node->name, .cookie = node->id };
		if (node->id % 2 == 0)
			describe(node, &entries[k].handle, &entries[k].attr);
		if (n < DIRECTORY_PAGE)
			n++;
	}
	for (i = 0; i < n; i++) {
		op->cookie = entries[i].cookie;
		op->entry(op, &entries[i]);
	}
	return 0;
}

/* As chmod(2) and chown(2): only root gives away, the owner sets the mode. */
static int do_setattr(const struct fake_nfs *f, struct node *node, const struct nfs_op *op)
{
	uint32_t uid = op->client->export.uid;
	bool root = uid == 0 && !f->squash;

	if (!root && (uid != node->uid || (op->change.has_uid && op->change.uid != uid)))
		return -EPERM;
	if (op->change.has_mode)
		node->mode = op->change.mode;
	if (op->change.has_uid)
		node->uid = op->change.uid;
	if (op->change.has_gid)
		node->gid = op->change.gid;
	return 0;
}

static int perform_in(struct fake_nfs *f, struct node *node, struct nfs_op *op)
{
	switch (op->type) {
	case NFS_OP_LOOKUP:
		return do_lookup(node, op);
	case NFS_OP_MKDIR:
	case NFS_OP_SYMLINK:
		return do_make(f, node, op);
	case NFS_OP_REMOVE:
	case NFS_OP_RMDIR:
		return do_remove(node, op);
	case NFS_OP_RENAME:
		return do_rename(f, node, op);
	case NFS_OP_READDIR:
		return do_readdir(node, op);
	case NFS_OP_GETATTR:
	case NFS_OP_SETATTR:
	case NFS_OP_READLINK:
	case NFS_OP_FSSTAT:
	case NFS_OP_CREATE:
	case NFS_OP_MKNOD:
	case NFS_OP_LINK:
	case NFS_OP_READ:
	case NFS_OP_WRITE:
	case NFS_OP_COMMIT:
	case NFS_OPS:
		break;
	}
	return -EINVAL;
}

static int perform(struct fake_nfs *f, struct nfs_op *op)
{
	struct node *node = by_handle(f, op->dir);
	struct nfs_handle unused;
	int r;

	if (node == NULL)
		return -ESTALE;
	if (op->type == NFS_OP_GETATTR) {
		describe(node, &unused, &op->attr);
		return 0;
	}
	if (op->type == NFS_OP_SETATTR)
		return do_setattr(f, node, op);
	if (op->type == NFS_OP_FSSTAT) {
		op->space = (struct nfs_space){ .total = 1 << 30, .available = 1 << 29 };
		return 0;
	}
	if (op->type == NFS_OP_READLINK) {
		if (node->type != NFS_TYPE_SYMLINK)
			return -EINVAL;
		memcpy(op->link, node->text, strlen(node->text) + 1);
		return 0;
	}
	if (node->type != NFS_TYPE_DIRECTORY)
		return -ENOTDIR;
	if (op->type != NFS_OP_READDIR) {
		r = check_name(op->name);
		if (r < 0)
			return r;
	}
	return perform_in(f, node, op);
}

static bool is_to_fail(struct fake_nfs *f, enum nfs_op_type type)
{
	const struct fake_failure *x = &f->failure;

	if (x->types != 0 && (x->types & 1U << type) == 0)
		return false;
	f->operations++;
	return x->nth != 0 && (f->operations == x->nth || (x->all && f->operations > x->nth));
}

static int fake_start(struct nfs_client *c, struct nfs_op *op)
{
	struct fake_client *client = container_of(c, struct fake_client, client);

	if (c->broken)
		return -ECONNABORTED;
	assert(client->n_queue < ARRAY_SIZE(client->queue));
	client->queue[client->n_queue++] = op;
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
		finish(client->queue[--client->n_queue], error);
}

static int fake_run(struct nfs_client *c, uint64_t deadline_ns)
{
	struct fake_client *client = container_of(c, struct fake_client, client);
	struct fake_nfs *f = client->fake;
	struct nfs_op *op;
	bool fails;
	int r = 0;

	(void)deadline_ns;
	if (client->n_queue == 0)
		return c->broken ? -ECONNABORTED : -ETIMEDOUT;
	op = client->queue[0];
	client->n_queue--;
	memmove(client->queue, client->queue + 1, client->n_queue * sizeof(client->queue[0]));
	pthread_mutex_lock(&f->lock);
	fails = is_to_fail(f, op->type);
	if (!fails || f->failure.after)
		r = perform(f, op);
	if (fails)
		r = f->failure.error;
	pthread_mutex_unlock(&f->lock);
	finish(op, r);
	if (fails && (r == -ECONNABORTED || r == -ETIMEDOUT))
		break_client(client, r);
	return 0;
}

static void fake_free(struct nfs_client *c)
{
	struct fake_client *client = container_of(c, struct fake_client, client);

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
	r = nfs_export_copy(&client->client.export, e);
	assert(r == 0);
	pthread_mutex_lock(&f->lock);
	describe(f->root, &client->client.root, &unused);
	pthread_mutex_unlock(&f->lock);
	return &client->client;
}

struct nfs_client *fake_nfs_connect(struct fake_nfs *f)
{
	char server[] = "fake", share[] = "/share";
	const struct nfs_export e = { .server = server, .share = share };

	return connect_to(f, &e);
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
	f->root = node_new(f, "", NFS_TYPE_DIRECTORY, 0755);
	return f;
}

void fake_nfs_free(struct fake_nfs *f)
{
	if (served == f)
		served = NULL;
	node_free(f->root);
	pthread_mutex_destroy(&f->lock);
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

/* The node at path, or NULL; with make, directories are made on the way, and the last one too. */
static struct node *resolve(struct fake_nfs *f, const char *path, bool make)
{
	struct node *node = f->root;
	struct strv parts;
	size_t i;
	int r;

	r = strv_split(&parts, path, '/');
	assert(r == 0);
	for (i = 0; i < parts.n && node != NULL; i++) {
		struct node *dir = node;

		node = child(dir, parts.items[i]);
		if (node == NULL && make) {
			node = node_new(f, parts.items[i], NFS_TYPE_DIRECTORY, 0755);
			attach(dir, node);
		}
	}
	strv_done(&parts);
	return node;
}

void fake_nfs_put(struct fake_nfs *f, const char *path, enum nfs_type type, const char *text)
{
	struct node *node;

	pthread_mutex_lock(&f->lock);
	node = resolve(f, path, true);
	node->type = type;
	if (text != NULL)
		node->text = must(strdup(text));
	pthread_mutex_unlock(&f->lock);
}

void fake_nfs_remove(struct fake_nfs *f, const char *path)
{
	struct node *node;

	pthread_mutex_lock(&f->lock);
	node = resolve(f, path, false);
	if (node != NULL)
		node_free(node);
	pthread_mutex_unlock(&f->lock);
}

enum nfs_type fake_nfs_type(struct fake_nfs *f, const char *path)
{
	const struct node *node;
	enum nfs_type type;

	pthread_mutex_lock(&f->lock);
	node = resolve(f, path, false);
	type = node != NULL ? node->type : NFS_TYPE_UNKNOWN;
	pthread_mutex_unlock(&f->lock);
	return type;
}

uint32_t fake_nfs_mode(struct fake_nfs *f, const char *path)
{
	const struct node *node;
	uint32_t mode;

	pthread_mutex_lock(&f->lock);
	node = resolve(f, path, false);
	mode = node != NULL ? node->mode : 0;
	pthread_mutex_unlock(&f->lock);
	return mode;
}

uint32_t fake_nfs_owner(struct fake_nfs *f, const char *path)
{
	const struct node *node;
	uint32_t uid;

	pthread_mutex_lock(&f->lock);
	node = resolve(f, path, false);
	uid = node != NULL ? node->uid : UINT32_MAX;
	pthread_mutex_unlock(&f->lock);
	return uid;
}

static void list_node(const struct node *dir, const char *prefix, const char *skip, struct buf *b)
{
	struct list *pos;
	int r;

	list_for_each(pos, &dir->children) {
		const struct node *node = container_of(pos, struct node, link);
		bool directory = node->type == NFS_TYPE_DIRECTORY;
		cleanup_buf struct buf path = { 0 };

		r = buf_printf(&path, "%s%s", prefix, node->name);
		assert(r == 0);
		if (skip != NULL && strcmp(path.data, skip) == 0)
			continue;
		r = buf_printf(b, "%s%s\n", path.data, directory ? "/" : "");
		assert(r == 0);
		r = buf_puts(&path, "/");
		assert(r == 0);
		list_node(node, path.data, skip, b);
	}
}

char *fake_nfs_list(struct fake_nfs *f, const char *skip)
{
	struct buf b = { 0 };

	pthread_mutex_lock(&f->lock);
	list_node(f->root, "", skip, &b);
	pthread_mutex_unlock(&f->lock);
	return must(buf_steal(&b));
}
