/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a handler is given and what it may do (Flare section 3: the function an HPU runs on a
 * packet). A handler is pure: it sees a validated packet, its slot, the job's constants, time and
 * random numbers, all through struct fanin_handler_ctx, and answers by emissions that the pipeline
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
/* Ports of a switch: a word has a bit for each. */
#define FANIN_MAX_PORTS 64
/* Counters and parameters that a handler may have of its own. */
#define FANIN_OWN_COUNTERS_MAX 16
#define FANIN_PARAMETERS_MAX FANIN_WIRE_PARAMETERS

/* Owner of the slots of a handler's jobs. */
enum fanin_slots_of {
	FANIN_SLOTS_PRIVATE, /* each job has its own */
	FANIN_SLOTS_SHARED,  /* all jobs of the handler whose slots are of one size share them: see
				struct fanin_slot_tag */
	FANIN_SLOTS_NONE,    /* there are none: the slot is NULL, its index 0, and any worker may be
				called for any block */
};

/*
 * A job's slots. Where jobs share them, each job has another block in a slot, and none has two of a
 * window in one.
 */
struct fanin_slots {
	/*
	 * Where each job has a part of its own (slots_apart), both change as jobs come and go, and
	 * a worker may see one of them before the other: any index below the pool's number of slots
	 * is good for any part. Main thread: rw, workers: ro.
	 */
	uint8_t *const *by_index;
	uint32_t mask; /* the number of slots, a power of two, - 1 */
	uint32_t salt; /* 0 where they are the job's own */
	void *common;  /* FANIN_SLOTS_COMMON bytes, zeroed when the slots are made: see
			  state_release. NULL: there are no slots */
};

/*
 * Bytes that all jobs of the same slots have in common: a cache line of its own. Workers change
 * them atomically.
 */
#define FANIN_SLOTS_COMMON 64

/* The index of a block's slot. */
static inline uint32_t
fanin_slot_index(const struct fanin_slots *slots, uint32_t block)
{
	return (block ^ slots->salt) & slots->mask;
}

/*
 * What a shared slot begins with. The handler says whose data the slot holds (fanin_slot_take), and
 * compares that (fanin_slot_holds). Only whoever has entered a slot may use it; a handler leaves it
 * before it returns. Within a second or so after the end of a run the switch enters the slots that
 * still hold something of it, calls slot_release and empties the tag.
 */
struct fanin_slot_tag {
	uint32_t busy;  /* fanin_slot_enter's; atomic */
	uint32_t job;   /* 0: the slot holds nothing; read by threads that are not in, too */
	uint32_t epoch; /* ctx->epoch when it was taken */
	uint32_t block;
};

/* Enters a shared slot. Returns false if another thread is in: FANIN_VERDICT_RETRY. */
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
 * The shape of a job: how its packets go through its switches. `version` tells it to the network
 * manager.
 */
enum fanin_shape {
	FANIN_SHAPE_TREE, /* contributions of all members meet on their way up a tree, and results
			     go down */
	FANIN_SHAPE_MULTICAST, /* packets of any member go to all others along a tree; nothing is
				  kept */
	FANIN_SHAPE_SERVER,    /* as TREE, but the parent of the topmost switch is a server, which
				  makes the results */
	FANIN_SHAPE_LEADERS, /* each block has a rank that makes its result; packets find their way
				to it by the switches' routes */
};

/* Which packets are a job's? */
enum fanin_admission {
	FANIN_ADMIT_MEMBERS, /* contributions and answers of its children, in a run that they have
				joined, and what its parent sends */
	/*
	 * Packets about blocks that have the job's key and a type that the handler takes, wherever
	 * they go to, if they come in at one of params.ports: also those that the switch would
	 * forward or route. packet->child is the index of that port in the switch. Rank, source and
	 * the header's epoch are not compared. While the members here have no run, ctx->epoch is a
	 * number that is the job's alone. Nobody is told of what is dropped. Such a job has no
	 * tags.
	 */
	FANIN_ADMIT_KEY,
};

/* The job as its handler may know it. Constant while any worker can see it. */
struct fanin_job_params {
	uint32_t id;
	uint16_t n_children;    /* 1 to FANIN_WIRE_MAX_CHILDREN */
	uint16_t n_ranks;       /* hosts of the whole job, behind all of its switches */
	uint16_t n_below;       /* those behind this switch */
	uint16_t parent_rank;   /* by which the parent knows this switch: the lowest behind it */
	uint16_t window;        /* W; slots of its own are 2W */
	uint16_t payload_bytes; /* most payload per packet; a packet's mbuf has room for as much */
	uint64_t children;      /* bitmap of all children */
	uint64_t ports; /* bitmap of the switch's ports that lead to children, to the parent or, of
			   the shape LEADERS, to other switches, by index */
	struct fanin_slots slots;
	struct fanin_keys keys;
	struct fanin_headers result_headers; /* template of results: Ethernet, IPv4 and UDP to the
						group, of full payload */
	bool has_parent;                     /* else this is the root of the job's tree */
	bool parent_is_server; /* the parent is no switch, and all ranks are behind this one; of
				  jobs of the shape SERVER */
	bool shared;           /* several workers may be in one slot at a time */
	bool in_order;  /* the handler combines in the order of the ranks, as far as this switch has
			   them in a row */
	bool has_units; /* the ranks behind this switch, and behind each child, are a unit: see
			   wire/order.h */
	bool wide;      /* sums and averages of f16 and bf16 are accumulated in f32 */
	uint8_t buffers;    /* per block, for handlers with several: 2 to FANIN_MAX_BUFFERS */
	enum fanin_isa isa; /* kernels to use */

	/* Seldom looked at, or only below the root. */
	struct fanin_headers parent_headers; /* template of contributions to the parent, likewise of
						full payload */
	bool authenticate; /* packets have tags (wire/tag.h), which handlers do not see */
	uint64_t parameters[FANIN_PARAMETERS_MAX]; /* in the order of the handler's `parameters`,
						      each within its bounds */
	uint64_t links;      /* of `ports` those that lead to other switches; of jobs of the shape
				LEADERS */
	uint64_t ranks_here; /* the ranks whose hosts are at this switch, likewise */
	uint64_t port_ranks[FANIN_MAX_PORTS]; /* the ranks behind each other port of `ports`,
						 likewise */
	struct fanin_order order; /* of the children, by their ranks; fanin_job_params_order sets it
				   */
	struct fanin_ranks child_ranks[FANIN_WIRE_MAX_CHILDREN]; /* the ranks behind each child */
};

/* Sets what follows from the ranks behind each child. Returns what fanin_order_build does. */
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

/* Gives a job n children, which are hosts of the same ranks, and no parent. */
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
	uint16_t child; /* index in the job; with FANIN_ADMIT_KEY of the port in the switch */
};

enum fanin_emission_kind {
	FANIN_EMIT_CHILDREN, /* a complete frame to `children`, one mbuf reference each */
	FANIN_EMIT_PARENT,   /* a complete frame to the parent */
	FANIN_EMIT_REPLY, /* the packet itself, turned around to its sender, the one of `children`
			   */
	FANIN_EMIT_PORTS, /* a complete frame to `ports`, one mbuf reference each */
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
	uint32_t payload_len; /* REPLY: bytes behind the Fanin header */
};

/*
 * Emissions and frees are carried out after a burst, and as soon as there are so many: more than a
 * burst of usual packets causes.
 */
#define FANIN_BURST 64
#define FANIN_MAX_EMISSIONS (FANIN_BURST * 2 + 1)
#define FANIN_MAX_FREES 160
/* Empty mbufs that a worker has at hand for handlers, when a burst of packets or a timer begins. */
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
 * Values of one kind that a handler tells of a job, FANIN_VALUES_EACH_MAX at most: as counters,
 * with their least, median and most.
 */
#define FANIN_VALUES_EACH_MAX FANIN_SERVER_RANKS_MAX

struct fanin_value {
	const char *name; /* small letters and underscores, with the unit; NULL ends a list */
	const char *text; /* one line for people */
	const char *by;   /* what there is one of each for, such as "leader"; NULL: there is one */
};

/*
 * A counter of one handler: in `faninctl jobs`, and a label of the metric fanin_job_counter_total.
 */
struct fanin_counter {
	const char *name; /* small letters and underscores; NULL ends a list */
	const char *text; /* one line for people */
};

/*
 * A parameter of one handler's jobs: of `jobs.create`, and `faninctl jobs create --parameter
 * NAME=VALUE`.
 */
struct fanin_parameter {
	const char *name; /* small letters and underscores; NULL ends a list */
	const char *text; /* one line for people, with the unit */
	uint64_t least;
	uint64_t most; /* INT64_MAX at most */
	uint64_t usual;
};

/* A call of a handler arms at most so many timers. */
#define FANIN_MAX_ARMS_PER_CALL 2

/*
 * Everything a handler call can reach besides its slot. One per worker; the worker alone reads and
 * writes it.
 */
struct fanin_handler_ctx {
	const struct fanin_job_params *job;
	uint32_t epoch;              /* run of the job that the packet belongs to */
	uint32_t parent_epoch;       /* the same run as the parent numbers it */
	uint64_t now_ns;             /* when the burst was received; monotonic */
	void *state;                 /* the job's; NULL: its handler has none */
	struct fanin_tagger *tagger; /* puts tags on what is sent; NULL: the job's packets have none
				      */
	uint64_t instance;           /* of this switch, for tags downwards */
	uint64_t parent_instance;    /* of the parent, for tags upwards */
	uint8_t parent_port_shift;   /* of source ports of packets to the parent */
	const struct fanin_ranks *ended;  /* ranks whose processes have ended; words change,
					     atomically. NULL: nobody's */
	const struct fanin_ranks *silent; /* ranks that don't answer probes, likewise */
	uint64_t expected; /* with FANIN_REASON_MISMATCH: the block's shape; 0: not told */
	uint64_t missing;  /* from a QUERY: children to be probed, which an overdue block waits for;
			      grows */
	struct fanin_handler_stats *stats;
	struct fanin_timer_fifo *timers; /* of jobs with this one's timeout; NULL: its handler has
					    none */
	/*
	 * Carries out emissions and frees when there is no room for more, within a call of the
	 * handler. NULL: there is always enough.
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
 * Gives a shared slot to this block. The caller has entered it, and given up what it held before.
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

/* What became of a packet. */
enum fanin_verdict {
	FANIN_VERDICT_HELD,  /* the handler keeps or emitted the mbuf */
	FANIN_VERDICT_FREE,  /* the pipeline frees it: merged or a duplicate */
	FANIN_VERDICT_DROP,  /* the pipeline counts *reason, tells the sender and frees it */
	FANIN_VERDICT_RETRY, /* another worker is in the way: the pipeline tries again later */
};

/* Returns the verdict on a packet that is refused, with its reason set. */
static inline enum fanin_verdict
fanin_drop(enum fanin_reason *reason, enum fanin_reason why)
{
	*reason = why;
	return FANIN_VERDICT_DROP;
}

/* A block that has begun and has no result yet, and what it waits for. */
struct fanin_peek {
	uint32_t block;
	bool sent;         /* all contributions are in, and the parent's result is awaited */
	uint64_t missing;  /* bitmap of children whose contribution is not in; 0 if sent */
	uint64_t begun_ns; /* when the first contribution came, as ctx->now_ns has the time */
};

/* How far the ranks of a run are. */
struct fanin_rank_progress {
	uint16_t n_ranks;
	uint32_t blocks[FANIN_SERVER_RANKS_MAX]; /* by rank: the block after the last one that it
						    has sent */
	uint32_t slots_used;                     /* of the job's slots: by blocks of this job */
	uint32_t overflowed; /* contributions to blocks without a result that found their slots
				taken */
};

/* Mbufs that a slot can hold at most, between calls. The network manager plans with it, too. */
struct fanin_slot_mbufs {
	uint8_t fixed;
	uint8_t per_buffer; /* for each of a block's buffers, of which there are no more than
			       children */
	uint8_t per_pair;   /* for each pair of children, and one that is left over; more if their
			       ranks are no row: fanin_order_build */
};

/*
 * By what a handler is chosen for a job that names none: the size of its messages, and the sizes up
 * to which the configuration prefers some (Flare section 6.4).
 */
struct fanin_choice {
	uint64_t message_bytes; /* usual size of a collective; 0: not known, and large */
	uint64_t tree_up_to;    /* the configuration's sizes, bytes */
	uint64_t multi2_up_to;
	uint64_t multi4_up_to;
};

struct fanin_handler {
	const char *name;        /* as in the config, faninctl and reports; at most 15 characters */
	const char *description; /* one line for people */
	bool in_order;           /* combines as params.order has it, so that order may matter: for
				    reproducible jobs */
	bool makes_packets;      /* by fanin_take */
	bool makes_headers_only; /* ... and none of them has a payload: the job's payload may be
				    longer than there is room for in these */
	bool is_native;          /* never accumulates in a longer type: jobs that do are refused */
	uint16_t ranks_max;      /* of a job; 0: FANIN_WIRE_MAX_RANKS */
	enum fanin_shape shape;
	enum fanin_admission admission;
	enum fanin_slots_of slots_of;
	/*
	 * SHARED: each job's blocks keep to a part of the slots that no other job uses: 2W of them,
	 * or as many as there are for each. What is in a slot when that changes is found no more by
	 * the packets of its block or by its timer; the next sweep empties it.
	 */
	bool slots_apart;
	struct fanin_slot_mbufs slot_mbufs; /* at least one in all, where there are slots; limits
					       their number */

	/*
	 * Is this the handler for a job that names none? Of those in the registry at most one says
	 * so. May set *buffers, per block. NULL: never.
	 */
	bool (*suits)(const struct fanin_choice *choice, uint32_t *buffers);

	const struct fanin_counter *counters;     /* FANIN_OWN_COUNTERS_MAX at most; NULL: none */
	const struct fanin_parameter *parameters; /* FANIN_PARAMETERS_MAX at most; NULL: none */

	const struct fanin_value *values; /* NULL: none */

	/*
	 * Tells values of a kind, by its place in `values`, at about this time. Any thread, while
	 * workers use the state. NULL if there are no kinds. Returns how many were set:
	 * FANIN_VALUES_EACH_MAX at most, 0: there is nothing to tell.
	 */
	unsigned int (*tell)(const struct fanin_job_params *job, const void *state,
			     unsigned int kind, uint64_t *values);

	/*
	 * Bytes of a job's state, ctx->state, which its slots have in common: zeroed when the job
	 * is made, freed with it. Workers share it and change it atomically. state_size: where they
	 * depend on the job. Neither: there is none.
	 */
	size_t state_bytes;
	size_t (*state_size)(const struct fanin_job_params *job);

	/*
	 * Takes what a job has entered in job->slots.common out of it: its run is over, or the job
	 * goes. Main thread, while workers may still be in a call for the run that ended; it may be
	 * called again and again. NULL: nothing is entered there.
	 */
	void (*state_release)(const struct fanin_job_params *job, void *state);

	/*
	 * How far the ranks of the run `epoch` are, and what the job has of the slots. Changes
	 * nothing. Any thread, while workers use the state. NULL: the handler does not know.
	 * Returns false if there is nothing to tell of this run.
	 */
	bool (*rank_progress)(const struct fanin_job_params *job, const void *state, uint32_t epoch,
			      struct fanin_rank_progress *progress);

	/*
	 * Bytes of one slot; the pipeline rounds up to a cache line. slot_size: where they depend
	 * on the job. Neither if there are no slots.
	 */
	size_t slot_bytes;
	size_t (*slot_size)(const struct fanin_job_params *job);

	/*
	 * A contribution for this slot, of the run ctx->epoch. A handler that has no use for any
	 * drops it as FANIN_REASON_TYPE: whoever is a member may send one. The slot was zeroed when
	 * the job was made, and may have been used by earlier runs, and if it is shared, by other
	 * jobs. index: of the slot. If the job is shared, other workers may call this for the same
	 * slot at the same time. On FANIN_VERDICT_DROP *reason is set; on FANIN_VERDICT_RETRY the
	 * packet is as it came.
	 */
	enum fanin_verdict (*contribution)(struct fanin_handler_ctx *ctx, void *slot,
					   uint32_t index, struct fanin_packet *packet,
					   enum fanin_reason *reason);

	/*
	 * Types of packets of its own, which become known with it; the last one has no name. NULL:
	 * none.
	 */
	const struct fanin_packet_type *packets;

	/*
	 * Further types of packets that it takes, of the class BLOCK (wire/packets.h); 0 ends the
	 * list. NULL: none.
	 */
	const uint8_t *types;

	/*
	 * A packet of one of these, of the run ctx->epoch, with valid headers. Otherwise as a
	 * contribution. Of one that comes from the parent packet->child has no meaning, and after
	 * FANIN_VERDICT_DROP nobody is told. What each of the tree's own types says is in
	 * docs/protocol.md and the README.md of its protocol. NULL if there are none.
	 */
	enum fanin_verdict (*other)(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
				    struct fanin_packet *packet, enum fanin_reason *reason);

	/* The timeout of a job's timers, ns, 1 at least. NULL: it has none. */
	uint64_t (*timeout_ns)(const struct fanin_job_params *job);

	/*
	 * The longest wait that it divides into timers (fanin_timer_arm_within), ns. Timers of
	 * FANIN_TIMER_STEP times the timeout, of that many times it again, and so on, are there up
	 * to this one, as far as there is room. NULL: all waits are timeout_ns.
	 */
	uint64_t (*longest_wait_ns)(const struct fanin_job_params *job);

	/*
	 * A timer that fanin_timer_arm has set for a block of this slot, of the run ctx->epoch, has
	 * expired: in the first round whose clock has reached it, or earlier if there were too
	 * many. The slot may be at another block meanwhile. ctx->now_ns is the round's time.
	 * Returns false if another worker is in the way: it is called again after another timeout.
	 * NULL if there is no timeout_ns.
	 */
	bool (*expired)(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, uint32_t block);

	/*
	 * Looks into a slot, and changes nothing: a block of the run `epoch` that waits. Any
	 * thread, while workers use the slot. NULL: nothing ever waits, and so where there are no
	 * slots. Returns false if there is none, or if the slot changes so fast that nothing waits
	 * in it.
	 */
	bool (*peek)(const struct fanin_job_params *job, uint32_t epoch, const void *slot,
		     struct fanin_peek *peek);

	/*
	 * Gives up the mbufs in the slot, by fanin_release. Private: ctx->job is the job, and the
	 * slot is not used again. Shared: ctx->job is NULL, the caller has entered the slot, whose
	 * tag is still there, and it is used again. NULL if there are no slots.
	 */
	void (*slot_release)(struct fanin_handler_ctx *ctx, void *slot);

	/* The registry's. */
	struct fanin_handler *next;
	uint64_t takes[4]; /* bitmap of `types` */
};

/*
 * Why a handler can't be registered, such as a name that is taken; a static string, or NULL if it
 * can. Thread-safe after start-up.
 */
const char *fanin_handler_problem(const struct fanin_handler *candidate);

/*
 * Adds a handler to the registry, and its packets to the known types. Called by
 * FANIN_HANDLER_REGISTER before main, single-threaded. If there is a problem it ends the process,
 * saying what it is.
 */
void fanin_handler_register(struct fanin_handler *handler);

/* Is the packet type one of the handler's `types`? Thread-safe after start-up. */
static inline bool
fanin_handler_takes(const struct fanin_handler *handler, uint8_t type)
{
	return (handler->takes[type / 64] >> (type % 64) & 1) != 0;
}

/*
 * The handler of a name, or NULL. Thread-safe after start-up.
 */
const struct fanin_handler *fanin_handler_find(const char *name);

/*
 * The handler for a job that names none: that which combines in order if it is to be reproducible,
 * else the one that suits the choice.
 *
 * buffers: set if the handler has a wish for how many there are per block. Returns NULL if there is
 * none. Thread-safe after start-up.
 */
const struct fanin_handler *fanin_handler_choose(const struct fanin_choice *choice,
						 bool reproducible, uint32_t *buffers);

/*
 * Mbufs that a slot of a handler can hold at most.
 *
 * n_children: of the job on this switch. n_pairs: what fanin_order_build returns for them. buffers:
 * per block. Returns 1 at least, or 0 if it has no slots. Thread-safe.
 */
static inline unsigned int
fanin_slot_mbufs(const struct fanin_handler *handler, unsigned int n_children, unsigned int n_pairs,
		 unsigned int buffers)
{
	const struct fanin_slot_mbufs *each = &handler->slot_mbufs;

	return each->fixed + each->per_buffer * (buffers < n_children ? buffers : n_children) +
	       each->per_pair * n_pairs;
}

/* Bytes of one slot for a job; 0: there are none. Thread-safe. */
static inline size_t
fanin_slot_size(const struct fanin_handler *handler, const struct fanin_job_params *job)
{
	return handler->slot_size != NULL ? handler->slot_size(job) : handler->slot_bytes;
}

/* Bytes of a job's state; 0: there is none. Thread-safe. */
static inline size_t
fanin_state_size(const struct fanin_handler *handler, const struct fanin_job_params *job)
{
	return handler->state_size != NULL ? handler->state_size(job) : handler->state_bytes;
}

/* True if the handler reduces contributions along a tree. Thread-safe. */
static inline bool
fanin_handler_reduces(const struct fanin_handler *handler)
{
	return handler->shape == FANIN_SHAPE_TREE;
}

/*
 * How many handlers have jobs that share slots: for each of them as many are set aside. Thread-safe
 * after start-up.
 */
unsigned int fanin_handlers_that_share(void);

/*
 * The first handler, then the next of each one by its next pointer. Thread-safe after start-up.
 */
const struct fanin_handler *fanin_handler_first(void);

#define FANIN_HANDLER_REGISTER(handler)                                                            \
	static void __attribute__((constructor)) register_##handler(void)                          \
	{                                                                                          \
		fanin_handler_register(&(handler));                                                \
	}

/* The emission behind the last one, for which there is always room, has been filled in. */
static inline void
fanin_emission_add(struct fanin_handler_ctx *ctx)
{
	if (__builtin_expect(++ctx->n_emissions == FANIN_MAX_EMISSIONS, 0))
		ctx->drain(ctx);
}

/*
 * Emits a frame to children, to the parent, or back to the sender. A call of the handler may do so
 * as often as it likes. What is emitted may be sent at once: the frame is complete, and the handler
 * looks at it again only if it has a reference of its own. A received packet that was changed has
 * no checksum of UDP any more: the field is 0.
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
 * routes, or to the host in the switch's own subnet. Its Ethernet addresses are filled in and its
 * time to live is counted down, so the only reference goes with it. What cannot go there is dropped
 * and counted, as any packet that is routed.
 *
 * by_backlog: of several next hops the one with the least to send is taken if the usual one's queue
 * is long; else that of the flow.
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
 * Likewise, where packets of several senders are to meet: the usual next hop is that of `flow`, on
 * all switches alike that have their next hops in the same order (Canary section 3.1.1).
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

/* For fanin_timer_arm and fanin_timer_arm_within. */
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
 * Arms a timer for a block of the slot that the call is for, which expires after the handler's
 * timeout. If there are too many, those that would have expired first do so at the end of the
 * round, which makes stragglers and no error. At most FANIN_MAX_ARMS_PER_CALL a call.
 *
 * Returns false if there is no room, which only handlers meet that arm more and more from
 * `expired`: the block has no timer then.
 */
static inline bool
fanin_timer_arm(struct fanin_handler_ctx *ctx, uint32_t index, uint32_t block)
{
	return fanin_timer_arm_in(ctx, ctx->timers, index, block);
}

/*
 * The same for a part of a longer wait: the timer with the longest timeout up to `wait_ns`, or with
 * the handler's timeout if that is longer. Called from `expired` for what is left, a wait takes few
 * timers.
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
 * The last thing that a handler does to a frame of its own: puts the tag on, in jobs that have
 * tags. The mbuf has room for it, and nobody else looks at it yet. Not for REPLY, which the
 * pipeline completes.
 */
static inline void
fanin_seal(struct fanin_handler_ctx *ctx, enum fanin_tag_direction direction, struct rte_mbuf *mbuf)
{
	if (__builtin_expect(ctx->tagger != NULL, 0))
		fanin_seal_tagged(ctx, direction, mbuf);
}

/*
 * Takes an empty mbuf, with room for the job's longest packet behind the usual headroom, which lets
 * the payload be aligned. For handlers that have `makes_packets`. Returns NULL if there is none, as
 * if what it was for had been lost on the way. It is the caller's.
 */
static inline struct rte_mbuf *
fanin_take(struct fanin_handler_ctx *ctx)
{
	return ctx->n_stock == 0 ? NULL : ctx->stock[--ctx->n_stock];
}

/*
 * Gives up one reference of an mbuf, which may be freed at once. A call of the handler may do so as
 * often as it likes.
 */
static inline void
fanin_release(struct fanin_handler_ctx *ctx, struct rte_mbuf *mbuf)
{
	ctx->frees[ctx->n_frees] = mbuf;
	if (__builtin_expect(++ctx->n_frees == FANIN_MAX_FREES, 0))
		ctx->drain(ctx);
}

#endif
