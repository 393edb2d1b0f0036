/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define KILL_WAIT_MS 500 /* for the end of a process that was killed */
#define EXIT_WAIT_MS 2000 /* for the end of one that has replied */
#define SLICE_MS 100 /* between two looks at the process */

/* The helper needs nothing of the driver's environment. LC_ALL: answer.c reads English messages. */
static char path_variable[] = "PATH=" HELPER_PATH;
static char locale_variable[] = "LC_ALL=C";
static char *const environment[] = { path_variable, locale_variable, NULL };

void mount_reaper_init(struct mount_reaper *reaper)
{
	memset(reaper, 0, sizeof(*reaper));
	pthread_mutex_init(&reaper->lock, NULL);
}

/*
 * Reap a helper that was killed, and what it has started: if the driver is process 1 of its
 * namespace, as in a container, that is ours by now. Return whether all is gone.
 */
static bool group_reap(pid_t leader)
{
	pid_t r;

	do
		r = waitpid(-leader, NULL, WNOHANG);
	while (r > 0);
	return r < 0;
}

/* Called with the lock held. */
static void reaper_reap(struct mount_reaper *reaper)
{
	size_t i = 0;

	while (i < reaper->n) {
		if (group_reap(reaper->lingering[i]))
			reaper->lingering[i] = reaper->lingering[--reaper->n];
		else
			i++;
	}
}

void mount_reaper_done(struct mount_reaper *reaper)
{
	reaper_reap(reaper);
	pthread_mutex_destroy(&reaper->lock);
}

void mount_reaper_sweep(struct mount_reaper *reaper)
{
	pthread_mutex_lock(&reaper->lock);
	reaper_reap(reaper);
	pthread_mutex_unlock(&reaper->lock);
}

static bool reaper_has_room(struct mount_reaper *reaper)
{
	bool room;

	pthread_mutex_lock(&reaper->lock);
	reaper_reap(reaper);
	room = reaper->n < MOUNT_LINGERING_MAX / 2;
	pthread_mutex_unlock(&reaper->lock);
	return room;
}

static void reaper_add(struct mount_reaper *reaper, pid_t pid)
{
	pthread_mutex_lock(&reaper->lock);
	reaper_reap(reaper);
	if (reaper->n < MOUNT_LINGERING_MAX)
		reaper->lingering[reaper->n++] = pid;
	pthread_mutex_unlock(&reaper->lock);
}

/* [0] is the reading end. */
struct pipes {
	int in[2], out[2], err[2];
};

static void pipes_done(struct pipes *p)
{
	cleanup_ptr_close(&p->in[0]);
	cleanup_ptr_close(&p->in[1]);
	cleanup_ptr_close(&p->out[0]);
	cleanup_ptr_close(&p->out[1]);
	cleanup_ptr_close(&p->err[0]);
	cleanup_ptr_close(&p->err[1]);
}

static int pipes_init(struct pipes *p)
{
	*p = (struct pipes){ { -EBADF, -EBADF }, { -EBADF, -EBADF }, { -EBADF, -EBADF } };
	if (pipe2(p->in, O_CLOEXEC) < 0 || pipe2(p->out, O_CLOEXEC) < 0 ||
	    pipe2(p->err, O_CLOEXEC) < 0) {
		int e = errno;

		pipes_done(p);
		return -e;
	}
	return 0;
}

/* Give the helper a process group of its own, so that mount.nfs below it is killed with it. */
static int spawn_set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int e;

	sigemptyset(&none);
	sigfillset(&all);
	e = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
						   POSIX_SPAWN_SETPGROUP);
	if (e == 0)
		e = posix_spawnattr_setsigmask(attr, &none);
	if (e == 0)
		e = posix_spawnattr_setsigdefault(attr, &all);
	if (e == 0)
		e = posix_spawnattr_setpgroup(attr, 0);
	return e;
}

static int spawn_set_files(posix_spawn_file_actions_t *files, const struct pipes *p)
{
	int e;

	e = posix_spawn_file_actions_adddup2(files, p->in[0], STDIN_FILENO);
	if (e == 0)
		e = posix_spawn_file_actions_adddup2(files, p->out[1], STDOUT_FILENO);
	if (e == 0)
		e = posix_spawn_file_actions_adddup2(files, p->err[1], STDERR_FILENO);
	return e;
}

static int process_spawn(const struct mount_process *p, const struct pipes *pipes, pid_t *ret)
{
	char *argv[] = { (char *)(uintptr_t) "csi-nfs", (char *)(uintptr_t)p->argument, NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int e;

	e = posix_spawnattr_init(&attr);
	if (e != 0)
		return -e;
	e = posix_spawn_file_actions_init(&files);
	if (e == 0) {
		e = spawn_set_attributes(&attr);
		if (e == 0)
			e = spawn_set_files(&files, pipes);
		if (e == 0)
			e = posix_spawn(ret, p->path, &files, &attr, argv, environment);
		posix_spawn_file_actions_destroy(&files);
	}
	posix_spawnattr_destroy(&attr);
	return -e;
}

/*
 * Read once, keeping the first n bytes of all. Returns 1 while more may come, 0 at the end of the
 * file, or a negative errno.
 */
static int pipe_read(int fd, char *data, size_t n, size_t *have)
{
	char rest[512];
	ssize_t got;

	if (*have < n)
		got = read(fd, data + *have, n - *have);
	else
		got = read(fd, rest, sizeof(rest)); /* so that the writer does not block */
	if (got < 0)
		return errno == EINTR || errno == EAGAIN ? 1 : -errno;
	if (*have < n)
		*have += (size_t)got;
	return got > 0;
}

/* Check whether the process runs, or would if it got a processor. */
static bool process_is_runnable(pid_t pid)
{
	cleanup_close int fd = -EBADF;
	char path[32], text[512];
	const char *end;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	if (n < 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, ')'); /* of the name; the state comes next, see proc(5) */
	return end != NULL && strncmp(end, ") R", 3) == 0;
}

/* Collect reply and log until the process closes its stdout. */
static int process_converse(struct mount_process *p, pid_t pid, struct pipes *pipes,
			    unsigned int ms)
{
	const uint64_t last_ns = clock_now_ns() + (ms + MOUNT_STARVED_MS) * CLOCK_NS_PER_MS;
	size_t reply = 0, log = 0;
	unsigned int waited_ms = 0;
	int out = 1, r;

	while (out > 0) {
		struct pollfd fds[2] = {
			{ .fd = pipes->out[0], .events = POLLIN },
			{ .fd = pipes->err[0], .events = POLLIN },
		};
		const unsigned int left = ms - waited_ms;
		const int slice = (int)(left < SLICE_MS ? left : SLICE_MS);
		int n;

		/* A process that keeps writing would never let poll() time out. */
		if (waited_ms >= ms || clock_now_ns() >= last_ns)
			return -ETIMEDOUT;
		n = poll(fds, 2, slice);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0) {
			if (n == 0 && !process_is_runnable(pid))
				waited_ms += (unsigned int)slice;
			continue;
		}
		if (fds[0].revents != 0)
			out = pipe_read(pipes->out[0], p->reply, p->reply_len, &reply);
		if (fds[1].revents != 0) {
			r = pipe_read(pipes->err[0], p->log, sizeof(p->log) - 1, &log);
			p->log[log] = '\0';
			if (r <= 0)
				cleanup_ptr_close(&pipes->err[0]); /* poll() skips it then */
		}
	}
	if (out < 0)
		return out;
	return reply == p->reply_len ? 0 : -EPROTO;
}

/* Wait for the end of the process and reap it. Returns false if it is still there. */
static bool process_wait(pid_t pid, int ms)
{
	cleanup_close int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	if (fd >= 0) {
		do
			n = poll(&p, 1, ms);
		while (n < 0 && errno == EINTR);
	}
	return waitpid(pid, NULL, WNOHANG) != 0;
}

int mount_process_run(struct mount_reaper *reaper, struct mount_process *p, unsigned int ms)
{
	struct pipes pipes;
	pid_t pid;
	int r;

	p->log[0] = '\0';
	if (!reaper_has_room(reaper))
		return -EAGAIN;
	r = pipes_init(&pipes);
	if (r < 0)
		return r;
	r = process_spawn(p, &pipes, &pid);
	if (r < 0) {
		pipes_done(&pipes);
		return r;
	}
	cleanup_ptr_close(&pipes.in[0]);
	cleanup_ptr_close(&pipes.out[1]);
	cleanup_ptr_close(&pipes.err[1]);
	/* If the helper has died (EPIPE), process_converse() finds no reply. */
	if (write(pipes.in[1], p->request, p->request_len) < 0)
		errno = 0;
	cleanup_ptr_close(&pipes.in[1]);
	r = process_converse(p, pid, &pipes, ms);
	pipes_done(&pipes);
	if (r == 0 && process_wait(pid, EXIT_WAIT_MS))
		return 0;
	(void)kill(-pid, SIGKILL);
	(void)process_wait(pid, KILL_WAIT_MS);
	if (!group_reap(pid))
		reaper_add(reaper, pid);
	return r;
}
