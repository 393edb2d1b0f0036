/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake/nfs.h"
#include "net/address.h"
#include "net/breaker.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/users.h"
#include "store/volume.h"
#include "tree/work.h"
#include "store/purge_share.h"
#include "check_util.h"

#define FILES 50
#define TRASH NFS_STATE_DIR "/trash"
#define PATIENCE_S 60
#define STRANGER 4321
#define POKE "poke" /* a server that is gone */
#define DEAD "dead" /* one that keeps whoever asks it */
#define AWAY "away" /* one that is gone at first */
#define UNNAMED "unnamed" /* one whose name has no address at first */

/* By how much the monotonic clock is wrong: a purge that lasts has not to be waited for. */
static _Atomic int64_t later_s;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = check_real_clock(id, ts);

	if (id == CLOCK_MONOTONIC)
		ts->tv_sec += atomic_load(&later_s);
	return r;
}

/* What the purger has said. */
static struct {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned int progress; /* reports while it went on */
	unsigned int ends; /* and of attempts that were over */
	uint64_t files, directories, ms;
	unsigned int left_events; /* reports of what stays */
	uint64_t failed, left;
	char name[64], share[64];
	struct error err;
} said = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void note(const struct purger_report *report)
{
	if (strcmp(report->export->server, POKE) == 0)
		return;
	pthread_mutex_lock(&said.lock);
	if (report->event == PURGE_LEFT) {
		said.left_events++;
	} else if (report->event == PURGE_GOES_ON) {
		said.progress++;
		(void)snprintf(said.name, sizeof(said.name), "%s", report->name);
	} else {
		said.ends++;
	}
	(void)snprintf(said.share, sizeof(said.share), "%s", report->export->share);
	said.files = report->files;
	said.directories = report->directories;
	said.failed = report->failed;
	said.left = report->left;
	said.ms = report->ms;
	if (report->err != NULL)
		said.err = *report->err;
	pthread_cond_signal(&said.changed);
	pthread_mutex_unlock(&said.lock);
}

/* Purges the share until the first attempt is over. */
static void purge(const char *row, struct fake_nfs *f)
{
	char server[] = "fake", share[] = "/share";
	struct nfs_export e = { .server = server, .share = share };
	struct timespec until;
	struct nfs_pool *pool;
	struct purger *p;

	nfs_export_set_own(&e);
	said.progress = said.ends = 0;
	error_clear(&said.err);
	fake_nfs_serve(f);
	ck_assert(nfs_pool_new(&pool, fake_nfs_connect_fn, 0) == 0);
	ck_assert(purger_new(&p, pool, note) == 0);
	ck_assert(purger_add(p, &e) == 0);
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	pthread_mutex_lock(&said.lock);
	while (said.ends == 0)
		if (pthread_cond_timedwait(&said.changed, &said.lock, &until) == ETIMEDOUT)
			break;
	pthread_mutex_unlock(&said.lock);
	purger_free(p);
	nfs_pool_free(pool);
	check_int(row, "ends", said.ends, 1);
	check_str(row, "share", said.share, "/share");
	check_that(row, "time", said.ms > 0);
}

static struct fake_nfs *share_new(void)
{
	struct fake_nfs *f = fake_nfs_new();
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), TRASH "/gone.1.2.3/in/%u", i);
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	}
	return f;
}

START_TEST(test_done)
{
	struct fake_nfs *f = share_new();

	purge("done", f);
	check_int("done", "progress", said.progress, 0);
	check_int("done", "files", said.files, FILES);
	check_int("done", "directories", said.directories, 2);
	check_int("done", "error", said.err.code, ERROR_OK);
	fake_nfs_free(f);
}
END_TEST

#define TEN "0123456789"
#define LONG_PATH TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

/* Format the name that a deletion gave a directory so long ago. */
static void make_unchecked_name(char name[NFS_NAME_MAX + 1], const char *key, uint64_t age_s)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)snprintf(name, NFS_NAME_MAX + 1, "%s.%llx.1.h2", key,
		       (unsigned long long)(((uint64_t)now.tv_sec - age_s) * CLOCK_NS_PER_S));
}

#define RETAINED "~retain" /* instead of a record: a deleted volume has retained the directory */

/* The record of a snapshot, or of a volume with a directory of its name or, with its notes, dir. */
static void put_record(struct fake_nfs *f, const char *record, const char *dir)
{
	const char *name;
	struct nfs_client *c;
	char path[64], text[64];
	bool unused;

	if (strcmp(record, RETAINED) == 0) {
		c = fake_nfs_connect(f);
		check_int(record, "note", users_add_policy(c, dir, ON_DELETE_RETAIN, NULL), 0);
		nfs_client_free(c);
		return;
	}
	name = strchr(record, '/') + 1;
	(void)snprintf(path, sizeof(path), NFS_STATE_DIR "/%s", record);
	(void)snprintf(text, sizeof(text), "v=1;name=%s;dir=%s", name, dir != NULL ? dir : name);
	fake_nfs_put(f, path, NFS_TYPE_SYMLINK, text);
	if (dir == NULL)
		return;
	c = fake_nfs_connect(f);
	check_int(record, "notes", users_add(c, name, dir, &unused, NULL), 0);
	nfs_client_free(c);
}

/*
 * For a minute an unchecked entry belongs to the deletion that moved it. Then its user gets it
 * back, and an entry without a user is purged after a day.
 */
START_TEST(test_unchecked)
{
	static const struct {
		const char *name;
		const char *path; /* that it was moved from */
		uint64_t age_s;
		const char *record; /* of who has the directory; NULL: nobody */
		const char *other; /* a file of the share, or NULL */
		enum { STAYS, GOES, IS_BACK, FAILS } end;
		const char *dir; /* of the record; NULL: as its name */
	} rows[] = {
		{ "nobody's, new", "pvc-1", 10, NULL, NULL, STAYS },
		{ "nobody's, old", "pvc-1", 7200, NULL, NULL, STAYS },
		{ "nobody's, after a day", "pvc-1", 90000, NULL, NULL, GOES },
		{ "a volume's, new", "pvc-1", 10, "volumes/pvc-1", NULL, STAYS },
		{ "a volume's", "pvc-1", 120, "volumes/pvc-1", NULL, IS_BACK },
		{ "a volume's, after a day", "pvc-1", 90000, "volumes/pvc-1", NULL, IS_BACK },
		{ "a snapshot's", "snap", 120, "snapshots/snap", NULL, IS_BACK },
		{ "in a snapshot, escaped", "snap/a%b", 120, "snapshots/snap", "snap/file",
		  IS_BACK },
		{ "in one that is gone", "snap/a%b", 90000, "snapshots/snap", NULL, STAYS },
		{ "a volume's, without the directory above", "team/pvc-1", 120, "volumes/pvc-1",
		  NULL, IS_BACK, "team/pvc-1" },
		{ "being deleted", "pvc-1", 90000, "volumes/pvc-1",
		  ".csi-nfs/busy/pvc-1~d~00000000000000aa.1", STAYS },
		{ "made anew", "pvc-1", 90000, "volumes/pvc-1", "pvc-1/new", FAILS },
		{ "an archive", "archived-pvc-1", 120, NULL, NULL, IS_BACK },
		{ "an archive, new", "archived-pvc-1", 10, NULL, NULL, STAYS },
		{ "an archive below", "archived-team/pvc-1", 90000, NULL, NULL, IS_BACK },
		{ "a replaced archive", "archived-pvc-1", 120, NULL, "archived-pvc-1/new", STAYS },
		{ "a replaced archive, after a day", "archived-pvc-1", 90000, NULL,
		  "archived-pvc-1/new", GOES },
		{ "of a long path", LONG_PATH, 120, NULL, NULL, FAILS },
		{ "retained", "team", 90000, RETAINED, NULL, IS_BACK, "team" },
		{ "retained in it", "team", 90000, RETAINED, NULL, IS_BACK, "team/file" },
		{ "in a retained one", "team/pvc-1", 90000, RETAINED, NULL, IS_BACK, "team" },
		{ "retained in it, and gone", "team", 90000, RETAINED, NULL, GOES, "team/gone" },
		{ "retained, and made anew", "team", 90000, RETAINED, "team/new", FAILS, "team" },
		{ "retained in it, and made anew", "team", 90000, RETAINED, "team/new", FAILS,
		  "team/file" },
		{ "in a retained one, and made anew", "team/pvc-1", 90000, RETAINED,
		  "team/pvc-1/new", FAILS, "team" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		char key[RECORD_NAME_MAX + 1], cut[STORE_TRASH_KEY_MAX + 1];
		char name[NFS_NAME_MAX + 1], back[512];
		char path[NFS_NAME_MAX + sizeof(TRASH) + 8];
		struct fake_nfs *f = share_new();

		path_key(key, rows[i].path, strlen(rows[i].path));
		store_trash_key(cut, key);
		make_unchecked_name(name, cut, rows[i].age_s);
		check_that(rows[i].name, name, store_trash_name_is_unchecked(name));
		check_that(rows[i].name, "its key", store_trash_name_is_of(name, key));
		(void)snprintf(path, sizeof(path), TRASH "/%s/file", name);
		(void)snprintf(back, sizeof(back), "%s/file", rows[i].path);
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
		if (rows[i].record != NULL)
			put_record(f, rows[i].record, rows[i].dir);
		if (rows[i].other != NULL)
			fake_nfs_put(f, rows[i].other, NFS_TYPE_FILE, NULL);
		purge(rows[i].name, f);
		check_int(rows[i].name, "files", said.files, FILES + (rows[i].end == GOES));
		check_int(rows[i].name, "in the trash", fake_nfs_type(f, path),
			  rows[i].end == STAYS || rows[i].end == FAILS ? NFS_TYPE_FILE
								       : NFS_TYPE_UNKNOWN);
		check_int(rows[i].name, "back", fake_nfs_type(f, back),
			  rows[i].end == IS_BACK ? NFS_TYPE_FILE : NFS_TYPE_UNKNOWN);
		if (rows[i].end == FAILS)
			check_error(rows[i].name, &said.err, ERROR_FAILED_PRECONDITION,
				    rows[i].other != NULL ? "move back what is missing"
							  : "move it back or delete it");
		fake_nfs_free(f);
	}
}
END_TEST

/* Long paths that begin alike have keys of their own. An earlier version only cut them. */
START_TEST(test_long_key)
{
	static const char *const paths[] = { LONG_PATH, LONG_PATH "-1", LONG_PATH "-2" };
	char key[STORE_TRASH_KEY_MAX + 1], name[NFS_NAME_MAX + 1], path[512];
	struct fake_nfs *f = share_new();
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		store_trash_key(key, paths[i]);
		make_unchecked_name(name, key, 120);
		for (j = 0; j < ARRAY_SIZE(paths); j++)
			check_int(paths[i], paths[j], store_trash_name_is_of(name, paths[j]),
				  i == j);
		make_unchecked_name(name, LONG_PATH, 120);
		check_that("cut", paths[i], !store_trash_name_is_of(name, paths[i]));
	}
	(void)snprintf(path, sizeof(path), TRASH "/%s/file", name);
	fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	purge("cut", f);
	check_int("cut", "stays", fake_nfs_type(f, path), NFS_TYPE_FILE);
	check_error("cut", &said.err, ERROR_FAILED_PRECONDITION, "move it back or delete it");
	for (i = STORE_TRASH_KEY_WHOLE - 1; i <= RECORD_NAME_MAX; i++) {
		cleanup_free char *ascii = check_repeat("a", (unsigned int)i);
		cleanup_free char *wide = check_repeat("\xf0\x9f\x98\x80", (unsigned int)i / 4);
		const char *const keys[] = { ascii, wide };

		for (j = 0; j < ARRAY_SIZE(keys); j++) {
			store_trash_key(key, keys[j]);
			check_int(keys[j], "is whole", strlen(key) <= STORE_TRASH_KEY_WHOLE,
				  strlen(keys[j]) <= STORE_TRASH_KEY_WHOLE);
			check_that(keys[j], key, str_is_utf8(key, strlen(key)));
		}
	}
	fake_nfs_free(f);
}
END_TEST

/* With --delete-mode=inline, a deletion purges what it has moved, and nothing of other names. */
START_TEST(test_inline)
{
	static const char other[] = TRASH "/v.old.1.2.3/mount";
	static const struct volume_disposal how = { .purge_now = true };
	static const struct nfs_attr mount = { .is_mount = true };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	struct fake_nfs *f = share_new();
	struct nfs_client *c = fake_nfs_connect(f);
	cleanup_free char *list = NULL;
	struct error err = { .code = ERROR_OK };
	bool trashed;

	fake_nfs_put(f, "v/data", NFS_TYPE_FILE, NULL);
	fake_nfs_put(f, other, NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_set(f, other, &mount);
	check_int("inline", "id", volume_id_parse(&id, "fake#share#v##"), 0);
	check_int("inline", "delete", volume_delete(c, &id, &rec, &how, &trashed, &err), 0);
	list = fake_nfs_list(f, NULL);
	check_that("inline", "is purged", strstr(list, "/data\n") == NULL);
	check_int("inline", "another one's", fake_nfs_type(f, other), NFS_TYPE_DIRECTORY);
	nfs_client_free(c);
	fake_nfs_free(f);
}
END_TEST

START_TEST(test_failed)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -EACCES, .all = true, .types = 1U << NFS_OP_RMDIR
	};
	struct fake_nfs *f = share_new();

	fake_nfs_fail(f, &failure);
	purge("failed", f);
	check_int("failed", "files", said.files, FILES);
	check_int("failed", "directories", said.directories, 0);
	check_error("failed", &said.err, ERROR_PERMISSION_DENIED, "'in'");
	fake_nfs_free(f);
}
END_TEST

/* Each removal of a file takes a second. */
static void be_slow(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	(void)f;
	(void)data;
	if (op->type == NFS_OP_REMOVE)
		atomic_fetch_add(&later_s, 1);
}

START_TEST(test_progress)
{
	struct fake_nfs *f = share_new();

	fake_nfs_watch(f, be_slow, NULL);
	purge("progress", f);
	check_int("progress", "reports", said.progress, FILES / TREE_REPORT_S);
	check_str("progress", "name", said.name, "gone.1.2.3");
	check_int("progress", "files", said.files, FILES);
	check_int("progress", "seconds", said.ms / 1000, FILES);
	fake_nfs_free(f);
}
END_TEST

/* -------- several attempts, shares and servers -------- */

/* Who is at the dead server, and whether it lets them go. */
static struct {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	unsigned int inside, most;
	bool open;
} dead = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* false: it keeps whoever asks from now on. */
static void dead_open(bool open)
{
	pthread_mutex_lock(&dead.lock);
	dead.open = open;
	pthread_cond_broadcast(&dead.changed);
	pthread_mutex_unlock(&dead.lock);
}

static atomic_bool is_back, is_crowded;

static int connect_fn(struct nfs_client **ret, const struct nfs_export *e, struct error *err)
{
	if (strcmp(e->server, DEAD) == 0) {
		pthread_mutex_lock(&dead.lock);
		dead.inside++;
		if (dead.inside > dead.most)
			dead.most = dead.inside;
		while (!dead.open)
			(void)pthread_cond_wait(&dead.changed, &dead.lock);
		dead.inside--;
		pthread_mutex_unlock(&dead.lock);
	}
	if (strcmp(e->server, "fake") == 0 ||
	    (is_back && (strcmp(e->server, AWAY) == 0 || strcmp(e->server, UNNAMED) == 0)))
		return fake_nfs_connect_fn(ret, e, err);
	(void)error_set(err, ERROR_UNAVAILABLE, "server '%s' is gone", e->server);
	if (strcmp(e->server, UNNAMED) == 0)
		return -NET_ENAME;
	return is_crowded ? -EUSERS : -EHOSTDOWN;
}

struct bench {
	struct nfs_pool *pool;
	struct purger *purger;
};

static void request(struct bench *b, const char *server_name, unsigned int share_number,
		    int (*request_fn)(struct purger *p, const struct nfs_export *e))
{
	char server[32], share[32];
	struct nfs_export e = { .server = server, .share = share };

	(void)snprintf(server, sizeof(server), "%s", server_name);
	(void)snprintf(share, sizeof(share), "/share%u", share_number);
	nfs_export_set_own(&e);
	ck_assert(request_fn(b->purger, &e) == 0);
}

static void add(struct bench *b, const char *server_name, unsigned int share_number)
{
	request(b, server_name, share_number, purger_add);
}

static void begin(struct bench *b, struct fake_nfs *f)
{
	said.progress = said.ends = said.left_events = 0;
	error_clear(&said.err);
	fake_nfs_serve(f);
	ck_assert(nfs_pool_new(&b->pool, connect_fn, 0) == 0);
	ck_assert(purger_new(&b->purger, b->pool, note) == 0);
}

static void end(struct bench *b, struct fake_nfs *f)
{
	purger_free(b->purger);
	nfs_pool_free(b->pool);
	fake_nfs_free(f);
}

/* Waits for it. The purger's clock may be far ahead of the one that wakes it: it is poked. */
static bool comes(struct bench *b, struct fake_nfs *f, bool (*is_there)(struct fake_nfs *f))
{
	unsigned int i;

	for (i = 0; i < PATIENCE_S * 50; i++) {
		bool there;

		pthread_mutex_lock(&said.lock);
		there = is_there(f);
		pthread_mutex_unlock(&said.lock);
		if (there)
			return true;
		add(b, POKE, 0);
		clock_sleep_ms(20);
	}
	return false;
}

/* Time for what should not come. */
static void pause_a_little(struct bench *b)
{
	unsigned int i;

	for (i = 0; i < 15; i++) {
		add(b, POKE, 0);
		clock_sleep_ms(20);
	}
}

static unsigned int wanted_ends;

static bool has_ended_often(struct fake_nfs *f)
{
	(void)f;
	return said.ends >= wanted_ends;
}

/* Waits until so many attempts are over. */
static bool ends(struct bench *b, struct fake_nfs *f, unsigned int times)
{
	wanted_ends = times;
	return comes(b, f, has_ended_often);
}

static void put_in_trash(struct fake_nfs *f, const char *key, unsigned int n, bool is_stuck)
{
	unsigned int i;

	fake_nfs_put(f, TRASH, NFS_TYPE_DIRECTORY, NULL);
	fake_nfs_set(f, TRASH, &(struct nfs_attr){ .mode = 0777 });
	for (i = 0; i < n; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), TRASH "/%s-%03u.1.2.3/file", key, i);
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
		*strrchr(path, '/') = '\0';
		fake_nfs_set(f, path,
			     &(struct nfs_attr){ .mode = is_stuck ? 0555 : 0777,
						 .uid = is_stuck ? STRANGER : 0 });
	}
}

static size_t entries_of(struct fake_nfs *f, const char *key)
{
	char *list = fake_nfs_list(f, NULL), *at;
	char file[64];
	size_t n = 0;

	(void)snprintf(file, sizeof(file), "/trash/%s-", key);
	for (at = strstr(list, file); at != NULL; at = strstr(at + 1, file))
		n++;
	free(list);
	return (n + 1) / 2; /* the directory, and the file in it, which goes first */
}

#define STUCK 300
#define GONE 700

/* However many there are that cannot be removed: all others are. */
START_TEST(test_fair)
{
	const struct fake_habits habits = { .page = 100,
					    .entries = FAKE_ENTRIES_FULL,
					    .modes = true };
	struct fake_nfs *f = fake_nfs_new();
	struct bench b;

	fake_nfs_habits(f, &habits);
	fake_nfs_squash(f);
	put_in_trash(f, "stuck", STUCK, true);
	put_in_trash(f, "gone", GONE, false);
	begin(&b, f);
	add(&b, "fake", 0);
	check_that("fair", "the first attempt ends", ends(&b, f, 1));
	check_int("fair", "gone", entries_of(f, "gone"), 0);
	check_int("fair", "stuck", entries_of(f, "stuck"), STUCK);
	check_int("fair", "failed", said.failed, STUCK);
	check_int("fair", "left", said.left, STUCK);
	check_error("fair", &said.err, ERROR_PERMISSION_DENIED, "'file'");
	/* They are tried again together, and not before their time, whatever else is asked for. */
	add(&b, "fake", 0);
	pause_a_little(&b);
	check_int("fair", "attempts", said.ends, 1);
	atomic_fetch_add(&later_s, PURGE_RETRY_FIRST_S + 1);
	check_that("fair", "the second attempt ends", ends(&b, f, 2));
	check_int("fair", "failed", said.failed, STUCK);
	atomic_fetch_add(&later_s, PURGE_RETRY_FIRST_S + 1);
	pause_a_little(&b);
	check_int("fair", "attempts", said.ends, 2);
	end(&b, f);
}
END_TEST

/* More than are remembered: they hold up nobody, either. */
START_TEST(test_more_than_remembered)
{
	const struct fake_habits habits = { .page = 100,
					    .entries = FAKE_ENTRIES_FULL,
					    .modes = true };
	const unsigned int many = PURGE_STUCK_MAX + 50;
	struct fake_nfs *f = fake_nfs_new();
	struct bench b;

	fake_nfs_habits(f, &habits);
	fake_nfs_squash(f);
	put_in_trash(f, "stuck", many, true);
	put_in_trash(f, "gone", GONE, false);
	begin(&b, f);
	add(&b, "fake", 0);
	check_that("many", "the first attempt ends", ends(&b, f, 1));
	check_int("many", "gone", entries_of(f, "gone"), 0);
	check_int("many", "failed", said.failed, many);
	check_int("many", "left", said.left, many);
	end(&b, f);
}
END_TEST

static bool is_trash_empty(struct fake_nfs *f)
{
	return entries_of(f, "late") == 0;
}

/* What another process has put there is found. */
START_TEST(test_looks_again)
{
	struct fake_nfs *f = share_new();
	struct bench b;

	begin(&b, f);
	add(&b, "fake", 0);
	check_that("again", "the first attempt ends", ends(&b, f, 1));
	put_in_trash(f, "late", 10, false);
	pause_a_little(&b);
	check_int("again", "not yet", entries_of(f, "late"), 10);
	atomic_fetch_add(&later_s, PURGE_IDLE_S + PURGE_IDLE_S / 4);
	check_that("again", "found", comes(&b, f, is_trash_empty));
	end(&b, f);
}
END_TEST

/* An identity that may not look into the trash, and has put nothing there, is no failure. */
START_TEST(test_refused)
{
	const struct fake_failure failure = {
		.nth = 1, .error = -EACCES, .all = true, .types = 1U << NFS_OP_LOOKUP
	};
	struct fake_nfs *f = share_new();
	struct bench b;

	begin(&b, f);
	fake_nfs_fail(f, &failure);
	request(&b, "fake", 0, purger_note);
	pause_a_little(&b);
	check_that("refused", "it looks", fake_nfs_operations(f) > 0);
	check_int("refused", "reports", said.ends, 0);
	atomic_fetch_add(&later_s, PURGE_RETRY_FIRST_S * 2);
	pause_a_little(&b);
	check_int("refused", "reports of the second attempt", said.ends, 0);
	add(&b, "fake", 0);
	check_that("refused", "reported", ends(&b, f, 1));
	check_error("refused", &said.err, ERROR_PERMISSION_DENIED, "");
	fake_nfs_fail(f, NULL);
	atomic_fetch_add(&later_s, PURGE_RETRY_FIRST_S * 10);
	check_that("refused", "purged", ends(&b, f, 2));
	check_int("refused", "files", said.files, FILES);
	end(&b, f);
}
END_TEST

static bool has_left(struct fake_nfs *f)
{
	(void)f;
	return said.left_events > 0;
}

/* What is mounted in a deleted volume is told of once, and rarely looked at. */
START_TEST(test_border)
{
	const struct fake_habits habits = { .page = 100, .entries = FAKE_ENTRIES_FULL };
	struct fake_nfs *f = share_new();
	struct bench b;
	unsigned int i, operations;

	fake_nfs_habits(f, &habits);
	fake_nfs_put(f, TRASH "/gone.1.2.3/mounted/canary", NFS_TYPE_FILE, NULL);
	fake_nfs_set(f, TRASH "/gone.1.2.3/mounted", &(struct nfs_attr){ .mode = 0755, .fsid = 2 });
	begin(&b, f);
	add(&b, "fake", 0);
	check_that("border", "told", comes(&b, f, has_left));
	check_that("border", "the first attempt ends", ends(&b, f, 1));
	check_int("border", "left", said.left, 1);
	check_int("border", "failed", said.failed, 0);
	fake_nfs_fail(f, NULL); /* counts from here */
	for (i = 0; i < 6; i++) {
		atomic_fetch_add(&later_s, PURGE_IDLE_S + PURGE_IDLE_S / 4);
		pause_a_little(&b);
	}
	operations = fake_nfs_operations(f);
	check_that("border", "looks", operations >= 6 && operations <= 6 * 4);
	for (i = 0; i < 6; i++) {
		atomic_fetch_add(&later_s, PURGE_RETRY_BORDER_S);
		pause_a_little(&b);
	}
	check_that("border", "tries", fake_nfs_operations(f) >= operations + 6 * 3);
	check_int("border", "told", said.left_events, 1);
	check_int("border", "canary", fake_nfs_type(f, TRASH "/gone.1.2.3/mounted/canary"),
		  NFS_TYPE_FILE);
	/* Unmounted, it goes. */
	fake_nfs_set(f, TRASH "/gone.1.2.3/mounted", &(struct nfs_attr){ .mode = 0755, .fsid = 1 });
	atomic_fetch_add(&later_s, PURGE_RETRY_BORDER_S + 1);
	check_that("border", "the next attempt ends", ends(&b, f, 2));
	check_int("border", "tree", fake_nfs_type(f, TRASH "/gone.1.2.3"), NFS_TYPE_UNKNOWN);
	end(&b, f);
}
END_TEST

#define DEAD_SHARES 30

/* A server that keeps whoever asks it keeps one thread, and no other server. */
START_TEST(test_dead_server)
{
	struct fake_nfs *f = share_new();
	struct bench b;
	unsigned int i;

	dead.most = 0;
	dead_open(false);
	begin(&b, f);
	for (i = 0; i < DEAD_SHARES; i++)
		add(&b, DEAD, i);
	clock_sleep_ms(300);
	add(&b, "fake", 0);
	check_that("dead", "the other one is purged", ends(&b, f, 1));
	check_int("dead", "files", said.files, FILES);
	pthread_mutex_lock(&dead.lock);
	check_int("dead", "threads", dead.most, 1);
	pthread_mutex_unlock(&dead.lock);
	dead_open(true);
	end(&b, f);
}
END_TEST

/* Fails so often that the pauses have grown to more than what is waited for here. */
static void fail_often(struct bench *b, struct fake_nfs *f, const char *server)
{
	unsigned int i;

	add(b, server, 0);
	for (i = 0; i < 6; i++) {
		check_that(server, "it fails", ends(b, f, i + 1));
		atomic_fetch_add(&later_s, PURGE_RETRY_FIRST_S << (i + 1));
	}
	check_that(server, "it fails once more", ends(b, f, i + 1));
}

/* A call reaches the server, after the longest time in which none is let through. */
static void reach(struct bench *b, const char *server_name)
{
	char server[32], share[] = "/share";
	const struct nfs_export e = { .server = server, .share = share };
	struct nfs_client *c = NULL;

	(void)snprintf(server, sizeof(server), "%s", server_name);
	check_int(server, "a call", nfs_pool_lease(b->pool, &e, &c, NULL), 0);
	nfs_pool_return(b->pool, c);
	request(b, server, 0, purger_note);
}

/* The pauses have grown while the server was gone. A call that reaches it shortens the last one. */
START_TEST(test_back)
{
	static const char *const servers[] = { AWAY, UNNAMED };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(servers); i++) {
		struct fake_nfs *f = share_new();
		struct bench b;

		is_back = is_crowded = false;
		begin(&b, f);
		fail_often(&b, f, servers[i]);
		is_back = true;
		atomic_fetch_add(&later_s, NET_BREAKER_NAME_LAST_MS / 1000);
		pause_a_little(&b);
		check_int(servers[i], "not yet", said.ends, wanted_ends);
		reach(&b, servers[i]);
		check_that(servers[i], "purged", ends(&b, f, wanted_ends + 1));
		check_int(servers[i], "files", said.files, FILES);
		end(&b, f);
	}
}
END_TEST

/* A call comes through while an attempt is under way, which fails. */
START_TEST(test_back_meanwhile)
{
	struct fake_nfs *f = share_new();
	struct bench b;
	bool is_inside = false;

	is_back = is_crowded = false;
	dead_open(true);
	begin(&b, f);
	fail_often(&b, f, DEAD);
	atomic_fetch_add(&later_s, NET_BREAKER_OFTEN_MS / 1000); /* or nobody is let through */
	dead_open(false);
	add(&b, DEAD, 0);
	while (!is_inside) {
		pthread_mutex_lock(&dead.lock);
		is_inside = dead.inside > 0;
		pthread_mutex_unlock(&dead.lock);
		add(&b, POKE, 0);
		clock_sleep_ms(5);
	}
	request(&b, DEAD, 0, purger_note);
	dead_open(true);
	check_that("meanwhile", "it fails", ends(&b, f, wanted_ends + 1));
	atomic_fetch_add(&later_s, PURGE_RETRY_REACHED_S);
	check_that("meanwhile", "it is tried soon", ends(&b, f, wanted_ends + 1));
	end(&b, f);
}
END_TEST

/* A server that has no place for one more connection is not gone: calls change nothing. */
START_TEST(test_crowd)
{
	struct fake_nfs *f = share_new();
	struct bench b;

	is_back = false;
	is_crowded = true;
	begin(&b, f);
	fail_often(&b, f, AWAY);
	request(&b, AWAY, 0, purger_note);
	atomic_fetch_add(&later_s, PURGE_RETRY_REACHED_S);
	pause_a_little(&b);
	check_int("crowd", "not yet", said.ends, wanted_ends);
	end(&b, f);
}
END_TEST

#define OTHERS 20
/* Each takes half a second of the test's clock, and Check cannot tell a test of 2,147 seconds. */
#define ENDLESS_MAX 4000

/* A directory that somebody fills faster than it is emptied, as long as there are others. */
struct endless {
	atomic_uint filled; /* files that were put there */
	atomic_uint gone; /* other directories that were removed */
};

static void refill(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct endless *e = data;
	char path[64];
	unsigned int i;

	if (op->type == NFS_OP_RMDIR && strncmp(op->name, "other-", 6) == 0)
		atomic_fetch_add(&e->gone, 1);
	if (op->type != NFS_OP_REMOVE || atomic_load(&e->filled) > ENDLESS_MAX ||
	    atomic_load(&e->gone) >= OTHERS)
		return;
	atomic_fetch_add(&later_s, 1);
	for (i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), TRASH "/endless-000.1.2.3/more-%u",
			       atomic_fetch_add(&e->filled, 1));
		fake_nfs_put(f, path, NFS_TYPE_FILE, NULL);
	}
}

static bool is_rest_gone(struct fake_nfs *f)
{
	return entries_of(f, "other") == 0;
}

/* A directory without an end gets its turns, as others do. */
START_TEST(test_turns)
{
	struct fake_nfs *f = fake_nfs_new();
	struct endless e = { 0 };
	struct bench b;

	put_in_trash(f, "endless", 1, false);
	put_in_trash(f, "other", OTHERS, false);
	fake_nfs_watch(f, refill, &e);
	begin(&b, f);
	add(&b, "fake", 0);
	check_that("turns", "others go", comes(&b, f, is_rest_gone));
	check_int("turns", "others", atomic_load(&e.gone), OTHERS);
	check_that("turns", "and it was still being filled", atomic_load(&e.filled) <= ENDLESS_MAX);
	check_that("turns", "it had its turn", atomic_load(&e.filled) > PURGE_TURN_S / 2);
	end(&b, f);
}
END_TEST

CHECK_MAIN("tree/purge", .tests = {
				 test_done,
				 test_unchecked,
				 test_long_key,
				 test_inline,
				 test_failed,
				 test_progress,
				 test_fair,
				 test_more_than_remembered,
				 test_looks_again,
				 test_refused,
				 test_border,
				 test_dead_server,
				 test_back,
				 test_back_meanwhile,
				 test_crowd,
				 test_turns,
			 })
