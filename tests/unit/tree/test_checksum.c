/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright the csi-nfs authors */

/* tree/checksum.c: what a file's checksum depends on. */

#include "base/cleanup.h"
#include "tree/checksum.h"
#include "check_util.h"

#define BLOCK TREE_CHECKSUM_BLOCK
#define BLOCKS 6
#define SIZE (BLOCKS * BLOCK)

/* Each block differs from the others; the third one is a hole. */
static void fill(char *data)
{
	size_t i;

	memset(data, 0, SIZE);
	for (i = 0; i < SIZE; i++)
		if (i / BLOCK != 2)
			data[i] = (char)(i * 31 + i / BLOCK * 7 + 1);
}

static uint64_t sum_in_pieces(const char *data, size_t len, size_t piece)
{
	uint64_t sum = 0;
	size_t at;

	for (at = 0; at < len; at += piece)
		sum += tree_checksum(at, data + at, piece < len - at ? piece : len - at);
	return sum;
}

START_TEST(test_pieces)
{
	char data[SIZE];
	size_t blocks;
	uint64_t sum;

	fill(data);
	sum = tree_checksum(0, data, SIZE);
	for (blocks = 1; blocks <= BLOCKS; blocks++)
		ck_assert_uint_eq(sum_in_pieces(data, SIZE, blocks * BLOCK), sum);
	/* The hole is not there, and the end comes first. */
	ck_assert_uint_eq(tree_checksum(3 * BLOCK, data + 3 * BLOCK, 3 * BLOCK) +
				  tree_checksum(0, data, 2 * BLOCK),
			  sum);
}
END_TEST

/* A file's length is compared elsewhere. */
START_TEST(test_zeros_at_the_end)
{
	char data[SIZE];

	fill(data);
	memset(data + BLOCK + 10, 0, BLOCK - 10);
	ck_assert_uint_eq(tree_checksum(0, data, BLOCK + 10), tree_checksum(0, data, 2 * BLOCK));
	ck_assert_uint_ne(tree_checksum(0, data, BLOCK + 9), tree_checksum(0, data, BLOCK + 10));
}
END_TEST

START_TEST(test_each_bit)
{
	char data[SIZE];
	uint64_t sum;
	size_t bit;

	fill(data);
	sum = tree_checksum(0, data, SIZE);
	for (bit = 0; bit < 8 * SIZE; bit += 13) {
		data[bit / 8] ^= (char)(1U << bit % 8);
		ck_assert_uint_ne(tree_checksum(0, data, SIZE), sum);
		data[bit / 8] ^= (char)(1U << bit % 8);
	}
	ck_assert_uint_eq(tree_checksum(0, data, SIZE), sum);
}
END_TEST

START_TEST(test_blocks_in_the_wrong_place)
{
	char data[SIZE], other[SIZE];
	uint64_t sum;
	size_t i, j;

	fill(data);
	sum = tree_checksum(0, data, SIZE);
	for (i = 0; i < BLOCKS; i++)
		for (j = 0; j < i; j++) {
			memcpy(other, data, SIZE);
			memcpy(other + i * BLOCK, data + j * BLOCK, BLOCK);
			ck_assert_uint_ne(tree_checksum(0, other, SIZE), sum);
			memcpy(other + j * BLOCK, data + i * BLOCK, BLOCK);
			ck_assert_uint_ne(tree_checksum(0, other, SIZE), sum);
		}
}
END_TEST

CHECK_MAIN("checksum", .tests = { test_pieces, test_zeros_at_the_end, test_each_bit,
				  test_blocks_in_the_wrong_place })
