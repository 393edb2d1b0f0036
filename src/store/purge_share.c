/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/purge_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "net/address.h"
#include "nfs/error.h"
#include "store/unchecked.h"
#include "store/layout.h"

#define BATCH_MAX 64 /* names taken from the trash at a time */

int purge_share_init(struct purge_share *s, const struct nfs_export *e)
{
	*s = (struct purge_share){ .has_work = false };
	return nfs_export_copy(&s->export, e);
}

void purge_share_done(struct purge_share *s)
{
	nfs_export_done(&s->export);
	free(s->stuck);
}

/* Give or take a fifth, so that processes started together do not ask the server together. */
static uint64_t in_about(uint64_t now, unsigned int seconds)
{
	return now + seconds * CLOCK_NS_PER_S / 100 * (80 + (now >> 10) % 41);
}

static uint32_t next_pause(uint32_t pause_s)
{
	if (pause_s == 0)
		return PURGE_RETRY_FIRST_S;
	return pause_s * 2 > PURGE_RETRY_LAST_S ? PURGE_RETRY_LAST_S : pause_s * 2;
}

static void report_event(const struct purge_share *s, const struct purge_turn *turn,
			 enum purger_event event, const char *name, const struct error *err)
{
	const struct purger_report r = {
		.event = event,
		.export = &s->export,
		.name = name,
		.files = s->stats.files,
		.directories = s->stats.directories,
		.failed = s->failed,
		.left = s->n_stuck + s->untold,
		.ms = (clock_now_ns() - s->started_ns) / CLOCK_NS_PER_MS + 1,
		.err = err,
	};

	if (turn->report != NULL)
		turn->report(&r);
}

/* -------- entries that are stuck -------- */

static uint64_t name_hash(const char *name)
{
	return str_hash(name, strlen(name));
}

static struct purge_stuck *find_stuck(struct purge_share *s, const char *name)
{
	const uint64_t hash = name_hash(name);
	size_t i;

	for (i = 0; i < s->n_stuck; i++)
		if (s->stuck[i].name == hash)
			return &s->stuck[i];
	return NULL;
}

static struct purge_stuck *add_stuck(struct purge_share *s, const char *name)
{
	if (s->n_stuck >= PURGE_STUCK_MAX)
		return NULL;
	if (s->stuck == NULL)
		s->stuck = calloc(PURGE_STUCK_MAX, sizeof(*s->stuck));
	if (s->stuck == NULL)
		return NULL;
	s->stuck[s->n_stuck] = (struct purge_stuck){ .name = name_hash(name) };
	return &s->stuck[s->n_stuck++];
}

/* Remember an entry as stuck. Return whether it is worth a report of its own. */
static bool remember_stuck(struct purge_share *s, const char *name, bool is_border)
{
	struct purge_stuck *stuck = find_stuck(s, name);
	bool is_news = stuck == NULL || stuck->is_border != is_border;

	if (stuck == NULL)
		stuck = add_stuck(s, name);
	if (stuck == NULL) {
		s->untold++;
		return false;
	}
	stuck->is_border = is_border;
	stuck->pause_s =
		is_border ? PURGE_RETRY_BORDER_S : next_pause(is_news ? 0 : stuck->pause_s);
	stuck->due_ns = clock_now_ns() + stuck->pause_s * CLOCK_NS_PER_S;
	stuck->tried = stuck->seen = true;
	return is_news && is_border;
}

static void forget_stuck(struct purge_share *s, const char *name)
{
	struct purge_stuck *stuck = find_stuck(s, name);

	if (stuck != NULL)
		*stuck = s->stuck[--s->n_stuck];
}

/*
 * At the end of a round, forget the entries that are gone, and start the pauses of those that were
 * tried together. Return when the first one is due.
 */
static uint64_t settle_stuck(struct purge_share *s, uint64_t now)
{
	uint64_t first = UINT64_MAX;
	size_t i = 0;

	while (i < s->n_stuck) {
		struct purge_stuck *stuck = &s->stuck[i];

		if (!stuck->seen) {
			*stuck = s->stuck[--s->n_stuck];
			continue;
		}
		if (stuck->tried)
			stuck->due_ns = now + stuck->pause_s * CLOCK_NS_PER_S;
		if (stuck->due_ns < first)
			first = stuck->due_ns;
		stuck->tried = stuck->seen = false;
		i++;
	}
	if (s->n_stuck == 0) {
		free(s->stuck);
		s->stuck = NULL;
	}
	return first;
}

/* -------- a page of the trash -------- */

struct batch {
	struct purge_share *share;
	const struct purge_turn *turn;
	struct {
		char *name;
		uint64_t cookie;
	} entries[BATCH_MAX];
	size_t n;
	uint64_t cookie; /* of the last entry that was looked at */
	bool is_cut; /* the page had more entries than there was room for */
	int error;
};

/* Only the identity that deleted something can remove it. */
static int add_to_batch(struct batch *batch, const struct nfs_entry *entry)
{
	struct nfs_export owner = batch->share->export;

	if (store_trash_name_is_unchecked(entry->name) &&
	    store_trash_name_age_s(entry->name) < STORE_UNCHECKED_CHECK_S)
		return 0;
	store_trash_identity(entry->name, &owner);
	if (!nfs_export_is_equal(&owner, &batch->share->export)) {
		/* If the purger has no room, the next round tells it again. */
		(void)batch->turn->note(batch->turn->data, &owner);
		return 0;
	}
	batch->entries[batch->n].name = strdup(entry->name);
	if (batch->entries[batch->n].name == NULL)
		return -ENOMEM;
	batch->entries[batch->n++].cookie = entry->cookie;
	return 0;
}

static void entry_found(struct nfs_op *op, const struct nfs_entry *entry)
{
	struct batch *batch = op->data;

	if (batch->n == BATCH_MAX || batch->error < 0) {
		batch->is_cut = true;
		return;
	}
	batch->error = add_to_batch(batch, entry);
	batch->cookie = entry->cookie;
}

/* Return 1 if there may be more, 0 at the end, or a negative errno. */
static int read_page(struct purge_share *s, struct nfs_client *c, const struct nfs_handle *trash,
		     struct batch *batch)
{
	struct nfs_op op = {
		.type = NFS_OP_READDIR,
		.dir = trash,
		.cookie = s->cookie,
		.entry = entry_found,
		.data = batch,
	};
	const uint64_t before = s->cookie;
	int r;

	memcpy(op.verifier, s->verifier, sizeof(op.verifier));
	r = nfs_client_call(c, &op);
	if (r < 0)
		return r;
	if (batch->error < 0)
		return batch->error;
	memcpy(s->verifier, op.verifier, sizeof(s->verifier));
	s->cookie = batch->is_cut ? batch->cookie : op.cookie;
	if (op.eof && !batch->is_cut)
		return 0;
	return s->cookie != before ? 1 : -EIO; /* the listing neither ends nor advances */
}

/* -------- a turn -------- */

struct turn_work {
	struct purge_share *share;
	const struct purge_turn *turn;
};

static void report_progress(const struct tree_stats *stats, const char *name, void *data)
{
	const struct turn_work *work = data;

	(void)stats; /* they are the share's */
	report_event(work->share, work->turn, PURGE_GOES_ON, name, NULL);
}

/* Remove an entry. An unchecked one goes only after a day without a user. */
static int remove_from_trash(struct purge_share *s, struct nfs_client *c,
			     const struct nfs_handle *trash, const char *name,
			     const struct purge_turn *turn, struct error *err)
{
	int r;

	if (store_trash_name_is_unchecked(name)) {
		r = unchecked_put_back(c, name, err);
		if (r != 0 || store_trash_name_age_s(name) < STORE_UNCHECKED_PURGE_S)
			return r < 0 ? r : 0;
	}
	return tree_remove(c, trash, name, turn->stop, &s->stats, err);
}

/* Return 0, or a negative errno if the turn is over. */
static int remove_entry(struct purge_share *s, struct nfs_client *c, const struct nfs_handle *trash,
			const char *name, const struct purge_turn *turn)
{
	struct purge_stuck *stuck = find_stuck(s, name);
	struct error err = { .code = ERROR_OK };
	int r;

	if (stuck != NULL && stuck->due_ns > clock_now_ns()) {
		stuck->seen = true;
		return 0;
	}
	r = remove_from_trash(s, c, trash, name, turn, &err);
	if (r == -ECANCELED)
		return r;
	if (r == 0) {
		forget_stuck(s, name);
		return 0;
	}
	if (r == -ETIME) {
		s->unfinished = true;
		if (stuck != NULL)
			stuck->seen = true;
		return r;
	}
	if (remember_stuck(s, name, r == -EXDEV))
		report_event(s, turn, PURGE_LEFT, name, &err);
	if (r != -EXDEV) {
		s->failed++;
		if (s->err.code == ERROR_OK)
			s->err = err;
	}
	return c->broken ? -ECONNABORTED : 0;
}

/* Remove the entries of a page. The cookie goes back to the first one that was not tried. */
static int remove_page(struct purge_share *s, struct nfs_client *c, const struct nfs_handle *trash,
		       struct batch *batch)
{
	int r = 0;
	size_t i;

	for (i = 0; i < batch->n; i++) {
		if (r == 0) {
			r = remove_entry(s, c, trash, batch->entries[i].name, batch->turn);
			if (r == 0 && clock_now_ns() >= s->stats.until_ns && i + 1 < batch->n)
				r = -ETIME;
			if (r < 0)
				s->cookie = batch->entries[i].cookie;
		}
		free(batch->entries[i].name);
	}
	return r;
}

/* Return 0 at the end of the round, -ETIME at the end of the turn, else why it cannot go on. */
static int continue_round(struct purge_share *s, struct nfs_client *c,
			  const struct purge_turn *turn)
{
	const struct nfs_handle *trash;
	int more, r;

	r = store_folder(c, STORE_TRASH, false, &trash, &s->err);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	do {
		struct batch batch = { .share = s, .turn = turn, .cookie = s->cookie };

		more = read_page(s, c, trash, &batch);
		s->has_work = s->has_work || batch.n > 0;
		r = remove_page(s, c, trash, &batch);
		if (more < 0 && r == 0)
			r = nfs_error_set(&s->err, c, more, "reading the trash");
		if (more == 0 && r == -ETIME && batch.n > 0 &&
		    s->cookie == batch.entries[batch.n - 1].cookie)
			r = 0; /* it was the last one */
		if (more > 0 && r == 0 && clock_now_ns() >= s->stats.until_ns)
			r = -ETIME;
	} while (more > 0 && r == 0);
	return r;
}

static int continue_with_client(struct purge_share *s, struct nfs_pool *pool,
				const struct purge_turn *turn)
{
	struct error why = { .code = ERROR_OK };
	struct nfs_client *c;
	int r = nfs_pool_lease(pool, &s->export, &c, &why);

	/* A server that has no room for one more call is not away. */
	s->is_away = r == -EHOSTDOWN || r == -EHOSTUNREACH || r == -NET_ENAME;
	if (r < 0) {
		s->err = why;
		return r;
	}
	nfs_pool_spare(pool, c); /* purger threads are not workers */
	r = continue_round(s, c, turn);
	if (r == -ESTALE)
		c->broken = true; /* it holds the handles */
	nfs_pool_return(pool, c);
	return r;
}

static void begin_round(struct purge_share *s)
{
	s->in_round = true;
	s->cookie = 0;
	memset(s->verifier, 0, sizeof(s->verifier));
	s->failed = s->untold = 0;
	error_clear(&s->err);
	/* This round finishes the one before, so both share their statistics. */
	if (s->unfinished)
		return;
	s->stats = (struct tree_stats){ .files = 0 };
	s->started_ns = clock_now_ns();
	s->stats.reported_ns = s->started_ns;
}

/* Drop a round that could not look at all of the trash. */
static uint64_t drop_round(struct purge_share *s, const struct purge_turn *turn)
{
	const bool is_refused = s->err.code == ERROR_PERMISSION_DENIED;

	/*
	 * If there is nothing to purge, report only once that a server is gone, and never that this
	 * identity may not look: it has put nothing there.
	 */
	if (s->has_work || (s->retry_s == 0 && !is_refused))
		report_event(s, turn, PURGE_FAILED, NULL, &s->err);
	s->in_round = false;
	s->unfinished = false;
	s->retry_s = next_pause(s->retry_s);
	return in_about(clock_now_ns(), s->retry_s);
}

static uint64_t end_round(struct purge_share *s, const struct purge_turn *turn)
{
	const uint64_t now = clock_now_ns();
	uint64_t due = settle_stuck(s, now), idle = in_about(now, PURGE_IDLE_S);

	s->in_round = false;
	if (s->failed > 0)
		report_event(s, turn, PURGE_FAILED, NULL, &s->err);
	if (s->unfinished) {
		begin_round(s);
		s->unfinished = false;
		return now;
	}
	s->has_work = s->n_stuck > 0 || s->untold > 0;
	s->retry_s = s->untold > 0 ? next_pause(s->retry_s) : 0;
	if (s->failed == 0 && s->stats.files + s->stats.directories > 0)
		report_event(s, turn, PURGE_DONE, NULL, NULL);
	if (s->untold > 0 && in_about(now, s->retry_s) < due)
		due = in_about(now, s->retry_s);
	return due < idle ? due : idle;
}

uint64_t purge_share_turn(struct purge_share *s, struct nfs_pool *pool,
			  const struct purge_turn *turn)
{
	struct turn_work work = { .share = s, .turn = turn };
	int r;

	if (!s->in_round)
		begin_round(s);
	s->stats.report = report_progress;
	s->stats.data = &work;
	s->stats.until_ns = clock_now_ns() + PURGE_TURN_S * CLOCK_NS_PER_S;
	r = continue_with_client(s, pool, turn);
	s->stats.data = NULL;
	if (r == -ETIME || r == -ECANCELED)
		return clock_now_ns();
	return r < 0 ? drop_round(s, turn) : end_round(s, turn);
}
