/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* NodePublishVolume beside what earlier calls have left, and beside other calls. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/request.h"
#include "check_util.h"
#include "fake/mounter.h"
#include "node/node.h"

#define MODE(name) CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__MODE__##name

enum access { SHARED = MODE(SINGLE_NODE_MULTI_WRITER), ALONE = MODE(SINGLE_NODE_SINGLE_WRITER) };

static struct fake_mounter mounter;
static struct node_driver driver;
static struct node_service node;
static char folder[CHECK_FOLDER], state[CHECK_FOLDER];
static const char *mode = "0"; /* mountPermissions of each request */

static void setup(void)
{
	log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
	check_make_folder(folder);
	check_make_folder(state);
	fake_mounter_init(&mounter);
	driver = (struct node_driver){
		.node_id = "n",
		.mounter = &mounter.mounter,
		.state_dir = state,
	};
	ck_assert_int_eq(key_locks_new(&driver.key_locks), 0);
	node_service_init(&node, &driver);
}

static void teardown(void)
{
	key_locks_free(driver.key_locks);
	/* Every case unpublishes what it has published, and that leaves nothing. */
	ck_assert_msg(rmdir(state) == 0, "something is left in '%s'", state);
	ck_assert_msg(rmdir(folder) == 0, "something is left in '%s'", folder);
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

static char *target_path(const char *target, char path[128])
{
	(void)snprintf(path, 128, "%s/%s", folder, target);
	return path;
}

static void answered(const ProtobufCMessage *reply, void *data)
{
	struct request *call = data;

	ck_assert_int_eq(reply == NULL, call->err.code != ERROR_OK);
}

static void publish(const char *volume, const char *target, enum access access, struct error *ret)
{
	Csi__V1__NodePublishVolumeRequest in = CSI__V1__NODE_PUBLISH_VOLUME_REQUEST__INIT;
	Csi__V1__NodePublishVolumeRequest__VolumeContextEntry entries[4], *list[4];
	Csi__V1__VolumeCapability cap = CSI__V1__VOLUME_CAPABILITY__INIT;
	Csi__V1__VolumeCapability__MountVolume mount =
		CSI__V1__VOLUME_CAPABILITY__MOUNT_VOLUME__INIT;
	Csi__V1__VolumeCapability__AccessMode how = CSI__V1__VOLUME_CAPABILITY__ACCESS_MODE__INIT;
	const char *const pairs[] = { "server",           "s", "share", "/", "subDir", "e",
				      "mountPermissions", mode };
	struct request call = { .err = { .code = ERROR_OK } };
	char path[128];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(list); i++) {
		csi__v1__node_publish_volume_request__volume_context_entry__init(&entries[i]);
		entries[i].key = text(pairs[2 * i]);
		entries[i].value = text(pairs[2 * i + 1]);
		list[i] = &entries[i];
	}
	how.mode = (Csi__V1__VolumeCapability__AccessMode__Mode)access;
	cap.access_type_case = CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT;
	cap.mount = &mount;
	cap.access_mode = &how;
	in.volume_id = text(volume);
	in.target_path = target_path(target, path);
	in.volume_context = list;
	in.n_volume_context = ARRAY_SIZE(list);
	in.volume_capability = &cap;
	node_publish_volume(&node.service, &in,
			    (Csi__V1__NodePublishVolumeResponse_Closure)answered, &call);
	*ret = call.err;
}

static void check_publish(const char *row, const char *volume, const char *target,
			  enum access access, enum error_code code, const char *word)
{
	struct error err;

	publish(volume, target, access, &err);
	check_error(row, &err, code, word);
}

static void unpublish(const char *target)
{
	Csi__V1__NodeUnpublishVolumeRequest in = CSI__V1__NODE_UNPUBLISH_VOLUME_REQUEST__INIT;
	struct request call = { .err = { .code = ERROR_OK } };
	char path[128];

	in.volume_id = text("v");
	in.target_path = target_path(target, path);
	node_unpublish_volume(&node.service, &in,
			      (Csi__V1__NodeUnpublishVolumeResponse_Closure)answered, &call);
	check_error(target, &call.err, ERROR_OK, NULL);
}

/* The only note in the state folder. */
static void note_path(char path[256])
{
	const struct dirent *entry;
	DIR *dir = opendir(state);

	ck_assert_ptr_nonnull(dir);
	path[0] = '\0';
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		ck_assert_msg(path[0] == '\0', "'%s' is a second one", entry->d_name);
		(void)snprintf(path, 256, "%s/%.160s", state, entry->d_name);
	}
	closedir(dir);
	ck_assert_int_ne(path[0], '\0');
}

static void lose_notes(void)
{
	DIR *dir = opendir(state);
	const struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.')
			ck_assert_int_eq(unlinkat(dirfd(dir), entry->d_name, 0), 0);
	closedir(dir);
}

/* After a final code the CO forgets the request, but its mount is there. */
START_TEST(test_no_final_code_beside_a_mount)
{
	static const struct {
		enum error_code from, to;
	} codes[] = {
		{ ERROR_PERMISSION_DENIED, ERROR_ABORTED },
		{ ERROR_FAILED_PRECONDITION, ERROR_ABORTED },
		{ ERROR_INVALID_ARGUMENT, ERROR_ABORTED },
		{ ERROR_RESOURCE_EXHAUSTED, ERROR_ABORTED },
		{ ERROR_UNAVAILABLE, ERROR_UNAVAILABLE },
		{ ERROR_DEADLINE_EXCEEDED, ERROR_DEADLINE_EXCEEDED },
	};
	char source[sizeof(mounter.mounts[0].source)];
	size_t i;

	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	for (i = 0; i < ARRAY_SIZE(codes); i++) {
		mounter.look_error = codes[i].from;
		check_publish("verify", "v", "t", SHARED, codes[i].to, "told to fail");
		mounter.look_error = ERROR_OK;
		/* mountinfo has another name of what may be the same directory. */
		strcpy(source, mounter.mounts[0].source);
		strcpy(mounter.mounts[0].source, "s:/link");
		mounter.mount_error = codes[i].from;
		check_publish("compare", "v", "t", SHARED, codes[i].to, "told to fail");
		mounter.mount_error = ERROR_OK;
		strcpy(mounter.mounts[0].source, source);
	}
	check_publish("second", "v", "t2", SHARED, ERROR_OK, NULL);
	check_publish("note", "v", "t", ALONE, ERROR_ABORTED, "t2' already");
	unpublish("t2");
	unpublish("t");
}
END_TEST

/*
 * mountinfo has another name, and what has the volume's path now is gone at that very moment. The
 * mount that a pod uses is well, and stays.
 */
START_TEST(test_compare_finds_a_stale_directory)
{
	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	strcpy(mounter.mounts[0].source, "s:/renamed");
	mounter.compare_is_stale = true;
	check_publish("again", "v", "t", SHARED, ERROR_UNAVAILABLE, "second mount");
	ck_assert_str_eq(mounter.mounts[0].source, "s:/renamed");
	check_int("again", "mounts", mounter.n_mounted, 1);
	mounter.compare_is_stale = false;
	unpublish("t");
}
END_TEST

/* A final code would make the CO forget the mount of a pod that runs. */
START_TEST(test_directory_that_was_replaced)
{
	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	strcpy(mounter.mounts[0].source, "s:/renamed");
	check_publish("replaced", "v", "t", SHARED, ERROR_ABORTED, "renamed or replaced");
	check_publish("another volume", "w", "t", SHARED, ERROR_ALREADY_EXISTS, "s:/renamed");
	mounter.mount_error = ERROR_NOT_FOUND;
	check_publish("gone", "v", "t", SHARED, ERROR_ABORTED, "renamed or replaced");
	mounter.mount_error = ERROR_OK;
	lose_notes();
	check_publish("without a note", "v", "t", SHARED, ERROR_ABORTED, "renamed or replaced");
	check_int("all", "mounts", mounter.n_mounted, 1);
	unpublish("t");
}
END_TEST

/*
 * The kernel calls a mount stale whatever keeps the server from looking at its directory, as when
 * the share is not exported for a moment. The mount of a pod stays until another one can be made.
 */
START_TEST(test_stale_mount_that_cannot_be_replaced)
{
	static const enum error_code codes[] = { ERROR_PERMISSION_DENIED, ERROR_NOT_FOUND,
						 ERROR_UNAVAILABLE };
	size_t i;

	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	strcpy(mounter.mounts[0].source, "s:/renamed");
	for (i = 0; i < ARRAY_SIZE(codes); i++) {
		mounter.stale = true;
		mounter.mount_error = codes[i];
		check_publish("refused", "v", "t", SHARED,
			      codes[i] == ERROR_UNAVAILABLE ? ERROR_UNAVAILABLE : ERROR_ABORTED,
			      "told to fail");
		check_int("refused", "attempts", mounter.n_tried, i + 1);
		check_publish("another volume", "w", "t", SHARED, ERROR_ALREADY_EXISTS,
			      "another volume");
		ck_assert_str_eq(mounter.mounts[0].source, "s:/renamed");
	}
	check_int("all", "mounts", mounter.n_mounted, 1);
	mounter.mount_error = ERROR_OK;
	check_publish("replaced", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("replaced", "mounts", mounter.n_mounted, 2);
	unpublish("t");
}
END_TEST

/* What is published while another call has written its note and has not yet mounted. */
static const struct {
	const char *name;
	enum access first, second;
	const char *volume; /* of the second */
	enum error_code code;
} meanwhile[] = {
	{ "exclusive, then shared", ALONE, SHARED, "v", ERROR_ABORTED },
	{ "shared, then exclusive", SHARED, ALONE, "v", ERROR_ABORTED },
	{ "both exclusive", ALONE, ALONE, "v", ERROR_ABORTED },
	{ "both shared", SHARED, SHARED, "v", ERROR_OK },
	{ "another volume", ALONE, ALONE, "w", ERROR_OK },
};
static size_t meanwhile_row;

static void publish_meanwhile(void)
{
	mounter.before_mount = NULL;
	check_publish(meanwhile[meanwhile_row].name, meanwhile[meanwhile_row].volume, "t2",
		      meanwhile[meanwhile_row].second, meanwhile[meanwhile_row].code, NULL);
}

START_TEST(test_publish_at_once)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(meanwhile); i++) {
		meanwhile_row = i;
		mounter.before_mount = publish_meanwhile;
		check_publish(meanwhile[i].name, "v", "t", meanwhile[i].first, ERROR_OK, NULL);
		check_that(meanwhile[i].name, "the second call", mounter.before_mount == NULL);
		check_int(meanwhile[i].name, "mounts", mounter.n_mounted,
			  meanwhile[i].code == ERROR_OK ? 2 : 1);
		mounter.n_mounted = 0;
		unpublish("t");
		unpublish("t2");
		/* Nothing holds the volume any more. */
		check_publish(meanwhile[i].name, "v", "t2", ALONE, ERROR_OK, NULL);
		unpublish("t2");
		mounter.n_mounted = 0;
	}
}
END_TEST

/* The mount of one volume goes without an unpublish, and another volume takes its place. */
START_TEST(test_note_of_another_volume)
{
	check_publish("first", "v", "t", ALONE, ERROR_OK, NULL);
	memset(&mounter.mounts[0], 0, sizeof(mounter.mounts[0]));
	check_publish("in its place", "w", "t", SHARED, ERROR_OK, NULL);
	check_publish("elsewhere", "v", "t2", ALONE, ERROR_OK, NULL);
	check_publish("the one in its place", "w", "t3", ALONE, ERROR_FAILED_PRECONDITION,
		      "t' already");
	unpublish("t2");
	unpublish("t");
	unpublish("t3");
}
END_TEST

/* The helper of a call that took too long finishes its mount after the answer. */
START_TEST(test_mount_after_timeout)
{
	struct fake_mount *late = &mounter.mounts[0];
	char path[128];

	ck_assert_int_eq(mkdir(target_path("t", path), 0700), 0);
	mounter.mount_error = ERROR_DEADLINE_EXCEEDED;
	check_publish("too long", "v", "t", ALONE, ERROR_DEADLINE_EXCEEDED, "told to fail");
	mounter.mount_error = ERROR_OK;
	strcpy(late->target, path);
	strcpy(late->source, "s:/e");
	check_publish("elsewhere", "v", "t2", SHARED, ERROR_FAILED_PRECONDITION, "t' already");
	unpublish("t");
	check_publish("elsewhere, after", "v", "t2", SHARED, ERROR_OK, NULL);
	unpublish("t2");
}
END_TEST

static void mount_late(void)
{
	char path[128];

	mounter.before_mount = NULL;
	strcpy(mounter.mounts[0].target, target_path("t", path));
	strcpy(mounter.mounts[0].source, "s:/e");
}

/* The helper of an earlier call mounts while this one fails, for whatever reason. */
START_TEST(test_mount_beside_a_failure)
{
	char path[128];

	mounter.mount_error = ERROR_INTERNAL;
	check_publish("nothing is there", "v", "t", ALONE, ERROR_INTERNAL, "told to fail");
	mounter.before_mount = mount_late;
	check_publish("busy", "v", "t", ALONE, ERROR_ABORTED, "told to fail");
	mounter.mount_error = ERROR_OK;
	ck_assert_int_eq(mkdir(target_path("t", path), 0700), 0);
	check_publish("elsewhere", "v", "t2", SHARED, ERROR_FAILED_PRECONDITION, "t' already");
	check_publish("again", "v", "t", ALONE, ERROR_OK, NULL);
	check_int("again", "mounts", mounter.n_mounted, 0);
	unpublish("t");
}
END_TEST

/*
 * The mode is set once: after that it is the pod's. A call that was interrupted after the mount, or
 * that failed to set it, leaves that to the next one.
 */
START_TEST(test_mode_is_set_once)
{
	struct fake_mount *late = &mounter.mounts[0];
	char path[128];
	int i;

	mode = "0700";
	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("first", "mode", (int)late->mode, 0700);
	for (i = 0; i < 2; i++) {
		mounter.verified_mode = 07777;
		check_publish("again", "v", "t", SHARED, ERROR_OK, NULL);
		check_int("again", "mode", (int)mounter.verified_mode, 0);
	}
	unpublish("t");

	mounter.mount_error = ERROR_DEADLINE_EXCEEDED;
	check_publish("too long", "v", "t", ALONE, ERROR_DEADLINE_EXCEEDED, "told to fail");
	mounter.mount_error = ERROR_OK;
	ck_assert_int_eq(mkdir(target_path("t", path), 0700), 0);
	strcpy(late->target, path);
	strcpy(late->source, "s:/e");
	mounter.look_error = ERROR_PERMISSION_DENIED;
	check_publish("refused", "v", "t", ALONE, ERROR_ABORTED, "told to fail");
	check_int("refused", "mode", (int)mounter.verified_mode, 0700);
	mounter.look_error = ERROR_OK;
	mounter.verified_mode = 0;
	check_publish("set", "v", "t", ALONE, ERROR_OK, NULL);
	check_int("set", "mode", (int)mounter.verified_mode, 0700);
	check_publish("after", "v", "t", ALONE, ERROR_OK, NULL);
	check_int("after", "mode", (int)mounter.verified_mode, 0);
	/* A mount without a note may be that of csi-driver-nfs. */
	for (i = 0; i < 2; i++) {
		if (i == 0)
			lose_notes();
		mounter.verified_mode = 07777;
		check_publish("no note", "v", "t", ALONE, ERROR_OK, NULL);
		check_int("no note", "mode", (int)mounter.verified_mode, 0);
	}
	unpublish("t");
	mode = "0";
}
END_TEST

/* A directory where the note would be written anew, as in a folder without room. */
static void fill_state(void)
{
	char note[256], fresh[264];

	mounter.before_mount = NULL;
	note_path(note);
	(void)snprintf(fresh, sizeof(fresh), "%s.new", note);
	ck_assert_int_eq(mkdir(fresh, 0700), 0);
}

static void empty_state(void)
{
	DIR *dir = opendir(state);
	const struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL)
		if (strstr(entry->d_name, ".new") != NULL)
			ck_assert_int_eq(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR), 0);
	closedir(dir);
}

/* That it is set is noted all the same. */
START_TEST(test_mode_is_set_once_in_a_full_folder)
{
	mode = "0700";
	mounter.before_mount = fill_state;
	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("first", "mode", (int)mounter.mounts[0].mode, 0700);
	mounter.verified_mode = 07777;
	check_publish("again", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("again", "mode", (int)mounter.verified_mode, 0);
	empty_state();
	unpublish("t");
	mode = "0";
}
END_TEST

static void use_up_descriptors(void)
{
	struct rlimit few;

	mounter.before_mount = NULL;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
}

/* Then the call is repeated, which sets the mode again before there is a pod. */
START_TEST(test_mode_that_cannot_be_noted_now)
{
	struct rlimit before;

	mode = "0700";
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	mounter.before_mount = use_up_descriptors;
	check_publish("no descriptor", "v", "t", SHARED, ERROR_ABORTED, "open files");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	check_publish("again", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("again", "mode", (int)mounter.verified_mode, 0700);
	check_publish("after", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("after", "mode", (int)mounter.verified_mode, 0);
	unpublish("t");
	mode = "0";
}
END_TEST

/* A call that is refused, and repeated often, leaves the files of the node alone. */
START_TEST(test_refused_call_changes_nothing)
{
	static const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	const char *const folders[] = { folder, state };
	struct stat st;
	size_t i;

	check_publish("first", "v", "t", SHARED, ERROR_OK, NULL);
	mounter.check_error = ERROR_UNAVAILABLE;
	check_publish("mounted", "v", "t", SHARED, ERROR_OK, NULL);
	for (i = 0; i < ARRAY_SIZE(folders); i++)
		ck_assert_int_eq(utimensat(AT_FDCWD, folders[i], times, 0), 0);
	check_publish("refused", "v", "t2", SHARED, ERROR_UNAVAILABLE, "told to fail");
	for (i = 0; i < ARRAY_SIZE(folders); i++) {
		ck_assert_int_eq(stat(folders[i], &st), 0);
		check_int(folders[i], "time of the last change", st.st_mtim.tv_sec, 1);
	}
	mounter.check_error = ERROR_OK;
	unpublish("t");
}
END_TEST

/* The mount of a call that was given up may come after the next call has failed. */
START_TEST(test_note_outlasts_another_failure)
{
	mounter.mount_error = ERROR_DEADLINE_EXCEEDED;
	check_publish("too long", "v", "t", ALONE, ERROR_DEADLINE_EXCEEDED, "told to fail");
	mounter.mount_error = ERROR_UNAVAILABLE;
	check_publish("fails", "v", "t", ALONE, ERROR_UNAVAILABLE, "told to fail");
	mounter.mount_error = ERROR_OK;
	mount_late();
	check_publish("elsewhere", "v", "t2", SHARED, ERROR_FAILED_PRECONDITION, "t' already");
	unpublish("t");
}
END_TEST

/* A call that failed for another reason leaves no note, and so nothing to look at. */
START_TEST(test_no_note_after_failure)
{
	mounter.mount_error = ERROR_UNAVAILABLE;
	check_publish("fails", "v", "t", ALONE, ERROR_UNAVAILABLE, "told to fail");
	mounter.mount_error = ERROR_OK;
	check_that("fails", "no note", rmdir(state) == 0);
	ck_assert_int_eq(mkdir(state, 0700), 0);
}
END_TEST

/* A directory stands where the note is to be written, which stops root too. */
START_TEST(test_state_folder_that_fails)
{
	char note[256], fresh[264];

	check_publish("first", "v", "t", ALONE, ERROR_OK, NULL);
	note_path(note);
	(void)snprintf(fresh, sizeof(fresh), "%s.new", note);
	ck_assert_int_eq(mkdir(fresh, 0700), 0);
	check_publish("the note is there", "v", "t", ALONE, ERROR_OK, NULL);
	ck_assert_int_eq(unlink(note), 0);
	check_publish("no note", "v", "t", ALONE, ERROR_ABORTED, "state folder");
	ck_assert_int_eq(rmdir(fresh), 0);
	ck_assert_int_eq(mkdir(note, 0700), 0);
	check_publish("cannot be put in place", "v", "t", ALONE, ERROR_ABORTED, "state folder");
	check_that("cannot be put in place", "nothing else is left", access(fresh, F_OK) < 0);
	ck_assert_int_eq(rmdir(note), 0);
	check_publish("well again", "v", "t", ALONE, ERROR_OK, NULL);
	unpublish("t");
}
END_TEST

/* Whether another pod writes the volume is not known while its note cannot be read. */
START_TEST(test_note_that_cannot_be_read)
{
	char note[256], aside[256];
	FILE *f;

	check_publish("first", "v", "t", ALONE, ERROR_OK, NULL);
	note_path(note);
	(void)snprintf(aside, sizeof(aside), "%s/aside", folder);
	ck_assert_int_eq(rename(note, aside), 0);
	ck_assert_int_eq(mkdir(note, 0700), 0);
	check_publish("exclusive", "v", "t2", ALONE, ERROR_FAILED_PRECONDITION, "state folder");
	check_publish("shared", "v", "t3", SHARED, ERROR_OK, NULL);
	ck_assert_int_eq(rmdir(note), 0);
	ck_assert_int_eq(rename(aside, note), 0);
	check_publish("read", "v", "t2", ALONE, ERROR_FAILED_PRECONDITION, "' already");
	unpublish("t");
	check_publish("noted", "v", "t2", ALONE, ERROR_FAILED_PRECONDITION, "t3' already");
	unpublish("t3");
	check_publish("again", "v", "t", ALONE, ERROR_OK, NULL);
	/* Nothing can be read from one, and a call that opens it must not wait for a writer. */
	ck_assert_int_eq(unlink(note), 0);
	ck_assert_int_eq(mkfifo(note, 0600), 0);
	check_publish("FIFO", "v", "t2", SHARED, ERROR_OK, NULL);
	unpublish("t2");
	ck_assert_int_eq(unlink(note), 0);
	/* A node that lost its power has no mounts, but perhaps an empty file. */
	f = fopen(note, "we");
	ck_assert_ptr_nonnull(f);
	fclose(f);
	check_publish("empty", "v", "t2", ALONE, ERROR_OK, NULL);
	unpublish("t2");
	unpublish("t");
}
END_TEST

/* What the note says is not known while it cannot be opened, and would be lost if it were. */
START_TEST(test_note_that_cannot_be_opened)
{
	struct rlimit few, before;

	mode = "0700";
	mounter.mount_error = ERROR_DEADLINE_EXCEEDED;
	check_publish("too long", "v", "t", SHARED, ERROR_DEADLINE_EXCEEDED, "told to fail");
	mounter.mount_error = ERROR_OK;
	mount_late();
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	check_publish("no descriptor", "v", "t", SHARED, ERROR_ABORTED, "open files");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	check_publish("set", "v", "t", SHARED, ERROR_OK, NULL);
	check_int("set", "mode", (int)mounter.verified_mode, 0700);
	unpublish("t");
	mode = "0";
}
END_TEST

/* A driver was killed before it had put a note in place. The notes of others stay. */
START_TEST(test_note_that_was_being_written)
{
	char note[256], fresh[264];

	check_publish("first", "v", "t", ALONE, ERROR_OK, NULL);
	note_path(note);
	(void)snprintf(fresh, sizeof(fresh), "%s.new", note);
	ck_assert_int_eq(mknod(fresh, S_IFREG | 0600, 0), 0);
	check_publish("another", "w", "t2", ALONE, ERROR_OK, NULL);
	ck_assert_int_eq(access(fresh, F_OK), 0);
	unpublish("t");
	ck_assert_int_lt(access(fresh, F_OK), 0);
	check_publish("another", "w", "t3", ALONE, ERROR_FAILED_PRECONDITION, "t2' already");
	unpublish("t2");
	unpublish("t3");
}
END_TEST

/* lstat() by the driver would wait for a server that an earlier call's helper has just mounted. */
START_TEST(test_only_the_mounter_looks_at_the_target)
{
	char path[128];
	FILE *f = fopen(target_path("t", path), "we");

	ck_assert_ptr_nonnull(f);
	fclose(f);
	mounter.mount_error = ERROR_UNAVAILABLE;
	check_publish("file", "v", "t", SHARED, ERROR_UNAVAILABLE, "told to fail");
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

CHECK_MAIN("publish", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_no_final_code_beside_a_mount,
		   test_compare_finds_a_stale_directory,
		   test_directory_that_was_replaced,
		   test_stale_mount_that_cannot_be_replaced,
		   test_publish_at_once,
		   test_note_of_another_volume,
		   test_mount_after_timeout,
		   test_mount_beside_a_failure,
		   test_mode_is_set_once,
		   test_mode_is_set_once_in_a_full_folder,
		   test_mode_that_cannot_be_noted_now,
		   test_note_outlasts_another_failure,
		   test_no_note_after_failure,
		   test_refused_call_changes_nothing,
		   test_state_folder_that_fails,
		   test_note_that_cannot_be_read,
		   test_note_that_cannot_be_opened,
		   test_note_that_was_being_written,
		   test_only_the_mounter_looks_at_the_target,
	   })
