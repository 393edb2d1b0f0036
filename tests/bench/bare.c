/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The baseline for the driver's work on a share: the same NFS operations, in the same order, with a
 * number of volumes, files or pieces in flight on one connection. It has no gRPC, no checks and no
 * threads, so it measures what the server and the wire allow.
 *
 *   bare [-l] HOST SHARE OPTIONS create|delete|unlink|copy|transfer COUNT WINDOW
 *
 * The driver's own NFS client moves the calls; with -l, libnfs's RPC engine does (see libnfs.h), as
 * in a program that copies with libnfs and nothing else.
 *
 * OPTIONS are mount options, including the version. Only version 4 has the driver's own deletion,
 * and -l has only version 3.
 *   create, delete  make and delete volumes
 *   unlink          removes the files bare-0, bare-1, ... of the share; a window of 1 is a program
 *                   that does not pipeline
 *   copy            copies bare-from into those files, with the calls that a small file needs
 *   transfer        copies COUNT MiB of bare-from into bare-to
 * Output: the operation, and volumes, files or MB per second. Exit status 1 if an operation failed.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "libnfs.h"
#include "nfs/calls.h"
#include "store/layout.h"
#include "transfer.h"

#define WINDOW_MAX TRANSFER_WINDOW_MAX
#define RECORD_BYTES 300 /* of a volume without subDir */
#define FILE_BYTES 4096 /* of a file that is copied */

struct bare;
struct work;

struct volume {
	struct bare *bare;
	struct nfs_op op;
	char name[32];
	char link[NFS_LINK_MAX + 1];
	char data[FILE_BYTES];
	struct nfs_handle made;
	size_t step; /* the one in flight */
	bool busy;
};

struct bare {
	struct nfs_client *client;
	const struct nfs_handle *top, *records;
	struct nfs_handle from; /* of copy */
	const struct work *work;
	char record[RECORD_BYTES + 1];
	struct volume volumes[WINDOW_MAX];
	unsigned int started, finished, count;
	int error;
};

static void replied(struct nfs_op *op);

static void make_record(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_SYMLINK;
	op->dir = v->bare->records;
	op->text = v->bare->record;
}

static void make_directory(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_MKDIR;
	op->dir = &v->bare->client->root;
	op->mode = 0755;
}

static void read_record(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_READLINK;
	op->dir = v->bare->records;
	op->link = v->link;
}

/* Whether volumes share directories here. */
static void look_for_users(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_LOOKUP;
	op->dir = v->bare->top;
	op->name = "users";
}

static void remove_directory(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_RMDIR;
	op->dir = &v->bare->client->root;
}

static void remove_record(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_REMOVE;
	op->dir = v->bare->records;
}

static void unlink_file(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_REMOVE;
	op->dir = &v->bare->client->root;
}

static void read_data(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_READ;
	op->dir = &v->bare->from;
	op->count = sizeof(v->data);
	op->buffer = v->data;
}

static void make_file(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_CREATE;
	op->dir = &v->bare->client->root;
	op->change = (struct nfs_change){ .has_mode = true, .mode = 0644 };
}

static void write_data(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_WRITE;
	op->dir = &v->made;
	op->count = sizeof(v->data);
	op->buffer = v->data;
	op->stable = true;
}

static void set_times(struct volume *v, struct nfs_op *op)
{
	op->type = NFS_OP_SETATTR;
	op->dir = &v->made;
	op->change.has_times = true;
}

typedef void (*step_fn)(struct volume *v, struct nfs_op *op);

static const step_fn creation[] = { make_record, make_directory, NULL };
static const step_fn deletion[] = { read_record, look_for_users, remove_directory, remove_record,
				    NULL };

static const step_fn unlinking[] = { unlink_file, NULL };

static const step_fn copying[] = { read_data, make_file, write_data, set_times, NULL };

static const struct work {
	const char *name;
	const step_fn *steps;
} works[] = {
	{ "create", creation }, { "delete", deletion }, { "unlink", unlinking },
	{ "copy", copying },    { "transfer", NULL }, /* in transfer.c */
};

static int start_step(struct volume *v)
{
	v->op = (struct nfs_op){ .name = v->name, .done = replied, .data = v };
	v->bare->work->steps[v->step](v, &v->op);
	return nfs_client_start(v->bare->client, &v->op);
}

static void replied(struct nfs_op *op)
{
	struct volume *v = op->data;
	struct bare *b = v->bare;
	int r = op->error;

	if (op->type == NFS_OP_LOOKUP && r == -ENOENT)
		r = 0; /* they do not */
	if (op->type == NFS_OP_CREATE)
		v->made = op->handle;
	v->step++;
	if (r == 0 && b->work->steps[v->step] != NULL)
		r = start_step(v);
	else
		v->busy = false;
	if (r < 0) {
		v->busy = false;
		b->error = r;
	}
	if (!v->busy)
		b->finished++;
}

static int fill_window(struct bare *b, unsigned int window)
{
	unsigned int i;
	int r;

	for (i = 0; i < window && b->started < b->count; i++) {
		struct volume *v = &b->volumes[i];

		if (v->busy)
			continue;
		v->bare = b;
		v->step = 0;
		v->busy = true;
		(void)snprintf(v->name, sizeof(v->name), "bare-%u", b->started++);
		r = start_step(v);
		if (r < 0)
			return r;
	}
	return 0;
}

static int run(struct bare *b, unsigned int window)
{
	int r = 0;

	while (r == 0 && b->error == 0 && b->finished < b->count) {
		r = fill_window(b, window);
		if (r == 0)
			r = nfs_client_run(b->client);
	}
	return r < 0 ? r : b->error;
}

static int prepare(struct bare *b, struct error *err)
{
	struct nfs_attr attr;
	int r;

	if (b->work->steps == copying) {
		r = nfs_lookup(b->client, &b->client->root, "bare-from", &b->from, &attr);
		return r < 0 ? nfs_error_set(err, b->client, r, "lookup 'bare-from'") : 0;
	}
	r = store_folder(b->client, STORE_VOLUMES, true, &b->records, err);
	if (r == 0)
		r = store_folder(b->client, STORE_TOP, true, &b->top, err);
	memset(b->record, 'x', RECORD_BYTES);
	return r;
}

static int measure(struct bare *b, unsigned int window, struct error *err)
{
	const bool is_transfer = b->work->steps == NULL;
	double seconds;
	uint64_t start;
	int r = 0;

	if (!is_transfer)
		r = prepare(b, err);
	if (r < 0)
		return r;
	start = clock_now_ns();
	r = is_transfer ? transfer_file(b->client, "bare-from", "bare-to", (uint64_t)b->count << 20,
					window)
			: run(b, window);
	if (r < 0)
		return nfs_error_set(err, b->client, r, "%s", b->work->name);
	seconds = (double)(clock_now_ns() - start) / CLOCK_NS_PER_S;
	printf("%s %.1f\n", b->work->name,
	       (is_transfer ? b->count * 1.048576 : b->count) / seconds);
	return 0;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: bare [-l] HOST SHARE OPTIONS create|delete|unlink|copy|transfer COUNT "
		"WINDOW\n");
	return 2;
}

static int connect_to(struct nfs_client **ret, char **argv, bool by_libnfs, struct error *err)
{
	cleanup_nfs_export struct nfs_export e = { .server = NULL };
	int r;

	r = nfs_export_init(&e, argv[0], argv[1], err);
	if (r == 0)
		r = nfs_export_apply_options(&e, argv[2], err);
	if (r < 0)
		return r;
	return by_libnfs ? libnfs_client_connect(ret, &e, err) : nfs_client_connect(ret, &e, err);
}

static const struct work *work_of(const char *name)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(works); i++)
		if (strcmp(name, works[i].name) == 0)
			return &works[i];
	return NULL;
}

int main(int argc, char **argv)
{
	cleanup_nfs_client struct nfs_client *client = NULL;
	struct error err = { .code = ERROR_OK };
	bool by_libnfs = false;
	uint64_t count, window;
	static struct bare b;
	int option, r;

	while ((option = getopt(argc, argv, "+l")) != -1) {
		if (option != 'l')
			return usage();
		by_libnfs = true;
	}
	argc -= optind;
	argv += optind;
	b.work = argc == 6 ? work_of(argv[3]) : NULL;
	if (b.work == NULL || str_parse_u64(argv[4], 10, 1000000, &count) < 0 ||
	    str_parse_u64(argv[5], 10, WINDOW_MAX, &window) < 0 || window == 0)
		return usage();
	r = connect_to(&client, argv, by_libnfs, &err);
	if (r == 0) {
		b.client = client;
		b.count = (unsigned int)count;
		r = measure(&b, (unsigned int)window, &err);
	}
	if (r < 0)
		fprintf(stderr, "bare: %s\n", err.msg);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
