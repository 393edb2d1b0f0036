/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Two replicas of the controller on one share, in every order of their NFS operations, up to a
 * number of switches from one to the other. At each switch the replica that was running is paused
 * before its next operation; enum ending says what becomes of it in the end. Then the callers
 * repeat what was not answered OK, as a CO does, and all promises are looked at: data that pods
 * wrote, records, leftovers.
 *
 * A schedule is which replica begins, and after how many of its operations each switch comes. All
 * of them can be run, by running one after the other: the last switch moves on until its replica
 * ends before it, then the one before that.
 *
 *   SCHEDULES_SWITCHES=1 tests/unit/store/test_schedules   one, in every place with every ending
 *   SCHEDULES_SWITCHES=2 ...                               one, and two
 *   SCHEDULES_OF=long ...                                  only scenarios whose names begin so
 *   SCHEDULE="delete and create:1:4,7:dead:hasty" ...      one schedule, and print its operations
 *
 * Replaces store/holder.c, so that each replica has an id of its own.
 */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/busy.h"
#include "store/directory.h"
#include "store/unchecked.h"
#include "store/holder.h"
#include "store/layout.h"
#include "store/path_key.h"
#include "store/snapshot.h"
#include "store/volume.h"
#include "fake/nfs.h"
#include "check_util.h"

#define REPLICAS 2
#define VOLUMES_MAX 4
#define STEPS_MAX 8
#define SWITCHES_MAX 4
#define FILES_MAX 16
#define NO_SWITCH UINT_MAX
#define TWICE_STRIDE 8
#define TWICE_ALL_STRIDE 6
#define THRICE_STRIDE 6
#define INTERRUPTED_STRIDE 5
#define FILES_STRIDE 3
#define INTERRUPTED_FILES_STRIDE 8
#define ROUNDS_MAX 30 /* that callers repeat a call, until it is answered */

/* -------- scenarios -------- */

struct volume_plan {
	const char *key, *dir;
	const char *on_delete; /* NULL: delete */
	const char *existing; /* NULL: not given */
	const char *claim; /* NULL: none */
	const char *mode; /* NULL: not given */
	bool has_source; /* is built in .csi-nfs/work/ */
	bool is_long; /* its record has several parts */
	const char *snapshot_of; /* the directory of which it is a snapshot; NULL: it is a volume */
	bool is_foreign; /* made by csi-driver-nfs, which leaves no record */
	bool replaces_archive; /* its calls have --remove-archived-volume-path */
};

#define FOREIGN .is_foreign = true

/*
 * Scripts are pairs of a call and the number of a volume: c creates it, d deletes it, e expands it,
 * m changes its mode.
 */
struct scenario {
	const char *name;
	struct volume_plan volumes[VOLUMES_MAX];
	const char *before; /* done by one replica, before the others begin */
	const char *scripts[REPLICAS];
	const char *stranger; /* a file of somebody else, or NULL */
	bool may_refuse; /* a creation may be refused for good */
	bool keeps_data; /* a directory may stay: retained, archived, or with data of others */
	bool folds; /* the share folds case */
	bool same_name; /* two volumes have it, so the deletion of one may be refused */
	const char *theirs; /* archive of csi-driver-nfs */
	const char *full; /* the first replica has no room for this directory, until pods write */
	bool both_full; /* neither has the other one */
	bool twice; /* broke with two switches: run some of them, too, not hasty, no files */
	bool twice_all; /* likewise, in few orders: not hasty, and both replicas go on */
	bool thrice; /* broke with three: run some of those, in which both go on, too */
	const char *stays; /* a directory of that name cannot be renamed, so it is emptied there */
	bool idle; /* pods write nothing, so the directories stay empty */
	bool held; /* run schedules in which the server holds a RENAME into the trash, too */
	bool archives; /* the first replica's default policy is archive, the other's is delete */
	bool only_held; /* only those, unless SCHEDULES_SWITCHES asks for all */
};

#define TEN "0123456789"
#define FIFTY TEN TEN TEN TEN TEN
#define LONG_NAME FIFTY FIFTY FIFTY /* its key in the trash is cut */

static const struct scenario scenarios[] = {
	{ "create and create", { { "v0", "v0" } }, "", { "c0", "c0" } },
	{ "create and delete", { { "v0", "v0" } }, "", { "c0", "d0" } },
	{ "delete and delete, then create", { { "v0", "v0" } }, "c0", { "d0", "d0c0" } },
	{ "delete and delete, then create, with subDir", { { "v0", "a" } }, "c0", { "d0", "d0c0" } },
	{ "delete and create", { { "v0", "v0" } }, "c0", { "d0", "c0" } },
	{ "delete, and create in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" } },
	{ "delete, and one that comes and goes in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1d1" } },
	{ "delete and delete, in one directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0c1",
	  { "d0", "d1" } },
	{ "delete and delete, in one directory, one retained",
	  { { "v0", "a", "retain" }, { "v1", "a" } },
	  "c0c1",
	  { "d0", "d1" },
	  NULL,
	  false,
	  true },
	{ "delete and delete, in one directory, one archived",
	  { { "v0", "a", "archive" }, { "v1", "a" } },
	  "c0c1",
	  { "d0", "d1" },
	  NULL,
	  false,
	  true },
	{ "delete, and create beside it",
	  { { "v0", "p/a" }, { "v1", "p/b" } },
	  "c0",
	  { "d0", "c1" } },
	{ "delete, and one that comes and goes beside it",
	  { { "v0", "p/a" }, { "v1", "p/b" } },
	  "c0",
	  { "d0", "c1d1" } },
	{ "create and create, side by side",
	  { { "v0", "p/a" }, { "v1", "p/b" } },
	  "",
	  { "c0", "c1" } },
	{ "two parents, create, and one that goes and comes",
	  { { "v0", "p/q/a" }, { "v1", "p/q/b" } },
	  "",
	  { "c0", "d1c1" } },
	{ "two parents, create, and one that comes, goes and comes",
	  { { "v0", "p/q/a" }, { "v1", "p/q/b" } },
	  "",
	  { "c0", "c1d1c1" } },
	{ "two parents, delete, and one that comes and goes",
	  { { "v0", "p/q/a" }, { "v1", "p/q/b" } },
	  "c0",
	  { "d0", "c1d1" } },
	{ "create, and create in it",
	  { { "v0", "a" }, { "v1", "a/b" } },
	  "",
	  { "c0", "c1" },
	  NULL,
	  false,
	  true },
	{ "delete, and create in it",
	  { { "v0", "a" }, { "v1", "a/b" } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  false,
	  true },
	{ "delete, and create around it", { { "v0", "a/b" }, { "v1", "a" } }, "c0", { "d0", "c1" } },
	{ "delete, and delete around it",
	  { { "v0", "a/b" }, { "v1", "a" } },
	  "c0c1",
	  { "d0", "d1" } },
	{ "delete and replace, in one directory",
	  { { "v0", "a" }, { "v1", "a" }, { "v2", "a" } },
	  "c0c1",
	  { "d0", "d1c2" } },
	{ "delete beside a stranger, and create",
	  { { "v0", "p/a" }, { "v1", "p/b" } },
	  "c0",
	  { "d0", "c1" },
	  "p/stranger" },
	{ "archived, and create in its directory",
	  { { "v0", "a", "archive" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  false,
	  true },
	{ "archived, and created again",
	  { { "v0", "v0", "archive" } },
	  "c0",
	  { "d0", "d0c0" },
	  NULL,
	  false,
	  true },
	{ "retained, and created again",
	  { { "v0", "v0", "retain" } },
	  "c0",
	  { "d0", "d0c0" },
	  NULL,
	  false,
	  true },
	{ "create, and create and retained",
	  { { "v0", "a", "retain" } },
	  "",
	  { "c0", "c0d0" },
	  .keeps_data = true },
	{ "create, and create and retained, without subDir",
	  { { "v0", "v0", "retain" } },
	  "",
	  { "c0", "c0d0" },
	  .keeps_data = true },
	{ "create, and create and archived",
	  { { "v0", "a", "archive" } },
	  "",
	  { "c0", "c0d0" },
	  .keeps_data = true },
	{ "retained, and one that comes and goes in its directory",
	  { { "v0", "a", "retain" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1d1" },
	  NULL,
	  false,
	  true },
	{ "exclusive claims to one directory",
	  { { "v0", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE },
	    { "v1", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c1" },
	  NULL,
	  true },
	{ "exclusive claims to one directory, one by its name",
	  { { "a", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE },
	    { "v1", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c1" },
	  NULL,
	  true },
	{ "exclusive claim, and one that goes",
	  { { "v0", "a" }, { "v1", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  true },
	{ "existingDirectory refuse, twice",
	  { { "v0", "a", NULL, "refuse", VOLUME_CLAIM_SHARED },
	    { "v1", "a", NULL, "refuse", VOLUME_CLAIM_SHARED } },
	  "",
	  { "c0", "c1" },
	  NULL,
	  true },
	{ "existingDirectory refuse, and create",
	  { { "v0", "a", NULL, "refuse", VOLUME_CLAIM_SHARED }, { "v1", "a" } },
	  "",
	  { "c0", "c1" },
	  NULL,
	  true },
	{ "existingDirectory refuse, and one that goes",
	  { { "v0", "a" }, { "v1", "a", NULL, "refuse", VOLUME_CLAIM_SHARED } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  true },
	{ "existingDirectory require, and one that goes",
	  { { "v0", "a" }, { "v1", "a", NULL, "require", VOLUME_CLAIM_SHARED } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  true },
	{ "existingDirectory refuse, the same volume twice",
	  { { "v0", "a", NULL, "refuse", VOLUME_CLAIM_SHARED } },
	  "",
	  { "c0", "c0" } },
	{ "existingDirectory refuse, and its deletion",
	  { { "v0", "a", NULL, "refuse", VOLUME_CLAIM_SHARED } },
	  "",
	  { "c0", "d0" } },
	{ "exclusive claim, the same volume twice",
	  { { "v0", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c0" } },
	{ "exclusive claim, and its deletion and creation",
	  { { "v0", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "d0c0" } },
	{ "with a mode, create and delete and create",
	  { { "v0", "p/a", NULL, NULL, NULL, "0770" } },
	  "c0",
	  { "d0", "d0c0" } },
	{ "archived, and one that comes and goes in its directory",
	  { { "v0", "a", "archive" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1d1" },
	  NULL,
	  false,
	  true },
	{ "archived, and archived in it",
	  { { "v0", "a", "archive" }, { "v1", "a/b", "archive" } },
	  "c0c1",
	  { "d0", "d1" },
	  NULL,
	  false,
	  true },
	{ "archived below a parent, and created again",
	  { { "v0", "p/a", "archive" } },
	  "c0",
	  { "d0", "d0c0" },
	  NULL,
	  false,
	  true },
	{ "archived, twice, side by side",
	  { { "v0", "p/a", "archive" }, { "v1", "p/b", "archive" } },
	  "c0c1",
	  { "d0", "d1" },
	  NULL,
	  false,
	  true },
	{ "two parents, archived, and another one in its place",
	  { { "v0", "p/q/a", "archive" }, { "v1", "p/q/a" } },
	  "c0",
	  { "d0", "d0c1" },
	  NULL,
	  false,
	  true },
	{ "clone in a shared directory, and its deletion",
	  { { "v0", "a", NULL, NULL, NULL, NULL, true } },
	  "",
	  { "c0", "d0" } },
	{ "clone and its own deletion",
	  { { "v0", "v0", NULL, NULL, NULL, NULL, true } },
	  "",
	  { "c0", "d0" } },
	{ "clone and clone", { { "v0", "v0", NULL, NULL, NULL, NULL, true } }, "", { "c0", "c0" } },
	{ "clone, and create in its directory",
	  { { "v0", "a", .has_source = true }, { "v1", "a" } },
	  "",
	  { "c0", "c1" },
	  .may_refuse = true },
	{ "clone, and one that goes",
	  { { "v0", "a" }, { "v1", "a", NULL, NULL, NULL, NULL, true } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  true },
	{ "clone that requires its directory, and one that goes",
	  { { "v0", "a" },
	    { "v1", "a", NULL, "require", VOLUME_CLAIM_SHARED, .has_source = true } },
	  "c0",
	  { "d0", "c1" },
	  .may_refuse = true },
	{ "two defaults, clone, and one that goes",
	  { { "v0", "a" }, { "v1", "a", .has_source = true } },
	  "c0",
	  { "d0", "c1" },
	  .may_refuse = true,
	  .keeps_data = true,
	  .archives = true },
	{ "two defaults, delete, and create in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .keeps_data = true,
	  .archives = true },
	{ "two defaults, delete and delete, then create",
	  { { "v0", "v0" } },
	  "c0",
	  { "d0", "d0c0" },
	  .keeps_data = true,
	  .archives = true },
	{ "two defaults, delete and delete, then require its directory",
	  { { "v0", "a" }, { "v1", "a" }, { "v2", "a", NULL, "require", VOLUME_CLAIM_SHARED } },
	  "c0",
	  { "d0", "d0c1c2c2" },
	  .keeps_data = true,
	  .archives = true,
	  .held = true },
	{ "clone, and its deletion and creation",
	  { { "v0", "a", NULL, NULL, NULL, "0770", true } },
	  "c0",
	  { "d0", "d0c0" } },
	{ "snapshot, twice",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "c1", "c1" } },
	{ "snapshot and its own deletion",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "c1", "d1" } },
	{ "snapshot, deleted twice, and created again",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0c1",
	  { "d1", "d1c1" } },
	{ "snapshot that is there, its deletion and creation",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0c1",
	  { "d1", "c1" },
	  .thrice = true },
	{ "snapshot, and the deletion of its volume",
	  { { "v0", "a" }, { "s0", "s0", .snapshot_of = "a" } },
	  "c0",
	  { "c1", "d0" },
	  NULL,
	  true },
	{ "snapshot and volume, of one directory",
	  { { "v0", "v0" }, { "s0", "a", .snapshot_of = "v0" }, { "v1", "a" } },
	  "c0",
	  { "c1", "c2" },
	  NULL,
	  true },
	{ "snapshot, and a volume in its directory that goes",
	  { { "v0", "v0" }, { "s0", "a", .snapshot_of = "v0" }, { "v1", "a" } },
	  "c0c2",
	  { "d2", "c1" },
	  NULL,
	  true },
	{ "deletion of a snapshot, and a volume in its directory",
	  { { "v0", "v0" }, { "s0", "a", .snapshot_of = "v0" }, { "v1", "a/b" } },
	  "c0c1",
	  { "d1", "c2" },
	  NULL,
	  true },
	{ "their snapshot, twice",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "c1", "c1" },
	  .theirs = "s0/v0.tar.gz" },
	{ "their snapshot, and its deletion",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "c1", "d1" },
	  .theirs = "s0/v0.tar.gz" },
	{ "their snapshot that is known, its deletion and creation",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0c1",
	  { "d1", "c1" },
	  .theirs = "s0/v0.tar.gz" },
	{ "their snapshot, and its deletion and creation",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "c1", "d1c1" },
	  .theirs = "s0/v0.tar.gz" },
	{ "their snapshot, deleted twice, and created again",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0",
	  { "d1", "d1c1" },
	  .theirs = "s0/v0.tar.gz" },
	{ "expand and delete", { { "v0", "v0" } }, "c0", { "e0", "d0" } },
	{ "expand and modify", { { "v0", "v0", NULL, NULL, NULL, "0770" } }, "c0", { "e0", "m0" } },
	{ "expand, and delete and create", { { "v0", "a" } }, "c0", { "e0", "d0c0" } },
	{ "expand, and delete and an exclusive claim to its directory",
	  { { "v0", "a" }, { "v1", "a", .claim = VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "e0", "d0c1" },
	  .may_refuse = true },
	{ "expand, and delete and an exclusive claim around its directory",
	  { { "v0", "a/b" }, { "v1", "a", .claim = VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "e0", "d0c1" },
	  .may_refuse = true },
	{ "modify and delete", { { "v0", "v0", NULL, NULL, NULL, "0770" } }, "c0", { "m0", "d0" } },
	{ "modify, and delete and create",
	  { { "v0", "v0", NULL, NULL, NULL, "0770" } },
	  "c0",
	  { "m0", "d0c0" } },
	{ "long record, delete and create",
	  { { "v0", "v0", NULL, NULL, NULL, NULL, false, true } },
	  "c0",
	  { "d0", "d0c0" } },
	{ "long record, create and delete",
	  { { "v0", "a", NULL, NULL, NULL, NULL, false, true } },
	  "",
	  { "c0", "d0" } },
	{ "long record, expand and delete",
	  { { "v0", "a", NULL, NULL, NULL, NULL, false, true } },
	  "c0",
	  { "e0", "d0" } },
	{ "long record, expand and modify",
	  { { "v0", "a", NULL, NULL, NULL, "0770", false, true } },
	  "c0",
	  { "e0", "m0" } },
	{ "long record, expand, and delete and create",
	  { { "v0", "a", NULL, NULL, NULL, NULL, false, true } },
	  "c0",
	  { "e0", "d0c0" } },
	{ "foreign, delete and delete", { { "v0", "v0", FOREIGN } }, "c0", { "d0", "d0" } },
	{ "foreign, delete and expand", { { "v0", "a", FOREIGN } }, "c0", { "d0", "e0" } },
	{ "foreign, delete and modify", { { "v0", "a", FOREIGN } }, "c0", { "d0", "m0" } },
	{ "foreign, expand and modify", { { "v0", "v0", FOREIGN } }, "c0", { "e0", "m0" } },
	{ "foreign, expand, and delete and an exclusive claim to its directory",
	  { { "v0", "a", FOREIGN }, { "v1", "a", .claim = VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "e0", "d0c1" },
	  .may_refuse = true },
	{ "foreign, expand and delete, twice", { { "v0", "v0", FOREIGN } }, "c0", { "e0d0", "d0" } },
	{ "foreign, delete, and create in its directory",
	  { { "v0", "a", FOREIGN }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" } },
	{ "foreign, delete, and create in it",
	  { { "v0", "a", FOREIGN }, { "v1", "a/b" } },
	  "c0",
	  { "d0", "c1" },
	  NULL,
	  false,
	  true },
	{ "another, of the same name, delete and create",
	  { { "v0", "a" }, { "v0", "b" } },
	  "c0",
	  { "d0", "d0c1" },
	  .may_refuse = true,
	  .same_name = true },
	{ "another, of the same name, expand, and delete and create",
	  { { "v0", "a" }, { "v0", "b" } },
	  "c0",
	  { "e0", "d0c1" },
	  .may_refuse = true,
	  .same_name = true },
	{ "another, of the same name, modify, and delete and create",
	  { { "v0", "a", NULL, NULL, NULL, "0770" }, { "v0", "b" } },
	  "c0",
	  { "m0", "d0c1" },
	  .may_refuse = true,
	  .same_name = true,
	  .twice = true },
	{ "another, of the same name, with a long record, delete and create",
	  { { "v0", "a", NULL, NULL, NULL, NULL, false, true },
	    { "v0", "b", NULL, NULL, NULL, NULL, false, true } },
	  "c0",
	  { "d0", "d0c1" },
	  .may_refuse = true,
	  .same_name = true },
	{ "another, snapshot of the same name, delete and create",
	  { { "s0", "s0", .snapshot_of = "a" },
	    { "s0", "s0", .snapshot_of = "b" },
	    { "v0", "a" },
	    { "v1", "b" } },
	  "c2c3c0",
	  { "d0", "d0c1" },
	  .may_refuse = true,
	  .same_name = true,
	  .twice = true },
	{ "folded, delete, and create in its directory",
	  { { "v0", "A" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .folds = true },
	{ "folded, delete, and one that comes and goes in its directory",
	  { { "v0", "p/A" }, { "v1", "P/a" } },
	  "c0",
	  { "d0", "c1d1" },
	  .folds = true },
	{ "folded, delete, and create in it",
	  { { "v0", "A" }, { "v1", "a/b" } },
	  "c0",
	  { "d0", "c1" },
	  .folds = true,
	  .keeps_data = true },
	{ "folded, names, delete and create",
	  { { "V0", "V0" }, { "v0", "v0" } },
	  "c0",
	  { "d0", "c1" },
	  .folds = true,
	  .may_refuse = true },
	{ "folded, archived, and create in its directory",
	  { { "v0", "A", "archive" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .folds = true,
	  .keeps_data = true },
	{ "folded, clone and clone, of one directory",
	  { { "v0", "A", NULL, NULL, NULL, NULL, true },
	    { "v1", "a", NULL, NULL, NULL, NULL, true } },
	  "",
	  { "c0", "c1" },
	  .folds = true,
	  .may_refuse = true },
	{ "folded, snapshot, and the deletion of its volume",
	  { { "v0", "A" }, { "s0", "s0", .snapshot_of = "a" } },
	  "c0",
	  { "c1", "d0" },
	  .folds = true,
	  .may_refuse = true },
	{ "folded, snapshots of two names, delete and create",
	  { { "v0", "v0" },
	    { "S0", "S0", .snapshot_of = "v0" },
	    { "s0", "s0", .snapshot_of = "v0" } },
	  "c0c1",
	  { "d1", "c2" },
	  .folds = true,
	  .may_refuse = true },
	{ "in place, delete, and create in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .stays = "a" },
	{ "in place, delete, and one that comes and goes in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1d1" },
	  .stays = "a" },
	{ "in place, delete, and create in it",
	  { { "v0", "a" }, { "v1", "a/b" } },
	  "c0",
	  { "d0", "c1" },
	  .keeps_data = true,
	  .stays = "a" },
	{ "in place, delete, and create around it",
	  { { "v0", "a/b" }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .stays = "b" },
	{ "in place, delete and delete, then create",
	  { { "v0", "a" } },
	  "c0",
	  { "d0", "d0c0" },
	  .stays = "a" },
	{ "in place, delete twice, and create in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "d0c1" },
	  .stays = "a" },
	{ "in place, long record, delete, and create in its directory",
	  { { "v0", "a", NULL, NULL, NULL, NULL, false, true }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .stays = "a" },
	{ "in place, expand and delete", { { "v0", "a" } }, "c0", { "e0", "d0" }, .stays = "a" },
	{ "in place, exclusive claim, and one that goes",
	  { { "v0", "a" }, { "v1", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "c1" },
	  .may_refuse = true,
	  .stays = "a" },
	{ "in place, foreign, delete, and create in its directory",
	  { { "v0", "a", FOREIGN }, { "v1", "a" } },
	  "c0",
	  { "d0", "c1" },
	  .stays = "a" },
	{ "in place, snapshot, deleted twice, and created again",
	  { { "v0", "v0" }, { "s0", "s0", .snapshot_of = "v0" } },
	  "c0c1",
	  { "d1", "d1c1" },
	  .stays = "s0" },
	{ "another, of the same name, create beside the deletion",
	  { { "v0", "a" }, { "v0", "b" } },
	  "c0",
	  { "d0", "c1" },
	  .may_refuse = true,
	  .same_name = true },
	{ "delete and delete, then create, and delete another one of the directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0c1",
	  { "d0", "d0c0d1" } },
	{ "create and create, one without room",
	  { { "v0", "a" } },
	  "",
	  { "c0", "c0" },
	  .may_refuse = true,
	  .full = "a" },
	{ "create and create, one without room, below a parent",
	  { { "v0", "p/a" } },
	  "",
	  { "c0", "c0" },
	  .may_refuse = true,
	  .full = "a" },
	{ "create and create, both without room, below two parents",
	  { { "v0", "p/q/a" } },
	  "",
	  { "c0", "c0" },
	  .may_refuse = true,
	  .full = "a",
	  .both_full = true },
	{ "create and create, one without room, long record",
	  { { "v0", "a", .is_long = true } },
	  "",
	  { "c0", "c0" },
	  .may_refuse = true,
	  .full = "a" },
	{ "exclusive claim, the same volume twice, one without room",
	  { { "v0", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c0" },
	  .may_refuse = true,
	  .full = "a" },
	{ "archived, and create in the place of the archive",
	  { { "v0", "a", "archive" }, { "v1", "archived-a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "c1" },
	  .may_refuse = true,
	  .keeps_data = true,
	  .twice_all = true },
	{ "folded, archived, and create in the place of the archive",
	  { { "v0", "A", "archive" }, { "v1", "Archived-a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "c1" },
	  .folds = true,
	  .may_refuse = true,
	  .keeps_data = true,
	  .twice_all = true },
	{ "archived instead of an older archive, which is adopted",
	  { { "v0", "a", "archive", .replaces_archive = true },
	    { "v1", "archived-a", .replaces_archive = true } },
	  "c0",
	  { "d0", "c1" },
	  .theirs = "archived-a/old",
	  .keeps_data = true },
	{ "archived, and a snapshot in the place of the archive",
	  { { "v0", "a", "archive", .replaces_archive = true },
	    { "v1", "v1" },
	    { "archived-a", "archived-a", .snapshot_of = "v1" } },
	  "c0c1",
	  { "d0", "c2" },
	  .may_refuse = true,
	  .keeps_data = true },
	{ "snapshot, and a volume with its directory",
	  { { "v0", "v0" }, { "s0", "a", .snapshot_of = "v0" }, { "v1", "a" } },
	  "c0",
	  { "c1", "c2" },
	  .may_refuse = true,
	  .twice_all = true },
	{ "snapshot, and a volume of the same name",
	  { { "v0", "v0" },
	    { "a", "a", .snapshot_of = "v0" },
	    { "a", "a", .claim = VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "c1", "c2" },
	  .may_refuse = true,
	  .twice_all = true },
	{ "delete and delete, then create in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "d0c1" },
	  .held = true },
	{ "delete and delete, then create, and delete a long name beside it",
	  { { "v0", LONG_NAME "-1" }, { "v1", LONG_NAME "-2" }, { "v2", LONG_NAME "-2" } },
	  "c0c1",
	  { "d1", "d1c2d0d0" },
	  .held = true },
	{ "delete and delete, then create and replace in its directory",
	  { { "v0", "a" }, { "v1", "a" }, { "v2", "a" } },
	  "c0",
	  { "d0", "d0c1c2" },
	  .held = true },
	{ "delete and delete, then create in it, and delete beside it",
	  { { "v0", "p/a" }, { "v1", "p/a/b" }, { "v2", "p/c" } },
	  "c0c2",
	  { "d0", "d0c1d2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "delete and delete, then create twice in it",
	  { { "v0", "a" }, { "v1", "a/b" } },
	  "c0",
	  { "d0", "d0c1c1" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "delete and delete, then create two in it",
	  { { "v0", "p" }, { "v1", "p/q/a" }, { "v2", "p/q/b" } },
	  "c0",
	  { "d0", "d0c1c2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "delete and delete, then create in its directory and in it",
	  { { "v0", "a" }, { "v1", "a" }, { "v2", "a/b" } },
	  "c0",
	  { "d0", "d0c1c2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "delete and delete, then create twice in its directory",
	  { { "v0", "a" }, { "v1", "a" } },
	  "c0",
	  { "d0", "d0c1c1" },
	  .held = true },
	{ "delete and delete, then require its directory",
	  { { "v0", "a" }, { "v1", "a" }, { "v2", "a", NULL, "require", VOLUME_CLAIM_SHARED } },
	  "c0",
	  { "d0", "d0c1c2c2" },
	  .held = true },
	{ "delete and delete, then claim its directory twice",
	  { { "v0", "a" }, { "v1", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "c0",
	  { "d0", "d0c1c1" },
	  .held = true },
	{ "delete and delete, then create and retain in its directory",
	  { { "v0", "a" }, { "v1", "a", "retain" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true },
	{ "late deletion, and archived in its directory",
	  { { "v0", "a" }, { "v1", "a", "archive" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true },
	{ "late deletion, and archived in its directory, without subDir",
	  { { "v0", "a" }, { "a", "a", "archive" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true },
	{ "late deletion, and archived around it, without subDir",
	  { { "v0", "a/b" }, { "a", "a", "archive" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true },
	{ "foreign, late deletion, and archived in it",
	  { { "v0", "a", FOREIGN }, { "v1", "a/b", "archive" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true },
	{ "delete and delete, then create and retain in it",
	  { { "v0", "a" }, { "v1", "a/b", "retain" } },
	  "c0",
	  { "d0", "d0c1d1" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "late deletion, retained in it, and deleted around it",
	  { { "v0", "a" }, { "v1", "a/b", "retain" }, { "v2", "a" } },
	  "c0",
	  { "d0", "d0c2c1d1d2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "late deletion, retained in it, and then taken and deleted",
	  { { "v0", "a" }, { "v1", "a/b", "retain" }, { "v2", "a" } },
	  "c0",
	  { "d0", "d0c1c2d1d2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "late deletion, archived in it, and deleted around it",
	  { { "v0", "a" }, { "v1", "a/b", "archive" }, { "v2", "a" } },
	  "c0",
	  { "d0", "d0c1c2d1d2" },
	  .keeps_data = true,
	  .held = true,
	  .only_held = true },
	{ "idle, create and create", { { "v0", "a" } }, "", { "c0", "c0" }, .idle = true },
	{ "idle, exclusive claim, the same volume twice",
	  { { "v0", "a", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c0" },
	  .idle = true },
	{ "idle, exclusive claim, the same volume twice, without subDir",
	  { { "v0", "v0", NULL, NULL, VOLUME_CLAIM_EXCLUSIVE } },
	  "",
	  { "c0", "c0" },
	  .idle = true },
	{ "idle, existingDirectory refuse, the same volume twice",
	  { { "v0", "a", NULL, "refuse", VOLUME_CLAIM_SHARED } },
	  "",
	  { "c0", "c0" },
	  .idle = true },
};

/* -------- schedules -------- */

/* What becomes of the replica that was paused last. */
enum ending {
	ENDING_GOES_ON,
	ENDING_DEAD,
	ENDING_FAILS, /* its next operation fails with -EIO, then it goes on */
	ENDING_LATE, /* it is dead, but the server performs its next operation, which it had sent */
	ENDING_LOST, /* the reply to its next operation is lost, with the connection */
	ENDINGS,
};

static const char *const ending_names[ENDINGS] = { "", "dead", "fails", "late", "lost" };

struct schedule {
	unsigned int first; /* the replica that begins */
	unsigned int n; /* switches */
	unsigned int after[SWITCHES_MAX]; /* operations before each */
	enum ending ending;
	/*
	 * Each replica takes the other for dead, as after a pause of minutes, and there is a purger
	 * at each switch.
	 */
	bool hasty;
	bool files; /* the share refuses symbolic links, so records are files */
	/*
	 * First of all, the replica that begins runs up to its RENAME into the trash. The server
	 * performs that after the operations of the other replica that after[] counts.
	 */
	bool held;
};

static bool is_interrupted(const struct schedule *schedule)
{
	return schedule->ending != ENDING_GOES_ON;
}

static bool ends_dead(const struct schedule *schedule)
{
	return schedule->ending == ENDING_DEAD || schedule->ending == ENDING_LATE;
}

/* What became of a volume. */
struct fate {
	unsigned int creating, deleting; /* calls under way */
	bool made; /* a creation was answered OK, and no deletion has begun since */
	bool unsure; /* calls that contradict each other were under way at once */
	bool refused; /* its creation was refused for good */
	unsigned int generation;
};

/* A file that a pod wrote. */
struct file {
	unsigned int volume;
	bool ended; /* a deletion of its volume has begun since */
	bool taken_over; /* by the policy of a volume that was created after that */
	char path[256];
};

struct world;

struct replica {
	struct world *w;
	unsigned int number;
	char holder[STORE_HOLDER_LEN + 1];
	pthread_t thread;
	sem_t go;
	unsigned int budget; /* operations until the next switch */
	bool finished, killed;
	bool held; /* is to pause before its RENAME into the trash */
	int error; /* of the next operation; 0: none */
	const char *script;
	unsigned int at; /* steps that are done */
	struct nfs_client *c; /* of the call */
	unsigned int operations;
};

struct world {
	const struct scenario *s;
	const struct schedule *schedule;
	struct fake_nfs *f;
	struct replica replicas[REPLICAS];
	sem_t back; /* a replica has finished or paused */
	struct fate fates[VOLUMES_MAX];
	struct file files[FILES_MAX];
	unsigned int n_files;
	bool settling;
	struct replica *drafter; /* of the draft that is there */
	bool mixed; /* a replica has renamed the other's draft */
	bool archived; /* see may_be_archived() */
	bool trashed; /* see may_be_in_trash() */
	char failure[512]; /* the first broken promise */
};

static _Thread_local struct replica *current;
static bool tracing;
static const struct schedule *running; /* for store_holder_is_dead() */
static bool is_settling;
static struct fake_nfs *on_share; /* for fill_snapshot() */

/*
 * A draft is checked, then renamed. A replica that is paused between the two, while another one
 * writes its own draft and is interrupted before all parts are there, makes that a damaged record.
 * Nothing but the record is lost, and messages say so. Likewise a file that is not written yet, if
 * its writer is interrupted or taken for dead.
 */
static bool may_be_damaged(const struct world *w)
{
	return w->mixed &&
	       (is_interrupted(w->schedule) || (w->schedule->files && w->schedule->hasty));
}

/* Nobody looks at what the last operation has done. */
static bool is_unseen(const struct schedule *schedule)
{
	return schedule->ending == ENDING_LATE || schedule->ending == ENDING_LOST;
}

/*
 * The RENAME of an unfinished record into the trash, performed after its writer, whom others took
 * for dead, had finished it, and not looked at by its caller: nobody puts the record back. Data is
 * not lost: without its record, the volume is what its id says.
 */
static bool may_be_in_trash(struct world *w)
{
	cleanup_free char *list = NULL;
	char *line, *rest;

	if (w->trashed || !is_unseen(w->schedule) || !w->schedule->files || !w->schedule->hasty)
		return w->trashed;
	list = rest = fake_nfs_list(w->f, NULL);
	while ((line = strsep(&rest, "\n")) != NULL) {
		struct nfs_handle handle;
		struct nfs_attr attr;

		if (str_has_prefix(line, ".csi-nfs/trash/%unfinished.") &&
		    fake_nfs_get(w->f, line, &handle, &attr) && attr.size > 0)
			w->trashed = true;
	}
	return w->trashed;
}

static void broken(struct world *w, const char *what, unsigned int volume, const char *detail)
{
	if (may_be_damaged(w) || may_be_in_trash(w))
		return;
	if (w->failure[0] == '\0')
		(void)snprintf(w->failure, sizeof(w->failure), "%s: volume %u: %s", what, volume,
			       detail);
	if (tracing)
		printf("BROKEN %s: volume %u: %s\n", what, volume, detail);
}

/* Looking again at an unfinished record takes no time: nobody writes meanwhile. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)time;
	(void)left;
	return 0;
}

/* -------- store/holder.h -------- */

static unsigned int next_number;

const char *store_holder(void)
{
	return current != NULL ? current->holder : "00000000000000ff";
}

void store_holder_init(const char *path)
{
	(void)path;
}

void store_holder_tag(char ret[STORE_HOLDER_TAG_MAX])
{
	(void)snprintf(ret, STORE_HOLDER_TAG_MAX, "%s.%x", store_holder(), ++next_number);
}

bool store_holder_is_own(const char *tag)
{
	return strncmp(tag, store_holder(), STORE_HOLDER_LEN) == 0 && tag[STORE_HOLDER_LEN] == '.';
}

bool store_holder_is_dead(const char *server, const char *share, const char *name)
{
	(void)server;
	(void)share;
	(void)name;
	return is_settling || running->hasty;
}

void store_holder_set_patience(unsigned int seconds)
{
	(void)seconds;
}

/* -------- calls -------- */

static const char *id_of(const struct volume_plan *plan, char *text, size_t size)
{
	const bool own = strcmp(plan->key, plan->dir) == 0;

	if (plan->snapshot_of != NULL)
		(void)snprintf(text, size, "fake#share#%s#%s#%s", plan->dir, plan->dir,
			       plan->snapshot_of);
	else
		(void)snprintf(text, size, "fake#share#%s#%s#%s", plan->dir, own ? "" : plan->key,
			       plan->on_delete != NULL ? plan->on_delete : "");
	return text;
}

static void describe(const struct volume_plan *plan, struct record *rec)
{
	cleanup_free char *extra = check_repeat("x", plan->is_long ? 3500 : 0);
	char id[256];

	*rec = (struct record){ .n = 0 };
	check_fast(record_set(rec, VOLUME_KEY_NAME, plan->key) == 0);
	check_fast(record_set(rec, VOLUME_KEY_ID, id_of(plan, id, sizeof(id))) == 0);
	check_fast(record_set(rec, VOLUME_KEY_DIR, plan->dir) == 0);
	check_fast(record_set(rec, VOLUME_KEY_SIZE, "10") == 0);
	check_fast(record_set(rec, VOLUME_KEY_VERSION, "3") == 0);
	check_fast(record_set(rec, VOLUME_KEY_MODE, plan->mode != NULL ? plan->mode : "0000") == 0);
	if (plan->on_delete != NULL)
		check_fast(record_set(rec, VOLUME_KEY_ON_DELETE, plan->on_delete) == 0);
	check_fast(record_set(rec, VOLUME_CONTEXT_PREFIX "extra", extra) == 0);
	if (plan->claim != NULL)
		check_fast(record_set(rec, VOLUME_KEY_CLAIM, plan->claim) == 0);
	if (plan->existing != NULL)
		check_fast(record_set(rec, VOLUME_KEY_EXISTING, plan->existing) == 0);
	if (plan->has_source)
		check_fast(record_set(rec, VOLUME_KEY_SOURCE, "volume v9") == 0);
}

static enum volume_on_delete default_policy(void)
{
	return current != NULL && current->w->s->archives && current->number == 0
		       ? ON_DELETE_ARCHIVE
		       : ON_DELETE_DELETE;
}

/* A copy of one file. */
static int fill(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	const struct nfs_handle *work;
	struct nfs_handle dir, file;
	struct nfs_attr attr;
	int r;

	(void)data;
	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	r = nfs_mkdir(c, work, name, 0755, &dir, &attr);
	if (r == 0)
		r = nfs_create(c, &dir, "copied", 0644, &file);
	return r < 0 ? nfs_error_set(err, c, r, "copying '%s'", name) : 0;
}

static int create_volume(struct nfs_client *c, const struct volume_plan *plan, struct error *err)
{
	const struct volume_capacity capacity = { .required = 10 };
	bool trashed = false;
	const struct volume_filler filler = {
		.fill = plan->has_source ? fill : NULL,
		.ret_trashed = &trashed,
		.replace_archive = plan->replaces_archive,
	};
	cleanup_record struct record rec = { .n = 0 };

	describe(plan, &rec);
	return volume_create(c, plan->key, &rec, &capacity, &filler, err);
}

/* An archive of 64 bytes. */
static int fill_snapshot(struct nfs_client *c, const char *name, void *data, struct error *err)
{
	static const struct tree_archive_sum sum = { .bytes = 64, .crc32 = 64 };
	static const char zeros[64];
	char path[NFS_NAME_MAX + 64], file[64];
	const struct nfs_handle *work;
	struct record *rec = data;
	struct nfs_handle dir;
	struct nfs_attr attr;
	int r;

	r = store_folder(c, STORE_WORK, true, &work, err);
	if (r < 0)
		return r;
	(void)snprintf(file, sizeof(file), "%s", snapshot_info_of(rec).file);
	r = nfs_mkdir(c, work, name, 0755, &dir, &attr);
	if (r < 0)
		return nfs_error_set(err, c, r, "archiving '%s'", name);
	(void)snprintf(path, sizeof(path), ".csi-nfs/work/%s/%s", name, file);
	if (current == NULL || !current->killed)
		fake_nfs_write(on_share, path, 0, zeros, sizeof(zeros));
	return snapshot_set_archive(rec, file, &sum) < 0 ? error_oom(err) : 0;
}

static int check_archive(struct nfs_client *c, void *data, struct error *err)
{
	(void)c;
	(void)data;
	(void)err;
	return 0;
}

static int create_snapshot(struct nfs_client *c, const struct volume_plan *plan, struct error *err)
{
	cleanup_record struct record rec = { .n = 0 }, volume = { .n = 0 };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	const struct error missing = { .code = ERROR_OK };
	bool trashed = false;
	bool had_record = false;
	const struct snapshot_filler filler = {
		.fill = fill_snapshot,
		.check = check_archive,
		.data = &rec,
		.missing = &missing,
		.ret_trashed = &trashed,
		.had_record = &had_record,
	};
	char text[256], source[256], file[64];
	const struct snapshot_info info = {
		.name = plan->key,
		.id = id_of(plan, text, sizeof(text)),
		.source = source,
		.size = 10,
		.file = file,
	};

	(void)snprintf(source, sizeof(source), "fake#share#%s##", plan->snapshot_of);
	(void)snprintf(file, sizeof(file), "%s.tar.gz", plan->snapshot_of);
	check_fast(volume_id_parse(&id, text) == 0);
	check_fast(snapshot_describe(&rec, &info, &volume) == 0);
	return snapshot_create(c, &id, &rec, &filler, err);
}

/* Work that takes long has notes, as csi/claim.h has it. */
static int create(struct nfs_client *c, const struct volume_plan *plan, struct error *err)
{
	struct error ignored = { .code = ERROR_OK };
	struct busy_note make, use;
	int r;

	if (!plan->has_source && plan->snapshot_of == NULL)
		return create_volume(c, plan, err);
	check_fast(busy_note_init(&make, BUSY_MAKE, plan->dir) == 0);
	r = busy_note_write(c, &make, err);
	if (r == 0 && plan->has_source) {
		r = create_volume(c, plan, err);
	} else if (r == 0) {
		check_fast(busy_note_init(&use, BUSY_USE, plan->snapshot_of) == 0);
		r = busy_note_write(c, &use, err);
		if (r == 0) {
			r = create_snapshot(c, plan, err);
			(void)busy_note_erase(c, &use, &ignored);
		}
		busy_note_done(&use);
	}
	/* As claim_drop(): also after an error. */
	(void)busy_note_erase(c, &make, &ignored);
	busy_note_done(&make);
	return r;
}

static int call_on_snapshot(struct nfs_client *c, char call, const struct volume_plan *plan,
			    struct error *err)
{
	cleanup_snapshot struct snapshot s = { .has_contents = false };
	char text[256];
	bool trashed = false;
	int r;

	r = snapshot_init(&s, id_of(plan, text, sizeof(text)), err);
	if (r == 0)
		r = snapshot_read_record(c, &s, err);
	if (r == 0 && !s.is_other)
		r = snapshot_read_contents(c, &s, err);
	if (r < 0)
		return r;
	if (call == 'd') /* as csi/delete_snapshot.c has it */
		return s.is_other ? 0 : snapshot_delete(c, &s, &trashed, err);
	return snapshot_is_ready(&s) ? 0
				     : error_set(err, ERROR_NOT_FOUND, "snapshot '%s'", plan->key);
}

static int call_on_volume(struct nfs_client *c, char call, const struct volume_plan *plan,
			  struct error *err)
{
	static const struct volume_settings changes = {
		.given = MUTABLE_MODE,
		.mode = 0700,
	};
	const struct volume_disposal how = {
		.policy = default_policy(),
		.replace_archive = plan->replaces_archive,
	};
	const struct volume_capacity capacity = { .required = 20 };
	cleanup_volume_id struct volume_id id = { .server = NULL };
	cleanup_record struct record rec = { .n = 0 };
	char text[256];
	bool trashed;
	int64_t size;
	int r;

	if (call == 'c' && plan->is_foreign)
		fake_nfs_put(on_share, plan->dir, NFS_TYPE_DIRECTORY, NULL);
	if (call == 'c')
		return plan->is_foreign ? 0 : create(c, plan, err);
	if (plan->snapshot_of != NULL)
		return call_on_snapshot(c, call, plan, err);
	check_fast(volume_id_parse(&id, id_of(plan, text, sizeof(text))) == 0);
	r = volume_read(c, &id, &rec, err);
	if (r < 0)
		return r;
	switch (call) {
	case 'd':
		return volume_delete(c, &id, &rec, &how, &trashed, err);
	case 'e':
		return volume_expand(c, &id, &rec, &capacity, &size, err);
	case 'm':
		return volume_modify(c, &id, &rec, &changes, err);
	default:
		return volume_find(c, &id, &rec, err);
	}
}

/* -------- the trash -------- */

#define TRASH ".csi-nfs/trash/"

/* Call found() for each entry of the trash. A result other than 0 ends the walk and is returned. */
static int each_trashed(struct fake_nfs *f,
			int (*found)(struct fake_nfs *f, const char *name, const char *data),
			const char *data)
{
	cleanup_free char *list = fake_nfs_list(f, NULL);
	const char *at = list;
	int r = 0;

	while (r == 0 && (at = strstr(at, TRASH)) != NULL) {
		char name[NFS_NAME_MAX + 1];
		size_t len;

		at += strlen(TRASH);
		len = strcspn(at, "/\n");
		(void)snprintf(name, sizeof(name), "%.*s", (int)len, at);
		/* Not the lines of what is in an entry. */
		if (len > 0 && (at[len] == '\n' || at[len + 1] == '\n'))
			r = found(f, name, data);
		at += len;
	}
	return r;
}

/* Purge as a third replica that decides about an unchecked entry as soon as it is there. */
static int purge_entry(struct fake_nfs *f, const char *name, const char *data)
{
	char path[NFS_NAME_MAX + sizeof(TRASH)];

	(void)data;
	if (store_trash_name_is_unchecked(name)) {
		cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
		struct error ignored = { .code = ERROR_OK };

		(void)unchecked_put_back(c, name, &ignored);
		return 0;
	}
	(void)snprintf(path, sizeof(path), TRASH "%s", name);
	fake_nfs_remove(f, path);
	return 0;
}

static void purge(struct fake_nfs *f)
{
	(void)each_trashed(f, purge_entry, NULL);
}

/* Whether a purger leaves the entry to the administrator. */
static int is_refused(struct fake_nfs *f, const char *name, const char *data)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct error err = { .code = ERROR_OK };

	(void)data;
	return store_trash_name_is_unchecked(name) && unchecked_put_back(c, name, &err) < 0 &&
	       err.code == ERROR_FAILED_PRECONDITION;
}

/* Whether a directory that was at dir, or above it, is there. */
static int is_unchecked_for(struct fake_nfs *f, const char *name, const char *dir)
{
	char key[RECORD_NAME_MAX + 1];
	char wanted[STORE_TRASH_KEY_MAX + 1], own[STORE_TRASH_KEY_MAX + 1];

	(void)f;
	path_key(key, dir, strlen(dir));
	store_trash_key(wanted, key);
	store_trash_name_key(name, own);
	if (!store_trash_name_is_unchecked(name))
		return false;
	return strcasecmp(own, wanted) == 0 ||
	       path_key_compare(own, strlen(own), key, strlen(key)) == PATH_IS_AROUND;
}

/* As an administrator whom the log asks to, since the name in the trash does not show the path. */
static int put_back_by_hand(struct fake_nfs *f, const char *name, const char *dir)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(f);
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *trash;

	if (strlen(dir) <= STORE_TRASH_KEY_WHOLE || !is_unchecked_for(f, name, dir) ||
	    fake_nfs_type(f, dir) != NFS_TYPE_UNKNOWN)
		return 0;
	check_fast(store_folder(c, STORE_TRASH, false, &trash, &ignored) == 0);
	return nfs_rename(c, trash, name, &c->root, dir);
}

/* A deletion that was paused has moved the directory, and puts it back, or a purger does. */
static bool is_on_its_way(struct world *w, const char *dir)
{
	return each_trashed(w->f, is_unchecked_for, dir) > 0;
}

/* -------- what callers and pods do -------- */

/* A volume with an exclusive claim never has the data of another one in its directory. */
static void check_exclusive(struct world *w, const struct volume_plan *plan, unsigned int volume)
{
	cleanup_free char *list = NULL;
	char *line, *rest, own[64], any[64];

	if (plan->claim == NULL || strcmp(plan->claim, VOLUME_CLAIM_EXCLUSIVE) != 0)
		return;
	list = rest = fake_nfs_list(w->f, ".csi-nfs");
	(void)snprintf(any, sizeof(any), "%s/data-", plan->dir);
	(void)snprintf(own, sizeof(own), "%s/data-%s-", plan->dir, plan->key);
	while ((line = strsep(&rest, "\n")) != NULL)
		if (strncasecmp(line, any, strlen(any)) == 0 &&
		    strncasecmp(line, own, strlen(own)) != 0)
			broken(w, "has the data of another volume", volume, line);
}

static void write_file(struct world *w, unsigned int volume)
{
	const struct volume_plan *plan = &w->s->volumes[volume];
	struct file *file = &w->files[w->n_files];

	if (plan->snapshot_of != NULL)
		return;
	if (fake_nfs_type(w->f, plan->dir) != NFS_TYPE_DIRECTORY) {
		if (is_on_its_way(w, plan->dir))
			return;
		broken(w, "created without a directory", volume, plan->dir);
		return;
	}
	if (w->s->idle)
		return;
	check_fast(w->n_files < FILES_MAX);
	check_exclusive(w, plan, volume);
	w->n_files++;
	file->volume = volume;
	(void)snprintf(file->path, sizeof(file->path), "%s/data-%s-%u", plan->dir, plan->key,
		       w->fates[volume].generation);
	fake_nfs_put(w->f, file->path, NFS_TYPE_FILE, NULL);
}

static void begins(struct world *w, char call, unsigned int volume)
{
	struct fate *fate = &w->fates[volume];
	unsigned int i;

	if (call == 'c') {
		fate->unsure = fate->unsure || fate->deleting > 0;
		fate->creating++;
	} else if (call == 'd') {
		fate->unsure = fate->unsure || fate->creating > 0;
		fate->deleting++;
		fate->made = false;
		for (i = 0; i < w->n_files; i++)
			w->files[i].ended = w->files[i].ended || w->files[i].volume == volume;
	}
}

static void ends(struct world *w, char call, unsigned int volume, bool ok)
{
	struct fate *fate = &w->fates[volume];
	unsigned int i;

	if (call == 'd')
		fate->deleting--;
	if (call != 'c')
		return;
	fate->creating--;
	if (!ok)
		return;
	for (i = 0; i < w->n_files; i++)
		w->files[i].taken_over = w->files[i].taken_over || w->files[i].ended;
	/* A deletion that is or was under way beside it may come after it. */
	if (fate->made || fate->unsure)
		return;
	fate->made = true;
	fate->generation++;
	write_file(w, volume);
}

static void format_record(const struct volume_plan *plan, char *text, size_t size)
{
	(void)snprintf(text, size, ".csi-nfs/%s/%s",
		       plan->snapshot_of != NULL ? "snapshots" : "volumes",
		       plan->snapshot_of != NULL ? plan->dir : plan->key);
}

/* One call, as a process makes it. Return whether it was answered for good. */
static bool attempt(struct world *w, char call, unsigned int volume)
{
	const struct volume_plan *plan = &w->s->volumes[volume];
	struct error err = { .code = ERROR_OK };
	unsigned int tries = 0;
	char record[128];
	int r;

	begins(w, call, volume);
	do {
		struct nfs_client *c = fake_nfs_connect(w->f);

		if (current != NULL)
			current->c = c;
		error_clear(&err);
		r = call_on_volume(c, call, plan, &err);
		if (current != NULL)
			current->c = NULL;
		nfs_client_free(c);
		/* As csi/session.h has it. */
	} while ((r == -ESTALE || r == -ECONNABORTED) && ++tries < 3 &&
		 (current == NULL || !current->killed));
	if (current != NULL && current->killed) {
		if (call == 'd')
			w->fates[volume].deleting--;
		else if (call == 'c')
			w->fates[volume].creating--;
		return false;
	}
	if (tracing)
		printf("%s %c%u: %d %s %s\n", store_holder() + STORE_HOLDER_LEN - 2, call, volume,
		       r, error_code_name(err.code), err.msg);
	ends(w, call, volume, r == 0);
	if (r == 0)
		return true;
	if (call != 'c' && w->s->same_name)
		return err.code == ERROR_FAILED_PRECONDITION;
	/* A caller repeats a deletion that was refused, too. */
	if (!error_is_final(err.code) || (call == 'd' && w->s->may_refuse))
		return false;
	format_record(plan, record, sizeof(record));
	if (call == 'c' && err.sys != 0 && fake_nfs_type(w->f, record) != NFS_TYPE_UNKNOWN)
		return false; /* the call says ABORTED then: session_check_final() */
	if (call == 'c') {
		w->fates[volume].refused = true;
		if (!w->s->may_refuse)
			broken(w, "refused", volume, err.msg);
	} else if (call == 'd' || err.code != ERROR_NOT_FOUND) {
		broken(w, call == 'd' ? "not deleted" : "not changed", volume, err.msg);
	}
	return true;
}

static bool step_is_left(const struct replica *replica)
{
	return replica->script[(size_t)replica->at * 2] != '\0';
}

/* Make the next call of the script. Return whether it was answered for good. */
static bool step(struct replica *replica)
{
	const char *next = replica->script + (size_t)replica->at * 2;

	if (!attempt(replica->w, next[0], (unsigned int)(next[1] - '0')))
		return false;
	replica->at++;
	return true;
}

static void *run_replica(void *data)
{
	struct replica *replica = data;

	current = replica;
	sem_wait(&replica->go);
	while (!replica->killed && step_is_left(replica) && step(replica))
		;
	replica->finished = true;
	sem_post(&replica->w->back);
	return NULL;
}

/* Note who writes the draft of a long record, and who renames it into place. */
static void watch_draft(struct world *w, struct replica *replica, const struct nfs_op *op)
{
	const char *key = w->s->volumes[0].key;
	char draft[32], path[64];

	(void)snprintf(draft, sizeof(draft), "%s~new", key);
	if (op->name == NULL || strcmp(op->name, draft) != 0 ||
	    !(w->s->volumes[0].is_long || w->schedule->files))
		return;
	(void)snprintf(path, sizeof(path), ".csi-nfs/volumes/%s", draft);
	if ((op->type == NFS_OP_SYMLINK || op->type == NFS_OP_CREATE) &&
	    fake_nfs_type(w->f, path) == NFS_TYPE_UNKNOWN)
		w->drafter = replica;
	if (op->type == NFS_OP_RENAME && strcmp(op->to_name, key) == 0)
		w->mixed = w->mixed || w->drafter != replica;
}

static void watch(struct fake_nfs *f, const struct nfs_op *op, void *data)
{
	struct replica *replica = current;

	(void)data;
	if (replica == NULL || replica->killed)
		return;
	if (replica->held && op->type == NFS_OP_RENAME &&
	    store_trash_name_is_unchecked(op->to_name)) {
		replica->held = false;
		replica->budget = 0;
	}
	while (replica->budget == 0) {
		sem_post(&replica->w->back);
		sem_wait(&replica->go);
		if (replica->killed) {
			fake_nfs_cut(replica->c);
			return;
		}
	}
	/* A record of that name is not the directory, nor is a tombstone or an unfinished file. */
	if (op->type == NFS_OP_RENAME && str_eq(op->name, replica->w->s->stays) &&
	    strchr(op->to_name, '~') == NULL && !str_has_prefix(op->to_name, "%unfinished."))
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -EXDEV });
	if ((replica->number == 0 || replica->w->s->both_full) && replica->w->n_files == 0 &&
	    op->type == NFS_OP_MKDIR && str_eq(op->name, replica->w->s->full))
		fake_nfs_fail(f, &(struct fake_failure){ .nth = 1, .error = -ENOSPC });
	if (replica->error != 0)
		fake_nfs_fail(f, &(struct fake_failure){
					 .nth = 1,
					 .error = replica->error,
					 .after = replica->error == -ECONNABORTED,
				 });
	replica->error = 0;
	if (replica->budget != NO_SWITCH)
		replica->budget--;
	replica->operations++;
	watch_draft(replica->w, replica, op);
	if (tracing)
		printf("   %c %u type %d %s -> %s\n", 'A' + (int)replica->number,
		       replica->operations, (int)op->type, check_text(op->name),
		       check_text(op->to_name));
}

/* -------- running a schedule -------- */

/* Let the replica run so many operations. Return whether it has finished. */
static bool let_run(struct replica *replica, unsigned int budget)
{
	if (replica->finished)
		return true;
	replica->budget = budget;
	sem_post(&replica->go);
	sem_wait(&replica->w->back);
	if (replica->w->schedule->hasty)
		purge(replica->w->f);
	return replica->finished;
}

static void kill_replica(struct replica *replica)
{
	if (replica->finished)
		return;
	replica->killed = true;
	sem_post(&replica->go);
	sem_wait(&replica->w->back);
}

static void start_replicas(struct world *w)
{
	unsigned int i;

	sem_init(&w->back, 0, 0);
	for (i = 0; i < REPLICAS; i++) {
		struct replica *replica = &w->replicas[i];

		replica->w = w;
		replica->number = i;
		replica->script = w->s->scripts[i];
		(void)snprintf(replica->holder, sizeof(replica->holder), "%0*x", STORE_HOLDER_LEN,
			       0xa + i);
		sem_init(&replica->go, 0, 0);
		check_fast(pthread_create(&replica->thread, NULL, run_replica, replica) == 0);
	}
}

static void join_replicas(struct world *w)
{
	unsigned int i;

	for (i = 0; i < REPLICAS; i++) {
		pthread_join(w->replicas[i].thread, NULL);
		sem_destroy(&w->replicas[i].go);
	}
	sem_destroy(&w->back);
}

/* Run the replicas. Return the first switch that its replica did not live to see, or n. */
static unsigned int run_replicas(struct world *w)
{
	const struct schedule *schedule = w->schedule;
	unsigned int i, next = schedule->first, reached = schedule->n;
	struct replica *last;

	start_replicas(w);
	if (schedule->held) {
		w->replicas[next].held = true;
		(void)let_run(&w->replicas[next++], NO_SWITCH);
	}
	for (i = 0; i < schedule->n; i++)
		if (let_run(&w->replicas[next++ % REPLICAS], schedule->after[i]) &&
		    reached == schedule->n)
			reached = i;
	if (schedule->held)
		(void)let_run(&w->replicas[next++ % REPLICAS], 1);
	(void)let_run(&w->replicas[next++ % REPLICAS], NO_SWITCH);
	last = &w->replicas[next % REPLICAS];
	if (schedule->ending == ENDING_FAILS)
		last->error = -EIO;
	else if (schedule->ending == ENDING_LOST)
		last->error = -ECONNABORTED;
	if (schedule->ending == ENDING_LATE)
		(void)let_run(last, 1);
	if (ends_dead(schedule))
		kill_replica(last);
	else
		(void)let_run(last, NO_SWITCH);
	join_replicas(w);
	return reached;
}

/*
 * The record that an interrupted creation left may be of a volume that is in use: a repetition that
 * is refused leaves it, and says ABORTED until somebody removes what is in the way. The replacement
 * of a record that is a file interrupts, too: who reads it finds a stale handle, and begins again.
 */
static bool may_go_on(const struct world *w)
{
	return w->s->may_refuse && (is_interrupted(w->schedule) || w->schedule->files);
}

/* The callers repeat what was not answered for good. */
static void settle(struct world *w)
{
	unsigned int i, rounds;
	bool left = true;

	is_settling = true;
	for (rounds = 0; left && rounds < ROUNDS_MAX; rounds++) {
		left = false;
		for (i = 0; i < REPLICAS; i++)
			if (step_is_left(&w->replicas[i])) {
				(void)step(&w->replicas[i]);
				left = true;
			}
		purge(w->f);
	}
	if (left && !may_go_on(w))
		broken(w, "never answered for good", 0, "");
	for (i = 0; i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++)
		(void)each_trashed(w->f, put_back_by_hand, w->s->volumes[i].dir);
}

static void call_until_answered(struct world *w, char call, unsigned int volume)
{
	unsigned int rounds;

	for (rounds = 0; rounds < ROUNDS_MAX; rounds++)
		if (attempt(w, call, volume))
			return;
	broken(w, "never answered for good, in the end", volume, "");
}

static bool file_is_somewhere(struct world *w, const char *name)
{
	cleanup_free char *list = fake_nfs_list(w->f, ".csi-nfs");

	return strstr(list, name) != NULL;
}

/*
 * The RENAME of an archive, performed when others took its caller for dead and a new volume had the
 * directory, and not looked at by that caller: the new volume's data is in the archive.
 */
static bool may_be_archived(const struct world *w)
{
	const char *policy = w->s->volumes[0].on_delete;

	return is_unseen(w->schedule) && w->schedule->hasty &&
	       (policy != NULL ? strcmp(policy, "archive") == 0 : w->s->archives);
}

static void check_files(struct world *w)
{
	unsigned int i;

	for (i = 0; i < w->n_files; i++) {
		const struct file *file = &w->files[i];
		const char *policy = w->s->volumes[file->volume].on_delete;
		const bool in_place = fake_nfs_type(w->f, file->path) != NFS_TYPE_UNKNOWN;

		if (!file->ended && !in_place && may_be_archived(w) &&
		    file_is_somewhere(w, strrchr(file->path, '/')))
			w->archived = true;
		else if (!file->ended && !in_place)
			broken(w, "data is lost", file->volume, file->path);
		if (!file->ended || file->taken_over)
			continue;
		if (policy != NULL && strcmp(policy, "retain") == 0) {
			if (!in_place)
				broken(w, "retained data is lost", file->volume, file->path);
		} else if (policy != NULL && strcmp(policy, "archive") == 0) {
			if (!file_is_somewhere(w, strrchr(file->path, '/')))
				broken(w, "archived data is lost", file->volume, file->path);
		}
	}
	if (w->s->stranger != NULL && fake_nfs_type(w->f, w->s->stranger) == NFS_TYPE_UNKNOWN)
		broken(w, "a stranger's data is lost", 0, w->s->stranger);
}

/*
 * A change of a volume without a record makes one. If the volume is deleted meanwhile, the change
 * takes the record back, unless it does not learn that it was made.
 */
static bool may_have_late_record(const struct world *w, const struct volume_plan *plan)
{
	return plan->is_foreign && is_unseen(w->schedule);
}

/* Whether there is a record, and it is that volume's: its name may be another's, too. */
static bool has_own_record(struct world *w, const struct volume_plan *plan)
{
	cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(w->f);
	cleanup_record struct record rec = { .n = 0 };
	char id[256], record[128];
	int r;

	format_record(plan, record, sizeof(record));
	if (fake_nfs_type(w->f, record) == NFS_TYPE_UNKNOWN)
		return false;
	r = record_read_at(c, plan->snapshot_of != NULL ? STORE_SNAPSHOTS : STORE_VOLUMES,
			   plan->snapshot_of != NULL ? plan->dir : plan->key, &rec, NULL);
	return r < 0 || plan->is_foreign ||
	       str_eq(record_get(&rec, VOLUME_KEY_ID), id_of(plan, id, sizeof(id)));
}

/* A deletion overlooks a volume that has a record and lacks the notes of its directory. */
static void check_notes(struct world *w, unsigned int volume)
{
	static const char *const kinds[] = { "", "%" };
	const struct volume_plan *plan = &w->s->volumes[volume];
	char key[RECORD_NAME_MAX + 1], note[512];
	unsigned int i;

	if (strcmp(plan->dir, plan->key) == 0 || plan->snapshot_of != NULL ||
	    fake_nfs_type(w->f, plan->dir) != NFS_TYPE_DIRECTORY)
		return;
	path_key(key, plan->dir, strlen(plan->dir));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		(void)snprintf(note, sizeof(note), ".csi-nfs/users/%s%s/%s", key, kinds[i],
			       plan->key);
		if (fake_nfs_type(w->f, note) == NFS_TYPE_UNKNOWN)
			broken(w, "lost a note of use", volume, note);
	}
}

/* A snapshot and a volume never have one directory. */
static void check_apart(struct world *w, unsigned int snapshot)
{
	const struct volume_plan *plans = w->s->volumes;
	unsigned int i;

	for (i = 0; i < VOLUMES_MAX && plans[i].key != NULL; i++)
		if (plans[i].snapshot_of == NULL && w->fates[i].made &&
		    strcmp(plans[i].dir, plans[snapshot].dir) == 0)
			broken(w, "has the directory of a snapshot", i, plans[i].dir);
}

static void check_volumes(struct world *w)
{
	unsigned int i;

	for (i = 0; i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++) {
		const struct volume_plan *plan = &w->s->volumes[i];
		cleanup_nfs_client struct nfs_client *c = fake_nfs_connect(w->f);
		struct fate *fate = &w->fates[i];
		struct error err = { .code = ERROR_OK };
		const bool has_record = has_own_record(w, plan);

		if (fate->made && !fate->unsure && !has_record && !plan->is_foreign)
			broken(w, "lost its record", i, "");
		if (!fate->made && !fate->unsure && has_record && may_have_late_record(w, plan))
			continue;
		if (!fate->made && !fate->unsure && has_record && !may_go_on(w))
			broken(w, "left its record", i, "");
		if (has_record && !w->archived && call_on_volume(c, 'f', plan, &err) < 0)
			broken(w, "is not whole", i, err.msg);
		if (has_record)
			check_notes(w, i);
		if (fate->made && plan->snapshot_of != NULL)
			check_apart(w, i);
		if (has_record && plan->has_source) {
			char copied[128];

			(void)snprintf(copied, sizeof(copied), "%s/copied", plan->dir);
			if (fake_nfs_type(w->f, copied) == NFS_TYPE_UNKNOWN)
				broken(w, "lost what was copied", i, copied);
		}
	}
}

/*
 * What was answered OK is there even if nobody repeats what was not; except after a late operation,
 * at which nobody has looked.
 */
static void check_answered(struct world *w)
{
	unsigned int i;

	if (w->schedule->ending == ENDING_LATE)
		return;
	for (i = 0; i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++) {
		const struct volume_plan *plan = &w->s->volumes[i];

		if (!w->fates[i].made || w->fates[i].unsure || plan->is_foreign)
			continue;
		if (has_own_record(w, plan))
			check_notes(w, i);
		else
			broken(w, "lost its record, before a repetition", i, "");
		if (w->s->idle && fake_nfs_type(w->f, plan->dir) != NFS_TYPE_DIRECTORY)
			broken(w, "lost its directory, before a repetition", i, plan->dir);
	}
}

/*
 * A replica that is interrupted between the making or removal of a directory above volumes and that
 * of its note, while another one does the same, leaves one of both. A part or a draft of a record
 * that is made late stays, too, and so does a tombstone that was renamed from a file that was not
 * written yet: the next creation in its directory removes it. None does harm.
 */
static bool may_be_left(const struct world *w, const char *line)
{
	if (is_unseen(w->schedule) && str_has_prefix(line, ".csi-nfs/volumes/") &&
	    strchr(line, '~') != NULL)
		return true;
	if (is_unseen(w->schedule) && w->schedule->files &&
	    str_has_prefix(line, ".csi-nfs/busy/") && strstr(line, "~d~") != NULL)
		return true;
	return is_interrupted(w->schedule) &&
	       (str_has_prefix(line, ".csi-nfs/parents/") || strcmp(line, "p/") == 0 ||
		strcmp(line, "p/q/") == 0);
}

/* Whether it is a note about a directory above volumes that is not there. */
static bool is_note_of_none(struct world *w, const char *line)
{
	static const char folder[] = ".csi-nfs/parents/";
	const char *key = line + strlen(folder), *mark;
	char path[RECORD_NAME_MAX + 1], hash[20];
	struct nfs_handle handle;
	struct nfs_attr attr;

	if (!str_has_prefix(line, folder) || key[0] == '\0')
		return false;
	mark = strchr(key, '~');
	if (mark == NULL || !path_of_key(key, (size_t)(mark - key), path) ||
	    !fake_nfs_get(w->f, path, &handle, &attr))
		return true;
	(void)snprintf(hash, sizeof(hash), ".%" PRIx64, str_hash(handle.data, handle.len));
	return strcmp(strrchr(mark, '.'), hash) != 0;
}

/* Whether it is an empty directory that was made above an archive. next: the rest of the list. */
static bool is_empty_above_archive(const char *line, const char *next)
{
	const char *slash = strrchr(line, '/');

	if (!str_has_prefix(line, "archived-p") || slash == NULL || slash[1] != '\0' ||
	    (next != NULL && str_has_prefix(next, line)))
		return false;
	return strchr(line, '/') == slash || str_has_prefix(strchr(line, '/'), "/q/");
}

static void check_nothing_left(struct world *w)
{
	cleanup_free char *list = fake_nfs_list(w->f, ".csi-nfs/trash");
	char *line, *rest = list;

	while ((line = strsep(&rest, "\n")) != NULL) {
		const char *slash;
		size_t len;

		if (line[0] == '\0' || strcmp(line, ".csi-nfs/") == 0)
			continue;
		if (is_note_of_none(w, line) && !may_be_left(w, line))
			broken(w, "left a note of no directory", 0, line);
		if (is_empty_above_archive(line, rest) && !is_interrupted(w->schedule))
			broken(w, "left a directory above no archive", 0, line);
		if (str_has_prefix(line, ".csi-nfs/")) {
			slash = strchr(line + strlen(".csi-nfs/"), '/');
			if (slash == NULL || slash[1] == '\0')
				continue;
			if (may_be_left(w, line))
				continue;
			if (w->s->keeps_data && !str_has_prefix(line, ".csi-nfs/volumes") &&
			    !str_has_prefix(line, ".csi-nfs/busy"))
				continue;
		} else if (w->s->keeps_data || may_be_left(w, line)) {
			continue;
		}
		len = strlen(line);
		if (w->s->stranger != NULL && strncmp(line, w->s->stranger, len) == 0)
			continue;
		broken(w, "left behind", 0, line);
	}
}

static void delete_all(struct world *w)
{
	bool is_deleted[VOLUMES_MAX] = { false };
	unsigned int rounds, i, left = 1;

	for (rounds = 0; left > 0 && rounds < ROUNDS_MAX; rounds++) {
		left = 0;
		for (i = 0; i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++) {
			const struct fate *fate = &w->fates[i];

			/* Nobody has the id of a volume that was refused. */
			is_deleted[i] = is_deleted[i] || (fate->refused && !fate->made) ||
					attempt(w, 'd', i);
			left += !is_deleted[i];
		}
	}
	if (left > 0)
		broken(w, "not deleted in the end", 0, "");
	/* A deletion that was refused, since another volume had the name, is repeated. */
	for (i = 0; w->s->same_name && i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++)
		call_until_answered(w, 'd', i);
}

/*
 * A call that finishes the deletion of a dead replica, which has moved the directory already, may
 * leave that to a volume that is just being made, and which makes another one.
 */
static bool may_stay_in_trash(const struct world *w)
{
	return w->s->keeps_data || w->s->may_refuse || w->s->volumes[0].is_foreign;
}

static void clear_world(struct world *w)
{
	unsigned int i;

	for (i = 0; i < VOLUMES_MAX && w->s->volumes[i].key != NULL; i++)
		if (w->fates[i].unsure) {
			call_until_answered(w, 'd', i);
			w->fates[i].unsure = false;
			call_until_answered(w, 'c', i);
		}
	purge(w->f);
	if (!may_stay_in_trash(w) && each_trashed(w->f, is_refused, NULL) > 0)
		broken(w, "a directory stays in the trash", 0, "");
	check_files(w);
	check_volumes(w);
	delete_all(w);
	purge(w->f);
	check_files(w);
	check_nothing_left(w);
}

static void prepare(struct world *w)
{
	const struct fake_habits habits = {
		.no_links = w->schedule->files ? -EPERM : 0,
		.folds = w->s->folds,
	};
	const char *at;

	is_settling = false;
	w->f = fake_nfs_new();
	on_share = w->f;
	fake_nfs_habits(w->f, &habits);
	if (w->s->stranger != NULL)
		fake_nfs_put(w->f, w->s->stranger, NFS_TYPE_FILE, NULL);
	if (w->s->theirs != NULL)
		fake_nfs_put(w->f, w->s->theirs, NFS_TYPE_FILE, NULL);
	for (at = w->s->before; *at != '\0'; at += 2)
		check_fast(attempt(w, at[0], (unsigned int)(at[1] - '0')));
}

/* Return the first switch that was not reached, or n. failure: what is broken, or "". */
static unsigned int run_schedule(const struct scenario *s, const struct schedule *schedule,
				 char *failure, size_t size)
{
	struct world w = { .s = s, .schedule = schedule };
	unsigned int reached;

	running = schedule;
	prepare(&w);
	fake_nfs_watch(w.f, watch, NULL);
	reached = run_replicas(&w);
	fake_nfs_watch(w.f, NULL, NULL);
	check_answered(&w);
	settle(&w);
	check_files(&w);
	check_volumes(&w);
	clear_world(&w);
	if (tracing && w.failure[0] != '\0') {
		cleanup_free char *list = fake_nfs_list(w.f, NULL);

		printf("%s", list);
	}
	fake_nfs_free(w.f);
	(void)snprintf(failure, size, "%s", w.failure);
	return reached;
}

static void format_schedule(const struct schedule *schedule, char *text, size_t size)
{
	size_t len = (size_t)snprintf(text, size, "%u:", schedule->first);
	unsigned int i;

	for (i = 0; i < schedule->n; i++)
		len += (size_t)snprintf(text + len, size - len, "%s%u", i > 0 ? "," : "",
					schedule->after[i]);
	(void)snprintf(text + len, size - len, "%s%s%s%s%s", is_interrupted(schedule) ? ":" : "",
		       ending_names[schedule->ending], schedule->hasty ? ":hasty" : "",
		       schedule->files ? ":files" : "", schedule->held ? ":held" : "");
}

/*
 * Every order with n switches, or with a stride, those whose first switch comes after every
 * stride-th operation. Return how many were broken.
 */
static unsigned int explore(const struct scenario *s, struct schedule schedule, unsigned int stride,
			    unsigned long *runs)
{
	unsigned int failures = 0, i;

	for (i = 0; i < schedule.n; i++)
		schedule.after[i] = 0;
	schedule.after[0] = (schedule.first + schedule.ending) % stride;
	for (;;) {
		char failure[512], text[128];
		unsigned int reached = run_schedule(s, &schedule, failure, sizeof(failure));

		(*runs)++;
		if (failure[0] != '\0') {
			format_schedule(&schedule, text, sizeof(text));
			if (failures++ < 3)
				printf("SCHEDULE='%s:%s': %s\n", s->name, text, failure);
		}
		/* A replica that has ended before its switch ends before every later one, too. */
		if (reached == schedule.n)
			reached = schedule.n - 1;
		else if (reached == 0)
			return failures;
		else
			reached--;
		schedule.after[reached] += reached == 0 ? stride : 1;
		for (i = reached + 1; i < schedule.n; i++)
			schedule.after[i] = 0;
	}
}

/*
 * Unless all orders are asked for: endings take turns at the places of a switch, and so do shares
 * that refuse links.
 */
static unsigned int usual_stride(const struct schedule *schedule)
{
	if (is_interrupted(schedule))
		return schedule->files ? INTERRUPTED_FILES_STRIDE : INTERRUPTED_STRIDE;
	return schedule->files ? FILES_STRIDE : 1;
}

/* Run one schedule, "first:after,...[:ENDING][:hasty][:files][:held]", and print its operations. */
static unsigned int run_traced(const struct scenario *s, const char *text)
{
	cleanup_free char *copy = strdup(text);
	struct schedule schedule = { .n = 0 };
	char *rest = copy, *word, failure[512];

	tracing = true;
	log_init(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
	schedule.first = (unsigned int)atoi(strsep(&rest, ":"));
	word = strsep(&rest, ":");
	while (word != NULL && schedule.n < SWITCHES_MAX)
		schedule.after[schedule.n++] = (unsigned int)atoi(strsep(&word, ","));
	while ((word = strsep(&rest, ":")) != NULL) {
		enum ending ending;

		for (ending = ENDING_GOES_ON; ending < ENDINGS; ending++)
			if (strcmp(word, ending_names[ending]) == 0)
				schedule.ending = ending;
		schedule.hasty = schedule.hasty || strcmp(word, "hasty") == 0;
		schedule.files = schedule.files || strcmp(word, "files") == 0;
		schedule.held = schedule.held || strcmp(word, "held") == 0;
	}
	run_schedule(s, &schedule, failure, sizeof(failure));
	printf("%s\n", failure[0] != '\0' ? failure : "all promises are kept");
	return failure[0] != '\0';
}

/*
 * One thread runs at a time: on one CPU, a switch wakes no other CPU, and the test takes half as
 * long. If pinning fails, it is only slower.
 */
static void setup(void)
{
	const int cpu = sched_getcpu();
	cpu_set_t set;

	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

START_TEST(test_scenario)
{
	const char *text = getenv("SCHEDULES_SWITCHES");
	const unsigned int switches = text != NULL ? (unsigned int)atoi(text) : 1;
	const struct scenario *s = &scenarios[_i];
	unsigned int failures = 0, n;
	const char *one = getenv("SCHEDULE"), *only = getenv("SCHEDULES_OF");
	unsigned long runs = 0;

	if (one != NULL) {
		const size_t len = strlen(s->name);

		if (strncmp(one, s->name, len) == 0 && one[len] == ':')
			failures = run_traced(s, one + len + 1);
		fflush(stdout);
		ck_assert(failures == 0);
		return;
	}
	if (only != NULL && !str_has_prefix(s->name, only))
		return;
	for (n = 1; n <= switches || ((s->twice || s->twice_all) && n == 2); n++) {
		unsigned int variant;

		for (variant = 0; variant < 8 * ENDINGS; variant++) {
			struct schedule schedule = {
				.first = variant & 1,
				.n = n,
				.hasty = (variant & 2) != 0,
				.files = (variant & 4) != 0,
				.ending = (enum ending)(variant / 8),
			};
			const unsigned int stride = text != NULL ? 1 : usual_stride(&schedule);

			if (n <= switches && !(s->only_held && text == NULL))
				failures += explore(s, schedule, stride, &runs);
			else if (s->twice && !schedule.hasty && !schedule.files)
				failures += explore(s, schedule, TWICE_STRIDE, &runs);
			else if (s->twice_all && !schedule.hasty && !is_interrupted(&schedule))
				failures += explore(s, schedule, TWICE_ALL_STRIDE, &runs);
			schedule.held = true;
			if (s->held && n == 1)
				failures += explore(s, schedule, stride, &runs);
		}
	}
	for (n = 0; n < REPLICAS && s->thrice && switches < 3; n++)
		failures +=
			explore(s, (struct schedule){ .first = n, .n = 3 }, THRICE_STRIDE, &runs);
	printf("%s: %lu schedules, %u broken\n", s->name, runs, failures);
	fflush(stdout);
	ck_assert_msg(failures == 0, "%s: %u schedules are broken", s->name, failures);
}
END_TEST

CHECK_MAIN("schedules", .setup = setup, .loops = { { test_scenario, ARRAY_SIZE(scenarios) } })
