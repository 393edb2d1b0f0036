/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * A shell script plays the helper. A scenario is the body of a script; it gets the request on
 * stdin, and the folder of the test as $1, in place of the subcommand.
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compat.h"
#include "base/str.h"
#include "check_util.h"
#include "mount/process.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2) /* headers of Linux 5.10 lack it */
#endif

#define REPLY_LEN 8
#define LONG_MS 20000 /* far more than a scenario takes, even on a busy machine */
#define SHORT_MS 300
#define SLACK_MS 5000 /* longest "at once" on a busy machine */

static char folder[CHECK_FOLDER];
static char script[CHECK_FOLDER + 16], pid_file[CHECK_FOLDER + 16];

static void setup(void)
{
	check_make_folder(folder);
	snprintf(script, sizeof(script), "%s/helper", folder);
	snprintf(pid_file, sizeof(pid_file), "%s/pid", folder);
	(void)signal(SIGPIPE, SIG_IGN); /* as the driver */
}

static void teardown(void)
{
	unlink(script);
	unlink(pid_file);
	rmdir(folder);
}

static void write_script(const char *body)
{
	FILE *f = fopen(script, "we");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n%s\n", body);
	fclose(f);
	ck_assert_int_eq(chmod(script, 0700), 0);
}

struct run {
	struct mount_reaper reaper;
	struct mount_process process;
	char reply[REPLY_LEN];
	int r;
	uint64_t ms; /* how long it took */
};

static void run_request(struct run *run, const char *body, const void *request, size_t len,
			unsigned int timeout_ms)
{
	uint64_t start;

	write_script(body);
	memset(run, 0, sizeof(*run));
	mount_reaper_init(&run->reaper);
	run->process = (struct mount_process){
		.path = script,
		.argument = folder,
		.request = request,
		.request_len = len,
		.reply = run->reply,
		.reply_len = REPLY_LEN,
	};
	start = clock_now_ns();
	run->r = mount_process_run(&run->reaper, &run->process, timeout_ms);
	run->ms = (clock_now_ns() - start) / CLOCK_NS_PER_MS;
}

static void run_script(struct run *run, const char *body, unsigned int timeout_ms)
{
	run_request(run, body, "request", 7, timeout_ms);
}

/* The state letter of /proc, or 0 where there is no such process. */
static char state_of(pid_t pid)
{
	char path[64], line[256] = "";
	const char *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	end = strrchr(line, ')');
	return end != NULL && end[1] == ' ' ? end[2] : 0;
}

/* Gone, or a zombie that its new parent has not reaped yet. */
static bool is_dead(pid_t pid)
{
	char state = state_of(pid);

	return state == 0 || state == 'Z' || state == 'X';
}

/*
 * No child process may be left, whatever the result. The last one may linger: on a busy machine it
 * takes seconds to end.
 */
static void check_reaped(const char *name, struct run *run)
{
	check_that(name, "that at most the last process lingers", run->reaper.n <= 1);
	while (run->reaper.n > 0 && !is_dead(run->reaper.lingering[0]))
		usleep(1000);
	mount_reaper_done(&run->reaper);
	check_int(name, "processes that linger", run->reaper.n, 0);
	check_int(name, "waitpid", waitpid(-1, NULL, WNOHANG), -1);
	check_int(name, "errno of waitpid", errno, ECHILD);
}

static const struct {
	const char *name;
	const char *body;
	int r;
	const char *reply; /* with r 0 */
	const char *log; /* complete */
} endings[] = {
	{ "reply", "printf 12345678", 0, "12345678", "" },
	{ "reply in pieces", "printf 123; sleep 0.1; printf 45; sleep 0.1; printf 678", 0,
	  "12345678", "" },
	{ "reply and log", "echo why >&2; printf 12345678", 0, "12345678", "why\n" },
	{ "log in pieces", "echo a >&2; sleep 0.1; echo b >&2; sleep 0.1; printf 12345678", 0,
	  "12345678", "a\nb\n" },
	{ "log after the reply", "printf 12345678; echo late >&2; sleep 0.1", 0, "12345678",
	  "late\n" },
	{ "more than the reply", "printf 12345678; printf more", 0, "12345678", "" },
	{ "standard error is closed", "exec 2>&-; printf 12345678", 0, "12345678", "" },
	{ "exit status does not matter", "printf 12345678; exit 3", 0, "12345678", "" },
	{ "nothing", "exit 0", -EPROTO, NULL, "" },
	{ "short reply", "printf 1234567", -EPROTO, NULL, "" },
	{ "failure", "echo broken >&2; exit 1", -EPROTO, NULL, "broken\n" },
	{ "crash", "kill -SEGV $$", -EPROTO, NULL, "" },
	{ "crash in the middle of the reply", "printf 1234; kill -KILL $$", -EPROTO, NULL, "" },
	{ "standard output is closed", "exec 1>&-; sleep 0.1", -EPROTO, NULL, "" },
	{ "request is not read", "exec 0<&-; printf 12345678", 0, "12345678", "" },
};

START_TEST(test_endings)
{
	struct run run;
	size_t waited = 0, i;

	for (i = 0; i < ARRAY_SIZE(endings); i++) {
		run_script(&run, endings[i].body, LONG_MS);
		check_int(endings[i].name, "result", run.r, endings[i].r);
		check_str(endings[i].name, "log", run.process.log, endings[i].log);
		if (endings[i].reply != NULL)
			check_int(endings[i].name, "difference of the reply",
				  memcmp(run.reply, endings[i].reply, REPLY_LEN), 0);
		check_that(endings[i].name, "that the deadline was not waited for",
			   run.ms < LONG_MS / 2);
		waited += run.reaper.n == 0;
		check_reaped(endings[i].name, &run);
	}
	check_that("all", "that the end of processes was waited for", waited > 0);
}
END_TEST

/* Megabytes of noise neither stop the helper nor grow the driver. */
START_TEST(test_noise)
{
	struct run run;
	size_t len;

	run_script(&run, "head -c 3000000 /dev/zero | tr '\\0' e >&2; printf 12345678", LONG_MS);
	ck_assert_int_eq(run.r, 0);
	ck_assert_int_eq(memcmp(run.reply, "12345678", REPLY_LEN), 0);
	len = strlen(run.process.log);
	ck_assert_uint_eq(len, MOUNT_LOG_SIZE - 1);
	ck_assert_uint_eq(strspn(run.process.log, "e"), len);
	check_reaped("standard error", &run);

	run_script(&run, "printf 12345678; head -c 3000000 /dev/zero", LONG_MS);
	ck_assert_int_eq(run.r, 0);
	ck_assert_int_eq(memcmp(run.reply, "12345678", REPLY_LEN), 0);
	check_reaped("standard output", &run);
}
END_TEST

/* The whole request arrives, and then its end. */
START_TEST(test_request)
{
	static const size_t sizes[] = { 1, 4096, 4097, 32768, 65536 };
	char *request = check_repeat("r", 65536);
	char want[REPLY_LEN + 1];
	struct run run;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		snprintf(want, sizeof(want), "%08zu", sizes[i]);
		run_request(&run, "printf %08d $(wc -c)", request, sizes[i], LONG_MS);
		check_int(want, "result", run.r, 0);
		check_int(want, "difference of the size that arrived",
			  memcmp(run.reply, want, REPLY_LEN), 0);
		check_reaped(want, &run);
	}
	free(request);
}
END_TEST

/* A request may contain zero bytes. */
START_TEST(test_request_bytes)
{
	struct run run;

	run_request(&run, "test \"$(od -An -tx1 | tr -d ' \\n')\" = 61006200 && printf 12345678",
		    "a\0b", 4, LONG_MS);
	ck_assert_int_eq(run.r, 0);
	check_reaped("bytes", &run);
}
END_TEST

START_TEST(test_not_there)
{
	struct run run;

	run_script(&run, "printf 12345678", LONG_MS);
	ck_assert_int_eq(run.r, 0);
	run.process.path = "/nonexistent/helper";
	ck_assert_int_eq(mount_process_run(&run.reaper, &run.process, LONG_MS), -ENOENT);
	ck_assert_int_eq(chmod(script, 0600), 0);
	run.process.path = script;
	ck_assert_int_eq(mount_process_run(&run.reaper, &run.process, LONG_MS), -EACCES);
	check_reaped("not there", &run);
}
END_TEST

static const struct {
	const char *name;
	const char *body;
	unsigned int starved_ms; /* that may not count */
} hangs[] = {
	{ "sleep", "exec sleep 1000" },
	{ "sleep in a child", "sleep 1000; :" },
	{ "sleep after half a reply", "printf 1234; exec sleep 1000" },
	{ "sleep after the reply, with standard output open", "printf 12345678; exec sleep 1000" },
	{ "sleep with standard error closed", "exec 2>&-; exec sleep 1000" },
	{ "stopped", "kill -STOP $$" },
	{ "busy", "while :; do :; done", MOUNT_STARVED_MS },
	{ "signals are ignored", "trap '' TERM HUP INT QUIT PIPE; while :; do sleep 1; done" },
};

START_TEST(test_deadline)
{
	struct run run;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hangs); i++) {
		run_script(&run, hangs[i].body, SHORT_MS);
		check_int(hangs[i].name, "result", run.r, -ETIMEDOUT);
		check_that(hangs[i].name, "that it was given its time", run.ms >= SHORT_MS);
		check_that(hangs[i].name, "that it ended at the deadline",
			   run.ms < SHORT_MS + hangs[i].starved_ms + SLACK_MS);
		check_reaped(hangs[i].name, &run);
	}
}
END_TEST

/* Time in which the process needs a processor does not count. */
START_TEST(test_starved)
{
	struct run run;

	/* Busy for half a second by the clock, whatever else the machine does. */
	run_script(&run,
		   "now() { read up rest </proc/uptime; up=${up%.*}${up#*.}; }\n"
		   "now; end=$((up + 50)); while [ $up -lt $end ]; do now; done; printf 12345678",
		   SHORT_MS);
	check_int("starved", "result", run.r, 0);
	check_that("starved", "that it took longer than the limit", run.ms > SHORT_MS);
	check_reaped("starved", &run);
}
END_TEST

START_TEST(test_deadline_passed)
{
	struct run run;

	run_script(&run, "exec sleep 1000", 0);
	ck_assert_int_eq(run.r, -ETIMEDOUT);
	check_that("passed", "that nothing was waited for", run.ms < SLACK_MS);
	check_reaped("passed", &run);
}
END_TEST

static pid_t read_pid(void)
{
	FILE *f = fopen(pid_file, "re");
	int pid = 0;

	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%d", &pid), 1);
	fclose(f);
	return (pid_t)pid;
}

static void check_dies(const char *name, pid_t pid)
{
	uint64_t until = clock_now_ns() + SLACK_MS * CLOCK_NS_PER_MS;

	while (!is_dead(pid) && clock_now_ns() < until)
		usleep(10000);
	check_that(name, "that the process below the helper is dead", is_dead(pid));
}

/* mount.nfs below a helper must not mount any more once the caller has got an error. */
START_TEST(test_grandchild)
{
	struct run run;

	run_script(&run, "sleep 1000 & echo $! >$1/pid; wait", 1000);
	ck_assert_int_eq(run.r, -ETIMEDOUT);
	check_dies("past the deadline", read_pid());
	check_reaped("past the deadline", &run);

	run_script(&run, "sleep 1000 >/dev/null 2>&1 & echo $! >$1/pid; kill -KILL $$", LONG_MS);
	ck_assert_int_eq(run.r, -EPROTO);
	check_dies("after a crash", read_pid());
	check_reaped("after a crash", &run);
}
END_TEST

/* rpc.statd, started by mount.nfs, may keep stderr open: wait for the reply alone. */
START_TEST(test_daemon_keeps_stderr)
{
	struct run run;
	pid_t pid;

	run_script(&run, "setsid sleep 1000 >/dev/null & echo $! >$1/pid; printf 12345678",
		   LONG_MS);
	ck_assert_int_eq(run.r, 0);
	check_that("daemon", "that it was not waited for", run.ms < LONG_MS / 2);
	pid = read_pid();
	ck_assert_int_eq(kill(pid, SIGKILL), 0); /* it was left alive */
	check_reaped("daemon", &run);
}
END_TEST

/* The helper starts with default signals, in its own group, without files of the driver. */
START_TEST(test_surroundings)
{
	sigset_t blocked, before;
	struct run run;

	sigfillset(&blocked);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &blocked, &before), 0);
	run_script(&run,
		   "exec 2>/dev/null\n"
		   "while read -r key value; do\n"
		   "  case $key:$value in\n"
		   "  SigIgn::0000000180000000) ;;\n" /* the C library's own two */
		   "  SigBlk::*[!0]*|SigIgn::*[!0]*) exit 1;;\n"
		   "  esac\n"
		   "done </proc/$$/status\n"
		   "printf 12345678",
		   LONG_MS);
	ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	check_int("signals", "result", run.r, 0);
	check_reaped("signals", &run);

	run_script(&run,
		   "read -r pid name state parent group rest </proc/$$/stat\n"
		   "test \"$group\" = $$ && printf 12345678",
		   LONG_MS);
	check_int("process group", "result", run.r, 0);
	check_reaped("process group", &run);

	/* It has only its own ends of the pipes: another open end would hide the end of file. */
	ck_assert_int_eq(syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC),
			 0); /* files inherited by the test; musl has no function for it */
	run_script(&run,
		   "ls -l /proc/self/fd >$1/pid; test $(grep -c pipe: $1/pid) = 2 && printf 12345678",
		   LONG_MS);
	check_int("files", "result", run.r, 0);
	check_reaped("files", &run);
}
END_TEST

START_TEST(test_environment)
{
	struct run run;

	ck_assert_int_eq(setenv("LANG", "de_DE.UTF-8", 1), 0);
	ck_assert_int_eq(setenv("SECRET", "hunter2", 1), 0);
	run_script(&run,
		   "test \"$LC_ALL\" = C && test -z \"$SECRET$LANG\" && test -n \"$PATH\" && "
		   "printf 12345678",
		   LONG_MS);
	ck_assert_int_eq(run.r, 0);
	check_reaped("environment", &run);
}
END_TEST

static int count_files(void)
{
	int fd, n = 0;

	for (fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

START_TEST(test_no_file_is_left_open)
{
	static const char *const bodies[] = { "printf 12345678", "exit 1", "exec sleep 1000" };
	int before = count_files();
	struct run run;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bodies); i++) {
		run_script(&run, bodies[i], i == 2 ? SHORT_MS : LONG_MS);
		mount_reaper_done(&run.reaper);
		check_int(bodies[i], "open files", count_files(), before);
	}
	run.process.path = "/nonexistent/helper";
	mount_reaper_init(&run.reaper);
	ck_assert_int_lt(mount_process_run(&run.reaper, &run.process, LONG_MS), 0);
	mount_reaper_done(&run.reaper);
	check_int("no helper", "open files", count_files(), before);
}
END_TEST

#define THREADS 16
#define ROUNDS 8

struct worker {
	pthread_t thread;
	struct mount_reaper *reaper;
	int number;
	int wrong; /* replies to another worker, or errors */
};

/* Each worker expects its own number back; every third one also lets a helper hang. */
static void *work(void *data)
{
	struct worker *w = data;
	char request[REPLY_LEN + 1], reply[REPLY_LEN];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		struct mount_process p = {
			.path = script,
			.argument = folder,
			.request = request,
			.request_len = REPLY_LEN,
			.reply = reply,
			.reply_len = REPLY_LEN,
		};
		bool hang = w->number % 3 == 0 && i == 0;

		snprintf(request, sizeof(request), "%c%07u", hang ? 'h' : 'r',
			 (unsigned int)(w->number * 100 + i) % 10000000U);
		if (mount_process_run(w->reaper, &p, hang ? SHORT_MS : LONG_MS) !=
		    (hang ? -ETIMEDOUT : 0))
			w->wrong++;
		else if (!hang && memcmp(request, reply, REPLY_LEN) != 0)
			w->wrong++;
	}
	return NULL;
}

START_TEST(test_many_threads)
{
	struct worker workers[THREADS];
	struct mount_reaper reaper;
	int i;

	write_script("read -r line; case $line in h*) exec sleep 1000;; esac; printf %s \"$line\"");
	mount_reaper_init(&reaper);
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .reaper = &reaper, .number = i };
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
		check_int("worker", "wrong answers", workers[i].wrong, 0);
	}
	mount_reaper_done(&reaper);
	check_int("workers", "waitpid", waitpid(-1, NULL, WNOHANG), -1);
}
END_TEST

/* A process that did not die when it was killed is reaped by a later run. */
START_TEST(test_lingering)
{
	siginfo_t info;
	struct run run;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setpgid(0, 0);
		_exit(0);
	}
	/* Until it can be reaped: ThreadSanitizer's thread may end after the first one. */
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	run_script(&run, "printf 12345678", LONG_MS);
	run.reaper.lingering[run.reaper.n++] = pid;
	ck_assert_int_eq(mount_process_run(&run.reaper, &run.process, LONG_MS), 0);
	check_int("lingering", "waitpid of the one before", waitpid(pid, NULL, WNOHANG), -1);
	check_reaped("lingering", &run);
}
END_TEST

/* What a helper has started is the driver's once it is killed, if that is process 1. */
START_TEST(test_orphan)
{
	struct run run;

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	run_script(&run, "sleep 1000 & exec sleep 1000", SHORT_MS);
	check_int("orphan", "result", run.r, -ETIMEDOUT);
	while (run.reaper.n > 0) {
		usleep(1000);
		mount_reaper_sweep(&run.reaper);
	}
	check_reaped("orphan", &run);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}
END_TEST

/* A node full of hanging helpers starts no more of them. */
START_TEST(test_too_many_linger)
{
	struct run run;
	pid_t pid;

	run_script(&run, "printf 12345678", LONG_MS);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	ck_assert_int_eq(setpgid(pid, pid), 0);
	while (run.reaper.n < MOUNT_LINGERING_MAX / 2)
		run.reaper.lingering[run.reaper.n++] = pid;
	ck_assert_int_eq(mount_process_run(&run.reaper, &run.process, LONG_MS), -EAGAIN);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	while (!is_dead(pid))
		usleep(1000);
	ck_assert_int_eq(mount_process_run(&run.reaper, &run.process, LONG_MS), 0);
	check_reaped("too many", &run);
}
END_TEST

CHECK_MAIN("process", .setup = setup, .teardown = teardown,
	   .tests = {
		   test_endings,
		   test_noise,
		   test_request,
		   test_request_bytes,
		   test_deadline,
		   test_starved,
		   test_deadline_passed,
		   test_grandchild,
		   test_daemon_keeps_stderr,
		   test_environment,
		   test_no_file_is_left_open,
		   test_many_threads,
		   test_lingering,
		   test_orphan,
		   test_too_many_linger,
	   },
	   .native = { test_not_there, test_surroundings })
