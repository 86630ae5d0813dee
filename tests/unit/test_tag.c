/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags (wire/tag.h): their place and their value, computed a second time with integers of any size;
 * and that only sealed packets pass.
 */
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <string.h>

#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/tag.h"

#define SECRET 0x0123456789abcdefu
#define INSTANCE 0xfedcba9876543210u
#define LONGEST 8896
#define FLAGS_OFFSET 2

static const uint32_t lengths_beyond[] = { 1344, LONGEST };

static const uint8_t types[] = {
#define TYPE_CODE(name, code, ...) (code),
	FANIN_WIRE_PACKETS(TYPE_CODE)
#undef TYPE_CODE
};

#define N_TYPES (int)sizeof(types)

static struct fanin_tagger *tagger;

static void
setup(void)
{
	ck_assert_int_eq(fanin_tagger_create(SECRET, &tagger), 0);
}

static void
teardown(void)
{
	fanin_tagger_destroy(tagger);
}

/* ------------------------------------------------------------------ a second time */

static void
poly1305(const uint8_t *message, size_t len, const uint8_t r_bytes[16], const uint8_t pad[16],
	 uint8_t code[16])
{
	BN_CTX *ctx = BN_CTX_new();
	BIGNUM *prime = BN_new(), *r = BN_new(), *sum = BN_new(), *part = BN_new();
	uint8_t clamped[16];

	ck_assert(ctx != NULL && prime != NULL && r != NULL && sum != NULL && part != NULL);
	memcpy(clamped, r_bytes, sizeof(clamped));
	for (int i = 3; i < 16; i += 4)
		clamped[i] &= 15;
	for (int i = 4; i < 16; i += 4)
		clamped[i] &= 252;
	ck_assert_ptr_nonnull(BN_lebin2bn(clamped, sizeof(clamped), r));
	ck_assert(BN_set_bit(prime, 130) == 1 && BN_sub_word(prime, 5) == 1);
	BN_zero(sum);
	for (size_t i = 0; i < len; i += 16) {
		const int n = len - i < 16 ? (int)(len - i) : 16;

		ck_assert_ptr_nonnull(BN_lebin2bn(message + i, n, part));
		ck_assert(BN_set_bit(part, 8 * n) == 1 && BN_add(sum, sum, part) == 1 &&
			  BN_mod_mul(sum, sum, r, prime, ctx) == 1);
	}
	ck_assert_ptr_nonnull(BN_lebin2bn(pad, 16, part));
	ck_assert_int_eq(BN_add(sum, sum, part), 1);
	/* This fails if there is nothing to mask. */
	(void)BN_mask_bits(sum, 128);
	ck_assert_int_eq(BN_bn2lebinpad(sum, code, 16), 16);
	BN_free(prime);
	BN_free(r);
	BN_free(sum);
	BN_free(part);
	BN_CTX_free(ctx);
}

static void
poly1305_aes(const uint8_t *message, size_t len, const uint8_t key[16], const uint8_t r[16],
	     const uint8_t nonce[16], uint8_t code[16])
{
	EVP_CIPHER_CTX *aes = EVP_CIPHER_CTX_new();
	uint8_t pad[32];
	int n = 0;

	ck_assert(aes != NULL && EVP_EncryptInit_ex(aes, EVP_aes_128_ecb(), NULL, key, NULL) == 1 &&
		  EVP_EncryptUpdate(aes, pad, &n, nonce, 16) == 1);
	ck_assert_int_eq(n, 16);
	EVP_CIPHER_CTX_free(aes);
	poly1305(message, len, r, pad, code);
}

/* Computes the tag of a packet with this nonce: the header is as on the wire. */
static void
expected_code(uint64_t secret, const char *label, uint64_t instance, const struct fanin_hdr *hdr,
	      const uint8_t *payload, uint32_t payload_len, const uint8_t nonce[16],
	      uint8_t code[16])
{
	static uint8_t message[8 + FANIN_HDR_LEN + LONGEST];
	unsigned char secret_bytes[8], keys[32];
	size_t keys_len = 0;

	for (int i = 0; i < 8; i++) {
		secret_bytes[i] = (unsigned char)(secret >> 8 * i);
		message[i] = (uint8_t)(instance >> 8 * i);
	}
	ck_assert_ptr_nonnull(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, secret_bytes, 8,
					(const unsigned char *)label, strlen(label), keys,
					sizeof(keys), &keys_len));
	ck_assert_uint_eq(keys_len, 32);
	memcpy(message + 8, hdr, FANIN_HDR_LEN);
	if (payload_len != 0)
		memcpy(message + 8 + FANIN_HDR_LEN, payload, payload_len);
	poly1305_aes(message, 8 + FANIN_HDR_LEN + payload_len, keys, keys + 16, nonce, code);
}

/* "The Poly1305-AES message-authentication code", appendix B. */
START_TEST(the_reference_is_that_of_the_paper)
{
	static const uint8_t message[] = { 0xf3, 0xf6 };
	static const uint8_t r[] = { 0x85, 0x1f, 0xc4, 0x0c, 0x34, 0x67, 0xac, 0x0b,
				     0xe0, 0x5c, 0xc2, 0x04, 0x04, 0xf3, 0xf7, 0x00 };
	static const uint8_t key[] = { 0xec, 0x07, 0x4c, 0x83, 0x55, 0x80, 0x74, 0x17,
				       0x01, 0x42, 0x5b, 0x62, 0x32, 0x35, 0xad, 0xd6 };
	static const uint8_t nonce[] = { 0xfb, 0x44, 0x73, 0x50, 0xc4, 0xe8, 0x68, 0xc5,
					 0x2a, 0xc3, 0x27, 0x5c, 0xf9, 0xd4, 0x32, 0x7e };
	static const uint8_t expected[] = { 0xf4, 0xc6, 0x33, 0xc3, 0x04, 0x4f, 0xc1, 0x45,
					    0xf8, 0x4f, 0x33, 0x5c, 0xb8, 0x19, 0x53, 0xde };
	uint8_t code[16];

	poly1305_aes(message, sizeof(message), key, r, nonce, code);
	ck_assert_mem_eq(code, expected, sizeof(code));
}
END_TEST

/* ------------------------------------------------------------------ packets */

static struct random noise = { 4711 };

static void
fill(void *memory, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)memory)[i] = (uint8_t)random_below(&noise, 256);
}

/* Makes any header, except for the flag. */
static struct fanin_hdr
make_header(unsigned int type)
{
	struct fanin_hdr hdr;

	fill(&hdr, sizeof(hdr));
	hdr.type = (uint8_t)type;
	hdr.flags &= (uint16_t)~FANIN_FLAG_TAGGED;
	return hdr;
}

static void
expect_layout(enum fanin_tag_direction direction, uint32_t payload_len, unsigned int alignment)
{
	static uint8_t memory[8 + LONGEST + FANIN_TAG_LEN + 1];
	const char *label = direction == FANIN_TAG_UP ? "fanin tag up" : "fanin tag down";
	uint8_t *payload = memory + alignment;
	uint8_t *tag = payload + payload_len;
	const struct fanin_hdr before = make_header(FANIN_TYPE_RESULT);
	struct fanin_hdr hdr = before;
	uint8_t code[FANIN_TAG_CODE_LEN];

	fill(payload, payload_len);
	tag[FANIN_TAG_LEN] = 0x5a;
	ck_assert(fanin_tagger_seal(tagger, direction, INSTANCE, &hdr,
				    payload_len == 0 ? NULL : payload, payload_len, tag));
	ck_assert_uint_eq(tag[FANIN_TAG_LEN], 0x5a);
	ck_assert_uint_eq(((const uint8_t *)&hdr)[FLAGS_OFFSET] & 8, 8);
	expected_code(SECRET, label, INSTANCE, &hdr, payload, payload_len, tag, code);
	ck_assert_mem_eq(tag + FANIN_TAG_NONCE_LEN, code, sizeof(code));
	ck_assert(fanin_tagger_open(tagger, direction, INSTANCE, &hdr,
				    payload_len == 0 ? NULL : payload, payload_len, tag));
	ck_assert_mem_eq(&hdr, &before, sizeof(hdr));
}

START_TEST(tags_are_a_nonce_and_poly1305_aes)
{
	const enum fanin_tag_direction direction = _i == 0 ? FANIN_TAG_UP : FANIN_TAG_DOWN;

	for (unsigned int alignment = 0; alignment < 8; alignment++) {
		for (uint32_t len = 0; len <= 200; len++)
			expect_layout(direction, len, alignment);
		for (unsigned int i = 0; i < sizeof(lengths_beyond) / sizeof(lengths_beyond[0]);
		     i++)
			expect_layout(direction, lengths_beyond[i], alignment);
	}
}
END_TEST

/* A sealed packet with everything that its tag depends on. */
struct sealed {
	struct fanin_hdr hdr;
	uint8_t payload[40];
	uint8_t tag[FANIN_TAG_LEN];
} __attribute__((packed));

static void
sealed_make(struct sealed *sealed, unsigned int type, uint64_t instance)
{
	sealed->hdr = make_header(type);
	fill(sealed->payload, sizeof(sealed->payload));
	ck_assert(fanin_tagger_seal(tagger, FANIN_TAG_DOWN, instance, &sealed->hdr, sealed->payload,
				    sizeof(sealed->payload), sealed->tag));
}

static bool
sealed_open(struct fanin_tagger *opener, enum fanin_tag_direction direction, uint64_t instance,
	    struct sealed *sealed)
{
	return fanin_tagger_open(opener, direction, instance, &sealed->hdr, sealed->payload,
				 sizeof(sealed->payload), sealed->tag);
}

START_TEST(no_bit_of_a_packet_can_be_changed)
{
	struct sealed sealed, changed, before;

	sealed_make(&sealed, types[_i], INSTANCE);
	for (size_t bit = 0; bit < 8 * sizeof(sealed); bit++) {
		changed = sealed;
		((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		before = changed;
		ck_assert_msg(!sealed_open(tagger, FANIN_TAG_DOWN, INSTANCE, &changed), "bit %zu",
			      bit);
		ck_assert_mem_eq(&changed, &before, sizeof(before));
	}
	ck_assert(sealed_open(tagger, FANIN_TAG_DOWN, INSTANCE, &sealed));
	/* Opening has removed the flag. */
	ck_assert(!sealed_open(tagger, FANIN_TAG_DOWN, INSTANCE, &sealed));
}
END_TEST

START_TEST(tags_are_of_one_direction_instance_and_secret)
{
	struct fanin_tagger *other, *same;
	struct sealed sealed, before;

	ck_assert_int_eq(fanin_tagger_create(SECRET + 1, &other), 0);
	ck_assert_int_eq(fanin_tagger_create(SECRET, &same), 0);
	sealed_make(&sealed, FANIN_TYPE_RESULT, INSTANCE);
	before = sealed;
	ck_assert(!sealed_open(same, FANIN_TAG_UP, INSTANCE, &sealed));
	for (unsigned int bit = 0; bit < 64; bit++)
		ck_assert(
			!sealed_open(same, FANIN_TAG_DOWN, INSTANCE ^ UINT64_C(1) << bit, &sealed));
	ck_assert(!sealed_open(other, FANIN_TAG_DOWN, INSTANCE, &sealed));
	ck_assert_mem_eq(&sealed, &before, sizeof(before));
	ck_assert(sealed_open(same, FANIN_TAG_DOWN, INSTANCE, &sealed));
	fanin_tagger_destroy(other);
	fanin_tagger_destroy(same);
	fanin_tagger_destroy(NULL);
}
END_TEST

START_TEST(only_packets_of_joining_and_leaving_have_no_instance)
{
	const uint8_t type = types[_i];
	const bool without = type == FANIN_TYPE_JOIN || type == FANIN_TYPE_JOIN_ACK ||
			     type == FANIN_TYPE_LEAVE || type == FANIN_TYPE_LEAVE_ACK ||
			     type == FANIN_TYPE_REFUSED;
	struct sealed sealed;
	uint8_t code[FANIN_TAG_CODE_LEN];

	ck_assert(fanin_tag_has_instance(type) == !without);
	sealed_make(&sealed, type, INSTANCE);
	expected_code(SECRET, "fanin tag down", without ? 0 : INSTANCE, &sealed.hdr, sealed.payload,
		      sizeof(sealed.payload), sealed.tag, code);
	ck_assert_mem_eq(sealed.tag + FANIN_TAG_NONCE_LEN, code, sizeof(code));
	ck_assert(sealed_open(tagger, FANIN_TAG_DOWN, INSTANCE + 1, &sealed) == without);
}
END_TEST

START_TEST(a_nonce_is_never_used_twice)
{
	enum {
		TAGGERS = 8,
		PACKETS = 100
	};
	static uint8_t nonces[TAGGERS * PACKETS][FANIN_TAG_NONCE_LEN];
	struct fanin_tagger *taggers[TAGGERS];
	unsigned int n = 0;

	for (unsigned int t = 0; t < TAGGERS; t++)
		ck_assert_int_eq(fanin_tagger_create(SECRET, &taggers[t]), 0);
	for (unsigned int p = 0; p < PACKETS; p++) {
		for (unsigned int t = 0; t < TAGGERS; t++) {
			const enum fanin_tag_direction direction = p % 2 == 0 ? FANIN_TAG_UP
									      : FANIN_TAG_DOWN;
			struct fanin_hdr hdr = { .type = FANIN_TYPE_QUERY };
			uint8_t tag[FANIN_TAG_LEN];

			ck_assert(fanin_tagger_seal(taggers[t], direction, 0, &hdr, NULL, 0, tag));
			memcpy(nonces[n++], tag, FANIN_TAG_NONCE_LEN);
		}
	}
	for (unsigned int i = 0; i < n; i++) {
		for (unsigned int j = 0; j < i; j++)
			ck_assert_mem_ne(nonces[i], nonces[j], FANIN_TAG_NONCE_LEN);
	}
	for (unsigned int t = 0; t < TAGGERS; t++)
		fanin_tagger_destroy(taggers[t]);
}
END_TEST

/* ------------------------------------------------------------------ frames */

struct frame {
	struct fanin_headers headers;
	uint8_t payload[LONGEST + FANIN_TAG_LEN];
} __attribute__((packed));

static void
frame_make(struct frame *frame, uint32_t payload_len)
{
	static const struct fanin_flow flow = {
		.dst_mac = { 2, 0, 0, 0, 0, 1 },
		.src_mac = { 2, 0, 0, 0, 0, 2 },
		.dst_ip_be = 0xfe004d0a,
		.src_ip_be = 0x01004d0a,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.src_port = 49152,
	};

	fill(frame, sizeof(*frame));
	fanin_wire_encode_l4(&frame->headers, &flow, payload_len);
	fanin_wire_encode_header(&frame->headers.fanin, FANIN_TYPE_RESULT, 7, 3, SECRET);
	frame->headers.fanin.dtype = FANIN_WIRE_U8;
	frame->headers.fanin.op = FANIN_WIRE_SUM;
	frame->headers.fanin.count = (uint16_t)payload_len;
	frame->headers.fanin.contributions = 2;
}

START_TEST(frames_are_as_before_once_they_are_opened)
{
	static struct frame frame, before;

	for (uint32_t len = 0; len <= LONGEST; len += len < 200 ? 1 : LONGEST - 200) {
		frame_make(&frame, len);
		before = frame;
		ck_assert(fanin_tagger_seal_frame(tagger, FANIN_TAG_UP, INSTANCE, &frame.headers));
		ck_assert_uint_eq(fanin_wire_payload_len(&frame.headers), len + FANIN_TAG_LEN);
		ck_assert_uint_eq(fanin_ip_checksum(&frame.headers.ip), 0);
		ck_assert_mem_eq(frame.payload, before.payload, len);
		ck_assert_mem_eq(frame.payload + len + FANIN_TAG_LEN,
				 before.payload + len + FANIN_TAG_LEN, LONGEST - len);
		/* The frame does not count as one without a tag. */
		ck_assert_int_eq(fanin_wire_validate(&frame, sizeof(frame)), FANIN_REASON_FLAGS);
		ck_assert(fanin_tagger_open_frame(tagger, FANIN_TAG_UP, INSTANCE, &frame.headers));
		ck_assert_mem_eq(&frame.headers, &before.headers, sizeof(frame.headers));
		ck_assert_int_eq(fanin_wire_validate(&frame, sizeof(frame)), FANIN_REASON_NONE);
	}
}
END_TEST

START_TEST(frames_that_are_cut_short_are_refused)
{
	static struct frame frame, cut;

	frame_make(&frame, 64);
	ck_assert(fanin_tagger_seal_frame(tagger, FANIN_TAG_UP, INSTANCE, &frame.headers));
	for (uint32_t len = 0; len < 64 + FANIN_TAG_LEN; len++) {
		cut = frame;
		fanin_wire_set_payload_len(&cut.headers, len);
		ck_assert(!fanin_tagger_open_frame(tagger, FANIN_TAG_UP, INSTANCE, &cut.headers));
		ck_assert_uint_eq(fanin_wire_payload_len(&cut.headers), len);
		ck_assert_uint_eq(cut.headers.fanin.flags, FANIN_FLAG_TAGGED);
	}
	/* A UDP length that is too short even for the headers. */
	for (uint16_t len = 0; len < FANIN_UDP_LEN + FANIN_HDR_LEN; len++) {
		cut = frame;
		cut.headers.udp.len_be = __builtin_bswap16(len);
		ck_assert(!fanin_tagger_open_frame(tagger, FANIN_TAG_UP, INSTANCE, &cut.headers));
	}
	ck_assert(fanin_tagger_open_frame(tagger, FANIN_TAG_UP, INSTANCE, &frame.headers));
}
END_TEST

START_TEST(no_bit_of_a_frames_header_and_payload_can_be_changed)
{
	static struct frame frame, changed, before;
	const size_t first = 8 * offsetof(struct fanin_headers, fanin);
	const size_t end = 8 * (FANIN_PAYLOAD_OFFSET + 24 + FANIN_TAG_LEN);

	frame_make(&frame, 24);
	ck_assert(fanin_tagger_seal_frame(tagger, FANIN_TAG_DOWN, INSTANCE, &frame.headers));
	for (size_t bit = first; bit < end; bit++) {
		changed = frame;
		((uint8_t *)&changed)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		before = changed;
		ck_assert_msg(!fanin_tagger_open_frame(tagger, FANIN_TAG_DOWN, INSTANCE,
						       &changed.headers),
			      "bit %zu", bit);
		ck_assert_mem_eq(&changed, &before, sizeof(before));
	}
}
END_TEST

Suite *
suite_tag(void)
{
	Suite *suite = suite_create("tag");
	TCase *tags = tcase_create("tags");
	TCase *frames = tcase_create("frames");

	tcase_add_checked_fixture(tags, setup, teardown);
	tcase_add_checked_fixture(frames, setup, teardown);
	tcase_set_timeout(tags, 300);
	tcase_set_timeout(frames, 300);
	tcase_add_test(tags, the_reference_is_that_of_the_paper);
	tcase_add_loop_test(tags, tags_are_a_nonce_and_poly1305_aes, 0, 2);
	tcase_add_loop_test(tags, no_bit_of_a_packet_can_be_changed, 0, N_TYPES);
	tcase_add_test(tags, tags_are_of_one_direction_instance_and_secret);
	tcase_add_loop_test(tags, only_packets_of_joining_and_leaving_have_no_instance, 0, N_TYPES);
	tcase_add_test(tags, a_nonce_is_never_used_twice);
	suite_add_tcase(suite, tags);
	tcase_add_test(frames, frames_are_as_before_once_they_are_opened);
	tcase_add_test(frames, frames_that_are_cut_short_are_refused);
	tcase_add_test(frames, no_bit_of_a_frames_header_and_payload_can_be_changed);
	suite_add_tcase(suite, frames);
	return suite;
}
