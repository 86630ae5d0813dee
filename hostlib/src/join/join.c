/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JOIN and LEAVE with their answers (docs/protocol.md). Both are repeated until answered, so that
 * each may be lost or duplicated; the nonce lets the switch tell a repetition from a restarted
 * process. See join.h.
 */
#include "join_internal.h"

#include "hostlib/src/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define JOIN_REPEAT_NS (100 * 1000000ull)
#define LEAVE_REPEAT_NS (50 * 1000000ull)
#define LEAVE_TIMEOUT_NS (1000 * 1000000ull)

/* Maximum wait for the answer to a super-frame, once everything else is known. */
#define PAIR_WAIT_NS (5 * 1000000ull)

/* A switch that has not answered for this long gets JOINs of an earlier release. */
#define OLDER_AFTER_NS (1000 * 1000000ull)

static int
tagger_create(struct fanin_member *member, struct fanin_error *error)
{
	switch (fanin_tagger_create(member->config.key, &member->tagger)) {
	case 0:
		return FANIN_OK;
	case -ENOMEM:
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for the tags of job %u", member->config.job);
	default:
		return fanin_error_set(
			error, FANIN_ERR_SYSTEM,
			"no tags for job %u: libcrypto has no Poly1305 or AES-128, or there is no random number",
			member->config.job);
	}
}

int
fanin_member_open(struct fanin_member *member, const struct fanin_member_config *config,
		  const struct fanin_route *route, const struct fanin_channel *channel,
		  struct fanin_error *error)
{
	*member = (struct fanin_member){
		.config = *config,
		.switch_ip_be = route->switch_ip_be,
		.local_ip_be = route->local_ip_be,
		.mtu = route->mtu,
		.channel = *channel,
		.begun_ns = fanin_now_ns(NULL),
	};
	if (getrandom(&member->nonce, sizeof(member->nonce), 0) != sizeof(member->nonce))
		return fanin_error_set(error, FANIN_ERR_SYSTEM, "no random number: %s",
				       strerror(errno));
	if (fanin_keys_derive(config->key, &member->keys) != 0)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for the keys of job %u", config->job);
	return config->authenticate ? tagger_create(member, error) : FANIN_OK;
}

static void
channel_close(struct fanin_member *member)
{
	if (member->channel.ops != NULL)
		member->channel.ops->close(&member->channel);
}

void
fanin_member_close(struct fanin_member *member)
{
	channel_close(member);
	fanin_tagger_destroy(member->tagger);
	member->tagger = NULL;
}

static int
ack_take(struct fanin_member *member, const struct fanin_control *control,
	 struct fanin_error *error)
{
	const struct fanin_hdr *hdr = &control->headers.fanin;
	const struct fanin_join_ack_body *ack = &control->body.join_ack;
	uint16_t window = ack->window;
	struct fanin_ranks joined;

	if (ack->nonce != member->nonce)
		return FANIN_OK;
	if (ack->path == FANIN_PATH_SECOND)
		member->super_frames = true;
	if (ack->state == FANIN_JOIN_CHALLENGE) {
		member->cookie = ack->cookie;
		member->challenged = true;
		return FANIN_OK;
	}
	/* This is a late answer of the run before: it answers a JOIN with another cookie. */
	if (member->rejoins && ack->cookie != member->cookie)
		return FANIN_OK;
	if (ack->size != member->config.size)
		return fanin_error_set(error, FANIN_ERR_JOIN_REFUSED, "job %u has %u ranks, not %u",
				       member->config.job, ack->size, member->config.size);
	if (fanin_wire_payload_len(&control->headers) < fanin_join_ack_len(ack->size))
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"the switch's answer has %u bytes, expected %u with the set of %u ranks",
			fanin_wire_payload_len(&control->headers), fanin_join_ack_len(ack->size),
			ack->size);
	if (window == 0 || window > FANIN_WIRE_MAX_WINDOW ||
	    ack->payload_bytes < FANIN_PAYLOAD_ALIGN || !IN_MULTICAST(ntohl(ack->group_be)))
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"the switch's answer makes no sense: window %u, %u payload bytes, group %08x",
			window, ack->payload_bytes, ntohl(ack->group_be));
	if ((ack->flags & ~(uint32_t)FANIN_JOB_FLAGS_ALL) != 0)
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"the job has the flags 0x%x, this library knows 0x%x: it is older than the switch",
			ack->flags, FANIN_JOB_FLAGS_ALL);
	if ((ack->flags & FANIN_JOB_LEADERS) != 0)
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"job %u has the handler \"%.*s\", whose hosts lead blocks and join no switch: give job_name, so that the network manager makes the job and tells where its hosts are",
			member->config.job, (int)sizeof(ack->handler), ack->handler);
	if (((ack->flags & FANIN_JOB_TAGGED) != 0) != member->config.authenticate)
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED, "job %u %s", member->config.job,
			member->config.authenticate
				? "does not authenticate its packets, but this rank asks for that: create it "
				  "with authenticate, or join it without"
				: "authenticates its packets: join it with authenticate");

	/* Fewer lanes than the job's window are always allowed, and masks need a power of two. */
	while ((window & (window - 1)) != 0)
		window &= (uint16_t)(window - 1);
	member->window = window;
	member->payload_bytes = ack->payload_bytes;
	member->wide = (ack->flags & FANIN_JOB_WIDE) != 0;
	member->spread = (ack->flags & FANIN_JOB_SPREAD) != 0;
	member->port_shift = (uint8_t)fanin_wire_port_shift(ack->port_blocks);
	member->multicast = (ack->flags & FANIN_JOB_MULTICAST) != 0;
	member->slots = ack->slots;
	member->sharing_jobs = ack->sharing;
	memcpy(member->parameters, ack->parameters, sizeof(member->parameters));
	member->group_be = ack->group_be;
	member->epoch = hdr->epoch;
	member->instance = ack->instance;
	/* Waiting for a late rank must not shorten the wait for the others. */
	member->told_ns = fanin_now_ns(NULL);
	fanin_ranks_read(&joined, ack + 1, ack->size);
	if (!fanin_ranks_equal(&member->joined, &joined)) {
		member->repeat_ns = JOIN_REPEAT_NS;
		member->unchanged_since_ns = member->told_ns;
	}
	member->joined = joined;
	member->first_block = hdr->progress;
	memcpy(member->handler, ack->handler, sizeof(ack->handler));
	member->acknowledged = true;
	member->active = ack->state == FANIN_JOIN_ACTIVE;
	return FANIN_OK;
}

/*
 * Returns advice about a refusal, to be appended to its text. A wrong secret makes wrong tags, and
 * a switch does not tell whether the job or its member has none.
 */
static const char *
refusal_advice(const struct fanin_member *member, unsigned int reason)
{
	if (reason != FANIN_REASON_TAG)
		return "";
	return member->config.authenticate
		       ? "; either this job does not authenticate its packets: join it without authenticate; or "
			 "its key is another one"
		       : "; this job authenticates its packets: join it with authenticate";
}

/* Returns why no answer comes, as far as this host's counters tell, or NULL. */
static const char *
silence_reason(const struct fanin_member *member)
{
	struct fanin_inflow now;

	/* Frames of a transport don't pass the kernel. */
	if (member->channel.transport != NULL)
		return NULL;
	fanin_inflow_read(&now);
	return now.sources_refused == member->channel.at_open.sources_refused
		       ? NULL
		       : "rp_filter of this host has dropped packets meanwhile, as the route to their source is by another interface";
}

/* Fails with all that is known about the cause of the delay. */
static int
join_time_out(const struct fanin_member *member, uint64_t timeout_ns, unsigned int refusal,
	      int errnum, struct fanin_error *error)
{
	const char *why = errnum != 0 ? strerror(errnum) : silence_reason(member);
	struct fanin_ranks missing = fanin_ranks_all(member->config.size);
	double seconds = (double)timeout_ns / 1e9;
	char address[INET_ADDRSTRLEN];
	char ranks[256];

	fanin_ranks_subtract(&missing, &member->joined);
	inet_ntop(AF_INET, &member->switch_ip_be, address, sizeof(address));
	if (member->acknowledged) {
		fanin_error_set(error, 0, "%s (of %u) %s not joined job %u within %.1f s",
				fanin_format_ranks(&missing, ranks, sizeof(ranks)),
				member->config.size,
				fanin_ranks_count(&missing) == 1 ? "has" : "have",
				member->config.job, seconds);
		error->missing = missing;
	} else if (refusal != FANIN_REASON_NONE) {
		fanin_error_set(error, 0, "the switch %s kept refusing for %.1f s: %s%s", address,
				seconds, fanin_reason_text(refusal),
				refusal_advice(member, refusal));
	} else if (errnum == ECONNREFUSED) {
		fanin_error_set(
			error, 0,
			"nothing listens on UDP port %u of %s: is that the switch's address?",
			member->config.udp_port, address);
	} else {
		fanin_error_set(error, 0,
				"the switch %s did not answer on UDP port %u within %.1f s%s%s",
				address, member->config.udp_port, seconds, why == NULL ? "" : ": ",
				why == NULL ? "" : why);
	}
	return FANIN_ERR_JOIN_TIMEOUT;
}

/* Fails because a REFUSED of the JOIN is final. */
static int
refused(const struct fanin_member *member, const struct fanin_hdr *hdr, struct fanin_error *error)
{
	const struct fanin_member_config *config = &member->config;
	char seen[INET_ADDRSTRLEN], own[INET_ADDRSTRLEN];
	const uint32_t seen_be = hdr->progress;

	if (hdr->count == FANIN_REASON_VERSION)
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"the switch refused rank %u of job %u: the packets of a switch of its tree have version %u, those of this library %u",
			config->rank, config->job, hdr->contributions, FANIN_WIRE_VERSION);
	if (hdr->count == FANIN_REASON_SOURCE && seen_be != 0 && seen_be != member->local_ip_be)
		return fanin_error_set(
			error, FANIN_ERR_JOIN_REFUSED,
			"the switch refused rank %u of job %u: it saw the address %s, this host has %s: there must be no address translation (NAT) between them",
			config->rank, config->job, inet_ntop(AF_INET, &seen_be, seen, sizeof(seen)),
			inet_ntop(AF_INET, &member->local_ip_be, own, sizeof(own)));
	return fanin_error_set(error, FANIN_ERR_JOIN_REFUSED,
			       "the switch refused rank %u of job %u: %s%s", config->rank,
			       config->job, fanin_reason_text(hdr->count),
			       refusal_advice(member, hdr->count));
}

/* Receives all answers. Returns FANIN_OK, or the status of a final refusal. */
static int
join_receive(struct fanin_member *member, struct fanin_error *error)
{
	const struct fanin_member_config *config = &member->config;
	char address[INET_ADDRSTRLEN];
	struct fanin_control control;

	while (fanin_member_receive(member, &control, &member->errnum)) {
		const struct fanin_hdr *hdr = &control.headers.fanin;
		int status = FANIN_OK;

		/*
		 * The packet is late: it answers a contribution to the run before, or its sender
		 * has not seen the JOIN.
		 */
		if (hdr->type == FANIN_TYPE_REFUSED && hdr->members != member->nonce)
			continue;
		if (hdr->type == FANIN_TYPE_JOIN_ACK)
			status = ack_take(member, &control, error);
		else if (hdr->type == FANIN_TYPE_REFUSED &&
			 (hdr->count == FANIN_REASON_MEMBER_BUSY || member->rejoins ||
			  (config->awaits_new_job && hdr->count == FANIN_REASON_JOB)))
			member->refusal = hdr->count;
		else if (hdr->type == FANIN_TYPE_REFUSED)
			status = refused(member, hdr, error);
		if (status != FANIN_OK)
			return status;
		member->heard = true;
	}
	if (!member->is_older || member->heard)
		return FANIN_OK;
	return fanin_error_set(
		error, FANIN_ERR_JOIN_REFUSED,
		"the packets of the switch %s have version %u, those of this library %u",
		inet_ntop(AF_INET, &member->switch_ip_be, address, sizeof(address)),
		FANIN_WIRE_VERSION_BEFORE, FANIN_WIRE_VERSION);
}

/* Repeats JOIN if it is due. Returns true if it was. */
static bool
join_send(struct fanin_member *member)
{
	uint64_t now_ns = fanin_now_ns(NULL);
	int news;

	if (member->challenged)
		member->next_send_ns = 0;
	member->challenged = false;
	if (now_ns < member->next_send_ns)
		return false;
	fanin_member_send_pair(member);
	news = fanin_member_send(member, FANIN_TYPE_JOIN, FANIN_WIRE_VERSION);
	if (news != 0)
		member->errnum = news;
	if (!member->heard && now_ns - member->begun_ns >= OLDER_AFTER_NS)
		(void)fanin_member_send(member, FANIN_TYPE_JOIN, FANIN_WIRE_VERSION_BEFORE);
	member->sent_ns = now_ns;
	member->next_send_ns = now_ns + JOIN_REPEAT_NS;
	return true;
}

int
fanin_member_join(struct fanin_member *member, enum fanin_join_until until, uint64_t deadline_ns,
		  uint64_t timeout_ns, struct fanin_error *error)
{
	const struct fanin_member_config *config = &member->config;

	member->refusal = FANIN_REASON_NONE;
	member->errnum = 0;
	member->next_send_ns = 0;
	for (;;) {
		int status = join_receive(member, error);

		if (status != FANIN_OK)
			return status;
		if (member->acknowledged &&
		    (member->active || until == FANIN_JOIN_UNTIL_ACKNOWLEDGED))
			return FANIN_OK;
		if (fanin_now_ns(NULL) >= deadline_ns)
			return join_time_out(member, timeout_ns, member->refusal, member->errnum,
					     error);
		if (config->interrupt != NULL && config->interrupt(config->interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while joining job %u", config->job);
		join_send(member);
		fanin_member_wait(member, member->next_send_ns < deadline_ns ? member->next_send_ns
									     : deadline_ns);
	}
}

void
fanin_member_try_path(struct fanin_member *member)
{
	struct fanin_error ignored;

	while (member->config.wants_path && !member->super_frames && member->pair_errnum == 0 &&
	       member->pairs < FANIN_JOIN_PAIRS_MAX && member->channel.ops->send_pair != NULL) {
		fanin_member_send_pair(member);
		fanin_member_wait(member, fanin_now_ns(NULL) + PAIR_WAIT_NS);
		if (join_receive(member, &ignored) != FANIN_OK)
			break;
	}
}

void
fanin_member_rejoin(struct fanin_member *member, uint32_t progress)
{
	member->begun_ns = fanin_now_ns(NULL);
	member->heard = false;
	member->is_older = false;
	member->acknowledged = false;
	member->active = false;
	member->challenged = false;
	member->rejoins = true;
	member->progress = progress;
	member->refusal = FANIN_REASON_NONE;
	member->joined = (struct fanin_ranks){ 0 };
	member->told_ns = 0;
	member->repeat_ns = JOIN_REPEAT_NS;
	member->unchanged_since_ns = member->begun_ns;
	member->next_send_ns = 0;
}

void
fanin_member_move(struct fanin_member *member, const struct fanin_route *route, uint16_t udp_port,
		  const struct fanin_channel *channel)
{
	channel_close(member);
	member->channel = *channel;
	member->switch_ip_be = route->switch_ip_be;
	member->local_ip_be = route->local_ip_be;
	member->mtu = route->mtu;
	member->config.udp_port = udp_port;
	member->super_frames = false;
	member->pairs = 0;
	member->pair_errnum = 0;
	member->begun_ns = fanin_now_ns(NULL);
	member->heard = false;
	member->is_older = false;
	member->cookie = 0;
	member->acknowledged = false;
}

/*
 * Lengthens the interval between JOINs while their answers do not change: to an eighth of the time
 * for which they have been the same, up to FANIN_REJOIN_CALM_MAX_NS and half the timeout, so that
 * one JOIN or its answer may be lost.
 */
static void
repeat_postpone(struct fanin_member *member)
{
	const uint64_t half_ns = member->config.timeout_ns / 2;
	uint64_t interval_ns;

	if (member->refusal != FANIN_REASON_NONE)
		member->unchanged_since_ns = fanin_now_ns(NULL);
	if (member->told_ns < member->sent_ns || member->told_ns < member->unchanged_since_ns)
		return;
	interval_ns = (member->told_ns - member->unchanged_since_ns) / 8;
	if (interval_ns > half_ns)
		interval_ns = half_ns;
	if (interval_ns > FANIN_REJOIN_CALM_MAX_NS)
		interval_ns = FANIN_REJOIN_CALM_MAX_NS;
	if (interval_ns > FANIN_REJOIN_REPEAT_MAX_NS &&
	    member->next_send_ns < member->sent_ns + interval_ns)
		member->next_send_ns = member->sent_ns + interval_ns;
}

int
fanin_member_rejoin_poll(struct fanin_member *member, struct fanin_error *error)
{
	int status = join_receive(member, error);

	if (status != FANIN_OK)
		return status;
	if (member->acknowledged && member->active)
		return FANIN_OK;
	repeat_postpone(member);
	if (join_send(member) && member->acknowledged) {
		/* This rank waits for others, perhaps for long. */
		member->next_send_ns += member->repeat_ns - JOIN_REPEAT_NS;
		member->repeat_ns = 2 * member->repeat_ns < FANIN_REJOIN_REPEAT_MAX_NS
					    ? 2 * member->repeat_ns
					    : FANIN_REJOIN_REPEAT_MAX_NS;
	}
	return FANIN_IN_PROGRESS;
}

/*
 * True if a packet answers the LEAVE. A refusal of a LEAVE says that the switch does not know this
 * member, so there is nothing to leave. Refusals for other reasons answer late contributions.
 */
static bool
confirms_leave(const struct fanin_member *member, const struct fanin_hdr *hdr)
{
	return hdr->epoch == member->epoch &&
	       (hdr->type == FANIN_TYPE_LEAVE_ACK || fanin_wire_refuses_sender(hdr));
}

void
fanin_member_give_up(struct fanin_member *member)
{
	/* LEAVE is sent several times: some may be lost, and this does not wait for the answer. */
	for (int i = 0; i < 3 && member->acknowledged && member->channel.ops != NULL; i++)
		fanin_member_send(member, FANIN_TYPE_LEAVE, FANIN_WIRE_VERSION);
}

int
fanin_member_leave(struct fanin_member *member, struct fanin_error *error)
{
	uint64_t deadline_ns = fanin_now_ns(NULL) + LEAVE_TIMEOUT_NS;
	uint64_t next_send_ns = 0;
	struct fanin_control control;

	if (!member->acknowledged)
		return FANIN_OK;
	for (;;) {
		uint64_t now_ns = fanin_now_ns(NULL);
		int errnum = 0;

		if (now_ns >= deadline_ns)
			return fanin_error_set(
				error, FANIN_ERR_TIMEOUT,
				"the switch did not confirm that rank %u has left job %u",
				member->config.rank, member->config.job);
		if (now_ns >= next_send_ns) {
			fanin_member_send(member, FANIN_TYPE_LEAVE, FANIN_WIRE_VERSION);
			next_send_ns = now_ns + LEAVE_REPEAT_NS;
		}
		fanin_member_wait(member, next_send_ns);
		while (fanin_member_receive(member, &control, &errnum)) {
			if (confirms_leave(member, &control.headers.fanin))
				return FANIN_OK;
		}
	}
}
