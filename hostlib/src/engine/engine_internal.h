/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, shared by engine.c (requests, transmissions), lanes.c (which block may be
 * sent), rx.c (received packets), query.c (queries to the switch and their answers), timer.c (when
 * to query, and giving up), shards.c (sparse blocks), recover.c (resumed runs) and tag.c (tags).
 * Apart from these only protocols include this file, which are tables of rules for the engine: see
 * struct fanin_engine_rules.
 */
#ifndef FANIN_HOSTLIB_ENGINE_INTERNAL_H
#define FANIN_HOSTLIB_ENGINE_INTERNAL_H

#include <assert.h>
#include <stddef.h>

#include "engine.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/loop/loop.h"
#include "rtt.h"
#include "run_end.h"
#include "sums.h"
#include "times.h"

/*
 * Queries that can be told apart when their answers come. The answer to an older query is late and
 * says nothing new.
 */
#define FANIN_ENGINE_QUERIES 512

/* Fewest contributions between two probes, the queries that are sent behind contributions. */
#define FANIN_ENGINE_PROBE_MIN 4

/*
 * Transmissions that must lie between that of a lost block and the query whose answer lacks it (RFC
 * 9002, section 6.1.1).
 */
#define FANIN_ENGINE_REORDERING_MIN 3

/*
 * Interval of polls while the send ring is full or data is held back: nothing signals the end of
 * this.
 */
#define FANIN_ENGINE_NO_ROOM_NS (100 * UINT64_C(1000))

struct fanin_engine;

enum fanin_lane_state {
	FANIN_LANE_IDLE,   /* its block is not posted yet */
	FANIN_LANE_READY,  /* its block is posted, but the window does not let it be sent yet */
	FANIN_LANE_QUEUED, /* its block waits to be sent for the first time */
	FANIN_LANE_SENT,   /* its block waits for the result */
};

/* The kind of packets that a lane sends for its block. */
enum fanin_lane_role {
	FANIN_LANE_DENSE,        /* a contribution */
	FANIN_LANE_KNOWN,        /* the block's result, for ranks that lack it, or what
				    fanin_engine_known says; the lane's request is NULL */
	FANIN_LANE_SPARSE,       /* shards */
	FANIN_LANE_SPARSE_KNOWN, /* shards of its result, like KNOWN */
};

struct fanin_lane {
	uint32_t block; /* in progress, or the next one when idle */
	uint8_t state;  /* enum fanin_lane_state */
	uint8_t role;   /* enum fanin_lane_role */
	uint8_t told; /* enum fanin_block_state, as last told by the switch; ABSENT if it never was
		       */
	bool resent_before; /* the lane's previous block was sent again; cleared by its second
			       result */
	bool asked;         /* an overdue query was sent: the result may come twice */
	bool held; /* lost several times in a row: not sent again before ask_ns, when the switch is
		      queried */
	uint16_t transmissions;
	uint32_t order;      /* the engine's count of transmissions at the last one of this block */
	uint32_t generation; /* of the window at that time */
	struct fanin_request *request; /* of the block; NULL when idle */
	uint64_t sent_ns;              /* last transmission */
	uint64_t ask_ns;      /* no overdue query, or while held no query, before this time */
	uint64_t ask_wait_ns; /* interval to the query after that; 0: not queried yet */
};

/* A query that may still be answered. */
struct fanin_pending_query {
	uint32_t number; /* 0: none */
	uint32_t block;
	uint32_t order; /* the engine's count of transmissions when the query was sent */
	uint64_t sent_ns;
};

/* The last statement of the switch about the oldest block. */
struct fanin_last_answer {
	uint32_t block;
	uint64_t time_ns; /* 0: nothing */
	enum fanin_block_state state;
	bool lost; /* absent, or done without its result having come, although it was sent, and not
		      open since */
	uint64_t silent_ns; /* when answers first said that a rank is silent; 0: none is */
	bool ended;         /* the process of a missing rank has ended */
	struct fanin_answer_ranks ranks;
};

/*
 * A lane's last block, kept for ranks that may have lost its result with the run: that result or,
 * if another rank owns the block, the contribution of this rank.
 */
struct fanin_kept_result {
	uint32_t block;
	uint16_t count;
	uint16_t root;
	uint8_t dtype;
	uint8_t op;
	bool valid;
	bool empty; /* no rank sent data */
	bool is_contribution;
};

/*
 * Decisions of a protocol: when blocks are sent for the first time, sent again, and queried. The
 * engine keeps the lanes and their blocks, results, lost and resumed runs, errors and timeouts. A
 * protocol has one constant table. The poll loop calls all functions, unless their comments name
 * other callers; functions with a meaning of NULL may be missing.
 */
struct fanin_engine_rules {
	size_t size;     /* of the protocol's struct, which begins with a struct fanin_engine; the
			    rest is zeroed */
	bool has_owners; /* the handler supports blocks whose result is for one rank: parts of a
			    reduce_scatter */
	bool in_parts;   /* false: no block of a reduce_scatter has elements of two ranks' parts */
	bool waits_for_ranks; /* blocks have little data, and usually wait for other ranks: they are
				 overdue after two round trips */
	bool samples_asked;   /* the duration of a block also measures the network if the block was
				 queried */
	bool takes_unsent;    /* in a resumed run a block may get its result before it is sent */
	bool bounds_flight;   /* bounds the data in flight itself, without a congestion control */
	bool keeps;   /* keeps a window of results for other ranks, even if no run can be resumed */
	bool no_wide; /* its hosts combine, and do not accumulate in f32 */
	uint16_t ranks_max; /* maximum of a job; 0: no limit */
	uint8_t tos; /* IPv4's field in packets with elements: 0, or with a codepoint of ECN (RFC
			3168) */

	/*
	 * Creates the protocol's own state; engine->config.hosts is valid. Returns FANIN_OK,
	 * FANIN_ERR_NO_MEMORY, for which the engine writes the text, or another status with the
	 * text in `error`. NULL: there is none.
	 */
	int (*open)(struct fanin_engine *engine, struct fanin_error *error);

	/* Frees the protocol's own state, also after a failed `open`. NULL: there is none. */
	void (*close)(struct fanin_engine *engine);

	/*
	 * Called when a lane is READY, or the window has changed: queues the lane with
	 * fanin_engine_queue if its block may be sent now. NULL: `send` queues all lanes.
	 */
	void (*ready)(struct fanin_engine *engine, struct fanin_lane *lane);

	/*
	 * Called in each poll: sends blocks that may be sent now, whether for the first time or
	 * because there was no room before. fanin_engine_send_queued sends the lanes that `ready`
	 * and this have queued.
	 */
	void (*send)(struct fanin_engine *engine);

	/*
	 * Filters the ranks that an ANSWER reports missing from the oldest block: removes this
	 * rank, whose contribution must be lost rather than late, and others that may be missing
	 * for the same reason. NULL: removes none.
	 */
	void (*filter_missing)(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);

	/*
	 * Called for an ANSWER about any block, with the ranks that the block lacks and what is
	 * known of them. block: as the engine counts. NULL: not needed.
	 */
	void (*on_answer)(struct fanin_engine *engine, uint32_t block,
			  const struct fanin_answer_ranks *ranks);

	/*
	 * Handles a packet of this run whose type the engine does not know. block: as the engine
	 * counts. NULL: such packets are invalid.
	 */
	void (*receive)(struct fanin_engine *engine, const struct fanin_frame *frame,
			uint32_t block);

	/*
	 * Called for the switch's RESULT of a block. Returns false if this rank accepts no result
	 * from the switch. NULL: it accepts all.
	 */
	bool (*accepts_result)(struct fanin_engine *engine, uint32_t block);

	/*
	 * Called when a block's result has come, with engine->result_flags; the lane is at its next
	 * block. With takes_unsent the block may not have been sent. NULL: not needed.
	 */
	void (*finish)(struct fanin_engine *engine, uint32_t block);

	/*
	 * Sends the queries and repetitions of all lanes that are due, and sets loop.next_timer_ns
	 * to the time of the next one.
	 */
	void (*scan)(struct fanin_engine *engine);

	/*
	 * Called when the lanes are READY for another run, which begins with engine->base; not from
	 * the poll loop. NULL: not needed.
	 */
	void (*resume)(struct fanin_engine *engine);

	/*
	 * Called when the engine times out: fails it with a more precise reason than the engine
	 * knows. Returns false if there is none. NULL: there never is.
	 */
	bool (*time_out)(struct fanin_engine *engine);

	/*
	 * Called when no answer comes: writes the reason, for a timeout's text. Returns false to
	 * leave this to the engine. NULL: the engine always does it.
	 */
	bool (*explain)(struct fanin_engine *engine, char *text, size_t text_len);

	/*
	 * Returns the longest time until the next poll, as far as the protocol knows: until there
	 * is room, which nothing signals, or until a timer of its own. 0: there is more to do now;
	 * UINT64_MAX: the engine's timers suffice. Not from the poll loop. NULL: they always
	 * suffice.
	 */
	uint64_t (*idle_max_ns)(struct fanin_engine *engine);

	/*
	 * Handles any received frame, whoever has sent it. NULL: frames come from the switch, and
	 * the engine checks and handles them.
	 */
	void (*take_frame)(struct fanin_engine *engine, const struct fanin_frame *frame);

	/*
	 * Called when the lane's block has its result and the lane is still at that block: learns
	 * from the block's duration, and from what it shows about other blocks. NULL: the engine's
	 * own learning.
	 */
	void (*learn)(struct fanin_engine *engine, const struct fanin_lane *lane);

	/*
	 * Called while requests are posted: fails the engine if it has waited too long. NULL: the
	 * engine decides by what the switch says of ranks.
	 */
	void (*limits)(struct fanin_engine *engine);

	/*
	 * The caller was away: moves timestamps of the protocol by by_ns towards now
	 * (base/absence.h). NULL: it has none.
	 */
	void (*away)(struct fanin_engine *engine, uint64_t by_ns);

	/*
	 * Fills in which ranks the oldest block waits for, and which of these do not answer. Also
	 * called outside of the poll loop. NULL: the last statement of the switch.
	 */
	void (*waits_for)(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);

	/*
	 * The rest is for ranks that tell each other of the end of a run (run_end.h).
	 *
	 * `answer` is called with each frame for a while after the engine has failed, and answers
	 * the frame if it is a question of another rank. NULL: nothing is received any more, and
	 * `end` is not called.
	 */
	void (*answer)(struct fanin_engine *engine, const struct fanin_frame *frame);

	/*
	 * Called after the engine has failed, while engine->run_end has no reason yet: sets the
	 * reason and tells the other ranks. NULL: the protocol tells them elsewhere, if at all.
	 */
	void (*end)(struct fanin_engine *engine);

	/*
	 * Called before the endpoint is closed: tells the rank that makes the last result that this
	 * rank has the result; that rank itself waits for all others. Returns false as long as it
	 * has to be called again. NULL: no rank waits.
	 */
	bool (*say_bye)(struct fanin_engine *engine);
};

struct fanin_engine {
	struct fanin_endpoint endpoint; /* first, so that a pointer to it is one to the engine */
	const struct fanin_engine_rules *rules;
	struct fanin_loop loop;
	struct fanin_protocol_config config;
	struct fanin_lane *lanes; /* config.window of them */
	uint16_t *queue;          /* ring of lanes to be sent for the first time */
	struct fanin_cc cc;       /* how many blocks may be in flight */
	uint32_t queue_head;
	uint32_t queue_tail;
	uint32_t oldest;                    /* oldest unfinished block */
	uint32_t end;                       /* first block number not posted */
	uint32_t base;                      /* block number that the run's packets count as 0 */
	struct fanin_kept_result *kept;     /* by lane; NULL unless config.recover */
	uint8_t *kept_payloads;             /* config.payload_bytes each */
	struct fanin_engine_shards *shards; /* shards.c's; NULL: no sparse request yet */
	uint32_t n_known;                   /* number of lanes that tell a known result */
	bool run_lost;
	struct fanin_rejoin rejoin;   /* while run_lost */
	struct fanin_run_end run_end; /* what this rank has told others of the run's end, or was
					 told */
	bool moved;       /* to another switch with epochs of its own: no epoch of it is that of
					 the run before */
	const char *hint; /* borrowed; may be NULL */
	struct fanin_rtt rtt;
	struct fanin_rtt block_time; /* time from contributions to their results, including waits
					for other ranks */
	uint64_t progress_ns;    /* time of the last result, or when the first request was posted */
	uint64_t overtaken_ns;   /* latest first transmission of a block that has its result: blocks
				    sent earlier are overtaken */
	uint64_t heard_ns;       /* time of the last result or answer of this run, or when the first
				    request was posted */
	uint64_t late_answer_ns; /* time of the last answer that says that the oldest block waits
				    for merely late ranks */
	uint32_t newest;         /* latest block that was sent */
	uint64_t ask_ns;         /* no query for the oldest block before this time */
	uint64_t ask_wait_ns;    /* interval from an answer to the next query; 0: there was progress
				    since the last query */
	uint64_t retry_ns;   /* interval to repeat an unanswered query; 0: the last one was answered
			      */
	uint32_t order;      /* number of contributions sent, repetitions included */
	uint32_t reordering; /* reordering tolerance, transmissions; at least
				FANIN_ENGINE_REORDERING_MIN */
	uint32_t n_queries;  /* number of the last query */
	uint32_t probe_number; /* number of the outstanding probe; 0: none is */
	uint32_t probe_order;  /* `order` when the last probe was sent */
	uint64_t spurious_ns;  /* when something was last sent again unnecessarily */
	uint64_t lossy_ns;     /* when a loss was last found; 0: never */
	struct fanin_pending_query asked[FANIN_ENGINE_QUERIES]; /* by number */
	struct fanin_last_answer told;
	unsigned int stale_reason; /* reason of the last refusal that was ignored, since the last
				      progress */
	struct fanin_engine_stats stats;
	unsigned int suspected; /* reason of a refusal without a tag, after which no tagged packet
				   has come; else FANIN_REASON_NONE */
	uint64_t suspected_ns; /* when the switch was first queried about the refusal; 0: not yet */
	uint64_t suspected_ask_ns;    /* when the next query about it is due */
	uint8_t *tag_memory;          /* NULL: packets have no tags; else memory of the next two */
	struct fanin_headers *sealed; /* the frame to be sent, tagged_room bytes */
	struct fanin_headers *opened; /* the frame that was received, likewise */
	uint32_t tagged_room;
	uint16_t result_flags;        /* of the last result */
	uint32_t header_payload_len;  /* length that `headers` was made for */
	struct fanin_headers headers; /* template of contributions */
};

static_assert(offsetof(struct fanin_engine, endpoint) == 0,
	      "a pointer to the endpoint is one to the engine");

static inline struct fanin_engine *
fanin_engine_of(struct fanin_endpoint *endpoint)
{
	assert(endpoint->protocol->rules != NULL);
	return (struct fanin_engine *)endpoint;
}

static inline struct fanin_engine *
fanin_engine_of_loop(struct fanin_loop *loop)
{
	return (struct fanin_engine *)((char *)loop - offsetof(struct fanin_engine, loop));
}

/* Returns the struct, beginning with the engine, of a protocol with these rules. */
static inline void *
fanin_engine_own(struct fanin_engine *engine, const struct fanin_engine_rules *rules)
{
	assert(engine->rules == rules);
	(void)rules;
	return engine;
}

static inline struct fanin_lane *
fanin_engine_lane(const struct fanin_engine *engine, uint32_t block)
{
	return &engine->lanes[block & (engine->config.window - 1u)];
}

/* True if the lane sends shards. */
static inline bool
fanin_engine_has_shards(const struct fanin_lane *lane)
{
	return lane->role == FANIN_LANE_SPARSE || lane->role == FANIN_LANE_SPARSE_KNOWN;
}

/*
 * True if this rank has the block's result. block: posted, and at most W before the oldest lane's.
 */
static inline bool
fanin_engine_is_done(const struct fanin_engine *engine, uint32_t block)
{
	return fanin_block_before(block, fanin_engine_lane(engine, block)->block);
}

/*
 * Returns the longest time to wait for an answer: short enough that several may be lost before the
 * timeout.
 */
static inline uint64_t
fanin_engine_retry_max_ns(const struct fanin_engine *engine)
{
	const uint64_t max_ns = 1000 * 1000000ull;

	return engine->config.timeout_ns / 5 < max_ns ? engine->config.timeout_ns / 5 : max_ns;
}

/*
 * Returns how long to wait for a block before a query is sent for it, or for an answer before the
 * query is repeated.
 */
static inline uint64_t
fanin_engine_query_wait_ns(const struct fanin_engine *engine)
{
	const uint64_t max_ns = fanin_engine_retry_max_ns(engine);

	return fanin_earlier(engine->rtt.rto_ns, max_ns);
}

/*
 * Returns the longest time until the oldest block is first queried, and between queries around the
 * timeout. A rank that it waits for may be gone, and must be named in time; a needless query costs
 * a header.
 */
static inline uint64_t
fanin_engine_ask_max_ns(const struct fanin_engine *engine)
{
	return engine->config.timeout_ns / 10;
}

/*
 * Returns how long a block may be under way after its switch has sent it up, before it counts as
 * overdue: longer than blocks take. The round trip to the switch says nothing of the links above
 * it, which may be slower and have longer queues. Each query that comes too early makes a switch
 * further up repeat the result, behind the first one in the same queue.
 */
static inline uint64_t
fanin_engine_above_wait_ns(const struct fanin_engine *engine)
{
	const uint64_t max_ns = fanin_engine_retry_max_ns(engine);
	const uint64_t query_wait_ns = fanin_engine_query_wait_ns(engine);
	const uint64_t block_ns = engine->block_time.smoothed_ns == 0 ? 0
								      : engine->block_time.rto_ns;

	if (block_ns < query_wait_ns)
		return query_wait_ns;
	return fanin_earlier(block_ns, max_ns);
}

/*
 * True if packets may overtake each other by more than links cause. An answer then counts only for
 * the block that its query is about.
 */
static inline bool
fanin_engine_may_reorder(const struct fanin_engine *engine)
{
	return engine->config.spread || engine->reordering > FANIN_ENGINE_REORDERING_MIN;
}

/*
 * lanes.c: the lane's block is posted, and is sent once the window allows. request: NULL if
 * its result is known.
 */
void fanin_engine_ready(struct fanin_lane *lane, struct fanin_request *request);

/*
 * lanes.c: queues a lane for its block's first transmission, if that is posted and the window
 * allows.
 */
void fanin_engine_release(struct fanin_engine *engine, struct fanin_lane *lane);

/* lanes.c: queues a READY lane for its block's first transmission. */
void fanin_engine_queue(struct fanin_engine *engine, struct fanin_lane *lane);

/*
 * lanes.c: queues READY lanes in the order of their blocks, from *next on, as far as the window and
 * `may_send` allow. may_send: called about each block in turn until it returns true, as the block
 * is queued then; NULL: all may be sent.
 */
void fanin_engine_queue_in_order(struct fanin_engine *engine, uint32_t *next,
				 bool (*may_send)(struct fanin_engine *engine,
						  const struct fanin_lane *lane));

/*
 * lanes.c: calls fanin_engine_release for all lanes, the oldest first, after the window has
 * changed.
 */
void fanin_engine_release_all(struct fanin_engine *engine);

/*
 * lanes.c: lanes that have waited for this request's blocks start them, in the staggered
 * order.
 */
void fanin_engine_start(struct fanin_engine *engine, struct fanin_request *request);

/*
 * lanes.c: the lane's block is done, and the lane continues with its next one; this may
 * complete a request.
 */
void fanin_engine_advance(struct fanin_engine *engine, struct fanin_lane *lane);

/*
 * rx.c: copies a payload of 64-bit words, n_max at most. Returns their number, or 0 if the payload
 * is none of these or the frame is lost.
 */
uint32_t fanin_engine_copy_words(const struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint64_t *words, uint32_t n_max);

/* rx.c: records that the lane's block has its result. */
void fanin_engine_lane_finish(struct fanin_engine *engine, struct fanin_lane *lane);

/* rx.c: records progress: nothing is overdue yet. */
void fanin_engine_note_progress(struct fanin_engine *engine);

/* shards.c: prepares for a sparse request's blocks. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_engine_shards_init(struct fanin_engine *engine);

/* shards.c: frees all shards and engine->shards, which may be NULL. */
void fanin_engine_shards_free(struct fanin_engine *engine);

/*
 * shards.c: sends shards of a sparse lane's block: all of them at first, later those that
 * fanin_engine_shards_lost has found. Returns false if the transport has no room for all; the next
 * call sends the rest.
 */
bool fanin_engine_shards_send(struct fanin_engine *engine, struct fanin_lane *lane);

/* shards.c: handles a SPARSE_RESULT. block: as the engine counts. */
void fanin_engine_shards_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint32_t block);

/*
 * shards.c: handles an answer that calls a sparse lane's block absent.
 *
 * in: the block's shards that have arrived; NULL if the answer does not say. Returns true if
 * fanin_engine_shards_send is to send some again, or false if there is nothing to send yet; the
 * block may have been queried by itself then.
 */
bool fanin_engine_shards_lost(struct fanin_engine *engine, struct fanin_lane *lane,
			      const uint64_t *in);

/*
 * shards.c: makes a bitmap of the received shards of the block's result, which is incomplete.
 * Returns false if the block is not sparse.
 */
bool fanin_engine_shards_have(const struct fanin_engine *engine, uint32_t block, uint64_t *have);

/*
 * shards.c: returns true if this rank keeps the block's sparse result for ranks that may lack it.
 */
bool fanin_engine_shards_keep(const struct fanin_engine *engine, uint32_t block);

/*
 * shards.c: forgets the received and sent shards of unfinished blocks, as another run begins, in
 * which shard numbers mean something else.
 */
void fanin_engine_shards_resume(struct fanin_engine *engine);

/* shards.c: writes a sparse block in words: "300 indices f32 sum". */
void fanin_engine_shards_format(const struct fanin_request *request, uint32_t block, char *text,
				size_t text_len);

/*
 * recover.c: allocates memory for kept results, if there are any. Returns FANIN_OK or
 * FANIN_ERR_NO_MEMORY.
 */
int fanin_engine_keep_init(struct fanin_engine *engine);

/*
 * recover.c: keeps a block's result of which the request keeps only a part. Returns
 * its payload, or NULL if it is lost.
 */
const uint8_t *fanin_engine_keep_result(struct fanin_engine *engine, uint32_t block,
					const struct fanin_frame *frame);

/*
 * recover.c: keeps the last results of a request that is done, as its owner may change its memory.
 */
void fanin_engine_keep_request(struct fanin_engine *engine, const struct fanin_request *request);

/*
 * recover.c: makes the packet of a lane that tells: the result or, if another rank owns the block,
 * this rank's contribution. hdr: gets type, data type, operator, count and flags. Returns the
 * payload, of *payload_len bytes.
 */
const void *fanin_engine_known(const struct fanin_engine *engine, const struct fanin_lane *lane,
			       struct fanin_hdr *hdr, uint32_t *payload_len);

/*
 * recover.c: finds the result of a block, for ranks that lack it. This rank has the result, and
 * none of a later block of the same lane.
 *
 * hdr: gets type, data type, operator, count, root and flags. payload, payload_len: set on success
 * only. Returns false if the result is not kept any more.
 */
bool fanin_engine_result(const struct fanin_engine *engine, uint32_t block, struct fanin_hdr *hdr,
			 const void **payload, uint32_t *payload_len);

/*
 * tag.c: allocates what tags need, if there are any. Returns FANIN_OK or
 * FANIN_ERR_NO_MEMORY.
 */
int fanin_engine_tag_init(struct fanin_engine *engine);

/* tag.c: see fanin_engine_transmit. */
bool fanin_engine_transmit_tagged(struct fanin_engine *engine, const struct fanin_headers *headers,
				  const void *payload, uint32_t payload_len);

/*
 * tag.c: in a job with tags, copies a received frame to the engine's memory and removes its tag.
 *
 * opened: set on success only; valid until the next call. Returns false if the frame is not the
 * switch's, or lost.
 */
bool fanin_engine_open_frame(struct fanin_engine *engine, const struct fanin_frame *frame,
			     struct fanin_frame *opened);

/*
 * tag.c: notes a refusal without a tag in a job with tags. Anybody may have sent it: the switch has
 * no tag for senders that it does not know as members. The switch is queried, and if it sends
 * nothing with a tag for a while, the refusal counts. A rank that waits for nothing ignores it.
 */
void fanin_engine_refusal_suspect(struct fanin_engine *engine, unsigned int reason);

/* tag.c: drops a noted refusal, as the switch has sent a packet with a tag. */
void fanin_engine_refusal_clear(struct fanin_engine *engine, const struct fanin_hdr *hdr);

/* tag.c: queries the switch if that is due; after the deadline, the refusal counts. */
void fanin_engine_refusal_check(struct fanin_engine *engine);

/* rx.c: handles the switch's refusal of a block, or of the run. */
void fanin_engine_refused(struct fanin_engine *engine, unsigned int reason, uint32_t block);

/*
 * Makes the headers of a packet of this rank about a block, as the run numbers it. Fields that
 * differ between packet types are 0.
 */
void fanin_engine_begin(const struct fanin_engine *engine, enum fanin_type type, uint32_t block,
			uint32_t payload_len, struct fanin_headers *headers);

/*
 * Sends a packet, with a tag if the job has them. headers: for payload_len bytes. Returns false if
 * there is no room now.
 */
static inline bool
fanin_engine_transmit(struct fanin_engine *engine, const struct fanin_headers *headers,
		      const void *payload, uint32_t payload_len)
{
	if (__builtin_expect(engine->config.tagger != NULL, 0))
		return fanin_engine_transmit_tagged(engine, headers, payload, payload_len);
	return fanin_transport_send(engine->loop.transport, headers, payload, payload_len);
}

/*
 * Sends a packet as fanin_engine_transmit does. The payload belongs to a request, and does not
 * change while the engine is polled.
 */
static inline bool
fanin_engine_transmit_held(struct fanin_engine *engine, const struct fanin_headers *headers,
			   const void *payload, uint32_t payload_len)
{
	if (__builtin_expect(engine->config.tagger != NULL, 0))
		return fanin_engine_transmit_tagged(engine, headers, payload, payload_len);
	return fanin_transport_send_held(engine->loop.transport, headers, payload, payload_len);
}

/* Makes the lane's block wait for its result, and counts one more transmission. */
static inline void
fanin_engine_await(struct fanin_engine *engine, struct fanin_lane *lane)
{
	lane->state = FANIN_LANE_SENT;
	lane->told = FANIN_BLOCK_ABSENT;
	lane->sent_ns = engine->loop.now_ns;
	lane->order = engine->order++;
	lane->generation = engine->cc.generation;
	if (fanin_block_before(engine->newest, lane->block))
		engine->newest = lane->block;
	if (lane->transmissions < UINT16_MAX)
		lane->transmissions++;
}

/* Records that the last packet of the lane's block was sent just now. */
static inline void
fanin_engine_note_sent(struct fanin_engine *engine, struct fanin_lane *lane)
{
	fanin_engine_await(engine, lane);
	engine->stats.frames_sent++;
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns + fanin_engine_query_wait_ns(engine));
}

/* Writes the template's Ethernet, IPv4 and UDP headers, for packets with this many bytes. */
void fanin_engine_headers(struct fanin_engine *engine, uint32_t payload_len);

/*
 * Makes a dense lane's contribution: fills in the header's contributions, flags and shape, and
 * returns the payload, of *payload_len bytes.
 */
const void *fanin_engine_contribution(const struct fanin_lane *lane, struct fanin_hdr *hdr,
				      uint32_t *payload_len);

/*
 * Sends the lane's block in a packet with the header in engine->headers, in which this fills in
 * block and progress. Returns false if the transport has no room.
 */
bool fanin_engine_send_elements(struct fanin_engine *engine, const struct fanin_lane *lane,
				const void *payload, uint32_t payload_len);

/* Builds and commits the lane's contribution. Returns false if the transport has no room. */
bool fanin_engine_send(struct fanin_engine *engine, struct fanin_lane *lane);

/* Sends the queued lanes' blocks, as far as the transport has room. */
void fanin_engine_send_queued(struct fanin_engine *engine);

/* rx.c: handles a block's result. block: as the engine counts. */
void fanin_engine_receive_result(struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint32_t block);

/*
 * rx.c: handles a block's result that did not come from the switch. headers: with its shape and
 * flags, and followed by the elements; the other fields are filled in.
 */
void fanin_engine_take_result(struct fanin_engine *engine, uint32_t block,
			      struct fanin_headers *headers, uint32_t payload_len);

/*
 * rx.c: adds this rank's contribution to the sum of a block that it awaits, which has all other
 * ranks, and makes the result. sums: of a job of 64 ranks at most. frame: memory in front of the
 * sum's payload; gets the result's shape and flags, as fanin_engine_take_result wants them.
 */
void fanin_engine_make_result(struct fanin_engine *engine, uint32_t block,
			      const struct fanin_sums *sums, struct fanin_sum *sum,
			      struct fanin_headers *frame);

/*
 * rx.c: ends a lane that tells a result, as no rank waits for it: in a run that has just been
 * resumed.
 */
void fanin_engine_known_finish(struct fanin_engine *engine, struct fanin_lane *lane);

/* As in fanin_loop_ops. */
void fanin_engine_receive(struct fanin_loop *loop, const struct fanin_frame *frame);

/*
 * query.c: sends a query for a block. all: also for those after it that have been sent. overdue:
 * asks the switch to repeat a result, and to pass the query up. Returns the query's number, or 0 if
 * the transport has no room.
 */
uint32_t fanin_engine_query(struct fanin_engine *engine, uint32_t block, bool all, bool overdue);

/*
 * query.c: sends a query about a block that no rank has contributed to. Switches pass it up to the
 * root of the tree, if their handler supports this. Returns as fanin_engine_query does.
 */
uint32_t fanin_engine_query_root(struct fanin_engine *engine, uint32_t block);

/*
 * timer.c: sends a query for the oldest block, and sets when the next one is due: later each time
 * while answers come, soon if none does. wait_ns: minimum time for an answer. Returns when it is
 * due.
 */
uint64_t fanin_engine_ask_oldest(struct fanin_engine *engine, struct fanin_lane *lane, bool overdue,
				 uint64_t wait_ns);

/* timer.c: returns the interval of queries after one of wait_ns; 0: the first one. */
uint64_t fanin_engine_back_off_ns(const struct fanin_engine *engine, uint64_t wait_ns);

/*
 * timer.c: sends the queries that are due about lanes that have been sent, and sets
 * loop.next_timer_ns, as `scan` does.
 */
void fanin_engine_scan(struct fanin_engine *engine);

/* query.c: sends a query behind the contributions that were just sent, if it is due. */
void fanin_engine_probe(struct fanin_engine *engine);

/* query.c: handles an ANSWER. block: as the engine counts. */
void fanin_engine_receive_answer(struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint32_t block);

/*
 * query.c: stores the state of the oldest block, as just told, and the ranks that it waits for.
 * Merely late ranks keep the engine from timing out.
 */
void fanin_engine_note_answer(struct fanin_engine *engine, enum fanin_block_state state,
			      const struct fanin_answer_ranks *ranks);

/* query.c: records that a block was sent again although it had not been lost. */
void fanin_engine_note_spurious(struct fanin_engine *engine);

/*
 * Sends queries that are due, and fails the engine if nothing has come for too long. See
 * fanin_loop_ops.
 */
void fanin_engine_check_timers(struct fanin_loop *loop);

/*
 * Posts an allreduce in equal blocks that are shorter than packets may be: for values that ranks
 * tell each other.
 *
 * block_bytes: whole elements. Returns what fanin_engine_post does.
 */
int fanin_engine_post_small(struct fanin_engine *engine, struct fanin_request *request,
			    uint32_t n_blocks, uint32_t block_bytes);

/* Fails every request with the status; engine->loop.error already has the text. */
void fanin_engine_fail(struct fanin_engine *engine, int status);

#endif
