/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Run file operations, many in flight, against a real server, for test_files.py.
 *
 *   files HOST SHARE OPTIONS check DIRECTORY
 *   files HOST SHARE OPTIONS create DIRECTORY COUNT WINDOW
 *   files HOST SHARE OPTIONS idle DIRECTORY
 *   files HOST SHARE OPTIONS endless DIRECTORY
 *
 * OPTIONS are mount options; DIRECTORY is created below the share.
 *   check    runs all operations and prints a line for each correct result, then the attributes of
 *            each file
 *   create   prints files created per second
 *   idle     creates a file, prints "idle", and creates another file after each line of its input;
 *            if the connection is unusable, it opens a new one and says so
 *   endless  creates and writes files until that fails
 * The exit status is 1 after the first wrong result, which goes to stderr.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "nfs/client.h"

#define MANY 500 /* files in one directory */
#define DATA_BYTES 300007
#define READ_BYTES 65536
#define MODE 0640
#define SIGNED_MAX 3000000000 /* seconds: in version 3 these are not negative */

struct files {
	struct nfs_export export;
	struct nfs_client *client;
	struct nfs_handle top;
	struct nfs_op *ops; /* of the round that runs */
	struct nfs_handle handles[MANY];
	char names[MANY][16];
	char data[DATA_BYTES];
	char back[DATA_BYTES];
};

static void wrong(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

static void wrong(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("files: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(EXIT_FAILURE);
}

static void right(const char *what)
{
	printf("ok %s\n", what);
	(void)fflush(stdout); /* who reads it sees the exit status too */
}

static void is(const char *what, uint64_t got, uint64_t want)
{
	if (got != want)
		wrong("%s: %" PRIu64 ", not %" PRIu64, what, got, want);
}

static void is_error(const char *what, int got, int want)
{
	if (got != want)
		wrong("%s: %s, not %s", what, got == 0 ? "success" : strerror(-got),
		      want == 0 ? "success" : strerror(-want));
}

static void connect_to(struct files *f)
{
	struct error err = { .code = ERROR_OK };

	if (nfs_client_connect(&f->client, &f->export, &err) < 0)
		wrong("%s", err.msg);
}

/* -------- rounds: n operations of a kind, window of them in flight -------- */

struct round {
	struct files *files;
	unsigned int n, started, finished;
	int want; /* what each has to end with */
	unsigned int others; /* that ended otherwise */
	int error; /* the first of them */
	int refused; /* what another one could not be started for */
};

static void start_next(struct round *round);

/* The next one is started within, which has to be possible at any time. */
static void finished(struct nfs_op *op)
{
	struct round *round = op->data;

	round->finished++;
	if (op->error != round->want && round->others++ == 0)
		round->error = op->error;
	start_next(round);
}

static void start_next(struct round *round)
{
	struct files *f = round->files;
	struct nfs_op *op = &f->ops[round->started];

	if (round->started == round->n || round->refused < 0)
		return;
	op->done = finished;
	op->data = round;
	round->refused = nfs_client_start(f->client, op);
	if (round->refused == 0)
		round->started++;
}

static int run_round(struct files *f, struct round *round, unsigned int window)
{
	int r = 0;

	round->files = f;
	while (round->started < round->n && round->started < window && round->refused == 0)
		start_next(round);
	while (r == 0 && round->finished < round->started)
		r = nfs_client_run(f->client);
	return r < 0 ? r : round->refused;
}

/* Starts and runs f->ops, which are filled in. */
static void run(struct files *f, const char *what, unsigned int n, unsigned int window, int want)
{
	struct round round = { .n = n, .want = want };
	int r = run_round(f, &round, window);

	/* However it ended, each that was started was finished, once. */
	if (f->client->broken)
		is("operations finished", round.finished, round.started);
	if (r < 0) {
		nfs_client_free(f->client);
		f->client = NULL;
	}
	is_error(what, r, 0);
	if (round.others > 0)
		(void)fprintf(stderr, "files: %u of %u went wrong\n", round.others, n);
	is_error(what, round.others > 0 ? round.error : want, want);
	is(what, round.finished, n);
}

static struct nfs_op *clear_ops(struct files *f)
{
	memset(f->ops, 0, MANY * sizeof(*f->ops));
	return f->ops;
}

static void call(struct files *f, const char *what, struct nfs_op *op, int want)
{
	is_error(what, nfs_client_call(f->client, op), want);
}

static struct nfs_attr full_of(struct files *f, const struct nfs_handle *handle)
{
	struct nfs_op op = { .type = NFS_OP_GETATTR, .dir = handle, .full = true };

	call(f, "getattr", &op, 0);
	is("all attributes known", op.attr.is_full, true);
	is("owner known", op.attr.has_owner, true);
	return op.attr;
}

static struct nfs_handle make_directory(struct files *f, const struct nfs_handle *in,
					const char *name)
{
	struct nfs_op op = { .type = NFS_OP_MKDIR, .dir = in, .name = name, .mode = 0755 };

	call(f, "mkdir", &op, 0);
	return op.handle;
}

static struct nfs_handle create_one(struct files *f, const char *name)
{
	struct nfs_op op = { .type = NFS_OP_CREATE, .dir = &f->top, .name = name };

	op.change.has_mode = true;
	op.change.mode = MODE;
	call(f, name, &op, 0);
	return op.handle;
}

/* Creates n files in dir, window of them in flight. */
static void create_many(struct files *f, const struct nfs_handle *dir, unsigned int n,
			unsigned int window, int want)
{
	struct nfs_op *ops = clear_ops(f);
	unsigned int i;

	for (i = 0; i < n; i++) {
		(void)snprintf(f->names[i], sizeof(f->names[i]), "file-%u", i);
		ops[i] = (struct nfs_op){ .type = NFS_OP_CREATE, .dir = dir, .name = f->names[i] };
		ops[i].change.has_mode = true;
		ops[i].change.mode = MODE;
	}
	run(f, "create", n, window, want);
	for (i = 0; want == 0 && i < n; i++) {
		if (ops[i].handle.len == 0)
			wrong("%s was created without a handle", f->names[i]);
		is("type", ops[i].attr.type, NFS_TYPE_FILE);
		is("mode", ops[i].attr.mode, MODE);
		f->handles[i] = ops[i].handle;
	}
}

/* Every other file exists already. */
static void create_mixed(struct files *f, const struct nfs_handle *dir)
{
	struct round round = { .n = NFS_WINDOW, .want = -EEXIST };
	struct nfs_op *ops = clear_ops(f);
	unsigned int i;

	for (i = 0; i < NFS_WINDOW; i++) {
		unsigned int number = i % 2 == 0 ? i / 2 : NFS_WINDOW / 2 + i / 2;

		(void)snprintf(f->names[i], sizeof(f->names[i]), "file-%u", number);
		ops[i] = (struct nfs_op){ .type = NFS_OP_CREATE, .dir = dir, .name = f->names[i] };
	}
	is_error("mixed", run_round(f, &round, NFS_WINDOW), 0);
	for (i = 0; i < NFS_WINDOW; i++)
		is_error(f->names[i], ops[i].error, i % 2 == 0 ? -EEXIST : 0);
}

/* -------- what check does -------- */

static void check_create(struct files *f)
{
	struct nfs_handle few = make_directory(f, &f->top, "few");
	struct nfs_handle many = make_directory(f, &f->top, "many");
	struct nfs_handle short_lived = make_directory(f, &f->top, "gone");

	/*
	 * Remove it long before it is used: on a busy machine, nfs-ganesha 4.3 leaves an NFSv3
	 * CREATE unanswered that comes right after the RMDIR.
	 */
	call(f, "rmdir", &(struct nfs_op){ .type = NFS_OP_RMDIR, .dir = &f->top, .name = "gone" },
	     0);
	create_many(f, &few, NFS_WINDOW, NFS_WINDOW, 0);
	right("a window of files at once");
	create_many(f, &few, NFS_WINDOW, NFS_WINDOW, -EEXIST);
	right("the same names again");
	create_many(f, &many, MANY, NFS_WINDOW, 0);
	right("500 files through the window");
	create_many(f, &f->handles[0], NFS_WINDOW, NFS_WINDOW, -ENOTDIR);
	right("files in a file");
	create_many(f, &short_lived, NFS_WINDOW, NFS_WINDOW, -ESTALE);
	right("files in a directory that is gone");
	create_many(f, &many, 1, 1, -EEXIST);
	right("and the owners are still good");
}

static void check_mixed(struct files *f)
{
	struct nfs_op op = { .type = NFS_OP_CREATE, .dir = &f->top, .name = "few" };
	struct nfs_handle mixed = make_directory(f, &f->top, "mixed");

	call(f, "create over a directory", &op, -EEXIST);
	right("a name that a directory has");
	/* Those that fail come before those that do not, to the same owners. */
	create_many(f, &mixed, NFS_WINDOW / 2, NFS_WINDOW, 0);
	create_mixed(f, &mixed);
	right("names that exist among those that do not");
}

static void check_names(struct files *f)
{
	char name[NFS_NAME_MAX + 2];
	struct nfs_op op = { .type = NFS_OP_CREATE, .dir = &f->top, .name = name };

	memset(name, 'n', sizeof(name));
	name[NFS_NAME_MAX + 1] = '\0';
	if (nfs_client_call(f->client, &op) == 0)
		wrong("a name of 256 bytes was taken");
	name[NFS_NAME_MAX] = '\0';
	call(f, "a name of 255 bytes", &op, 0);
	op = (struct nfs_op){ .type = NFS_OP_LOOKUP, .dir = &f->top, .name = name };
	call(f, "looking it up", &op, 0);
	right("a name of 255 bytes");
}

/* A file begins with all that it shall be. */
static void check_create_with_all(struct files *f)
{
	struct nfs_op op = { .type = NFS_OP_CREATE, .dir = &f->top, .name = "all" };
	struct nfs_attr attr;

	op.change = (struct nfs_change){
		.has_mode = true,
		.mode = 0604,
		.has_uid = true,
		.uid = 1234,
		.has_gid = true,
		.gid = 2345,
		.has_size = true,
		.size = 4321,
		.has_times = true,
		.atime = { 1000000001, 123456789 },
		.mtime = { 1500000002, 987654321 },
	};
	call(f, "create with attributes", &op, 0);
	attr = full_of(f, &op.handle);
	is("mode", attr.mode, 0604);
	is("uid", attr.uid, 1234);
	is("gid", attr.gid, 2345);
	is("size", attr.size, 4321);
	is("atime", (uint64_t)attr.atime.sec, 1000000001);
	is("atime", attr.atime.nsec, 123456789);
	is("mtime", (uint64_t)attr.mtime.sec, 1500000002);
	is("mtime", attr.mtime.nsec, 987654321);
	right("a file that begins with all attributes");
}

/* Writes f->data in steps, all in flight at once. Returns the verifier. */
static void write_data(struct files *f, const struct nfs_handle *file, bool stable,
		       char *ret_verifier)
{
	uint32_t step = nfs_write_max(f->client);
	struct nfs_op *ops = clear_ops(f);
	unsigned int n = 0, i;
	uint64_t offset = 0;

	while (offset < DATA_BYTES) {
		uint64_t left = DATA_BYTES - offset;

		ops[n] = (struct nfs_op){ .type = NFS_OP_WRITE, .dir = file, .stable = stable };
		ops[n].offset = offset;
		ops[n].count = left < step ? (uint32_t)left : step;
		ops[n].buffer = f->data + offset;
		offset += ops[n++].count;
	}
	run(f, "write", n, NFS_WINDOW, 0);
	for (i = 0; i < n; i++) {
		is("bytes written", ops[i].count,
		   i + 1 < n ? step : (uint32_t)(DATA_BYTES - (uint64_t)i * step));
		is("verifiers differ", (uint64_t)memcmp(ops[i].verifier, ops[0].verifier, 8), 0);
	}
	memcpy(ret_verifier, ops[0].verifier, sizeof(ops[0].verifier));
}

static void read_back(struct files *f, const struct nfs_handle *file)
{
	struct nfs_op *ops = clear_ops(f);
	unsigned int n = 0, i;
	uint64_t offset;

	memset(f->back, 0, sizeof(f->back));
	for (offset = 0; offset < DATA_BYTES; offset += READ_BYTES, n++) {
		ops[n] = (struct nfs_op){ .type = NFS_OP_READ, .dir = file, .offset = offset };
		ops[n].buffer = f->back + offset;
		ops[n].count = READ_BYTES;
		if (offset + READ_BYTES > DATA_BYTES)
			ops[n].count = (uint32_t)(DATA_BYTES - offset);
	}
	run(f, "read", n, NFS_WINDOW, 0);
	for (i = 0; i + 1 < n; i++)
		is("bytes read", ops[i].count, READ_BYTES);
	if (memcmp(f->data, f->back, sizeof(f->data)) != 0)
		wrong("other bytes were read than written");
}

static void check_data(struct files *f)
{
	struct nfs_handle file = create_one(f, "data");
	struct nfs_op commit = { .type = NFS_OP_COMMIT, .dir = &file };
	char verifier[8];

	write_data(f, &file, false, verifier);
	call(f, "commit", &commit, 0);
	is("verifier of commit differs", (uint64_t)memcmp(commit.verifier, verifier, 8), 0);
	right("writes and their commit");
	read_back(f, &file);
	right("what was written is read");
	is("size", full_of(f, &file).size, DATA_BYTES);
	file = create_one(f, "stable");
	write_data(f, &file, true, verifier);
	read_back(f, &file);
	if (full_of(f, &file).used < DATA_BYTES)
		wrong("less is used than was written");
	right("stable writes");
}

static void read_at(struct files *f, const struct nfs_handle *file, uint64_t offset, uint32_t count,
		    uint32_t want, bool eof)
{
	struct nfs_op op = { .type = NFS_OP_READ, .dir = file, .offset = offset, .count = count };

	op.buffer = f->back;
	call(f, "read", &op, 0);
	is("bytes read", op.count, want);
	is("end of the file", op.eof, eof);
}

static void check_end(struct files *f)
{
	struct nfs_handle empty = create_one(f, "empty"), file;

	read_at(f, &empty, 0, 100, 0, true);
	is_error("lookup", nfs_lookup(f->client, &f->top, "data", &file, NULL), 0);
	read_at(f, &file, DATA_BYTES - 10, 100, 10, true);
	read_at(f, &file, DATA_BYTES - 10, 10, 10, true);
	read_at(f, &file, DATA_BYTES - 10, 9, 9, false);
	read_at(f, &file, DATA_BYTES, 100, 0, true);
	read_at(f, &file, UINT64_C(1) << 40, 100, 0, true);
	right("reading at the end");
}

/* The longest that can be sent is a question of the encoder, whatever the server thinks of it. */
static void check_longest_write(struct files *f)
{
	struct nfs_handle handle = { .len = f->client->version == 4 ? NFS_HANDLE_MAX : 64 };
	struct nfs_op op = { .type = NFS_OP_WRITE, .dir = &handle, .buffer = f->data };

	memset(handle.data, 'h', handle.len);
	op.count = nfs_write_max(f->client);
	if (op.count > DATA_BYTES)
		op.count = DATA_BYTES;
	is_error("starting the longest write", nfs_client_start(f->client, &op), 0);
	is_error("running it", nfs_client_run(f->client), 0);
	if (!op.finished || op.error == 0)
		wrong("a write to no file succeeded");
	is("broken", f->client->broken, false);
	right("the longest write to the longest handle");
}

static void check_link(struct files *f)
{
	struct nfs_handle file, other;
	struct nfs_op op = {
		.type = NFS_OP_LINK, .dir = &file, .to_dir = &f->top, .to_name = "link"
	};
	struct nfs_attr attr;

	is_error("lookup", nfs_lookup(f->client, &f->top, "data", &file, NULL), 0);
	call(f, "link", &op, 0);
	is_error("lookup", nfs_lookup(f->client, &f->top, "link", &other, NULL), 0);
	attr = full_of(f, &file);
	is("links", attr.links, 2);
	is("fileid", full_of(f, &other).fileid, attr.fileid);
	is("fsid", full_of(f, &other).fsid, attr.fsid);
	call(f, "link again", &op, -EEXIST);
	right("links");
}

static void check_mknod(struct files *f)
{
	static const struct {
		const char *name;
		enum nfs_type type;
		struct nfs_device device;
	} nodes[] = {
		{ "fifo", NFS_TYPE_FIFO, { 0, 0 } },
		{ "socket", NFS_TYPE_SOCKET, { 0, 0 } },
		{ "block", NFS_TYPE_BLOCK, { 259, 70000 } },
		{ "character", NFS_TYPE_CHARACTER, { 1, 3 } },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(nodes); i++) {
		struct nfs_op make = { .type = NFS_OP_MKNOD, .dir = &f->top };
		struct nfs_op look = { .type = NFS_OP_LOOKUP, .dir = &f->top, .full = true };

		make.name = look.name = nodes[i].name;
		make.node = nodes[i].type;
		make.device = nodes[i].device;
		make.change.has_mode = true;
		make.change.mode = 0606;
		call(f, nodes[i].name, &make, 0);
		call(f, nodes[i].name, &look, 0);
		is("type", look.attr.type, nodes[i].type);
		is("mode", look.attr.mode, 0606);
		is("is full", look.attr.is_full, true);
		if (nodes[i].device.major != 0) {
			is("major", look.attr.device.major, nodes[i].device.major);
			is("minor", look.attr.device.minor, nodes[i].device.minor);
		}
		call(f, nodes[i].name, &make, -EEXIST);
	}
	right("fifo, socket and devices");
}

static void set_times(struct files *f, const struct nfs_handle *file, struct nfs_time atime,
		      struct nfs_time mtime)
{
	struct nfs_op op = { .type = NFS_OP_SETATTR, .dir = file };
	struct nfs_attr attr;

	op.change = (struct nfs_change){ .has_times = true, .atime = atime, .mtime = mtime };
	call(f, "setting times", &op, 0);
	attr = full_of(f, file);
	is("atime", (uint64_t)attr.atime.sec, (uint64_t)atime.sec);
	is("nanoseconds of atime", attr.atime.nsec, atime.nsec);
	is("mtime", (uint64_t)attr.mtime.sec, (uint64_t)mtime.sec);
	is("nanoseconds of mtime", attr.mtime.nsec, mtime.nsec);
}

static void check_times(struct files *f)
{
	struct nfs_handle file = create_one(f, "times");

	set_times(f, &file, (struct nfs_time){ 1, 1 }, (struct nfs_time){ 1234567890, 999999999 });
	set_times(f, &file, (struct nfs_time){ SIGNED_MAX, 5 }, (struct nfs_time){ 0, 0 });
	if (f->client->version == 4) {
		set_times(f, &file, (struct nfs_time){ -1, 500000000 },
			  (struct nfs_time){ -1000000000, 1 });
		set_times(f, &file, (struct nfs_time){ INT64_C(10000000000), 7 },
			  (struct nfs_time){ 3, 4 });
	}
	right("times to the nanosecond");
}

static void set_size(struct files *f, const struct nfs_handle *file, uint64_t size)
{
	struct nfs_op op = { .type = NFS_OP_SETATTR, .dir = file };

	op.change = (struct nfs_change){ .has_size = true, .size = size };
	call(f, "setting the size", &op, 0);
	is("size", full_of(f, file).size, size);
}

static void check_size(struct files *f)
{
	struct nfs_handle file;

	is_error("lookup", nfs_lookup(f->client, &f->top, "stable", &file, NULL), 0);
	set_size(f, &file, 5);
	set_size(f, &file, 100);
	memset(f->back, 'x', 100);
	read_at(f, &file, 0, 200, 100, true);
	is("first bytes differ", (uint64_t)memcmp(f->back, f->data, 5), 0);
	is("a byte behind the old end", (uint64_t)f->back[5], 0);
	is("the last byte", (uint64_t)f->back[99], 0);
	set_size(f, &file, UINT64_C(1) << 33);
	right("sizes");
}

/* -------- the listing, for the comparison with the server's own -------- */

static void take_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	const struct nfs_attr *a = &entry->attr;
	unsigned int *n = op->data;

	if (entry->handle.len == 0)
		wrong("%s was listed without a handle", entry->name);
	is("all attributes in the listing", a->is_full && a->has_owner, true);
	printf("attr %s %u %o %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u:%u %" PRId64
	       ".%09u %" PRId64 ".%09u\n",
	       entry->name, a->type, a->mode, a->links, a->uid, a->gid, a->size, a->used, a->fileid,
	       a->device.major, a->device.minor, a->atime.sec, a->atime.nsec, a->mtime.sec,
	       a->mtime.nsec);
	(*n)++;
}

static unsigned int list(struct files *f, const struct nfs_handle *dir,
			 void (*entry)(struct nfs_op *op, const struct nfs_entry *entry))
{
	struct nfs_op op = { .type = NFS_OP_READDIR, .dir = dir, .full = true, .entry = entry };
	unsigned int n = 0;

	op.data = &n;
	do {
		call(f, "readdir", &op, 0);
	} while (!op.eof);
	return n;
}

static void count_entry(struct nfs_op *op, const struct nfs_entry *entry)
{
	unsigned int *n = op->data;

	is("all attributes in the listing", entry->attr.is_full, true);
	is("type", entry->attr.type, NFS_TYPE_FILE);
	is("mode", entry->attr.mode, MODE);
	(*n)++;
}

static void check_listing(struct files *f)
{
	struct nfs_handle many;

	is_error("lookup", nfs_lookup(f->client, &f->top, "many", &many, NULL), 0);
	is("entries", list(f, &many, count_entry), MANY);
	right("a listing with all attributes");
	(void)list(f, &f->top, take_entry);
}

static int check(struct files *f)
{
	size_t i;

	for (i = 0; i < sizeof(f->data); i++)
		f->data[i] = (char)(i * 31 + i / 251);
	check_create(f);
	check_mixed(f);
	check_names(f);
	check_create_with_all(f);
	check_data(f);
	check_end(f);
	check_longest_write(f);
	check_link(f);
	check_mknod(f);
	check_times(f);
	check_size(f);
	check_listing(f);
	return EXIT_SUCCESS;
}

/* -------- the others -------- */

static int measure(struct files *f, unsigned int count, unsigned int window)
{
	uint64_t start = clock_now_ns();
	unsigned int made = 0, folder = 0;
	char name[16];

	while (made < count) {
		unsigned int n = count - made < MANY ? count - made : MANY;
		struct nfs_handle dir;

		(void)snprintf(name, sizeof(name), "%u", folder++);
		dir = make_directory(f, &f->top, name);
		create_many(f, &dir, n, window, 0);
		made += n;
	}
	printf("create %.0f\n", count / ((double)(clock_now_ns() - start) / CLOCK_NS_PER_S));
	return EXIT_SUCCESS;
}

static int idle(struct files *f)
{
	unsigned int n = 0;
	char name[16];

	for (;;) {
		(void)snprintf(name, sizeof(name), "idle-%u", n++);
		(void)create_one(f, name);
		right("idle");
		if (getchar() == EOF)
			return EXIT_SUCCESS;
		if (nfs_client_is_usable(f->client))
			continue;
		right("a new connection");
		nfs_client_free(f->client);
		f->client = NULL;
		connect_to(f);
	}
}

static void endless(struct files *f) __attribute__((noreturn));

static void endless(struct files *f)
{
	struct nfs_op *ops;
	unsigned int round, i;
	char name[16];

	for (round = 0;; round++) {
		struct nfs_handle dir;

		(void)snprintf(name, sizeof(name), "round-%u", round);
		dir = make_directory(f, &f->top, name);
		create_many(f, &dir, MANY, NFS_WINDOW, 0);
		ops = clear_ops(f);
		for (i = 0; i < MANY; i++) {
			ops[i] = (struct nfs_op){ .type = NFS_OP_WRITE, .dir = &f->handles[i] };
			ops[i].buffer = f->data;
			ops[i].count = 1000;
		}
		run(f, "write", MANY, NFS_WINDOW, 0);
		right("a round");
	}
}

static int work(struct files *f, int argc, char **argv)
{
	uint64_t count, window;

	f->top = make_directory(f, &f->client->root, argv[5]);
	if (strcmp(argv[4], "check") == 0)
		return check(f);
	if (strcmp(argv[4], "idle") == 0)
		return idle(f);
	if (strcmp(argv[4], "endless") == 0)
		endless(f);
	if (strcmp(argv[4], "create") == 0 && argc == 8 &&
	    str_parse_u64(argv[6], 10, 1000000, &count) == 0 &&
	    str_parse_u64(argv[7], 10, MANY, &window) == 0)
		return measure(f, (unsigned int)count, (unsigned int)window);
	wrong("no such operation");
}

int main(int argc, char **argv)
{
	struct error err = { .code = ERROR_OK };
	struct files *f;
	int status;

	if (argc != 6 && argc != 8)
		wrong("usage: files HOST SHARE OPTIONS check|create|idle|endless DIRECTORY [COUNT WINDOW]");
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		wrong("out of memory");
	f->ops = calloc(MANY, sizeof(*f->ops));
	if (f->ops == NULL || nfs_export_init(&f->export, argv[1], argv[2], &err) < 0 ||
	    nfs_export_apply_options(&f->export, argv[3], &err) < 0)
		wrong("%s", err.msg);
	connect_to(f);
	status = work(f, argc, argv);
	nfs_client_free(f->client);
	nfs_export_done(&f->export);
	free(f->ops);
	free(f);
	return status;
}
