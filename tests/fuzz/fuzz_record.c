/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

#include "fuzz.h"

#include <errno.h>

#include "base/cleanup.h"
#include "store/record.h"

/* What is taken for a record is written again as text that means the same, and stays the same. */
static void check_record(const struct record *rec)
{
	cleanup_record struct record again = { .n = 0 };
	cleanup_free char *text = NULL, *second = NULL;
	size_t i, k;
	int r;

	r = record_encode(rec, &text);
	if (r == -EMSGSIZE)
		return;
	assert(r == 0 && strlen(text) <= RECORD_BYTES_MAX);
	r = record_decode(&again, text);
	assert(r == 0 && again.n == rec->n);
	for (i = 0; i < rec->n; i++) {
		assert(strcmp(again.pairs[i].key, rec->pairs[i].key) == 0);
		assert(strcmp(again.pairs[i].value, rec->pairs[i].value) == 0);
		assert(record_get(rec, rec->pairs[i].key) == rec->pairs[i].value);
		for (k = 0; k < i; k++)
			assert(strcmp(rec->pairs[k].key, rec->pairs[i].key) != 0);
	}
	r = record_encode(&again, &second);
	assert(r == 0 && strcmp(text, second) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_record struct record rec = { .n = 0 };
	cleanup_free char *text = NULL;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	text = fuzz_string(data, size);
	if (record_decode(&rec, text) == 0)
		check_record(&rec);
	else
		assert(rec.n == 0 && rec.pairs == NULL);
	return 0;
}
