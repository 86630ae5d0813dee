/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine in a job with tags, among strangers who see all frames and send any others: only
 * packets that the switch has sealed in this life count, and no other packet reaches the caller's
 * memory.
 */
#include "tests/unit/engine_world.h"
#include "tests/unit/suites.h"

static const uint16_t sizes[] = { 1, 2, 3, 8 };
static const uint32_t counts[] = { 0, 1, ELEMENTS, 1000, 5 * WINDOW *ELEMENTS };

#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))
#define N_COUNTS (sizeof(counts) / sizeof(counts[0]))
#define BLOCKS 6

static struct world *
tagged_world(uint16_t n_ranks, bool recover)
{
	struct world *world;

	world_tagged = true;
	world = world_create_of(n_ranks, WINDOW, 0, recover);
	world_tagged = false;
	return world;
}

static uint64_t
invalid(const struct world *world, uint16_t rank)
{
	return fanin_engine_stats(world->engines[rank])->invalid;
}

START_TEST(every_rank_gets_the_sum_of_all)
{
	struct world *world = tagged_world(sizes[_i % N_SIZES], false);
	const bool lossy = _i >= N_SIZES;

	world->random = random_seed((uint64_t)_i);
	world->loss = lossy ? 0.1 : 0;
	world->duplication = lossy ? 0.1 : 0;
	world->reordering = lossy ? 0.2 : 0;
	for (uint32_t i = 0; i < N_COUNTS; i++)
		allreduce_expect(world, counts[i], i, (i & 1) != 0);
	for (uint16_t rank = 0; rank < world->n_ranks && !lossy; rank++)
		ck_assert_uint_eq(invalid(world, rank), 0);
	ck_assert_uint_eq(world->wrong_tags, 0);
	world_destroy(world);
}
END_TEST

/* Kinds of frames that claim to come from the switch. */
enum forgery {
	FORGERY_CODE,
	FORGERY_NONCE,
	FORGERY_PAYLOAD,
	FORGERY_UNTAGGED,
	FORGERY_SECRET,
	FORGERY_DIRECTION, /* a rank's own tag, sent back */
	FORGERY_INSTANCE,
	FORGERY_CUT,    /* the lengths don't count the tag */
	FORGERY_SHORT,  /* shorter than a tag */
	FORGERY_LENGTH, /* the length is larger than the frame */
	FORGERY_TINY,   /* without headers */
	FORGERIES
};

/* Forges a result from a sealed packet, with elements plus one. Key and addresses are right. */
static void
forge(struct packet *packet, const struct packet *sealed, enum forgery forgery)
{
	static const enum forgery sealed_anew[] = { FORGERY_SECRET, FORGERY_DIRECTION,
						    FORGERY_INSTANCE };
	struct fanin_headers *headers = (struct fanin_headers *)packet->data;
	struct fanin_tagger *tagger = NULL;

	*packet = *sealed;
	if (forgery == FORGERY_CODE)
		packet->data[packet->len - 1] ^= 0x80;
	if (forgery == FORGERY_NONCE)
		packet->data[packet->len - FANIN_TAG_LEN] ^= 1;
	if (forgery != FORGERY_CODE && forgery != FORGERY_NONCE)
		packet->data[FANIN_PAYLOAD_OFFSET]++;
	for (unsigned int i = 0; i < sizeof(sealed_anew) / sizeof(sealed_anew[0]); i++) {
		if (forgery != sealed_anew[i])
			continue;
		packet->len -= FANIN_TAG_LEN;
		fanin_wire_set_payload_len(headers, packet->len - FANIN_PAYLOAD_OFFSET);
		ck_assert_int_eq(fanin_tagger_create(SECRET + (forgery == FORGERY_SECRET), &tagger),
				 0);
		packet_seal(packet, tagger,
			    forgery == FORGERY_DIRECTION ? FANIN_TAG_UP : FANIN_TAG_DOWN,
			    INSTANCE + (forgery == FORGERY_INSTANCE));
		fanin_tagger_destroy(tagger);
	}
	if (forgery == FORGERY_UNTAGGED) {
		packet->len -= FANIN_TAG_LEN;
		headers->fanin.flags = 0;
	}
	if (forgery == FORGERY_CUT)
		packet->len -= FANIN_TAG_LEN;
	if (forgery == FORGERY_SHORT)
		packet->len = FANIN_PAYLOAD_OFFSET + FANIN_TAG_LEN - 1;
	if (forgery != FORGERY_LENGTH && forgery != FORGERY_TINY)
		fanin_wire_set_payload_len(headers, packet->len - FANIN_PAYLOAD_OFFSET);
	if (forgery == FORGERY_LENGTH)
		fanin_wire_set_payload_len(headers, packet->len - FANIN_PAYLOAD_OFFSET + 1);
	if (forgery == FORGERY_TINY)
		packet->len = FANIN_PAYLOAD_OFFSET - 1;
}

/* Makes the switch's result for a block, with these elements. */
static void
result_seal(const struct world *world, struct packet *packet, uint32_t block, uint32_t count,
	    const uint32_t *elements)
{
	const struct slot slot = {
		.op = FANIN_WIRE_SUM,
		.block = block,
		.count = (uint16_t)count,
	};
	struct fanin_headers headers;

	result_make(world, &slot, &headers);
	packet_make(packet, &headers, elements, count * 4);
	packet_seal(packet, world->tagger, FANIN_TAG_DOWN, world->instance);
}

START_TEST(forged_results_change_nothing)
{
	static const uint32_t elements[ELEMENTS] = { 4711 };
	struct world *world = tagged_world(2, false);
	struct collective collective;
	uint32_t before[BLOCKS * ELEMENTS + 1];
	struct packet sealed, forged;

	collective_prepare(&collective, BLOCKS * ELEMENTS, 9);
	collective_post(&collective, world, 0, true);
	memcpy(before, collective.send[0], sizeof(before));
	world_step(world);
	for (uint32_t block = 0; block < BLOCKS; block++) {
		result_seal(world, &sealed, block, ELEMENTS, elements);
		forge(&forged, &sealed, (enum forgery)_i);
		link_pass(&world->links[0], &forged);
	}
	world_step(world);
	ck_assert_uint_eq(invalid(world, 0), BLOCKS);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_uint_eq(collective.requests[0].done_blocks, 0);
	ck_assert_mem_eq(collective.recv[0], before, sizeof(before));
	collective_post(&collective, world, 1, true);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	ck_assert_uint_eq(invalid(world, 0), BLOCKS);
	world_destroy(world);
}
END_TEST

/* Without a forgery the packet is accepted, so the tests of forgeries forge only what they say. */
START_TEST(packets_sealed_by_the_switch_are_accepted)
{
	static const uint32_t elements[ELEMENTS] = { 4711, 1 };
	struct world *world = tagged_world(2, false);
	struct collective collective;
	struct packet sealed;

	collective_prepare(&collective, ELEMENTS, 9);
	collective_post(&collective, world, 0, true);
	world_step(world);
	result_seal(world, &sealed, 0, ELEMENTS, elements);
	link_pass(&world->links[0], &sealed);
	world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_OK);
	ck_assert_mem_eq(collective.recv[0], elements, sizeof(elements));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * A stranger keeps the switch's packets. The switch's next life has a run with the same number, and
 * its blocks begin at 0 again.
 */
START_TEST(results_of_an_earlier_life_change_nothing)
{
	struct world *world = tagged_world(2, true);
	struct collective first, second;
	struct packet kept[BLOCKS];
	uint32_t n_kept = 0;
	uint64_t before;

	collective_prepare(&first, BLOCKS * ELEMENTS, 1);
	collective_post_all(&first, world, false);
	while (n_kept < BLOCKS) {
		struct link *link = &world->links[0];

		world_step(world);
		for (; link->head != link->tail; link->head++) {
			const struct packet *packet = &link->queue[link->head % QUEUE_LEN];
			const struct fanin_headers *headers =
				(const struct fanin_headers *)packet->data;

			if (headers->fanin.type == FANIN_TYPE_RESULT && n_kept < BLOCKS)
				kept[n_kept++] = *packet;
		}
	}
	collective_run(&first, world);
	collective_expect(&first, world);

	lose_run(world);
	collective_prepare(&second, BLOCKS * ELEMENTS, 5000);
	collective_post_all(&second, world, true);
	for (unsigned int i = 0; fanin_engine_stats(world->engines[0])->resumed == 0; i++) {
		ck_assert_uint_lt(i, 100000);
		world_step(world);
		resume_if_all_know(world);
	}
	ck_assert_uint_gt(world->wrong_tags, 0);
	/* The ranks have sent nothing in their new run yet. */
	fanin_engine_poll(world->engines[0]);
	before = invalid(world, 0);
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const struct fanin_hdr *hdr = &((const struct fanin_headers *)kept[i].data)->fanin;

		ck_assert_uint_eq(hdr->epoch, world->epoch);
		ck_assert_uint_lt(hdr->block, BLOCKS);
		link_pass(&world->links[0], &kept[i]);
	}
	fanin_engine_poll(world->engines[0]);
	ck_assert_uint_eq(invalid(world, 0) - before, BLOCKS);
	ck_assert_uint_eq(second.requests[0].done_blocks, 0);
	collective_run(&second, world);
	collective_expect(&second, world);
	world_destroy(world);
}
END_TEST

/* Packets of strangers who have overheard the keys of both directions. */
START_TEST(refusals_and_answers_without_a_tag_change_nothing)
{
	static const enum fanin_reason reasons[] = { FANIN_REASON_MISMATCH, FANIN_REASON_EPOCH,
						     FANIN_REASON_NOT_ACTIVE, FANIN_REASON_SIZE };
	const struct answer_words body = answer_words_make(3, UINT64_MAX, 0);
	struct world *world = tagged_world(2, true);
	struct collective collective;
	struct fanin_headers headers;
	struct packet packet;

	collective_prepare(&collective, 100, 3);
	collective_post(&collective, world, 0, true);
	world_step(world);
	for (unsigned int i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		for (uint32_t epoch = 0; epoch <= EPOCH; epoch += EPOCH) {
			answer_make(world, &headers, FANIN_TYPE_REFUSED, 0, 0);
			headers.fanin.epoch = epoch;
			headers.fanin.count = (uint16_t)reasons[i];
			packet_make(&packet, &headers, NULL, 0);
			link_pass(&world->links[0], &packet);
		}
	}
	answer_make(world, &headers, FANIN_TYPE_ANSWER, 0, sizeof(body));
	headers.fanin.count = FANIN_BLOCK_OPEN;
	headers.fanin.number = 1;
	packet_make(&packet, &headers, &body, sizeof(body));
	link_pass(&world->links[0], &packet);
	world_step(world);
	ck_assert(!fanin_engine_run_lost(world->engines[0]));
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_uint_eq(world_missing(world->engines[0]), 0);
	ck_assert_uint_eq(invalid(world, 0), 9);
	collective_post(&collective, world, 1, true);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/* Waits for slightly longer than a refused packet without a tag is in doubt. */
static void
wait_in_doubt(struct world *world)
{
	for (uint64_t begun_ns = world->now_ns;
	     world->now_ns - begun_ns <= TIMEOUT_NS / 5 + STEP_NS;)
		world_step(world);
}

/*
 * They may be the switch's, which has no tag for an unknown sender: they count if the switch sends
 * nothing else.
 */
START_TEST(refusals_of_unknown_senders_need_no_tag)
{
	static const enum fanin_reason reasons[] = { FANIN_REASON_TAG, FANIN_REASON_JOB };
	const struct fanin_hdr sent = { .epoch = EPOCH };
	const bool recover = _i % 2 == 0;
	struct world *world = tagged_world(1, recover);
	struct collective collective;

	world->silent = true;
	collective_prepare(&collective, 10, 3);
	collective_post(&collective, world, 0, false);
	world_step(world);
	refuse_untagged(&world->links[0], &sent, reasons[_i / 2]);
	world_step(world);
	ck_assert_uint_eq(invalid(world, 0), 0);
	ck_assert(!fanin_engine_run_lost(world->engines[0]));
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	wait_in_doubt(world);
	if (recover) {
		ck_assert(fanin_engine_run_lost(world->engines[0]));
	} else {
		ck_assert_int_eq(collective.requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(fanin_engine_error(world->engines[0])->text,
					     fanin_reason_text(reasons[_i / 2])));
	}
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/* A rank that waits for nothing sends no query, and loses nothing. */
START_TEST(a_refusal_while_a_rank_is_idle_ends_nothing)
{
	const struct fanin_hdr sent = { .epoch = EPOCH };
	struct world *world = tagged_world(2, _i != 0);
	struct collective collective;

	refuse_untagged(&world->links[0], &sent, FANIN_REASON_JOB);
	wait_in_doubt(world);
	collective_prepare(&collective, 10, 3);
	for (uint16_t rank = 0; rank < 2; rank++)
		collective_post(&collective, world, rank, true);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/* A stranger may send the same refusal. The switch answers the query with a tag. */
START_TEST(a_switch_that_answers_has_refused_nothing)
{
	const struct fanin_hdr sent = { .epoch = EPOCH };
	struct world *world = tagged_world(2, _i != 0);
	struct collective collective;

	collective_prepare(&collective, 10, 3);
	collective_post(&collective, world, 0, true);
	world_step(world);
	for (int i = 0; i < 3; i++) {
		refuse_untagged(&world->links[0], &sent, FANIN_REASON_JOB);
		wait_in_doubt(world);
	}
	ck_assert(!fanin_engine_run_lost(world->engines[0]));
	collective_post(&collective, world, 1, true);
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

/* The next collective shows whether the refusal was true. */
START_TEST(a_rank_with_nothing_to_send_is_refused_nothing)
{
	const struct fanin_hdr sent = { .epoch = EPOCH };
	struct world *world = tagged_world(1, _i != 0);

	allreduce_expect(world, 10, 3, true);
	refuse_untagged(&world->links[0], &sent, FANIN_REASON_KEY);
	wait_in_doubt(world);
	allreduce_expect(world, 10, 4, true);
	ck_assert(!fanin_engine_run_lost(world->engines[0]));
	world_destroy(world);
}
END_TEST

/* A suspected run has no effect on the next run, nor on the wait for it. */
START_TEST(a_doubt_ends_with_its_run)
{
	const struct fanin_hdr sent = { .epoch = EPOCH };
	struct world *world = tagged_world(1, true);
	struct fanin_endpoint *engine = world->engines[0];
	struct collective collective;

	world->silent = true;
	collective_prepare(&collective, 10, 3);
	collective_post(&collective, world, 0, false);
	world_step(world);
	refuse_untagged(&world->links[0], &sent, FANIN_REASON_KEY);
	world_step(world);
	fanin_engine_move(engine, &world->links[0].memory.transport);
	if (_i == 0)
		wait_in_doubt(world);
	else
		world->now_ns += TIMEOUT_NS / 5 + STEP_NS;
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_int_eq(fanin_engine_resume(engine, world->epoch, world->instance,
					     fanin_engine_progress(engine)),
			 FANIN_OK);
	/* The switch answers late. */
	for (int i = 0; i < 3; i++)
		world_step(world);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert(!fanin_engine_run_lost(engine));
	world->silent = false;
	collective_run(&collective, world);
	collective_expect(&collective, world);
	world_destroy(world);
}
END_TEST

START_TEST(tagged_packets_are_invalid_in_a_job_without_tags)
{
	static const uint32_t elements[ELEMENTS] = { 4711 };
	struct world *world = world_create(1);
	struct collective collective;
	struct packet sealed;

	ck_assert_int_eq(fanin_tagger_create(SECRET, &world->tagger), 0);
	world->silent = true;
	collective_prepare(&collective, ELEMENTS, 3);
	collective_post(&collective, world, 0, false);
	result_seal(world, &sealed, 0, ELEMENTS, elements);
	fanin_tagger_destroy(world->tagger);
	world->tagger = NULL;
	world_step(world);
	link_pass(&world->links[0], &sealed);
	world_step(world);
	ck_assert_uint_eq(invalid(world, 0), 1);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

/*
 * ------------------------------------------------------------------ frames that are not there yet
 */

/* A link that shows the headers of one frame, and hands over another one. */
static struct {
	struct fanin_transport_ops ops;
	struct fanin_headers shown;
	struct packet there;
	uint32_t len;
	bool pending;
} later;

static unsigned int
later_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	(void)transport;
	(void)max;
	if (!later.pending)
		return 0;
	later.pending = false;
	frames[0] = (struct fanin_frame){
		.data = &later.shown,
		.len = later.len,
		.headers_only = true,
	};
	return 1;
}

static bool
later_copy(struct fanin_transport *transport, const struct fanin_frame *frame, uint32_t offset,
	   void *to, uint32_t len)
{
	(void)transport;
	(void)frame;
	ck_assert_uint_le(offset + len, later.there.len);
	memcpy(to, later.there.data + offset, len);
	return true;
}

static void
later_show(struct world *world, const struct fanin_headers *shown, const struct packet *there,
	   uint32_t len)
{
	struct fanin_transport *transport = &world->links[0].memory.transport;

	later.ops = *transport->ops;
	later.ops.rx_burst = later_burst;
	later.ops.rx_copy = later_copy;
	transport->ops = &later.ops;
	later.shown = *shown;
	later.there = *there;
	later.len = len;
	later.pending = true;
	world_step(world);
	ck_assert(!later.pending);
}

START_TEST(only_the_opened_frame_counts)
{
	static const uint32_t elements[ELEMENTS] = { 4711 };
	struct world *world = tagged_world(2, false);
	struct collective collective;
	struct packet sealed, forged;
	struct fanin_headers other;
	uint32_t before[ELEMENTS];

	collective_prepare(&collective, ELEMENTS, 9);
	collective_post(&collective, world, 0, true);
	memcpy(before, collective.send[0], sizeof(before));
	world_step(world);
	result_seal(world, &sealed, 0, ELEMENTS, elements);
	forge(&forged, &sealed, FORGERY_PAYLOAD);
	later_show(world, (const struct fanin_headers *)sealed.data, &forged, sealed.len);
	ck_assert_uint_eq(invalid(world, 0), 1);
	/* The frame is longer than any packet of the job, and is not even fetched. */
	later_show(world, (const struct fanin_headers *)sealed.data, &sealed, UINT32_MAX);
	ck_assert_uint_eq(invalid(world, 0), 2);
	ck_assert_int_eq(collective.requests[0].status, FANIN_IN_PROGRESS);
	ck_assert_mem_eq(collective.recv[0], before, sizeof(before));
	/* The headers that were shown belong to no packet. */
	memset(&other, 0x55, sizeof(other));
	later_show(world, &other, &sealed, sealed.len);
	ck_assert_uint_eq(invalid(world, 0), 2);
	ck_assert_int_eq(collective.requests[0].status, FANIN_OK);
	ck_assert_mem_eq(collective.recv[0], elements, sizeof(elements));
	collective_free(&collective, world);
	world_destroy(world);
}
END_TEST

Suite *
suite_engine_tags(void)
{
	Suite *suite = suite_create("engine_tags");
	TCase *exact = tcase_create("exact");
	TCase *forged = tcase_create("forged");

	tcase_set_timeout(exact, 300);
	tcase_set_timeout(forged, 300);
	tcase_add_loop_test(exact, every_rank_gets_the_sum_of_all, 0, 5 * N_SIZES);
	suite_add_tcase(suite, exact);
	tcase_add_loop_test(forged, forged_results_change_nothing, 0, FORGERIES);
	tcase_add_test(forged, packets_sealed_by_the_switch_are_accepted);
	tcase_add_test(forged, results_of_an_earlier_life_change_nothing);
	tcase_add_test(forged, refusals_and_answers_without_a_tag_change_nothing);
	tcase_add_loop_test(forged, a_refusal_while_a_rank_is_idle_ends_nothing, 0, 2);
	tcase_add_loop_test(forged, a_switch_that_answers_has_refused_nothing, 0, 2);
	tcase_add_loop_test(forged, refusals_of_unknown_senders_need_no_tag, 0, 4);
	tcase_add_loop_test(forged, a_rank_with_nothing_to_send_is_refused_nothing, 0, 2);
	tcase_add_loop_test(forged, a_doubt_ends_with_its_run, 0, 2);
	tcase_add_test(forged, tagged_packets_are_invalid_in_a_job_without_tags);
	tcase_add_test(forged, only_the_opened_frame_counts);
	suite_add_tcase(suite, forged);
	return suite;
}
