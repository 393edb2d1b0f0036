/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Short texts on the share, under a name that only one writer gets: records and notes are made of
 * them. A text is the target of a symbolic link. If the server refuses links (file systems
 * without them, servers that do not create them), it is a small file: the text, a newline, and a
 * checksum in 16 hexadecimal digits with another newline.
 *
 * The type of the entry tells which it is. Readers accept both, and creation is exclusive against
 * both, so replicas need not agree first: a writer tries a link, and writes a file only if the
 * server refuses a second link, in the trash, too, and lets the directory have files. RENAME and
 * REMOVE work on both.
 *
 * A link is complete from the start. A file is created, then written; without a valid checksum it
 * is unfinished. It takes the name all the same, because its writer may be about to write it. Once
 * it has not changed for the replicas' patience (store/holder.h), it counts as absent and is
 * removed. A writer that was only paused then gets ESTALE. If links can be made, such a file is
 * damaged instead, and stays.
 *
 * Worker threads; blocks. Errors are returned, not reported; -EINPROGRESS: the text is unfinished.
 */
#ifndef STORE_TEXT_H
#define STORE_TEXT_H

#include "nfs/client.h"

/* Write the text under a name that does not exist: -EEXIST if it does. */
int store_text_create(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		      const char *text);

/* Read a text. -ENOENT: there is none; -EINVAL: the entry is something else, or damaged. */
int store_text_read(struct nfs_client *c, const struct nfs_handle *dir, const char *name,
		    char text[NFS_LINK_MAX + 1]);

#endif
