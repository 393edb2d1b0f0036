/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Compounds, built operation by operation, and the attributes that they set and return. Internal to
 * version 4. Pointers in a compound must live until v4_send(), which encodes it.
 */
#ifndef NFS_V4_COMPOUND_H
#define NFS_V4_COMPOUND_H

#include "nfs/connection.h"
/* After libnfs-zdr.h, whose types it uses. */
#include <nfsc/libnfs-raw-nfs4.h>

#include "nfs/v4_later.h"

#define V4_OPERATIONS_MAX 72 /* in one compound */
#define V4_LATER_MAX 2 /* of these, operations of v4_later.h */
#define V4_CHANGES_MAX 2 /* of these, operations that set attributes */
#define V4_OWNER_DIGITS_MAX 10 /* digits of a 32-bit number */

/* Bytes of all attributes in nfs_change with padding: size, mode, owner and group, two times. */
#define V4_VALUES_MAX (8 + 4 + 2 * (4 + NFS_OWNER_MAX + 1) + 2 * (4 + 8 + 4))

/* Attributes that are set, and their values. */
struct v4_values {
	uint32_t mask[2];
	char bytes[V4_VALUES_MAX];
	size_t len;
};

struct v4_compound {
	nfs_argop4 ops[V4_OPERATIONS_MAX]; /* of one of v4_later.h, only its number */
	unsigned int n;
	union v4_later_args later[V4_LATER_MAX]; /* arguments of these, in their order */
	unsigned int n_later;
	struct v4_values values[V4_CHANGES_MAX];
	unsigned int n_values;
};

/* Attributes to ask for. Ask for owners only if needed: servers may look up a name for each. */
enum v4_attributes {
	V4_PLAIN, /* type, file system and mode */
	V4_OWNER, /* V4_PLAIN and the owner */
	V4_FULL, /* all of nfs_attr */
	V4_ENTRY, /* V4_PLAIN for READDIR, with the handle */
	V4_ENTRY_FULL, /* V4_FULL for READDIR, with the handle */
	V4_STATE, /* V4_FULL without the owner, to see whether something has changed */
	V4_SPACE, /* of the file system */
	V4_LIMITS, /* type, bytes in one READ and WRITE, time of a lease */
	V4_XATTRS, /* whether the file system has extended attributes */
};

/* Append an operation with zeroed arguments. */
nfs_argop4 *v4_add(struct v4_compound *c, nfs_opnum4 opnum);
union v4_later_args *v4_add_later(struct v4_compound *c, enum v4_later_opnum opnum);
void v4_add_putfh(struct v4_compound *c, const struct nfs_handle *handle);
void v4_add_getattr(struct v4_compound *c, enum v4_attributes what);
void v4_add_lookup(struct v4_compound *c, const char *name);

utf8string v4_text(const char *s);
bitmap4 v4_mask(enum v4_attributes what);

/* Encode the attributes that an operation of c sets; at most V4_CHANGES_MAX times. */
fattr4 v4_change(struct v4_compound *c, const struct nfs_change *change);

/* Likewise the type alone, for VERIFY. */
fattr4 v4_type(struct v4_compound *c, nfs_ftype4 type);

/* The message that v4_procedure encodes. */
struct v4_message {
	unsigned int minor;
	const union v4_later_args *sequence; /* of the SEQUENCE that comes first; NULL: none */
	const struct v4_compound *compound; /* NULL: its operations are encoded already */
	const char *body; /* then here */
	uint32_t body_len, n;
};

/* A COMPOUND: encodes a v4_message, decodes a COMPOUND4res. */
extern const struct net_rpc_procedure v4_procedure;

/* The result decoder of v4_procedure, for tests. ret need not be zeroed. */
bool_t v4_decode_results(ZDR *zdr, COMPOUND4res *ret);

/* Encode the operations of a compound, for a message's body. */
bool_t v4_encode_operations(ZDR *zdr, const struct v4_compound *c);

/*
 * Decode attributes that the client's server sent. Fields that it leaves out stay unchanged, as do
 * all after an attribute that was not asked for, whose length is not known.
 */
void v4_take_attr(const fattr4 *from, struct nfs_client *c, struct nfs_attr *attr,
		  struct nfs_handle *handle);
void v4_take_space(const fattr4 *from, struct nfs_space *space);
void v4_take_limits(const fattr4 *from, struct nfs_client *client); /* root_type, too */
bool v4_take_xattrs(const fattr4 *from); /* false where the server leaves it out */
void v4_take_handle(const nfs_resop4 *getfh, struct nfs_handle *to);

#endif
