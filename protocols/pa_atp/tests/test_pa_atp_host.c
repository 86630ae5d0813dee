/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host protocol pa-atp, packet by packet: one host. The test plays its switch and server, and
 * moves its clock.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/host/pa_atp_internal.h"
#include "hostlib/src/protocol/protocol.h"
#include "lab/reference/random.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/suites.h"
#include "protocols/pa_atp/pa_atp.h"

#define JOB 7
#define EPOCH 3u
#define UP_KEY 0xfeedu
#define DOWN_KEY 0xbeefu
#define SWITCH_IP_BE 0xfe00000au
#define SWITCH_MAC                                                                                 \
	{                                                                                          \
		2, 0, 0, 0, 0, 0xfe                                                                \
	}
#define PAYLOAD 64
#define ELEMENTS (PAYLOAD / 4)
#define MAX_BLOCKS 3000
#define MS UINT64_C(1000000)
#define US UINT64_C(1000)
#define SECOND (1000 * MS)
#define QUEUE 4096
#define RANK 1
#define ECT_0 2
#define TYPES FANIN_DUAL_TYPES

enum {
	SYNC,
	ATP,
	STRAW,
	STRAW_PROGRESS,
	STRAW_LIMIT,
	PA_ATP
};

struct packet {
	uint64_t at_ns; /* when it may be taken */
	uint32_t len;
	union {
		struct fanin_headers headers;
		uint8_t bytes[512];
	};
};

struct queue {
	struct packet packets[QUEUE];
	uint32_t head;
	uint32_t tail;
};

static struct {
	struct memory_link link; /* the first: a pointer to it is one to the host */
	struct queue sent;
	struct queue coming;
	const struct fanin_protocol *protocol;
	struct fanin_protocol_config config;
	struct fanin_endpoint *engine;
	struct fanin_request request;
	uint64_t now_ns;
	uint32_t epoch;
	uint32_t base; /* block that the run's packets count as 0 */
	uint32_t data[MAX_BLOCKS * ELEMENTS];
	uint32_t result[MAX_BLOCKS * ELEMENTS];
	/* A world around the host, that answers by itself; see answer_all. */
	struct random random;
	double loss;
	bool have[MAX_BLOCKS]; /* the server has the host's gradient */
	uint64_t gack_ns;
	uint64_t result_ns;
} host;

/* ------------------------------------------------------------------ link */

static struct packet *
queue_put(struct queue *queue)
{
	struct packet *packet = &queue->packets[queue->tail % QUEUE];

	ck_assert_uint_lt(queue->tail - queue->head, QUEUE);
	queue->tail++;
	return packet;
}

static void
link_put(struct memory_link *link, const void *frame, uint32_t len)
{
	struct packet *packet = queue_put(&host.sent);
	const struct fanin_hdr *hdr = &packet->headers.fanin;

	(void)link;
	packet->at_ns = host.now_ns;
	packet->len = len;
	ck_assert_uint_le(len, sizeof(packet->bytes));
	memcpy(packet->bytes, frame, len);
	ck_assert_int_eq(fanin_wire_validate(&packet->headers, len), FANIN_REASON_NONE);
	ck_assert_uint_eq(hdr->rank, RANK);
	ck_assert_uint_eq(hdr->epoch, host.epoch);
	ck_assert_uint_eq(hdr->key, UP_KEY);
	if (hdr->type == FANIN_TYPE_CONTRIBUTION || hdr->type == FANIN_TYPE_PARTIAL) {
		/*
		 * Packets with gradients may be marked; the checksum was validated with the ECN
		 * bits.
		 */
		ck_assert_uint_eq(packet->headers.ip.tos, ECT_0);
		ck_assert_uint_eq(hdr->contributions, 1);
		ck_assert_uint_eq(hdr->members,
				  hdr->type == FANIN_TYPE_PARTIAL ? UINT64_C(1) << RANK : 0);
		ck_assert_uint_eq((hdr->flags & FANIN_FLAG_DIRECT) != 0,
				  hdr->type == FANIN_TYPE_PARTIAL);
	}
}

static size_t
link_take(struct memory_link *link, void *frame)
{
	const struct packet *packet = &host.coming.packets[host.coming.head % QUEUE];

	(void)link;
	if (host.coming.head == host.coming.tail || packet->at_ns > host.now_ns)
		return 0;
	host.coming.head++;
	memcpy(frame, packet->bytes, packet->len);
	return packet->len;
}

static uint64_t
host_clock(void *arg)
{
	(void)arg;
	return host.now_ns;
}

/* ------------------------------------------------------------------ host */

static uint16_t window = 64;
static uint16_t n_ranks = 2;
static uint32_t slots = 512;
static uint64_t fixed_window;
static bool spread;

static void
host_prepare(unsigned int type)
{
	char reason[FANIN_TEXT_LEN];

	memset(&host, 0, sizeof(host));
	host.now_ns = 10 * SECOND;
	host.epoch = EPOCH;
	host.random = random_seed(1);
	memory_link_init(&host.link, link_put, link_take);
	host.protocol = fanin_protocol_of("pa-atp", reason, sizeof(reason));
	ck_assert_str_eq(host.protocol->name, "pa-atp");
	host.config = (struct fanin_protocol_config){
		.flow = { .dst_mac = SWITCH_MAC,
			  .dst_ip_be = SWITCH_IP_BE,
			  .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT },
		.transport = &host.link.transport,
		.keys = { .up = UP_KEY, .down = DOWN_KEY },
		.timeout_ns = 5 * SECOND,
		.job = JOB,
		.epoch = EPOCH,
		.rank = RANK,
		.size = n_ranks,
		.window = window,
		.payload_bytes = PAYLOAD,
		.spread = spread,
		.stagger = true,
		.recover = true,
		.slots = slots,
		.sharing_jobs = 1,
		.parameters = { [FANIN_PA_ATP_CONGESTION] = type,
				[FANIN_PA_ATP_P_MAX] = 200,
				[FANIN_PA_ATP_FIXED_WINDOW] = fixed_window },
		.now_ns = host_clock,
	};
}

static void
host_open(unsigned int type)
{
	struct fanin_error error = { 0 };
	struct fanin_endpoint *engine = NULL;

	host_prepare(type);
	ck_assert_msg(host.protocol->open(host.protocol, &host.config, &engine, &error) == FANIN_OK,
		      "%s", error.text);
	host.engine = engine;
}

static void
host_close(void)
{
	host.protocol->close(host.engine);
}

static void
host_poll(void)
{
	host.protocol->poll(host.engine);
}

/*
 * Lets time pass, in steps of a hundredth or 10 us: longer ones would count as the caller's
 * absence.
 */
static void
host_pass(uint64_t ns)
{
	const uint64_t end_ns = host.now_ns + ns;
	const uint64_t step_ns = ns / 100 < 10 * US ? 10 * US : ns / 100 < MS ? ns / 100 : MS;

	while (host.now_ns < end_ns) {
		host.now_ns += end_ns - host.now_ns < step_ns ? end_ns - host.now_ns : step_ns;
		host_poll();
	}
}

/* The data is block * 1000 + index in it. */
static uint32_t
element(uint32_t block, uint32_t i)
{
	return block * 1000 + i;
}

static void
host_post(uint32_t n_blocks)
{
	for (uint32_t i = 0; i < n_blocks * ELEMENTS; i++)
		host.data[i] = element(i / ELEMENTS, i % ELEMENTS);
	host.request = (struct fanin_request){ .send = (const uint8_t *)host.data,
					       .recv = (uint8_t *)host.result,
					       .collective = FANIN_COLLECTIVE_ALLREDUCE,
					       .dtype = FANIN_WIRE_I32,
					       .op = FANIN_WIRE_SUM };
	ck_assert_int_eq(host.protocol->post(host.engine, &host.request,
					     (uint64_t)n_blocks * ELEMENTS),
			 FANIN_OK);
	host_poll();
}

/* Results are three times what this rank sends. */
static void
host_expect_done(uint32_t n_blocks)
{
	ck_assert_msg(host.request.status == FANIN_OK, "%s",
		      host.protocol->error(host.engine)->text);
	for (uint32_t i = 0; i < n_blocks * ELEMENTS; i++)
		ck_assert_uint_eq(host.result[i], 3 * host.data[i]);
}

/* The number of packets of a type sent since host_forget. */
static uint32_t
n_sent(enum fanin_type type)
{
	uint32_t n = 0;

	for (uint32_t i = host.sent.head; i != host.sent.tail; i++)
		n += host.sent.packets[i % QUEUE].headers.fanin.type == type;
	return n;
}

static uint32_t
n_sent_all(void)
{
	return host.sent.tail - host.sent.head;
}

static void
host_forget(void)
{
	host.sent.head = host.sent.tail;
}

/* The only packet sent since host_forget: type and block. Returns it. */
static const struct packet *
expect_one(enum fanin_type type, uint32_t block)
{
	const struct packet *packet = &host.sent.packets[host.sent.head % QUEUE];

	ck_assert_uint_eq(n_sent_all(), 1);
	ck_assert_uint_eq(packet->headers.fanin.type, type);
	ck_assert_uint_eq(packet->headers.fanin.block, block);
	host_forget();
	return packet;
}

static void
expect_elements(const struct packet *packet, uint32_t block)
{
	uint32_t elements[ELEMENTS];

	ck_assert_uint_eq(packet->len, FANIN_PAYLOAD_OFFSET + PAYLOAD);
	memcpy(elements, packet->bytes + FANIN_PAYLOAD_OFFSET, PAYLOAD);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		ck_assert_uint_eq(elements[i], element(block, i));
}

/* ------------------------------------------------------------------ switch and server */

static struct packet *
coming(enum fanin_type type, uint32_t block, uint32_t payload_len)
{
	const struct fanin_flow flow = { .src_mac = SWITCH_MAC,
					 .src_ip_be = SWITCH_IP_BE,
					 .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct packet *packet = queue_put(&host.coming);

	packet->at_ns = host.now_ns;
	packet->len = FANIN_PAYLOAD_OFFSET + payload_len;
	fanin_wire_encode_l4(&packet->headers, &flow, payload_len);
	fanin_wire_encode_header(&packet->headers.fanin, type, JOB, host.epoch, DOWN_KEY);
	packet->headers.fanin.block = block - host.base;
	return packet;
}

static void
give_gack(uint32_t block, uint64_t sum, uint16_t flags)
{
	struct packet *packet = coming(FANIN_TYPE_GACK, block, 0);

	packet->headers.fanin.count = RANK;
	packet->headers.fanin.members = sum;
	packet->headers.fanin.flags = flags;
}

/* All ranks are as far as this one. */
static void
gack(uint32_t block)
{
	give_gack(block, (uint64_t)n_ranks * (block + 1), 0);
	host_poll();
}

static struct packet *
give_result(enum fanin_type type, uint32_t block, uint16_t flags)
{
	struct packet *packet = coming(type, block, PAYLOAD);
	struct fanin_hdr *hdr = &packet->headers.fanin;
	uint32_t elements[ELEMENTS];

	for (uint32_t i = 0; i < ELEMENTS; i++)
		elements[i] = 3 * element(block, i);
	memcpy(packet->bytes + FANIN_PAYLOAD_OFFSET, elements, PAYLOAD);
	hdr->contributions = n_ranks;
	hdr->dtype = FANIN_WIRE_I32;
	hdr->op = FANIN_WIRE_SUM;
	hdr->count = ELEMENTS;
	hdr->flags = flags;
	return packet;
}

static void
result(uint32_t block)
{
	give_result(FANIN_TYPE_RESULT, block, 0);
	host_poll();
}

static void
ask(uint32_t block, uint64_t members)
{
	coming(FANIN_TYPE_ASK, block, 0)->headers.fanin.members = members;
	host_poll();
}

/* The server's answer to the query with this number. */
static void
answer(uint32_t block, uint32_t number, uint64_t missing, uint64_t ended)
{
	const struct answer_words words = answer_words_make(missing, ended, 0);
	struct packet *packet = coming(FANIN_TYPE_ANSWER, block, sizeof(words));

	packet->headers.fanin.rank = RANK;
	packet->headers.fanin.count = FANIN_BLOCK_OPEN;
	packet->headers.fanin.number = number;
	memcpy(packet->bytes + FANIN_PAYLOAD_OFFSET, &words, sizeof(words));
}

/*
 * Delays the packet that was put in last, and keeps the queue in the order of times; may lose it,
 * or double it.
 */
static void
last_delay(uint64_t ns)
{
	struct queue *queue = &host.coming;
	struct packet last;
	uint32_t i;

	queue->tail--;
	last = queue->packets[queue->tail % QUEUE];
	last.at_ns += ns;
	if (random_chance(&host.random, host.loss))
		return;
	for (int copies = random_chance(&host.random, host.loss) ? 2 : 1; copies > 0; copies--) {
		queue_put(queue);
		for (i = queue->tail - 1;
		     i != queue->head && queue->packets[(i - 1) % QUEUE].at_ns > last.at_ns; i--)
			queue->packets[i % QUEUE] = queue->packets[(i - 1) % QUEUE];
		queue->packets[i % QUEUE] = last;
		/* The copy comes at another time: packets overtake each other. */
		last.at_ns += random_below(&host.random, 100 * US);
	}
}

static uint64_t
delay_of(uint64_t ns)
{
	return host.loss == 0 ? ns : ns + random_below(&host.random, (uint32_t)ns);
}

/* The other ranks are always there: a block is complete with this rank's gradient. */
static void
server_take(uint32_t block)
{
	if (!host.have[block]) {
		host.have[block] = true;
		give_result(FANIN_TYPE_RESULT, block, 0);
		last_delay(delay_of(host.result_ns));
	}
}

static void
switch_take(const struct packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers.fanin;
	const uint32_t block = hdr->block + host.base;

	ck_assert_uint_lt(block, MAX_BLOCKS);
	switch (hdr->type) {
	case FANIN_TYPE_CONTRIBUTION:
		give_gack(block, (uint64_t)n_ranks * (block + 1), 0);
		last_delay(delay_of(host.gack_ns));
		server_take(block);
		break;
	case FANIN_TYPE_PARTIAL:
	case FANIN_TYPE_KNOWN:
		server_take(block);
		break;
	case FANIN_TYPE_QUERY:
		if (host.have[block]) {
			give_result(FANIN_TYPE_REPEAT, block, 0);
			last_delay(delay_of(host.result_ns));
			break;
		}
		coming(FANIN_TYPE_ASK, block, 0)->headers.fanin.members = 1 << RANK;
		last_delay(delay_of(host.result_ns));
		answer(block, hdr->number, 1 << RANK, 0);
		last_delay(delay_of(host.result_ns));
		break;
	default:
		ck_abort_msg("type %u", hdr->type);
	}
}

/* Switch and server answer what the host has sent. */
static void
answer_all(void)
{
	for (; host.sent.head != host.sent.tail; host.sent.head++) {
		if (!random_chance(&host.random, host.loss))
			switch_take(&host.sent.packets[host.sent.head % QUEUE]);
	}
}

/* Runs a sum in such a world. Returns how many contributions were sent. */
static uint32_t
sum_run(uint32_t n_blocks)
{
	uint32_t n = 0;

	host_post(n_blocks);
	for (unsigned int step = 0; host.request.status == FANIN_IN_PROGRESS; step++) {
		ck_assert_uint_lt(step, 3000000);
		n += n_sent(FANIN_TYPE_CONTRIBUTION);
		answer_all();
		host.now_ns += 5 * US;
		host_poll();
	}
	n += n_sent(FANIN_TYPE_CONTRIBUTION);
	host_expect_done(n_blocks);
	return n;
}

static const struct fanin_engine_stats *
stats(void)
{
	return fanin_engine_stats(host.engine);
}

static const struct fanin_pa_atp_stats *
own_stats(void)
{
	return fanin_pa_atp_stats(host.engine);
}

/* ------------------------------------------------------------------ tests */

/* By _i: the congestion control. */
START_TEST(without_loss_each_block_is_sent_once_and_nothing_else_is)
{
	host_open((unsigned int)_i);
	host.gack_ns = 20 * US;
	host.result_ns = 70 * US;
	ck_assert_uint_eq(sum_run(2000), 2000);
	ck_assert_uint_eq(stats()->frames_sent, 2000);
	ck_assert_uint_eq(stats()->retransmits, 0);
	ck_assert_uint_eq(stats()->queries, 0);
	ck_assert_uint_eq(own_stats()->asks_answered, 0);
	ck_assert_uint_eq(own_stats()->aacks, 2000);
	ck_assert_uint_eq(fanin_pa_atp_dual(host.engine)->losses, 0);
	host_close();
}
END_TEST

START_TEST(cwd_bounds_blocks_without_gack)
{
	host_open(STRAW);
	host_post(100);
	/* As DCTCP's first window. */
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 10);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 10);
	host_forget();
	/* Slow start: one for the block that has arrived, and one more. */
	gack(0);
	ck_assert_uint_eq(n_sent_all(), 2);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 11);
	/* Only the first one counts. */
	gack(0);
	ck_assert_uint_eq(n_sent_all(), 2);
	host_close();
}
END_TEST

START_TEST(an_aack_implies_the_gack)
{
	host_open(STRAW);
	host_post(100);
	host_forget();
	result(0);
	ck_assert_uint_eq(n_sent_all(), 1);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 10);
	gack(0);
	ck_assert_uint_eq(n_sent_all(), 1);
	ck_assert_uint_eq(own_stats()->gacks, 1);
	host_close();
}
END_TEST

/* By _i: sync, atp. */
START_TEST(some_windows_are_clocked_by_results)
{
	fixed_window = 5;
	host_open(_i == 0 ? SYNC : ATP);
	host_post(100);
	ck_assert_uint_eq(n_sent_all(), _i == 0 ? 5 : 10);
	host_forget();
	gack(0);
	gack(1);
	ck_assert_uint_eq(n_sent_all(), 0);
	result(0);
	ck_assert_uint_eq(n_sent_all(), _i == 0 ? 1 : 2);
	host_close();
}
END_TEST

START_TEST(awd_bounds_how_far_a_rank_is_ahead_of_results)
{
	slots = 4;
	host_open(PA_ATP);
	host_post(100);
	ck_assert_uint_eq(n_sent_all(), 4);
	for (uint32_t block = 0; block < 4; block++)
		gack(block);
	ck_assert_uint_eq(n_sent_all(), 4);
	/* A later result does not slide it, the oldest one does. */
	result(1);
	ck_assert_uint_eq(n_sent_all(), 4);
	result(0);
	ck_assert_uint_eq(n_sent_all(), 6);
	host_close();
}
END_TEST

START_TEST(no_block_is_sent_before_all_results_up_to_a_window_before_it)
{
	window = 8;
	host_open(STRAW);
	host_post(100);
	for (uint32_t block = 0; block < 8; block++)
		gack(block);
	for (uint32_t block = 1; block < 8; block++)
		result(block);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 8);
	result(0);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 16);
	host_close();
}
END_TEST

START_TEST(blocks_are_sent_in_order)
{
	host_open(STRAW);
	host_post(8);
	for (uint32_t block = 0; block < 8; block++)
		ck_assert_uint_eq(host.sent.packets[block].headers.fanin.block, block);
	host_close();
}
END_TEST

START_TEST(aecn_shrinks_awd_and_is_counted)
{
	slots = 16;
	host_open(PA_ATP);
	host_post(200);
	for (uint32_t block = 0; block < 40; block++) {
		gack(block);
		give_result(FANIN_TYPE_RESULT, block, FANIN_FLAG_AECN);
		host_poll();
	}
	ck_assert_uint_eq(own_stats()->aecns, 40);
	ck_assert_double_lt(fanin_pa_atp_dual(host.engine)->awd, 16);
	ck_assert_double_gt(fanin_pa_atp_dual(host.engine)->beta, 0);
	host_close();
}
END_TEST

/*
 * A gradient is marked, which cuts CWD; the other rank has sent so many blocks less. Returns CWD.
 */
static double
cwd_after_marks(unsigned int type, uint32_t behind)
{
	double cwd;

	host_open(type);
	host_post(400);
	for (uint32_t block = 0; block < 30; block++)
		gack(block);
	for (uint32_t block = 30; fanin_pa_atp_dual(host.engine)->cuts == 0; block++) {
		give_gack(block, 2 * (uint64_t)(block + 1) - behind,
			  block % 4 == 0 ? FANIN_FLAG_CE : 0);
		host_poll();
	}
	ck_assert_uint_eq(own_stats()->marks, 1);
	cwd = fanin_pa_atp_dual(host.engine)->cwd;
	host_close();
	return cwd;
}

START_TEST(the_sum_in_gacks_changes_the_cut)
{
	window = 512;
	slots = 512;
	/* It leads if the other one is behind: it cuts more. */
	ck_assert_double_lt(cwd_after_marks(PA_ATP, 20), cwd_after_marks(PA_ATP, 0));
	ck_assert_double_eq(cwd_after_marks(STRAW, 20), cwd_after_marks(STRAW, 0));
}
END_TEST

START_TEST(ranks_that_are_equally_far_have_a_progress_of_one)
{
	host_open(PA_ATP);
	host_post(100);
	gack(0);
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->p, 1);
	gack(1);
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->p, 1);
	/* The other rank has not sent that one: more than the average. */
	give_gack(2, 5, 0);
	host_poll();
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->p, 1.2);
	/* It is far ahead; what an earlier GACK says, that was overtaken, is no longer so. */
	give_gack(4, 5 + 15, 0);
	give_gack(3, 4, 0);
	host_poll();
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->p, 0.5);
	host_close();
}
END_TEST

/* Measures the round trip: it takes 1 ms, and results 2 ms. */
static void
measure(uint32_t n_blocks)
{
	host_post(n_blocks);
	for (uint32_t block = 0; block < 10; block++)
		give_gack(block, 2 * (block + 1), 0);
	host.now_ns += MS;
	host_poll();
	for (uint32_t block = 0; block < 10; block++)
		give_result(FANIN_TYPE_RESULT, block, 0);
	host.now_ns += MS;
	host_poll();
	host_forget();
}

START_TEST(a_lost_gack_alone_makes_the_host_send_nothing)
{
	host_open(STRAW);
	host_post(4);
	host_forget();
	for (uint32_t block = 1; block < 4; block++)
		gack(block);
	host_pass(MS);
	result(0);
	for (uint32_t block = 1; block < 4; block++)
		result(block);
	host_pass(SECOND);
	ck_assert_uint_eq(n_sent_all(), 0);
	host_expect_done(4);
	host_close();
}
END_TEST

START_TEST(a_gradient_without_gack_is_sent_again_after_a_timeout_and_later_each_time)
{
	uint64_t before_ns, waited_ns;

	host_open(STRAW);
	host_post(1);
	host_forget();
	before_ns = host.now_ns;
	while (n_sent_all() == 0)
		host_pass(100 * US);
	waited_ns = host.now_ns - before_ns;
	ck_assert_uint_ge(waited_ns, 20 * MS);
	ck_assert_uint_le(waited_ns, 21 * MS);
	ck_assert_uint_ne(expect_one(FANIN_TYPE_CONTRIBUTION, 0)->headers.fanin.flags &
				  FANIN_FLAG_RETRANSMIT,
			  0);
	host_pass(39 * MS);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 0);
	host_pass(2 * MS);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 1);
	ck_assert_uint_eq(stats()->retransmits, 2);
	ck_assert_uint_eq(fanin_pa_atp_dual(host.engine)->losses, 1);
	host_close();
}
END_TEST

/* In a queue of one's own round trips are all the same, until one packet more waits in it. */
START_TEST(a_round_trip_that_is_a_little_longer_is_no_loss)
{
	host_open(STRAW);
	host_post(1);
	for (uint32_t block = 0; block < 60; block++) {
		host_pass(block < 50 ? 5 * MS : 6 * MS);
		gack(block);
		result(block);
		host_post(1);
	}
	ck_assert_uint_eq(stats()->retransmits, 0);
	host_close();
}
END_TEST

/* A link that is away for a moment must not bring the whole window again. */
START_TEST(while_nothing_comes_back_only_the_oldest_gradient_is_sent_again)
{
	host_open(STRAW);
	host_post(10);
	host_forget();
	host_pass(25 * MS);
	expect_one(FANIN_TYPE_CONTRIBUTION, 0);
	/* It was the network, and all were lost. */
	gack(0);
	host_pass(10 * MS);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 9);
	host_close();
}
END_TEST

START_TEST(a_gap_of_three_results_brings_exactly_one_query)
{
	const struct packet *query;

	host_open(STRAW);
	measure(40);
	for (uint32_t block = 10; block < 20; block++)
		gack(block);
	host_forget();
	result(11);
	result(12);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 0);
	result(13);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 1);
	for (uint32_t block = 14; block < 20; block++)
		result(block);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 1);
	query = NULL;
	for (uint32_t i = host.sent.head; i != host.sent.tail; i++) {
		if (host.sent.packets[i % QUEUE].headers.fanin.type == FANIN_TYPE_QUERY)
			query = &host.sent.packets[i % QUEUE];
	}
	ck_assert_uint_eq(query->headers.fanin.block, 10);
	ck_assert_uint_ne(query->headers.fanin.flags & FANIN_FLAG_RETRANSMIT, 0);
	ck_assert_uint_eq(query->len, FANIN_PAYLOAD_OFFSET);
	ck_assert_uint_eq(stats()->retransmits, 0);
	/* The server repeats it. */
	give_result(FANIN_TYPE_REPEAT, 10, 0);
	host_poll();
	ck_assert_uint_eq(fanin_engine_progress(host.engine), 20);
	host_close();
}
END_TEST

/* By _i: the gap's block is the oldest, or one after it. */
START_TEST(a_gap_is_asked_for_once_there_is_room)
{
	const uint32_t lost = 10 + (uint32_t)_i;

	host_open(STRAW);
	measure(40);
	for (uint32_t block = 10; block < 20; block++)
		gack(block);
	result(lost + 1);
	result(lost + 2);
	host_forget();
	host.link.full = true;
	result(lost + 3);
	ck_assert_uint_eq(n_sent_all(), 0);
	host.link.full = false;
	host_pass(2 * MS);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 1 + (uint32_t)_i);
	for (uint32_t i = host.sent.head; i != host.sent.tail; i++) {
		if (host.sent.packets[i % QUEUE].headers.fanin.type == FANIN_TYPE_QUERY)
			ck_assert_uint_le(host.sent.packets[i % QUEUE].headers.fanin.block, lost);
	}
	host_close();
}
END_TEST

START_TEST(each_lost_result_is_asked_for)
{
	host_open(STRAW);
	measure(40);
	host_forget();
	for (uint32_t block = 10; block < 20; block++)
		gack(block);
	host_forget();
	for (uint32_t block = 10; block < 20; block++) {
		if (block != 11 && block != 14)
			result(block);
	}
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 2);
	host_close();
}
END_TEST

/* Blocks of different workers come in bursts. */
START_TEST(a_switch_with_several_workers_may_reorder_more)
{
	window = 64;
	spread = true;
	host_open(STRAW);
	measure(60);
	for (uint32_t block = 11; block < 18; block++)
		result(block);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 0);
	result(18);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_QUERY), 1);
	host_close();
}
END_TEST

START_TEST(the_last_result_is_asked_for_after_a_timeout)
{
	host_open(STRAW);
	measure(11);
	gack(10);
	host_pass(MS);
	ck_assert_uint_eq(n_sent_all(), 0);
	host_pass(10 * MS);
	expect_one(FANIN_TYPE_QUERY, 10);
	give_result(FANIN_TYPE_REPEAT, 10, 0);
	host_poll();
	host_expect_done(11);
	host_close();
}
END_TEST

/* By _i: the state of the host's gradient of block 10 when the server asks for it. */
START_TEST(asks_are_answered_if_the_gradient_has_arrived_or_is_lost)
{
	const struct packet *packet;
	bool answered = true;

	host_open(STRAW);
	measure(30);
	switch (_i) {
	case 0: /* it is on its way */
		answered = false;
		ask(10, 1 << RANK);
		break;
	case 1: /* the switch has it */
		gack(10);
		host_forget();
		ask(10, 1 << RANK | 1);
		break;
	case 2: /* it should have arrived long ago */
		host.now_ns += 4 * MS;
		ask(10, 1 << RANK);
		break;
	case 3: /* two later ones have come: it may be late */
		answered = false;
		gack(11);
		gack(12);
		host_forget();
		ask(10, 1 << RANK);
		break;
	case 4: /* three have */
		gack(11);
		gack(12);
		gack(13);
		host_forget();
		ask(10, 1 << RANK);
		break;
	case 5: /* others are asked */
		answered = false;
		gack(10);
		host_forget();
		ask(10, 1);
		break;
	case 6: /* its result is there */
		answered = false;
		gack(10);
		result(10);
		host_forget();
		ask(10, 1 << RANK);
		break;
	case 7: /* it was not sent yet */
		answered = false;
		ask(29, 1 << RANK);
		break;
	}
	ck_assert_uint_eq(own_stats()->asks_answered, answered);
	if (!answered) {
		ck_assert_uint_eq(n_sent_all(), 0);
	} else {
		packet = expect_one(FANIN_TYPE_PARTIAL, 10);
		expect_elements(packet, 10);
		/* One that had no GACK was lost. */
		ck_assert_uint_eq(fanin_pa_atp_dual(host.engine)->losses, _i != 1);
	}
	/* The header of contributions is not changed by it. */
	gack(10);
	result(10);
	host_pass(100 * MS);
	host_close();
}
END_TEST

START_TEST(duplicates_and_strays_change_nothing)
{
	uint64_t invalid;

	host_open(PA_ATP);
	host_post(20);
	for (uint32_t block = 0; block < 3; block++) {
		gack(block);
		gack(block);
	}
	host_forget();
	/* Another host's at the same port. */
	give_gack(3, 8, 0);
	host.coming.packets[(host.coming.tail - 1) % QUEUE].headers.fanin.count = 0;
	host_poll();
	/* Not sent yet, and never posted. */
	gack(19);
	gack(2000);
	ask(2000, ~UINT64_C(0));
	ck_assert_uint_eq(n_sent_all(), 0);
	ck_assert_uint_eq(own_stats()->gacks, 8);
	invalid = stats()->invalid;
	result(19);
	ck_assert_uint_eq(stats()->invalid, invalid + 1);
	for (uint32_t block = 0; block < 3; block++) {
		result(block);
		result(block);
		give_result(FANIN_TYPE_REPEAT, block, FANIN_FLAG_AECN);
		host_poll();
		gack(block);
	}
	ck_assert_uint_eq(stats()->duplicates, 6);
	ck_assert_uint_eq(own_stats()->aacks, 3);
	ck_assert_uint_eq(own_stats()->aecns, 0);
	/* Packet types that go up do not come down. */
	coming(FANIN_TYPE_PARTIAL, 3, 0);
	host_poll();
	ck_assert_uint_eq(stats()->retransmits + stats()->queries, 0);
	host_close();
}
END_TEST

/* By _i: the congestion control, and a seed. */
START_TEST(sums_are_exact_whatever_is_lost_doubled_or_reordered)
{
	window = _i % 4 == 0 ? 8 : 64;
	spread = _i % 5 == 0;
	host_open((unsigned int)_i % TYPES);
	host.random = random_seed((uint64_t)_i + 1);
	host.loss = _i % 3 == 0 ? 0.02 : _i % 3 == 1 ? 0.1 : 0.2;
	host.gack_ns = 20 * US;
	host.result_ns = 70 * US;
	sum_run(600);
	ck_assert_uint_gt(stats()->retransmits + stats()->queries, 0);
	host_close();
}
END_TEST

/* The server says to each query that it waits for rank 0. Returns how many there were. */
static uint32_t
wait_for_rank_0(uint64_t ns, uint64_t ended)
{
	const uint64_t end_ns = host.now_ns + ns;
	uint32_t n = 0;

	while (host.now_ns < end_ns && host.request.status == FANIN_IN_PROGRESS) {
		for (; host.sent.head != host.sent.tail; host.sent.head++) {
			const struct fanin_hdr *hdr =
				&host.sent.packets[host.sent.head % QUEUE].headers.fanin;

			ck_assert_uint_eq(hdr->type, FANIN_TYPE_QUERY);
			answer(hdr->block, hdr->number, 1, ended);
			n++;
		}
		host_pass(MS);
	}
	return n;
}

START_TEST(a_late_rank_is_waited_for)
{
	struct fanin_ranks missing;
	uint32_t n;

	host_open(PA_ATP);
	host_post(3);
	for (uint32_t block = 0; block < 3; block++)
		gack(block);
	host_forget();
	n = wait_for_rank_0(20 * SECOND, 0);
	ck_assert_int_eq(host.request.status, FANIN_IN_PROGRESS);
	/* Often enough to be told in time if it ends, and no more. */
	ck_assert_uint_ge(n, 10);
	ck_assert_uint_le(n, 40);
	host.protocol->missing(host.engine, &missing);
	ck_assert_uint_eq(missing.words[0], 1);
	ck_assert_uint_eq(stats()->retransmits, 0);
	for (uint32_t block = 0; block < 3; block++)
		result(block);
	host_expect_done(3);
	host_close();
}
END_TEST

START_TEST(a_rank_that_has_ended_is_named_in_time)
{
	uint64_t began_ns;

	host_open(PA_ATP);
	host_post(3);
	for (uint32_t block = 0; block < 3; block++)
		gack(block);
	host_forget();
	began_ns = host.now_ns;
	wait_for_rank_0(10 * SECOND, 1);
	ck_assert_int_eq(host.request.status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_le(host.now_ns - began_ns, 5100 * MS);
	ck_assert_ptr_nonnull(strstr(host.protocol->error(host.engine)->text,
				     "block 0 waits for rank 0 (of 2), which has ended"));
	host_close();
}
END_TEST

/* The late rank is there again, and one result is lost: the long intervals are over. */
START_TEST(a_gap_counts_although_the_block_was_asked_for_before)
{
	host_open(PA_ATP);
	host_post(10);
	for (uint32_t block = 0; block < 10; block++)
		gack(block);
	host_forget();
	wait_for_rank_0(20 * SECOND, 0);
	host_forget();
	result(1);
	result(2);
	ck_assert_uint_eq(n_sent_all(), 0);
	result(3);
	expect_one(FANIN_TYPE_QUERY, 0);
	host_close();
}
END_TEST

/*
 * It is an error as soon as packets are lost for so long, and is asked for often. By _i: the server
 * lacks the other rank's, too, as if large packets did not pass: each of the two would wait for the
 * other one.
 */
START_TEST(data_that_the_server_lacks_of_this_rank_is_not_late)
{
	struct fanin_ranks missing;
	uint64_t began_ns;
	uint32_t n = 0;

	host_open(PA_ATP);
	host_post(3);
	for (uint32_t block = 0; block < 3; block++)
		gack(block);
	host_forget();
	began_ns = host.now_ns;
	while (host.request.status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(host.now_ns - began_ns, 6 * SECOND);
		for (; host.sent.head != host.sent.tail; host.sent.head++) {
			const struct fanin_hdr *hdr =
				&host.sent.packets[host.sent.head % QUEUE].headers.fanin;

			ck_assert_uint_eq(hdr->type, FANIN_TYPE_QUERY);
			answer(hdr->block, hdr->number, _i == 0 ? 1 << RANK : 3, 0);
			n++;
		}
		host_pass(MS);
	}
	ck_assert_int_eq(host.request.status, FANIN_ERR_TIMEOUT);
	ck_assert_uint_ge(n, 40);
	host.protocol->missing(host.engine, &missing);
	ck_assert(fanin_ranks_is_empty(&missing));
	ck_assert_msg(strstr(host.protocol->error(host.engine)->text,
			     "the job's server lacks what this rank has sent of block 0") != NULL,
		      "%s", host.protocol->error(host.engine)->text);
	host_close();
}
END_TEST

/* By _i: the switch still acknowledges packets; nothing comes back at all. */
START_TEST(silent_peers_are_named)
{
	uint64_t began_ns;

	host_open(PA_ATP);
	host_post(3);
	for (uint32_t block = 0; block < 3; block++)
		gack(block);
	host_forget();
	began_ns = host.now_ns;
	while (host.request.status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(host.now_ns - began_ns, 6 * SECOND);
		for (; host.sent.head != host.sent.tail; host.sent.head++) {
			const struct fanin_hdr *hdr =
				&host.sent.packets[host.sent.head % QUEUE].headers.fanin;

			if (_i == 0 && hdr->type == FANIN_TYPE_CONTRIBUTION)
				give_gack(hdr->block, 6, 0);
		}
		host_pass(MS);
	}
	ck_assert_int_eq(host.request.status, FANIN_ERR_TIMEOUT);
	ck_assert_ptr_nonnull(
		strstr(host.protocol->error(host.engine)->text,
		       _i == 0 ? "the job's server does not answer, but the switch does (block 0"
			       : "the switch does not answer (block 0"));
	host_close();
}
END_TEST

/* The run is lost. The host has results 0 to 3 and 5; another rank has nothing. */
START_TEST(results_that_this_rank_knows_are_told_in_a_new_run)
{
	host_open(PA_ATP);
	host_post(8);
	for (uint32_t block = 0; block < 8; block++)
		gack(block);
	for (uint32_t block = 0; block < 6; block++) {
		if (block != 4)
			result(block);
	}
	host_forget();
	fanin_engine_suspect_run(host.engine);
	ck_assert(fanin_engine_run_lost(host.engine));
	host_pass(100 * MS);
	ck_assert_uint_eq(n_sent_all(), 0);
	host.epoch = EPOCH + 1;
	/* Packets of the previous run are not accepted. */
	ck_assert_int_eq(fanin_engine_resume(host.engine, host.epoch, 0, 0), FANIN_OK);
	host_poll();
	ck_assert_uint_eq(n_sent_all(), 8);
	for (uint32_t block = 0; block < 8; block++) {
		const struct packet *packet = &host.sent.packets[(host.sent.head + block) % QUEUE];
		const bool known = block < 4 || block == 5;

		ck_assert_uint_eq(packet->headers.fanin.block, block);
		ck_assert_uint_eq(packet->headers.fanin.progress, 0);
		ck_assert_uint_eq(packet->headers.fanin.type,
				  known ? FANIN_TYPE_KNOWN : FANIN_TYPE_CONTRIBUTION);
		ck_assert_uint_eq(packet->headers.fanin.contributions, known ? n_ranks : 1);
	}
	host_forget();
	/* The server lacks one: it is told again once it should be there. */
	ask(0, ~UINT64_C(0));
	ck_assert_uint_eq(n_sent_all(), 0);
	for (uint32_t block = 1; block < 8; block++)
		result(block);
	host_pass(21 * MS);
	expect_one(FANIN_TYPE_QUERY, 0);
	ask(0, ~UINT64_C(0));
	expect_one(FANIN_TYPE_KNOWN, 0);
	result(0);
	host_expect_done(8);
	ck_assert_uint_eq(stats()->resumed, 1);
	host_close();
}
END_TEST

/*
 * Another rank tells results that it knows, faster than this one's windows let it send the blocks.
 * By _i: this one knows them, too.
 */
START_TEST(results_of_blocks_that_are_not_sent_yet_count)
{
	host_open(PA_ATP);
	host_post(60);
	for (uint32_t block = 0; _i != 0 && block < 40; block++) {
		gack(block);
		result(block);
	}
	fanin_engine_suspect_run(host.engine);
	host.epoch = EPOCH + 1;
	ck_assert_int_eq(fanin_engine_resume(host.engine, host.epoch, 0, 0), FANIN_OK);
	host_forget();
	host_poll();
	ck_assert_uint_eq(n_sent(_i == 0 ? FANIN_TYPE_CONTRIBUTION : FANIN_TYPE_KNOWN), 10);
	/* Out of order, too; one of them does not come. */
	for (uint32_t block = 39; block >= 10; block--) {
		if (block != 20)
			give_result(FANIN_TYPE_RESULT, block, 0);
	}
	host_poll();
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 10);
	host_forget();
	for (uint32_t block = 0; block < 10; block++)
		give_result(FANIN_TYPE_RESULT, block, 0);
	host_poll();
	ck_assert_uint_eq(host.sent.packets[host.sent.head % QUEUE].headers.fanin.block, 20);
	ck_assert_uint_eq(host.sent.packets[host.sent.head % QUEUE].headers.fanin.progress, 20);
	ck_assert_uint_eq(host.sent.packets[(host.sent.head + 1) % QUEUE].headers.fanin.block, 40);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), n_sent_all());
	for (uint32_t block = 40; block < 60; block++) {
		gack(block);
		ck_assert_uint_ge(fanin_pa_atp_in_flight(host.engine), 1);
		result(block);
	}
	result(20);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 0);
	host_expect_done(60);
	host_forget();
	host_pass(SECOND);
	ck_assert_uint_eq(n_sent_all(), 0);
	host_close();
}
END_TEST

START_TEST(windows_begin_anew_in_a_new_run)
{
	host_open(STRAW);
	host_post(100);
	for (uint32_t block = 0; block < 5; block++)
		gack(block);
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->cwd, 15);
	fanin_engine_suspect_run(host.engine);
	host.epoch = EPOCH + 1;
	ck_assert_int_eq(fanin_engine_resume(host.engine, host.epoch, 0, 0), FANIN_OK);
	host_forget();
	host_poll();
	ck_assert_double_eq(fanin_pa_atp_dual(host.engine)->cwd, 10);
	ck_assert_uint_eq(n_sent(FANIN_TYPE_CONTRIBUTION), 10);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 10);
	host_close();
}
END_TEST

/* Blocks in flight are those that were released, and lack what clocks CWD. */
static void
expect_in_flight(void)
{
	const struct fanin_pa_atp *pa = fanin_pa_atp_of(fanin_engine_of(host.engine));
	const bool by_gack = pa->dual.type->clock == FANIN_DUAL_GACK;
	uint32_t n = 0;

	ck_assert_uint_le(fanin_engine_of(host.engine)->oldest, pa->next);
	ck_assert_uint_le(pa->next, fanin_engine_of(host.engine)->end);
	ck_assert_uint_le(pa->next - fanin_engine_of(host.engine)->oldest, window);
	for (uint32_t block = fanin_engine_of(host.engine)->oldest; block != pa->next; block++) {
		if (!fanin_engine_is_done(fanin_engine_of(host.engine), block)) {
			ck_assert_uint_ge(
				fanin_engine_lane(fanin_engine_of(host.engine), block)->state,
				FANIN_LANE_QUEUED);
			n += !by_gack || !fanin_pa_atp_lane(pa, block)->gacked;
		}
	}
	ck_assert_uint_eq(pa->in_flight, n);
}

/*
 * Another run, some blocks before the first one without result. Other ranks tell some results at
 * once. reach: after the last block that was ever sent.
 */
static void
run_again(uint32_t reach)
{
	const uint32_t oldest = fanin_engine_progress(host.engine);
	uint32_t first = oldest - random_below(&host.random, 20);

	/* All ranks have the results before the run that was lost. */
	if (first < host.base || first > oldest)
		first = host.base;
	/* A rank has sent less than a window more than any rank has results. */
	if (reach > first + window)
		first = reach - window;
	ck_assert_uint_le(first, oldest);
	fanin_engine_suspect_run(host.engine);
	host.epoch++;
	host.base = first;
	host.sent.head = host.sent.tail;
	host.coming.head = host.coming.tail;
	memset(host.have, 0, sizeof(host.have));
	ck_assert_int_eq(fanin_engine_resume(host.engine, host.epoch, 0, first), FANIN_OK);
	for (uint32_t block = first;
	     block < first + window && block < fanin_engine_of(host.engine)->end; block++) {
		if (random_chance(&host.random, 0.3))
			server_take(block);
	}
}

/* By _i: the congestion control, and a seed. */
START_TEST(runs_that_are_lost_again_and_again_end_with_exact_sums)
{
	const uint32_t n_blocks = 600;
	const struct fanin_pa_atp *pa;
	uint32_t reach = 0;
	unsigned int step;

	host_open((unsigned int)_i % TYPES);
	host.random = random_seed((uint64_t)_i);
	host.loss = _i % 4 == 0 ? 0 : 0.1;
	host.gack_ns = 50 * US;
	host.result_ns = 100 * US;
	host_post(n_blocks);
	pa = fanin_pa_atp_of(fanin_engine_of(host.engine));
	for (step = 0;
	     host.request.status == FANIN_IN_PROGRESS || fanin_engine_of(host.engine)->n_known != 0;
	     step++) {
		ck_assert_uint_lt(step, 300000);
		answer_all();
		host.now_ns += 5 * US;
		host.link.full = random_chance(&host.random, 0.02);
		host_poll();
		expect_in_flight();
		reach = pa->next > reach ? pa->next : reach;
		if (random_chance(&host.random, 0.05) && stats()->resumed < 100)
			run_again(reach);
	}
	host.link.full = false;
	host_expect_done(n_blocks);
	ck_assert_uint_ge(stats()->resumed, 5);
	ck_assert_uint_eq(fanin_pa_atp_in_flight(host.engine), 0);
	host_close();
}
END_TEST

START_TEST(unsupported_features_are_refused_by_name)
{
	struct fanin_error error = { 0 };
	struct fanin_endpoint *engine = NULL;

	host_prepare(PA_ATP);
	host.config.size = 65;
	ck_assert_int_eq(host.protocol->open(host.protocol, &host.config, &engine, &error),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "65 ranks"));
	host_prepare(PA_ATP);
	host.config.wide = true;
	ck_assert_int_eq(host.protocol->open(host.protocol, &host.config, &engine, &error),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "f32"));
	host_prepare(FANIN_DUAL_TYPES);
	ck_assert_int_eq(host.protocol->open(host.protocol, &host.config, &engine, &error),
			 FANIN_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(error.text, "congestion control has the number 6"));
	ck_assert_ptr_null(engine);
	ck_assert(!host.protocol->has_custom);
	ck_assert(!host.protocol->has_tags);
	ck_assert_uint_eq(host.protocol->collectives >> FANIN_COLLECTIVE_ALLREDUCE_SPARSE & 1, 0);
}
END_TEST

START_TEST(the_report_shows_both_windows)
{
	struct fanin_report report = { .sz = sizeof(report) };

	slots = 16;
	host_open(PA_ATP);
	host_post(100);
	give_gack(0, 2, FANIN_FLAG_CE);
	host_poll();
	result(0);
	host.protocol->report(host.engine, &report);
	ck_assert_str_eq(report.congestion, "pa-atp");
	ck_assert_double_ge(report.cwd, 1);
	ck_assert_double_ge(report.awd, 16);
	ck_assert_double_gt(report.alpha, 0);
	ck_assert_double_eq(report.beta, 0);
	ck_assert_double_eq(report.progress_degree, 1);
	ck_assert_uint_eq(report.in_flight, fanin_pa_atp_in_flight(host.engine));
	ck_assert_uint_eq(report.gacks, 1);
	ck_assert_uint_eq(report.aacks, 1);
	ck_assert_uint_eq(report.marks, 1);
	ck_assert_uint_eq(report.aecns, 0);
	ck_assert_uint_eq(report.asks_answered, 0);
	ck_assert_uint_eq(report.blocks, 1);
	host_close();
}
END_TEST

Suite *
suite_pa_atp_host(void)
{
	Suite *suite = suite_create("pa_atp_host");
	TCase *windows = tcase_create("windows");
	TCase *loss = tcase_create("loss");
	TCase *ends = tcase_create("ends");

	tcase_set_timeout(windows, 120);
	tcase_add_loop_test(windows, without_loss_each_block_is_sent_once_and_nothing_else_is, 0,
			    TYPES);
	tcase_add_test(windows, cwd_bounds_blocks_without_gack);
	tcase_add_test(windows, an_aack_implies_the_gack);
	tcase_add_loop_test(windows, some_windows_are_clocked_by_results, 0, 2);
	tcase_add_test(windows, awd_bounds_how_far_a_rank_is_ahead_of_results);
	tcase_add_test(windows, no_block_is_sent_before_all_results_up_to_a_window_before_it);
	tcase_add_test(windows, blocks_are_sent_in_order);
	tcase_add_test(windows, aecn_shrinks_awd_and_is_counted);
	tcase_add_test(windows, the_sum_in_gacks_changes_the_cut);
	tcase_add_test(windows, ranks_that_are_equally_far_have_a_progress_of_one);
	tcase_add_test(windows, the_report_shows_both_windows);
	suite_add_tcase(suite, windows);
	tcase_set_timeout(loss, 120);
	tcase_add_test(loss, a_lost_gack_alone_makes_the_host_send_nothing);
	tcase_add_test(loss,
		       a_gradient_without_gack_is_sent_again_after_a_timeout_and_later_each_time);
	tcase_add_test(loss, a_round_trip_that_is_a_little_longer_is_no_loss);
	tcase_add_test(loss, while_nothing_comes_back_only_the_oldest_gradient_is_sent_again);
	tcase_add_test(loss, a_gap_of_three_results_brings_exactly_one_query);
	tcase_add_loop_test(loss, a_gap_is_asked_for_once_there_is_room, 0, 2);
	tcase_add_test(loss, each_lost_result_is_asked_for);
	tcase_add_test(loss, a_switch_with_several_workers_may_reorder_more);
	tcase_add_test(loss, the_last_result_is_asked_for_after_a_timeout);
	tcase_add_loop_test(loss, asks_are_answered_if_the_gradient_has_arrived_or_is_lost, 0, 8);
	tcase_add_test(loss, duplicates_and_strays_change_nothing);
	tcase_add_loop_test(loss, sums_are_exact_whatever_is_lost_doubled_or_reordered, 0, 60);
	suite_add_tcase(suite, loss);
	tcase_add_test(ends, a_late_rank_is_waited_for);
	tcase_add_test(ends, a_gap_counts_although_the_block_was_asked_for_before);
	tcase_add_loop_test(ends, data_that_the_server_lacks_of_this_rank_is_not_late, 0, 2);
	tcase_add_test(ends, a_rank_that_has_ended_is_named_in_time);
	tcase_add_loop_test(ends, silent_peers_are_named, 0, 2);
	tcase_add_test(ends, results_that_this_rank_knows_are_told_in_a_new_run);
	tcase_add_loop_test(ends, results_of_blocks_that_are_not_sent_yet_count, 0, 2);
	tcase_add_test(ends, windows_begin_anew_in_a_new_run);
	tcase_add_loop_test(ends, runs_that_are_lost_again_and_again_end_with_exact_sums, 0,
			    10 * TYPES);
	tcase_add_test(ends, unsupported_features_are_refused_by_name);
	suite_add_tcase(suite, ends);
	return suite;
}
