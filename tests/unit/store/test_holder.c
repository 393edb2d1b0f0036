/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* store/holder.c: the id of successive processes, and of copies of a machine. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/holder.h"
#include "check_util.h"
#include "meanwhile.h"

static char folder[CHECK_FOLDER];
static char path[sizeof(folder) + 8], file[sizeof(path) + 8];

static void set_up(void)
{
	check_make_folder(folder);
	(void)snprintf(path, sizeof(path), "%s/socket", folder);
	(void)snprintf(file, sizeof(file), "%s.holder", path);
}

static void tear_down(void)
{
	(void)unlink(file);
	(void)rmdir(folder);
}

/* Start a process at the path, and get its id. It lives until its standard input is closed. */
struct process {
	pid_t pid;
	int input; /* close it to end the process */
	char id[STORE_HOLDER_LEN + 1];
};

static void start(struct process *p)
{
	int in[2], out[2];

	ck_assert_int_eq(pipe(in), 0);
	ck_assert_int_eq(pipe(out), 0);
	p->pid = fork();
	ck_assert_int_ge(p->pid, 0);
	if (p->pid == 0) {
		char end;

		close(in[1]);
		store_holder_init(path);
		if (write(out[1], store_holder(), STORE_HOLDER_LEN) != STORE_HOLDER_LEN)
			_exit(1);
		_exit(read(in[0], &end, 1) == 0 ? 0 : 1);
	}
	close(in[0]);
	close(out[1]);
	ck_assert_int_eq(read(out[0], p->id, STORE_HOLDER_LEN), STORE_HOLDER_LEN);
	p->id[STORE_HOLDER_LEN] = '\0';
	close(out[0]);
	p->input = in[1];
}

static void stop(const struct process *p)
{
	int status;

	close(p->input);
	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	ck_assert_int_eq(status, 0);
}

static void run(struct process *p)
{
	start(p);
	stop(p);
}

static void put_file(const char *text)
{
	FILE *f = fopen(file, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

START_TEST(test_successors)
{
	struct process first, second, third;

	start(&first);
	start(&second);
	check_that("at once", "two ids", strcmp(first.id, second.id) != 0);
	stop(&second);
	stop(&first);
	run(&third);
	check_str("after the first one", "id", third.id, first.id);
}
END_TEST

START_TEST(test_file)
{
	struct timespec now, up;
	struct process p;
	char text[80];
	long long booted;
	size_t i;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)clock_gettime(CLOCK_BOOTTIME, &up);
	booted = (long long)now.tv_sec - (long long)up.tv_sec;
	const struct {
		const char *name, *id;
		long long booted;
		bool counts;
	} rows[] = {
		{ "of this boot", "0123456789abcdef", booted, true },
		{ "the clock was set a little", "0123456789abcdef", booted + 50, true },
		{ "of an earlier boot", "0123456789abcdef", booted - 120, false },
		{ "the clock was set back", "0123456789abcdef", booted + 120, false },
		{ "no id", "x123456789abcdef", booted, false },
		{ "empty", "", booted, false },
	};

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		(void)snprintf(text, sizeof(text), "%s %lld\n", rows[i].id, rows[i].booted);
		put_file(text);
		run(&p);
		check_int(rows[i].name, "is the id", strcmp(p.id, "0123456789abcdef") == 0,
			  rows[i].counts);
	}
	put_file("0123456789abcdef");
	run(&p);
	check_that("without a boot", "another id", strcmp(p.id, "0123456789abcdef") != 0);
}
END_TEST

static void see(void)
{
	check_that("seen first", "alive", !store_holder_is_dead("server", "/share", "note"));
}

/* Another thread sees the holder for the first time after this one has begun to look. */
START_TEST(test_seen_at_once)
{
	meanwhile = see;
	see();
}
END_TEST

CHECK_MAIN("holder", .setup = set_up, .teardown = tear_down,
	   .tests = { test_successors, test_file, test_seen_at_once })
