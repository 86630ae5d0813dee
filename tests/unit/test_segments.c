/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Super-frames at hosts: each segment is a frame with headers of its own, independent of the
 * others, and its payload stays where it was received.
 */
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/transport/segments.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/wire.h"

#define UDP_PORT 21930
#define ROUNDS 500

static struct fanin_segments *segments;
static struct fanin_headers whole;
static struct fanin_frame frames[FANIN_SEGMENTS_MAX + 8];

static void
setup(void)
{
	const struct fanin_flow flow = { .dst_mac = { 2, 0, 0, 0, 0, 1 },
					 .src_mac = { 2, 0, 0, 0, 0, 2 },
					 .src_ip_be = 0xfe00000a,
					 .dst_ip_be = 0x0100000a,
					 .src_port = UDP_PORT,
					 .dst_port = UDP_PORT };

	segments = calloc(1, sizeof(*segments));
	ck_assert_ptr_nonnull(segments);
	fanin_wire_encode_l4(&whole, &flow, 60000);
	/* The value that the kernel leaves to be completed. */
	whole.udp.checksum_be = 0x1234;
}

static void
teardown(void)
{
	free(segments);
}

/* Fills the payloads: len bytes that show their position. */
static void
fill(uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		segments->data[i] = (uint8_t)(i * 7 + (i >> 8));
}

static unsigned int
begin(uint32_t len, uint32_t size)
{
	fanin_segments_begin(segments, &whole, len, size);
	return fanin_segments_next(segments, frames, FANIN_SEGMENTS_MAX + 8);
}

/* Checks that a frame is the segment of len bytes at this offset. */
static void
check_frame(const struct fanin_frame *frame, uint32_t offset, uint32_t len)
{
	const struct fanin_headers *headers = frame->data;
	static uint8_t copy[UINT16_MAX];

	ck_assert_uint_eq(frame->len, FANIN_L4_LEN + len);
	ck_assert(frame->headers_only);
	ck_assert(fanin_segments_have(segments, frame));
	ck_assert_int_eq(memcmp(&headers->eth, &whole.eth, FANIN_ETH_LEN), 0);
	ck_assert_uint_eq(headers->ip.total_len_be,
			  __builtin_bswap16((uint16_t)(FANIN_IP_LEN + FANIN_UDP_LEN + len)));
	ck_assert_uint_eq(headers->udp.len_be, __builtin_bswap16((uint16_t)(FANIN_UDP_LEN + len)));
	ck_assert_uint_eq(headers->udp.checksum_be, 0);
	ck_assert_uint_eq(fanin_ip_checksum(&headers->ip), 0);
	ck_assert_int_eq(memcmp(&headers->fanin, segments->data + offset, FANIN_HDR_LEN), 0);
	ck_assert(fanin_segments_copy(segments, frame, 0, copy, frame->len));
	ck_assert_int_eq(memcmp(copy, headers, FANIN_PAYLOAD_OFFSET), 0);
	ck_assert_int_eq(memcmp(copy + FANIN_L4_LEN, segments->data + offset, len), 0);
	memset(copy, 0, sizeof(copy));
	ck_assert(fanin_segments_copy(segments, frame, FANIN_PAYLOAD_OFFSET, copy,
				      len - FANIN_HDR_LEN));
	ck_assert_int_eq(memcmp(copy, segments->data + offset + FANIN_HDR_LEN, len - FANIN_HDR_LEN),
			 0);
}

START_TEST(segments_are_frames)
{
	static const struct {
		uint32_t len;
		uint32_t size;
	} shapes[] = { { 14080, 1408 }, { 14081 + 60, 1408 }, { 54, 54 },     { 1408, 1408 },
		       { 65507, 8192 }, { 100, 60000 },       { 64 * 54, 54 } };

	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		const uint32_t len = shapes[s].len, size = shapes[s].size;
		unsigned int n;

		fill(len);
		n = begin(len, size);
		for (unsigned int i = 0; i < n; i++)
			check_frame(&frames[i], i * size,
				    len - i * size < size ? len - i * size : size);
		ck_assert_uint_eq(n, (len + size - 1) / size);
		ck_assert_uint_eq(fanin_segments_next(segments, frames, 1), 0);
	}
}
END_TEST

START_TEST(frames_are_handed_out_in_parts_and_stay)
{
	fill(20 * 500);
	fanin_segments_begin(segments, &whole, 20 * 500, 500);
	for (unsigned int i = 0; i < 20;) {
		const unsigned int some = fanin_segments_next(segments, frames + i, i % 3 + 1);

		ck_assert_uint_gt(some, 0);
		i += some;
	}
	for (unsigned int i = 0; i < 20; i++)
		check_frame(&frames[i], i * 500, 500);
}
END_TEST

/*
 * Segments without Fanin's header are not frames; segments beyond the maximum of a super-frame are
 * left out as well.
 */
START_TEST(segments_that_are_no_frames_are_left_out)
{
	fill(UINT16_MAX);
	ck_assert_uint_eq(begin(10 * 500 + FANIN_HDR_LEN - 1, 500), 10);
	ck_assert_uint_eq(begin(1000, FANIN_HDR_LEN - 1), 0);
	ck_assert_uint_eq(begin(0, 500), 0);
	ck_assert_uint_eq(begin((FANIN_SEGMENTS_MAX + 5) * 60, 60), FANIN_SEGMENTS_MAX);
	check_frame(&frames[FANIN_SEGMENTS_MAX - 1], (FANIN_SEGMENTS_MAX - 1) * 60, 60);
}
END_TEST

START_TEST(no_more_than_the_frame_is_copied)
{
	struct fanin_frame other = { .data = &whole, .len = 100 };
	uint8_t byte[2] = { 0 };

	fill(1100);
	ck_assert_uint_eq(begin(1100, 500), 3);
	ck_assert(!fanin_segments_have(segments, &other));
	ck_assert(!fanin_segments_copy(segments, &frames[2], 0, byte, FANIN_L4_LEN + 101));
	ck_assert(!fanin_segments_copy(segments, &frames[2], FANIN_L4_LEN + 100, byte, 1));
	ck_assert(!fanin_segments_copy(segments, &frames[2], FANIN_L4_LEN + 101, byte, 0));
	ck_assert(fanin_segments_copy(segments, &frames[2], FANIN_L4_LEN + 100, byte, 0));
	ck_assert(fanin_segments_copy(segments, &frames[0], 0, byte, 0));
	/* The last byte of the made headers, and the first one after them. */
	ck_assert(fanin_segments_copy(segments, &frames[2], FANIN_L4_LEN - 1, byte, 2));
	ck_assert_uint_eq(byte[1], segments->data[1000]);
}
END_TEST

/* Makes a packet with any job, rank, epoch, key and type, valid or invalid, of `size` bytes. */
static void
make_packet(struct random *random, uint8_t *at, uint32_t size)
{
	struct fanin_hdr hdr;

	memset(&hdr, 0, sizeof(hdr));
	fanin_wire_encode_header(&hdr, FANIN_TYPE_RESULT, (uint32_t)random_below(random, 4),
				 (uint32_t)random_below(random, 3), random_below(random, 5));
	hdr.rank = (uint16_t)random_below(random, 8);
	hdr.block = (uint32_t)random_below(random, 100);
	hdr.contributions = 1;
	hdr.dtype = FANIN_WIRE_U8;
	hdr.op = FANIN_WIRE_SUM;
	hdr.count = (uint16_t)(size - FANIN_HDR_LEN);
	memcpy(at, &hdr, FANIN_HDR_LEN);
	if (random_chance(random, 0.4))
		at[random_below(random, FANIN_HDR_LEN)] ^= (uint8_t)(1 + random_below(random, 255));
}

/*
 * A segment of a super-frame with any packets has the same errors as the same packet alone.
 */
START_TEST(each_segment_is_judged_by_its_own_header)
{
	struct random random = { .state = 815 };
	unsigned int good = 0, bad = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		const uint32_t size = (uint32_t)(FANIN_HDR_LEN + random_below(&random, 1400));
		const uint32_t most = 65000 / size < 64 ? 65000 / size : 64;
		const uint32_t n = (uint32_t)(1 + random_below(&random, most));
		const uint32_t last =
			(uint32_t)(FANIN_HDR_LEN + random_below(&random, size - FANIN_HDR_LEN + 1));
		const uint32_t len = (n - 1) * size + last;

		for (uint32_t i = 0; i < n; i++)
			make_packet(&random, segments->data + i * size, i + 1 < n ? size : last);
		ck_assert_uint_eq(begin(len, size), n);
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t own = i + 1 < n ? size : last;
			struct fanin_headers alone = whole;
			enum fanin_reason reason;

			fanin_wire_set_payload_len(&alone, own - FANIN_HDR_LEN);
			memcpy(&alone.fanin, segments->data + i * size, FANIN_HDR_LEN);
			reason = fanin_wire_validate(&alone, FANIN_L4_LEN + own);
			ck_assert_int_eq(fanin_wire_validate(frames[i].data, frames[i].len),
					 reason);
			check_frame(&frames[i], i * size, own);
			good += reason == FANIN_REASON_NONE;
			bad += reason != FANIN_REASON_NONE;
		}
	}
	ck_assert_uint_gt(good, 1000);
	ck_assert_uint_gt(bad, 1000);
}
END_TEST

Suite *
suite_segments(void)
{
	Suite *suite = suite_create("segments");
	TCase *tcase = tcase_create("segments");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, segments_are_frames);
	tcase_add_test(tcase, frames_are_handed_out_in_parts_and_stay);
	tcase_add_test(tcase, segments_that_are_no_frames_are_left_out);
	tcase_add_test(tcase, no_more_than_the_frame_is_copied);
	tcase_add_test(tcase, each_segment_is_judged_by_its_own_header);
	suite_add_tcase(suite, tcase);
	return suite;
}
