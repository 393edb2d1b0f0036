/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* Steps that query the server: resolve, nfs, rpcbind, exports. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mount_options.h"
#include "base/str.h"
#include "check/steps.h"

#define ADDRESSES_MIN 2 /* are tried, however long the first one is silent */
#define MOUNT_VERSION 3 /* RFC 1813, appendix I */
#define ADDRESS_TEXT 64
#define LISTED_TEXT_MAX 8 /* exports or clients listed in a text */

/* -------- resolve -------- */

void check_resolve(struct check *c, struct check_step *s)
{
	cleanup_buf struct buf all = { .data = NULL };
	struct error err = { .code = ERROR_OK };
	char text[ADDRESS_TEXT];
	size_t i;
	int r;

	r = net_resolve(c->export.server, c->addresses, &c->n_addresses, &err);
	if (r < 0) {
		c->n_addresses = 0;
		check_say(s, CHECK_FAILED, "%s", err.msg);
		check_hint(s,
			   "check the spelling and the name service where csi-nfs runs (/etc/resolv.conf; in a pod its dnsPolicy), or use an address");
		return;
	}
	json_open(&s->data, "addresses", '[');
	for (i = 0; i < c->n_addresses; i++) {
		net_address_text(&c->addresses[i], text, sizeof(text));
		(void)buf_printf(&all, "%s%s", i > 0 ? ", " : "", text);
		json_string(&s->data, NULL, text);
	}
	json_close(&s->data, ']');
	check_say(s, CHECK_OK, "%s", buf_text(&all));
}

/* -------- nfs -------- */

static uint16_t nfs_port(const struct check *c)
{
	return c->export.port != 0 ? c->export.port : NET_NFS_PORT;
}

/* Answers of an address to a NULL call of each version. */
struct answers {
	int error; /* 0; -EPROTONOSUPPORT: serves neither version; another errno: no answer */
	bool serves[2]; /* versions 3 and 4 */
	uint64_t ns[2]; /* time to the answer */
	uint32_t low, high; /* versions that it serves instead */
};

/* Return whether an error makes it useless to try another version. */
static bool is_unreachable(int error)
{
	return error != 0 && error != -EPROTONOSUPPORT && error != -EPROTO &&
	       error != -ECONNRESET && error != -EACCES;
}

static void ping_versions(const struct net_address *a, uint16_t port, struct answers *ret)
{
	uint32_t i;
	int r;

	*ret = (struct answers){ .error = 0 };
	for (i = 0; i < ARRAY_SIZE(ret->serves); i++) {
		r = net_ping_timed(a, port, NET_NFS_PROGRAM, 3 + i, &ret->low, &ret->high,
				   &ret->ns[i]);
		ret->serves[i] = r == 0;
		if (i == 0 || r == -EPROTONOSUPPORT)
			ret->error = r;
		if (is_unreachable(r))
			break;
	}
	if (ret->serves[0] || ret->serves[1])
		ret->error = 0;
}

static const char *reach_text(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return "no answer";
	case -EPROTO:
		return "an RPC service, but not NFS";
	default:
		return strerror(-error);
	}
}

static void hint_unreachable(const struct check *c, struct check_step *s, int error)
{
	unsigned int port = nfs_port(c);

	switch (error) {
	case -ETIMEDOUT:
		check_hint(s,
			   "check that the server runs, and that firewalls on the way pass TCP port %u",
			   port);
		break;
	case -ECONNREFUSED:
		check_hint(s,
			   "nothing listens on TCP port %u: start the NFS server, or set its port by --mount-options port=",
			   port);
		break;
	case -EPROTO:
	case -ECONNRESET:
		check_hint(s,
			   "check that TCP port %u is the NFS server's; set another by --mount-options port=",
			   port);
		break;
	default:
		check_hint(s, "check routes and firewalls to TCP port %u", port);
		break;
	}
}

/* Addresses of the server that did not answer. */
struct silence {
	struct buf text;
	int first; /* errno of the first; 0: none */
	bool slow; /* one of them timed out */
};

/* Set c->address to the first address that answers. */
static void find_address(struct check *c, struct answers *answers, struct silence *silence)
{
	uint64_t deadline = clock_now_ns() + CHECK_STEP_MS * CLOCK_NS_PER_MS;
	char text[ADDRESS_TEXT];
	size_t i;

	for (i = 0; i < c->n_addresses && (i < ADDRESSES_MIN || clock_left_ms(deadline) > 0); i++) {
		ping_versions(&c->addresses[i], nfs_port(c), answers);
		if (answers->error == 0 || answers->error == -EPROTONOSUPPORT) {
			c->address = &c->addresses[i];
			return;
		}
		if (silence->first == 0)
			silence->first = answers->error;
		silence->slow = silence->slow || answers->error == -ETIMEDOUT;
		net_address_text(&c->addresses[i], text, sizeof(text));
		(void)buf_printf(&silence->text, "%s%s: %s", i > 0 ? "; " : "", text,
				 reach_text(answers->error));
	}
}

static void add_version(struct buf *list, struct check_step *s, const char *version)
{
	(void)buf_printf(list, "%s%s", list->len > 0 ? ", " : "", version);
	json_string(&s->data, NULL, version);
}

static const char *const minor_names[NFS_MINORS] = { "4.0", "4.1", "4.2" };

/* Write "3, 4.0, 4.1" to list, and the versions to the data. */
static void list_versions(const struct check *c, const struct answers *answers,
			  struct check_step *s, struct buf *list)
{
	size_t i;

	json_open(&s->data, "versions", '[');
	if (c->serves_3)
		add_version(list, s, "3");
	for (i = 0; i < NFS_MINORS; i++)
		if (c->minors[i])
			add_version(list, s, minor_names[i]);
	if (c->serves_4 && !c->minors_known)
		add_version(list, s, "4");
	json_close(&s->data, ']');
	json_open(&s->data, "answer_us", '{');
	if (c->serves_3)
		json_number(&s->data, "3", answers->ns[0] / 1000);
	if (c->serves_4)
		json_number(&s->data, "4", answers->ns[1] / 1000);
	json_close(&s->data, '}');
}

/* Return the minor version in the mount options; -1: none. */
static int wanted_minor(const struct check *c)
{
	cleanup_mount_options struct mount_options o = { .minor = -1 };

	/* Cannot be invalid: the command line was checked. */
	if (mount_options_parse(&o, c->options.mount_options, NULL) < 0)
		return -1;
	return o.minor;
}

static void judge_versions(const struct check *c, struct check_step *s)
{
	const int minor = wanted_minor(c);
	const char *wanted = NULL;

	if (!c->serves_3 && !check_has_v4(c)) {
		s->status = CHECK_FAILED;
		(void)buf_puts(&s->text, "; the controller needs 4.0, 4.1, 4.2 or 3");
		check_hint(s, "enable one of them on the server");
		return;
	}
	if (c->export.version == 3 && !c->serves_3)
		wanted = "3";
	else if (c->export.version == 4 && !check_has_v4(c))
		wanted = "4";
	else if (minor >= 0 && c->minors_known && !c->minors[minor])
		wanted = minor_names[minor];
	if (wanted == NULL)
		return;
	s->status = CHECK_FAILED;
	(void)buf_printf(&s->text, "; the mount options need %s", wanted);
	check_hint(s, "enable that version on the server, or change vers= in the mount options");
}

/* Warn about a slow address only: others, such as IPv6 without a route, fail at once. */
static void note_silence(struct check_step *s, const struct silence *silence)
{
	if (silence->text.len == 0)
		return;
	(void)buf_printf(&s->text, "; not %s", silence->text.data);
	if (!silence->slow || s->status != CHECK_OK)
		return;
	s->status = CHECK_WARNING;
	check_hint(s,
		   "each connection tries the addresses of the name in this order and waits for each: remove those that do not answer");
}

static void reach_server(struct check *c, struct check_step *s, struct silence *silence,
			 struct buf *list)
{
	char text[ADDRESS_TEXT];
	struct answers answers;

	find_address(c, &answers, silence);
	if (c->address == NULL) {
		check_say(s, CHECK_FAILED, "port %u of %s", nfs_port(c),
			  silence->text.data != NULL ? silence->text.data : "no address");
		hint_unreachable(c, s, silence->first);
		return;
	}
	c->serves_3 = answers.serves[0];
	c->serves_4 = answers.serves[1];
	c->minors_known = c->serves_4 &&
			  nfs_survey_minors(c->address, nfs_port(c), &c->export, c->minors) == 0;
	net_address_text(c->address, text, sizeof(text));
	net_source_text(c->address, c->source, sizeof(c->source));
	json_string(&s->data, "address", text);
	json_string(&s->data, "source", c->source);
	list_versions(c, &answers, s, list);
	if (list->len > 0)
		check_say(s, CHECK_OK, "%s port %u serves NFS versions %s; answers in %.2f ms",
			  text, nfs_port(c), list->data,
			  (double)answers.ns[c->serves_3 ? 0 : 1] / (double)CLOCK_NS_PER_MS);
	else
		check_say(s, CHECK_OK, "%s port %u serves NFS versions %" PRIu32 " to %" PRIu32,
			  text, nfs_port(c), answers.low, answers.high);
	judge_versions(c, s);
	note_silence(s, silence);
}

void check_reach(struct check *c, struct check_step *s)
{
	struct silence silence = { .first = 0 };
	struct buf list = { .data = NULL };

	json_number(&s->data, "port", nfs_port(c));
	reach_server(c, s, &silence, &list);
	buf_done(&silence.text);
	buf_done(&list);
}

/* -------- rpcbind -------- */

/* Only version 3 needs the mount service: fail if 3 must be used, warn if it can be. */
static enum check_status no_mount_service_status(const struct check *c)
{
	if (c->export.version == 3 || !check_has_v4(c))
		return CHECK_FAILED;
	return c->export.version == 4 || !c->serves_3 ? CHECK_SKIPPED : CHECK_WARNING;
}

static void hint_mount_service(struct check_step *s)
{
	if (s->status == CHECK_SKIPPED) {
		(void)buf_puts(&s->text, ", which is not used here");
		return;
	}
	check_hint(s,
		   "for NFSv3, run rpcbind (port 111) and the mount service (rpc.mountd), and let firewalls pass both; mountport= in the mount options makes rpcbind unnecessary. NFSv4 needs neither");
}

static const char *portmap_text(int error)
{
	switch (error) {
	case -ENOENT:
		return "has no mount service for version 3";
	case -ETIMEDOUT:
		return "does not answer";
	default:
		return strerror(-error);
	}
}

void check_rpcbind(struct check *c, struct check_step *s)
{
	uint16_t port = c->export.mount_port;
	uint32_t low, high;
	int r = 0;

	if (port == 0)
		r = net_portmap(c->address, NET_MOUNT_PROGRAM, MOUNT_VERSION, &port);
	if (r < 0) {
		check_say(s, no_mount_service_status(c), "rpcbind, port 111: %s; NFSv3 needs it",
			  portmap_text(r));
		hint_mount_service(s);
		return;
	}
	json_number(&s->data, "mount_port", port);
	json_bool(&s->data, "from_rpcbind", c->export.mount_port == 0);
	r = net_ping(c->address, port, NET_MOUNT_PROGRAM, MOUNT_VERSION, &low, &high);
	if (r < 0) {
		check_say(s, no_mount_service_status(c),
			  "mount service, port %u: %s; NFSv3 needs it", port,
			  r == -EPROTO ? "something else answers" : reach_text(r));
		hint_mount_service(s);
		return;
	}
	c->mount_port = port;
	check_say(s, CHECK_OK, "the mount service for NFSv3 answers on port %u, which %s", port,
		  c->export.mount_port == 0 ? "rpcbind reports" : "the mount options set");
}

/* -------- exports -------- */

/* Return whether share is path or below it. */
static bool path_covers(const char *path, const char *share)
{
	size_t len = strlen(path);

	while (len > 0 && path[len - 1] == '/')
		len--;
	return strncmp(path, share, len) == 0 && (share[len] == '\0' || share[len] == '/');
}

/* Return the listed export that contains the share: the one with the longest path. */
static const struct nfs_listed *find_listed(const struct nfs_listing *l, const char *share)
{
	const struct nfs_listed *best = NULL;
	size_t i;

	for (i = 0; i < l->n; i++)
		if (path_covers(l->items[i].path, share) &&
		    (best == NULL || strlen(l->items[i].path) > strlen(best->path)))
			best = &l->items[i];
	return best;
}

static void add_found(struct buf *list, size_t i, size_t n, const char *name)
{
	if (i < LISTED_TEXT_MAX)
		(void)buf_printf(list, "%s%s", i > 0 ? ", " : "", name);
	else if (i == LISTED_TEXT_MAX)
		(void)buf_printf(list, " and %zu more", n - i);
}

static void put_listing(struct check_step *s, const struct nfs_listing *l)
{
	size_t i, k;

	json_open(&s->data, "exports", '[');
	for (i = 0; i < l->n; i++) {
		json_open(&s->data, NULL, '{');
		json_string(&s->data, "path", l->items[i].path);
		json_open(&s->data, "clients", '[');
		for (k = 0; k < l->items[i].clients.n; k++)
			json_string(&s->data, NULL, l->items[i].clients.items[k]);
		json_close(&s->data, ']');
		json_close(&s->data, '}');
	}
	json_close(&s->data, ']');
}

static void say_listed(struct check_step *s, const struct nfs_listed *found, const char *share)
{
	cleanup_buf struct buf list = { .data = NULL };
	size_t i;

	for (i = 0; i < found->clients.n; i++)
		add_found(&list, i, found->clients.n, found->clients.items[i]);
	if (strcmp(found->path, share) == 0)
		check_say(s, CHECK_OK, "'%s' is exported, to %s", share,
			  list.data != NULL ? list.data : "everybody");
	else
		check_say(s, CHECK_OK, "'%s' lies in '%s', which is exported to %s", share,
			  found->path, list.data != NULL ? list.data : "everybody");
}

static void say_not_listed(struct check_step *s, const struct nfs_listing *l, const char *share)
{
	cleanup_buf struct buf list = { .data = NULL };
	size_t i;

	for (i = 0; i < l->n; i++)
		add_found(&list, i, l->n + l->more, l->items[i].path);
	check_say(s, CHECK_WARNING, "'%s' is not in the list of exports: %s", share,
		  list.data != NULL ? list.data : "it is empty");
	check_hint(s,
		   "for NFSv3, export it, or spell it as in the list; NFSv4 paths start at the server's pseudo root and may differ from the list");
}

void check_exports(struct check *c, struct check_step *s)
{
	cleanup_nfs_listing struct nfs_listing listing = { .n = 0 };
	const struct nfs_listed *found;
	int r;

	if (c->mount_port == 0) {
		check_say(s, CHECK_SKIPPED, "there is no mount service to list them");
		return;
	}
	r = nfs_survey_exports(c->address, c->mount_port, &c->export, &listing);
	if (r < 0) {
		check_say(s, CHECK_WARNING, "the server does not list its exports: %s",
			  reach_text(r));
		check_hint(s, "ignore this if the next step succeeds");
		return;
	}
	put_listing(s, &listing);
	found = find_listed(&listing, c->export.share);
	json_bool(&s->data, "listed", found != NULL);
	if (found != NULL)
		say_listed(s, found, c->export.share);
	else
		say_not_listed(s, &listing, c->export.share);
}
