/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/call.h"

#include <errno.h>
#include <string.h>

int mount_call(struct mount_caller *caller, enum mount_operation operation,
	       const struct mount_request *request, unsigned int ms, struct mount_answer *answer)
{
	cleanup_free struct mount_frame *frame = NULL;
	struct mount_process process = {
		.path = caller->helper,
		.argument = MOUNT_HELPER_COMMAND,
		.request_len = sizeof(*frame),
		.reply = &answer->reply,
		.reply_len = sizeof(answer->reply),
	};
	int r;

	answer->log[0] = '\0';
	r = mount_frame_new(&frame, operation, request);
	if (r < 0)
		return r;
	process.request = frame;
	r = mount_process_run(&caller->reaper, &process, ms);
	memcpy(answer->log, process.log, sizeof(answer->log));
	return r < 0 ? r : mount_reply_check(&answer->reply);
}

int mount_call_error(const char *what, int r, const struct mount_answer *answer, struct error *err)
{
	const int len = (int)strcspn(answer->log, "\n");

	switch (r) {
	case -ETIMEDOUT:
		return error_set(err, ERROR_DEADLINE_EXCEEDED,
				 "%s took too long and was given up; the server may have stopped answering",
				 what);
	case -EAGAIN:
		return error_set(err, ERROR_UNAVAILABLE,
				 "%s: too many helper processes hang on dead servers", what);
	case -EPROTO:
		return error_set(err, ERROR_ABORTED, "%s: the helper process died%s%.*s; try again",
				 what, len > 0 ? ": " : "", len, answer->log);
	case -ENAMETOOLONG:
		return error_sys(err, ERROR_INVALID_ARGUMENT, -r, "%s", what);
	default:
		return error_sys(err, ERROR_ABORTED, -r, "%s: cannot run a helper process", what);
	}
}
