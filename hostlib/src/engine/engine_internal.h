/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, shared by engine.c (requests and what is sent), lanes.c (which block may be
 * sent), rx.c (what came in), query.c (asking the switch, and what its answers say), timer.c (when
 * to ask, and giving up), shards.c (sparse blocks) and tag.c (tags). Of others only protocols
 * include this, which are tables of rules for it: see struct fanin_engine_rules.
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
 * Queries that can be told apart when their answers come; the answer to an older one is late and
 * says nothing new.
 */
#define FANIN_ENGINE_QUERIES 512

/* Fewest contributions between two probes, the queries that are sent behind contributions. */
#define FANIN_ENGINE_PROBE_MIN 4

/*
 * Transmissions that must lie between a lost block's and the query whose answer lacks it (RFC 9002,
 * section 6.1.1).
 */
#define FANIN_ENGINE_REORDERING_MIN 3

/* The send ring was full, or data is held back, and nothing signals when that ends. */
#define FANIN_ENGINE_NO_ROOM_NS (100 * UINT64_C(1000))

struct fanin_engine;

enum fanin_lane_state {
	FANIN_LANE_IDLE,   /* its block is not posted yet */
	FANIN_LANE_READY,  /* its block is posted, but the window does not let it be sent yet */
	FANIN_LANE_QUEUED, /* its block waits to be sent for the first time */
	FANIN_LANE_SENT,   /* its block waits for the result */
};

/* What a lane sends for its block. */
enum fanin_lane_role {
	FANIN_LANE_DENSE,        /* a contribution */
	FANIN_LANE_KNOWN,        /* its result, which is known, to those who lack it, or what
				    fanin_engine_known says; the lane's request is NULL */
	FANIN_LANE_SPARSE,       /* shards */
	FANIN_LANE_SPARSE_KNOWN, /* shards of its result, like KNOWN */
};

struct fanin_lane {
	uint32_t block; /* in progress, or when idle the next one */
	uint8_t state;  /* enum fanin_lane_state */
	uint8_t role;   /* enum fanin_lane_role */
	uint8_t told; /* enum fanin_block_state, as last told by the switch; ABSENT if it never was
		       */
	bool resent_before; /* the lane's previous block was sent again; cleared by its second
			       result */
	bool asked;         /* an overdue query was sent: the result may come twice */
	bool held; /* lost several times in a row: not sent again before ask_ns, when it is queried
		    */
	uint16_t transmissions;
	uint32_t order;      /* the engine's count of transmissions at the last one of this block */
	uint32_t generation; /* of the window at that time */
	struct fanin_request *request; /* that the block belongs to; NULL when idle */
	uint64_t sent_ns;              /* last transmission */
	uint64_t ask_ns;      /* no overdue query, or while held no query, before this time */
	uint64_t ask_wait_ns; /* interval to the query after that; 0: not queried yet */
};

/* A query that may still be answered. */
struct fanin_pending_query {
	uint32_t number; /* 0: none */
	uint32_t block;
	uint32_t order; /* the engine's count of transmissions when it was sent */
	uint64_t sent_ns;
};

/* What the switch last said about the oldest block. */
struct fanin_last_answer {
	uint32_t block;
	uint64_t time_ns; /* 0: nothing */
	enum fanin_block_state state;
	bool lost; /* absent or done although it was sent, its result has not come, and it was not
		      open since */
	uint64_t silent_ns; /* since when answers say that a rank is silent; 0: none is */
	bool ended;         /* the process of a missing rank has ended */
	struct fanin_answer_ranks ranks;
};

/*
 * What this rank has of a lane's last block, for ranks that may have lost its result with its run:
 * that result or, if another rank owns the block, what this one has contributed.
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
 * Decisions of a protocol: when blocks are sent for the first time, again, and asked for. Lanes and
 * their blocks, results, runs that are lost and resumed, errors and timeouts are the engine's. A
 * protocol has one table, which is constant. All functions are called by the poll loop only, unless
 * they say otherwise; those that say NULL may be missing.
 */
struct fanin_engine_rules {
	size_t size; /* of the protocol's struct, which begins with a struct fanin_engine; the rest
			is zero at first */
	bool has_owners; /* the handler knows blocks whose result is for one rank: parts of a
			    reduce_scatter */
	bool in_parts;   /* else: no block of a reduce_scatter has elements of two ranks' parts */
	bool waits_for_ranks; /* blocks have little data, and usually wait for other ranks: they are
				 overdue after two round trips */
	bool samples_asked;   /* how long a block took says something of the network, also if it was
				 asked for */
	bool takes_unsent;    /* in a resumed run a block may get its result before it is sent */
	bool bounds_flight;   /* by itself, without a congestion control */
	bool keeps;         /* results of a window for other ranks, also if no run can be resumed */
	bool no_wide;       /* its hosts combine, and do not accumulate in f32 */
	uint16_t ranks_max; /* of a job; 0: as many as there may be */
	uint8_t tos; /* IPv4's field of what carries elements: 0, or with a codepoint of ECN (RFC
			3168) */

	/*
	 * Creates what else it needs; engine->config.hosts is valid. Returns FANIN_OK,
	 * FANIN_ERR_NO_MEMORY, whose text is the engine's, or another status with the text in
	 * `error`. NULL: nothing.
	 */
	int (*open)(struct fanin_engine *engine, struct fanin_error *error);

	/* Frees it; also after a failed `open`. NULL: there is nothing. */
	void (*close)(struct fanin_engine *engine);

	/*
	 * A lane is READY, or the window has changed: queues it if it may be sent now, by
	 * fanin_engine_queue. NULL: `send` does so for all.
	 */
	void (*ready)(struct fanin_engine *engine, struct fanin_lane *lane);

	/*
	 * Each poll: sends what may be sent now, for the first time or because there was no room.
	 * What `ready` or this has queued is sent by fanin_engine_send_queued.
	 */
	void (*send)(struct fanin_engine *engine);

	/*
	 * An answer about the oldest block says that it waits for these ranks: takes this rank out
	 * if it is among them, which is not late, but whose block is lost, and all that may be
	 * missing for the same reason. NULL: takes none out.
	 */
	void (*filter_missing)(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);

	/*
	 * An answer about any block says which ranks it lacks, and what is known of them. block: as
	 * the engine counts. NULL: not needed.
	 */
	void (*on_answer)(struct fanin_engine *engine, uint32_t block,
			  const struct fanin_answer_ranks *ranks);

	/*
	 * A packet of this run of a type that the engine does not know. block: as the engine
	 * counts. NULL: such a packet is invalid.
	 */
	void (*receive)(struct fanin_engine *engine, const struct fanin_frame *frame,
			uint32_t block);

	/*
	 * The switch's RESULT of a block has come. Returns false if this rank takes no result of
	 * the switch. NULL: it takes all.
	 */
	bool (*accepts_result)(struct fanin_engine *engine, uint32_t block);

	/*
	 * A block's result has come, with engine->result_flags; the lane is at its next block. With
	 * takes_unsent it may be one that was not sent. NULL: not needed.
	 */
	void (*finish)(struct fanin_engine *engine, uint32_t block);

	/* Does what is due, and sets loop.next_timer_ns to when something will be. */
	void (*scan)(struct fanin_engine *engine);

	/*
	 * Lanes are READY for another run, which begins with engine->base. Not from the poll loop.
	 * NULL: not needed.
	 */
	void (*resume)(struct fanin_engine *engine);

	/*
	 * The engine times out: fails it with a better reason than the engine knows. Returns false
	 * if there is none. NULL: there never is.
	 */
	bool (*time_out)(struct fanin_engine *engine);

	/*
	 * No answer comes: writes why, for a timeout's text. Returns false to leave that to the
	 * engine. NULL: it always does.
	 */
	bool (*explain)(struct fanin_engine *engine, char *text, size_t text_len);

	/*
	 * Returns the longest time until the next poll, as far as the protocol knows: until there
	 * is room, which nothing signals, or until a timer of its own. 0: there is more to do now;
	 * UINT64_MAX: nothing but the engine's timers. Not from the poll loop. NULL: always that.
	 */
	uint64_t (*idle_max_ns)(struct fanin_engine *engine);

	/*
	 * A frame has come: handles it, whoever has sent it. NULL: it is one of the switch, which
	 * the engine checks and handles.
	 */
	void (*take_frame)(struct fanin_engine *engine, const struct fanin_frame *frame);

	/*
	 * The lane's block has its result, and the lane is still at it: learns from how long it
	 * took, and what it shows of others. NULL: what the engine does itself.
	 */
	void (*learn)(struct fanin_engine *engine, const struct fanin_lane *lane);

	/*
	 * While something is posted: fails the engine if it has waited for too long. NULL: by what
	 * the switch says of ranks.
	 */
	void (*limits)(struct fanin_engine *engine);

	/*
	 * The caller was away: moves timestamps of its own by by_ns towards now (base/absence.h).
	 * NULL: it has none.
	 */
	void (*away)(struct fanin_engine *engine, uint64_t by_ns);

	/*
	 * Sets which ranks the oldest block waits for, and which of these do not answer. Not from
	 * the poll loop only. NULL: as the switch has last said.
	 */
	void (*waits_for)(struct fanin_engine *engine, struct fanin_answer_ranks *ranks);

	/*
	 * The rest is for ranks that tell each other of the end of a run (run_end.h). `answer`: the
	 * engine has failed not long ago: answers a frame if it is a question of another rank.
	 * NULL: nothing is received any more, and `end` is not called.
	 */
	void (*answer)(struct fanin_engine *engine, const struct fanin_frame *frame);

	/*
	 * The engine has failed, and engine->run_end does not say why yet: sets that, and tells the
	 * others. NULL: the protocol tells them itself, if it does.
	 */
	void (*end)(struct fanin_engine *engine);

	/*
	 * Before the endpoint is closed: tells the rank that makes the last result that this one
	 * has it, or as that rank waits until all others have told. Returns false as long as it has
	 * to be called again. NULL: nobody waits for that.
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
	uint32_t n_known;                   /* number of known lanes */
	bool run_lost;
	struct fanin_rejoin rejoin;   /* while run_lost */
	struct fanin_run_end run_end; /* what others were told, or have told */
	bool moved; /* to another switch with epochs of its own: none is that of the run before */
	const char *hint; /* borrowed; may be NULL */
	struct fanin_rtt rtt;
	struct fanin_rtt block_time; /* from contributions to their results, waits for other ranks
					included */
	uint64_t progress_ns;    /* time of the last result, or when the first request was posted */
	uint64_t overtaken_ns;   /* latest first transmission whose result has come: blocks sent
				    earlier are overtaken */
	uint64_t heard_ns;       /* time of the last result or answer of this run, or when the first
				    request was posted */
	uint64_t late_answer_ns; /* time of the last answer that the oldest block waits for merely
				    late ranks */
	uint32_t newest;         /* latest block that has been sent */
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
	unsigned int stale_reason; /* last refusal that was ignored, since the last progress */
	struct fanin_engine_stats stats;
	unsigned int suspected; /* a refusal without a tag, since which no tagged packet has come;
				   else FANIN_REASON_NONE */
	uint64_t suspected_ns;  /* when the switch was first queried about that; 0: not yet */
	uint64_t suspected_ask_ns; /* when it is queried again */
	uint8_t *tag_memory;       /* NULL: packets have no tags; else the memory of the next two */
	struct fanin_headers *sealed; /* frame to be sent, tagged_room bytes */
	struct fanin_headers *opened; /* frame that was received, likewise */
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

/* Returns the struct of a protocol with these rules, which begins with the engine. */
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
 * True if this rank has the block's result. For blocks up to W before the oldest lane's, and those
 * that are posted.
 */
static inline bool
fanin_engine_is_done(const struct fanin_engine *engine, uint32_t block)
{
	return fanin_block_before(block, fanin_engine_lane(engine, block)->block);
}

/* Returns the longest time to wait for an answer: several may be lost before the timeout. */
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
 * Returns the longest time until the oldest block is first asked for, and between queries around
 * the timeout. Who it waits for may be gone, and must be named in time; a query too many costs a
 * header.
 */
static inline uint64_t
fanin_engine_ask_max_ns(const struct fanin_engine *engine)
{
	return engine->config.timeout_ns / 10;
}

/*
 * Returns how long a block may be on its way that its switch has sent up before it counts as
 * overdue: longer than blocks take. The round trip to the switch says nothing of the links above
 * it, which may be slower, and whose queues longer. Each query that comes too early makes a switch
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
 * True if packets may overtake each other by more than links cause. Then an answer counts only for
 * the block of its query.
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
 * `may_send` allow. may_send: is asked once about each block in its turn until it returns true, as
 * the block is queued then; NULL: all may.
 */
void fanin_engine_queue_in_order(struct fanin_engine *engine, uint32_t *next,
				 bool (*may_send)(struct fanin_engine *engine,
						  const struct fanin_lane *lane));

/* lanes.c: the same for all lanes, the oldest first, after the window has changed. */
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
 * rx.c: copies a payload of 64-bit words, n_max at most. Returns how many; 0: it is none, or the
 * frame is lost.
 */
uint32_t fanin_engine_copy_words(const struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint64_t *words, uint32_t n_max);

/* rx.c: the lane's block has its result. */
void fanin_engine_lane_finish(struct fanin_engine *engine, struct fanin_lane *lane);

/* rx.c: there was progress: nothing is overdue yet. */
void fanin_engine_note_progress(struct fanin_engine *engine);

/* shards.c: prepares for a sparse request's blocks. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_engine_shards_init(struct fanin_engine *engine);

/* shards.c: with all that was received; engine->shards may be NULL. */
void fanin_engine_shards_free(struct fanin_engine *engine);

/*
 * shards.c: sends what is to be sent of a sparse lane's block: at first all of its shards, then
 * what fanin_engine_shards_lost has found. Returns false if the transport has no room for all; the
 * rest is sent by the next call.
 */
bool fanin_engine_shards_send(struct fanin_engine *engine, struct fanin_lane *lane);

/* shards.c: a SPARSE_RESULT. block: as the engine counts. */
void fanin_engine_shards_receive(struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint32_t block);

/*
 * shards.c: an answer calls a sparse lane's block absent.
 *
 * in: those of its shards that are there; NULL if the answer says nothing of them. Returns true if
 * fanin_engine_shards_send is to send some again; false if there is nothing to send yet, but
 * perhaps the block is asked for by itself.
 */
bool fanin_engine_shards_lost(struct fanin_engine *engine, struct fanin_lane *lane,
			      const uint64_t *in);

/*
 * shards.c: bitmap of the result shards that are there of a block which has not all of them.
 * Returns false if it is not sparse.
 */
bool fanin_engine_shards_have(const struct fanin_engine *engine, uint32_t block, uint64_t *have);

/* shards.c: does this rank keep the block's result, a sparse one, for ranks that may lack it? */
bool fanin_engine_shards_keep(const struct fanin_engine *engine, uint32_t block);

/*
 * shards.c: another run begins, in which numbers of shards mean something else: forgets what was
 * received and sent of blocks that are not done.
 */
void fanin_engine_shards_resume(struct fanin_engine *engine);

/* shards.c: "300 indices f32 sum": a sparse block in words. */
void fanin_engine_shards_format(const struct fanin_request *request, uint32_t block, char *text,
				size_t text_len);

/*
 * recover.c: allocates memory for kept results, if there are any. Returns FANIN_OK or
 * FANIN_ERR_NO_MEMORY.
 */
int fanin_engine_keep_init(struct fanin_engine *engine);

/*
 * recover.c: keeps a block's result of which the request does not keep all. Returns its
 * payload, or NULL if it is lost.
 */
const uint8_t *fanin_engine_keep_result(struct fanin_engine *engine, uint32_t block,
					const struct fanin_frame *frame);

/* recover.c: a request is done and its owner may change its memory. */
void fanin_engine_keep_request(struct fanin_engine *engine, const struct fanin_request *request);

/*
 * recover.c: makes what a known lane sends: the result or, of a block with another owner, this
 * rank's contribution. hdr: gets type, data type, operator, count and flags. Returns the payload,
 * of *payload_len bytes.
 */
const void *fanin_engine_known(const struct fanin_engine *engine, const struct fanin_lane *lane,
			       struct fanin_hdr *hdr, uint32_t *payload_len);

/*
 * recover.c: the result of a block, for ranks that lack it. Of one that this rank has, and of which
 * no later one with the same lane is there.
 *
 * hdr: gets type, data type, operator, count, root and flags. payload, payload_len: set on success
 * only. Returns false if it is not kept any more.
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
 * tag.c: in a job with tags, copies a received frame to the engine's memory and removes its
 * tag.
 *
 * opened: set on success only; valid until the next call. Returns false if it is not the switch's,
 * or lost.
 */
bool fanin_engine_open_frame(struct fanin_engine *engine, const struct fanin_frame *frame,
			     struct fanin_frame *opened);

/*
 * tag.c: in a job with tags, a refusal without one, which anybody may have sent: the switch
 * has no tag for senders that it does not know as members. The switch is queried, and if it sends
 * nothing with a tag for a while, the refusal counts. A rank that waits for nothing ignores it.
 */
void fanin_engine_refusal_suspect(struct fanin_engine *engine, unsigned int reason);

/* tag.c: the switch has sent this, with a tag. */
void fanin_engine_refusal_clear(struct fanin_engine *engine, const struct fanin_hdr *hdr);

/* tag.c: queries the switch if that is due; after the deadline, the refusal counts. */
void fanin_engine_refusal_check(struct fanin_engine *engine);

/* rx.c: the switch refuses a block, or the run. */
void fanin_engine_refused(struct fanin_engine *engine, unsigned int reason, uint32_t block);

/*
 * Makes the headers of a packet of this rank's about a block, as the run numbers it. What no other
 * packet has in common with it is 0.
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

/* The same, of a payload that stays as it is while the engine is polled: of a request. */
static inline bool
fanin_engine_transmit_held(struct fanin_engine *engine, const struct fanin_headers *headers,
			   const void *payload, uint32_t payload_len)
{
	if (__builtin_expect(engine->config.tagger != NULL, 0))
		return fanin_engine_transmit_tagged(engine, headers, payload, payload_len);
	return fanin_transport_send_held(engine->loop.transport, headers, payload, payload_len);
}

/* The lane's block waits for its result from now on, and counts as transmitted once more. */
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

/* The lane's block has been sent, its last packet just now. */
static inline void
fanin_engine_note_sent(struct fanin_engine *engine, struct fanin_lane *lane)
{
	fanin_engine_await(engine, lane);
	engine->stats.frames_sent++;
	fanin_loop_wake_by(&engine->loop, engine->loop.now_ns + fanin_engine_query_wait_ns(engine));
}

/* Writes Ethernet, IPv4 and UDP headers of the template for packets with so many bytes. */
void fanin_engine_headers(struct fanin_engine *engine, uint32_t payload_len);

/*
 * Makes a dense lane's contribution: fills in the header's contributions, flags and shape, and
 * returns the payload, of *payload_len bytes.
 */
const void *fanin_engine_contribution(const struct fanin_lane *lane, struct fanin_hdr *hdr,
				      uint32_t *payload_len);

/*
 * Sends the lane's block in a packet whose header engine->headers has, but for block and progress.
 * Returns false if the transport has no room.
 */
bool fanin_engine_send_elements(struct fanin_engine *engine, const struct fanin_lane *lane,
				const void *payload, uint32_t payload_len);

/* Builds and commits the lane's contribution. Returns false if the transport has no room. */
bool fanin_engine_send(struct fanin_engine *engine, struct fanin_lane *lane);

/* Sends the queued lanes' blocks, as far as the transport has room. */
void fanin_engine_send_queued(struct fanin_engine *engine);

/* rx.c: a block's result. block: as the engine counts. */
void fanin_engine_receive_result(struct fanin_engine *engine, const struct fanin_frame *frame,
				 uint32_t block);

/*
 * rx.c: a block's result that did not come from the switch. headers: with its shape and flags, and
 * the elements behind them; the other fields are filled in.
 */
void fanin_engine_take_result(struct fanin_engine *engine, uint32_t block,
			      struct fanin_headers *headers, uint32_t payload_len);

/*
 * rx.c: all other ranks are in the sum of a block that this one awaits: adds its contribution and
 * makes the result. sums: of a job of 64 ranks at most. frame: memory in front of the sum's
 * payload; gets the result's shape and flags, as fanin_engine_take_result wants them.
 */
void fanin_engine_make_result(struct fanin_engine *engine, uint32_t block,
			      const struct fanin_sums *sums, struct fanin_sum *sum,
			      struct fanin_headers *frame);

/*
 * rx.c: a lane that tells a result is done, as nobody waits for that: in a run that has just been
 * resumed.
 */
void fanin_engine_known_finish(struct fanin_engine *engine, struct fanin_lane *lane);

/* As fanin_loop_ops has it. */
void fanin_engine_receive(struct fanin_loop *loop, const struct fanin_frame *frame);

/*
 * query.c: sends a query for a block. all: and for those after it that have been sent.
 * overdue: the switch is to repeat a result, and to pass the query up. Returns the query's number,
 * or 0 if the transport has no room.
 */
uint32_t fanin_engine_query(struct fanin_engine *engine, uint32_t block, bool all, bool overdue);

/*
 * The same for a query that switches pass up to the root of the tree, if their handler knows of
 * such: about a block that no rank has contributed to.
 */
uint32_t fanin_engine_query_root(struct fanin_engine *engine, uint32_t block);

/*
 * timer.c: sends a query for the oldest block, and sets when the next one is due: later each time
 * while answers come, soon if none does. wait_ns: the least time for an answer. Returns when it is
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
 * query.c: the oldest block is in this state, as has been said just now, and waits for these ranks.
 * That others are merely late keeps the engine from timing out.
 */
void fanin_engine_note_answer(struct fanin_engine *engine, enum fanin_block_state state,
			      const struct fanin_answer_ranks *ranks);

/* query.c: a block was sent again that had not been lost. */
void fanin_engine_note_spurious(struct fanin_engine *engine);

/*
 * See fanin_loop_ops: sends queries that are due, and fails the engine if nothing has come for too
 * long.
 */
void fanin_engine_check_timers(struct fanin_loop *loop);

/*
 * Posts an allreduce of blocks that are shorter than packets may be, all alike: of values that
 * ranks tell each other.
 *
 * block_bytes: whole elements. Returns what fanin_engine_post does.
 */
int fanin_engine_post_small(struct fanin_engine *engine, struct fanin_request *request,
			    uint32_t n_blocks, uint32_t block_bytes);

/* Fails every request with the status; engine->loop.error already has the text. */
void fanin_engine_fail(struct fanin_engine *engine, int status);

#endif
