/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "store/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "nfs/calls.h"
#include "store/holder.h"
#include "store/layout.h"

#define CHECKSUM_BYTES 18 /* newline, 16 digits, newline */
#define FILE_BYTES_MAX (NFS_LINK_MAX + CHECKSUM_BYTES)
#define FILE_MODE 0644 /* as links: readable for whoever may search the folder */

/* A live writer needs two round trips between CREATE and the end of its WRITE. */
#define UNFINISHED_LOOKS 6
#define UNFINISHED_PAUSE_MS 20U /* before the second look; doubles each time */

/* Begins the names of unfinished files in the trash. No directory's do: see path_key(). */
#define UNFINISHED_KEY "%unfinished"

/* -------- files -------- */

static void format_checksum(char ret[CHECKSUM_BYTES + 1], const char *text, size_t len)
{
	(void)snprintf(ret, CHECKSUM_BYTES + 1, "\n%016" PRIx64 "\n", str_hash(text, len));
}

/* Whether an interrupted write may have left this: a prefix of the text, or zeros in its place. */
static bool is_cut_short(const char *data, size_t len)
{
	static const char begin[] = "v=";
	size_t i;

	for (i = 0; i < len && i < sizeof(begin) - 1; i++)
		if (data[i] != '\0' && data[i] != begin[i])
			return false;
	return true;
}

/* Check the checksum and cut it off. -EINPROGRESS: unfinished; -EINVAL: not a file of ours. */
static int check_and_trim(char *data, size_t len)
{
	char checksum[CHECKSUM_BYTES + 1];
	size_t n;

	if (len >= CHECKSUM_BYTES) {
		n = len - CHECKSUM_BYTES;
		format_checksum(checksum, data, n);
		if (memcmp(data + n, checksum, CHECKSUM_BYTES) == 0 &&
		    memchr(data, '\0', n) == NULL) {
			data[n] = '\0';
			return 0;
		}
	}
	return is_cut_short(data, len) ? -EINPROGRESS : -EINVAL;
}

/* Read a file once. -EINVAL also for a file that is too long: it is not ours. */
static int look_at_file(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			char text[NFS_LINK_MAX + 1], struct nfs_attr *ret_attr)
{
	char data[FILE_BYTES_MAX + 1];
	uint32_t len = sizeof(data);
	struct nfs_handle handle;
	int r;

	r = nfs_lookup_full(c, dir, name, &handle, ret_attr);
	if (r < 0)
		return r;
	if (ret_attr->type == NFS_TYPE_SYMLINK)
		return nfs_readlink(c, dir, name, text);
	if (ret_attr->type != NFS_TYPE_FILE)
		return -EINVAL;
	r = nfs_read(c, &handle, 0, data, &len);
	if (r < 0)
		return r;
	if (len > FILE_BYTES_MAX)
		return -EINVAL;
	r = check_and_trim(data, len);
	if (r == 0)
		memcpy(text, data, strlen(data) + 1);
	return r;
}

/* Whether the writer of the unfinished file counts as dead: the file has not changed for long. */
static bool writer_is_dead(const struct nfs_client *c, const char *name,
			   const struct nfs_attr *attr)
{
	cleanup_buf struct buf seen = { 0 };

	if (buf_printf(&seen, "%s~unfinished=%" PRIx64 ".%" PRIx64 ".%" PRId64 ".%" PRIu32, name,
		       attr->fileid, attr->size, attr->ctime.sec, attr->ctime.nsec) < 0)
		return false;
	return store_holder_is_dead(c->export.server, c->export.share, seen.data);
}

/*
 * Rename an unfinished file into the trash and read it again there, because it may have been
 * replaced before the rename. Return -ENOENT once it is gone, or -EINPROGRESS after putting back a
 * file that was finished or replaced in the meantime.
 */
static int remove_unfinished(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	char trashed[NFS_NAME_MAX + 1], text[NFS_LINK_MAX + 1];
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *trash;
	struct nfs_attr attr;
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, &ignored);
	if (r < 0)
		return r;
	store_trash_name_unchecked(trashed, &c->export, UNFINISHED_KEY);
	r = nfs_rename(c, dir, name, trash, trashed);
	if (r < 0)
		return r;
	if (look_at_file(c, trash, trashed, text, &attr) == 0) {
		r = nfs_rename(c, trash, trashed, dir, name);
		return r < 0 ? r : -EINPROGRESS;
	}
	(void)nfs_remove(c, trash, trashed); /* else the purger does */
	return -ENOENT;
}

/* Servers refuse links with these errors, which have other causes as well. */
static bool may_refuse_links(int r)
{
	return r == -EOPNOTSUPP || r == -EPERM || r == -EACCES || r == -EINVAL;
}

/* Try to make a link in the trash. Return 1 if that is refused, 0, or a negative errno. */
static int is_link_refused(struct nfs_client *c)
{
	struct error ignored = { .code = ERROR_OK };
	const struct nfs_handle *trash;
	char name[NFS_NAME_MAX + 1];
	int r;

	r = store_folder(c, STORE_TRASH, true, &trash, &ignored);
	if (r < 0)
		return r;
	store_trash_name(name, &c->export, "link");
	r = nfs_symlink(c, trash, name, "v=1");
	if (r == 0)
		(void)nfs_remove(c, trash, name); /* else the purger does */
	return may_refuse_links(r) ? 1 : r;
}

/* Whether the share refuses links: only then may it have unfinished files of ours. */
static int share_refuses_links(struct nfs_client *c)
{
	int r;

	if (c->refuses_links)
		return 1;
	r = is_link_refused(c);
	c->refuses_links = r > 0;
	return r;
}

static int read_file(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		     char text[NFS_LINK_MAX + 1])
{
	unsigned int looks = 1;
	struct nfs_attr attr;
	int r;

	for (;;) {
		r = look_at_file(c, dir, name, text, &attr);
		if (r != -EINPROGRESS)
			return r;
		r = share_refuses_links(c);
		if (r <= 0)
			return r == 0 ? -EINVAL : r;
		if (writer_is_dead(c, name, &attr))
			return remove_unfinished(c, dir, name);
		if (looks == UNFINISHED_LOOKS)
			return -EINPROGRESS;
		clock_sleep_ms(UNFINISHED_PAUSE_MS << (looks++ - 1));
	}
}

static int create_file(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		       const char *text)
{
	char data[FILE_BYTES_MAX + 1], checksum[CHECKSUM_BYTES + 1];
	struct nfs_handle handle;
	int r;

	format_checksum(checksum, text, strlen(text));
	(void)snprintf(data, sizeof(data), "%s%s", text, checksum);
	r = nfs_create(c, dir, name, FILE_MODE, &handle);
	if (r < 0)
		return r;
	r = nfs_write(c, &handle, 0, data, (uint32_t)strlen(data));
	/*
	 * -ESTALE: another replica took us for dead and has removed the file. A file of that name
	 * belongs to another writer by now.
	 */
	if (r < 0 && r != -ESTALE)
		(void)remove_unfinished(c, dir, name); /* else the next writer does */
	return r;
}

/* Whether the name is taken: -EEXIST, or -ENOENT now that an unfinished file has been removed. */
static int find_present(struct nfs_client *c, const struct nfs_handle *dir, const char *name)
{
	char present[NFS_LINK_MAX + 1];
	int r = read_file(c, dir, name, present);

	return r == 0 || r == -EINVAL ? -EEXIST : r;
}

static int create_file_or_find(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
			       const char *text)
{
	int r = create_file(c, dir, name, text);

	if (r != -EEXIST)
		return r;
	r = find_present(c, dir, name);
	return r == -ENOENT ? create_file(c, dir, name, text) : r;
}

/* -------- links or files -------- */

int store_text_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		      const char *text)
{
	int refused, r;

	if (strlen(text) > NFS_LINK_MAX)
		return -ENAMETOOLONG;
	refused = c->refuses_links ? -EPERM : nfs_symlink(c, dir, name, text);
	if (!may_refuse_links(refused))
		return refused;
	/*
	 * Look before CREATE: some servers return these errors for an existing name, and CREATE
	 * follows a link of that name.
	 */
	r = find_present(c, dir, name);
	if (r != -ENOENT)
		return may_refuse_links(r) ? refused : r;
	/* The first refusal may be due to this directory or to a passing state. */
	r = c->refuses_links ? 1 : is_link_refused(c);
	if (r <= 0)
		return r == 0 || may_refuse_links(r) ? refused : r;
	r = create_file_or_find(c, dir, name, text);
	if (r == 0)
		c->refuses_links = true;
	return may_refuse_links(r) ? refused : r;
}

int store_text_read(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    char text[NFS_LINK_MAX + 1])
{
	int r = c->refuses_links ? -EINVAL : nfs_readlink(c, dir, name, text);

	return r == -EINVAL ? read_file(c, dir, name, text) : r;
}
