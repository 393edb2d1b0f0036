/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * The steps of "csi-nfs check": their shared state and how a step reports. Texts and hints are for
 * people; data is a JSON object that stays open while its step runs.
 */
#ifndef CHECK_STEPS_H
#define CHECK_STEPS_H

#include "base/buf.h"
#include "base/json.h"
#include "check/options.h"
#include "net/ping.h"
#include "nfs/client.h"
#include "nfs/survey.h"

/* A step tries no more addresses after this time. */
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
	struct buf text; /* result */
	struct buf hint; /* how to fix it */
	struct json data;
};

/* State that earlier steps leave for later ones. */
struct check {
	struct check_options options;
	struct nfs_export export;
	struct net_address addresses[NET_ADDRESSES_MAX];
	size_t n_addresses;
	const struct net_address *address; /* the first that answers; NULL: none */
	char source[64]; /* our address on connections to it */
	bool serves_3, serves_4;
	bool minors_known; /* the server reports its minor versions */
	bool minors[NFS_MINORS]; /* of version 4 */
	uint16_t mount_port; /* of a mount service that answers; 0: none */
	bool reserved_port; /* this process may bind a port below 1024 */
	struct nfs_client *client; /* NULL: the export was not reached */
};

/* The steps in the order in which they run. None blocks forever. */
void check_libraries(struct check *c, struct check_step *s);
void check_resolve(struct check *c, struct check_step *s);
void check_reach(struct check *c, struct check_step *s);
void check_rpcbind(struct check *c, struct check_step *s);
void check_exports(struct check *c, struct check_step *s);
void check_connect(struct check *c, struct check_step *s);
void check_capacity(struct check *c, struct check_step *s);
void check_directory(struct check *c, struct check_step *s);
void check_port(struct check *c, struct check_step *s);
void check_versions(struct check *c, struct check_step *s);
void check_mount(struct check *c, struct check_step *s);

/* Return whether the controller can use version 4 with the server, as far as known. */
static inline bool check_has_v4(const struct check *c)
{
	return c->serves_4 && (c->minors[0] || c->minors[1] || c->minors[2] || !c->minors_known);
}

/* Set the status and the text. */
void check_say(struct check_step *s, enum check_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Set the hint. */
void check_hint(struct check_step *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -------- errors of calls on an export, export.c -------- */

/* Return r, the result of a call on client; -ETIMEDOUT or -ECONNABORTED if the connection broke. */
int check_result(const struct nfs_client *client, int r);

bool check_is_refused(int error);

/* Return the text for an errno, in static storage or strerror()'s. */
const char *check_reason(int error);

/* Set the hint for an export that accepts the connection but refuses calls. */
void check_hint_refused(const struct check *c, struct check_step *s);

/* -------- the report, report.c -------- */

struct check_report {
	bool json, color;
	unsigned int counts[CHECK_SKIPPED + 1]; /* number of steps for each status */
	struct json out; /* with --format json */
};

void check_report_begin(struct check_report *r, const struct check *c);

/* Print a step, or add it to the JSON object. */
void check_report_step(struct check_report *r, struct check_step *s);

/* Print the summary or the JSON object. Return 0, or a negative errno if writing failed. */
int check_report_end(struct check_report *r);

/* Format a size as "1.5 GiB". */
void check_bytes_text(uint64_t bytes, char *text, size_t size);

/*
 * Copy text, with '?' in place of control characters, which could drive the terminal. Return the
 * copy for the caller to free, or NULL if out of memory.
 */
char *check_plain(const char *text);

#endif
