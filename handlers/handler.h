/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface between the pipeline and handlers (Flare section 3: the function that an HPU runs
 * on a packet). A handler is pure: it sees a validated packet, its slot, the job's constants and
 * the time, all through struct fanin_handler_ctx, and answers by emissions that the pipeline
 * carries out afterwards. It never calls ethdev, logs, allocates or reads a clock, so the same
 * object code runs in the switch, in a unit test with mbufs on the stack, in a fuzzer or a
 * simulator.
 */
#ifndef FANIN_HANDLERS_HANDLER_H
#define FANIN_HANDLERS_HANDLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "handlers/kernels/kernels.h"
#include "handlers/timer.h"
#include "wire/keys.h"
#include "wire/order.h"
#include "wire/tag.h"
#include "wire/wire.h"

#define FANIN_MAX_BUFFERS 8
/* Maximum number of ports of a switch: a word has a bit for each. */
#define FANIN_MAX_PORTS 64
/* Maximum numbers of a handler's own counters and parameters. */
#define FANIN_OWN_COUNTERS_MAX 16
#define FANIN_PARAMETERS_MAX FANIN_WIRE_PARAMETERS

/* Owner of the slots of a handler's jobs. */
enum fanin_slots_of {
	FANIN_SLOTS_PRIVATE, /* each job has its own */
	FANIN_SLOTS_SHARED,  /* all jobs of the handler with slots of the same size share them: see
				struct fanin_slot_tag */
	FANIN_SLOTS_NONE, /* jobs have no slots: the slot is NULL, its index 0, and any worker may
			     be called for any block */
};

/*
 * A job's slots. If jobs share them, each job maps another block to a slot, and none maps two
 * blocks of a window to one slot.
 */
struct fanin_slots {
	/*
	 * If each job has a part of its own (slots_apart), by_index and mask change as jobs come
	 * and go, and a worker may see one of the changes before the other: any index below the
	 * pool's number of slots is valid in any part. Main thread: rw, workers: ro.
	 */
	uint8_t *const *by_index;
	uint32_t mask; /* number of slots - 1; the number is a power of two */
	uint32_t salt; /* 0 for private slots */
	void *common;  /* FANIN_SLOTS_COMMON bytes, zeroed when the slots are made: see
			  state_release; NULL without slots */
};

/*
 * Bytes that all jobs with the same slots have in common: a cache line of its own. Workers change
 * them atomically.
 */
#define FANIN_SLOTS_COMMON 64

/* Returns the index of a block's slot. */
static inline uint32_t
fanin_slot_index(const struct fanin_slots *slots, uint32_t block)
{
	return (block ^ slots->salt) & slots->mask;
}

/*
 * The tag at the start of a shared slot. The handler records in it which block the slot holds
 * (fanin_slot_take), and compares it (fanin_slot_holds). Only a thread that has entered a slot may
 * use it; a handler leaves it before it returns. Within a second or so after the end of a run the
 * switch enters the slots that still hold blocks of it, calls slot_release and empties the tag.
 */
struct fanin_slot_tag {
	uint32_t busy;  /* 1: a thread has entered the slot; atomic */
	uint32_t job;   /* 0: the slot is empty; also read by threads that have not entered it */
	uint32_t epoch; /* ctx->epoch when the slot was taken */
	uint32_t block;
};

/* Enters a shared slot. Returns false if another thread is in; return FANIN_VERDICT_RETRY then. */
static inline bool
fanin_slot_enter(struct fanin_slot_tag *tag)
{
	return __atomic_exchange_n(&tag->busy, 1, __ATOMIC_ACQUIRE) == 0;
}

static inline void
fanin_slot_leave(struct fanin_slot_tag *tag)
{
	__atomic_store_n(&tag->busy, 0, __ATOMIC_RELEASE);
}

/*
 * The shape of a job: how its packets go through its switches. Switches report it to the network
 * manager in `version`.
 */
enum fanin_shape {
	FANIN_SHAPE_TREE, /* contributions of all members are combined on their way up a tree, and
			     results go down */
	FANIN_SHAPE_MULTICAST, /* packets of any member go to all others along a tree; switches keep
				  none */
	FANIN_SHAPE_SERVER,    /* as TREE, but the parent of the topmost switch is a server, which
				  makes the results */
	FANIN_SHAPE_LEADERS, /* each block has a rank that makes its result; packets reach it by the
				switches' routes */
};

/* Rules by which packets belong to a job. */
enum fanin_admission {
	FANIN_ADMIT_MEMBERS, /* packets of its children, in a run that they have joined, and of its
				parent */
	/*
	 * Packets about blocks with the job's key and a type that the handler takes, to any
	 * destination, if they come in at one of params.ports: also packets that the switch would
	 * forward or route. packet->child is the index of that port in the switch. Rank, source and
	 * the header's epoch are not compared. While the members here have no run, ctx->epoch is a
	 * number unique to the job. Senders are not told of dropped packets. Such a job has no
	 * tags.
	 */
	FANIN_ADMIT_KEY,
};

/* The job's parameters for its handler. Constant while any worker can see them. */
struct fanin_job_params {
	uint32_t id;
	uint16_t n_children;    /* 1 to FANIN_WIRE_MAX_CHILDREN */
	uint16_t n_ranks;       /* hosts of the whole job, behind all of its switches */
	uint16_t n_below;       /* hosts behind this switch */
	uint16_t parent_rank;   /* the rank that names this switch at the parent: the lowest rank
				   behind it */
	uint16_t window;        /* W; a job has 2W private slots */
	uint16_t payload_bytes; /* maximum payload per packet; a packet's mbuf has room for it */
	uint64_t children;      /* bitmap of all children */
	uint64_t ports; /* bitmap of the switch's ports, by index, that lead to children, to the
			   parent or, with the shape LEADERS, to other switches */
	struct fanin_slots slots;
	struct fanin_keys keys;
	struct fanin_headers result_headers; /* template of results: Ethernet, IPv4 and UDP to the
						group, of full payload */
	bool has_parent;                     /* false: this is the root of the job's tree */
	bool parent_is_server; /* the parent is a server, and all ranks are behind this switch; for
				  the shape SERVER */
	bool shared;           /* several workers may use one slot at a time */
	bool in_order;   /* the handler combines in the order of the ranks, as far as consecutive
			    ranks are behind this switch */
	bool has_units;  /* the ranks behind this switch form a unit, as do the ranks behind each
			    child: see wire/order.h */
	bool wide;       /* sums and averages of f16 and bf16 are accumulated in f32 */
	uint8_t buffers; /* buffers per block, for handlers with several: 2 to FANIN_MAX_BUFFERS */
	enum fanin_isa isa; /* kernels to use */

	/* Seldom used, or only below the root. */
	struct fanin_headers parent_headers; /* template of contributions to the parent, likewise of
						full payload */
	bool authenticate; /* packets have tags (wire/tag.h), which handlers do not see */
	uint64_t parameters[FANIN_PARAMETERS_MAX]; /* in the order of the handler's `parameters`,
						      each within its bounds */
	uint64_t links; /* subset of `ports` that leads to other switches; for the shape LEADERS */
	uint64_t ranks_here; /* the ranks whose hosts are at this switch; for the shape LEADERS */
	uint64_t port_ranks[FANIN_MAX_PORTS]; /* the ranks behind each of the other `ports`; for the
						 shape LEADERS */
	struct fanin_order order; /* order of the children, by their ranks; fanin_job_params_order
				     sets it */
	struct fanin_ranks child_ranks[FANIN_WIRE_MAX_CHILDREN]; /* the ranks behind each child */
};

/*
 * Sets the fields that follow from the ranks behind each child. Returns what fanin_order_build
 * does.
 */
static inline unsigned int
fanin_job_params_order(struct fanin_job_params *job)
{
	uint16_t first[FANIN_WIRE_MAX_CHILDREN];
	struct fanin_ranks below = { 0 };

	job->has_units = true;
	for (uint16_t child = 0; child < job->n_children; child++) {
		const struct fanin_ranks *ranks = &job->child_ranks[child];

		first[child] = (uint16_t)fanin_ranks_lowest(ranks);
		fanin_ranks_merge(&below, ranks);
		job->has_units = job->has_units && fanin_order_is_unit(ranks, job->n_ranks);
	}
	job->has_units = job->has_units && fanin_order_is_unit(&below, job->n_ranks);
	return fanin_order_build(&job->order, first, job->n_children);
}

/* Gives a job n children, hosts whose ranks are their indices, and no parent. */
static inline void
fanin_job_params_hosts(struct fanin_job_params *job, uint16_t n)
{
	job->n_children = n;
	job->n_ranks = n;
	job->n_below = n;
	job->children = UINT64_MAX >> (FANIN_WIRE_MAX_CHILDREN - n);
	for (uint16_t child = 0; child < n; child++)
		job->child_ranks[child] = fanin_ranks_one(child);
	(void)fanin_job_params_order(job);
	job->has_parent = false;
}

/* A packet that passed validation and the membership check. */
struct fanin_packet {
	struct rte_mbuf *mbuf;
	struct fanin_headers *headers; /* in the mbuf */
	void *payload;                 /* in the mbuf */
	uint32_t payload_len;          /* bytes */
	uint16_t child; /* index of the child in the job; with FANIN_ADMIT_KEY index of the port in
			   the switch */
};

enum fanin_emission_kind {
	FANIN_EMIT_CHILDREN, /* a complete frame to `children`, with one mbuf reference for each */
	FANIN_EMIT_PARENT,   /* a complete frame to the parent */
	FANIN_EMIT_REPLY, /* the packet itself, returned to its sender, the only child in `children`
			   */
	FANIN_EMIT_PORTS, /* a complete frame to `ports`, with one mbuf reference for each */
	FANIN_EMIT_ROUTE, /* an IPv4 packet towards its destination address: see fanin_emit_route */
};

struct fanin_emission {
	struct rte_mbuf *mbuf; /* the pipeline owns the references that this emission needs */
	const struct fanin_job_params *job;
	union {
		uint64_t children; /* bitmap of receivers; 0 with PARENT */
		uint64_t ports;    /* PORTS: bitmap, by index in the switch */
		struct {
			bool by_backlog;
			bool has_flow;
			uint32_t flow;
		} route; /* ROUTE */
	};
	enum fanin_emission_kind kind;
	uint32_t payload_len; /* REPLY: bytes after the Fanin header */
};

/*
 * Capacities for emissions and frees. These are carried out after a burst, or as soon as there are
 * this many, which is more than a burst of usual packets causes.
 */
#define FANIN_BURST 64
#define FANIN_MAX_EMISSIONS (FANIN_BURST * 2 + 1)
#define FANIN_MAX_FREES 160
/* Empty mbufs that a worker has ready for handlers when a burst of packets or a timer begins. */
#define FANIN_STOCK 64

/*
 * Counters that each job has. X(field, text): the field is the name in `faninctl -j jobs`, and the
 * text describes the metric fanin_job_FIELD_total.
 */
#define FANIN_HANDLER_COUNTERS(X)                                                                  \
	X(contributions, "Contributions, each counted once.")                                      \
	X(duplicates, "Contributions that were there already.")                                    \
	X(results, "Blocks finished.")                                                             \
	X(repeats, "Results sent again.")                                                          \
	X(pendings, "Answers that name who is missing.")                                           \
	X(blocks, "Blocks begun.")                                                                 \
	X(upward, "Contributions to the parent.")                                                  \
	X(upward_repeats, "Contributions to the parent sent again.")                               \
	X(known, "Blocks whose result a member had already, from another tree.")                   \
	X(queries, "Queries of children about blocks, answered or passed on.")                     \
	X(upward_queries, "Queries passed on to the parent.")

struct fanin_handler_stats {
#define FANIN_HANDLER_COUNTER_FIELD(field, text) uint64_t field;
	FANIN_HANDLER_COUNTERS(FANIN_HANDLER_COUNTER_FIELD)
#undef FANIN_HANDLER_COUNTER_FIELD
	uint64_t block_ns; /* from first to last contribution, over blocks finished */
	uint64_t own[FANIN_OWN_COUNTERS_MAX]; /* in the order of the handler's `counters` */
};

/*
 * Maximum number of values of one kind that a handler reports for a job. They are shown like
 * counters, by minimum, median and maximum.
 */
#define FANIN_VALUES_EACH_MAX FANIN_SERVER_RANKS_MAX

struct fanin_value {
	const char *name; /* small letters and underscores, with the unit; NULL ends a list */
	const char *text; /* one line, shown to users */
	const char *by; /* the objects that have one value each, such as "leader"; NULL: there is a
			   single value */
};

/*
 * A counter of one handler: shown by `faninctl jobs`, and a label of the metric
 * fanin_job_counter_total.
 */
struct fanin_counter {
	const char *name; /* small letters and underscores; NULL ends a list */
	const char *text; /* one line, shown to users */
};

/*
 * A parameter of one handler's jobs: an argument of `jobs.create`, and of `faninctl jobs create
 * --parameter NAME=VALUE`.
 */
struct fanin_parameter {
	const char *name; /* small letters and underscores; NULL ends a list */
	const char *text; /* one line, shown to users, with the unit */
	uint64_t least;
	uint64_t most; /* INT64_MAX at most */
	uint64_t usual;
};

/* Maximum number of timers that one call of a handler arms. */
#define FANIN_MAX_ARMS_PER_CALL 2

/*
 * Everything that a handler call can reach besides its slot. One per worker; only that worker reads
 * and writes it.
 */
struct fanin_handler_ctx {
	const struct fanin_job_params *job;
	uint32_t epoch;              /* run of the job that the packet belongs to */
	uint32_t parent_epoch;       /* the same run's number at the parent */
	uint64_t now_ns;             /* when the burst was received; monotonic */
	void *state;                 /* the job's state; NULL: its handler has none */
	struct fanin_tagger *tagger; /* puts tags on frames; NULL: the job's packets have no tags */
	uint64_t instance;           /* instance of this switch, for tags downwards */
	uint64_t parent_instance;    /* instance of the parent, for tags upwards */
	uint8_t parent_port_shift;   /* shift of source ports of packets to the parent */
	const struct fanin_ranks *ended;  /* ranks whose processes have ended; words change
					     atomically. NULL: none */
	const struct fanin_ranks *silent; /* ranks that do not answer probes, likewise */
	uint64_t expected; /* set with FANIN_REASON_MISMATCH: the block's shape; 0: not known */
	uint64_t missing;  /* children to be probed, for which a queried overdue block waits;
			      handlers add to it */
	struct fanin_handler_stats *stats;
	struct fanin_timer_fifo *timers; /* timers of jobs with this job's timeout; NULL: its
					    handler has none */
	/*
	 * Carries out emissions and frees when there is no room for more, within a call of the
	 * handler. NULL: there is always enough room.
	 */
	void (*drain)(struct fanin_handler_ctx *ctx);
	struct fanin_emission emissions[FANIN_MAX_EMISSIONS];
	struct rte_mbuf *frees[FANIN_MAX_FREES];
	uint16_t n_emissions;
	uint16_t n_frees;
	uint16_t n_stock;
	struct rte_mbuf *stock[FANIN_STOCK]; /* for fanin_take */
};

/* True if a shared slot holds this block of the call's job and run. The caller has entered it. */
static inline bool
fanin_slot_holds(const struct fanin_slot_tag *tag, const struct fanin_handler_ctx *ctx,
		 uint32_t block)
{
	return tag->block == block && tag->job == ctx->job->id && tag->epoch == ctx->epoch;
}

/*
 * Gives a shared slot to this block. The caller has entered it, and released its previous contents.
 */
static inline void
fanin_slot_take(struct fanin_slot_tag *tag, const struct fanin_handler_ctx *ctx, uint32_t block)
{
	tag->epoch = ctx->epoch;
	tag->block = block;
	__atomic_store_n(&tag->job, ctx->job->id, __ATOMIC_RELAXED);
}

/* Empties a shared slot. The caller has entered it. */
static inline void
fanin_slot_empty(struct fanin_slot_tag *tag)
{
	__atomic_store_n(&tag->job, 0, __ATOMIC_RELAXED);
}

/*
 * Enters a shared slot for `peek`, from any thread, and holds it while reading; a worker that finds
 * it held retries. Returns false if the slot holds nothing of this run, or if another thread is in:
 * then the slot is changing, so its block is not waiting.
 */
static inline bool
fanin_slot_look(struct fanin_slot_tag *tag, const struct fanin_job_params *job, uint32_t epoch)
{
	if (__atomic_load_n(&tag->job, __ATOMIC_RELAXED) != job->id || !fanin_slot_enter(tag))
		return false;
	if (tag->job == job->id && tag->epoch == epoch)
		return true;
	fanin_slot_leave(tag);
	return false;
}

/* The action of the pipeline on a packet. */
enum fanin_verdict {
	FANIN_VERDICT_HELD,  /* the handler keeps or emitted the mbuf */
	FANIN_VERDICT_FREE,  /* the pipeline frees the mbuf: merged or a duplicate */
	FANIN_VERDICT_DROP,  /* the pipeline counts *reason, notifies the sender and frees the mbuf
			      */
	FANIN_VERDICT_RETRY, /* another worker uses the slot: the pipeline tries again later */
};

/* Returns the verdict on a packet that is refused, with its reason set. */
static inline enum fanin_verdict
fanin_drop(enum fanin_reason *reason, enum fanin_reason why)
{
	*reason = why;
	return FANIN_VERDICT_DROP;
}

/* A block that has begun and has no result yet. */
struct fanin_peek {
	uint32_t block;
	bool sent; /* all contributions are in, and the block waits for the parent's result */
	uint64_t missing;  /* bitmap of children whose contribution is not in; 0 if sent */
	uint64_t begun_ns; /* when the first contribution arrived, by the clock of ctx->now_ns */
};

/* Progress of the ranks of a run. */
struct fanin_rank_progress {
	uint16_t n_ranks;
	uint32_t blocks[FANIN_SERVER_RANKS_MAX]; /* by rank: the block after the last one that the
						    rank has sent */
	uint32_t slots_used;                     /* slots that blocks of this job use */
	uint32_t overflowed; /* contributions to blocks without a result that found their slots
				taken */
};

/*
 * Maximum number of mbufs that a slot holds between calls. The network manager uses it for
 * planning, too.
 */
struct fanin_slot_mbufs {
	uint8_t fixed;
	uint8_t per_buffer; /* for each of a block's buffers, at most one per child */
	uint8_t per_pair; /* for each pair of children, and a child without a partner; more if their
			     ranks are not consecutive: see fanin_order_build */
};

/*
 * Inputs for choosing a handler for a job that names none: the size of its messages, and the sizes
 * up to which the configuration prefers certain handlers (Flare section 6.4).
 */
struct fanin_choice {
	uint64_t message_bytes; /* usual size of a collective; 0: unknown, taken as large */
	uint64_t tree_up_to;    /* the configuration's sizes, bytes */
	uint64_t multi2_up_to;
	uint64_t multi4_up_to;
};

struct fanin_handler {
	const char *name; /* used in the config, faninctl and reports; at most 15 characters */
	const char *description; /* one line, shown to users */
	bool in_order; /* combines in params.order, so that operators may depend on the order: for
			  reproducible jobs */
	bool makes_packets;      /* takes mbufs by fanin_take */
	bool makes_headers_only; /* makes packets without payload only: the job's payload may be
				    longer than these mbufs have room for */
	bool is_native; /* never accumulates in a longer type: jobs that ask for it are refused */
	uint16_t ranks_max; /* maximum ranks of a job; 0: FANIN_WIRE_MAX_RANKS */
	enum fanin_shape shape;
	enum fanin_admission admission;
	enum fanin_slots_of slots_of;
	/*
	 * With SHARED: each job's blocks use a part of the slots that no other job uses: 2W slots,
	 * or as many as there are for each. When the parts change, packets and timers of a block in
	 * an old slot no longer find it; the next sweep empties the slot.
	 */
	bool slots_apart;
	struct fanin_slot_mbufs slot_mbufs; /* at least one in total if there are slots; limits
					       their number */

	/*
	 * Returns true if this handler is the one for a job that names none; at most one handler in
	 * the registry does so. May set *buffers, the buffers per block. NULL: never.
	 */
	bool (*suits)(const struct fanin_choice *choice, uint32_t *buffers);

	const struct fanin_counter *counters;     /* FANIN_OWN_COUNTERS_MAX at most; NULL: none */
	const struct fanin_parameter *parameters; /* FANIN_PARAMETERS_MAX at most; NULL: none */

	const struct fanin_value *values; /* NULL: none */

	/*
	 * Sets the current values of a kind, given by its index in `values`. Called by any thread,
	 * while workers use the state. NULL if there are no kinds. Returns the number of values
	 * set, FANIN_VALUES_EACH_MAX at most; 0: none.
	 */
	unsigned int (*tell)(const struct fanin_job_params *job, const void *state,
			     unsigned int kind, uint64_t *values);

	/*
	 * Bytes of a job's state, ctx->state, which its slots have in common: zeroed when the job
	 * is made, freed with it. Workers share it and change it atomically. state_size: set
	 * instead if the size depends on the job. Neither: there is no state.
	 */
	size_t state_bytes;
	size_t (*state_size)(const struct fanin_job_params *job);

	/*
	 * Removes a job's part from job->slots.common: its run is over, or the job is removed.
	 * Called by the main thread, while workers may still be in a call for the run that ended;
	 * possibly several times. NULL: the handler does not use slots.common.
	 */
	void (*state_release)(const struct fanin_job_params *job, void *state);

	/*
	 * Reports the progress of the ranks of the run `epoch`, and the job's use of slots. Changes
	 * nothing. Called by any thread, while workers use the state. NULL: the handler does not
	 * know. Returns false if it has nothing to report for this run.
	 */
	bool (*rank_progress)(const struct fanin_job_params *job, const void *state, uint32_t epoch,
			      struct fanin_rank_progress *progress);

	/*
	 * Bytes of one slot; the pipeline rounds up to a cache line. slot_size: set instead if the
	 * size depends on the job. Neither without slots.
	 */
	size_t slot_bytes;
	size_t (*slot_size)(const struct fanin_job_params *job);

	/*
	 * Handles a contribution for this slot, of the run ctx->epoch. A handler without
	 * contributions drops it as FANIN_REASON_TYPE: any member may send one. The slot was zeroed
	 * when the job was made, and may have been used by earlier runs and, if it is shared, by
	 * other jobs. index: of the slot. If the job is shared, other workers may call this for the
	 * same slot at the same time. On FANIN_VERDICT_DROP *reason is set; on FANIN_VERDICT_RETRY
	 * the packet is unchanged.
	 */
	enum fanin_verdict (*contribution)(struct fanin_handler_ctx *ctx, void *slot,
					   uint32_t index, struct fanin_packet *packet,
					   enum fanin_reason *reason);

	/*
	 * The handler's own packet types, which are registered with it; the last one has no name.
	 * NULL: none.
	 */
	const struct fanin_packet_type *packets;

	/*
	 * Further packet types that the handler takes, of the class BLOCK (wire/packets.h); 0 ends
	 * the list. NULL: none.
	 */
	const uint8_t *types;

	/*
	 * Handles a packet of one of `types`, of the run ctx->epoch, with valid headers. Otherwise
	 * as for a contribution. If the packet comes from the parent, packet->child has no meaning,
	 * and FANIN_VERDICT_DROP notifies nobody. docs/protocol.md and the README.md of each
	 * protocol describe the types. NULL without `types`.
	 */
	enum fanin_verdict (*other)(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
				    struct fanin_packet *packet, enum fanin_reason *reason);

	/*
	 * Returns the timeout of a job's timers, ns, 1 at least. NULL: the handler has no timers.
	 */
	uint64_t (*timeout_ns)(const struct fanin_job_params *job);

	/*
	 * Returns the longest wait that the handler divides into timers (fanin_timer_arm_within),
	 * ns. As far as there is room, timers exist for the timeout, for FANIN_TIMER_STEP times it,
	 * for FANIN_TIMER_STEP times that, and so on up to this wait. NULL: all waits are
	 * timeout_ns.
	 */
	uint64_t (*longest_wait_ns)(const struct fanin_job_params *job);

	/*
	 * Called when a timer that fanin_timer_arm has set for a block of this slot, of the run
	 * ctx->epoch, has expired: in the first round whose clock has reached it, or earlier if
	 * there were too many timers. The slot may hold another block meanwhile. ctx->now_ns is the
	 * round's time. Returns false if another worker uses the slot: it is called again after
	 * another timeout. NULL without timeout_ns.
	 */
	bool (*expired)(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, uint32_t block);

	/*
	 * Reads from a slot a block of the run `epoch` that waits; changes nothing. Called by any
	 * thread, while workers use the slot. NULL: no block ever waits, or there are no slots.
	 * Returns false if no block waits, or if the slot changes so fast that none waits in it.
	 */
	bool (*peek)(const struct fanin_job_params *job, uint32_t epoch, const void *slot,
		     struct fanin_peek *peek);

	/*
	 * Gives up the mbufs in the slot, by fanin_release. Private slots: ctx->job is the job, and
	 * the slot is not used again. Shared slots: ctx->job is NULL, the caller has entered the
	 * slot, whose tag is still set, and the slot is used again. NULL without slots.
	 */
	void (*slot_release)(struct fanin_handler_ctx *ctx, void *slot);

	/* Set by the registry. */
	struct fanin_handler *next;
	uint64_t takes[4]; /* bitmap of `types` */
};

/*
 * Returns the reason why a handler can't be registered, such as a name that is taken, as a static
 * string; or NULL if it can. Thread-safe after start-up.
 */
const char *fanin_handler_problem(const struct fanin_handler *candidate);

/*
 * Adds a handler to the registry, and its packets to the known types. Called by
 * FANIN_HANDLER_REGISTER before main, single-threaded. If there is a problem, prints it and ends
 * the process.
 */
void fanin_handler_register(struct fanin_handler *handler);

/* Returns true if the packet type is one of the handler's `types`. Thread-safe after start-up. */
static inline bool
fanin_handler_takes(const struct fanin_handler *handler, uint8_t type)
{
	return (handler->takes[type / 64] >> (type % 64) & 1) != 0;
}

/* Returns the handler with a name, or NULL. Thread-safe after start-up. */
const struct fanin_handler *fanin_handler_find(const char *name);

/*
 * Returns the handler for a job that names none: the one that combines in order if the job is
 * reproducible, otherwise the one that suits the choice. NULL: there is none.
 *
 * buffers: set if the handler prefers a number of buffers per block. Thread-safe after start-up.
 */
const struct fanin_handler *fanin_handler_choose(const struct fanin_choice *choice,
						 bool reproducible, uint32_t *buffers);

/*
 * Returns the maximum number of mbufs that a slot of a handler holds: 1 at least, or 0 without
 * slots.
 *
 * n_children: of the job on this switch. n_pairs: what fanin_order_build returns for them. buffers:
 * per block. Thread-safe.
 */
static inline unsigned int
fanin_slot_mbufs(const struct fanin_handler *handler, unsigned int n_children, unsigned int n_pairs,
		 unsigned int buffers)
{
	const struct fanin_slot_mbufs *each = &handler->slot_mbufs;

	return each->fixed + each->per_buffer * (buffers < n_children ? buffers : n_children) +
	       each->per_pair * n_pairs;
}

/* Returns the bytes of one slot for a job; 0 without slots. Thread-safe. */
static inline size_t
fanin_slot_size(const struct fanin_handler *handler, const struct fanin_job_params *job)
{
	return handler->slot_size != NULL ? handler->slot_size(job) : handler->slot_bytes;
}

/* Returns the bytes of a job's state; 0 without state. Thread-safe. */
static inline size_t
fanin_state_size(const struct fanin_handler *handler, const struct fanin_job_params *job)
{
	return handler->state_size != NULL ? handler->state_size(job) : handler->state_bytes;
}

/* Returns true if the handler reduces contributions along a tree. Thread-safe. */
static inline bool
fanin_handler_reduces(const struct fanin_handler *handler)
{
	return handler->shape == FANIN_SHAPE_TREE;
}

/*
 * Returns the number of handlers whose jobs share slots; the same number of slots is set aside for
 * each of them. Thread-safe after start-up.
 */
unsigned int fanin_handlers_that_share(void);

/* Returns the first handler; its `next` leads to the others. Thread-safe after start-up. */
const struct fanin_handler *fanin_handler_first(void);

#define FANIN_HANDLER_REGISTER(handler)                                                            \
	static void __attribute__((constructor)) register_##handler(void)                          \
	{                                                                                          \
		fanin_handler_register(&(handler));                                                \
	}

/*
 * Adds the emission that the caller has filled in behind the last one; there is always room for it.
 */
static inline void
fanin_emission_add(struct fanin_handler_ctx *ctx)
{
	if (__builtin_expect(++ctx->n_emissions == FANIN_MAX_EMISSIONS, 0))
		ctx->drain(ctx);
}

/*
 * Emits a frame to children, to the parent, or back to the sender. A call of the handler may emit
 * any number of frames. An emitted frame may be sent at once: it is complete, and the handler reads
 * it again only if it holds a reference of its own. A changed received packet has no UDP checksum:
 * the field is 0.
 */
static inline void
fanin_emit(struct fanin_handler_ctx *ctx, enum fanin_emission_kind kind, struct rte_mbuf *mbuf,
	   uint64_t children, uint32_t payload_len)
{
	struct fanin_emission *emission = &ctx->emissions[ctx->n_emissions];

	emission->mbuf = mbuf;
	emission->job = ctx->job;
	emission->children = children;
	emission->kind = kind;
	emission->payload_len = payload_len;
	fanin_emission_add(ctx);
}

/*
 * Emits a complete frame to ports, with one reference of the mbuf for each.
 *
 * ports: bitmap, by index in the switch, as in params.ports.
 */
static inline void
fanin_emit_ports(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint64_t ports)
{
	struct fanin_emission *emission = &ctx->emissions[ctx->n_emissions];

	emission->mbuf = mbuf;
	emission->job = ctx->job;
	emission->ports = ports;
	emission->kind = FANIN_EMIT_PORTS;
	fanin_emission_add(ctx);
}

/*
 * Emits a complete IPv4 packet towards its destination address: to a next hop by the switch's
 * routes, or to the host in the switch's own subnet. The pipeline fills in its Ethernet addresses
 * and decrements its time to live, so this takes the only reference. A packet without a route is
 * dropped and counted, like any routed packet.
 *
 * by_backlog: among several next hops, the one with the shortest queue is taken if the usual one's
 * queue is long; otherwise the next hop of the flow.
 */
static inline void
fanin_emit_route(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, bool by_backlog)
{
	struct fanin_emission *emission = &ctx->emissions[ctx->n_emissions];

	emission->mbuf = mbuf;
	emission->job = ctx->job;
	emission->route.by_backlog = by_backlog;
	emission->route.has_flow = false;
	emission->kind = FANIN_EMIT_ROUTE;
	fanin_emission_add(ctx);
}

/*
 * As fanin_emit_route, for packets of several senders that are to meet: `flow` gives the usual next
 * hop, the same on all switches with their next hops in the same order (Canary section 3.1.1).
 */
static inline void
fanin_emit_route_together(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf, uint32_t flow)
{
	struct fanin_emission *emission = &ctx->emissions[ctx->n_emissions];

	emission->mbuf = mbuf;
	emission->job = ctx->job;
	emission->route.by_backlog = true;
	emission->route.has_flow = true;
	emission->route.flow = flow;
	emission->kind = FANIN_EMIT_ROUTE;
	fanin_emission_add(ctx);
}

/* Arms a timer in a FIFO, for fanin_timer_arm and fanin_timer_arm_within. */
static inline bool
fanin_timer_arm_in(struct fanin_handler_ctx *ctx, struct fanin_timer_fifo *fifo, uint32_t index,
		   uint32_t block)
{
	const uint64_t due_ns = ctx->now_ns + fifo->timeout_ns;
	struct fanin_timer *timer = fanin_timer_fifo_append(fifo, due_ns);

	if (timer == NULL)
		return false;
	timer->due_ns = due_ns;
	timer->job = ctx->job->id;
	timer->epoch = ctx->epoch;
	timer->index = index;
	timer->block = block;
	return true;
}

/*
 * Arms a timer for a block of the call's slot, which expires after the handler's timeout. If there
 * are too many timers, the first ones expire at the end of the round, which makes stragglers but no
 * error. At most FANIN_MAX_ARMS_PER_CALL per call.
 *
 * Returns false if there is no room: the block then has no timer. This happens only to handlers
 * that arm more and more timers from `expired`.
 */
static inline bool
fanin_timer_arm(struct fanin_handler_ctx *ctx, uint32_t index, uint32_t block)
{
	return fanin_timer_arm_in(ctx, ctx->timers, index, block);
}

/*
 * As fanin_timer_arm, for a part of a longer wait: arms the timer with the longest timeout up to
 * `wait_ns`, or with the handler's timeout if that is longer. If `expired` calls it for the
 * remaining time, a wait takes few timers.
 */
static inline bool
fanin_timer_arm_within(struct fanin_handler_ctx *ctx, uint64_t wait_ns, uint32_t index,
		       uint32_t block)
{
	return fanin_timer_arm_in(ctx, fanin_timer_fifo_within(ctx->timers, wait_ns), index, block);
}

/* seal.c: see fanin_seal. */
void fanin_seal_tagged(struct fanin_handler_ctx *ctx, enum fanin_tag_direction direction,
		       struct rte_mbuf *mbuf);

/*
 * Puts the tag on a frame of the handler, in jobs that have tags; the handler's last change to the
 * frame. The mbuf has room for the tag, and nobody else uses it yet. Not for REPLY, which the
 * pipeline completes.
 */
static inline void
fanin_seal(struct fanin_handler_ctx *ctx, enum fanin_tag_direction direction, struct rte_mbuf *mbuf)
{
	if (__builtin_expect(ctx->tagger != NULL, 0))
		fanin_seal_tagged(ctx, direction, mbuf);
}

/*
 * Takes an empty mbuf, with room for the job's longest packet behind the usual headroom, which
 * aligns the payload. For handlers that have `makes_packets`. The caller owns the mbuf. Returns
 * NULL if there is none; handlers then treat the packet as lost.
 */
static inline struct rte_mbuf *
fanin_take(struct fanin_handler_ctx *ctx)
{
	return ctx->n_stock == 0 ? NULL : ctx->stock[--ctx->n_stock];
}

/*
 * Gives up one reference of an mbuf, which may be freed at once. A call of the handler may release
 * any number of mbufs.
 */
static inline void
fanin_release(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf)
{
	ctx->frees[ctx->n_frees] = mbuf;
	if (__builtin_expect(++ctx->n_frees == FANIN_MAX_FREES, 0))
		ctx->drain(ctx);
}

#endif
