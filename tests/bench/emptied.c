/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Wait until a folder is empty, without using CPU time that the program that empties it may need.
 *
 *   emptied FOLDER
 */

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

/* -1: it cannot be read. */
static int is_empty(const char *path)
{
	const struct dirent *entry;
	int empty = 1;
	DIR *dir = opendir(path);

	if (dir == NULL)
		return -1;
	while (empty == 1 && (entry = readdir(dir)) != NULL)
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	(void)closedir(dir);
	return empty;
}

int main(int argc, char **argv)
{
	_Alignas(struct inotify_event) char events[4096];
	int fd = inotify_init1(IN_CLOEXEC);
	int empty = -1;

	/* Watched before it is looked at, or the last removal could come between the two. */
	if (argc == 2 && fd >= 0 && inotify_add_watch(fd, argv[1], IN_DELETE | IN_MOVED_FROM) >= 0)
		while ((empty = is_empty(argv[1])) == 0)
			if (read(fd, events, sizeof(events)) <= 0)
				break;
	if (empty != 1)
		(void)fprintf(stderr, "usage: emptied FOLDER, of a folder that can be watched\n");
	return empty == 1 ? 0 : 1;
}
