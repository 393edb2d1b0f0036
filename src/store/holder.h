/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Who writes on a share: an id of this process, for notes that other replicas read. It is random, and
 * kept in a file beside the socket, which the process locks for as long as it lives: one that gets the
 * lock knows that the process before it is dead, takes its id over, and with it what it left on shares.
 * Any thread.
 */
#ifndef STORE_HOLDER_H
#define STORE_HOLDER_H

#include <stdbool.h>

#define STORE_HOLDER_LEN 16 /* hexadecimal digits */

/*
 * Takes the id from the file "<path>.holder", or puts a new one there. Where that does not work, or
 * another process holds the file, the id is a new one, of this process alone. Once, before any thread.
 */
void store_holder_init(const char *path);

/* The id. Without store_holder_init() a random one. */
const char *store_holder(void);

#define STORE_HOLDER_TAG_MAX 40

/* Something of ours on shares, told from all else: "<id>.<number>", of STORE_HOLDER_TAG_MAX bytes. */
void store_holder_tag(char ret[STORE_HOLDER_TAG_MAX]);

/* Whether a tag begins with our id: it is of this process, or of the one before it, which is dead. */
bool store_holder_is_own(const char *tag);

/*
 * Whether what another replica left under that name, on a share of that server, has been seen there for
 * the time of our patience, by our own clock: who is alive changes the names of its things more often.
 * The first call for a name begins the time.
 */
#define STORE_HOLDER_PATIENCE_S 30
bool store_holder_is_dead(const char *server, const char *share, const char *name);

/* Sets the patience, instead of STORE_HOLDER_PATIENCE_S. Before any thread. */
void store_holder_set_patience(unsigned int seconds);

#endif
