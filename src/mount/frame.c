/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "mount/frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mode.h"

const char *mount_request_top(const struct mount_request *request)
{
	return request->top != NULL ? request->top : request->path;
}

/* The part of the path after the top. */
static const char *request_below(const struct mount_request *request)
{
	const char *below = request->path + strlen(mount_request_top(request));

	return below + strspn(below, "/");
}

/* Copy a string into a zeroed field. Takes NULL for "". */
static int frame_put(char *field, size_t size, const char *text)
{
	const size_t len = text != NULL ? strlen(text) : 0;

	if (len >= size)
		return -ENAMETOOLONG;
	if (len > 0)
		memcpy(field, text, len);
	return 0;
}

int mount_frame_new(struct mount_frame **ret, enum mount_operation operation,
		    const struct mount_request *request)
{
	cleanup_free struct mount_frame *frame = calloc(1, sizeof(*frame));

	if (frame == NULL)
		return -ENOMEM;
	frame->magic = MOUNT_FRAME_MAGIC;
	frame->size = sizeof(*frame);
	frame->operation = (uint32_t)operation;
	frame->driver = (int32_t)getpid();
	frame->mode = request->mode;
	frame->read_only = request->read_only;
	frame->one_superblock = request->one_superblock;
	if (request->path != NULL &&
	    (frame_put(frame->top, sizeof(frame->top), mount_request_top(request)) < 0 ||
	     frame_put(frame->below, sizeof(frame->below), request_below(request)) < 0))
		return -ENAMETOOLONG;
	if (frame_put(frame->server, sizeof(frame->server), request->server) < 0 ||
	    frame_put(frame->target, sizeof(frame->target), request->target) < 0 ||
	    frame_put(frame->options, sizeof(frame->options), request->options) < 0)
		return -ENAMETOOLONG;
	*ret = steal_ptr(&frame);
	return 0;
}

/* Whether a field holds a terminated string and only zeros after it. */
static bool frame_is_text(const char *field, size_t size)
{
	size_t i = strnlen(field, size);

	if (i == size)
		return false;
	while (i < size && field[i] == '\0')
		i++;
	return i == size;
}

int mount_frame_decode(struct mount_frame *ret, const void *data, size_t len)
{
	if (len != sizeof(*ret))
		return -EPROTO;
	memcpy(ret, data, len);
	if (ret->magic != MOUNT_FRAME_MAGIC || ret->size != sizeof(*ret))
		return -EPROTO;
	if (ret->operation == 0 || ret->operation >= MOUNT_OP_END || ret->driver <= 0 ||
	    ret->mode > MODE_ALL || ret->read_only > 1 || ret->one_superblock > 1)
		return -EPROTO;
	if (!frame_is_text(ret->server, sizeof(ret->server)) ||
	    !frame_is_text(ret->top, sizeof(ret->top)) ||
	    !frame_is_text(ret->below, sizeof(ret->below)) ||
	    !frame_is_text(ret->target, sizeof(ret->target)) ||
	    !frame_is_text(ret->options, sizeof(ret->options)))
		return -EPROTO;
	if (ret->target[0] != '/' || ret->below[0] == '/')
		return -EPROTO;
	/* These have a source, the others have none. */
	if (ret->operation == MOUNT_OP_MOUNT || ret->operation == MOUNT_OP_COMPARE ||
	    ret->operation == MOUNT_OP_TRY)
		return ret->server[0] != '\0' && ret->top[0] == '/' ? 0 : -EPROTO;
	if (ret->server[0] != '\0' || ret->top[0] != '\0' || ret->below[0] != '\0' ||
	    ret->options[0] != '\0')
		return -EPROTO;
	return 0;
}

int mount_reply_check(const struct mount_reply *reply)
{
	if (reply->magic != MOUNT_REPLY_MAGIC || reply->step < 0 || reply->error < 0)
		return -EPROTO;
	if (strnlen(reply->address, sizeof(reply->address)) == sizeof(reply->address) ||
	    strnlen(reply->client, sizeof(reply->client)) == sizeof(reply->client) ||
	    strnlen(reply->text, sizeof(reply->text)) == sizeof(reply->text))
		return -EPROTO;
	return 0;
}
