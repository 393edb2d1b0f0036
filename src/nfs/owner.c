/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/owner.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/str.h"
#include "nfs/names.h"

#define BUCKETS 4096
#define SHARES 256 /* buckets for servers: those in one share a quarter of the table */
#define SHARE_OWNERS_MAX (NFS_OWNERS_MAX / 4)
#define SHARE_BYTES_MAX (NFS_OWNER_BYTES_MAX / 4)
#define NOBODY 65534 /* on Linux */

static struct {
	pthread_mutex_t lock; /* guards all below; innermost */
	char *names[NFS_OWNERS_MAX]; /* the name of number n is at n - 1 */
	uint32_t next[NFS_OWNERS_MAX]; /* number of the next name in the bucket; 0: none */
	uint32_t buckets[BUCKETS]; /* number of the first name; 0: none */
	uint32_t n;
	size_t bytes;
	struct share {
		uint32_t n;
		size_t bytes;
	} shares[SHARES];
	bool has_key;
	uint64_t key[2]; /* random, or servers could choose names that share a bucket */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_owner_name(const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return false;
	return len > 0 && len <= NFS_OWNER_MAX;
}

/* -------- with the lock held -------- */

static int table_get_key(void)
{
	/* getrandom() returns this few bytes in one call. */
	if (!table.has_key && getrandom(table.key, sizeof(table.key), 0) < 0)
		return -errno;
	table.has_key = true;
	return 0;
}

static uint64_t table_hash(const char *text, size_t len)
{
	return nfs_names_hash(table.key, text, len);
}

static int table_add(struct share *share, const char *name, size_t len, uint32_t *bucket,
		     uint32_t *ret)
{
	char *copy;

	if (table.n == NFS_OWNERS_MAX || table.bytes + len > NFS_OWNER_BYTES_MAX ||
	    share->n == SHARE_OWNERS_MAX || share->bytes + len > SHARE_BYTES_MAX)
		return -EOVERFLOW;
	copy = strndup(name, len);
	if (copy == NULL)
		return -ENOMEM;
	table.names[table.n] = copy;
	table.next[table.n] = *bucket;
	table.bytes += len;
	share->n++;
	share->bytes += len;
	*ret = *bucket = ++table.n;
	return 0;
}

static int table_find_or_add(const char *server, const char *name, size_t len, uint32_t *ret)
{
	uint32_t *bucket, number;
	struct share *share;
	int r = table_get_key();

	if (r < 0)
		return r;
	bucket = &table.buckets[table_hash(name, len) % BUCKETS];
	for (number = *bucket; number != 0; number = table.next[number - 1]) {
		if (strncmp(table.names[number - 1], name, len) == 0 &&
		    table.names[number - 1][len] == '\0') {
			*ret = number;
			return 0;
		}
	}
	share = &table.shares[table_hash(server, strlen(server)) % SHARES];
	return table_add(share, name, len, bucket, ret);
}

/* -------- public -------- */

int nfs_owner_intern_of(const char *server, const char *name, size_t len, uint32_t *ret)
{
	int r;

	if (!is_owner_name(name, len))
		return -EINVAL;
	pthread_mutex_lock(&table.lock);
	r = table_find_or_add(server != NULL ? server : "", name, len, ret);
	pthread_mutex_unlock(&table.lock);
	return r;
}

const char *nfs_owner_name(uint32_t number)
{
	const char *name;

	pthread_mutex_lock(&table.lock);
	assert(number > 0 && number <= table.n);
	name = table.names[number - 1];
	pthread_mutex_unlock(&table.lock);
	return name;
}

/* Domains ignore case, as in the DNS. */
static bool is_same_name(uint32_t a, uint32_t b)
{
	const char *first, *second;
	size_t len;

	if (a == b)
		return true;
	first = nfs_owner_name(a);
	second = nfs_owner_name(b);
	len = strcspn(first, "@");
	return len == strcspn(second, "@") && memcmp(first, second, len) == 0 &&
	       strcasecmp(first + len, second + len) == 0;
}

bool nfs_owner_is_same(uint32_t name, uint32_t id, uint32_t other_name, uint32_t other_id)
{
	if (name != 0 && other_name != 0)
		return is_same_name(name, other_name);
	if (name == 0 && other_name == 0)
		return id == other_id;
	return id == other_id && id != NFS_ID_UNKNOWN;
}

/* Names that servers give to owners that they do not know. */
static bool is_nobody(uint32_t number)
{
	static const char *const nobodies[] = { "nobody", "nogroup", "nfsnobody" };
	const char *name = nfs_owner_name(number);
	size_t i, len = strcspn(name, "@");

	for (i = 0; i < ARRAY_SIZE(nobodies); i++)
		if (strlen(nobodies[i]) == len && memcmp(nobodies[i], name, len) == 0)
			return true;
	return false;
}

static bool is_other(uint32_t name, uint32_t id, uint32_t got_name, uint32_t got_id)
{
	if (name != 0)
		return !nfs_owner_is_same(name, id, got_name, got_id);
	/* Some servers answer OK and change nothing: their file system has no owners. */
	if (got_name == 0)
		return got_id != id;
	/* We cannot tell the name of a number, but "nobody" means that it was not accepted. */
	return is_nobody(got_name) && id != NOBODY && id != NFS_ID_UNKNOWN;
}

bool nfs_owner_is_other(const struct nfs_change *change, const struct nfs_attr *attr)
{
	if (!attr->has_owner && !attr->is_named)
		return false; /* the server did not send owners */
	return (change->has_uid &&
		is_other(change->uid_name, change->uid, attr->uid_name, attr->uid)) ||
	       (change->has_gid &&
		is_other(change->gid_name, change->gid, attr->gid_name, attr->gid));
}
