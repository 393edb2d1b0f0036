/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * libarchive, which only archives need: loaded when the first one is made or read. Include this in
 * place of its headers. Internal to the archives; tree/archive_times.c has the functions that take
 * times.
 */
#ifndef TREE_LIBARCHIVE_H
#define TREE_LIBARCHIVE_H

#include <archive.h>
#include <archive_entry.h>

#include "base/library.h"

/* Needed before any other function. Errors as library_load(). Any thread. */
int libarchive_load(struct error *err);

#ifdef WITH_DLOPEN

/* clang-format off */
#define LIBARCHIVE_FUNCTIONS(each) \
	each(archive_entry_atime_is_set) \
	each(archive_entry_atime_nsec) \
	each(archive_entry_clear) \
	each(archive_entry_copy_hardlink) \
	each(archive_entry_copy_pathname) \
	each(archive_entry_copy_symlink) \
	each(archive_entry_filetype) \
	each(archive_entry_free) \
	each(archive_entry_gid) \
	each(archive_entry_gname) \
	each(archive_entry_hardlink) \
	each(archive_entry_mode) \
	each(archive_entry_mtime_nsec) \
	each(archive_entry_new) \
	each(archive_entry_pathname) \
	each(archive_entry_rdevmajor) \
	each(archive_entry_rdevminor) \
	each(archive_entry_set_gid) \
	each(archive_entry_set_gname) \
	each(archive_entry_set_mode) \
	each(archive_entry_set_rdevmajor) \
	each(archive_entry_set_rdevminor) \
	each(archive_entry_set_size) \
	each(archive_entry_set_uid) \
	each(archive_entry_set_uname) \
	each(archive_entry_size) \
	each(archive_entry_sparse_add_entry) \
	each(archive_entry_sparse_count) \
	each(archive_entry_symlink) \
	each(archive_entry_uid) \
	each(archive_entry_uname) \
	each(archive_entry_xattr_add_entry) \
	each(archive_entry_xattr_next) \
	each(archive_entry_xattr_reset) \
	each(archive_errno) \
	each(archive_error_string) \
	each(archive_filter_bytes) \
	each(archive_filter_code) \
	each(archive_format) \
	each(archive_read_append_filter) \
	each(archive_read_data_block) \
	each(archive_read_data_skip) \
	each(archive_read_free) \
	each(archive_read_header_position) \
	each(archive_read_new) \
	each(archive_read_next_header) \
	each(archive_read_open) \
	each(archive_read_support_format_raw) \
	each(archive_read_support_format_tar) \
	each(archive_set_error) \
	each(archive_write_add_filter_gzip) \
	each(archive_write_add_filter_none) \
	each(archive_write_add_filter_zstd) \
	each(archive_write_close) \
	each(archive_write_data) \
	each(archive_write_fail) \
	each(archive_write_free) \
	each(archive_write_header) \
	each(archive_write_new) \
	each(archive_write_open) \
	each(archive_write_set_bytes_in_last_block) \
	each(archive_write_set_bytes_per_block) \
	each(archive_write_set_format_option) \
	each(archive_write_set_format_pax)
/* clang-format on */

struct libarchive {
	LIBARCHIVE_FUNCTIONS(LIBRARY_POINTER)
};

extern struct libarchive libarchive;

#define archive_entry_atime_is_set libarchive.archive_entry_atime_is_set
#define archive_entry_atime_nsec libarchive.archive_entry_atime_nsec
#define archive_entry_clear libarchive.archive_entry_clear
#define archive_entry_copy_hardlink libarchive.archive_entry_copy_hardlink
#define archive_entry_copy_pathname libarchive.archive_entry_copy_pathname
#define archive_entry_copy_symlink libarchive.archive_entry_copy_symlink
#define archive_entry_filetype libarchive.archive_entry_filetype
#define archive_entry_free libarchive.archive_entry_free
#define archive_entry_gid libarchive.archive_entry_gid
#define archive_entry_gname libarchive.archive_entry_gname
#define archive_entry_hardlink libarchive.archive_entry_hardlink
#define archive_entry_mode libarchive.archive_entry_mode
#define archive_entry_mtime_nsec libarchive.archive_entry_mtime_nsec
#define archive_entry_new libarchive.archive_entry_new
#define archive_entry_pathname libarchive.archive_entry_pathname
#define archive_entry_rdevmajor libarchive.archive_entry_rdevmajor
#define archive_entry_rdevminor libarchive.archive_entry_rdevminor
#define archive_entry_set_gid libarchive.archive_entry_set_gid
#define archive_entry_set_gname libarchive.archive_entry_set_gname
#define archive_entry_set_mode libarchive.archive_entry_set_mode
#define archive_entry_set_rdevmajor libarchive.archive_entry_set_rdevmajor
#define archive_entry_set_rdevminor libarchive.archive_entry_set_rdevminor
#define archive_entry_set_size libarchive.archive_entry_set_size
#define archive_entry_set_uid libarchive.archive_entry_set_uid
#define archive_entry_set_uname libarchive.archive_entry_set_uname
#define archive_entry_size libarchive.archive_entry_size
#define archive_entry_sparse_add_entry libarchive.archive_entry_sparse_add_entry
#define archive_entry_sparse_count libarchive.archive_entry_sparse_count
#define archive_entry_symlink libarchive.archive_entry_symlink
#define archive_entry_uid libarchive.archive_entry_uid
#define archive_entry_uname libarchive.archive_entry_uname
#define archive_entry_xattr_add_entry libarchive.archive_entry_xattr_add_entry
#define archive_entry_xattr_next libarchive.archive_entry_xattr_next
#define archive_entry_xattr_reset libarchive.archive_entry_xattr_reset
#define archive_errno libarchive.archive_errno
#define archive_error_string libarchive.archive_error_string
#define archive_filter_bytes libarchive.archive_filter_bytes
#define archive_filter_code libarchive.archive_filter_code
#define archive_format libarchive.archive_format
#define archive_read_append_filter libarchive.archive_read_append_filter
#define archive_read_data_block libarchive.archive_read_data_block
#define archive_read_data_skip libarchive.archive_read_data_skip
#define archive_read_free libarchive.archive_read_free
#define archive_read_header_position libarchive.archive_read_header_position
#define archive_read_new libarchive.archive_read_new
#define archive_read_next_header libarchive.archive_read_next_header
#define archive_read_open libarchive.archive_read_open
#define archive_read_support_format_raw libarchive.archive_read_support_format_raw
#define archive_read_support_format_tar libarchive.archive_read_support_format_tar
#define archive_set_error libarchive.archive_set_error
#define archive_write_add_filter_gzip libarchive.archive_write_add_filter_gzip
#define archive_write_add_filter_none libarchive.archive_write_add_filter_none
#define archive_write_add_filter_zstd libarchive.archive_write_add_filter_zstd
#define archive_write_close libarchive.archive_write_close
#define archive_write_data libarchive.archive_write_data
#define archive_write_fail libarchive.archive_write_fail
#define archive_write_free libarchive.archive_write_free
#define archive_write_header libarchive.archive_write_header
#define archive_write_new libarchive.archive_write_new
#define archive_write_open libarchive.archive_write_open
#define archive_write_set_bytes_in_last_block libarchive.archive_write_set_bytes_in_last_block
#define archive_write_set_bytes_per_block libarchive.archive_write_set_bytes_per_block
#define archive_write_set_format_option libarchive.archive_write_set_format_option
#define archive_write_set_format_pax libarchive.archive_write_set_format_pax

#endif

#endif
