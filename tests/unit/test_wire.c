/* SPDX-License-Identifier: BSD-3-Clause */
/* The packet format: which packets are accepted, and the reasons for which others are refused. */
#include <stdlib.h>
#include <string.h>

#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/keys.h"
#include "wire/wire.h"

#define FRAME_MAX 2048
#define COUNT 16

static const struct fanin_flow flow = {
	.dst_mac = { 2, 0, 0, 0, 0, 1 },
	.src_mac = { 2, 0, 0, 0, 0, 2 },
	.dst_ip_be = 0xfe004d0a, /* 10.77.0.254 */
	.src_ip_be = 0x01004d0a,
	.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	.src_port = 40000,
};

struct frame {
	union {
		uint8_t bytes[FRAME_MAX];
		struct fanin_headers headers;
	};
	size_t len;
};

static void
make_control(struct frame *frame, enum fanin_type type, uint32_t payload_len)
{
	memset(frame, 0, sizeof(*frame));
	fanin_wire_encode_l4(&frame->headers, &flow, payload_len);
	fanin_wire_encode_header(&frame->headers.fanin, type, 7, 3, 0x1122334455667788);
	frame->len = FANIN_PAYLOAD_OFFSET + payload_len;
}

static void
make_contribution(struct frame *frame, unsigned int dtype, unsigned int op, uint16_t count)
{
	make_control(frame, FANIN_TYPE_CONTRIBUTION, count * fanin_dtype_size(dtype));
	frame->headers.fanin.dtype = (uint8_t)dtype;
	frame->headers.fanin.op = (uint8_t)op;
	frame->headers.fanin.count = count;
}

static void
fix_checksum(struct frame *frame)
{
	frame->headers.ip.checksum_be = 0;
	frame->headers.ip.checksum_be = fanin_ip_checksum(&frame->headers.ip);
}

static void
set_total_len(struct frame *frame, size_t len)
{
	frame->headers.ip.total_len_be = __builtin_bswap16((uint16_t)len);
	fix_checksum(frame);
}

static void
expect(const struct frame *frame, enum fanin_reason reason)
{
	enum fanin_reason found = fanin_wire_validate(frame->bytes, frame->len);

	ck_assert_msg(found == reason, "found %s, expected %s", fanin_reason_name(found),
		      fanin_reason_name(reason));
}

START_TEST(contributions_and_results_of_every_type_and_operator_are_valid)
{
	struct frame frame;

	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			make_contribution(&frame, dtype, op, COUNT);
			expect(&frame, FANIN_REASON_NONE);
			ck_assert_uint_eq(fanin_wire_payload_len(&frame.headers),
					  COUNT * fanin_dtype_size(dtype));
			frame.headers.fanin.type = FANIN_TYPE_RESULT;
			expect(&frame, FANIN_REASON_NONE);
		}
	}
}
END_TEST

START_TEST(a_block_without_elements_is_valid)
{
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_F32, FANIN_WIRE_SUM, 0);
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

/* A rank without data sends no payload, but the shape of the block's payload. */
START_TEST(an_empty_contribution_has_the_shape_of_its_block_and_no_payload)
{
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_contribution(&frame, FANIN_WIRE_F64, FANIN_WIRE_COPY, 0);
	hdr->root = FANIN_WIRE_MAX_RANKS - 1;
	hdr->flags = FANIN_FLAG_EMPTY;
	for (uint32_t count = 1; count <= UINT16_MAX; count++) {
		hdr->count = (uint16_t)count;
		expect(&frame, FANIN_REASON_NONE);
	}
	hdr->type = FANIN_TYPE_RESULT;
	expect(&frame, FANIN_REASON_NONE);
	/* There are no elements to be left out. */
	hdr->count = 0;
	expect(&frame, FANIN_REASON_ELEMENTS);

	make_contribution(&frame, FANIN_WIRE_F64, FANIN_WIRE_COPY, COUNT);
	expect(&frame, FANIN_REASON_NONE);
	hdr->flags = FANIN_FLAG_EMPTY;
	expect(&frame, FANIN_REASON_ELEMENTS);
}
END_TEST

START_TEST(control_messages_have_the_right_body)
{
	static const struct {
		enum fanin_type type;
		uint32_t body;
		bool may_grow;
	} messages[] = {
		{ FANIN_TYPE_JOIN, sizeof(struct fanin_join_body), true },
		{ FANIN_TYPE_JOIN_ACK, sizeof(struct fanin_join_ack_body), true },
		{ FANIN_TYPE_LEAVE, 0, false },
		{ FANIN_TYPE_LEAVE_ACK, 0, false },
		{ FANIN_TYPE_ANSWER, sizeof(struct fanin_answer_body), true },
		{ FANIN_TYPE_REFUSED, 0, false },
		{ FANIN_TYPE_PROBE, 0, false },
		{ FANIN_TYPE_PROBE_ACK, sizeof(struct fanin_probe_ack_body), true },
	};
	struct frame frame;

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		make_control(&frame, messages[i].type, messages[i].body);
		expect(&frame, FANIN_REASON_NONE);
		make_control(&frame, messages[i].type, messages[i].body + 4);
		expect(&frame, messages[i].may_grow ? FANIN_REASON_NONE : FANIN_REASON_BODY);
		if (messages[i].body == 0)
			continue;
		make_control(&frame, messages[i].type, messages[i].body - 1);
		expect(&frame, FANIN_REASON_BODY);
		make_control(&frame, messages[i].type, 0);
		expect(&frame, FANIN_REASON_BODY);
	}
}
END_TEST

START_TEST(control_messages_have_no_elements)
{
	struct frame frame;

	make_control(&frame, FANIN_TYPE_LEAVE, 0);
	frame.headers.fanin.dtype = FANIN_WIRE_F32;
	expect(&frame, FANIN_REASON_DTYPE);
	make_control(&frame, FANIN_TYPE_LEAVE, 0);
	frame.headers.fanin.op = FANIN_WIRE_SUM;
	expect(&frame, FANIN_REASON_OP);
	make_control(&frame, FANIN_TYPE_PROBE, 0);
	frame.headers.fanin.count = 1;
	expect(&frame, FANIN_REASON_ELEMENTS);
}
END_TEST

START_TEST(a_query_has_a_number_and_may_say_what_the_asker_has)
{
	struct frame frame;

	make_control(&frame, FANIN_TYPE_QUERY, 0);
	expect(&frame, FANIN_REASON_ELEMENTS);
	frame.headers.fanin.number = 1;
	expect(&frame, FANIN_REASON_NONE);
	/* An overdue block, and the number of blocks that the query is about. */
	frame.headers.fanin.flags = FANIN_FLAG_RETRANSMIT;
	frame.headers.fanin.count = UINT16_MAX;
	expect(&frame, FANIN_REASON_NONE);
	make_control(&frame, FANIN_TYPE_QUERY, sizeof(uint64_t));
	frame.headers.fanin.number = 1;
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

START_TEST(an_answer_may_have_any_number_and_state)
{
	struct frame frame;

	make_control(&frame, FANIN_TYPE_ANSWER, sizeof(struct fanin_answer_body));
	expect(&frame, FANIN_REASON_NONE);
	frame.headers.fanin.number = UINT32_MAX;
	frame.headers.fanin.count = FANIN_BLOCK_DONE;
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

START_TEST(states_of_an_answer_take_two_bits_each)
{
	struct fanin_answer_body body = { 0 };

	for (unsigned int i = 0; i < FANIN_ANSWER_BLOCKS; i++)
		fanin_answer_set_state(&body, i, (enum fanin_block_state)((i * 7 + i / 5) % 4));
	for (unsigned int i = 0; i < FANIN_ANSWER_BLOCKS; i++)
		ck_assert_uint_eq(fanin_answer_state(&body, i), (i * 7 + i / 5) % 4);
	/* The lowest bits first. */
	memset(&body, 0, sizeof(body));
	fanin_answer_set_state(&body, 1, FANIN_BLOCK_SENT);
	fanin_answer_set_state(&body, 3, FANIN_BLOCK_OPEN);
	ck_assert_uint_eq(body.states[0], 0x48);
}
END_TEST

/* Through as many switches as a query's return path has room for. */
START_TEST(a_query_s_way_back_names_the_child_of_each_level)
{
	static const unsigned int children[] = { 63, 0, 17, 1, 62, 0, 5, 9, 33, 63 };
	const size_t n = sizeof(children) / sizeof(children[0]);
	unsigned int child;
	uint64_t way = 0;

	ck_assert(!fanin_way_pop(&way, &child));
	for (size_t i = 0; i < n; i++)
		way = fanin_way_push(way, children[i]);
	for (size_t i = n; i-- > 0;) {
		ck_assert(fanin_way_pop(&way, &child));
		ck_assert_uint_eq(child, children[i]);
	}
	ck_assert_uint_eq(way, 0);
	ck_assert(!fanin_way_pop(&way, &child));
}
END_TEST

START_TEST(a_refusal_may_have_a_reason_of_a_later_version)
{
	struct frame frame;

	make_control(&frame, FANIN_TYPE_REFUSED, 0);
	frame.headers.fanin.count = FANIN_REASON_KEY;
	expect(&frame, FANIN_REASON_NONE);
	frame.headers.fanin.count = UINT16_MAX;
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

START_TEST(ethernet_padding_is_accepted)
{
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	frame.len += 18;
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

START_TEST(a_udp_checksum_of_any_value_is_accepted)
{
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	frame.headers.udp.checksum_be = 0xdead;
	expect(&frame, FANIN_REASON_NONE);
}
END_TEST

START_TEST(a_frame_cut_anywhere_is_refused)
{
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	for (size_t len = 0; len < FANIN_PAYLOAD_OFFSET + COUNT * 4; len++) {
		/* On the heap with its exact size, so that sanitizers find reads past the end. */
		uint8_t *copy = malloc(len + 1);

		ck_assert_ptr_nonnull(copy);
		memcpy(copy + 1, frame.bytes, len);
		ck_assert_uint_eq(fanin_wire_validate(copy + 1, len), FANIN_REASON_FRAME_TRUNCATED);
		free(copy);
	}
}
END_TEST

START_TEST(ip_headers_are_checked)
{
	struct frame good, frame;

	make_contribution(&good, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);

	frame = good;
	set_total_len(&frame, frame.len - FANIN_ETH_LEN + 1);
	expect(&frame, FANIN_REASON_FRAME_TRUNCATED);
	frame = good;
	frame.headers.ip.version_ihl = 0x65;
	fix_checksum(&frame);
	expect(&frame, FANIN_REASON_IP_HEADER);
	frame = good;
	frame.headers.ip.version_ihl = 0x44;
	fix_checksum(&frame);
	expect(&frame, FANIN_REASON_IP_HEADER);
	frame = good;
	set_total_len(&frame, FANIN_IP_LEN - 1);
	expect(&frame, FANIN_REASON_IP_HEADER);
	frame = good;
	frame.headers.ip.version_ihl = 0x46;
	fix_checksum(&frame);
	expect(&frame, FANIN_REASON_IP_OPTIONS);
	frame = good;
	frame.headers.ip.checksum_be ^= 0x0100;
	expect(&frame, FANIN_REASON_IP_CHECKSUM);
	frame = good;
	frame.headers.ip.protocol = 6;
	fix_checksum(&frame);
	expect(&frame, FANIN_REASON_LOCAL);
}
END_TEST

START_TEST(fragments_are_refused_but_dont_fragment_is_not)
{
	static const struct {
		uint16_t fragment;
		enum fanin_reason reason;
	} cases[] = {
		{ 0x0000, FANIN_REASON_NONE },        { 0x4000, FANIN_REASON_NONE },
		{ 0x2000, FANIN_REASON_IP_FRAGMENT }, { 0x0001, FANIN_REASON_IP_FRAGMENT },
		{ 0x1fff, FANIN_REASON_IP_FRAGMENT }, { 0x6000, FANIN_REASON_IP_FRAGMENT },
	};
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		frame.headers.ip.fragment_be = __builtin_bswap16(cases[i].fragment);
		fix_checksum(&frame);
		expect(&frame, cases[i].reason);
	}
}
END_TEST

START_TEST(udp_lengths_are_checked)
{
	struct frame good, frame;

	make_contribution(&good, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);

	frame = good;
	frame.headers.udp.len_be = __builtin_bswap16(FANIN_UDP_LEN + FANIN_HDR_LEN + COUNT * 4 - 1);
	expect(&frame, FANIN_REASON_UDP_LENGTH);
	frame = good;
	frame.headers.udp.len_be = 0;
	expect(&frame, FANIN_REASON_UDP_LENGTH);
	/* There is no room for a UDP header at all. */
	frame = good;
	set_total_len(&frame, FANIN_IP_LEN + FANIN_UDP_LEN - 1);
	frame.headers.udp.len_be = __builtin_bswap16(FANIN_UDP_LEN - 1);
	expect(&frame, FANIN_REASON_UDP_LENGTH);
	for (size_t udp_len = FANIN_UDP_LEN; udp_len < FANIN_UDP_LEN + FANIN_HDR_LEN; udp_len++) {
		frame = good;
		set_total_len(&frame, FANIN_IP_LEN + udp_len);
		frame.headers.udp.len_be = __builtin_bswap16((uint16_t)udp_len);
		expect(&frame, FANIN_REASON_HEADER_TRUNCATED);
	}
}
END_TEST

START_TEST(fanin_headers_are_checked)
{
	struct frame good, frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_contribution(&good, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);

#define EXPECT_AFTER(change, reason)                                                               \
	do {                                                                                       \
		frame = good;                                                                      \
		change;                                                                            \
		expect(&frame, reason);                                                            \
	} while (0)

	EXPECT_AFTER(hdr->version = 0, FANIN_REASON_VERSION);
	EXPECT_AFTER(hdr->version = FANIN_WIRE_VERSION + 1, FANIN_REASON_VERSION);
	EXPECT_AFTER(hdr->type = 0, FANIN_REASON_TYPE);
	EXPECT_AFTER(hdr->type = FANIN_TYPE_FREE_FIRST - 1, FANIN_REASON_TYPE);
	EXPECT_AFTER(hdr->type = 255, FANIN_REASON_TYPE);
	EXPECT_AFTER(hdr->flags = FANIN_FLAG_RETRANSMIT, FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_ANSWER, hdr->flags = FANIN_FLAG_EMPTY),
		     FANIN_REASON_FLAGS);
	EXPECT_AFTER(hdr->flags = 1 << 6, FANIN_REASON_FLAGS);
	EXPECT_AFTER(hdr->flags = 1 << 7, FANIN_REASON_FLAGS);
	EXPECT_AFTER(hdr->flags = 0x8000, FANIN_REASON_FLAGS);
	EXPECT_AFTER(hdr->port = 1, FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_RESULT, hdr->port = 1), FANIN_REASON_RESERVED);
	/* Only copies have a root, and it is a rank, */
	EXPECT_AFTER(hdr->root = 1, FANIN_REASON_RESERVED);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_REFUSED, hdr->root = 1), FANIN_REASON_RESERVED);
	EXPECT_AFTER((hdr->op = FANIN_WIRE_COPY, hdr->root = 0), FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->op = FANIN_WIRE_COPY, hdr->root = FANIN_WIRE_MAX_RANKS - 1),
		     FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->op = FANIN_WIRE_COPY, hdr->root = FANIN_WIRE_MAX_RANKS),
		     FANIN_REASON_RANK);
	/* or an owner, if the packet is combined and has elements. */
	EXPECT_AFTER(hdr->root = fanin_root_of_owner(0), FANIN_REASON_NONE);
	EXPECT_AFTER(hdr->root = fanin_root_of_owner(FANIN_WIRE_MAX_RANKS - 1), FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_KNOWN, hdr->root = fanin_root_of_owner(1)),
		     FANIN_REASON_NONE);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_RESULT, hdr->root = fanin_root_of_owner(1)),
		     FANIN_REASON_NONE);
	EXPECT_AFTER(hdr->root = fanin_root_of_owner(FANIN_WIRE_MAX_RANKS), FANIN_REASON_RANK);
	EXPECT_AFTER((hdr->op = FANIN_WIRE_COPY, hdr->root = fanin_root_of_owner(1)),
		     FANIN_REASON_RANK);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_PARTIAL, hdr->root = fanin_root_of_owner(1)),
		     FANIN_REASON_RESERVED);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_REFUSED, hdr->root = fanin_root_of_owner(1)),
		     FANIN_REASON_RESERVED);
	EXPECT_AFTER((hdr->count = 0, hdr->root = fanin_root_of_owner(1)), FANIN_REASON_ELEMENTS);
	/* Only queries and their answers have a number. */
	EXPECT_AFTER(hdr->number = 1, FANIN_REASON_RESERVED);
	EXPECT_AFTER((hdr->type = FANIN_TYPE_REFUSED, hdr->number = 1), FANIN_REASON_RESERVED);
	EXPECT_AFTER(hdr->extension = 1, FANIN_REASON_EXTENSION);
	EXPECT_AFTER(hdr->extension_len32 = 1, FANIN_REASON_EXTENSION);
	EXPECT_AFTER(hdr->dtype = FANIN_WIRE_DTYPE_NONE, FANIN_REASON_DTYPE);
	EXPECT_AFTER(hdr->dtype = FANIN_WIRE_DTYPE_COUNT, FANIN_REASON_DTYPE);
	EXPECT_AFTER(hdr->op = FANIN_WIRE_OP_NONE, FANIN_REASON_OP);
	EXPECT_AFTER(hdr->op = FANIN_WIRE_OP_COUNT, FANIN_REASON_OP);
	EXPECT_AFTER(hdr->count = COUNT - 1, FANIN_REASON_ELEMENTS);
	EXPECT_AFTER(hdr->count = COUNT + 1, FANIN_REASON_ELEMENTS);
	EXPECT_AFTER(hdr->dtype = FANIN_WIRE_F64, FANIN_REASON_ELEMENTS);
	/* 16 bits of count times 8 bytes must not wrap to a small number. */
	EXPECT_AFTER((hdr->dtype = FANIN_WIRE_F64, hdr->count = 0x2000 + 8), FANIN_REASON_ELEMENTS);
#undef EXPECT_AFTER
}
END_TEST

START_TEST(custom_operators_need_elements_of_the_size_that_their_type_tells)
{
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	for (unsigned int size = 1; size <= FANIN_WIRE_OPAQUE_MAX; size++) {
		make_contribution(&frame, FANIN_WIRE_OPAQUE + size, FANIN_WIRE_CUSTOM, COUNT);
		ck_assert_uint_eq(fanin_wire_payload_len(&frame.headers), COUNT * size);
		expect(&frame, FANIN_REASON_NONE);
		hdr->count = COUNT + 1;
		expect(&frame, FANIN_REASON_ELEMENTS);
		hdr->count = COUNT;
		hdr->dtype++;
		expect(&frame,
		       size == FANIN_WIRE_OPAQUE_MAX ? FANIN_REASON_DTYPE : FANIN_REASON_ELEMENTS);
	}
	for (unsigned int op = FANIN_WIRE_OP_COUNT; op <= UINT8_MAX; op++) {
		make_contribution(&frame, FANIN_WIRE_OPAQUE + 8, op, COUNT);
		expect(&frame, op == FANIN_WIRE_COPY || op >= FANIN_WIRE_CUSTOM ? FANIN_REASON_NONE
										: FANIN_REASON_OP);
	}
	for (unsigned int dtype = FANIN_WIRE_DTYPE_COUNT; dtype <= UINT8_MAX; dtype++) {
		bool is_opaque = dtype > 128 && dtype <= 192;

		make_contribution(&frame, dtype, FANIN_WIRE_CUSTOM, is_opaque ? COUNT : 0);
		expect(&frame, is_opaque ? FANIN_REASON_NONE : FANIN_REASON_DTYPE);
	}
}
END_TEST

START_TEST(the_first_of_several_faults_is_reported)
{
	struct frame frame;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	frame.headers.fanin.count = 1;
	frame.headers.fanin.op = 200;
	frame.headers.fanin.type = 99;
	expect(&frame, FANIN_REASON_TYPE);
	frame.headers.fanin.version = 9;
	expect(&frame, FANIN_REASON_VERSION);
	frame.headers.ip.ttl++;
	expect(&frame, FANIN_REASON_IP_CHECKSUM);
	frame.len--;
	expect(&frame, FANIN_REASON_FRAME_TRUNCATED);
}
END_TEST

START_TEST(random_changes_are_never_read_past_the_end)
{
	struct random random = random_seed(1);
	struct frame frame;

	for (int round = 0; round < 20000; round++) {
		size_t len;
		uint8_t *copy;

		make_contribution(&frame, FANIN_WIRE_F32, FANIN_WIRE_MIN,
				  (uint16_t)random_below(&random, 32));
		for (uint32_t flips = random_below(&random, 4); flips > 0; flips--)
			frame.bytes[random_below(&random, FANIN_PAYLOAD_OFFSET)] =
				(uint8_t)random_u32(&random);
		fix_checksum(&frame);
		len = random_below(&random, 2) ? frame.len
					       : random_below(&random, (uint32_t)frame.len + 1);
		copy = malloc(len + 1);
		ck_assert_ptr_nonnull(copy);
		memcpy(copy, frame.bytes, len);
		ck_assert_uint_lt(fanin_wire_validate(copy, len), FANIN_REASON_COUNT);
		free(copy);
	}
}
END_TEST

/*
 * For every bit of the headers: a packet that the template and the check of the elements accept is
 * valid, and differs only in fields that may vary.
 */
START_TEST(templates_let_valid_contributions_pass_only)
{
	static const uint16_t vary[][2] = {
		{ 6, 12 },  /* source MAC */
		{ 15, 16 }, /* type of service */
		{ 18, 20 }, /* IPv4 identification */
		{ 22, 23 }, /* TTL */
		{ 34, 36 }, /* UDP source port */
		{ 40, 42 }, /* UDP checksum */
		{ 50, 54 }, /* epoch */
		{ 56, 62 }, /* contributions, block */
		{ 70, 74 }, /* progress */
		{ 82, 90 }, /* members */
		{ 94, 96 }, /* port for answers */
	};
	struct fanin_template template;
	struct frame frame;
	struct fanin_sizes sizes = FANIN_SIZES_NONE;
	unsigned int passed = 0;

	make_contribution(&frame, FANIN_WIRE_F32, FANIN_WIRE_SUM, 16);
	fanin_wire_make_template(&frame.headers, &template);
	ck_assert(fanin_wire_fits(&frame.headers, &template));
	ck_assert(fanin_wire_elements_fit(&frame.headers, frame.len, &sizes));
	ck_assert_uint_eq(sizes.payload_len, 64);
	ck_assert(!fanin_wire_elements_fit(&frame.headers, frame.len - 1, &sizes));
	for (unsigned int bit = 0; bit < FANIN_PAYLOAD_OFFSET * 8; bit++) {
		unsigned int byte = bit / 8;
		bool may_vary = false;
		bool fits;

		frame.bytes[byte] ^= (uint8_t)(1u << bit % 8);
		/* All bytes except the checksum itself. */
		if (byte != 24 && byte != 25)
			fix_checksum(&frame);
		fits = fanin_wire_fits(&frame.headers, &template) &&
		       fanin_wire_elements_fit(&frame.headers, frame.len, &sizes);
		for (size_t i = 0; i < sizeof(vary) / sizeof(vary[0]); i++)
			may_vary = may_vary || (byte >= vary[i][0] && byte < vary[i][1]);
		/*
		 * Don't fragment and the reserved bit; known flags; rank 0 as owner; other
		 * operators and types of the same size.
		 */
		may_vary =
			may_vary || (byte == 20 && bit % 8 >= 6) || (byte == 67 && bit % 8 == 7) ||
			(byte == 44 && ((FANIN_FLAGS_ALL & ~FANIN_FLAG_EMPTY) >> bit % 8 & 1) != 0);
		if (fits) {
			ck_assert_int_eq(fanin_wire_validate(frame.bytes, frame.len),
					 FANIN_REASON_NONE);
			ck_assert_msg(may_vary || byte == 62 || byte == 63, "byte %u", byte);
			passed++;
		} else {
			ck_assert_msg(!may_vary, "byte %u", byte);
		}
		frame.bytes[byte] ^= (uint8_t)(1u << bit % 8);
		fix_checksum(&frame);
	}
	ck_assert_uint_gt(passed, 0);
	/*
	 * Of two frames that differ only in being empty, at most one is valid, whichever came
	 * first.
	 */
	for (int first_is_empty = 0; first_is_empty < 2; first_is_empty++) {
		make_contribution(&frame, FANIN_WIRE_F32, FANIN_WIRE_SUM, 0);
		frame.headers.fanin.count = first_is_empty ? 16 : 0;
		frame.headers.fanin.flags = first_is_empty ? FANIN_FLAG_EMPTY : 0;
		ck_assert(fanin_wire_fits(&frame.headers, &template));
		ck_assert(fanin_wire_elements_fit(&frame.headers, frame.len, &sizes));
		ck_assert_uint_eq(sizes.payload_len, 0);
		frame.headers.fanin.flags ^= FANIN_FLAG_EMPTY;
		ck_assert(!fanin_wire_elements_fit(&frame.headers, frame.len, &sizes));
		expect(&frame, FANIN_REASON_ELEMENTS);
		frame.headers.fanin.flags = 0;
		memset(&frame.headers.fanin.dtype, 0, 4);
		ck_assert(!fanin_wire_elements_fit(&frame.headers, frame.len, &sizes));
	}
	/* If there is no frame before, a frame of zeros does not match it. */
	memset(&frame, 0, sizeof(frame));
	frame.headers.ip.checksum_be = 0xffff;
	sizes = FANIN_SIZES_NONE;
	ck_assert(!fanin_wire_elements_fit(&frame.headers, sizeof(frame.bytes), &sizes));
}
END_TEST

START_TEST(ip_checksum_is_that_of_rfc_1071)
{
	struct fanin_ip ip = {
		.version_ihl = 0x45,
		.total_len_be = __builtin_bswap16(0x0054),
		.id_be = __builtin_bswap16(0x1234),
		.fragment_be = __builtin_bswap16(0x4000),
		.ttl = 0x40,
		.protocol = 0x11,
		.src_be = __builtin_bswap32(0x0a4d0001),
		.dst_be = __builtin_bswap32(0x0a4d00fe),
	};
	const uint8_t *bytes = (const uint8_t *)&ip;
	uint32_t sum = 0;

	for (size_t i = 0; i < sizeof(ip); i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	while (sum > 0xffff)
		sum = (sum & 0xffff) + (sum >> 16);
	ck_assert_uint_eq(__builtin_bswap16(fanin_ip_checksum(&ip)), ~sum & 0xffff);
	ip.checksum_be = fanin_ip_checksum(&ip);
	ck_assert_uint_eq(fanin_ip_checksum(&ip), 0);
}
END_TEST

START_TEST(encoded_headers_carry_the_flow)
{
	struct frame frame;
	const struct fanin_headers *headers = &frame.headers;

	make_contribution(&frame, FANIN_WIRE_I32, FANIN_WIRE_SUM, COUNT);
	ck_assert_mem_eq(headers->eth.dst, flow.dst_mac, 6);
	ck_assert_mem_eq(headers->eth.src, flow.src_mac, 6);
	ck_assert_uint_eq(headers->eth.type_be, __builtin_bswap16(0x0800));
	ck_assert_uint_eq(headers->ip.ttl, 64);
	ck_assert_uint_eq(headers->ip.fragment_be, __builtin_bswap16(0x4000));
	ck_assert_uint_eq(headers->ip.src_be, flow.src_ip_be);
	ck_assert_uint_eq(headers->ip.dst_be, flow.dst_ip_be);
	ck_assert_uint_eq(headers->udp.src_be, __builtin_bswap16(flow.src_port));
	ck_assert_uint_eq(headers->udp.dst_be, __builtin_bswap16(flow.dst_port));
	ck_assert_uint_eq(headers->udp.checksum_be, 0);
	ck_assert_uint_eq(headers->fanin.version, FANIN_WIRE_VERSION);
	ck_assert_uint_eq(headers->fanin.job, 7);
	ck_assert_uint_eq(headers->fanin.epoch, 3);
	ck_assert_uint_eq(headers->fanin.key, 0x1122334455667788);
}
END_TEST

START_TEST(block_numbers_compare_across_the_wrap)
{
	ck_assert(fanin_block_before(0, 1));
	ck_assert(!fanin_block_before(1, 1));
	ck_assert(!fanin_block_before(2, 1));
	ck_assert(fanin_block_before(UINT32_MAX, 0));
	ck_assert(!fanin_block_before(0, UINT32_MAX));
}
END_TEST

START_TEST(payload_fills_the_mtu_in_whole_units)
{
	ck_assert_uint_eq(fanin_payload_for_mtu(0, false), 0);
	ck_assert_uint_eq(fanin_payload_for_mtu(FANIN_MTU_OVERHEAD + 63, false), 0);
	ck_assert_uint_eq(fanin_payload_for_mtu(FANIN_MTU_OVERHEAD + 64, false), 64);
	ck_assert_uint_eq(fanin_payload_for_mtu(1500, false), 1408);
	ck_assert_uint_eq(fanin_payload_for_mtu(9000, false), 8896);
	ck_assert_uint_eq(fanin_payload_for_mtu(FANIN_MTU_OVERHEAD + 64 + FANIN_TAG_LEN, true), 64);
	ck_assert_uint_eq(fanin_payload_for_mtu(1500, true), 1344);
}
END_TEST

START_TEST(names_and_codes_convert_both_ways)
{
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++)
		ck_assert_uint_eq(fanin_dtype_from_name(fanin_dtype_name(dtype)), dtype);
	for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++)
		ck_assert_uint_eq(fanin_op_from_name(fanin_op_name(op)), op);
	ck_assert_str_eq(fanin_dtype_name(FANIN_WIRE_BF16), "bf16");
	ck_assert_str_eq(fanin_op_name(FANIN_WIRE_BXOR), "bxor");
	ck_assert_str_eq(fanin_dtype_name(0), "unknown");
	ck_assert_str_eq(fanin_dtype_name(FANIN_WIRE_DTYPE_COUNT), "unknown");
	ck_assert_str_eq(fanin_op_name(UINT32_MAX), "unknown");
	ck_assert_str_eq(fanin_op_name(FANIN_WIRE_COPY - 1), "unknown");
	ck_assert_str_eq(fanin_op_name(FANIN_WIRE_COPY), "copy");
	ck_assert_str_eq(fanin_op_name(FANIN_WIRE_COPY + 1), "unknown");
	ck_assert_uint_eq(fanin_dtype_from_name("f33"), 0);
	ck_assert_uint_eq(fanin_op_from_name(""), 0);
	ck_assert_uint_eq(fanin_dtype_size(FANIN_WIRE_F16), 2);
	ck_assert_uint_eq(fanin_dtype_size(0), 0);
	ck_assert_uint_eq(fanin_dtype_size(200), 0);
}
END_TEST

START_TEST(operators_are_defined_as_by_mpi_and_averages_on_all)
{
	for (unsigned int dtype = FANIN_WIRE_I8; dtype <= FANIN_WIRE_F64; dtype++) {
		for (unsigned int op = FANIN_WIRE_SUM; op <= FANIN_WIRE_AVG; op++) {
			bool on_integers_only = op >= FANIN_WIRE_LAND && op <= FANIN_WIRE_BXOR;

			ck_assert(fanin_operation_defined(dtype, op) ==
				  (dtype < FANIN_WIRE_F16 || !on_integers_only));
		}
		ck_assert(!fanin_operation_defined(dtype, FANIN_WIRE_OP_NONE));
		ck_assert(!fanin_operation_defined(dtype, FANIN_WIRE_OP_COUNT));
		ck_assert(!fanin_operation_defined(dtype, FANIN_WIRE_COPY));
	}
	ck_assert(!fanin_operation_defined(FANIN_WIRE_DTYPE_NONE, FANIN_WIRE_SUM));
	ck_assert(!fanin_operation_defined(UINT32_MAX, FANIN_WIRE_SUM));
}
END_TEST

START_TEST(every_reason_has_a_name_of_its_own_and_a_text)
{
	for (unsigned int i = 0; i < FANIN_REASON_COUNT; i++) {
		ck_assert_uint_gt(strlen(fanin_reason_text(i)), 0);
		for (unsigned int j = 0; j < i; j++)
			ck_assert_str_ne(fanin_reason_name(i), fanin_reason_name(j));
	}
	ck_assert_str_eq(fanin_reason_name(FANIN_REASON_COUNT), "unknown");
	ck_assert_str_eq(fanin_reason_text(UINT32_MAX), "unknown");
}
END_TEST

/* The values come from another implementation of HMAC-SHA256, Python's. */
START_TEST(each_direction_has_a_key_that_the_secret_gives)
{
	struct fanin_keys keys;

	ck_assert_int_eq(fanin_keys_derive(0x1122334455667788, &keys), 0);
	ck_assert_uint_eq(keys.up, 0x6abb89dda01095cc);
	ck_assert_uint_eq(keys.down, 0x283afe44fea7ac31);
	ck_assert_int_eq(fanin_keys_derive(1, &keys), 0);
	ck_assert_uint_eq(keys.up, 0xb3df80828d6c66a7);
	ck_assert_uint_eq(keys.down, 0x825ed72596b4fd04);
}
END_TEST

/* Only a switch that does not know a sender as a member returns the sender's own key. */
START_TEST(answers_carry_the_key_of_their_direction)
{
	static const struct fanin_keys keys = { .up = 1, .down = 2 };

	for (unsigned int type = 0; type <= FANIN_TYPE_FREE_LAST; type++) {
		for (unsigned int reason = 0; reason < FANIN_REASON_COUNT; reason++) {
			const bool of_sender =
				reason == FANIN_REASON_JOB || reason == FANIN_REASON_RANK ||
				reason == FANIN_REASON_PORT || reason == FANIN_REASON_SOURCE ||
				reason == FANIN_REASON_KEY || reason == FANIN_REASON_TAG;
			struct fanin_hdr hdr = { .type = (uint8_t)type, .count = (uint16_t)reason };

			for (hdr.key = 0; hdr.key < 4; hdr.key++)
				ck_assert_int_eq(fanin_keys_fit_answer(&keys, &hdr),
						 hdr.key == 2 || (hdr.key == 1 && of_sender &&
								  type == FANIN_TYPE_REFUSED));
		}
	}
}
END_TEST

Suite *
suite_wire(void)
{
	Suite *suite = suite_create("wire");
	TCase *accepts = tcase_create("accepts");
	TCase *refuses = tcase_create("refuses");
	TCase *encodes = tcase_create("encodes");

	tcase_add_test(accepts, contributions_and_results_of_every_type_and_operator_are_valid);
	tcase_add_test(accepts, a_block_without_elements_is_valid);
	tcase_add_test(accepts, an_empty_contribution_has_the_shape_of_its_block_and_no_payload);
	tcase_add_test(accepts, control_messages_have_the_right_body);
	tcase_add_test(accepts, an_answer_may_have_any_number_and_state);
	tcase_add_test(accepts, a_refusal_may_have_a_reason_of_a_later_version);
	tcase_add_test(accepts, ethernet_padding_is_accepted);
	tcase_add_test(accepts, a_udp_checksum_of_any_value_is_accepted);
	suite_add_tcase(suite, accepts);

	tcase_add_test(refuses, control_messages_have_no_elements);
	tcase_add_test(refuses, a_query_has_a_number_and_may_say_what_the_asker_has);
	tcase_add_test(refuses, a_frame_cut_anywhere_is_refused);
	tcase_add_test(refuses, ip_headers_are_checked);
	tcase_add_test(refuses, fragments_are_refused_but_dont_fragment_is_not);
	tcase_add_test(refuses, udp_lengths_are_checked);
	tcase_add_test(refuses, fanin_headers_are_checked);
	tcase_add_test(refuses, custom_operators_need_elements_of_the_size_that_their_type_tells);
	tcase_add_test(refuses, the_first_of_several_faults_is_reported);
	tcase_add_test(refuses, random_changes_are_never_read_past_the_end);
	suite_add_tcase(suite, refuses);

	tcase_add_test(encodes, templates_let_valid_contributions_pass_only);
	tcase_add_test(encodes, ip_checksum_is_that_of_rfc_1071);
	tcase_add_test(encodes, encoded_headers_carry_the_flow);
	tcase_add_test(encodes, each_direction_has_a_key_that_the_secret_gives);
	tcase_add_test(encodes, answers_carry_the_key_of_their_direction);
	tcase_add_test(encodes, states_of_an_answer_take_two_bits_each);
	tcase_add_test(encodes, a_query_s_way_back_names_the_child_of_each_level);
	tcase_add_test(encodes, block_numbers_compare_across_the_wrap);
	tcase_add_test(encodes, payload_fills_the_mtu_in_whole_units);
	tcase_add_test(encodes, names_and_codes_convert_both_ways);
	tcase_add_test(encodes, operators_are_defined_as_by_mpi_and_averages_on_all);
	tcase_add_test(encodes, every_reason_has_a_name_of_its_own_and_a_text);
	suite_add_tcase(suite, encodes);
	return suite;
}
