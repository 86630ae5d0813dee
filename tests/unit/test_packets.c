/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of packet types: validation demands exactly what each row declares, and handlers
 * outside of the tree can add rows.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "handlers/handler.h"
#include "tests/unit/suites.h"
#include "wire/shard.h"
#include "wire/tag.h"
#include "wire/wire.h"

#define N_CODES 256
#define MAX_PAYLOAD_BYTES 256
#define COUNT 16
#define FREE 200

/* A declaration that can be registered; each test changes the field that it is about. */
static const struct fanin_packet_type block_type = {
	.name = "OUTSIDE",
	.text = "values and their places",
	.code = FREE,
	.direction = FANIN_UP,
	.class = FANIN_CLASS_BLOCK,
	.payload = FANIN_PAYLOAD_NOTHING,
};

struct frame {
	struct fanin_headers headers;
	uint8_t payload[MAX_PAYLOAD_BYTES];
	size_t len;
};

static void
set_payload_len(struct frame *frame, size_t payload_len)
{
	fanin_wire_set_payload_len(&frame->headers, (uint32_t)payload_len);
	frame->len = FANIN_PAYLOAD_OFFSET + payload_len;
}

static void
make_frame(uint8_t code, struct frame *frame)
{
	static const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
						.src_port = 40000 };

	memset(frame, 0, sizeof(*frame));
	fanin_wire_encode_l4(&frame->headers, &flow, 0);
	fanin_wire_encode_header(&frame->headers.fanin, (enum fanin_type)code, 7, 3, 1);
	set_payload_len(frame, 0);
}

/* Makes the smallest packet that a type's declaration allows. */
static void
make_min(const struct fanin_packet_type *type, struct frame *frame)
{
	struct fanin_hdr *hdr = &frame->headers.fanin;

	make_frame(type->code, frame);
	if (type->payload == FANIN_PAYLOAD_ELEMENTS) {
		hdr->dtype = FANIN_WIRE_F32;
		hdr->op = FANIN_WIRE_SUM;
		hdr->count = COUNT;
		set_payload_len(frame, COUNT * sizeof(float));
	} else if (type->payload == FANIN_PAYLOAD_SHARD) {
		hdr->dtype = FANIN_WIRE_F32;
		hdr->op = FANIN_WIRE_SUM;
		hdr->count = COUNT;
		hdr->members = fanin_shard_encode(&(struct fanin_shard){ .span = 1000 });
		set_payload_len(frame, COUNT * (sizeof(float) + sizeof(uint16_t)));
	} else {
		hdr->count = type->count == FANIN_FIELD_NONZERO;
		set_payload_len(frame, type->body_len);
	}
	hdr->number = type->number == FANIN_FIELD_NONZERO;
}

static void
expect(const struct frame *frame, enum fanin_reason reason)
{
	enum fanin_reason found = fanin_wire_validate(frame, frame->len);

	ck_assert_msg(found == reason, "type %u: found %s, expected %s", frame->headers.fanin.type,
		      fanin_reason_name(found), fanin_reason_name(reason));
}

/* Checks whether validation refuses a field, zero or not, as its declared use requires. */
static void
expect_field(const struct frame *frame, unsigned int use, bool is_zero, enum fanin_reason wrong)
{
	const bool fits = use == FANIN_FIELD_ANY || (use == FANIN_FIELD_ZERO) == is_zero;

	expect(frame, fits ? FANIN_REASON_NONE : wrong);
}

static void
expect_elements(const struct fanin_packet_type *type)
{
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_min(type, &frame);
	hdr->dtype = FANIN_WIRE_DTYPE_NONE;
	expect(&frame, FANIN_REASON_DTYPE);
	make_min(type, &frame);
	hdr->op = FANIN_WIRE_OP_NONE;
	expect(&frame, FANIN_REASON_OP);
	make_min(type, &frame);
	hdr->count++;
	expect(&frame, FANIN_REASON_ELEMENTS);
	make_min(type, &frame);
	hdr->flags = FANIN_FLAG_EMPTY;
	expect(&frame, FANIN_REASON_ELEMENTS);
	set_payload_len(&frame, 0);
	expect(&frame, FANIN_REASON_NONE);
}

/*
 * Checks the header's description of a shard, and its length; validation does not read the shard's
 * content.
 */
static void
expect_shard(const struct fanin_packet_type *type)
{
	static const struct fanin_shard wrong[] = {
		{ .span = 0 },
		{ .span = COUNT - 1, .form = FANIN_SHARD_BITMAP },
		{ .span = 1000, .number = FANIN_SHARDS_MAX },
		{ .span = 1000, .number = 1, .total = 1 },
		{ .span = 1000, .number = 1, .total = 3 },
		{ .span = 1000, .form = FANIN_SHARD_BITMAP },
		{ .span = 1000, .form = FANIN_SHARD_FORMS },
		{ .span = FANIN_SHARD_SHORT_SPAN + 1 }, /* indices are longer */
	};
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_min(type, &frame);
	hdr->dtype = FANIN_WIRE_DTYPE_NONE;
	expect(&frame, FANIN_REASON_DTYPE);
	hdr->dtype = FANIN_WIRE_DTYPE_COUNT;
	expect(&frame, FANIN_REASON_DTYPE);
	make_min(type, &frame);
	hdr->op = FANIN_WIRE_OP_NONE;
	expect(&frame, FANIN_REASON_OP);
	hdr->op = FANIN_WIRE_COPY;
	expect(&frame, FANIN_REASON_OP);
	make_min(type, &frame);
	hdr->count++;
	expect(&frame, FANIN_REASON_ELEMENTS);
	make_min(type, &frame);
	hdr->flags = FANIN_FLAG_EMPTY;
	expect(&frame, FANIN_REASON_FLAGS);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make_min(type, &frame);
		hdr->members = fanin_shard_encode(&wrong[i]);
		expect(&frame, FANIN_REASON_ELEMENTS);
	}
	make_min(type, &frame);
	hdr->members |= UINT64_C(1) << 56;
	expect(&frame, FANIN_REASON_NONE);
	for (unsigned int bit = 57; bit < 64; bit++) {
		make_min(type, &frame);
		hdr->members |= UINT64_C(1) << bit;
		expect(&frame, FANIN_REASON_ELEMENTS);
	}

	make_min(type, &frame);
	hdr->members = fanin_shard_encode(
		&(struct fanin_shard){ .span = 1000, .number = 63, .total = 64 });
	expect(&frame, FANIN_REASON_NONE);
	hdr->count = 0;
	set_payload_len(&frame, 0);
	expect(&frame, FANIN_REASON_NONE);
	/* A list may have an index twice. */
	make_min(type, &frame);
	hdr->members = fanin_shard_encode(&(struct fanin_shard){ .span = 1 });
	expect(&frame, FANIN_REASON_NONE);
	/* A bitmap can't have more values than indices, even with the right length. */
	hdr->members =
		fanin_shard_encode(&(struct fanin_shard){ .span = 1, .form = FANIN_SHARD_BITMAP });
	set_payload_len(&frame, COUNT * sizeof(float) + 8 + 4);
	expect(&frame, FANIN_REASON_ELEMENTS);
	/* A bitmap of one word, and one that ends within a word. */
	make_min(type, &frame);
	hdr->members = fanin_shard_encode(
		&(struct fanin_shard){ .span = 1000, .form = FANIN_SHARD_BITMAP });
	set_payload_len(&frame, COUNT * sizeof(float) + 8 + 4);
	expect(&frame, FANIN_REASON_NONE);
	set_payload_len(&frame, COUNT * sizeof(float) + 4 + 4);
	expect(&frame, FANIN_REASON_ELEMENTS);
}

static void
expect_no_elements(const struct fanin_packet_type *type)
{
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_min(type, &frame);
	hdr->dtype = FANIN_WIRE_F32;
	expect(&frame, FANIN_REASON_DTYPE);
	make_min(type, &frame);
	hdr->op = FANIN_WIRE_SUM;
	expect(&frame, FANIN_REASON_OP);
	make_min(type, &frame);
	hdr->flags = FANIN_FLAG_EMPTY;
	expect(&frame, FANIN_REASON_FLAGS);
	make_min(type, &frame);
	hdr->count = 0;
	expect_field(&frame, type->count, true, FANIN_REASON_ELEMENTS);
	hdr->count = UINT16_MAX;
	expect_field(&frame, type->count, false, FANIN_REASON_ELEMENTS);
	make_min(type, &frame);
	set_payload_len(&frame, type->body_len + 1u);
	expect(&frame,
	       type->payload != FANIN_PAYLOAD_NOTHING ? FANIN_REASON_NONE : FANIN_REASON_BODY);
	if (type->body_len == 0)
		return;
	set_payload_len(&frame, type->body_len - 1u);
	expect(&frame, FANIN_REASON_BODY);
}

/* Checks that validation demands everything that a declaration says of a packet. */
static void
expect_as_declared(const struct fanin_packet_type *type)
{
	struct frame frame;
	struct fanin_hdr *hdr = &frame.headers.fanin;

	make_min(type, &frame);
	expect(&frame, FANIN_REASON_NONE);
	hdr->number = 0;
	expect_field(&frame, type->number, true, FANIN_REASON_ELEMENTS);
	hdr->number = UINT32_MAX;
	expect_field(&frame, type->number, false, FANIN_REASON_RESERVED);
	make_min(type, &frame);
	hdr->extension = 1;
	expect(&frame, FANIN_REASON_EXTENSION);
	if (type->payload == FANIN_PAYLOAD_ELEMENTS)
		expect_elements(type);
	else if (type->payload == FANIN_PAYLOAD_SHARD)
		expect_shard(type);
	else
		expect_no_elements(type);
}

static void
expect_same(const struct fanin_packet_type *found, const struct fanin_packet_type *expected)
{
	ck_assert_str_eq(found->name, expected->name);
	ck_assert_uint_gt(strlen(found->text), 0);
	ck_assert_uint_eq(found->code, expected->code);
	ck_assert_uint_eq(found->direction, expected->direction);
	ck_assert_uint_eq(found->class, expected->class);
	ck_assert_uint_eq(found->payload, expected->payload);
	ck_assert_uint_eq(found->body_len, expected->body_len);
	ck_assert_uint_eq(found->count, expected->count);
	ck_assert_uint_eq(found->number, expected->number);
}

/* The rows once more, as deployed hosts and switches know them: nothing of this may change. */
START_TEST(rows_are_those_of_the_protocol)
{
	enum {
		NOTHING = FANIN_PAYLOAD_NOTHING,
		ELEMENTS = FANIN_PAYLOAD_ELEMENTS,
		BODY = FANIN_PAYLOAD_BODY,
		DATA = FANIN_PAYLOAD_DATA,
		SHARD = FANIN_PAYLOAD_SHARD,
		ZERO = FANIN_FIELD_ZERO,
		ANY = FANIN_FIELD_ANY,
		NONZERO = FANIN_FIELD_NONZERO,
		MANY = FANIN_FIELD_ELEMENTS
	};
#define ROW(_code, _name, _direction, _class, _payload, _body_len, _count, _number)                \
	{                                                                                          \
		.code = (_code), .name = (_name), .direction = FANIN_##_direction,                 \
		.class = FANIN_CLASS_##_class, .payload = (_payload), .body_len = (_body_len),     \
		.count = (_count), .number = (_number),                                            \
	}
	static const struct fanin_packet_type expected[] = {
		ROW(1, "CONTRIBUTION", UP, BLOCK, ELEMENTS, 0, MANY, ZERO),
		ROW(2, "RESULT", DOWN, BLOCK, ELEMENTS, 0, MANY, ZERO),
		ROW(3, "ANSWER", DOWN, BLOCK, BODY, 72, ANY, ANY),
		ROW(4, "REFUSED", DOWN, PARENT, NOTHING, 0, ANY, ZERO),
		ROW(5, "JOIN", UP, MEMBERSHIP, BODY, 32, ZERO, ZERO),
		ROW(6, "JOIN_ACK", DOWN, PARENT, BODY, 136, ZERO, ZERO),
		ROW(7, "LEAVE", UP, MEMBERSHIP, NOTHING, 0, ZERO, ZERO),
		ROW(8, "LEAVE_ACK", DOWN, PARENT, NOTHING, 0, ZERO, ZERO),
		ROW(9, "KNOWN", UP, BLOCK, ELEMENTS, 0, MANY, ZERO),
		ROW(10, "QUERY", UP, BLOCK, DATA, 0, ANY, NONZERO),
		ROW(11, "PROBE", DOWN, PROBE, NOTHING, 0, ZERO, ZERO),
		ROW(12, "PROBE_ACK", UP, PROBE, BODY, 16, ZERO, ZERO),
		ROW(13, "MULTICAST", UP, BLOCK, DATA, 0, ANY, ANY),
		ROW(14, "DELIVERY", DOWN, BLOCK, DATA, 0, ANY, ANY),
		ROW(15, "SPARSE", UP, BLOCK, SHARD, 0, MANY, ZERO),
		ROW(16, "SPARSE_RESULT", DOWN, BLOCK, SHARD, 0, MANY, ZERO),
		ROW(17, "SPARSE_KNOWN", UP, BLOCK, SHARD, 0, MANY, ZERO),
		ROW(18, "PARTIAL", UP, BLOCK, ELEMENTS, 0, MANY, ZERO),
		ROW(19, "GACK", DOWN, BLOCK, NOTHING, 0, ANY, ZERO),
		ROW(20, "REPEAT", DOWN, BLOCK, ELEMENTS, 0, MANY, ZERO),
		ROW(21, "FLUSH", DOWN, BLOCK, NOTHING, 0, ZERO, ZERO),
		ROW(22, "ASK", DOWN, BLOCK, NOTHING, 0, ZERO, ZERO),
		ROW(39, "WRITE", UP, BLOCK, DATA, 0, ANY, ANY),
		ROW(40, "WRITE_DELIVERY", DOWN, BLOCK, DATA, 0, ANY, ANY),
		ROW(41, "REWRITE", UP, BLOCK, DATA, 0, ANY, ANY),
		ROW(42, "REWRITE_DELIVERY", DOWN, BLOCK, DATA, 0, ANY, ANY),
	};
#undef ROW
	const size_t n = sizeof(expected) / sizeof(expected[0]);

	for (size_t i = 0; i < n; i++)
		expect_same(&fanin_packet_types[expected[i].code], &expected[i]);
}
END_TEST

START_TEST(each_type_is_valid_as_it_is_declared_and_not_otherwise)
{
	static const uint8_t codes[] = {
#define PACKET_CODE(name, code, ...) (code),
		FANIN_WIRE_PACKETS(PACKET_CODE)
#undef PACKET_CODE
	};

	for (size_t i = 0; i < sizeof(codes); i++)
		expect_as_declared(&fanin_packet_types[codes[i]]);
}
END_TEST

/* True if a handler of this build has declared the code. */
static bool
is_declared(unsigned int code)
{
	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next) {
		for (const struct fanin_packet_type *type = handler->packets;
		     type != NULL && type->name != NULL; type++) {
			if (type->code == code)
				return true;
		}
	}
	return false;
}

START_TEST(a_code_without_a_row_is_no_type)
{
	static const bool has_row[N_CODES] = {
#define PACKET_HAS_ROW(name, code, ...) [code] = true,
		FANIN_WIRE_PACKETS(PACKET_HAS_ROW)
#undef PACKET_HAS_ROW
	};
	struct frame frame;
	unsigned int n = 0;

	for (unsigned int code = 0; code < N_CODES; code++) {
		if (has_row[code])
			continue;
		if (is_declared(code)) {
			ck_assert(fanin_type_is_known((uint8_t)code));
			n++;
			continue;
		}
		ck_assert(!fanin_type_is_known((uint8_t)code));
		ck_assert(!fanin_type_has_elements((uint8_t)code));
		make_frame((uint8_t)code, &frame);
		expect(&frame, FANIN_REASON_TYPE);
		frame.headers.fanin.number = 1;
		expect(&frame, FANIN_REASON_TYPE);
		n++;
	}
	/* Code 0 and at least the free codes. */
	ck_assert_uint_gt(n, FANIN_TYPE_FREE_LAST - FANIN_TYPE_FREE_FIRST + 1);
}
END_TEST

START_TEST(a_registered_type_is_valid_as_it_is_declared_and_not_otherwise)
{
	struct fanin_packet_type type = block_type;
	struct frame frame;

	type.direction = FANIN_DOWN;
	type.payload = FANIN_PAYLOAD_BODY;
	type.body_len = 40;
	type.count = FANIN_FIELD_ANY;
	type.number = FANIN_FIELD_NONZERO;
	make_min(&type, &frame);
	expect(&frame, FANIN_REASON_TYPE);
	ck_assert_int_eq(fanin_wire_register_type(&type), 0);
	expect_as_declared(&type);
	expect_same(&fanin_packet_types[FREE], &type);
	ck_assert(fanin_type_is_known(FREE));
	ck_assert_int_eq(fanin_type_direction(FREE), FANIN_DOWN);
	ck_assert_int_eq(fanin_type_class(FREE), FANIN_CLASS_BLOCK);
	ck_assert_int_eq(fanin_tag_direction_of(FREE), FANIN_TAG_DOWN);
	ck_assert(fanin_tag_has_instance(FREE));

	/* The code beside it is still unknown. */
	make_frame(FREE + 1, &frame);
	expect(&frame, FANIN_REASON_TYPE);

	/* The first code that no protocol of this build has. */
	type.code = FANIN_TYPE_FREE_FIRST;
	while (fanin_type_is_known(type.code))
		type.code++;
	type.name = "OUTSIDE_2";
	type.payload = FANIN_PAYLOAD_ELEMENTS;
	type.body_len = 0;
	type.count = FANIN_FIELD_ELEMENTS;
	ck_assert_int_eq(fanin_wire_register_type(&type), 0);
	ck_assert(fanin_type_has_elements(type.code));
	expect_as_declared(&type);

	type = block_type;
	type.code = FANIN_TYPE_FREE_LAST;
	type.name = "OUTSIDE_3";
	type.count = FANIN_FIELD_NONZERO;
	ck_assert_int_eq(fanin_wire_register_type(&type), 0);
	expect_as_declared(&type);
}
END_TEST

START_TEST(codes_and_names_are_given_away_once)
{
	struct fanin_packet_type other = block_type;

	ck_assert_int_eq(fanin_wire_register_type(&block_type), 0);
	ck_assert_int_eq(fanin_wire_register_type(&block_type), -EEXIST);
	other.code = FREE + 1;
	ck_assert_int_eq(fanin_wire_register_type(&other), -EEXIST);
	other.name = "JOIN_ACK";
	ck_assert_int_eq(fanin_wire_register_type(&other), -EEXIST);
	ck_assert(!fanin_type_is_known(FREE + 1));
	other.code = FREE;
	other.name = "OTHER";
	ck_assert_int_eq(fanin_wire_register_type(&other), -EEXIST);
	expect_same(&fanin_packet_types[FREE], &block_type);
	other.code = FREE + 1;
	ck_assert_int_eq(fanin_wire_register_type(&other), 0);
}
END_TEST

/* A handler and a host protocol of one program may both declare the packets that they exchange. */
START_TEST(the_same_declaration_may_come_twice)
{
	const struct fanin_packet_type types[] = { block_type, { 0 } };

	fanin_wire_require_types("handler one", NULL);
	fanin_wire_require_types("handler one", types);
	expect_same(&fanin_packet_types[FREE], &block_type);
	fanin_wire_require_types("protocol one", types);
	expect_same(&fanin_packet_types[FREE], &block_type);
}
END_TEST

/* _i: the difference of the second declaration, or its error. */
START_TEST(another_declaration_ends_the_program)
{
	struct fanin_packet_type types[] = { block_type, { 0 } };

	fanin_wire_require_types("handler one", types);
	switch (_i) {
	case 0:
		types[0].name = "OTHER";
		break;
	case 1:
		types[0].code++;
		break;
	case 2:
		types[0].direction = FANIN_DOWN;
		break;
	case 3:
		types[0].payload = FANIN_PAYLOAD_DATA;
		break;
	case 4:
		types[0].number = FANIN_FIELD_ANY;
		break;
	case 5:
		types[0].count = FANIN_FIELD_ANY;
		break;
	default:
		types[0] = fanin_packet_types[FANIN_TYPE_QUERY];
		types[0].text = "of this tree";
		types[0].code = 1;
		break;
	}
	fanin_wire_require_types("protocol two", types);
}
END_TEST

START_TEST(types_of_this_tree_cannot_be_changed_nor_added_to)
{
	struct fanin_packet_type table[N_CODES], type = block_type;

	memcpy(table, fanin_packet_types, sizeof(table));
	for (unsigned int code = 0; code < FANIN_TYPE_FREE_FIRST; code++) {
		type.code = (uint8_t)code;
		ck_assert_int_eq(fanin_wire_register_type(&type), -EINVAL);
	}
	ck_assert_mem_eq(table, fanin_packet_types, sizeof(table));
}
END_TEST

START_TEST(a_declaration_that_makes_no_sense_is_refused)
{
	struct fanin_packet_type table[N_CODES], type;

	memcpy(table, fanin_packet_types, sizeof(table));
#define EXPECT_INVALID(change)                                                                     \
	do {                                                                                       \
		type = block_type;                                                                 \
		change;                                                                            \
		ck_assert_int_eq(fanin_wire_register_type(&type), -EINVAL);                        \
	} while (0)

	EXPECT_INVALID(type.name = NULL);
	EXPECT_INVALID(type.name = "");
	EXPECT_INVALID(type.name = "lower");
	EXPECT_INVALID(type.name = "TWO WORDS");
	EXPECT_INVALID(type.name = "A_NAME_THAT_IS_LONGER_THAN_31_CH");
	EXPECT_INVALID(type.text = NULL);
	EXPECT_INVALID(type.text = "");
	EXPECT_INVALID(type.direction = FANIN_DOWN + 1);
	EXPECT_INVALID(type.class = FANIN_CLASS_NONE);
	/* These classes are the pipeline's own. */
	EXPECT_INVALID(type.class = FANIN_CLASS_MEMBERSHIP);
	EXPECT_INVALID(type.class = FANIN_CLASS_PARENT);
	EXPECT_INVALID(type.class = FANIN_CLASS_PROBE);
	EXPECT_INVALID(type.class = FANIN_CLASS_PROBE + 1);
	EXPECT_INVALID(type.payload = FANIN_PAYLOAD_BODY);
	EXPECT_INVALID(type.payload = FANIN_PAYLOAD_DATA + 1);
	EXPECT_INVALID(type.payload = FANIN_PAYLOAD_ELEMENTS);
	EXPECT_INVALID(type.body_len = 1);
	EXPECT_INVALID((type.payload = FANIN_PAYLOAD_BODY, type.body_len = UINT16_MAX));
	EXPECT_INVALID(type.count = FANIN_FIELD_ELEMENTS);
	EXPECT_INVALID(type.count = FANIN_FIELD_ELEMENTS + 1);
	EXPECT_INVALID(type.number = FANIN_FIELD_ELEMENTS);
#undef EXPECT_INVALID
	ck_assert_mem_eq(table, fanin_packet_types, sizeof(table));
	type = block_type;
	ck_assert_int_eq(fanin_wire_register_type(&type), 0);
}
END_TEST

/* Returns whether a bitmap shard of one f32 is valid, if its only word begins at index `first`. */
static bool
bit_is_fine(uint32_t span, uint32_t first, uint64_t word)
{
	const struct fanin_shard shard = { .span = span, .form = FANIN_SHARD_BITMAP };
	const struct fanin_hdr hdr = {
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.count = 1,
		.members = fanin_shard_encode(&shard),
	};
	uint8_t payload[sizeof(float) + sizeof(word) + sizeof(first)] = { 0 };

	memcpy(payload + sizeof(float), &word, sizeof(word));
	memcpy(payload + sizeof(float) + sizeof(word), &first, sizeof(first));
	ck_assert(fanin_shard_fits(&hdr, sizeof(payload)));
	return fanin_shard_check(&hdr, payload, sizeof(payload));
}

START_TEST(no_bit_of_a_shard_lies_beyond_the_span)
{
	static const uint32_t spans[] = { 1, 63, 64, 65, 1000, UINT32_MAX - 63, UINT32_MAX };

	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
		const uint32_t last = spans[i] - 1;
		const uint32_t first = last / 64 * 64;

		ck_assert(bit_is_fine(spans[i], first, UINT64_C(1) << last % 64));
		if (last % 64 != 63)
			ck_assert(!bit_is_fine(spans[i], first, UINT64_C(1) << (last % 64 + 1)));
		if (first + 64 != 0)
			ck_assert(!bit_is_fine(spans[i], first + 64, 1));
	}
}
END_TEST

START_TEST(a_payload_without_room_has_no_spans)
{
	for (uint32_t len = 0; len < 64 * sizeof(float) + 8 + 4; len++)
		ck_assert_uint_eq(fanin_shard_span_max(sizeof(float), len), 0);
	ck_assert_uint_eq(fanin_shard_span_max(sizeof(float), 64 * sizeof(float) + 8 + 4),
			  64 * FANIN_SHARDS_FULL);
}
END_TEST

START_TEST(a_sender_says_once_how_many_shards_there_are)
{
	const struct fanin_shard second = { .span = 1, .number = 1 };
	const struct fanin_shard last = { .span = 1, .number = 2, .total = 3 };
	const struct fanin_shard most = { .span = 1, .number = 63, .total = 64 };

	ck_assert_uint_eq(fanin_shard_numbers(0), 0);
	ck_assert_uint_eq(fanin_shard_numbers(1), 1);
	ck_assert_uint_eq(fanin_shard_numbers(FANIN_SHARDS_MAX), UINT64_MAX);

	ck_assert(fanin_shard_agrees(&second, 0, 0));
	ck_assert(fanin_shard_agrees(&second, UINT64_C(1) << 63, 0));
	ck_assert(fanin_shard_agrees(&second, UINT64_C(1) << 2, 3));
	ck_assert(!fanin_shard_agrees(&second, 1, 1));
	ck_assert(fanin_shard_agrees(&last, 3, 0));
	ck_assert(fanin_shard_agrees(&last, 7, 3));
	ck_assert(!fanin_shard_agrees(&last, UINT64_C(1) << 3, 0));
	ck_assert(!fanin_shard_agrees(&last, 0, 2));
	ck_assert(!fanin_shard_agrees(&last, 0, 4));
	ck_assert(fanin_shard_agrees(&most, UINT64_MAX >> 1, 0));
	ck_assert(fanin_shard_agrees(&most, UINT64_MAX, 64));
}
END_TEST

Suite *
suite_packets(void)
{
	Suite *suite = suite_create("packets");
	TCase *rows = tcase_create("rows");
	TCase *registered = tcase_create("registered");

	tcase_add_test(rows, rows_are_those_of_the_protocol);
	tcase_add_test(rows, each_type_is_valid_as_it_is_declared_and_not_otherwise);
	tcase_add_test(rows, a_code_without_a_row_is_no_type);
	tcase_add_test(rows, no_bit_of_a_shard_lies_beyond_the_span);
	tcase_add_test(rows, a_payload_without_room_has_no_spans);
	tcase_add_test(rows, a_sender_says_once_how_many_shards_there_are);
	suite_add_tcase(suite, rows);

	/* Each test runs in a process of its own, as registered types stay. */
	tcase_add_test(registered, a_registered_type_is_valid_as_it_is_declared_and_not_otherwise);
	tcase_add_test(registered, codes_and_names_are_given_away_once);
	tcase_add_test(registered, the_same_declaration_may_come_twice);
	tcase_add_loop_test_raise_signal(registered, another_declaration_ends_the_program, SIGABRT,
					 0, 7);
	tcase_add_test(registered, types_of_this_tree_cannot_be_changed_nor_added_to);
	tcase_add_test(registered, a_declaration_that_makes_no_sense_is_refused);
	suite_add_tcase(suite, registered);
	return suite;
}
