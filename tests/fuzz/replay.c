/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * main() of a fuzzer that is built without libFuzzer: run the files, and the files of the
 * directories, that the arguments name, and the empty input. A failed input aborts in an assert().
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "base/buf.h"

static int run_file(const char *path)
{
	cleanup_buf struct buf b = { 0 };
	FILE *stream = fopen(path, "rb");
	uint8_t chunk[4096];
	size_t n;
	int r = 0;

	if (stream == NULL)
		return -errno;
	for (n = fread(chunk, 1, sizeof(chunk), stream); n > 0 && r == 0;
	     n = fread(chunk, 1, sizeof(chunk), stream))
		r = buf_append(&b, chunk, n);
	if (ferror(stream))
		r = -EIO;
	(void)fclose(stream); /* it was only read */
	if (r == 0)
		(void)LLVMFuzzerTestOneInput((const uint8_t *)buf_text(&b), b.len);
	return r;
}

/* Returns the number of inputs, or a negative errno. */
static int run_entries(DIR *dir, const char *path)
{
	const struct dirent *entry;
	int count = 0, r;

	for (entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
		cleanup_buf struct buf name = { 0 };

		if (entry->d_name[0] == '.')
			continue;
		r = buf_printf(&name, "%s/%s", path, entry->d_name);
		if (r == 0)
			r = run_file(name.data);
		if (r < 0)
			return r;
		count++;
	}
	return count;
}

/* As run_entries(). A file is one input. */
static int run_path(const char *path)
{
	DIR *dir = opendir(path);
	int r;

	if (dir == NULL)
		return errno == ENOTDIR && run_file(path) == 0 ? 1 : -errno;
	r = run_entries(dir, path);
	(void)closedir(dir); /* it was only read */
	return r;
}

int main(int argc, char **argv)
{
	int total = 0, i, r;

	(void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	for (i = 1; i < argc; i++) {
		r = run_path(argv[i]);
		if (r < 0) {
			fprintf(stderr, "%s: %s: %s\n", argv[0], argv[i], strerror(-r));
			return EXIT_FAILURE;
		}
		total += r;
	}
	printf("%s: %d inputs\n", argv[0], total);
	return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
