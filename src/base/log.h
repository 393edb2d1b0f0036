/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/*
 * Log one line per event to standard error, as key=value text or JSON. Only main.c, grpc/, csi/,
 * node/, store/ and tree/ log above debug; other rooms return an error instead. Messages start with
 * a capital and have no final period. Pass foreign strings as fields, which are quoted and escaped.
 * Any thread; a line is a single write(), up to PIPE_BUF bytes. If nobody reads the log, lines are
 * lost after a second, and counted: calls do not wait for it.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_MAX 8192 /* bytes, with the newline; what does not fit is cut */

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
	const char *key;
	const char *str; /* NULL: use num */
	int64_t num;
};

#define LOG_STR(k, v) ((struct log_field){ .key = (k), .str = (v) != NULL ? (v) : "" })
#define LOG_NUM(k, v) ((struct log_field){ .key = (k), .num = (int64_t)(v) })

/* Set level and format. Call before threads start. */
void log_init(enum log_level level, enum log_format format);

/* Parse "error", "warn", "info" or "debug"; "text" or "json". Return 0 or -EINVAL. */
int log_level_parse(const char *s, enum log_level *ret);
int log_format_parse(const char *s, enum log_format *ret);

bool log_is_enabled(enum log_level level);
void log_write(enum log_level level, const char *msg, const struct log_field *fields, size_t n);

/* log_info("Listening", LOG_STR("endpoint", path)). Evaluates fields only if enabled. */
#define log_at(level, msg, ...)                                                                    \
	do {                                                                                       \
		if (log_is_enabled(level)) {                                                       \
			const struct log_field log_fields[] = { { .key = NULL }, ##__VA_ARGS__ };  \
			log_write(level, msg, log_fields + 1,                                      \
				  sizeof(log_fields) / sizeof(log_fields[0]) - 1);                 \
		}                                                                                  \
	} while (0)
#define log_error(msg, ...) log_at(LOG_LEVEL_ERROR, msg, ##__VA_ARGS__)
#define log_warn(msg, ...) log_at(LOG_LEVEL_WARN, msg, ##__VA_ARGS__)
#define log_info(msg, ...) log_at(LOG_LEVEL_INFO, msg, ##__VA_ARGS__)
#define log_debug(msg, ...) log_at(LOG_LEVEL_DEBUG, msg, ##__VA_ARGS__)

#endif
