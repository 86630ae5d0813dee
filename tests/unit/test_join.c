/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which answers to its JOIN and its LEAVE a host accepts: those that only the switch can have sent,
 * as it has seen them. The test acts as the switch and as the stranger, behind the member's
 * channel.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <string.h>

#include "hostlib/src/join/channel.h"
#include "hostlib/src/base/clock.h"
#include "hostlib/src/join/join.h"
#include "tests/unit/answer_words.h"
#include "tests/unit/memory_link.h"
#include "tests/unit/suites.h"

#define JOB 7
#define SECRET 0x5eed
#define EPOCH 11
#define INSTANCE 0x1122334455667788u
#define ROOM 16
#define SECOND 1000000000ull

struct answer {
	struct fanin_control control;
	size_t len;
};

/*
 * Packets under way to the member; the switch answers truly once the member has sent `lies`
 * packets.
 */
static struct {
	struct fanin_channel_ops ops;
	struct answer answers[ROOM];
	unsigned int n;
	unsigned int sent;
	unsigned int lies;
	unsigned int pairs;        /* number of super-frames sent */
	unsigned int lost_pairs;   /* number of the first ones that are lost */
	unsigned int waited_ms;    /* total time that the member has asked to wait */
	bool is_older;             /* the switch is of an earlier release */
	struct fanin_control last; /* last packet of the member */
	bool tagged;               /* the job has tags */
} net;

static struct fanin_member member;
static struct fanin_error error;
static struct fanin_keys keys;
static struct fanin_tagger *tagger; /* of the switch */

static struct fanin_control *
answer_add(enum fanin_type type, uint64_t key, uint32_t epoch, size_t body_len)
{
	static const struct fanin_flow flow = { .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT };
	struct answer *answer = &net.answers[net.n++];

	ck_assert_uint_le(net.n, ROOM);
	memset(answer, 0, sizeof(*answer));
	fanin_wire_encode_l4(&answer->control.headers, &flow, (uint32_t)body_len);
	fanin_wire_encode_header(&answer->control.headers.fanin, type, JOB, epoch, key);
	answer->len = sizeof(answer->control.headers) + body_len;
	return &answer->control;
}

/* Adds the switch's tag to the last answer, if the job has tags. */
static void
answer_seal(void)
{
	struct answer *answer = &net.answers[net.n - 1];

	if (!net.tagged)
		return;
	ck_assert(fanin_tagger_seal_frame(tagger, FANIN_TAG_DOWN, INSTANCE,
					  &answer->control.headers));
	answer->len += FANIN_TAG_LEN;
}

static void
add_refusal(uint64_t key, uint64_t nonce, uint32_t epoch, enum fanin_reason reason)
{
	struct fanin_control *refusal = answer_add(FANIN_TYPE_REFUSED, key, epoch, 0);

	refusal->headers.fanin.members = nonce;
	refusal->headers.fanin.count = (uint16_t)reason;
}

static void
add_ack(uint64_t key, uint64_t nonce, uint16_t window)
{
	struct fanin_control *ack = answer_add(FANIN_TYPE_JOIN_ACK, key, EPOCH,
					       sizeof(struct join_ack_words));

	ack->body.join_ack = (struct fanin_join_ack_body){
		.nonce = nonce,
		.state = FANIN_JOIN_ACTIVE,
		.size = 2,
		.window = window,
		.payload_bytes = 1024,
		.group_be = htonl(FANIN_WIRE_GROUPS | JOB),
		.flags = net.tagged ? FANIN_JOB_TAGGED : 0,
		.instance = INSTANCE,
	};
}

/* Checks that a packet to the switch has a member's tag. */
static void
expect_tag(const struct fanin_control *control, size_t len)
{
	struct fanin_hdr hdr = control->headers.fanin;
	const size_t body_len = len - FANIN_TAG_LEN;

	ck_assert_uint_ge(len, FANIN_TAG_LEN);
	ck_assert(fanin_tagger_open(tagger, FANIN_TAG_UP, 0, &hdr, control->body.bytes,
				    (uint32_t)body_len, control->body.bytes + body_len));
	ck_assert_uint_eq(body_len,
			  hdr.type == FANIN_TYPE_JOIN ? sizeof(struct fanin_join_body) : 0);
}

/*
 * Adds the answer of a switch of an earlier release: it supports only the JOIN of its own version,
 * and wants its cookie back.
 */
static void
add_older_challenge(const struct fanin_control *join, size_t body_len)
{
	struct fanin_control *ack = answer_add(FANIN_TYPE_JOIN_ACK, keys.down, 0,
					       sizeof(struct join_ack_words));

	ck_assert_uint_eq(join->headers.fanin.version, FANIN_WIRE_VERSION_BEFORE);
	ck_assert_uint_eq(body_len, FANIN_JOIN_BODY_BEFORE);
	ck_assert_uint_eq(join->body.join.cookie, 0);
	ck_assert_uint_eq(join->headers.fanin.port, 0);
	ack->headers.fanin.version = FANIN_WIRE_VERSION_BEFORE;
	ack->body.join_ack = (struct fanin_join_ack_body){
		.nonce = join->body.join.nonce,
		.state = FANIN_JOIN_CHALLENGE,
		.cookie = 1,
	};
}

static int
net_send(struct fanin_channel *channel, struct fanin_control *control, size_t body_len)
{
	const bool join = control->headers.fanin.type == FANIN_TYPE_JOIN;

	(void)channel;
	if (net.is_older && control->headers.fanin.version == FANIN_WIRE_VERSION)
		return 0;
	net.last = *control;
	ck_assert_uint_eq(control->headers.fanin.key, keys.up);
	if (net.is_older) {
		add_older_challenge(control, body_len);
		return 0;
	}
	if (member.config.authenticate)
		expect_tag(control, body_len);
	else
		ck_assert_uint_eq(control->headers.fanin.flags & FANIN_FLAG_TAGGED, 0);
	if (net.sent++ < net.lies)
		return 0;
	if (join)
		add_ack(keys.down, control->body.join.nonce, 64);
	else
		answer_add(FANIN_TYPE_LEAVE_ACK, keys.down, EPOCH, 0);
	answer_seal();
	return 0;
}

static int
net_send_pair(struct fanin_channel *channel, struct fanin_control pair[2], size_t body_len)
{
	(void)channel;
	(void)body_len;
	ck_assert_uint_eq(pair[0].body.join.path, FANIN_PATH_FIRST);
	ck_assert_uint_eq(pair[1].body.join.path, FANIN_PATH_SECOND);
	if (net.pairs++ < net.lost_pairs)
		return 0;
	add_ack(keys.down, pair[1].body.join.nonce, 64);
	net.answers[net.n - 1].control.body.join_ack.path = pair[1].body.join.path;
	return 0;
}

static size_t
net_receive(struct fanin_channel *channel, struct fanin_control *control, int *errnum)
{
	size_t len;

	(void)channel;
	(void)errnum;
	if (net.n == 0)
		return 0;
	*control = net.answers[0].control;
	len = net.answers[0].len;
	net.n--;
	memmove(net.answers, net.answers + 1, net.n * sizeof(net.answers[0]));
	return len;
}

static void
net_wait(struct fanin_channel *channel, int timeout_ms)
{
	(void)channel;
	if (net.n == 0) {
		net.waited_ms += (unsigned int)timeout_ms;
		poll(NULL, 0, timeout_ms);
	}
}

static void
net_close(struct fanin_channel *channel)
{
	channel->ops = NULL;
}

static void
open_member(bool authenticate)
{
	const struct fanin_member_config config = {
		.key = SECRET,
		.job = JOB,
		.rank = 1,
		.size = 2,
		.udp_port = 21930,
		.authenticate = authenticate,
	};
	static const struct fanin_route route = { .mtu = 1500, .switch_ip_be = 0xfe00000a };
	struct fanin_channel channel = { .ops = &net.ops };

	memset(&net, 0, sizeof(net));
	memset(&error, 0, sizeof(error));
	net.tagged = authenticate;
	net.ops = (struct fanin_channel_ops){
		.send = net_send,
		.send_pair = net_send_pair,
		.receive = net_receive,
		.wait = net_wait,
		.close = net_close,
	};
	ck_assert_int_eq(fanin_keys_derive(SECRET, &keys), 0);
	ck_assert_int_eq(fanin_tagger_create(SECRET, &tagger), 0);
	ck_assert_int_eq(fanin_member_open(&member, &config, &route, &channel, &error), FANIN_OK);
}

static void
setup(void)
{
	open_member(false);
}

static void
setup_tagged(void)
{
	open_member(true);
}

static void
teardown(void)
{
	fanin_member_close(&member);
	ck_assert_ptr_null(member.tagger);
	fanin_tagger_destroy(tagger);
}

static int
join(void)
{
	return fanin_member_join(&member, FANIN_JOIN_UNTIL_ACTIVE, fanin_now_ns(NULL) + 5 * SECOND,
				 5 * SECOND, &error);
}

/* Answers of strangers who overhear results, and so the down key, or who see nothing at all. */
START_TEST(a_forged_answer_does_not_end_a_join)
{
	static const enum fanin_reason reasons[] = { FANIN_REASON_JOB, FANIN_REASON_KEY,
						     FANIN_REASON_SIZE, FANIN_REASON_MTU };
	const uint64_t nonce = member.nonce;

	net.lies = 1;
	for (unsigned int i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		const uint64_t forged[][2] = { { 0, 0 },          { 0, nonce },
					       { SECRET, nonce }, { keys.down, 0 },
					       { keys.up, 0 },    { keys.down, nonce + 1 } };

		ck_assert_uint_lt((unsigned int)_i, sizeof(forged) / sizeof(forged[0]));
		add_refusal(forged[_i][0], forged[_i][1], 0, reasons[i]);
		add_ack(forged[_i][0], forged[_i][1], 3);
	}
	/* Only a sender that is not a member gets its own key back. */
	add_refusal(keys.up, nonce, 0, FANIN_REASON_SIZE);
	add_ack(keys.up, nonce, 5);
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(net.sent, 2);
	ck_assert_uint_eq(member.window, 64);
	ck_assert_uint_eq(member.epoch, EPOCH);
}
END_TEST

START_TEST(the_switchs_refusal_ends_a_join)
{
	net.lies = 1;
	if (_i == 0)
		add_refusal(keys.up, member.nonce, 0, FANIN_REASON_JOB);
	else if (_i == 1)
		add_refusal(keys.up, member.nonce, 0, FANIN_REASON_KEY);
	else
		add_refusal(keys.down, member.nonce, 0, FANIN_REASON_SIZE);
	ck_assert_int_eq(join(), FANIN_ERR_JOIN_REFUSED);
	ck_assert_uint_eq(net.sent, 0);
}
END_TEST

START_TEST(a_forged_answer_does_not_end_a_leave)
{
	ck_assert_int_eq(join(), FANIN_OK);
	net.sent = 0;
	net.lies = 1;
	for (unsigned int i = 0; i < 2; i++) {
		const uint64_t key = i == 0 ? 0 : SECRET;

		add_refusal(key, 0, EPOCH, FANIN_REASON_JOB);
		answer_add(FANIN_TYPE_LEAVE_ACK, key, EPOCH, 0);
	}
	answer_add(FANIN_TYPE_LEAVE_ACK, keys.up, EPOCH, 0);
	answer_add(FANIN_TYPE_LEAVE_ACK, keys.down, EPOCH - 1, 0);
	/* A refusal of a late contribution. */
	add_refusal(keys.down, 0, EPOCH, FANIN_REASON_BLOCK_STALE);
	ck_assert_msg(fanin_member_leave(&member, &error) == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(net.sent, 2);
}
END_TEST

START_TEST(a_switch_that_does_not_know_the_member_ends_a_leave)
{
	ck_assert_int_eq(join(), FANIN_OK);
	net.sent = 0;
	net.lies = 100;
	add_refusal(keys.up, 0, EPOCH, FANIN_REASON_JOB);
	ck_assert_int_eq(fanin_member_leave(&member, &error), FANIN_OK);
	ck_assert_uint_eq(net.sent, 1);
}
END_TEST

/* ---- jobs with tags */

START_TEST(jobs_with_tags_are_joined_and_left)
{
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(member.instance, INSTANCE);
	ck_assert_uint_eq(member.epoch, EPOCH);
	ck_assert_uint_eq(member.window, 64);
	ck_assert_uint_eq(net.last.headers.fanin.flags, FANIN_FLAG_TAGGED);
	ck_assert_msg(fanin_member_leave(&member, &error) == FANIN_OK, "%s", error.text);
	ck_assert_int_eq(net.last.headers.fanin.type, FANIN_TYPE_LEAVE);
	ck_assert_uint_eq(net.sent, 2);
}
END_TEST

/*
 * Answers of strangers who have overheard the keys of both directions and the nonce: without a tag,
 * or with a wrong one.
 */
START_TEST(an_answer_that_is_not_tagged_does_not_end_a_join)
{
	static const enum fanin_reason reasons[] = { FANIN_REASON_SIZE, FANIN_REASON_MTU,
						     FANIN_REASON_MEMBER_BUSY };
	struct fanin_tagger *other;

	net.lies = 2;
	for (unsigned int i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		add_refusal(keys.down, member.nonce, 0, reasons[i]);
	add_ack(keys.down, member.nonce, 4);
	/* Sealed, and changed afterwards. */
	add_ack(keys.down, member.nonce, 8);
	answer_seal();
	net.answers[net.n - 1].control.body.join_ack.window = 16;
	/* Sealed with another secret. */
	add_ack(keys.down, member.nonce, 32);
	ck_assert_int_eq(fanin_tagger_create(SECRET + 1, &other), 0);
	ck_assert(fanin_tagger_seal_frame(other, FANIN_TAG_DOWN, INSTANCE,
					  &net.answers[net.n - 1].control.headers));
	net.answers[net.n - 1].len += FANIN_TAG_LEN;
	fanin_tagger_destroy(other);
	/* Cut, so that the tag would be beyond the end. */
	add_ack(keys.down, member.nonce, 16);
	answer_seal();
	net.answers[net.n - 1].len -= FANIN_TAG_LEN;
	add_ack(keys.down, member.nonce, 16);
	answer_seal();
	net.answers[net.n - 1].len = FANIN_PAYLOAD_OFFSET - 1;
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(net.sent, 3);
	ck_assert_uint_eq(member.window, 64);
}
END_TEST

START_TEST(a_leave_ack_without_a_tag_does_not_end_a_leave)
{
	ck_assert_int_eq(join(), FANIN_OK);
	net.sent = 0;
	net.lies = 1;
	answer_add(FANIN_TYPE_LEAVE_ACK, keys.down, EPOCH, 0);
	ck_assert_msg(fanin_member_leave(&member, &error) == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(net.sent, 2);
}
END_TEST

static void
expect_refused(const char *words)
{
	ck_assert_int_eq(join(), FANIN_ERR_JOIN_REFUSED);
	ck_assert_msg(strstr(error.text, words) != NULL, "%s", error.text);
}

/* The switch has no tag for an unknown sender. */
START_TEST(a_switch_without_a_tag_refuses_strangers)
{
	net.lies = 100;
	add_refusal(keys.up, member.nonce, 0, _i == 0 ? FANIN_REASON_JOB : FANIN_REASON_TAG);
	expect_refused(fanin_reason_text(_i == 0 ? FANIN_REASON_JOB : FANIN_REASON_TAG));
	ck_assert((strstr(error.text, "join it without authenticate") != NULL) == (_i != 0));
	ck_assert((strstr(error.text, "its key is another one") != NULL) == (_i != 0));
	ck_assert_uint_eq(net.sent, 0);
}
END_TEST

START_TEST(a_rank_that_authenticates_joins_no_job_without_tags)
{
	net.lies = 100;
	add_ack(keys.down, member.nonce, 64);
	net.answers[net.n - 1].control.body.join_ack.flags = 0;
	answer_seal();
	expect_refused("job 7 does not authenticate its packets");
	ck_assert(!member.acknowledged);
}
END_TEST

START_TEST(a_rank_that_does_not_authenticate_joins_no_job_with_tags)
{
	net.lies = 100;
	if (_i == 0) {
		add_ack(keys.down, member.nonce, 64);
		net.answers[net.n - 1].control.body.join_ack.flags = FANIN_JOB_TAGGED;
	} else {
		add_refusal(keys.up, member.nonce, 0, FANIN_REASON_TAG);
	}
	expect_refused("authenticates its packets: join it with authenticate");
	ck_assert(!member.acknowledged);
}
END_TEST

/* _i: the switch's answer. */
START_TEST(a_rank_hears_that_its_job_reduces_nothing)
{
	net.lies = 100;
	add_ack(keys.down, member.nonce, 64);
	net.answers[net.n - 1].control.body.join_ack.flags = _i == 0 ? 0 : FANIN_JOB_MULTICAST;
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_int_eq(member.multicast, _i != 0);
}
END_TEST

START_TEST(a_rank_joins_no_job_with_flags_that_it_does_not_know)
{
	net.lies = 100;
	add_ack(keys.down, member.nonce, 64);
	net.answers[net.n - 1].control.body.join_ack.flags = FANIN_JOB_FLAGS_ALL + 1;
	expect_refused("it is older than the switch");
}
END_TEST

START_TEST(answers_with_tags_are_none_in_a_job_without)
{
	net.lies = 1;
	net.tagged = true;
	add_ack(keys.down, member.nonce, 16);
	answer_seal();
	net.tagged = false;
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(member.window, 64);
	ck_assert_uint_eq(member.instance, INSTANCE);
}
END_TEST

/* The engine keeps using the tagger. */
START_TEST(a_member_that_moves_keeps_its_tagger)
{
	const struct fanin_route route = { .mtu = 1500, .switch_ip_be = 0xfd00000a };
	const struct fanin_channel channel = { .ops = &net.ops };
	const struct fanin_tagger *before = member.tagger;

	ck_assert_int_eq(join(), FANIN_OK);
	fanin_member_move(&member, &route, 21930, &channel);
	ck_assert_ptr_eq(member.tagger, before);
	member.instance = 0;
	fanin_member_rejoin(&member, 0);
	for (int i = 0; fanin_member_rejoin_poll(&member, &error) == FANIN_IN_PROGRESS; i++)
		ck_assert_int_lt(i, 10);
	ck_assert(member.active);
	ck_assert_uint_eq(member.instance, INSTANCE);
}
END_TEST

/*
 * Sends the next JOIN at once; the switch answers that others are missing, or refuses. Returns the
 * time until the next one is due.
 */
static uint64_t
rejoin_interval_ns(bool refused, bool answered)
{
	const unsigned int sent = net.sent;

	member.told_ns = 0;
	member.next_send_ns = 0;
	ck_assert_int_eq(fanin_member_rejoin_poll(&member, &error), FANIN_IN_PROGRESS);
	ck_assert_uint_eq(net.sent, sent + 1);
	if (answered && refused) {
		add_refusal(keys.down, member.nonce, 0, FANIN_REASON_NOT_ACTIVE);
	} else if (answered) {
		add_ack(keys.down, member.nonce, 64);
		net.answers[net.n - 1].control.body.join_ack.state = FANIN_JOIN_WAITING;
	}
	ck_assert_int_eq(fanin_member_rejoin_poll(&member, &error), FANIN_IN_PROGRESS);
	ck_assert_int_eq(member.refusal != FANIN_REASON_NONE, refused);
	member.refusal = FANIN_REASON_NONE;
	ck_assert_uint_eq(net.sent, sent + 1);
	return member.next_send_ns - member.sent_ns;
}

/* Acts as if the switch had given the same answer for a minute. */
static void
minute_pass(void)
{
	for (int i = 0; i < 8; i++)
		rejoin_interval_ns(false, true);
	ck_assert_uint_eq(rejoin_interval_ns(false, true), SECOND);
	member.unchanged_since_ns -= 60 * SECOND;
}

START_TEST(a_host_that_rejoins_for_long_asks_less_often)
{
	net.lies = 100;
	member.config.timeout_ns = 5 * SECOND;
	fanin_member_rejoin(&member, 0);
	minute_pass();
	ck_assert_uint_eq(rejoin_interval_ns(false, true), 2 * SECOND);
	/* An answer that does not come is soon requested again. */
	ck_assert_uint_eq(rejoin_interval_ns(false, false), SECOND);
	ck_assert_uint_eq(rejoin_interval_ns(false, true), 2 * SECOND);
	/* A refusal counts for 3 s: within that time it must come again, or be over. */
	ck_assert_uint_eq(rejoin_interval_ns(true, true), SECOND);
	ck_assert_uint_eq(rejoin_interval_ns(false, true), SECOND);
	minute_pass();
	member.config.timeout_ns = 3 * SECOND;
	ck_assert_uint_eq(rejoin_interval_ns(false, true), 3 * SECOND / 2);
	/* A rank has joined. */
	fanin_ranks_add(&member.joined, 0);
	rejoin_interval_ns(false, true);
	ck_assert_uint_lt(rejoin_interval_ns(false, true), SECOND);
}
END_TEST

/* ---- control packets as frames */

static struct memory_link link;
static struct fanin_headers incoming;
static bool pending;

static void
link_put(struct memory_link *to, const void *frame, uint32_t len)
{
	(void)to;
	(void)frame;
	(void)len;
}

static size_t
link_take(struct memory_link *from, void *frame)
{
	(void)from;
	if (!pending)
		return 0;
	pending = false;
	memcpy(frame, &incoming, sizeof(incoming));
	return sizeof(incoming);
}

START_TEST(frames_of_other_stations_are_no_control_packets)
{
	const struct fanin_flow to_switch = { .dst_mac = { 2, 0, 0, 0, 0, 9 }, .dst_ip_be = 1 };
	struct fanin_flow from = { .src_mac = { 2, 0, 0, 0, 0, 9 }, .src_ip_be = 1 };
	struct fanin_channel channel;
	struct fanin_control control;
	int errnum = 0;

	memory_link_init(&link, link_put, link_take);
	fanin_channel_frames(&channel, &link.transport, &to_switch);
	from.src_mac[5] ^= _i == 1;
	from.src_ip_be ^= _i == 2;
	fanin_wire_encode_l4(&incoming, &from, 0);
	pending = true;
	ck_assert_uint_eq(channel.ops->receive(&channel, &control, &errnum),
			  _i == 0 ? sizeof(incoming) : 0);
	ck_assert(!pending);
}
END_TEST

/* Acts as a switch at the other end of the link, which answers JOIN and LEAVE. */
static struct answer frame_answer;

static void
switch_put(struct memory_link *from, const void *frame, uint32_t len)
{
	struct fanin_control control;
	struct fanin_flow back = { .src_mac = { 2, 0, 0, 0, 0, 9 }, .src_ip_be = 1 };
	const bool join = ((const struct fanin_headers *)frame)->fanin.type == FANIN_TYPE_JOIN;
	const size_t body_len = join ? sizeof(struct join_ack_words) : 0;

	(void)from;
	ck_assert_uint_le(len, sizeof(control));
	memcpy(&control, frame, len);
	ck_assert_uint_eq(FANIN_PAYLOAD_OFFSET + fanin_wire_payload_len(&control.headers), len);
	ck_assert(fanin_tagger_open_frame(tagger, FANIN_TAG_UP, 0, &control.headers));
	ck_assert_int_eq(fanin_wire_validate(&control, len), FANIN_REASON_NONE);
	net.tagged = true;
	net.n = 0;
	if (join)
		add_ack(keys.down, control.body.join.nonce, 64);
	else
		answer_add(FANIN_TYPE_LEAVE_ACK, keys.down, EPOCH, 0);
	frame_answer = net.answers[0];
	back.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT;
	fanin_wire_encode_l4(&frame_answer.control.headers, &back, (uint32_t)body_len);
	ck_assert(fanin_tagger_seal_frame(tagger, FANIN_TAG_DOWN, INSTANCE,
					  &frame_answer.control.headers));
	frame_answer.len += FANIN_TAG_LEN;
}

static size_t
switch_take(struct memory_link *from, void *frame)
{
	const size_t len = frame_answer.len;

	(void)from;
	memcpy(frame, &frame_answer.control, len);
	frame_answer.len = 0;
	return len;
}

static unsigned int
no_fds(struct fanin_transport *transport, struct pollfd *fds)
{
	(void)transport;
	(void)fds;
	return 0;
}

START_TEST(control_packets_have_tags_as_frames_too)
{
	const struct fanin_flow to_switch = { .dst_mac = { 2, 0, 0, 0, 0, 9 }, .dst_ip_be = 1 };
	const struct fanin_route route = { .mtu = 1500, .switch_ip_be = 1 };
	const struct fanin_member_config config = {
		.key = SECRET, .job = JOB, .rank = 1, .size = 2, .authenticate = true
	};
	struct fanin_transport_ops ops;
	struct fanin_channel channel;

	memory_link_init(&link, switch_put, switch_take);
	ops = *link.transport.ops;
	ops.poll_fds = no_fds;
	link.transport.ops = &ops;
	ck_assert_int_eq(fanin_keys_derive(SECRET, &keys), 0);
	ck_assert_int_eq(fanin_tagger_create(SECRET, &tagger), 0);
	fanin_channel_frames(&channel, &link.transport, &to_switch);
	ck_assert_int_eq(fanin_member_open(&member, &config, &route, &channel, &error), FANIN_OK);
	ck_assert_msg(join() == FANIN_OK, "%s", error.text);
	ck_assert_uint_eq(member.instance, INSTANCE);
	ck_assert_msg(fanin_member_leave(&member, &error) == FANIN_OK, "%s", error.text);
	fanin_member_close(&member);
	fanin_tagger_destroy(tagger);
}
END_TEST

#define MANY FANIN_WIRE_MAX_RANKS

/* Adds a JOIN_ACK that lists missing ranks in a job of many ranks. len: of its body. */
static void
add_many_ack(const struct fanin_ranks *joined, size_t len)
{
	struct fanin_control *ack = answer_add(FANIN_TYPE_JOIN_ACK, keys.down, 0, len);

	ack->body.join_ack = (struct fanin_join_ack_body){
		.nonce = member.nonce,
		.state = FANIN_JOIN_WAITING,
		.size = MANY,
		.window = 64,
		.payload_bytes = 1024,
		.group_be = htonl(FANIN_WIRE_GROUPS | JOB),
		.instance = INSTANCE,
	};
	fanin_ranks_write(&ack->body.join_ack + 1, joined, MANY);
}

START_TEST(missing_ranks_of_many_are_named)
{
	struct fanin_ranks joined = fanin_ranks_all(MANY);
	uint16_t ranks[3];

	member.config.size = MANY;
	net.lies = UINT32_MAX;
	fanin_ranks_remove(&joined, 63);
	fanin_ranks_remove(&joined, 64);
	fanin_ranks_remove(&joined, MANY - 1);
	add_many_ack(&joined, fanin_join_ack_len(MANY));
	ck_assert_int_eq(fanin_member_join(&member, FANIN_JOIN_UNTIL_ACTIVE,
					   fanin_now_ns(NULL) + SECOND / 5, SECOND / 5, &error),
			 FANIN_ERR_JOIN_TIMEOUT);
	ck_assert_msg(strstr(error.text, "ranks 63, 64, 4095 (of 4096) have not joined") != NULL,
		      "%s", error.text);
	ck_assert_uint_eq(fanin_list_ranks(&error.missing, ranks, 2), 3);
	ck_assert_uint_eq(ranks[0], 63);
	ck_assert_uint_eq(ranks[1], 64);
	ck_assert_uint_eq(fanin_list_ranks(&error.missing, ranks, 3), 3);
	ck_assert_uint_eq(ranks[2], MANY - 1);
}
END_TEST

START_TEST(an_answer_without_the_set_of_ranks_is_refused)
{
	const struct fanin_ranks none = { 0 };

	member.config.size = MANY;
	net.lies = UINT32_MAX;
	add_many_ack(&none, fanin_join_ack_len(MANY) - 8);
	ck_assert_int_eq(join(), FANIN_ERR_JOIN_REFUSED);
	ck_assert_msg(strstr(error.text, "has 640 bytes, expected 648") != NULL, "%s", error.text);
}
END_TEST

/* A switch of an earlier release drops unknown packets, and is asked in its own version. */
START_TEST(an_older_switch_is_named_with_both_versions)
{
	const uint64_t begin_ns = fanin_now_ns(NULL);

	net.is_older = true;
	ck_assert_int_eq(fanin_member_join(&member, FANIN_JOIN_UNTIL_ACTIVE, begin_ns + 5 * SECOND,
					   5 * SECOND, &error),
			 FANIN_ERR_JOIN_REFUSED);
	ck_assert_msg(strstr(error.text, "have version 2, those of this library 3") != NULL, "%s",
		      error.text);
	ck_assert_uint_lt(net.waited_ms, 3000);
}
END_TEST

/* A slow switch of this release answers such a JOIN, too, with a mark that it is not older. */
START_TEST(a_slow_switch_is_not_taken_for_an_older_one)
{
	struct fanin_control *refusal;

	net.lies = 1;
	add_refusal(keys.down, member.nonce, 0, FANIN_REASON_VERSION);
	refusal = &net.answers[0].control;
	refusal->headers.fanin.version = FANIN_WIRE_VERSION_BEFORE;
	refusal->headers.fanin.contributions = FANIN_WIRE_VERSION;
	ck_assert_int_eq(join(), FANIN_OK);
}
END_TEST

START_TEST(a_switch_further_up_with_another_version_is_named)
{
	net.lies = UINT32_MAX;
	add_refusal(keys.down, member.nonce, 0, FANIN_REASON_VERSION);
	net.answers[0].control.headers.fanin.contributions = 2;
	ck_assert_int_eq(join(), FANIN_ERR_JOIN_REFUSED);
	ck_assert_msg(strstr(error.text,
			     "a switch of its tree have version 2, those of this library 3") !=
			      NULL,
		      "%s", error.text);
}
END_TEST

START_TEST(an_address_that_was_translated_is_told)
{
	net.lies = UINT32_MAX;
	member.local_ip_be = htonl(0x0a000001);
	add_refusal(keys.up, member.nonce, 0, FANIN_REASON_SOURCE);
	net.answers[0].control.headers.fanin.progress = htonl(0xc0a80001);
	ck_assert_int_eq(join(), FANIN_ERR_JOIN_REFUSED);
	ck_assert_msg(strstr(error.text,
			     "it saw the address 192.168.0.1, this host has 10.0.0.1") != NULL,
		      "%s", error.text);
}
END_TEST

START_TEST(whether_super_frames_pass_is_found_out)
{
	member.config.wants_path = true;
	ck_assert_int_eq(join(), FANIN_OK);
	ck_assert(member.super_frames);
	ck_assert_uint_eq(net.pairs, 1);
	fanin_member_try_path(&member);
	ck_assert_uint_eq(net.pairs, 1);
}
END_TEST

/* One JOIN may suffice for all members, and the super-frame after it may be lost. */
START_TEST(a_lost_super_frame_is_not_the_last_word)
{
	member.config.wants_path = true;
	net.lost_pairs = 3;
	ck_assert_int_eq(join(), FANIN_OK);
	ck_assert(!member.super_frames);
	fanin_member_try_path(&member);
	ck_assert(member.super_frames);
	ck_assert_uint_eq(net.pairs, 4);
}
END_TEST

START_TEST(where_super_frames_do_not_pass_nobody_waits_for_long)
{
	member.config.wants_path = true;
	net.lost_pairs = UINT32_MAX;
	ck_assert_int_eq(join(), FANIN_OK);
	net.waited_ms = 0;
	fanin_member_try_path(&member);
	ck_assert(!member.super_frames);
	ck_assert_uint_eq(net.pairs, 4);
	ck_assert_uint_lt(net.waited_ms, 500);
}
END_TEST

START_TEST(lists_of_ranks_are_as_long_as_there_is_room)
{
	struct fanin_ranks ranks = fanin_ranks_one(4095);
	char text[128];

	ck_assert_str_eq(fanin_format_ranks(&ranks, text, sizeof(text)), "rank 4095");
	fanin_ranks_add(&ranks, 1);
	fanin_ranks_add(&ranks, 2);
	fanin_ranks_add(&ranks, 3);
	ck_assert_str_eq(fanin_format_ranks(&ranks, text, sizeof(text)), "ranks 1, 2, 3, 4095");
	/* As ranges if the list is too long, */
	for (unsigned int rank = 64; rank < 128; rank++)
		fanin_ranks_add(&ranks, rank);
	ck_assert_str_eq(fanin_format_ranks(&ranks, text, sizeof(text)), "ranks 1-3, 64-127, 4095");
	/* and with the number of the others if the ranges are too long, too. */
	for (unsigned int rank = 200; rank < 4000; rank += 2)
		fanin_ranks_add(&ranks, rank);
	fanin_format_ranks(&ranks, text, 64);
	ck_assert_str_eq(text, "ranks 1-3, 64-127, 200, 202, 204, 206, 208, 210 and 1895 more");
	ranks = fanin_ranks_all(FANIN_WIRE_MAX_RANKS);
	ck_assert_str_eq(fanin_format_ranks(&ranks, text, 64), "ranks 0-4095");
}
END_TEST

Suite *
suite_join(void)
{
	Suite *suite = suite_create("join");
	TCase *answers = tcase_create("answers");
	TCase *tags = tcase_create("tags");
	TCase *frames = tcase_create("frames");

	tcase_add_checked_fixture(answers, setup, teardown);
	tcase_add_loop_test(answers, a_forged_answer_does_not_end_a_join, 0, 6);
	tcase_add_loop_test(answers, the_switchs_refusal_ends_a_join, 0, 3);
	tcase_add_test(answers, a_forged_answer_does_not_end_a_leave);
	tcase_add_test(answers, a_switch_that_does_not_know_the_member_ends_a_leave);
	tcase_add_loop_test(answers, a_rank_that_does_not_authenticate_joins_no_job_with_tags, 0,
			    2);
	tcase_add_loop_test(answers, a_rank_hears_that_its_job_reduces_nothing, 0, 2);
	tcase_add_test(answers, a_rank_joins_no_job_with_flags_that_it_does_not_know);
	tcase_add_test(answers, answers_with_tags_are_none_in_a_job_without);
	tcase_add_test(answers, a_host_that_rejoins_for_long_asks_less_often);
	tcase_add_test(answers, missing_ranks_of_many_are_named);
	tcase_add_test(answers, an_answer_without_the_set_of_ranks_is_refused);
	tcase_add_test(answers, an_older_switch_is_named_with_both_versions);
	tcase_add_test(answers, a_slow_switch_is_not_taken_for_an_older_one);
	tcase_add_test(answers, a_switch_further_up_with_another_version_is_named);
	tcase_add_test(answers, an_address_that_was_translated_is_told);
	tcase_add_test(answers, whether_super_frames_pass_is_found_out);
	tcase_add_test(answers, a_lost_super_frame_is_not_the_last_word);
	tcase_add_test(answers, where_super_frames_do_not_pass_nobody_waits_for_long);
	tcase_add_test(frames, lists_of_ranks_are_as_long_as_there_is_room);
	suite_add_tcase(suite, answers);
	tcase_add_checked_fixture(tags, setup_tagged, teardown);
	tcase_add_test(tags, jobs_with_tags_are_joined_and_left);
	tcase_add_test(tags, an_answer_that_is_not_tagged_does_not_end_a_join);
	tcase_add_test(tags, a_leave_ack_without_a_tag_does_not_end_a_leave);
	tcase_add_loop_test(tags, a_switch_without_a_tag_refuses_strangers, 0, 2);
	tcase_add_test(tags, a_rank_that_authenticates_joins_no_job_without_tags);
	tcase_add_test(tags, a_member_that_moves_keeps_its_tagger);
	suite_add_tcase(suite, tags);
	tcase_add_loop_test(frames, frames_of_other_stations_are_no_control_packets, 0, 3);
	tcase_add_test(frames, control_packets_have_tags_as_frames_too);
	suite_add_tcase(suite, frames);
	return suite;
}
