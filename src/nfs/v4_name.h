/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The name by which a version 4 server knows a client. */
#ifndef NFS_V4_NAME_H
#define NFS_V4_NAME_H

#define V4_NAME_MAX 192

/*
 * Make a name that no other connection has. Two clients of one name would end each other's open
 * files or sessions. Any thread.
 */
void v4_name_client(char ret[V4_NAME_MAX]);

#endif
