/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's state, shared by engine.c (requests and the poll loop), engine_rx.c (what came in) and engine_timer.c (what
 * is sent again, and giving up). Nobody else includes this.
 */
#ifndef FANIN_HOSTLIB_ENGINE_INTERNAL_H
#define FANIN_HOSTLIB_ENGINE_INTERNAL_H

#include "engine.h"
#include "rtt.h"

#define FANIN_ENGINE_BURST 32

/* A caller that did not come back for this long was busy with something else: its silence is not the peers'. */
#define FANIN_ENGINE_AWAY_NS (100 * 1000000ull)

enum fanin_lane_state {
	FANIN_LANE_IDLE,   /* its block is not posted yet */
	FANIN_LANE_QUEUED, /* its block waits to be sent for the first time */
	FANIN_LANE_SENT,   /* its block waits for the result */
};

struct fanin_lane {
	uint32_t block;     /* in work, or when idle the next one */
	uint8_t state;      /* enum fanin_lane_state */
	bool suspect;       /* overdue and overtaken: probably lost */
	bool resent_before; /* the lane's block before was sent again; cleared by its second result */
	bool known; /* its block's result is known and sent to those who lack it; request is NULL */
	uint16_t transmissions;
	struct fanin_request *request; /* that the block belongs to; NULL when idle */
	uint64_t sent_ns;              /* last transmission */
	uint64_t deadline_ns;
	uint64_t members;    /* who has contributed, from PENDING; 0: not told */
	uint64_t pending_ns; /* when that came */
};

/* A lane's last result, for ranks that may have lost it with its run. */
struct fanin_kept {
	uint32_t block;
	uint16_t count;
	uint8_t dtype;
	uint8_t op;
	bool valid;
	bool empty; /* no rank brought data */
};

struct fanin_engine {
	struct fanin_engine_config config;
	struct fanin_transport *transport;
	struct fanin_lane *lanes; /* config.window of them */
	uint16_t *queue;          /* ring of lanes to be sent for the first time */
	uint32_t queue_head;
	uint32_t queue_tail;
	struct fanin_request *requests; /* posted and not done, in order of their blocks */
	struct fanin_request **requests_tail;
	uint32_t oldest;         /* oldest unfinished block */
	uint32_t end;            /* first block number not posted */
	uint32_t base;           /* what the run's packets call block 0 */
	struct fanin_kept *kept; /* by lane; NULL unless config.recover */
	uint8_t *kept_payloads;  /* config.payload_bytes each */
	uint32_t n_known;        /* lanes that are */
	bool run_lost;
	bool moved; /* to another switch, whose epochs are its own: none is that of the run before */
	const char *hint; /* borrowed; may be NULL */
	struct fanin_rtt rtt;
	uint64_t now_ns; /* of this poll */
	uint64_t last_poll_ns;
	uint64_t timers_ns;        /* timers that were due then have run out */
	uint32_t unchecked_frames; /* received since the timers were looked at */
	uint64_t next_scan_ns;     /* no lane is due before */
	uint64_t progress_ns;      /* last result, or when the first request was posted */
	uint64_t resumed_ns; /* when the caller came back last: older samples are not the network's */
	uint64_t overtaken_ns; /* latest first transmission whose result has come: earlier ones are overtaken */
	uint64_t probed_ns; /* latest retransmission likewise, while nothing shows that the first one had arrived */
	uint64_t heard_ns;         /* last packet of the switch for this run */
	bool overdue;              /* lanes are past their deadline but not overtaken */
	unsigned int stale_reason; /* last refusal that was ignored, since the last progress */
	int tx_errnum;             /* why sending failed since the last progress; 0: it didn't */
	int status;                /* FANIN_OK or why the engine failed */
	struct fanin_error error;
	struct fanin_engine_stats stats;
	uint32_t header_payload_len;  /* that `headers` is made for */
	struct fanin_headers headers; /* template of contributions */
};

static inline struct fanin_lane *
fanin_engine_lane(const struct fanin_engine *engine, uint32_t block)
{
	return &engine->lanes[block & (engine->config.window - 1u)];
}

/* Where in its request's vector a block lies, and with which operator. */
struct fanin_extent {
	uint64_t offset; /* bytes */
	uint32_t len;    /* bytes */
	uint8_t op;      /* as on the wire */
};

static inline struct fanin_extent
fanin_request_extent(const struct fanin_request *request, uint32_t block)
{
	uint32_t index = (block - request->first_block) * request->stride + request->start;
	uint32_t part = index / request->part_blocks;
	uint64_t begin = (uint64_t)(index % request->part_blocks) * request->block_bytes;
	uint64_t left = request->part_bytes - begin;
	uint8_t op = request->op;

	if (request->collective == FANIN_COLLECTIVE_BROADCAST)
		op = (uint8_t)(FANIN_WIRE_COPY + request->root);
	else if (request->collective == FANIN_COLLECTIVE_ALLGATHER)
		op = (uint8_t)(FANIN_WIRE_COPY + part);
	return (struct fanin_extent){
		.offset = part * request->part_bytes + begin,
		.len = left < request->block_bytes ? (uint32_t)left : request->block_bytes,
		.op = op,
	};
}

/* Does this rank bring data for a block? It has all of them or none; of a block without elements, there is nothing to bring. */
static inline bool
fanin_request_brings(const struct fanin_request *request, const struct fanin_extent *extent)
{
	return extent->offset - request->send_offset < request->send_bytes;
}

/* Does this rank keep all of a block's result? */
static inline bool
fanin_request_keeps(const struct fanin_request *request, const struct fanin_extent *extent)
{
	return extent->offset >= request->recv_offset &&
	       extent->offset + extent->len <= request->recv_offset + request->recv_bytes;
}

/* Queues a lane for its block's first transmission. */
static inline void
fanin_engine_queue(struct fanin_engine *engine, struct fanin_lane *lane, struct fanin_request *request)
{
	lane->request = request;
	lane->state = FANIN_LANE_QUEUED;
	lane->suspect = false;
	lane->transmissions = 0;
	lane->members = 0;
	lane->pending_ns = 0;
	engine->queue[engine->queue_tail++ & (engine->config.window - 1u)] =
		(uint16_t)(lane - engine->lanes);
}

/* engine_recover.c: allocates what is kept, if anything is. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_engine_keep_init(struct fanin_engine *engine);

/* engine_recover.c: a block's result, of which the request leaves something out. Returns its payload, or NULL if it is lost. */
const uint8_t *fanin_engine_keep_result(struct fanin_engine *engine, uint32_t block,
					const struct fanin_frame *frame);

/* engine_recover.c: a request is done and its owner may change its memory. */
void fanin_engine_keep_request(struct fanin_engine *engine, const struct fanin_request *request);

/*
 * engine_recover.c: what a known lane sends. hdr: gets type, data type, operator, count and flags. Returns the payload, of
 * *payload_len bytes.
 */
const void *fanin_engine_known(const struct fanin_engine *engine, const struct fanin_lane *lane,
			       struct fanin_hdr *hdr, uint32_t *payload_len);

/* Builds and commits the lane's contribution. Returns false if the transport has no room. */
bool fanin_engine_send(struct fanin_engine *engine, struct fanin_lane *lane);

/* One received frame. */
void fanin_engine_receive(struct fanin_engine *engine, const struct fanin_frame *frame);

/*
 * How long after its last transmission a lane is sent again. For the oldest block that doubles each time, but only while nothing
 * comes back: as long as there are results, a packet was lost where others pass.
 */
uint64_t fanin_engine_patience_ns(const struct fanin_engine *engine, const struct fanin_lane *lane);

/* Sends again what is due and fails the engine if nothing has come for too long. */
void fanin_engine_check_timers(struct fanin_engine *engine);

/* Ends every request with the status; engine->error has the text already. */
void fanin_engine_fail(struct fanin_engine *engine, int status);

#endif
