/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* A step that connects to the export over each version that the server has. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "check/steps.h"

/* A version to try. */
struct check_version {
	unsigned int version, minor;
	const char *name;
};

static const struct check_version all[] = {
	{ 3, 0, "3" },
	{ 4, 0, "4.0" },
	{ 4, 1, "4.1" },
	{ 4, 2, "4.2" },
};

static bool is_served(const struct check *c, const struct check_version *v)
{
	if (v->version == 3)
		return c->serves_3 && c->mount_port != 0;
	return c->serves_4 && c->minors_known && c->minors[v->minor];
}

static void put_session(struct check_step *s, struct buf *reached, const struct nfs_session *limits)
{
	char request[32], reply[32];

	json_number(&s->data, "slots", limits->slots);
	json_number(&s->data, "operations", limits->operations);
	json_number(&s->data, "request_bytes", limits->request_max);
	json_number(&s->data, "reply_bytes", limits->reply_max);
	check_bytes_text(limits->request_max, request, sizeof(request));
	check_bytes_text(limits->reply_max, reply, sizeof(reply));
	(void)buf_printf(reached,
			 " (%" PRIu32 " slots, %" PRIu32
			 " operations, requests of %s, replies of %s)",
			 limits->slots, limits->operations, request, reply);
}

static void add_version_name(struct buf *list, const char *name)
{
	(void)buf_printf(list, "%s%s", list->len > 0 ? ", " : "", name);
}

static void try_version(const struct check *c, struct check_step *s, const struct check_version *v,
			struct buf *reached, struct buf *missed)
{
	cleanup_nfs_client struct nfs_client *client = NULL;
	struct nfs_export e = c->client->export; /* borrows its strings */
	struct error err = { .code = ERROR_OK };
	int r;

	e.server = c->client->address; /* others of the name may be silent */
	e.version = v->version;
	e.has_minor = v->version == 4;
	e.minor = v->minor;
	e.mount_port = c->mount_port;
	r = nfs_client_connect(&client, &e, &err);
	json_open(&s->data, v->name, '{');
	json_bool(&s->data, "reached", r == 0);
	if (r == 0) {
		add_version_name(reached, v->name);
		if (client->session.slots > 0)
			put_session(s, reached, &client->session);
	} else {
		add_version_name(missed, v->name);
		json_string(&s->data, "error", err.msg);
	}
	json_close(&s->data, '}');
	/* The server says that it has the version: its sessions have no room. */
	if (r == -EPROTONOSUPPORT && v->version == 4) {
		s->status = CHECK_WARNING;
		check_hint(s, "%s", err.msg);
	}
}

void check_versions(struct check *c, struct check_step *s)
{
	cleanup_buf struct buf reached = { .data = NULL }, missed = { .data = NULL };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++)
		if (is_served(c, &all[i]))
			try_version(c, s, &all[i], &reached, &missed);
	check_say(s, s->status, "over %s",
		  reached.data != NULL ? reached.data : "no other version");
	if (missed.len > 0)
		(void)buf_printf(&s->text, "; not over %s", missed.data);
}
