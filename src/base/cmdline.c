/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "base/cmdline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

int cmdline_parse_bool(const char *value, void *field)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = { { "", true },   { "1", true },  { "t", true },     { "true", true },
		      { "0", false }, { "f", false }, { "false", false } };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(words); i++) {
		if (str_eq_nocase(value, words[i].word)) {
			*(bool *)field = words[i].value;
			return 0;
		}
	}
	return -EINVAL;
}

static int set_field(const struct cmdline_opt *o, void *field, const char *value, struct error *err)
{
	uint64_t number;
	int r = 0;

	switch (o->kind) {
	case CMDLINE_OPTIONAL:
		if (value[0] == '\0')
			return 0;
		__attribute__((fallthrough));
	case CMDLINE_TEXT:
		if (o->check != NULL)
			r = o->check(value, err);
		if (r == 0)
			*(const char **)field = value;
		return r;
	case CMDLINE_NUMBER:
		if (str_parse_u64(value, 10, o->max, &number) < 0 || number < o->min)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "must be a number from %u to %u, not '%s'", o->min, o->max,
					 value);
		*(uint32_t *)field = (uint32_t)number;
		return 0;
	case CMDLINE_BOOL:
		if (cmdline_parse_bool(value, field) < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT,
					 "must be true or false, not '%s'", value);
		return 0;
	case CMDLINE_WORD:
		if (o->parse(value, field) < 0)
			return error_set(err, ERROR_INVALID_ARGUMENT, "must be %s, not '%s'",
					 o->expects, value);
		return 0;
	case CMDLINE_IGNORED:
	case CMDLINE_END:
		break;
	}
	return 0;
}

static int set_opt(const struct cmdline_opt *o, void *fields, const char *value, struct error *err)
{
	int r = set_field(o, (char *)fields + o->field, value, err);

	if (r < 0)
		error_prefix(err, "--%s", o->name);
	return r;
}

static int set_from_environment(const struct cmdline *c, void *fields, struct error *err)
{
	size_t i;
	int r;

	for (i = 0; i < c->n; i++) {
		const struct cmdline_opt *o = &c->options[i];
		const char *value = o->variable != NULL ? getenv(o->variable) : NULL;

		if (str_is_empty(value))
			continue;
		r = set_opt(o, fields, value, err);
		if (r < 0) {
			error_prefix(err, "environment variable %s", o->variable);
			return r;
		}
	}
	return 0;
}

/* '_' matches '-': klog has both spellings of its options in use. */
static bool option_has_name(const struct cmdline_opt *o, const char *name, size_t len)
{
	size_t i;

	if (len != strlen(o->name))
		return len == 1 && name[0] == 'h' && strcmp(o->name, "help") == 0;
	for (i = 0; i < len; i++)
		if (name[i] != o->name[i] && !(name[i] == '_' && o->name[i] == '-'))
			return false;
	return true;
}

static const struct cmdline_opt *find_option(const struct cmdline *c, const char *name, size_t len)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (option_has_name(&c->options[i], name, len))
			return &c->options[i];
	return NULL;
}

int cmdline_parse(const struct cmdline *c, void *fields, int argc, char **argv,
		  const struct cmdline_opt **ret_end, struct error *err)
{
	int r, i;

	*ret_end = NULL;
	r = set_from_environment(c, fields, err);
	for (i = 1; r == 0 && i < argc; i++) {
		const char *word = argv[i], *name, *value = "";
		const struct cmdline_opt *o;
		size_t len;

		if (word[0] != '-' || word[1] == '\0')
			return error_set(err, ERROR_INVALID_ARGUMENT, "unexpected argument '%s'",
					 word);
		name = word + (word[1] == '-' ? 2 : 1);
		len = strcspn(name, "=");
		o = find_option(c, name, len);
		if (o == NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT, "unknown option '%.*s'",
					 (int)(len + (size_t)(name - word)), word);
		if (o->kind == CMDLINE_END) {
			*ret_end = o;
			return 0;
		}
		if (name[len] == '=')
			value = name + len + 1;
		else if (o->argument != NULL && i + 1 < argc)
			value = argv[++i];
		else if (o->argument != NULL)
			return error_set(err, ERROR_INVALID_ARGUMENT, "--%s: needs a value",
					 o->name);
		r = set_opt(o, fields, value, err);
	}
	return r;
}

int cmdline_print_help(const struct cmdline *c)
{
	bool ignored = false;
	char left[64];
	size_t i;

	printf("%s\n", c->intro);
	for (i = 0; i < c->n; i++) {
		const struct cmdline_opt *o = &c->options[i];

		(void)snprintf(left, sizeof(left), "--%s%s%s", o->name,
			       o->argument != NULL ? "=" : "",
			       o->argument != NULL ? o->argument : "");
		if (o->help == NULL && !ignored)
			printf("\nAccepted for csi-driver-nfs, and ignored:\n");
		ignored = o->help == NULL;
		if (ignored)
			printf("  %s\n", left);
		else
			printf("  %-*s %s\n", c->width, left, o->help);
	}
	printf("\n%s", c->outro);
	return fflush(stdout) == 0 ? 0 : -errno;
}
