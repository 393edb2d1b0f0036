/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "nfs/v3_results.h"

#include "net/zdr.h"

/* -------- parts -------- */

static bool_t decode_handle(ZDR *zdr, nfs_fh3 *ret)
{
	return net_zdr_take_bytes(zdr, &ret->data.data_val, &ret->data.data_len);
}

static bool_t decode_handle_if(ZDR *zdr, post_op_fh3 *ret)
{
	if (!net_zdr_take_flag(zdr, &ret->handle_follows))
		return FALSE;
	return !ret->handle_follows || decode_handle(zdr, &ret->post_op_fh3_u.handle);
}

static bool_t decode_time(ZDR *zdr, nfstime3 *ret)
{
	return zdr_u_int(zdr, &ret->seconds) && zdr_u_int(zdr, &ret->nseconds);
}

static bool_t decode_attr(ZDR *zdr, fattr3 *ret)
{
	uint32_t type;

	if (!zdr_u_int(zdr, &type))
		return FALSE;
	ret->type = (ftype3)type;
	return zdr_u_int(zdr, &ret->mode) && zdr_u_int(zdr, &ret->nlink) &&
	       zdr_u_int(zdr, &ret->uid) && zdr_u_int(zdr, &ret->gid) &&
	       zdr_uint64_t(zdr, &ret->size) && zdr_uint64_t(zdr, &ret->used) &&
	       zdr_u_int(zdr, &ret->rdev.specdata1) && zdr_u_int(zdr, &ret->rdev.specdata2) &&
	       zdr_uint64_t(zdr, &ret->fsid) && zdr_uint64_t(zdr, &ret->fileid) &&
	       decode_time(zdr, &ret->atime) && decode_time(zdr, &ret->mtime) &&
	       decode_time(zdr, &ret->ctime);
}

static bool_t decode_attr_if(ZDR *zdr, post_op_attr *ret)
{
	if (!net_zdr_take_flag(zdr, &ret->attributes_follow))
		return FALSE;
	return !ret->attributes_follow || decode_attr(zdr, &ret->post_op_attr_u.attributes);
}

static bool_t decode_before(ZDR *zdr, pre_op_attr *ret)
{
	wcc_attr *attr = &ret->pre_op_attr_u.attributes;

	if (!net_zdr_take_flag(zdr, &ret->attributes_follow))
		return FALSE;
	return !ret->attributes_follow ||
	       (zdr_uint64_t(zdr, &attr->size) && decode_time(zdr, &attr->mtime) &&
		decode_time(zdr, &attr->ctime));
}

static bool_t decode_wcc(ZDR *zdr, wcc_data *ret)
{
	return decode_before(zdr, &ret->before) && decode_attr_if(zdr, &ret->after);
}

static bool_t decode_status(ZDR *zdr, nfsstat3 *ret)
{
	uint32_t status;

	if (!zdr_u_int(zdr, &status))
		return FALSE;
	*ret = (nfsstat3)status;
	return TRUE;
}

/* -------- NFS -------- */

bool_t v3_take_GETATTR3res(ZDR *zdr, GETATTR3res *ret)
{
	if (!decode_status(zdr, &ret->status))
		return FALSE;
	return ret->status != NFS3_OK || decode_attr(zdr, &ret->GETATTR3res_u.resok.obj_attributes);
}

bool_t v3_take_SETATTR3res(ZDR *zdr, SETATTR3res *ret)
{
	/* The same follows a failure. */
	return decode_status(zdr, &ret->status) &&
	       decode_wcc(zdr, &ret->SETATTR3res_u.resok.obj_wcc);
}

bool_t v3_take_LOOKUP3res(ZDR *zdr, LOOKUP3res *ret)
{
	LOOKUP3resok *ok = &ret->LOOKUP3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->LOOKUP3res_u.resfail.dir_attributes);
	return decode_handle(zdr, &ok->object) && decode_attr_if(zdr, &ok->obj_attributes) &&
	       decode_attr_if(zdr, &ok->dir_attributes);
}

bool_t v3_take_READLINK3res(ZDR *zdr, READLINK3res *ret)
{
	READLINK3resok *ok = &ret->READLINK3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->READLINK3res_u.resfail.symlink_attributes);
	return decode_attr_if(zdr, &ok->symlink_attributes) && net_zdr_take_string(zdr, &ok->data);
}

bool_t v3_take_READ3res(ZDR *zdr, READ3res *ret)
{
	READ3resok *ok = &ret->READ3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->READ3res_u.resfail.file_attributes);
	return decode_attr_if(zdr, &ok->file_attributes) && zdr_u_int(zdr, &ok->count) &&
	       zdr_u_int(zdr, &ok->eof) &&
	       net_zdr_take_bytes(zdr, &ok->data.data_val, &ok->data.data_len);
}

bool_t v3_take_WRITE3res(ZDR *zdr, WRITE3res *ret)
{
	WRITE3resok *ok = &ret->WRITE3res_u.resok;
	uint32_t committed;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->WRITE3res_u.resfail.file_wcc);
	if (!decode_wcc(zdr, &ok->file_wcc) || !zdr_u_int(zdr, &ok->count) ||
	    !zdr_u_int(zdr, &committed))
		return FALSE;
	ok->committed = (stable_how)committed;
	return net_zdr_take_fixed(zdr, ok->verf, sizeof(ok->verf));
}

/* What CREATE, MKDIR, SYMLINK and MKNOD return. */
static bool_t decode_made(ZDR *zdr, post_op_fh3 *object, post_op_attr *attr, wcc_data *dir)
{
	return decode_handle_if(zdr, object) && decode_attr_if(zdr, attr) && decode_wcc(zdr, dir);
}

bool_t v3_take_CREATE3res(ZDR *zdr, CREATE3res *ret)
{
	CREATE3resok *ok = &ret->CREATE3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->CREATE3res_u.resfail.dir_wcc);
	return decode_made(zdr, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

bool_t v3_take_MKDIR3res(ZDR *zdr, MKDIR3res *ret)
{
	MKDIR3resok *ok = &ret->MKDIR3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->MKDIR3res_u.resfail.dir_wcc);
	return decode_made(zdr, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

bool_t v3_take_SYMLINK3res(ZDR *zdr, SYMLINK3res *ret)
{
	SYMLINK3resok *ok = &ret->SYMLINK3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->SYMLINK3res_u.resfail.dir_wcc);
	return decode_made(zdr, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

bool_t v3_take_MKNOD3res(ZDR *zdr, MKNOD3res *ret)
{
	MKNOD3resok *ok = &ret->MKNOD3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->MKNOD3res_u.resfail.dir_wcc);
	return decode_made(zdr, &ok->obj, &ok->obj_attributes, &ok->dir_wcc);
}

/* The same follows a failure of REMOVE, RMDIR, RENAME and LINK. */

bool_t v3_take_REMOVE3res(ZDR *zdr, REMOVE3res *ret)
{
	return decode_status(zdr, &ret->status) &&
	       decode_wcc(zdr, &ret->REMOVE3res_u.resok.dir_wcc);
}

bool_t v3_take_RMDIR3res(ZDR *zdr, RMDIR3res *ret)
{
	return decode_status(zdr, &ret->status) && decode_wcc(zdr, &ret->RMDIR3res_u.resok.dir_wcc);
}

bool_t v3_take_RENAME3res(ZDR *zdr, RENAME3res *ret)
{
	RENAME3resok *ok = &ret->RENAME3res_u.resok;

	return decode_status(zdr, &ret->status) && decode_wcc(zdr, &ok->fromdir_wcc) &&
	       decode_wcc(zdr, &ok->todir_wcc);
}

bool_t v3_take_LINK3res(ZDR *zdr, LINK3res *ret)
{
	LINK3resok *ok = &ret->LINK3res_u.resok;

	return decode_status(zdr, &ret->status) && decode_attr_if(zdr, &ok->file_attributes) &&
	       decode_wcc(zdr, &ok->linkdir_wcc);
}

/* -------- directories -------- */

static bool_t decode_names(ZDR *zdr, dirlist3 *ret)
{
	entry3 **link = &ret->entries;
	uint32_t n = 0;
	void *next;

	for (;;) {
		if (!net_zdr_take_next(zdr, &next, sizeof(**link), &n))
			return FALSE;
		*link = next;
		if (next == NULL)
			return zdr_u_int(zdr, &ret->eof);
		if (!zdr_uint64_t(zdr, &(*link)->fileid) ||
		    !net_zdr_take_string(zdr, &(*link)->name) ||
		    !zdr_uint64_t(zdr, &(*link)->cookie))
			return FALSE;
		link = &(*link)->nextentry;
	}
}

bool_t v3_take_READDIR3res(ZDR *zdr, READDIR3res *ret)
{
	READDIR3resok *ok = &ret->READDIR3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->READDIR3res_u.resfail.dir_attributes);
	return decode_attr_if(zdr, &ok->dir_attributes) &&
	       net_zdr_take_fixed(zdr, ok->cookieverf, sizeof(ok->cookieverf)) &&
	       decode_names(zdr, &ok->reply);
}

static bool_t decode_entries(ZDR *zdr, dirlistplus3 *ret)
{
	entryplus3 **link = &ret->entries;
	uint32_t n = 0;
	void *next;

	for (;;) {
		if (!net_zdr_take_next(zdr, &next, sizeof(**link), &n))
			return FALSE;
		*link = next;
		if (next == NULL)
			return zdr_u_int(zdr, &ret->eof);
		if (!zdr_uint64_t(zdr, &(*link)->fileid) ||
		    !net_zdr_take_string(zdr, &(*link)->name) ||
		    !zdr_uint64_t(zdr, &(*link)->cookie) ||
		    !decode_attr_if(zdr, &(*link)->name_attributes) ||
		    !decode_handle_if(zdr, &(*link)->name_handle))
			return FALSE;
		link = &(*link)->nextentry;
	}
}

bool_t v3_take_READDIRPLUS3res(ZDR *zdr, READDIRPLUS3res *ret)
{
	READDIRPLUS3resok *ok = &ret->READDIRPLUS3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->READDIRPLUS3res_u.resfail.dir_attributes);
	return decode_attr_if(zdr, &ok->dir_attributes) &&
	       net_zdr_take_fixed(zdr, ok->cookieverf, sizeof(ok->cookieverf)) &&
	       decode_entries(zdr, &ok->reply);
}

/* -------- file systems -------- */

bool_t v3_take_FSSTAT3res(ZDR *zdr, FSSTAT3res *ret)
{
	FSSTAT3resok *ok = &ret->FSSTAT3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->FSSTAT3res_u.resfail.obj_attributes);
	return decode_attr_if(zdr, &ok->obj_attributes) && zdr_uint64_t(zdr, &ok->tbytes) &&
	       zdr_uint64_t(zdr, &ok->fbytes) && zdr_uint64_t(zdr, &ok->abytes) &&
	       zdr_uint64_t(zdr, &ok->tfiles) && zdr_uint64_t(zdr, &ok->ffiles) &&
	       zdr_uint64_t(zdr, &ok->afiles) && zdr_u_int(zdr, &ok->invarsec);
}

bool_t v3_take_FSINFO3res(ZDR *zdr, FSINFO3res *ret)
{
	FSINFO3resok *ok = &ret->FSINFO3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_attr_if(zdr, &ret->FSINFO3res_u.resfail.obj_attributes);
	return decode_attr_if(zdr, &ok->obj_attributes) && zdr_u_int(zdr, &ok->rtmax) &&
	       zdr_u_int(zdr, &ok->rtpref) && zdr_u_int(zdr, &ok->rtmult) &&
	       zdr_u_int(zdr, &ok->wtmax) && zdr_u_int(zdr, &ok->wtpref) &&
	       zdr_u_int(zdr, &ok->wtmult) && zdr_u_int(zdr, &ok->dtpref) &&
	       zdr_uint64_t(zdr, &ok->maxfilesize) && decode_time(zdr, &ok->time_delta) &&
	       zdr_u_int(zdr, &ok->properties);
}

bool_t v3_take_COMMIT3res(ZDR *zdr, COMMIT3res *ret)
{
	COMMIT3resok *ok = &ret->COMMIT3res_u.resok;

	if (!decode_status(zdr, &ret->status))
		return FALSE;
	if (ret->status != NFS3_OK)
		return decode_wcc(zdr, &ret->COMMIT3res_u.resfail.file_wcc);
	return decode_wcc(zdr, &ok->file_wcc) &&
	       net_zdr_take_fixed(zdr, ok->verf, sizeof(ok->verf));
}

/* -------- MOUNT -------- */

static bool_t decode_flavors(ZDR *zdr, mountres3_ok *ret)
{
	uint32_t n, i, flavor;
	int *flavors;

	if (!zdr_u_int(zdr, &n))
		return FALSE;
	flavors = net_zdr_allocate_array(zdr, n, sizeof(*flavors));
	if (flavors == NULL)
		return FALSE;
	for (i = 0; i < n; i++) {
		if (!zdr_u_int(zdr, &flavor))
			return FALSE;
		flavors[i] = (int)flavor;
	}
	ret->auth_flavors.auth_flavors_val = flavors;
	ret->auth_flavors.auth_flavors_len = n;
	return TRUE;
}

bool_t v3_take_mountres3(ZDR *zdr, mountres3 *ret)
{
	mountres3_ok *ok = &ret->mountres3_u.mountinfo;
	uint32_t status;

	if (!zdr_u_int(zdr, &status))
		return FALSE;
	ret->fhs_status = (mountstat3)status;
	if (ret->fhs_status != MNT3_OK)
		return TRUE;
	return net_zdr_take_bytes(zdr, &ok->fhandle.fhandle3_val, &ok->fhandle.fhandle3_len) &&
	       decode_flavors(zdr, ok);
}

static bool_t decode_groups(ZDR *zdr, groups *ret)
{
	groups *link = ret;
	uint32_t n = 0;
	void *next;

	for (;;) {
		if (!net_zdr_take_next(zdr, &next, sizeof(**link), &n))
			return FALSE;
		*link = next;
		if (next == NULL)
			return TRUE;
		if (!net_zdr_take_string(zdr, &(*link)->gr_name))
			return FALSE;
		link = &(*link)->gr_next;
	}
}

bool_t v3_take_exports(ZDR *zdr, exports *ret)
{
	exports *link = ret;
	uint32_t n = 0;
	void *next;

	for (;;) {
		if (!net_zdr_take_next(zdr, &next, sizeof(**link), &n))
			return FALSE;
		*link = next;
		if (next == NULL)
			return TRUE;
		if (!net_zdr_take_string(zdr, &(*link)->ex_dir) ||
		    !decode_groups(zdr, &(*link)->ex_groups))
			return FALSE;
		link = &(*link)->ex_next;
	}
}
