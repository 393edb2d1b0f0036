/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "node/published.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"

#define FOLDER_MODE 0700
#define HALF_LENGTH 16 /* of a note's name, in digits */
#define NAME_LENGTH (2 * HALF_LENGTH + 1)
#define NAME_SIZE (NAME_LENGTH + 1)
#define FRESH ".new" /* ends the name of a note that is being written */
#define NOTE_MAX 8192

/* The lines of a file. */
struct note {
	char text[NOTE_MAX];
	struct published p; /* points to the text */
	off_t mode_at; /* where the line "mode" is, or the end */
};

/* "<hash of the volume>.<hash of the target>", so that names tell the notes of either. */
static void note_name(char name[NAME_SIZE], const char *volume, const char *target)
{
	(void)snprintf(name, NAME_SIZE, "%016" PRIx64 ".%016" PRIx64,
		       str_hash(volume, strlen(volume)), str_hash(target, strlen(target)));
}

static bool note_is_of_volume(const char *name, const char *wanted)
{
	return strlen(name) == NAME_LENGTH && strncmp(name, wanted, HALF_LENGTH) == 0;
}

/* Or the file is what a driver has left that was killed while it wrote such a note. */
static bool note_is_of_target(const char *name, const char *wanted)
{
	const char *end;

	if (strlen(name) < NAME_LENGTH)
		return false;
	end = name + NAME_LENGTH;
	return strncmp(name + HALF_LENGTH, wanted + HALF_LENGTH, NAME_LENGTH - HALF_LENGTH) == 0 &&
	       (*end == '\0' || strcmp(end, FRESH) == 0);
}

static int folder_make(const char *path)
{
	cleanup_free char *copy = strdup(path);
	char *p;

	if (copy == NULL)
		return -ENOMEM;
	for (p = strchr(copy + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(copy, FOLDER_MODE) < 0 && errno != EEXIST ? -errno : 0;
}

/* Returns a descriptor, which the caller closes, or a negative errno. */
static int folder_open(const char *path)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = open(path, flags);
	int r;

	if (fd < 0 && errno == ENOENT) {
		r = folder_make(path);
		if (r < 0)
			return r;
		fd = open(path, flags);
	}
	return fd < 0 ? -errno : fd;
}

/* End a line of n bytes at its newline, and restore those in it. Return the next one, or NULL. */
static char *line_end(char *line, size_t n)
{
	char *end = memchr(line, '\n', n);
	char *nul;

	if (end == NULL)
		return NULL;
	while ((nul = memchr(line, '\0', (size_t)(end - line))) != NULL)
		*nul = '\n';
	*end = '\0';
	return end + 1;
}

/*
 * Lines: volume, target, "exclusive" or "shared", and "mode" if needs_mode. A NUL byte stands for a
 * newline in the first two, which have none. Returns -EINVAL for a file that is not a note.
 */
static int note_read_from(int fd, struct note *note)
{
	char *second, *third = NULL, *end = NULL;
	ssize_t n;

	n = read(fd, note->text, sizeof(note->text) - 1);
	if (n < 0)
		return -errno;
	second = line_end(note->text, (size_t)n);
	if (second != NULL)
		third = line_end(second, (size_t)(note->text + n - second));
	if (third != NULL)
		end = line_end(third, (size_t)(note->text + n - third));
	if (end == NULL)
		return -EINVAL;
	note->text[n] = '\0';
	note->p = (struct published){
		.volume = note->text,
		.target = second,
		.exclusive = strcmp(third, "exclusive") == 0,
		.needs_mode = strcmp(end, "mode\n") == 0,
	};
	note->mode_at = end - note->text;
	return 0;
}

/* Returns a descriptor, which the caller closes, or a negative errno. Does not wait for a FIFO. */
static int note_open(int folder, const char *name, int flags)
{
	int fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

	return fd < 0 ? -errno : fd;
}

static int note_read(int folder, const char *name, struct note *note)
{
	cleanup_close int fd = note_open(folder, name, O_RDONLY);

	return fd < 0 ? fd : note_read_from(fd, note);
}

/* Append a line, with a NUL byte for each newline in it. */
static int line_append(struct buf *text, const char *line)
{
	size_t begin = text->len;
	char *newline;
	int r;

	r = buf_puts(text, line);
	if (r < 0)
		return r;
	while ((newline = memchr(text->data + begin, '\n', text->len - begin)) != NULL)
		*newline = '\0';
	return buf_append(text, "\n", 1);
}

static int file_write(int folder, const char *name, const struct buf *text)
{
	cleanup_close int fd = note_open(folder, name, O_WRONLY | O_CREAT | O_TRUNC);
	ssize_t n;

	if (fd < 0)
		return fd;
	n = write(fd, text->data, text->len);
	if (n < 0)
		return -errno;
	return (size_t)n == text->len ? 0 : -EIO;
}

static bool note_is_of(const struct note *note, const char *volume, const char *target)
{
	return strcmp(note->p.volume, volume) == 0 && strcmp(note->p.target, target) == 0;
}

static bool note_is_written(int folder, const char *name, const struct published *p)
{
	struct note note;

	return note_read(folder, name, &note) == 0 && note_is_of(&note, p->volume, p->target) &&
	       note.p.exclusive == p->exclusive && note.p.needs_mode == p->needs_mode;
}

static int note_write(int folder, const char *name, const struct published *p)
{
	cleanup_buf struct buf text = { .max = NOTE_MAX - 1 };
	char fresh[NAME_SIZE + sizeof(FRESH)];
	int r;

	/* A repeated call then works in a folder that is full or read-only by now. */
	if (note_is_written(folder, name, p))
		return 0;
	r = line_append(&text, p->volume);
	if (r < 0)
		return r;
	r = line_append(&text, p->target);
	if (r < 0)
		return r;
	r = line_append(&text, p->exclusive ? "exclusive" : "shared");
	if (r < 0)
		return r;
	r = p->needs_mode ? line_append(&text, "mode") : 0;
	if (r < 0)
		return r;
	/* No other call writes this name: the caller holds the lock of the target path. */
	(void)snprintf(fresh, sizeof(fresh), "%s" FRESH, name);
	r = file_write(folder, fresh, &text);
	if (r == 0 && renameat(folder, fresh, folder, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(folder, fresh, 0);
	return r;
}

/*
 * Returns 1 if the volume is mounted at another target, as the note says, and either of the two is
 * exclusive; else 0 or a negative errno.
 */
static int note_conflicts(int folder, const char *name, struct mounter *m,
			  const struct published *p, struct note *note, struct error *err)
{
	cleanup_mount_info struct mount_info *info = NULL;
	int r;

	r = note_read(folder, name, note);
	if (r == -ENOENT)
		return 0;
	if (r < 0) {
		log_warn("Cannot read a note of where a volume is published", LOG_STR("note", name),
			 LOG_STR("reason", strerror(-r)));
		return r == -EINVAL ? 0 : r; /* a damaged note may stay, so it must not refuse */
	}
	/* Another volume may have the same hash. */
	if (strcmp(note->p.volume, p->volume) != 0 || strcmp(note->p.target, p->target) == 0)
		return 0;
	if (!p->exclusive && !note->p.exclusive)
		return 0;
	/* Without a mount, the call was interrupted: none runs beside one that has the lock. */
	r = m->ops->find(m, note->p.target, &info, err);
	return r < 0 ? r : info != NULL;
}

static DIR *folder_list(int folder)
{
	cleanup_close int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;

	if (dir != NULL)
		(void)steal_fd(&copy);
	return dir;
}

static int notes_check(int folder, struct mounter *m, const struct published *p, struct error *err)
{
	const struct dirent *entry;
	char name[NAME_SIZE];
	struct note note;
	DIR *dir = folder_list(folder);
	int r = 0;

	if (dir == NULL)
		return -errno;
	note_name(name, p->volume, p->target);
	while (r == 0) {
		errno = 0;
		entry = readdir(dir);
		if (entry == NULL) {
			r = -errno;
			break;
		}
		if (!note_is_of_volume(entry->d_name, name) || strcmp(entry->d_name, name) == 0)
			continue;
		r = note_conflicts(folder, entry->d_name, m, p, &note, err);
		if (r > 0)
			r = error_set(err, ERROR_FAILED_PRECONDITION,
				      "the volume is published at '%.300s' already, and its access mode SINGLE_NODE_SINGLE_WRITER allows one place only",
				      note.p.target);
	}
	closedir(dir);
	return r;
}

/* Remove the notes of a target path, but for the one with the name keep; NULL: all. */
static void notes_remove(int folder, const char *target, const char *keep)
{
	DIR *dir = folder_list(folder);
	const struct dirent *entry;
	char name[NAME_SIZE];

	if (dir == NULL)
		return;
	note_name(name, "", target);
	while ((entry = readdir(dir)) != NULL)
		if (note_is_of_target(entry->d_name, name) && !str_eq(entry->d_name, keep))
			(void)unlinkat(folder, entry->d_name, 0);
	closedir(dir);
}

/* Returns a negative errno with no error set if the folder has failed. */
static int note_add(int folder, struct mounter *m, const struct published *p, struct error *err)
{
	char name[NAME_SIZE];
	int r, checked;

	note_name(name, p->volume, p->target);
	checked = notes_check(folder, m, p, err);
	/* Others need the note, even if theirs cannot be read now. */
	if (checked < 0 && (p->exclusive || err->code != ERROR_OK))
		return checked;
	r = note_write(folder, name, p);
	if (r < 0)
		return r;
	/*
	 * Notes of other volumes are left of mounts that are gone. They would take this volume's
	 * mount for theirs.
	 */
	notes_remove(folder, p->target, name);
	return checked;
}

int node_published_add(const char *state_dir, struct mounter *m, const struct published *p,
		       struct error *err)
{
	cleanup_close int folder = folder_open(state_dir);
	const int r = folder < 0 ? folder : note_add(folder, m, p, err);

	if (r == 0 || err->code != ERROR_OK)
		return r;
	if (p->exclusive)
		return error_sys(err, ERROR_FAILED_PRECONDITION, -r,
				 "access mode SINGLE_NODE_SINGLE_WRITER needs the state folder '%s' (--state-dir)",
				 state_dir);
	log_warn("Cannot read or write the notes of where a volume is published: SINGLE_NODE_SINGLE_WRITER may not hold",
		 LOG_STR("state_dir", state_dir), LOG_STR("reason", strerror(-r)));
	return 0;
}

/* Whether an error may pass soon: then it does not say that there is no note. */
static bool may_pass(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -EIO;
}

int node_published_find(const char *state_dir, const char *volume, const char *target,
			bool *ret_needs_mode, struct error *err)
{
	cleanup_close int folder = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_SIZE];
	struct note note;
	int r;

	note_name(name, volume, target);
	r = folder < 0 ? -errno : note_read(folder, name, &note);
	if (r < 0 && may_pass(r))
		return error_sys(err, ERROR_ABORTED, -r, "reading a note in '%s' (--state-dir)",
				 state_dir);
	if (r < 0 || !note_is_of(&note, volume, target))
		return 0;
	*ret_needs_mode = note.p.needs_mode;
	return 1;
}

bool node_published_is_of_another(const char *state_dir, const char *volume, const char *target)
{
	cleanup_close int folder = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = folder >= 0 ? folder_list(folder) : NULL;
	const struct dirent *entry;
	char name[NAME_SIZE];
	struct note note;
	bool found = false;

	if (dir == NULL)
		return false;
	note_name(name, volume, target);
	while (!found && (entry = readdir(dir)) != NULL)
		found = note_is_of_target(entry->d_name, name) &&
			note_read(folder, entry->d_name, &note) == 0 &&
			strcmp(note.p.target, target) == 0 && strcmp(note.p.volume, volume) != 0;
	closedir(dir);
	return found;
}

/* Cut the line "mode" off the note in place, which needs no room. */
static int note_cut_mode(int folder, const struct published *p)
{
	char name[NAME_SIZE];
	struct note note;
	cleanup_close int fd = -EBADF;
	int r;

	note_name(name, p->volume, p->target);
	fd = note_open(folder, name, O_RDWR);
	if (fd < 0)
		return fd;
	r = note_read_from(fd, &note);
	if (r < 0)
		return r;
	if (!note_is_of(&note, p->volume, p->target) || !note.p.needs_mode)
		return 0;
	return ftruncate(fd, note.mode_at) < 0 ? -errno : 0;
}

int node_published_has_mode(const char *state_dir, const struct published *p, struct error *err)
{
	cleanup_close int folder = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const int r = folder < 0 ? -errno : note_cut_mode(folder, p);

	if (r == 0 || r == -ENOENT) /* a volume that is shared may have no note */
		return 0;
	if (may_pass(r))
		return error_sys(err, ERROR_ABORTED, -r, "changing a note in '%s' (--state-dir)",
				 state_dir);
	log_warn("Cannot note that a volume has its mode: the next publish sets it again",
		 LOG_STR("state_dir", state_dir), LOG_STR("target", p->target),
		 LOG_STR("reason", strerror(-r)));
	return 0;
}

void node_published_remove(const char *state_dir, const char *target)
{
	cleanup_close int folder = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* A note that cannot be removed has no mount, and is ignored. */
	if (folder >= 0)
		notes_remove(folder, target, NULL);
}
