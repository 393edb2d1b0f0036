/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Attributes of version 4: a mask of their numbers, then the values in the order of the numbers,
 * without lengths. So this file must know every attribute that we ask for; servers may not send
 * others.
 */

#include <arpa/inet.h>
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "nfs/owner.h"
#include "nfs/v4_compound.h"

/* Numbers, RFC 7530 sections 5.6 to 5.8. */
#define ATTR_TYPE 1
#define ATTR_CHANGE 3
#define ATTR_SIZE 4
#define ATTR_FSID 8
#define ATTR_LEASE_TIME 10
#define ATTR_RDATTR_ERROR 11
#define ATTR_FILEHANDLE 19
#define ATTR_FILEID 20
#define ATTR_MAXREAD 30
#define ATTR_MAXWRITE 31
#define ATTR_MODE 33
#define ATTR_NUMLINKS 35
#define ATTR_OWNER 36
#define ATTR_OWNER_GROUP 37
#define ATTR_RAWDEV 41
#define ATTR_SPACE_AVAIL 42
#define ATTR_SPACE_TOTAL 44
#define ATTR_SPACE_USED 45
#define ATTR_TIME_ACCESS 47
#define ATTR_TIME_ACCESS_SET 48
#define ATTR_TIME_METADATA 52
#define ATTR_TIME_MODIFY 53
#define ATTR_TIME_MODIFY_SET 54
#define ATTR_MOUNTED_ON_FILEID 55

/* RFC 8276 section 8.2.1: in the third word, which no other attribute that is used is in. */
#define ATTR_XATTR_SUPPORT 82

#define NOBODY "nobody"

#define BIT(number) (UINT64_C(1) << (number))
#define MOUNT (BIT(ATTR_FILEID) | BIT(ATTR_MOUNTED_ON_FILEID)) /* they tell mount points */
#define PLAIN (BIT(ATTR_TYPE) | BIT(ATTR_FSID) | BIT(ATTR_MODE) | MOUNT)
#define OWNER (BIT(ATTR_OWNER) | BIT(ATTR_OWNER_GROUP))
#define ENTRY (BIT(ATTR_RDATTR_ERROR) | BIT(ATTR_FILEHANDLE))
#define TIMES (BIT(ATTR_TIME_ACCESS) | BIT(ATTR_TIME_MODIFY))
#define CHANGE (BIT(ATTR_CHANGE) | BIT(ATTR_TIME_METADATA)) /* servers may lack the time */
#define FULL                                                                                       \
	(BIT(ATTR_SIZE) | BIT(ATTR_FSID) | BIT(ATTR_FILEID) | BIT(ATTR_NUMLINKS) |                 \
	 BIT(ATTR_RAWDEV) | BIT(ATTR_SPACE_USED) | TIMES)
#define LIMITS (BIT(ATTR_TYPE) | BIT(ATTR_LEASE_TIME) | BIT(ATTR_MAXREAD) | BIT(ATTR_MAXWRITE))
#define SPACE (BIT(ATTR_SPACE_AVAIL) | BIT(ATTR_SPACE_TOTAL))

/* The two words of a mask. libnfs only reads them, but takes no const pointer. */
#define WORDS(mask)                                                                                \
	{                                                                                          \
		(uint32_t)(mask), (uint32_t)((mask) >> 32)                                         \
	}

static const uint32_t masks[][2] = {
	[V4_PLAIN] = WORDS(PLAIN),
	[V4_OWNER] = WORDS(PLAIN | OWNER),
	[V4_FULL] = WORDS(PLAIN | OWNER | FULL | CHANGE),
	[V4_ENTRY] = WORDS(PLAIN | ENTRY),
	[V4_ENTRY_FULL] = WORDS(PLAIN | OWNER | FULL | CHANGE | ENTRY),
	[V4_STATE] = WORDS(PLAIN | FULL | CHANGE),
	[V4_SPACE] = WORDS(SPACE),
	[V4_LIMITS] = WORDS(LIMITS),
};

static const uint32_t xattrs_mask[] = { 0, 0, 1U << (ATTR_XATTR_SUPPORT - 64) };

bitmap4 v4_mask(enum v4_attributes what)
{
	if (what == V4_XATTRS)
		return (bitmap4){
			.bitmap4_len = ARRAY_SIZE(xattrs_mask),
			.bitmap4_val = (uint32_t *)(uintptr_t)xattrs_mask,
		};
	return (bitmap4){
		.bitmap4_len = ARRAY_SIZE(masks[what]),
		.bitmap4_val = (uint32_t *)(uintptr_t)masks[what],
	};
}

static void values_put_bit(struct v4_values *v, unsigned int number)
{
	v->mask[number / 32] |= 1U << number % 32;
}

static void values_put_u32(struct v4_values *v, uint32_t value)
{
	uint32_t be = htonl(value);

	memcpy(v->bytes + v->len, &be, sizeof(be));
	v->len += sizeof(be);
}

static void values_put_u64(struct v4_values *v, uint64_t value)
{
	values_put_u32(v, (uint32_t)(value >> 32));
	values_put_u32(v, (uint32_t)value);
}

static void values_put_bytes(struct v4_values *v, const char *bytes, size_t n)
{
	values_put_u32(v, (uint32_t)n);
	memcpy(v->bytes + v->len, bytes, n);
	v->len += (n + 3) & ~(size_t)3;
}

/* Send a number as digits, which servers accept without id mapping (RFC 7530, section 5.9). */
static void values_put_owner(struct v4_values *v, unsigned int number, uint32_t name, uint32_t id)
{
	char digits[V4_OWNER_DIGITS_MAX + 1];
	const char *text = digits;

	if (name != 0)
		text = nfs_owner_name(name);
	else
		(void)snprintf(digits, sizeof(digits), "%" PRIu32, id);
	values_put_bit(v, number);
	values_put_bytes(v, text, strlen(text));
}

static void values_put_time(struct v4_values *v, unsigned int number, const struct nfs_time *time)
{
	values_put_bit(v, number);
	values_put_u32(v, SET_TO_CLIENT_TIME4);
	values_put_u64(v, (uint64_t)time->sec);
	values_put_u32(v, time->nsec);
}

static struct v4_values *add_values(struct v4_compound *c)
{
	assert(c->n_values < V4_CHANGES_MAX);
	return &c->values[c->n_values++];
}

static fattr4 make_fattr(struct v4_values *v)
{
	fattr4 attr = { .attrmask = { .bitmap4_len = 2, .bitmap4_val = v->mask } };

	attr.attr_vals.attrlist4_len = (u_int)v->len;
	attr.attr_vals.attrlist4_val = v->bytes;
	return attr;
}

fattr4 v4_change(struct v4_compound *c, const struct nfs_change *change)
{
	struct v4_values *v = add_values(c);

	if (change->has_size) {
		values_put_bit(v, ATTR_SIZE);
		values_put_u64(v, change->size);
	}
	if (change->has_mode) {
		values_put_bit(v, ATTR_MODE);
		values_put_u32(v, change->mode);
	}
	if (change->has_uid)
		values_put_owner(v, ATTR_OWNER, change->uid_name, change->uid);
	if (change->has_gid)
		values_put_owner(v, ATTR_OWNER_GROUP, change->gid_name, change->gid);
	if (change->has_times) {
		values_put_time(v, ATTR_TIME_ACCESS_SET, &change->atime);
		values_put_time(v, ATTR_TIME_MODIFY_SET, &change->mtime);
	}
	return make_fattr(v);
}

fattr4 v4_type(struct v4_compound *c, nfs_ftype4 type)
{
	struct v4_values *v = add_values(c);

	values_put_bit(v, ATTR_TYPE);
	values_put_u32(v, type);
	return make_fattr(v);
}

struct attr_reader {
	const char *p;
	size_t left;
	struct nfs_attr *attr;
	struct nfs_handle *handle;
	struct nfs_space *space;
	struct nfs_client *client;
	uint64_t mounted_on;
	bool has_uid, has_gid; /* the server sent a usable one */
};

static bool read_u32(struct attr_reader *r, uint32_t *ret)
{
	uint32_t be;

	if (r->left < sizeof(be))
		return false;
	memcpy(&be, r->p, sizeof(be));
	r->p += sizeof(be);
	r->left -= sizeof(be);
	*ret = ntohl(be);
	return true;
}

static bool read_u64(struct attr_reader *r, uint64_t *ret)
{
	uint32_t high, low;

	if (!read_u32(r, &high) || !read_u32(r, &low))
		return false;
	*ret = (uint64_t)high << 32 | low;
	return true;
}

static bool read_time(struct attr_reader *r, struct nfs_time *ret)
{
	uint64_t sec;

	if (!read_u64(r, &sec) || !read_u32(r, &ret->nsec))
		return false;
	ret->sec = (int64_t)sec;
	return true;
}

/* Borrow the bytes and skip their padding. */
static bool read_bytes(struct attr_reader *r, const char **ret, uint32_t *ret_len)
{
	size_t padded;
	uint32_t len;

	if (!read_u32(r, &len) || len > r->left)
		return false;
	padded = ((size_t)len + 3) & ~(size_t)3;
	if (padded > r->left)
		return false;
	*ret = r->p;
	*ret_len = len;
	r->p += padded;
	r->left -= padded;
	return true;
}

/* Check for the superuser, whom all servers call "root", with or without a domain. */
static bool is_root_name(const char *name, size_t len)
{
	return len >= 4 && memcmp(name, "root", 4) == 0 && (len == 4 || name[4] == '@');
}

/*
 * Read "1000" or "alice@example.org". A plain "nobody" means that the server has no name for the
 * owner (RFC 7530, section 5.9): unknown. A name for which nfs/owner.h has no room is unknown too.
 */
static bool read_owner(struct attr_reader *r, bool *ret_known, uint32_t *ret_name, uint32_t *ret)
{
	char digits[V4_OWNER_DIGITS_MAX + 1];
	const char *name;
	uint32_t len;
	uint64_t id;

	*ret_known = false;
	*ret_name = 0;
	*ret = NFS_ID_UNKNOWN;
	if (!read_bytes(r, &name, &len))
		return false;
	if (len < sizeof(digits)) {
		memcpy(digits, name, len);
		digits[len] = '\0';
		if (str_parse_u64(digits, 10, UINT32_MAX, &id) == 0) {
			*ret_known = true;
			*ret = (uint32_t)id;
			return true;
		}
	}
	if (len == strlen(NOBODY) && memcmp(name, NOBODY, len) == 0)
		return true;
	*ret_known = nfs_owner_intern_of(r->client->export.server, name, len, ret_name) == 0;
	if (is_root_name(name, len)) {
		*ret_known = true;
		*ret = 0;
	}
	return true;
}

static bool take_type(struct attr_reader *r)
{
	static const enum nfs_type types[] = {
		[NF4REG] = NFS_TYPE_FILE,    [NF4DIR] = NFS_TYPE_DIRECTORY,
		[NF4BLK] = NFS_TYPE_BLOCK,   [NF4CHR] = NFS_TYPE_CHARACTER,
		[NF4LNK] = NFS_TYPE_SYMLINK, [NF4SOCK] = NFS_TYPE_SOCKET,
		[NF4FIFO] = NFS_TYPE_FIFO,
	};
	uint32_t type;

	if (!read_u32(r, &type))
		return false;
	r->attr->type = NFS_TYPE_OTHER;
	if (type < ARRAY_SIZE(types) && types[type] != NFS_TYPE_UNKNOWN)
		r->attr->type = types[type];
	return true;
}

static bool take_change(struct attr_reader *r)
{
	r->attr->has_change = read_u64(r, &r->attr->change);
	return r->attr->has_change;
}

static bool take_size(struct attr_reader *r)
{
	return read_u64(r, &r->attr->size);
}

static bool take_fsid(struct attr_reader *r)
{
	r->attr->has_fsid = read_u64(r, &r->attr->fsid) && read_u64(r, &r->attr->fsid_minor);
	return r->attr->has_fsid;
}

/* Skip the error: the entry then has no attributes. */
static bool take_rdattr_error(struct attr_reader *r)
{
	uint32_t status;

	return read_u32(r, &status);
}

static bool take_filehandle(struct attr_reader *r)
{
	const char *data;
	uint32_t len;

	if (!read_bytes(r, &data, &len) || len > sizeof(r->handle->data))
		return false;
	r->handle->len = len;
	memcpy(r->handle->data, data, len);
	return true;
}

static bool take_fileid(struct attr_reader *r)
{
	return read_u64(r, &r->attr->fileid);
}

static bool take_mounted_on_fileid(struct attr_reader *r)
{
	return read_u64(r, &r->mounted_on);
}

static bool read_limit(struct attr_reader *r, uint32_t *ret)
{
	uint64_t bytes;

	if (!read_u64(r, &bytes))
		return false;
	*ret = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
	return true;
}

static bool take_lease_time(struct attr_reader *r)
{
	return read_u32(r, &r->client->lease_s);
}

static bool take_maxread(struct attr_reader *r)
{
	return read_limit(r, &r->client->read_max);
}

static bool take_maxwrite(struct attr_reader *r)
{
	return read_limit(r, &r->client->write_max);
}

static bool take_mode(struct attr_reader *r)
{
	uint32_t mode;

	if (!read_u32(r, &mode))
		return false;
	r->attr->has_mode = true;
	r->attr->mode = mode & 07777;
	return true;
}

static bool take_numlinks(struct attr_reader *r)
{
	return read_u32(r, &r->attr->links);
}

static bool take_owner(struct attr_reader *r)
{
	return read_owner(r, &r->has_uid, &r->attr->uid_name, &r->attr->uid);
}

static bool take_owner_group(struct attr_reader *r)
{
	return read_owner(r, &r->has_gid, &r->attr->gid_name, &r->attr->gid);
}

static bool take_rawdev(struct attr_reader *r)
{
	return read_u32(r, &r->attr->device.major) && read_u32(r, &r->attr->device.minor);
}

static bool take_space_avail(struct attr_reader *r)
{
	return read_u64(r, &r->space->available);
}

static bool take_space_total(struct attr_reader *r)
{
	return read_u64(r, &r->space->total);
}

static bool take_space_used(struct attr_reader *r)
{
	return read_u64(r, &r->attr->used);
}

static bool take_time_access(struct attr_reader *r)
{
	return read_time(r, &r->attr->atime);
}

static bool take_time_metadata(struct attr_reader *r)
{
	return read_time(r, &r->attr->ctime);
}

static bool take_time_modify(struct attr_reader *r)
{
	return read_time(r, &r->attr->mtime);
}

static bool (*const takers[64])(struct attr_reader *r) = {
	[ATTR_TYPE] = take_type,
	[ATTR_CHANGE] = take_change,
	[ATTR_SIZE] = take_size,
	[ATTR_FSID] = take_fsid,
	[ATTR_LEASE_TIME] = take_lease_time,
	[ATTR_RDATTR_ERROR] = take_rdattr_error,
	[ATTR_FILEHANDLE] = take_filehandle,
	[ATTR_FILEID] = take_fileid,
	[ATTR_MAXREAD] = take_maxread,
	[ATTR_MAXWRITE] = take_maxwrite,
	[ATTR_MODE] = take_mode,
	[ATTR_NUMLINKS] = take_numlinks,
	[ATTR_OWNER] = take_owner,
	[ATTR_OWNER_GROUP] = take_owner_group,
	[ATTR_RAWDEV] = take_rawdev,
	[ATTR_SPACE_AVAIL] = take_space_avail,
	[ATTR_SPACE_TOTAL] = take_space_total,
	[ATTR_SPACE_USED] = take_space_used,
	[ATTR_TIME_ACCESS] = take_time_access,
	[ATTR_TIME_METADATA] = take_time_metadata,
	[ATTR_TIME_MODIFY] = take_time_modify,
	[ATTR_MOUNTED_ON_FILEID] = take_mounted_on_fileid,
};

/* Read the attributes in allowed. Returns the mask of those that were read. */
static uint64_t take_attributes(struct attr_reader *r, const fattr4 *from, uint64_t allowed)
{
	const bitmap4 *words = &from->attrmask;
	uint64_t mask = 0, taken = 0;
	unsigned int number;

	if (words->bitmap4_len > 0)
		mask = words->bitmap4_val[0];
	if (words->bitmap4_len > 1)
		mask |= (uint64_t)words->bitmap4_val[1] << 32;
	r->p = from->attr_vals.attrlist4_val;
	r->left = from->attr_vals.attrlist4_len;
	for (number = 0; number < ARRAY_SIZE(takers); number++) {
		if (!(mask & BIT(number)))
			continue;
		/* The length of other attributes is not known. */
		if (!(allowed & BIT(number)) || !takers[number](r))
			break;
		taken |= BIT(number);
	}
	return taken;
}

void v4_take_attr(const fattr4 *from, struct nfs_client *c, struct nfs_attr *attr,
		  struct nfs_handle *handle)
{
	struct attr_reader r = { .client = c, .attr = attr, .handle = handle };
	uint64_t taken = take_attributes(&r, from, PLAIN | OWNER | FULL | CHANGE | ENTRY);

	attr->is_full = (taken & FULL) == FULL;
	/* RFC 7530, section 5.8.2: the two differ for the root of what is mounted. */
	attr->is_mount = (taken & MOUNT) == MOUNT && r.mounted_on != attr->fileid;
	if (!r.has_uid || !r.has_gid)
		return;
	attr->has_owner = !(attr->uid_name != 0 && attr->uid == NFS_ID_UNKNOWN) &&
			  !(attr->gid_name != 0 && attr->gid == NFS_ID_UNKNOWN);
	attr->is_named = !attr->has_owner;
}

/* Servers leave out attributes that they do not have: the space then stays 0, "not known". */
void v4_take_space(const fattr4 *from, struct nfs_space *space)
{
	struct attr_reader r = { .space = space };

	(void)take_attributes(&r, from, SPACE);
}

void v4_take_limits(const fattr4 *from, struct nfs_client *client)
{
	struct nfs_attr attr = { .type = NFS_TYPE_UNKNOWN };
	struct attr_reader r = { .client = client, .attr = &attr };

	(void)take_attributes(&r, from, LIMITS); /* those left out stay 0, "not known" */
	client->root_type = attr.type;
}

bool v4_take_xattrs(const fattr4 *from)
{
	const bitmap4 *words = &from->attrmask;
	struct attr_reader r = {
		.p = from->attr_vals.attrlist4_val,
		.left = from->attr_vals.attrlist4_len,
	};
	uint32_t has;

	return words->bitmap4_len == ARRAY_SIZE(xattrs_mask) &&
	       memcmp(words->bitmap4_val, xattrs_mask, sizeof(xattrs_mask)) == 0 &&
	       read_u32(&r, &has) && has == 1;
}
