/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Inside of "csi-nfs check": what the steps share, and how a step says what it found. Texts and
 * hints are for people; data is a JSON object that is open while its step runs.
 */
#ifndef CHECK_STEPS_H
#define CHECK_STEPS_H

#include "base/buf.h"
#include "base/json.h"
#include "check/options.h"
#include "net/ping.h"
#include "nfs/client.h"
#include "nfs/survey.h"

/* No further address is tried once a step has taken this long. */
#define CHECK_STEP_MS 5000

enum check_status {
	CHECK_OK,
	CHECK_FAILED,
	CHECK_WARNING,
	CHECK_SKIPPED,
};

struct check_step {
	const char *name;
	enum check_status status;
	struct buf text; /* what was found */
	struct buf hint; /* what to do */
	struct json data;
};

/* What later steps need of earlier ones. */
struct check {
	struct check_options options;
	struct nfs_export export;
	struct net_address addresses[NET_ADDRESSES_MAX];
	size_t n_addresses;
	const struct net_address *address; /* the first that answers; NULL: none */
	char source[64]; /* our address towards it */
	bool serves_3, serves_4;
	bool minors_known; /* the server tells which it has */
	bool minors[NFS_MINORS]; /* of version 4 */
	uint16_t mount_port; /* of a mount service that answers; 0: there is none */
	bool reserved_port; /* whether this process may have one */
	struct nfs_client *client; /* NULL: the export was not reached */
};

/* In the order in which they run. None blocks for ever. */
void check_resolve(struct check *c, struct check_step *s);
void check_reach(struct check *c, struct check_step *s);
void check_rpcbind(struct check *c, struct check_step *s);
void check_exports(struct check *c, struct check_step *s);
void check_connect(struct check *c, struct check_step *s);
void check_capacity(struct check *c, struct check_step *s);
void check_directory(struct check *c, struct check_step *s);
void check_port(struct check *c, struct check_step *s);
void check_mount(struct check *c, struct check_step *s);

/* Whether the controller may speak version 4 to the server, as far as is known. */
static inline bool check_has_v4(const struct check *c)
{
	return c->serves_4 && (c->minors[0] || !c->minors_known);
}

/* Sets the status and the text. */
void check_say(struct check_step *s, enum check_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Sets the hint. */
void check_hint(struct check_step *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -------- errors of calls on an export, export.c -------- */

/* The errno of a call on client that returned r. */
int check_result(const struct nfs_client *client, int r);

bool check_is_refused(int error);

/* Static storage, or strerror()'s. */
const char *check_reason(int error);

/* For an export that was attached to and refuses what is asked of it then. */
void check_hint_refused(const struct check *c, struct check_step *s);

/* -------- the report, report.c -------- */

struct check_report {
	bool json, colour;
	unsigned int counts[CHECK_SKIPPED + 1]; /* of steps, by status */
	struct json out; /* the object, with --format json */
};

void check_report_begin(struct check_report *r, const struct check *c);

/* Prints a step, or keeps it for the end. */
void check_report_step(struct check_report *r, struct check_step *s);

/* Returns 0, or a negative errno where the report could not be written. */
int check_report_end(struct check_report *r);

/* "1.5 GiB" */
void check_bytes_text(uint64_t bytes, char *text, size_t size);

/* A copy in which what could steer a terminal is '?'. The caller frees; NULL without memory. */
char *check_plain(const char *text);

#endif
