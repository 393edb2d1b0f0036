/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The id of this process, for notes on shares that other replicas read. It is random and kept in a
 * file beside the socket, which the process locks for life: a process that gets the lock knows that
 * the one before it is dead, and takes over its id and what it left on shares. The file also
 * tells when the machine was booted, so that copies of a machine do not share an id. Any thread.
 */
#ifndef STORE_HOLDER_H
#define STORE_HOLDER_H

#include <stdbool.h>

#define STORE_HOLDER_LEN 16 /* hexadecimal digits */

/*
 * Read the id from the file "<path>.holder", or write a new one there. If that fails, or another
 * process holds the file, use a new id for this process alone. Call once, before there are threads.
 */
void store_holder_init(const char *path);

/* Return the id; a random one without store_holder_init(). */
const char *store_holder(void);

#define STORE_HOLDER_TAG_MAX 40

/* Format a tag that is unique on all shares: "<id>.<number>". */
void store_holder_tag(char ret[STORE_HOLDER_TAG_MAX]);

/* Whether a tag has our id: it belongs to this process, or to the one before it, which is dead. */
bool store_holder_is_own(const char *tag);

#define STORE_HOLDER_PATIENCE_S 30

/*
 * Whether the replica that wrote a note or draft of that name counts as dead: the name has been on
 * the share for as long as our patience (--replica-timeout), by our own clock. A live replica
 * changes the name sooner. The first call for a name starts the clock.
 */
bool store_holder_is_dead(const char *server, const char *share, const char *name);

/* Set the patience, instead of STORE_HOLDER_PATIENCE_S. Call before there are threads. */
void store_holder_set_patience(unsigned int seconds);

/* Return the patience. A live replica renews what it leaves on a share three times within it. */
unsigned int store_holder_patience_s(void);

#endif
