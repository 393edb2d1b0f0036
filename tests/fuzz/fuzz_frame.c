/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include <stdbool.h>

#include "base/cleanup.h"
#include "grpc/frame.h"
#include "grpc/limits.h"

struct outcome {
	int result;
	enum error_code code;
	uint8_t *message;
	size_t len;
};

/* Feeds the bytes in pieces of a size. */
static struct outcome feed(const uint8_t *data, size_t size, size_t piece, bool encoded)
{
	struct grpc_frame f = { .encoded = encoded };
	struct error err = { .code = ERROR_OK };
	struct outcome out = { .result = 0 };
	size_t i;

	for (i = 0; i < size && out.result == 0; i += piece)
		out.result =
			grpc_frame_feed(&f, data + i, size - i < piece ? size - i : piece, &err);
	if (out.result == 0)
		out.result = grpc_frame_end(&f, &err);
	if (out.result == 0)
		out.message = grpc_frame_steal(&f, &out.len);
	out.code = err.code;
	grpc_frame_done(&f);
	return out;
}

/* Borders between DATA frames mean nothing: every piece size has to lead to the same end. */
static void check(const uint8_t *data, size_t size, bool encoded)
{
	static const size_t pieces[] = { 1, 2, 3, 5, 7, 4096 };
	struct outcome whole = feed(data, size, size > 0 ? size : 1, encoded);
	size_t i;

	assert((whole.result == 0) == (whole.code == ERROR_OK));
	if (whole.result == 0) {
		assert(size == whole.len + GRPC_FRAME_PREFIX_SIZE && whole.len <= GRPC_MESSAGE_MAX);
		assert(whole.len == 0 ||
		       memcmp(whole.message, data + GRPC_FRAME_PREFIX_SIZE, whole.len) == 0);
	}
	for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct outcome cut = feed(data, size, pieces[i], encoded);

		assert(cut.result == whole.result && cut.code == whole.code &&
		       cut.len == whole.len);
		assert(cut.len == 0 || memcmp(cut.message, whole.message, cut.len) == 0);
		free(cut.message);
	}
	free(whole.message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > FUZZ_INPUT_MAX)
		return 0;
	check(data, size, false);
	check(data, size, true);
	return 0;
}
