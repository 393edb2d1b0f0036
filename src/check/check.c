/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "check/check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/str.h"
#include "check/steps.h"

#define EXIT_USAGE 2

/* Prerequisites of a step; each includes those above it. */
enum need {
	NEED_NOTHING,
	NEED_ADDRESS,
	NEED_SERVER, /* that answers */
	NEED_CLIENT, /* connected to the export */
};

static const struct {
	const char *name;
	void (*run)(struct check *c, struct check_step *s);
	enum need need;
	bool guarded; /* blocks signals, since an interruption would leave something behind */
} steps[] = {
	{ "libraries", check_libraries, NEED_NOTHING, false },
	{ "resolve", check_resolve, NEED_NOTHING, false },
	{ "nfs", check_reach, NEED_ADDRESS, false },
	{ "rpcbind", check_rpcbind, NEED_SERVER, false },
	{ "exports", check_exports, NEED_SERVER, false },
	{ "connect", check_connect, NEED_SERVER, false },
	{ "capacity", check_capacity, NEED_CLIENT, false },
	{ "directory", check_directory, NEED_CLIENT, true },
	{ "port", check_port, NEED_CLIENT, false },
	{ "versions", check_versions, NEED_CLIENT, false },
	{ "mount", check_mount, NEED_SERVER, true },
};

/* Return why a step cannot run, or NULL. */
static const char *missing_need(const struct check *c, enum need need)
{
	if (need >= NEED_ADDRESS && c->n_addresses == 0)
		return "the server has no address";
	if (need >= NEED_SERVER && c->address == NULL)
		return "the server does not answer";
	if (need >= NEED_CLIENT && c->client == NULL)
		return "the export was not reached";
	if (need >= NEED_CLIENT && c->client->broken)
		return "the server stopped answering";
	return NULL;
}

/* Block or unblock the signals that usually end a process. */
static void mask_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGQUIT);
	sigaddset(&set, SIGTERM);
	(void)pthread_sigmask(how, &set, NULL); /* fails only for an invalid how */
}

static void run_step(struct check *c, size_t i, struct check_report *report)
{
	struct check_step s = { .name = steps[i].name };
	const char *missing = missing_need(c, steps[i].need);

	json_open(&s.data, NULL, '{');
	if (steps[i].guarded)
		mask_signals(SIG_BLOCK);
	if (missing != NULL)
		check_say(&s, CHECK_SKIPPED, "%s", missing);
	else
		steps[i].run(c, &s);
	check_report_step(report, &s);
	if (steps[i].guarded)
		mask_signals(SIG_UNBLOCK);
	buf_done(&s.text);
	buf_done(&s.hint);
	json_done(&s.data);
}

static int init_export(struct check *c, struct error *err)
{
	int r;

	r = nfs_export_init(&c->export, c->options.server, c->options.share, err);
	if (r < 0)
		return r;
	if (c->options.uid != CHECK_NO_ID)
		c->export.uid = c->options.uid;
	if (c->options.gid != CHECK_NO_ID)
		c->export.gid = c->options.gid;
	return nfs_export_apply_options(&c->export, c->options.mount_options, err);
}

static int run_steps(struct check *c, struct error *err)
{
	struct check_report report;
	size_t i;
	int r;

	r = init_export(c, err);
	if (r < 0)
		return r;
	check_report_begin(&report, c);
	for (i = 0; i < ARRAY_SIZE(steps); i++)
		run_step(c, i, &report);
	r = check_report_end(&report);
	if (r < 0)
		return error_sys(err, ERROR_INTERNAL, -r, "cannot write the report");
	return report.counts[CHECK_FAILED] == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int check_main(int argc, char **argv)
{
	struct error err = { .code = ERROR_OK };
	struct check c = { .n_addresses = 0 };
	int r;

	if (check_options_parse(&c.options, argc, argv, &err) < 0) {
		fprintf(stderr, "csi-nfs check: %s; see csi-nfs check --help\n", err.msg);
		return EXIT_USAGE;
	}
	if (c.options.help)
		return check_options_print_help() < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	(void)signal(SIGPIPE, SIG_IGN); /* servers may close connections */
	r = run_steps(&c, &err);
	nfs_client_free(c.client);
	nfs_export_done(&c.export);
	if (r < 0) {
		fprintf(stderr, "csi-nfs check: %s\n", err.msg);
		return EXIT_FAILURE;
	}
	return r;
}
