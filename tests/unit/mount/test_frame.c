/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Requests and replies between driver and helper: encoded, truncated, corrupted. */

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "check_util.h"
#include "mount/frame.h"
#include "mount/mounter.h"

static const struct mount_request full = {
	.server = "nfs.example",
	.path = "/share/a/b",
	.top = "/share",
	.target = "/pods/t",
	.options = "soft,token=hunter2",
	.read_only = true,
	.mode = 02770,
};

/* Encode a request that must be good. The caller frees. */
static struct mount_frame *encode(enum mount_operation op, const struct mount_request *request)
{
	struct mount_frame *frame = NULL;

	ck_assert_int_eq(mount_frame_new(&frame, op, request), 0);
	ck_assert_ptr_nonnull(frame);
	return frame;
}

/* Decode from memory of exactly len bytes, so that sanitizers see a read beyond it. */
static int decode(struct mount_frame *ret, const void *data, size_t len)
{
	void *copy = malloc(len > 0 ? len : 1);
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, data, len);
	r = mount_frame_decode(ret, copy, len);
	free(copy);
	return r;
}

START_TEST(test_round_trip)
{
	static const struct {
		const char *name;
		enum mount_operation operation;
		struct mount_request request;
		const char *top, *below;
	} rows[] = {
		{ "mount",
		  MOUNT_OP_MOUNT,
		  { "s", "/e", NULL, "/t", "", false, 0, false },
		  "/e",
		  "" },
		{ "mount below",
		  MOUNT_OP_MOUNT,
		  { "fd00::1", "/e/a/b", "/e", "/t", "soft", true, 07777, false },
		  "/e",
		  "a/b" },
		{ "the root of the server",
		  MOUNT_OP_COMPARE,
		  { "s", "/a/b", "/", "/t", "soft", false, 0, true },
		  "/",
		  "a/b" },
		{ "try", MOUNT_OP_TRY, { "s", "/e", NULL, "/t", "soft", true, 0, false }, "/e", "" },
		{ "verify", MOUNT_OP_VERIFY, { .target = "/t", .mode = 0750 }, "", "" },
		{ "usage", MOUNT_OP_USAGE, { .target = "/t" }, "", "" },
		{ "umount", MOUNT_OP_UMOUNT, { .target = "/t" }, "", "" },
		{ "umount, force", MOUNT_OP_UMOUNT_FORCE, { .target = "/t" }, "", "" },
		{ "umount, detach", MOUNT_OP_UMOUNT_DETACH, { .target = "/t" }, "", "" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct mount_request *in = &rows[i].request;
		struct mount_frame *frame = encode(rows[i].operation, in);
		struct mount_frame out;

		check_int(rows[i].name, "result", decode(&out, frame, sizeof(*frame)), 0);
		check_int(rows[i].name, "operation", out.operation, rows[i].operation);
		check_int(rows[i].name, "driver", out.driver, getpid());
		check_int(rows[i].name, "mode", out.mode, in->mode);
		check_int(rows[i].name, "read_only", out.read_only, in->read_only);
		check_int(rows[i].name, "one_superblock", out.one_superblock, in->one_superblock);
		check_str(rows[i].name, "server", out.server, in->server != NULL ? in->server : "");
		check_str(rows[i].name, "top", out.top, rows[i].top);
		check_str(rows[i].name, "below", out.below, rows[i].below);
		check_str(rows[i].name, "target", out.target, in->target);
		check_str(rows[i].name, "options", out.options,
			  in->options != NULL ? in->options : "");
		free(frame);
	}
}
END_TEST

/* The longest strings fit, with one byte more each is refused. */
START_TEST(test_lengths)
{
	char *text = check_repeat("/", PATH_MAX + MOUNT_OPTIONS_MAX);
	struct mount_request q;
	const struct {
		const char *name;
		const char **field;
		size_t max;
	} rows[] = {
		{ "server", &q.server, NET_SERVER_MAX },
		{ "target", &q.target, PATH_MAX - 1 },
		{ "path", &q.path, PATH_MAX - 1 },
		{ "options", &q.options, MOUNT_OPTIONS_MAX },
	};
	struct mount_frame *frame = NULL, out;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		q = full;
		q.top = NULL;
		*rows[i].field = text + strlen(text) - rows[i].max;
		check_int(rows[i].name, "longest", mount_frame_new(&frame, MOUNT_OP_MOUNT, &q), 0);
		check_int(rows[i].name, "decoded", decode(&out, frame, sizeof(*frame)), 0);
		free(frame);
		frame = NULL;
		(*rows[i].field)--;
		check_int(rows[i].name, "too long", mount_frame_new(&frame, MOUNT_OP_MOUNT, &q),
			  -ENAMETOOLONG);
		check_that(rows[i].name, "no frame", frame == NULL);
	}
	free(text);
}
END_TEST

START_TEST(test_truncated)
{
	struct mount_frame *frame = encode(MOUNT_OP_MOUNT, &full);
	char longer[sizeof(*frame) + 1] = { 0 };
	struct mount_frame out;
	size_t len;

	for (len = 0; len < sizeof(*frame); len++)
		check_int("truncated", "result", decode(&out, frame, len), -EPROTO);
	memcpy(longer, frame, sizeof(*frame));
	check_int("longer", "result", decode(&out, longer, sizeof(longer)), -EPROTO);
	free(frame);
}
END_TEST

#define AT(field) offsetof(struct mount_frame, field)
#define END(field) (offsetof(struct mount_frame, field) + sizeof(((struct mount_frame *)0)->field))

START_TEST(test_corrupted)
{
	static const struct {
		const char *name;
		size_t offset;
		const char *bytes;
		size_t len;
	} rows[] = {
		{ "magic", AT(magic), "x", 1 },
		{ "another version's size", AT(size), "\x01\x00\x00\x00", 4 },
		{ "no operation", AT(operation), "\0\0\0\0", 4 },
		{ "unknown operation", AT(operation), "\x63\0\0\0", 4 },
		{ "huge operation", AT(operation), "\xff\xff\xff\xff", 4 },
		{ "no driver", AT(driver), "\0\0\0\0", 4 },
		{ "negative driver", AT(driver), "\xff\xff\xff\xff", 4 },
		{ "mode", AT(mode), "\xff\xff\xff\xff", 4 },
		{ "read_only", AT(read_only), "\x02\0\0\0", 4 },
		{ "one_superblock", AT(one_superblock), "\x02\0\0\0", 4 },
		{ "no server", AT(server), "\0\0\0\0\0\0\0\0\0\0\0", 11 },
		{ "relative top", AT(top), "s", 1 },
		{ "absolute below", AT(below), "/", 1 },
		{ "relative target", AT(target), "p", 1 },
		{ "bytes after the server", END(server) - 1, "x", 1 },
		{ "bytes after the top", END(top) - 1, "x", 1 },
		{ "bytes after below", END(below) - 1, "x", 1 },
		{ "bytes after the target", END(target) - 1, "x", 1 },
		{ "bytes after the options", END(options) - 1, "x", 1 },
		{ "options that end early", AT(options) + 4, "\0", 1 },
		{ "a source where there is none", AT(operation), "\x03\0\0\0", 4 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct mount_frame *frame = encode(MOUNT_OP_MOUNT, &full);
		struct mount_frame out;

		memcpy((char *)frame + rows[i].offset, rows[i].bytes, rows[i].len);
		check_int(rows[i].name, "result", decode(&out, frame, sizeof(*frame)), -EPROTO);
		free(frame);
	}
}
END_TEST

/* A field without a terminator would let the helper read into the next one. */
START_TEST(test_unterminated)
{
	static const struct {
		const char *name;
		size_t offset, size;
	} rows[] = {
		{ "server", AT(server), END(server) - AT(server) },
		{ "top", AT(top), END(top) - AT(top) },
		{ "below", AT(below), END(below) - AT(below) },
		{ "target", AT(target), END(target) - AT(target) },
		{ "options", AT(options), END(options) - AT(options) },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct mount_frame *frame = encode(MOUNT_OP_MOUNT, &full);
		char *field = (char *)frame + rows[i].offset;
		struct mount_frame out;

		/* Keep the first byte: it decides between absolute and relative. */
		memset(field + 1, 'x', rows[i].size - 1);
		check_int(rows[i].name, "result", decode(&out, frame, sizeof(*frame)), -EPROTO);
		free(frame);
	}
}
END_TEST

/* A frame with any byte changed is refused, or has fields that are safe to use. */
START_TEST(test_any_byte)
{
	struct mount_frame *frame = encode(MOUNT_OP_MOUNT, &full);
	unsigned char *bytes = (unsigned char *)frame;
	struct mount_frame out;
	size_t i;

	for (i = 0; i < sizeof(*frame); i++) {
		const unsigned char before = bytes[i];

		bytes[i] ^= (unsigned char)(i % 255 + 1);
		if (mount_frame_decode(&out, frame, sizeof(*frame)) == 0) {
			ck_assert_uint_lt(out.operation, MOUNT_OP_END);
			ck_assert_uint_gt(out.operation, 0);
			ck_assert_uint_le(out.mode, 07777);
			ck_assert_uint_lt(strnlen(out.server, sizeof(out.server)),
					  sizeof(out.server));
			ck_assert_uint_lt(strnlen(out.top, sizeof(out.top)), sizeof(out.top));
			ck_assert_uint_lt(strnlen(out.below, sizeof(out.below)), sizeof(out.below));
			ck_assert_uint_lt(strnlen(out.target, sizeof(out.target)),
					  sizeof(out.target));
			ck_assert_uint_lt(strnlen(out.options, sizeof(out.options)),
					  sizeof(out.options));
		}
		bytes[i] = before;
	}
	free(frame);
}
END_TEST

START_TEST(test_reply)
{
	const struct mount_reply good = { .magic = MOUNT_REPLY_MAGIC };
	struct mount_reply reply = good;

	ck_assert_int_eq(mount_reply_check(&reply), 0);
	reply.step = 99; /* for the caller to refuse */
	ck_assert_int_eq(mount_reply_check(&reply), 0);
	reply.magic = MOUNT_FRAME_MAGIC;
	ck_assert_int_eq(mount_reply_check(&reply), -EPROTO);
	reply = good;
	reply.error = -EIO;
	ck_assert_int_eq(mount_reply_check(&reply), -EPROTO);
	reply = good;
	memset(reply.address, 'x', sizeof(reply.address));
	ck_assert_int_eq(mount_reply_check(&reply), -EPROTO);
	reply = good;
	memset(reply.client, 'x', sizeof(reply.client));
	ck_assert_int_eq(mount_reply_check(&reply), -EPROTO);
	reply = good;
	memset(reply.text, 'x', sizeof(reply.text));
	ck_assert_int_eq(mount_reply_check(&reply), -EPROTO);
}
END_TEST

/* Run the helper in a child on len bytes. Returns its exit status, and the size of its reply. */
static int run_helper(const void *data, size_t len, struct mount_reply *reply, ssize_t *ret_len)
{
	int in[2], out[2], status;
	pid_t pid;

	ck_assert_int_eq(pipe(in), 0);
	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		close(in[1]);
		close(out[0]);
		_exit(mount_helper_main());
	}
	close(in[0]);
	close(out[1]);
	ck_assert_int_eq(write(in[1], data, len), (ssize_t)len);
	close(in[1]);
	*ret_len = read(out[0], reply, sizeof(*reply));
	close(out[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(test_helper)
{
	const struct mount_request gone = { .target = "/nonexistent/target" };
	struct mount_frame *frame = encode(MOUNT_OP_UMOUNT, &gone);
	char longer[sizeof(*frame) + 1] = { 0 };
	struct mount_reply reply;
	ssize_t len;
	size_t i;
	const struct {
		const char *name;
		const void *data;
		size_t len;
	} malformed[] = {
		{ "nothing", "", 0 },
		{ "text", "mount", 5 },
		{ "truncated", frame, sizeof(*frame) - 1 },
		{ "longer", longer, sizeof(longer) },
		{ "shifted", longer + 4, sizeof(*frame) - 4 },
	};

	memcpy(longer, frame, sizeof(*frame));
	for (i = 0; i < ARRAY_SIZE(malformed); i++) {
		check_int(malformed[i].name, "status",
			  run_helper(malformed[i].data, malformed[i].len, &reply, &len), 0);
		check_int(malformed[i].name, "size of the reply", len, sizeof(reply));
		check_int(malformed[i].name, "reply", mount_reply_check(&reply), 0);
		check_int(malformed[i].name, "step", reply.step, MOUNT_STEP_REQUEST);
	}
	check_int("good", "status", run_helper(frame, sizeof(*frame), &reply, &len), 0);
	check_int("good", "reply", mount_reply_check(&reply), 0);
	check_int("good", "step", reply.step, MOUNT_STEP_UMOUNT);
	/* Another process is its parent: the driver is dead. */
	frame->driver = 1;
	check_int("orphan", "status", run_helper(frame, sizeof(*frame), &reply, &len),
		  EXIT_FAILURE);
	check_int("orphan", "size of the reply", len, 0);
	free(frame);
}
END_TEST

CHECK_MAIN("mount_frame", .tests = {
				  test_round_trip,
				  test_lengths,
				  test_truncated,
				  test_corrupted,
				  test_unterminated,
				  test_any_byte,
				  test_reply,
				  test_helper,
			  })
