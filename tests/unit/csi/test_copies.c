/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Clones, restores and snapshots, as calls of the controller. */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "csi/copy_turn.h"
#include "csi/services.h"
#include "net/address.h"
#include "store/holder.h"
#include "fake/nfs.h"
#include "check_util.h"

#define VOLUME "s#e#pvc-1##"
#define SNAPSHOT "s#e#snap-1#snap-1#pvc-1"

/* These replace the C library's, so that the pauses of a server that is busy take no time. */
static _Atomic uint64_t slept_ns;

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = check_real_clock(id, ret);
	uint64_t ns = (uint64_t)ret->tv_nsec + slept_ns;

	ret->tv_sec += (time_t)(ns / CLOCK_NS_PER_S);
	ret->tv_nsec = (long)(ns % CLOCK_NS_PER_S);
	return r;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	slept_ns += (uint64_t)wanted->tv_sec * CLOCK_NS_PER_S + (uint64_t)wanted->tv_nsec;
	return 0;
}

/* A controller with a share in memory below it. */
struct bench {
	struct csi_driver driver;
	struct csi_controller controller;
	struct nfs_pool *purgers; /* so that the calls are alone in theirs */
	struct tree_budget budget;
	atomic_bool stopping;
	struct fake_nfs *nfs;
	bool waited_for_turn; /* the next calls were held until there was a turn */
};

static struct fake_nfs *nested; /* whose directory top/share is the share /e */
static struct nfs_client *newest; /* of that share */
static unsigned int connects_left = UINT_MAX; /* before the one that fails */

static int connect_or_fail(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	struct nfs_attr unused;
	int r;

	if (connects_left-- == 0)
		return error_sys(err, ERROR_RESOURCE_EXHAUSTED, EMFILE, "opening a socket");
	r = fake_nfs_connect_fn(ret, e, err);
	if (r < 0 || nested == NULL)
		return r;
	if (strcmp(e->share, "/e") == 0) {
		ck_assert(fake_nfs_get(nested, "top/share", &(*ret)->root, &unused));
		newest = *ret;
	} else if (newest != NULL) {
		fake_nfs_pair(*ret, newest); /* a copy leases the client of its target first */
	}
	return 0;
}

static void bench_init(struct bench *b)
{
	memset(b, 0, sizeof(*b));
	b->nfs = fake_nfs_new();
	fake_nfs_serve(b->nfs);
	ck_assert(key_locks_new(&b->driver.key_locks) == 0);
	ck_assert(dir_locks_new(&b->driver.dir_locks) == 0);
	ck_assert(copy_turns_new(&b->driver.turns) == 0);
	ck_assert(known_exports_new(&b->driver.known) == 0);
	ck_assert(nfs_pool_new(&b->driver.pool, connect_or_fail, 0) == 0);
	ck_assert(nfs_pool_new(&b->purgers, fake_nfs_connect_fn, 0) == 0);
	ck_assert(purger_new(&b->driver.purger, b->purgers, NULL) == 0);
	b->driver.budget = &b->budget;
	b->driver.stopping = &b->stopping;
	csi_controller_init(&b->controller, &b->driver);
}

static void bench_done(struct bench *b)
{
	purger_free(b->driver.purger);
	nfs_pool_free(b->purgers);
	nfs_pool_free(b->driver.pool);
	known_exports_free(b->driver.known);
	copy_turns_free(b->driver.turns);
	dir_locks_free(b->driver.dir_locks);
	key_locks_free(b->driver.key_locks);
	fake_nfs_free(b->nfs);
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void answered(const ProtobufCMessage *reply, void *data)
{
	const struct request *req = data;

	ck_assert_msg((reply == NULL) == (req->err.code != ERROR_OK), "reply and error differ");
}

static struct error invoke(struct bench *b, const char *method, const void *in)
{
	ProtobufCService *service = &b->controller.service.base;
	const ProtobufCMethodDescriptor *m =
		protobuf_c_service_descriptor_get_method_by_name(service->descriptor, method);
	struct request req = { .waited_for_turn = b->waited_for_turn };

	service->invoke(service, (unsigned int)(m - service->descriptor->methods), in, answered,
			&req);
	return req.err;
}

/* volume and snapshot: id of the source, or NULL. */
static struct error create_volume(struct bench *b, const char *name, const char *volume,
				  const char *snapshot)
{
	Csi__V1__CreateVolumeRequest in = CSI__V1__CREATE_VOLUME_REQUEST__INIT;
	Csi__V1__CreateVolumeRequest__ParametersEntry
		server = CSI__V1__CREATE_VOLUME_REQUEST__PARAMETERS_ENTRY__INIT,
		share = server;
	Csi__V1__CreateVolumeRequest__ParametersEntry *parameters[] = { &server, &share };
	Csi__V1__VolumeCapability cap = CSI__V1__VOLUME_CAPABILITY__INIT, *caps[] = { &cap };
	Csi__V1__VolumeCapability__MountVolume mount =
		CSI__V1__VOLUME_CAPABILITY__MOUNT_VOLUME__INIT;
	Csi__V1__VolumeCapability__AccessMode mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__INIT;
	Csi__V1__VolumeContentSource source = CSI__V1__VOLUME_CONTENT_SOURCE__INIT;
	Csi__V1__VolumeContentSource__VolumeSource of_volume =
		CSI__V1__VOLUME_CONTENT_SOURCE__VOLUME_SOURCE__INIT;
	Csi__V1__VolumeContentSource__SnapshotSource of_snapshot =
		CSI__V1__VOLUME_CONTENT_SOURCE__SNAPSHOT_SOURCE__INIT;

	server.key = text("server");
	server.value = text("s");
	share.key = text("share");
	share.value = text("/e");
	in.name = text(name);
	in.parameters = parameters;
	in.n_parameters = 2;
	mode.mode = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__MULTI_NODE_MULTI_WRITER;
	cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	cap.mount = &mount;
	cap.access_mode = &mode;
	in.volume_capabilities = caps;
	in.n_volume_capabilities = 1;
	if (volume != NULL) {
		of_volume.volume_id = text(volume);
		source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_VOLUME;
		source.volume = &of_volume;
		in.volume_content_source = &source;
	} else if (snapshot != NULL) {
		of_snapshot.snapshot_id = text(snapshot);
		source.type_case = CSI__V1__VOLUME_CONTENT_SOURCE__TYPE_SNAPSHOT;
		source.snapshot = &of_snapshot;
		in.volume_content_source = &source;
	}
	return invoke(b, "CreateVolume", &in);
}

/* A snapshot that is a tree. */
static struct error create_snapshot(struct bench *b, const char *name, const char *volume)
{
	Csi__V1__CreateSnapshotRequest in = CSI__V1__CREATE_SNAPSHOT_REQUEST__INIT;
	Csi__V1__CreateSnapshotRequest__ParametersEntry
		format = CSI__V1__CREATE_SNAPSHOT_REQUEST__PARAMETERS_ENTRY__INIT,
		*parameters[] = { &format };

	format.key = text("format");
	format.value = text("tree");
	in.name = text(name);
	in.source_volume_id = text(volume);
	in.parameters = parameters;
	in.n_parameters = 1;
	return invoke(b, "CreateSnapshot", &in);
}

static void check_ok(const char *row, struct error err)
{
	check_error(row, &err, ERROR_OK, NULL);
}

/* A volume with a file, and a snapshot of it. */
static void make_sources(struct bench *b)
{
	check_ok("volume", create_volume(b, "pvc-1", NULL, NULL));
	fake_nfs_write(b->nfs, "pvc-1/file", 0, "data", 4);
	check_ok("snapshot", create_snapshot(b, "snap-1", VOLUME));
}

struct copy {
	const char *name; /* of what is made */
	const char *volume, *snapshot; /* the source, one of them */
	bool is_snapshot;
};

static const struct copy copies[] = {
	{ "clone", VOLUME },
	{ "restored", .snapshot = SNAPSHOT },
	{ "snapshot", VOLUME, .is_snapshot = true },
	{ "foreign", VOLUME, .is_snapshot = true },
};

static struct error make_copy(struct bench *b, const struct copy *copy)
{
	return copy->is_snapshot ? create_snapshot(b, copy->name, copy->volume)
				 : create_volume(b, copy->name, copy->volume, copy->snapshot);
}

/* Lease all places of the server but n. */
static void fill_server(struct bench *b, struct nfs_client *held[NFS_SERVER_PLACES], size_t n)
{
	char server[] = "s", share[] = "/other";
	const struct nfs_export e = { .server = server, .share = share };
	size_t i;

	for (i = 0; i < NFS_SERVER_PLACES - n; i++)
		ck_assert(nfs_pool_lease(b->driver.pool, &e, &held[i], NULL) == 0);
}

static void empty_server(struct bench *b, struct nfs_client *held[NFS_SERVER_PLACES], size_t n)
{
	size_t i;

	for (i = 0; i < NFS_SERVER_PLACES - n; i++)
		nfs_pool_return(b->driver.pool, held[i]);
}

static void count_calls(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *calls = data;

	(void)f;
	(void)op;
	++*calls;
}

/* A call that was held for its turn, and still gets none, is over before it asks a server. */
static void check_waiters(struct bench *b)
{
	unsigned int calls = 0;
	struct error err;
	size_t i;

	b->waited_for_turn = true;
	fake_nfs_watch(b->nfs, count_calls, &calls);
	for (i = 0; i < ARRAY_SIZE(copies); i++) {
		err = make_copy(b, &copies[i]);
		check_error(copies[i].name, &err, ERROR_ABORTED, "already running");
		check_that(copies[i].name, "waits on", err.wait == ERROR_WAIT_TURN);
	}
	check_int("waiters", "calls of the server", calls, 0);
	fake_nfs_watch(b->nfs, NULL, NULL);
	b->waited_for_turn = false;
}

/*
 * A copy that has to wait for its turn does not wait for a second place of its server, and holds
 * its first one no longer. What needs no copy is answered as ever.
 */
static void check_turns(bool waited_for_turn)
{
	struct copy_turn turns[COPY_TURNS_OF_SERVER] = { { .is_taken = false } };
	char server[] = "s", share[] = "/e";
	const struct nfs_export e = { .server = server, .share = share };
	const struct request req = { .waited_for_turn = true };
	struct nfs_client *held[NFS_SERVER_PLACES];
	struct bench b;
	struct error err;
	size_t i;

	bench_init(&b);
	make_sources(&b);
	/* An archive without a record, which is read before it is adopted. */
	fake_nfs_put(b.nfs, "foreign/pvc-1.tar.gz", NFS_TYPE_FILE, NULL);
	check_ok("done", create_volume(&b, "done", VOLUME, NULL));
	check_int("before", "turns taken", atomic_load(&b.budget.jobs), 0);
	for (i = 0; i < ARRAY_SIZE(turns); i++)
		ck_assert(copy_turn_begin(&turns[i], &b.driver, &e, &e, &req, NULL) == 0);
	fill_server(&b, held, 1);
	for (i = 0; i < ARRAY_SIZE(copies); i++) {
		err = make_copy(&b, &copies[i]);
		check_error(copies[i].name, &err, ERROR_ABORTED, "already running");
		check_that(copies[i].name, "waits",
			   err.wait == ERROR_WAIT_TURN && err.retry_ms > 0 && err.retry_ms <= 1000);
		check_int(copies[i].name, "waits for", err.wait_for, net_server_number("s", 0));
	}
	check_waiters(&b);
	check_ok("a clone that is there", create_volume(&b, "done", VOLUME, NULL));
	check_ok("a snapshot that is there", create_snapshot(&b, "snap-1", VOLUME));
	err = create_volume(&b, "nothing", "s#e#pvc-9##", NULL);
	check_error("no source", &err, ERROR_NOT_FOUND, "pvc-9");
	empty_server(&b, held, 1);
	check_int("after", "turns taken", atomic_load(&b.budget.jobs), (int)ARRAY_SIZE(turns));
	for (i = 0; i < ARRAY_SIZE(turns); i++)
		copy_turn_give(&turns[i]);
	b.waited_for_turn = waited_for_turn;
	fake_nfs_remove(b.nfs, "foreign");
	for (i = 0; i < ARRAY_SIZE(copies); i++) {
		check_ok(copies[i].name, make_copy(&b, &copies[i]));
		check_int(copies[i].name, "turns taken", atomic_load(&b.budget.jobs), 0);
	}
	check_ok("a clone that is there", create_volume(&b, "done", VOLUME, NULL));
	err = create_volume(&b, "", VOLUME, NULL);
	check_error("no name", &err, ERROR_INVALID_ARGUMENT, "name");
	check_int("last", "turns taken", atomic_load(&b.budget.jobs), 0);
	bench_done(&b);
}

START_TEST(test_turns)
{
	check_turns(false);
	check_turns(true);
}
END_TEST

/* The exports of a copy between two servers with names of one letter: the first two of pair. */
static void name_servers(struct nfs_export exports[2], char names[2][2], const char *pair)
{
	static char share[] = "/e";
	size_t i;

	for (i = 0; i < 2; i++) {
		names[i][0] = pair[i];
		names[i][1] = '\0';
		exports[i] = (struct nfs_export){ .server = names[i], .share = share };
	}
}

/* Which copies get a turn while those before them have theirs. */
START_TEST(test_turns_of_servers)
{
	static const struct {
		const char *name;
		const char *copies; /* from one server to the other, each of one letter */
		const char *taken; /* y or n for each copy */
	} rows[] = {
		{ "one server", "aa aa aa aa", "yyyn" },
		{ "it leaves all turns of another", "aa aa aa aa bb bb bb bb", "yyynyyyn" },
		{ "two servers leave none", "aa aa aa bb bb bb cc", "yyyyyyn" },
		{ "between two", "ab ab ab", "yyn" },
		{ "either way", "ab ba ab ba", "yynn" },
		{ "they leave one at both", "ab ab aa bb aa bb cc cc", "yyyynnyy" },
		{ "a source for several", "ab ac ad bb bb cc cc dd", "yynyyyyn" },
		{ "a target of several", "ba ca da aa aa", "yynyn" },
		{ "none is left", "aa aa aa ab ba bb", "yyynny" },
	};
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct copy_turn turns[8] = { { .is_taken = false } };
		const size_t n = strlen(rows[i].taken);
		const struct request req = { .waited_for_turn = true };
		char names[ARRAY_SIZE(turns)][2][2];
		struct nfs_export exports[ARRAY_SIZE(turns)][2];
		struct bench b;

		ck_assert(n <= ARRAY_SIZE(turns));
		bench_init(&b);
		for (k = 0; k < n; k++)
			name_servers(exports[k], names[k], rows[i].copies + 3 * k);
		for (k = 0; k < n; k++) {
			struct error err = { .code = ERROR_OK };
			int r = copy_turn_begin(&turns[k], &b.driver, &exports[k][0],
						&exports[k][1], &req, &err);

			ck_assert_msg((r == 0) == (rows[i].taken[k] == 'y'), "%s: copy %zu: %d",
				      rows[i].name, k, r);
			if (r == 0)
				continue;
			check_error(rows[i].name, &err, ERROR_ABORTED, "already running");
			check_that(rows[i].name, "waits", err.wait == ERROR_WAIT_TURN);
		}
		for (k = 0; k < n; k++)
			copy_turn_give(&turns[k]);
		check_int(rows[i].name, "turns taken", atomic_load(&b.budget.jobs), 0);
		ck_assert(copy_turn_take(&turns[0], NULL) == 0);
		copy_turn_give(&turns[0]);
		bench_done(&b);
	}
}
END_TEST

/*
 * A copy between two full servers gets its turn once each of them has had one free, whoever else
 * asks meanwhile.
 */
START_TEST(test_turn_between_full_servers)
{
	static const char pairs[][3] = { "aa", "aa", "aa", "bb", "bb", "bb", "ab", "aa", "bb" };
	enum { OF_A = 0, OF_B = 3, BETWEEN = 6, LATER_AT_A, LATER_AT_B };
	struct copy_turn turns[ARRAY_SIZE(pairs)];
	char names[ARRAY_SIZE(pairs)][2][2];
	struct nfs_export exports[ARRAY_SIZE(pairs)][2];
	struct error err = { .code = ERROR_OK };
	struct bench b;
	size_t k;

	bench_init(&b);
	for (k = 0; k < ARRAY_SIZE(pairs); k++) {
		const struct request req = { .waited_for_turn = k < BETWEEN };

		name_servers(exports[k], names[k], pairs[k]);
		check_int("begin", "result",
			  copy_turn_begin(&turns[k], &b.driver, &exports[k][0], &exports[k][1],
					  &req, &err),
			  0);
	}
	ck_assert(copy_turn_take(&turns[BETWEEN], &err) < 0);
	copy_turn_give(&turns[OF_A]);
	ck_assert(copy_turn_take(&turns[LATER_AT_A], &err) < 0);
	ck_assert(copy_turn_take(&turns[BETWEEN], &err) < 0);
	copy_turn_give(&turns[OF_B]);
	ck_assert(copy_turn_take(&turns[LATER_AT_B], &err) < 0);
	check_int("between", "result", copy_turn_take(&turns[BETWEEN], &err), 0);
	ck_assert(copy_turn_take(&turns[LATER_AT_A], &err) < 0);
	copy_turn_give(&turns[OF_A + 1]);
	check_int("later", "result", copy_turn_take(&turns[LATER_AT_A], &err), 0);
	for (k = 0; k < ARRAY_SIZE(pairs); k++)
		copy_turn_give(&turns[k]);
	check_int("last", "turns taken", atomic_load(&b.budget.jobs), 0);
	bench_done(&b);
}
END_TEST

/* A copy whose reads fail. */
struct failing_copy {
	const struct bench *bench;
	struct fake_failure failure;
	pthread_t caller; /* others purge */
	bool has_begun;
	unsigned int without_turn; /* reads since it has begun */
};

static void watch_failing_copy(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct failing_copy *copy = data;
	const bool has_turn = atomic_load(&copy->bench->budget.jobs) > 0;
	const bool is_read = (copy->failure.types & 1U << op->type) != 0;

	if (!pthread_equal(pthread_self(), copy->caller))
		return;
	if (has_turn && !copy->has_begun)
		fake_nfs_fail(f, &copy->failure); /* not before: the call reads notes and records */
	copy->has_begun = copy->has_begun || has_turn;
	copy->without_turn += copy->has_begun && !has_turn && is_read;
}

/* Whatever ends a copy, its turn is over with the call, which may copy again until then. */
START_TEST(test_turns_of_failures)
{
	static const int errors[] = { -EACCES, -EIO, -ESTALE, -ECONNABORTED, -ETIMEDOUT };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const struct fake_failure failure = {
			.nth = 1,
			.error = errors[i],
			.all = true,
			.types = 1U << NFS_OP_READDIR | 1U << NFS_OP_READ,
		};
		struct bench b;

		bench_init(&b);
		make_sources(&b);
		fake_nfs_put(b.nfs, "foreign/pvc-1.tar.gz", NFS_TYPE_FILE, NULL);
		for (k = 0; k < ARRAY_SIZE(copies); k++) {
			struct failing_copy copy = {
				.bench = &b,
				.failure = failure,
				.caller = pthread_self(),
			};
			struct error err;

			fake_nfs_watch(b.nfs, watch_failing_copy, &copy);
			err = make_copy(&b, &copies[k]);
			fake_nfs_watch(b.nfs, NULL, NULL);
			fake_nfs_fail(b.nfs, NULL);
			check_that(copies[k].name, "it began", copy.has_begun);
			check_int(copies[k].name, "without its turn", (int)copy.without_turn, 0);
			check_that(copies[k].name, "it fails", err.code != ERROR_OK);
			check_int(copies[k].name, "turns taken", atomic_load(&b.budget.jobs), 0);
		}
		bench_done(&b);
	}
}
END_TEST

/* -------- clones that share blocks -------- */

#define LARGE 2097152 /* more than the data that is copied at once */
#define OFFLOADS (1U << NFS_OP_CLONE | 1U << NFS_OP_COPY)

/* Count what is read from files: nothing, where the server clones them. */
static void count_reads(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	unsigned int *reads = data;

	(void)f;
	*reads += op->type == NFS_OP_READ;
}

/* A volume with a large file, on a server that clones files over version 4. */
static void cloning_bench_init(struct bench *b, unsigned int *reads)
{
	static const struct fake_habits habits = { .offload = NFS_OFFLOAD_CLONE };
	char server[] = "s", share[] = "/e";
	const struct nfs_export e = { .server = server, .share = share };

	bench_init(b);
	fake_nfs_habits(b->nfs, &habits);
	check_ok("volume", create_volume(b, "pvc-1", NULL, NULL));
	fake_nfs_write(b->nfs, "pvc-1/file", LARGE, "data", 4);
	nfs_pool_drop(b->driver.pool, &e);
	*reads = 0;
	fake_nfs_watch(b->nfs, count_reads, reads);
}

/* Whatever fails once, a clone shares the blocks of its source, or the call fails. */
START_TEST(test_failed_try)
{
	static const struct {
		const char *name;
		struct fake_failure failure;
	} rows[] = {
		{ "lost connection", { .error = -ECONNABORTED, .types = ~OFFLOADS } },
		{ "no answer", { .error = -ETIMEDOUT, .types = ~OFFLOADS } },
		{ "I/O error", { .error = -EIO, .types = ~OFFLOADS } },
		{ "no memory", { .error = -ENOMEM } },
		{ "lost handle", { .error = -ESTALE } },
	};
	unsigned int reads, n, performed;
	struct error err;
	struct bench b;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fake_failure failure = rows[i].failure;

		for (failure.nth = n = 1;; failure.nth = ++n) {
			cloning_bench_init(&b, &reads);
			fake_nfs_fail(b.nfs, &failure);
			err = create_volume(&b, "clone", VOLUME, NULL);
			performed = fake_nfs_operations(b.nfs);
			fake_nfs_fail(b.nfs, NULL);
			if (err.code == ERROR_OK)
				check_int(rows[i].name, "reads", reads, 0);
			bench_done(&b);
			if (performed < n)
				break;
		}
		check_ok(rows[i].name, err);
		check_that(rows[i].name, "operations failed", n > 20);
	}
}
END_TEST

/* Likewise for each connection that cannot be made. */
START_TEST(test_failed_connection)
{
	bool has_failed = true;
	unsigned int reads, n;
	struct error err;
	struct bench b;

	for (n = 0; has_failed; n++) {
		cloning_bench_init(&b, &reads);
		connects_left = n;
		err = create_volume(&b, "clone", VOLUME, NULL);
		has_failed = connects_left > n; /* it has passed 0 */
		connects_left = UINT_MAX;
		if (err.code == ERROR_OK)
			check_int("connection", "reads", reads, 0);
		bench_done(&b);
	}
	check_ok("connection", err);
	check_that("connection", "those of the call and of the try fail", n > 3);
}
END_TEST

/* A server that is too busy for the try may clone files all the same. */
START_TEST(test_busy_server)
{
	static const enum nfs_op_type types[] = { NFS_OP_CREATE, NFS_OP_CLONE };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		const struct fake_failure failure = {
			.nth = 1, .error = -EAGAIN, .types = 1U << types[i], .all = true
		};
		unsigned int reads;
		struct error err;
		struct bench b;

		cloning_bench_init(&b, &reads);
		fake_nfs_fail(b.nfs, &failure);
		err = create_volume(&b, "clone", VOLUME, NULL);
		check_error("busy", &err, ERROR_UNAVAILABLE, "later");
		fake_nfs_fail(b.nfs, NULL);
		check_ok("again", create_volume(&b, "clone", VOLUME, NULL));
		check_int("again", "reads", reads, 0);
		bench_done(&b);
	}
}
END_TEST

/* A server that hangs up on CLONE copies no files, and clones are made all the same. */
START_TEST(test_hangs_up)
{
	static const int errors[] = { -ECONNABORTED, -ETIMEDOUT, -EOPNOTSUPP, -EREMOTEIO };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(errors); i++) {
		const struct fake_failure failure = {
			.nth = 1, .error = errors[i], .types = OFFLOADS, .all = true
		};
		unsigned int reads;
		struct bench b;

		cloning_bench_init(&b, &reads);
		fake_nfs_fail(b.nfs, &failure);
		check_ok(strerror(-errors[i]), create_volume(&b, "clone", VOLUME, NULL));
		check_that(strerror(-errors[i]), "it is read", reads > 0);
		bench_done(&b);
	}
}
END_TEST

/* -------- what version 3 does not show -------- */

/* What a client of version 3 finds under the name of the volume, and what is read. */
struct view {
	const char *name; /* NULL: the volume itself */
	unsigned int reads[5]; /* by version */
};

static void show_other(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct view *view = data;

	(void)f;
	view->reads[op->client->version] += op->type == NFS_OP_READ;
	if (op->client->version == 3 && view->name != NULL && op->type == NFS_OP_LOOKUP &&
	    strcmp(op->name, "pvc-1") == 0)
		((struct nfs_op *)(uintptr_t)op)->name = view->name;
}

/* A copy goes over version 3 if that shows the directory that version 4 does. */
START_TEST(test_hidden_source)
{
	struct view rows[] = { { .name = NULL }, { .name = "underneath" }, { .name = "missing" } };
	size_t i, k;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		for (k = 0; k < ARRAY_SIZE(copies); k++) {
			const char *row = rows[i].name != NULL ? rows[i].name : "shown";
			char path[64];
			struct bench b;

			if (copies[k].snapshot != NULL)
				continue;
			bench_init(&b);
			check_ok(row, create_volume(&b, "pvc-1", NULL, NULL));
			fake_nfs_write(b.nfs, "pvc-1/file", 0, "data", 4);
			fake_nfs_put(b.nfs, "underneath", NFS_TYPE_DIRECTORY, NULL);
			memset(rows[i].reads, 0, sizeof(rows[i].reads));
			fake_nfs_watch(b.nfs, show_other, &rows[i]);
			check_ok(row, make_copy(&b, &copies[k]));
			fake_nfs_watch(b.nfs, NULL, NULL);
			(void)snprintf(path, sizeof(path), "%s%s/file", copies[k].name,
				       copies[k].is_snapshot ? "/pvc-1.tree" : "");
			check_int(row, path, fake_nfs_type(b.nfs, path), NFS_TYPE_FILE);
			check_that(row, "version 3 is used",
				   (rows[i].reads[3] > 0) == (rows[i].name == NULL));
			check_that(row, "version 4 is used",
				   (rows[i].reads[4] > 0) == (rows[i].name != NULL));
			bench_done(&b);
		}
}
END_TEST

/* -------- what killed attempts left -------- */

/* The source is gone by now, so that nobody comes back after this answer. */
START_TEST(test_note_of_killed_attempt)
{
	static const struct copy gone[] = {
		{ "clone", "s#e#pvc-9##" },
		{ "restored", .snapshot = "s#e#snap-9#snap-9#pvc-9" },
		{ "snapshot", "s#e#pvc-9##", .is_snapshot = true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(gone); i++) {
		char note[128];
		struct bench b;
		struct error err;

		bench_init(&b);
		make_sources(&b);
		(void)snprintf(note, sizeof(note), ".csi-nfs/busy/%s~m~%s.1", gone[i].name,
			       store_holder());
		fake_nfs_put(b.nfs, note, NFS_TYPE_SYMLINK, "v=1");
		err = make_copy(&b, &gone[i]);
		check_error(gone[i].name, &err, ERROR_NOT_FOUND, "-9");
		check_int(gone[i].name, "the note", fake_nfs_type(b.nfs, note), NFS_TYPE_UNKNOWN);
		bench_done(&b);
	}
}
END_TEST

/* -------- trees around their copies -------- */

START_TEST(test_share_in_source)
{
	struct error err;
	struct bench b;
	char path[32];
	size_t i;

	/* By another name of the server, which has the same address. */
	bench_init(&b);
	fake_nfs_put(b.nfs, "e/file", NFS_TYPE_FILE, NULL);
	err = create_volume(&b, "clone", "t##e##", NULL);
	check_error("another name", &err, ERROR_FAILED_PRECONDITION, "lies in the directory");
	bench_done(&b);

	/* By another path, so that the reader has to find out. */
	bench_init(&b);
	/* More names before it than are read ahead: the copy is begun before its folder is read. */
	for (i = 0; i < 2000; i++) {
		(void)snprintf(path, sizeof(path), "top/%zu", i);
		fake_nfs_put(b.nfs, path, NFS_TYPE_FILE, NULL);
	}
	fake_nfs_put(b.nfs, "top/share", NFS_TYPE_DIRECTORY, NULL);
	nested = b.nfs;
	err = create_volume(&b, "clone", "s#x#top##", NULL);
	check_error("another path", &err, ERROR_FAILED_PRECONDITION,
		    "made in 'share/.csi-nfs/work'");
	check_int("another path", "record",
		  fake_nfs_type(b.nfs, "top/share/.csi-nfs/volumes/clone"), NFS_TYPE_UNKNOWN);
	nested = NULL;
	bench_done(&b);
}
END_TEST

static void setup(void)
{
	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
	fake_nfs_whole_max = NFS_WHOLE_MAX; /* version 4 */
}

#define WORKERS (3 * NFS_SERVER_PLACES)

/* Many servers leave little to others, but a copy needs no more than the worker that it has. */
START_TEST(test_places_of_copies)
{
	struct nfs_client *held[WORKERS - 2];
	char server[16], share[] = "/e";
	const struct nfs_export e = { .server = server, .share = share };
	struct bench b;
	size_t i;

	bench_init(&b);
	make_sources(&b);
	for (i = 0; i < ARRAY_SIZE(held); i++) {
		(void)snprintf(server, sizeof(server), "busy-%zu", i);
		check_int(server, "lease", nfs_pool_lease(b.driver.pool, &e, &held[i], NULL), 0);
	}
	for (i = 0; i < ARRAY_SIZE(copies); i++)
		check_ok(copies[i].name, make_copy(&b, &copies[i]));
	for (i = 0; i < ARRAY_SIZE(held); i++)
		nfs_pool_return(b.driver.pool, held[i]);
	bench_done(&b);
}
END_TEST

CHECK_MAIN("copies", .setup = setup,
	   .tests = {
		   test_turns,
		   test_turns_of_servers,
		   test_turn_between_full_servers,
		   test_turns_of_failures,
		   test_failed_try,
		   test_failed_connection,
		   test_busy_server,
		   test_places_of_copies,
		   test_hangs_up,
		   test_hidden_source,
		   test_note_of_killed_attempt,
		   test_share_in_source,
	   })
