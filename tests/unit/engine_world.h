/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A world for tests of the engine: all ranks of a job in one process, on links made of memory,
 * around a switch that adds i32. Links lose, duplicate and reorder packets by a seeded generator,
 * and only the test moves the clock. To be included by one test file.
 */
#ifndef FANIN_TESTS_UNIT_ENGINE_WORLD_H
#define FANIN_TESTS_UNIT_ENGINE_WORLD_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/cc/cc.h"
#include "hostlib/src/protocol/split.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/memory_link.h"
#include "lab/reference/random.h"

#define MAX_RANKS 16
#ifndef WINDOW
#define WINDOW 64
#endif
#define PAYLOAD 64
#define MAX_PAYLOAD 128 /* an answer's body */
#define ELEMENTS (PAYLOAD / 4)
#define FRAME_LEN (FANIN_PAYLOAD_OFFSET + MAX_PAYLOAD + FANIN_TAG_LEN)
#ifndef QUEUE_LEN
#define QUEUE_LEN 1024
#endif
#define JOB 7
#define EPOCH 3u
#define SWITCH_MAC                                                                                 \
	{                                                                                          \
		2, 0, 0, 0, 0, 0xfe                                                                \
	}
#define SWITCH_IP_BE 0xfe00000au
#define UP_KEY 0xfeedu
#define DOWN_KEY 0xbeefu
#define SECRET 0x5eedu
#define INSTANCE 0x1234u
#define STEP_NS 50000
#define TIMEOUT_NS (5 * 1000000000ull)

struct packet {
	uint32_t len;
	uint8_t data[FRAME_LEN];
};

struct world;

/*
 * One rank's link: packets that it builds go to the switch at once, and packets of the switch wait
 * here.
 */
struct link {
	struct memory_link memory; /* first: a pointer to it is one to the link */
	struct world *world;
	uint16_t rank;
	struct packet queue[QUEUE_LEN];
	uint32_t head;
	uint32_t tail;
	uint32_t first_sent; /* block of the first contribution */
	uint32_t sent;       /* contributions */
	uint32_t queries;
	bool holds;       /* hands over only as many frames as `passing` says */
	uint32_t passing; /* in frames; counts down */
};

struct slot {
	bool used;
	bool done;
	uint32_t block;
	uint64_t members;
	uint8_t op;
	uint16_t root;
	uint16_t count;
	uint32_t acc[ELEMENTS];
};

struct world {
	uint64_t now_ns;
	uint16_t n_ranks;
	uint32_t epoch;
	uint64_t instance;           /* of the switch */
	struct fanin_tagger *tagger; /* of the switch; NULL: packets have no tags */
	struct fanin_tagger *taggers[MAX_RANKS];
	uint32_t wrong_tags; /* contributions and queries without a valid tag */
	bool silent;         /* the switch takes everything and answers nothing */
	bool shared_port;    /* each rank also gets results for others, of a block with an owner */
	uint32_t told_by_owners; /* results of blocks with owners that are known from an earlier run
				  */
	bool far;                /* answers come from further up, and are about one block */
	uint32_t drop_next;      /* contributions that are lost first, before any random loss */
	uint64_t cut;            /* ranks whose contributions are all lost; their queries pass */
	uint64_t ended;          /* ranks whose processes have ended */
	uint64_t mute;           /* ranks that don't answer probes */
	uint64_t watch_ns; /* when an overdue query first came: probes are sent from then on; 0: not
			      yet */
	double loss, duplication, reordering;
	struct random random;
	struct slot slots[2 * WINDOW];
	struct link links[MAX_RANKS];
	struct fanin_endpoint *engines[MAX_RANKS];
};

/* Congestion control of the engines that are made next; NULL: the default. */
static const struct fanin_cc_type *world_cc;
/* Their longest wait for late ranks; 0: no limit. */
static uint64_t world_wait_limit_ns;
/* Their packets have tags. */
static bool world_tagged;
/* They assume a switch with several workers. */
static bool world_spread;

/* ---------------------------------------------------------------- switch */

/* Passes any packet on. */
static void
link_pass(struct link *link, const struct packet *packet)
{
	struct world *world = link->world;

	if (random_chance(&world->random, world->loss))
		return;
	for (int copies = random_chance(&world->random, world->duplication) ? 2 : 1; copies > 0;
	     copies--) {
		struct packet *last = &link->queue[link->tail % QUEUE_LEN];

		ck_assert_uint_lt(link->tail - link->head, QUEUE_LEN);
		last->len = packet->len;
		memcpy(last->data, packet->data, packet->len);
		if (link->tail != link->head && random_chance(&world->random, world->reordering)) {
			struct packet *before = &link->queue[(link->tail - 1) % QUEUE_LEN];
			struct packet swapped = *before;

			*before = *last;
			*last = swapped;
		}
		link->tail++;
	}
}

static void
packet_make(struct packet *packet, const struct fanin_headers *headers, const void *payload,
	    uint32_t payload_len)
{
	packet->len = FANIN_PAYLOAD_OFFSET + payload_len;
	memcpy(packet->data, headers, FANIN_PAYLOAD_OFFSET);
	if (payload_len != 0)
		memcpy(packet->data + FANIN_PAYLOAD_OFFSET, payload, payload_len);
}

/* Adds a tag, if there is a tagger. */
static void
packet_seal(struct packet *packet, struct fanin_tagger *tagger, enum fanin_tag_direction direction,
	    uint64_t instance)
{
	if (tagger == NULL)
		return;
	ck_assert(fanin_tagger_seal_frame(tagger, direction, instance,
					  (struct fanin_headers *)packet->data));
	packet->len += FANIN_TAG_LEN;
}

/* Delivers a packet of the switch. */
static void
link_deliver(struct link *link, const struct fanin_headers *headers, const void *payload,
	     uint32_t payload_len)
{
	struct world *world = link->world;
	struct packet packet;

	packet_make(&packet, headers, payload, payload_len);
	packet_seal(&packet, world->tagger, FANIN_TAG_DOWN, world->instance);
	link_pass(link, &packet);
}

static void
answer_make(const struct world *world, struct fanin_headers *headers, enum fanin_type type,
	    uint32_t block, uint32_t payload_len)
{
	const struct fanin_flow flow = {
		.src_mac = SWITCH_MAC,
		.src_ip_be = SWITCH_IP_BE,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
	};

	fanin_wire_encode_l4(headers, &flow, payload_len);
	fanin_wire_encode_header(&headers->fanin, type, JOB, world->epoch, DOWN_KEY);
	headers->fanin.block = block;
}

/* Returns a packet as REFUSED. */
static void
refuse(struct link *link, const struct fanin_hdr *hdr, enum fanin_reason reason)
{
	struct fanin_headers headers;

	answer_make(link->world, &headers, FANIN_TYPE_REFUSED, hdr->block, 0);
	headers.fanin.epoch = hdr->epoch;
	headers.fanin.count = (uint16_t)reason;
	link_deliver(link, &headers, NULL, 0);
}

/*
 * Refuses a sender without a valid tag, which the switch does not know: the answer has the sender's
 * own key, and no tag.
 */
static void
refuse_untagged(struct link *link, const struct fanin_hdr *hdr, enum fanin_reason reason)
{
	struct fanin_headers headers;
	struct packet packet;

	answer_make(link->world, &headers, FANIN_TYPE_REFUSED, hdr->block, 0);
	headers.fanin.epoch = hdr->epoch;
	headers.fanin.key = UP_KEY;
	headers.fanin.count = (uint16_t)reason;
	packet_make(&packet, &headers, NULL, 0);
	link_pass(link, &packet);
}

static void
result_make(const struct world *world, const struct slot *slot, struct fanin_headers *headers)
{
	answer_make(world, headers, FANIN_TYPE_RESULT, slot->block, slot->count * 4u);
	headers->fanin.contributions = world->n_ranks;
	headers->fanin.dtype = FANIN_WIRE_I32;
	headers->fanin.op = slot->op;
	headers->fanin.root = slot->root;
	headers->fanin.count = slot->count;
}

/* Delivers a result, with or without its elements. */
static void
result_deliver(struct link *link, const struct slot *slot, bool is_empty)
{
	struct fanin_headers result;

	result_make(link->world, slot, &result);
	if (is_empty) {
		fanin_wire_set_payload_len(&result, 0);
		result.fanin.flags |= FANIN_FLAG_EMPTY;
	}
	link_deliver(link, &result, slot->acc, is_empty ? 0 : slot->count * 4u);
}

/*
 * Sends a rank its result, which has no elements if another rank owns the block. On shared ports
 * the rank gets the others' results, too.
 */
static void
result_send(struct link *link, const struct slot *slot)
{
	const bool is_owned = fanin_root_is_owner(slot->root);
	const bool is_empty = is_owned && fanin_root_rank(slot->root) != link->rank;

	if (is_owned && link->world->shared_port)
		result_deliver(link, slot, !is_empty);
	result_deliver(link, slot, is_empty);
}

static void
slot_finish(struct world *world, struct slot *slot)
{
	slot->done = true;
	for (uint16_t i = 0; i < world->n_ranks; i++)
		result_send(&world->links[i], slot);
}

/* Adds a contribution for a slot's block that its rank has not made before. */
static void
slot_add(struct world *world, struct slot *slot, struct link *link,
	 const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	uint32_t elements[ELEMENTS];

	if (slot->members == 0) {
		slot->op = hdr->op;
		slot->root = hdr->root;
		slot->count = hdr->count;
		memset(slot->acc, 0, sizeof(slot->acc));
	} else if (slot->op != hdr->op || slot->root != hdr->root || slot->count != hdr->count) {
		refuse(link, hdr, FANIN_REASON_MISMATCH);
		return;
	}
	memcpy(elements, headers + 1, hdr->count * 4u);
	for (uint32_t i = 0; i < hdr->count; i++)
		slot->acc[i] += elements[i];
	slot->members |= 1ull << link->rank;
	if (__builtin_popcountll(slot->members) < world->n_ranks)
		return;
	slot_finish(world, slot);
}

/* Returns the state of a block for a rank, as protocols/dense/switch/dense_query.c does. */
static enum fanin_block_state
block_state(const struct world *world, uint16_t rank, uint32_t block)
{
	const struct slot *slot = &world->slots[block % (2 * WINDOW)];

	if (!slot->used || fanin_block_before(slot->block, block))
		return FANIN_BLOCK_ABSENT;
	if (slot->block != block || slot->done)
		return FANIN_BLOCK_DONE;
	return (slot->members >> rank & 1) != 0 ? FANIN_BLOCK_OPEN : FANIN_BLOCK_ABSENT;
}

/* Answers a query or, with number 0, a repeated contribution. */
static void
answer(struct world *world, struct link *link, const struct fanin_hdr *hdr)
{
	const struct slot *slot = &world->slots[hdr->block % (2 * WINDOW)];
	const enum fanin_block_state state = block_state(world, link->rank, hdr->block);
	struct fanin_headers headers;
	struct answer_words said;
	uint64_t missing = 0;

	answer_make(world, &headers, FANIN_TYPE_ANSWER, hdr->block, sizeof(said));
	headers.fanin.count = (uint16_t)state;
	headers.fanin.number = hdr->number;
	headers.fanin.rank = link->rank;
	if (slot->used && slot->block == hdr->block && !slot->done)
		missing = (UINT64_MAX >> (64 - world->n_ranks)) & ~slot->members;
	said = answer_words_make(missing, world->ended, world->mute);
	if (hdr->type == FANIN_TYPE_QUERY) {
		said.body.n_blocks = world->far ? 0 : WINDOW;
		for (uint32_t i = 0; i < WINDOW; i++)
			fanin_answer_set_state(&said.body, i,
					       block_state(world, link->rank, hdr->block + i));
	}
	link_deliver(link, &headers, &said, sizeof(said));
}

/* Returns the ranks that an engine misses, as a bitmap. */
static inline uint64_t
world_missing(struct fanin_endpoint *engine)
{
	struct fanin_ranks ranks;

	fanin_engine_missing(engine, &ranks);
	return ranks.words[0];
}

/* Returns the missing ranks that the engine knows to be merely late. */
static inline uint64_t
world_late(struct fanin_endpoint *engine)
{
	struct fanin_ranks ranks;

	fanin_engine_late(engine, &ranks);
	return ranks.words[0];
}

/* A query never changes a slot. */
static void
switch_answer_query(struct world *world, struct link *link, const struct fanin_hdr *hdr)
{
	const struct slot *slot = &world->slots[hdr->block % (2 * WINDOW)];

	link->queries++;
	if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0 && slot->used && slot->done &&
	    slot->block == hdr->block)
		result_send(link, slot);
	answer(world, link, hdr);
}

/* Handles a rank's result of the block from an earlier run. */
static void
slot_take_known(struct world *world, struct slot *slot, struct link *link,
		const struct fanin_headers *headers)
{
	if (fanin_root_is_owner(headers->fanin.root)) {
		ck_assert_uint_eq(fanin_root_rank(headers->fanin.root), link->rank);
		ck_assert(!fanin_wire_is_empty(&headers->fanin));
		world->told_by_owners++;
	}
	slot->op = headers->fanin.op;
	slot->root = headers->fanin.root;
	slot->count = headers->fanin.count;
	slot->members |= 1ull << link->rank;
	memcpy(slot->acc, headers + 1, slot->count * 4u);
	slot_finish(world, slot);
}

/* Removes the tag. Returns the length of the rest; 0: the tag is wrong. */
static uint32_t
tag_take(struct world *world, struct packet *packet)
{
	struct fanin_headers *headers = (struct fanin_headers *)packet->data;

	ck_assert_uint_eq(FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(headers), packet->len);
	if (!fanin_tagger_open_frame(world->tagger, FANIN_TAG_UP, world->instance, headers))
		return 0;
	return packet->len - FANIN_TAG_LEN;
}

static void
switch_receive(struct world *world, struct link *link, const struct fanin_headers *headers,
	       uint32_t len)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	struct slot *slot = &world->slots[hdr->block % (2 * WINDOW)];

	ck_assert_int_eq(fanin_wire_validate(headers, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(hdr->rank, link->rank);
	if (world->silent)
		return;
	if (hdr->epoch != world->epoch) {
		refuse(link, hdr, FANIN_REASON_EPOCH);
		return;
	}
	if (hdr->type == FANIN_TYPE_QUERY) {
		if ((hdr->flags & FANIN_FLAG_RETRANSMIT) != 0 && world->watch_ns == 0)
			world->watch_ns = world->now_ns;
		switch_answer_query(world, link, hdr);
		return;
	}
	if (!slot->used || fanin_block_before(slot->block, hdr->block)) {
		/* The reliability contract: a slot is only reused once no rank needs it. */
		ck_assert(!slot->used || slot->done);
		*slot = (struct slot){ .used = true, .block = hdr->block };
	}
	if (slot->block != hdr->block) {
		refuse(link, hdr, FANIN_REASON_BLOCK_STALE);
	} else if (hdr->type == FANIN_TYPE_KNOWN && !slot->done) {
		ck_assert_uint_eq(hdr->contributions, world->n_ranks);
		slot_take_known(world, slot, link, headers);
	} else if ((slot->members >> link->rank & 1) == 0 && !slot->done) {
		ck_assert_uint_eq(hdr->contributions, 1);
		slot_add(world, slot, link, headers);
	} else if ((hdr->flags & FANIN_FLAG_RETRANSMIT) == 0) {
		/* Duplicates that the network has made are not answered. */
	} else if (slot->done) {
		result_send(link, slot);
	} else {
		answer(world, link, hdr);
	}
}

/* ----------------------------------------------------------------- links */

static void
link_put(struct memory_link *memory, const void *frame, uint32_t len)
{
	struct link *link = (struct link *)memory;
	struct world *world = link->world;
	const struct fanin_headers *headers = frame;
	struct packet opened;

	if (headers->fanin.type != FANIN_TYPE_QUERY && link->sent++ == 0)
		link->first_sent = headers->fanin.block;
	if (world->drop_next != 0 && headers->fanin.type != FANIN_TYPE_QUERY) {
		world->drop_next--;
		return;
	}
	if ((world->cut >> link->rank & 1) != 0 && headers->fanin.type != FANIN_TYPE_QUERY)
		return;
	if (random_chance(&world->random, world->loss))
		return;
	if (world->tagger != NULL) {
		opened.len = len;
		ck_assert_uint_le(len, sizeof(opened.data));
		memcpy(opened.data, frame, len);
		len = tag_take(world, &opened);
		if (len == 0) {
			world->wrong_tags++;
			refuse_untagged(link, &headers->fanin, FANIN_REASON_TAG);
			return;
		}
		headers = (const struct fanin_headers *)opened.data;
	}
	switch_receive(world, link, headers, len);
	if (random_chance(&world->random, world->duplication))
		switch_receive(world, link, headers, len);
}

static size_t
link_take(struct memory_link *memory, void *frame)
{
	struct link *link = (struct link *)memory;
	const struct packet *packet = &link->queue[link->head % QUEUE_LEN];

	if (link->head == link->tail || (link->holds && link->passing == 0))
		return 0;
	if (link->holds)
		link->passing--;
	link->head++;
	memcpy(frame, packet->data, packet->len);
	return packet->len;
}

/* ----------------------------------------------------------------- world */

static uint64_t
world_now(void *arg)
{
	return ((struct world *)arg)->now_ns;
}

static struct world *
world_create_of(uint16_t n_ranks, uint16_t window, uint32_t first_block, bool recover)
{
	struct world *world = calloc(1, sizeof(*world));

	ck_assert_ptr_nonnull(world);
	world->n_ranks = n_ranks;
	world->epoch = EPOCH;
	world->instance = INSTANCE;
	if (world_tagged)
		ck_assert_int_eq(fanin_tagger_create(SECRET, &world->tagger), 0);
	world->now_ns = 1000000000;
	world->random = random_seed(1);
	for (uint16_t i = 0; i < n_ranks; i++) {
		struct fanin_protocol_config config = {
			.flow = {
				.dst_mac = SWITCH_MAC,
				.dst_ip_be = SWITCH_IP_BE,
				.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
			},
			.keys = { .up = UP_KEY, .down = DOWN_KEY },
			.instance = INSTANCE,
			.timeout_ns = TIMEOUT_NS,
			.job = JOB,
			.epoch = EPOCH,
			.first_block = first_block,
			.rank = i,
			.size = n_ranks,
			.window = window,
			.payload_bytes = PAYLOAD,
			.cc = world_cc != NULL ? world_cc : &fanin_cc_fixed,
			.wait_limit_ns = world_wait_limit_ns,
			.spread = world_spread,
			.stagger = true,
			.recover = recover,
			.now_ns = world_now,
			.now_arg = world,
		};

		struct fanin_error error = { 0 };

		if (world_tagged)
			ck_assert_int_eq(fanin_tagger_create(SECRET, &world->taggers[i]), 0);
		config.tagger = world->taggers[i];
		memory_link_init(&world->links[i].memory, link_put, link_take);
		world->links[i].world = world;
		world->links[i].rank = i;
		config.transport = &world->links[i].memory.transport;
		ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config,
						   &world->engines[i], &error),
				 0);
	}
	return world;
}

static inline struct world *
world_create_at(uint16_t n_ranks, uint16_t window, uint32_t first_block)
{
	return world_create_of(n_ranks, window, first_block, false);
}

static inline struct world *
world_create(uint16_t n_ranks)
{
	return world_create_at(n_ranks, WINDOW, 0);
}

static void
world_destroy(struct world *world)
{
	for (uint16_t i = 0; i < world->n_ranks; i++) {
		fanin_engine_close(world->engines[i]);
		fanin_tagger_destroy(world->taggers[i]);
	}
	fanin_tagger_destroy(world->tagger);
	free(world);
}

static void
world_step(struct world *world)
{
	world->now_ns += STEP_NS;
	for (uint16_t i = 0; i < world->n_ranks; i++)
		fanin_engine_poll(world->engines[i]);
}

static inline uint64_t
retransmits(const struct world *world)
{
	uint64_t sum = 0;

	for (uint16_t i = 0; i < world->n_ranks; i++)
		sum += fanin_engine_stats(world->engines[i])->retransmits;
	return sum;
}

/* The switch tells a rank that the job has no run. */
static inline void
notify(struct world *world, uint16_t rank)
{
	struct fanin_headers notice;

	answer_make(world, &notice, FANIN_TYPE_REFUSED, 0, 0);
	notice.fanin.epoch = 0;
	notice.fanin.count = FANIN_REASON_NOT_ACTIVE;
	link_deliver(&world->links[rank], &notice, NULL, 0);
}

/*
 * The switch and the links forget everything. A switch with tags becomes another one, whose runs
 * may have the same numbers.
 */
static inline void
lose_run(struct world *world)
{
	memset(world->slots, 0, sizeof(world->slots));
	if (world->tagger != NULL)
		world->instance++;
	else
		world->epoch++;
	for (uint16_t i = 0; i < world->n_ranks; i++)
		world->links[i].head = world->links[i].tail;
}

/*
 * Makes the ranks join again once all have noticed the loss. While only some have noticed it, the
 * others are told now and then.
 */
static inline void
resume_if_all_know(struct world *world)
{
	uint32_t first = 0;
	unsigned int n_lost = 0;

	for (uint16_t i = 0; i < world->n_ranks; i++)
		n_lost += fanin_engine_run_lost(world->engines[i]);
	for (uint16_t i = 0; n_lost != 0 && i < world->n_ranks; i++) {
		if (random_chance(&world->random, 0.1))
			notify(world, i);
	}

	for (uint16_t i = 0; i < world->n_ranks; i++) {
		uint32_t progress = fanin_engine_progress(world->engines[i]);

		if (!fanin_engine_run_lost(world->engines[i]))
			return;
		if (i == 0 || fanin_block_before(progress, first))
			first = progress;
	}
	for (uint16_t i = 0; i < world->n_ranks; i++)
		ck_assert_int_eq(fanin_engine_resume(world->engines[i], world->epoch,
						     world->instance, first),
				 FANIN_OK);
}

/*
 * A collective of all ranks, an allreduce by default: rank r sends (r + 1) * (tag + i) at index i.
 */
struct collective {
	uint32_t count; /* of a REDUCE_SCATTER: as many for each rank as fit into this */
	uint32_t tag;
	uint16_t root;              /* for a REDUCE */
	enum fanin_collective kind; /* a kind that combines */
	uint32_t *send[MAX_RANKS];
	uint32_t *recv[MAX_RANKS];
	struct fanin_request requests[MAX_RANKS];
};

static void
collective_prepare(struct collective *collective, uint32_t count, uint32_t tag)
{
	*collective = (struct collective){ .count = count, .tag = tag };
}

/* The elements that a rank keeps. */
struct collective_part {
	uint32_t first;
	uint32_t n;
};

static struct collective_part
collective_part(const struct collective *collective, uint16_t rank, uint16_t n_ranks)
{
	const uint32_t each = collective->count / n_ranks;

	if (collective->kind == FANIN_COLLECTIVE_REDUCE_SCATTER)
		return (struct collective_part){ rank * each, each };
	if (collective->kind == FANIN_COLLECTIVE_REDUCE && collective->root != rank)
		return (struct collective_part){ 0 };
	return (struct collective_part){ 0, collective->count };
}

/*
 * Fills in one rank's request, which is not posted. recv: has room for the whole vector, of which
 * the rank keeps a part.
 */
static struct fanin_request *
collective_fill_of(struct collective *collective, uint16_t rank, uint16_t n_ranks, bool in_place)
{
	const struct collective_part part = collective_part(collective, rank, n_ranks);
	struct fanin_request *request = &collective->requests[rank];
	uint32_t *send = calloc(collective->count + 1, sizeof(*send));
	uint32_t *recv = in_place ? send : calloc(collective->count + 1, sizeof(*recv));

	for (uint32_t i = 0; i < collective->count; i++)
		send[i] = (rank + 1u) * (collective->tag + i);
	recv[collective->count] = 0xdeadbeef;
	collective->send[rank] = send;
	collective->recv[rank] = recv;
	*request = (struct fanin_request){
		.send = (const uint8_t *)send,
		.recv = (uint8_t *)(recv + part.first),
		.collective = (uint8_t)collective->kind,
		.root = collective->root,
		.dtype = FANIN_WIRE_I32,
		.op = FANIN_WIRE_SUM,
	};
	return request;
}

static inline struct fanin_request *
collective_fill(struct collective *collective, uint16_t rank, bool in_place)
{
	ck_assert_int_eq(collective->kind, FANIN_COLLECTIVE_ALLREDUCE);
	return collective_fill_of(collective, rank, 1, in_place);
}

/*
 * Checks that this rank has the part that it keeps, and that the rest is unchanged. The request is
 * done.
 */
static inline void
collective_check(const struct collective *collective, uint16_t rank, uint16_t n_ranks)
{
	const struct collective_part part = collective_part(collective, rank, n_ranks);
	const uint32_t factor = n_ranks * (n_ranks + 1u) / 2;
	const bool in_place = collective->send[rank] == collective->recv[rank];

	for (uint32_t i = 0; i < collective->count; i++) {
		const uint32_t value = collective->tag + i;

		ck_assert_uint_eq(collective->recv[rank][i], i - part.first < part.n
								     ? factor * value
							     : in_place ? (rank + 1u) * value
									: 0);
	}
	ck_assert_uint_eq(collective->recv[rank][collective->count], 0xdeadbeef);
}

static inline void
collective_post(struct collective *collective, struct world *world, uint16_t rank, bool in_place)
{
	const uint32_t count = collective->kind == FANIN_COLLECTIVE_REDUCE_SCATTER
				       ? collective->count / world->n_ranks
				       : collective->count;

	ck_assert_int_eq(fanin_engine_post(world->engines[rank],
					   collective_fill_of(collective, rank, world->n_ranks,
							      in_place),
					   count),
			 FANIN_OK);
}

static inline void
collective_post_all(struct collective *collective, struct world *world, bool in_place)
{
	for (uint16_t i = 0; i < world->n_ranks; i++)
		collective_post(collective, world, i, in_place);
}

static bool
collective_done(const struct collective *collective, const struct world *world)
{
	for (uint16_t i = 0; i < world->n_ranks; i++) {
		if (collective->requests[i].status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Steps until the collective is done, at most for the engines' timeout without progress. */
static inline void
collective_run(const struct collective *collective, struct world *world)
{
	for (uint64_t step = 0; !collective_done(collective, world); step++) {
		ck_assert_uint_lt(step, 100 * TIMEOUT_NS / STEP_NS);
		world_step(world);
	}
}

static void
collective_free(struct collective *collective, const struct world *world)
{
	for (uint16_t i = 0; i < world->n_ranks; i++) {
		if (collective->recv[i] != collective->send[i])
			free(collective->recv[i]);
		free(collective->send[i]);
		fanin_split_free(&collective->requests[i]);
	}
}

static void
collective_expect(struct collective *collective, const struct world *world)
{
	uint32_t factor = world->n_ranks * (world->n_ranks + 1u) / 2;

	for (uint16_t rank = 0; rank < world->n_ranks; rank++) {
		ck_assert_int_eq(collective->requests[rank].status, FANIN_OK);
		ck_assert_uint_eq(fanin_split_done_bytes(&collective->requests[rank]),
				  collective->count * 4ull);
		for (uint32_t i = 0; i < collective->count; i++)
			ck_assert_uint_eq(collective->recv[rank][i],
					  factor * (collective->tag + i));
		ck_assert_uint_eq(collective->recv[rank][collective->count], 0xdeadbeef);
	}
	collective_free(collective, world);
}

static inline void
allreduce_expect(struct world *world, uint32_t count, uint32_t tag, bool in_place)
{
	struct collective collective;

	collective_prepare(&collective, count, tag);
	collective_post_all(&collective, world, in_place);
	collective_run(&collective, world);
	collective_expect(&collective, world);
}

#endif
