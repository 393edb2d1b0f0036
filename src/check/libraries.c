/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* The step "libraries": those that the driver loads when it needs them. */

#include "check/steps.h"
#include "net/connect.h"
#include "tree/archive.h"

static bool find(struct check_step *s, const char *key, int (*prepare)(struct error *err))
{
	struct error err = { .code = ERROR_OK };
	const bool is_there = prepare(&err) == 0;

	json_bool(&s->data, key, is_there);
	if (!is_there)
		(void)buf_printf(&s->text, "%s%s", s->text.len > 0 ? "; " : "", err.msg);
	return is_there;
}

void check_libraries(struct check *c, struct check_step *s)
{
	const bool archives = find(s, "archives", tree_archive_prepare);
	const bool ports = find(s, "reserved_ports", net_reserve_prepare);

	(void)c;
	if (archives && ports)
		check_say(s, CHECK_OK, "archives and reserved ports have what they need");
	else
		s->status = CHECK_WARNING;
}
