/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canary (section 3): switches combine a block's data wherever it meets on the way to the block's
 * leader. The result goes back by the ports at which data came in. Leaves and spines do the same.
 * protocols/canary/README.md explains why sums are exact and what follows from a loss.
 */
#include "protocols/canary/switch/canary.h"

#include "handlers/frame.h"
#include "handlers/sums.h"

/* Passes a packet on to its destination. */
static enum fanin_verdict
pass(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	fanin_emit_route(ctx, packet->mbuf, true);
	return FANIN_VERDICT_HELD;
}

static bool
is_of_host(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	return (ctx->job->links >> packet->child & 1) == 0;
}

/* Returns the ranks whose data may come in at the packet's ingress port. */
static uint64_t
ranks_behind(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	if (is_of_host(ctx, packet))
		return ctx->job->port_ranks[packet->child];
	return fanin_ranks_all_word(ctx->job->n_ranks, 0);
}

static uint64_t
leader_of(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	return UINT64_C(1) << canary_leader(ctx, packet->headers->fanin.block);
}

static enum fanin_verdict
take_reduce(struct fanin_handler_ctx *ctx, struct canary_slot *slot, uint32_t index,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct canary_data data = {
		.packet = packet,
		.add = fanin_sums_kernel(ctx->job, packet, reason),
		.index = index,
	};
	enum fanin_verdict verdict;

	if (data.add == NULL)
		return FANIN_VERDICT_DROP;
	/* A leader keeps its own data back, so no REDUCE to it may contain that data. */
	if (hdr->members == 0 ||
	    (hdr->members & ~(ranks_behind(ctx, packet) & ~leader_of(ctx, packet))) != 0)
		return fanin_drop(reason, FANIN_REASON_RANK);
	/* Only switches report where data collided. */
	if (is_of_host(ctx, packet))
		packet->headers->fanin.number = 0;
	packet->headers->udp.checksum_be = 0;
	if ((hdr->flags & FANIN_FLAG_DIRECT) != 0) {
		ctx->stats->own[CANARY_DIRECT]++;
		return pass(ctx, packet);
	}
	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	verdict = canary_take_data(ctx, slot, &data);
	fanin_slot_leave(&slot->tag);
	ctx->stats->own[CANARY_REDUCES]++;
	return verdict;
}

/* Makes a packet with elements the result and emits it at these ports. */
static enum fanin_verdict
send_result(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet, uint64_t ports)
{
	const struct fanin_hdr said = packet->headers->fanin;
	struct fanin_hdr *hdr;

	if (ports == 0)
		return FANIN_VERDICT_FREE;
	hdr = fanin_frame_make_to(ctx, true, FANIN_TYPE_RESULT, said.block, packet->payload_len,
				  packet->mbuf);
	hdr->epoch = said.epoch;
	hdr->flags = said.flags;
	hdr->contributions = ctx->job->n_ranks;
	fanin_wire_set_shape(hdr, fanin_wire_shape(&said));
	rte_mbuf_refcnt_set(packet->mbuf, (uint16_t)__builtin_popcountll(ports));
	fanin_emit_ports(ctx, packet->mbuf, ports);
	return FANIN_VERDICT_HELD;
}

/* A result must come from the block's leader, or from a switch, which has checked that. */
static bool
is_result_believed(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	return !is_of_host(ctx, packet) ||
	       (ranks_behind(ctx, packet) & leader_of(ctx, packet)) != 0;
}

/*
 * True if a packet of a host names that host's own rank. A rank may send HERE, questions and
 * goodbyes only for itself: a host that spoke for a gone rank would keep all others waiting.
 */
static bool
is_speaker_believed(const struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const uint16_t rank = packet->headers->fanin.rank;

	return !is_of_host(ctx, packet) ||
	       (rank < FANIN_SERVER_RANKS_MAX && (ranks_behind(ctx, packet) >> rank & 1) != 0);
}

static enum fanin_verdict
take_result(struct fanin_handler_ctx *ctx, struct canary_slot *slot,
	    const struct fanin_packet *packet)
{
	uint64_t ports;

	if (!fanin_slot_enter(&slot->tag))
		return FANIN_VERDICT_RETRY;
	ports = canary_take_result(ctx, slot, &packet->headers->fanin);
	fanin_slot_leave(&slot->tag);
	if (ports == 0)
		ctx->stats->own[CANARY_UNKNOWN]++;
	else
		ctx->stats->results++;
	return send_result(ctx, packet, ports & ~(UINT64_C(1) << packet->child));
}

static enum fanin_verdict
take_restore(struct fanin_handler_ctx *ctx, const struct fanin_packet *packet)
{
	const struct fanin_job_params *job = ctx->job;

	if (packet->headers->ip.dst_be != job->result_headers.ip.src_be) {
		ctx->stats->own[CANARY_PASSED]++;
		return pass(ctx, packet);
	}
	ctx->stats->own[CANARY_RESTORED]++;
	return send_result(ctx, packet, packet->headers->fanin.members & job->ports);
}

static enum fanin_verdict
canary_other(struct fanin_handler_ctx *ctx, void *memory, uint32_t index,
	     struct fanin_packet *packet, enum fanin_reason *reason)
{
	struct canary_slot *slot = memory;

	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_REDUCE:
		return take_reduce(ctx, slot, index, packet, reason);
	case FANIN_TYPE_RESULT:
	case FANIN_TYPE_RESTORE:
		if (packet->payload_len > ctx->job->payload_bytes)
			return fanin_drop(reason, FANIN_REASON_PAYLOAD);
		if (!is_result_believed(ctx, packet))
			return fanin_drop(reason, FANIN_REASON_RANK);
		return packet->headers->fanin.type == FANIN_TYPE_RESULT
			       ? take_result(ctx, slot, packet)
			       : take_restore(ctx, packet);
	default:
		/*
		 * Leaders alone send REPEAT, ASK, ANSWER and ROLL to ranks. Ranks send HERE, QUERY,
		 * CALL and BYE.
		 */
		if (!(fanin_type_direction(packet->headers->fanin.type) == FANIN_DOWN
			      ? is_result_believed(ctx, packet)
			      : is_speaker_believed(ctx, packet)))
			return fanin_drop(reason, FANIN_REASON_RANK);
		ctx->stats->own[CANARY_PASSED]++;
		return pass(ctx, packet);
	}
}

/* Hosts of such jobs send no contributions. */
static enum fanin_verdict
canary_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	(void)ctx;
	(void)slot;
	(void)index;
	(void)packet;
	return fanin_drop(reason, FANIN_REASON_TYPE);
}

/* Returns the job's shortest timer. */
static uint64_t
canary_timer_ns(const struct fanin_job_params *job)
{
	const uint64_t fixed = job->parameters[FANIN_CANARY_TIMEOUT];

	return (fixed != 0 ? fixed : job->parameters[FANIN_CANARY_MIN_TIMEOUT]) * 1000;
}

static uint64_t
canary_longest_wait_ns(const struct fanin_job_params *job)
{
	uint64_t longest_ns = 0;

	for (unsigned int leader = 0; leader < job->n_ranks; leader++)
		longest_ns = RTE_MAX(longest_ns, canary_longest_ns(job, leader));
	return longest_ns;
}

static bool
canary_expired(struct fanin_handler_ctx *ctx, void *memory, uint32_t index, uint32_t block)
{
	struct canary_slot *slot = memory;

	if (!fanin_slot_enter(&slot->tag))
		return false;
	canary_expire(ctx, slot, index, block);
	fanin_slot_leave(&slot->tag);
	return true;
}

static void
canary_slot_release(struct fanin_handler_ctx *ctx, void *memory)
{
	canary_give_up(ctx, memory);
}

static bool
canary_peek(const struct fanin_job_params *job, uint32_t epoch, const void *memory,
	    struct fanin_peek *peek)
{
	struct canary_slot *slot = (void *)(uintptr_t)memory;
	uint64_t seen;

	if (!fanin_slot_look(&slot->tag, job, epoch))
		return false;
	seen = slot->seen | UINT64_C(1) << fanin_canary_leader(slot->tag.block, job->n_ranks);
	*peek = (struct fanin_peek){
		.block = slot->tag.block,
		.sent = slot->phase == CANARY_SENT,
		.missing = slot->phase == CANARY_SENT ? 0 : fanin_children_with(job, ~seen),
		.begun_ns = slot->begun_ns,
	};
	fanin_slot_leave(&slot->tag);
	return true;
}

static const struct fanin_counter canary_counters[] = {
	[CANARY_REDUCES] = { "reduces", "packets with data that may be combined here" },
	[CANARY_MERGED] = { "merged", "those of them that were combined with others" },
	[CANARY_SUMS] = { "sums", "sums sent on towards the leader" },
	[CANARY_COMPLETE] = { "complete",
			      "sums sent on before their timeout, for no more was expected" },
	[CANARY_STRAGGLERS] = { "stragglers",
				"packets passed on unmerged, for their block's sum had gone on" },
	[CANARY_COLLISIONS] = { "collisions",
				"packets passed on unmerged, for another block had their slot" },
	[CANARY_OVERLAPS] = { "overlaps",
			      "packets passed on unmerged, for some of their data was there already" },
	[CANARY_DIRECT] = { "direct", "packets with data for the leader alone, passed on" },
	[CANARY_PASSED] = { "passed", "packets of hosts to others, passed on" },
	[CANARY_RESTORED] = { "restored", "results for ports that the leader named" },
	[CANARY_UNKNOWN] = { "unknown", "results that nobody here waited for" },
	[CANARY_GIVEN_UP] = { "given_up",
			      "slots given to another block, as their result did not pass here" },
	{ 0 },
};

enum canary_value {
	CANARY_TIMEOUTS,
	CANARY_SLOTS_USED,
	CANARY_SLOTS_SHARE,
};

static const struct fanin_value canary_values[] = {
	[CANARY_TIMEOUTS] = { "timeout_us",
			      "us that a descriptor waits for more, as learned or fixed",
			      "leader" },
	[CANARY_SLOTS_USED] = { "slots_used", "slots that the job has", NULL },
	[CANARY_SLOTS_SHARE] = { "slots_percent",
				 "of the shared slots those that the job has, percent", NULL },
	{ 0 },
};

static unsigned int
canary_tell(const struct fanin_job_params *job, const void *memory, unsigned int kind,
	    uint64_t *values)
{
	const struct canary_state *state = memory;
	const uint64_t used = __atomic_load_n(&state->used, __ATOMIC_RELAXED);

	switch ((enum canary_value)kind) {
	case CANARY_TIMEOUTS:
		for (unsigned int leader = 0; leader < job->n_ranks; leader++)
			values[leader] = canary_timeout_ns(job, state, leader) / 1000;
		return job->n_ranks;
	case CANARY_SLOTS_USED:
		values[0] = used;
		return 1;
	case CANARY_SLOTS_SHARE:
		values[0] = used * 100 / (job->slots.mask + UINT64_C(1));
		return 1;
	}
	return 0;
}

static const struct fanin_parameter canary_parameters[] = {
#define CANARY_PARAMETER(enumerator, name, least, most, usual, text)                               \
	[FANIN_CANARY_##enumerator] = { #name, text, least, most, usual },
	FANIN_CANARY_PARAMETERS(CANARY_PARAMETER)
#undef CANARY_PARAMETER
		{ 0 },
};

static const uint8_t canary_types[] = { FANIN_TYPE_REDUCE, FANIN_TYPE_RESULT, FANIN_TYPE_RESTORE,
					FANIN_TYPE_REPEAT, FANIN_TYPE_ASK,    FANIN_TYPE_HERE,
					FANIN_TYPE_QUERY,  FANIN_TYPE_ANSWER, FANIN_TYPE_CALL,
					FANIN_TYPE_ROLL,   FANIN_TYPE_BYE,    0 };

static struct fanin_handler canary = {
	.name = "canary",
	.description = "dense reduction on trees that form packet by packet around congestion",
	.shape = FANIN_SHAPE_LEADERS,
	.admission = FANIN_ADMIT_KEY,
	.slots_of = FANIN_SLOTS_SHARED,
	.slots_apart = true,
	.slot_mbufs = { .fixed = 1 },
	.counters = canary_counters,
	.parameters = canary_parameters,
	.values = canary_values,
	.tell = canary_tell,
	.state_bytes = sizeof(struct canary_state),
	.slot_bytes = sizeof(struct canary_slot),
	.contribution = canary_contribution,
	.types = canary_types,
	.other = canary_other,
	.timeout_ns = canary_timer_ns,
	.longest_wait_ns = canary_longest_wait_ns,
	.expired = canary_expired,
	.peek = canary_peek,
	.slot_release = canary_slot_release,
};

FANIN_HANDLER_REGISTER(canary)
