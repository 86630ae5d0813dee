/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring's state and its messages, shared by ring.c (requests, the poll loop, timers),
 * ring_wiring.c (connecting the ranks), ring_data.c (the collective in progress), ring_doubling.c
 * (if that is a sparse one), ring_links.c (connections of partners) and ring_notice.c (which ranks
 * are missing). Nobody else includes this.
 *
 * A connection leads from a rank to the next one. Data flows along it: for each collective a header
 * and then the bytes of its steps, without further framing. Notices flow in the opposite direction
 * and tell all ranks which ones the ring waits for.
 *
 * Sparse vectors have links instead, connections of partners, and no bytes along the ring but the
 * header, by which ranks that have posted another collective are found. Along a link both send
 * messages of one length: the head of a vector, which follows, or a notice.
 */
#ifndef FANIN_PROTOCOLS_RING_HOST_RING_INTERNAL_H
#define FANIN_PROTOCOLS_RING_HOST_RING_INTERNAL_H

#include <assert.h>
#include <stddef.h>

#include "handlers/kernels/kernels.h"
#include "hostlib/src/base/clock.h"
#include "hostlib/src/vector/union.h"
#include "ring.h"

#define FANIN_RING_VERSION 2u
#define FANIN_RING_MAGIC UINT64_C(0x474e49526e616e46) /* "FnanRING" */

/* Bytes received at once: few enough to be combined in the cache. */
#define FANIN_RING_CHUNK 65536u

/* Connections that have not said hello yet. */
#define FANIN_RING_GUESTS 8u

/*
 * The most partners of recursive doubling: those of the rounds of 64 ranks, or those of fewer ranks
 * and the rank whose vector is folded in.
 */
#define FANIN_RING_LINKS 6u
#define FANIN_RING_STAGES 8u

/* The first message in each direction of a connection. Little-endian, as are all others. */
struct fanin_ring_hello {
	uint64_t magic;
	uint64_t key;
	uint32_t version;
	uint16_t from;
	uint16_t to;
	uint16_t size;
	uint8_t purpose; /* enum fanin_ring_purpose */
	uint8_t reserved[5];
};
static_assert(sizeof(struct fanin_ring_hello) == 32, "the ring's hello");

/* What a connection is for. */
enum fanin_ring_purpose {
	FANIN_RING_AROUND, /* from a rank to the next one */
	FANIN_RING_LINK,   /* from the lower one of two partners to the other one */
};

enum fanin_ring_type {
	FANIN_RING_COLLECTIVE = 1, /* header: data follows */
	FANIN_RING_BYE,    /* header or notice: the sender has left after its last collective */
	FANIN_RING_STATUS, /* notice: the sender waits */
	FANIN_RING_FAILED, /* notice: the sender has given up */
	FANIN_RING_VECTOR, /* on a link: a sparse vector follows */
};

/* Along the stream, before each collective's data. */
struct fanin_ring_header {
	uint32_t type;
	uint32_t seq;   /* collectives are numbered by the order of posting */
	uint64_t count; /* elements of the whole vector */
	uint16_t root;
	uint8_t collective; /* enum fanin_collective */
	uint8_t dtype;
	uint8_t op;
	uint8_t reserved[3];
};
static_assert(sizeof(struct fanin_ring_header) == 24, "the ring's header");

/* What is known about a neighbour's machine while its process is waited for (ring_watch.c). */
struct fanin_ring_watch {
	struct sockaddr_in address; /* where the rank listened; port 0: unknown */
	int fd;                     /* of a test connection to it; -1: none */
	uint64_t due_ns;         /* when the next attempt is due, or the current one is given up */
	unsigned int unanswered; /* attempts in a row without an answer */
	unsigned int tries;      /* attempts made before anybody had to wait */
	bool refuses; /* an attempt was refused once: the next one will be, too, if the machine is
			 there */
	uint32_t segments;    /* received on the ring's own connection at the last check */
	uint64_t answered_ns; /* when the machine last sent anything */
	uint64_t heard_ns;    /* when it last sent anything, or had nothing to acknowledge */
};

/* Why the ring has failed: what the blamed ranks did. The texts are in ring_notice.c. */
enum fanin_ring_blame {
	FANIN_RING_DIED = 1,
	FANIN_RING_LEFT,
	FANIN_RING_GAVE_UP,
	FANIN_RING_SILENT,
	FANIN_RING_NOT_POSTED,
	FANIN_RING_STALLED,
	FANIN_RING_LATE,
};

/* Sent against the stream. Bitmaps are of ranks, as far as the sender knows. */
struct fanin_ring_notice {
	uint32_t type;
	uint32_t seq;       /* the oldest collective that the sender has not finished */
	uint64_t posted;    /* STATUS: ranks that have posted it */
	uint64_t silent;    /* STATUS: ranks that do not answer */
	uint64_t blamed;    /* FAILED */
	uint32_t blame;     /* FAILED: enum fanin_ring_blame */
	uint32_t waited_ms; /* FAILED: how long nothing was received; STATUS on a link: how long
			       nothing has moved */
};
static_assert(sizeof(struct fanin_ring_notice) == 40, "the ring's notice");

/*
 * On a link, before a sparse vector. All messages on links have this length: the others are
 * notices.
 */
struct fanin_ring_vector {
	uint32_t type;
	uint32_t seq;
	uint64_t n_min; /* of the ranks whose vectors are in this one; if they differ, no vector
			     follows */
	uint64_t n_max;
	uint64_t nnz;
	uint8_t form; /* enum fanin_vector_form */
	uint8_t dtype;
	uint8_t op;
	uint8_t reserved[5];
};
static_assert(sizeof(struct fanin_ring_vector) == sizeof(struct fanin_ring_notice),
	      "messages on links");

/* A message that is sent or received in pieces. */
struct fanin_ring_piece {
	uint8_t bytes[sizeof(struct fanin_ring_notice)];
	uint32_t len;  /* of the whole message; 0: there is none */
	uint32_t done; /* bytes sent or received */
};

enum fanin_ring_call_state {
	FANIN_RING_CALL_CLOSED,     /* to be retried at retry_ns */
	FANIN_RING_CALL_CONNECTING, /* the kernel is connecting */
	FANIN_RING_CALL_GREETING,   /* hello is sent, its answer not yet received */
	FANIN_RING_CALL_OPEN,
};

/* A connection to a rank that this one makes. */
struct fanin_ring_call {
	struct sockaddr_in address;
	uint16_t rank;
	uint8_t purpose; /* enum fanin_ring_purpose */
	enum fanin_ring_call_state state;
	int fd; /* -1: none */
	struct fanin_ring_piece greeting;
	uint64_t retry_ns;
	int errnum; /* last error of the connection; 0: none */
};

/* The connection with a partner of recursive doubling. */
struct fanin_ring_link {
	struct fanin_ring_call call; /* open once wired, also if the partner has made it */
	struct fanin_ring_piece tx;  /* a message that is being sent */
	struct fanin_ring_piece rx;  /* a message that is being received; once complete: the head of
					a vector, which waits until this rank needs it */
	bool tx_blocked;             /* accepts no more data now */
	bool has_sent;               /* sent_seq is a sparse collective */
	uint32_t sent_seq; /* the last collective whose vector this rank has begun to send */
	bool left;         /* the partner said goodbye */
	bool ended;
	uint64_t ended_ns;              /* when that was seen */
	struct fanin_ring_notice heard; /* the partner's last notice */
	uint64_t heard_ns;
	uint64_t notified_ns; /* when this rank sent one last */
	struct fanin_ring_watch watch;
};

/* What a rank does in a round of recursive doubling. */
struct fanin_ring_stage {
	uint8_t link;
	bool sends;
	bool receives;
	bool takes_over; /* what is received is the result */
};

/* The sparse collective in progress. */
struct fanin_ring_doubling {
	struct fanin_vector_union own; /* of this rank and those that it has heard of */
	struct fanin_vector_union in;  /* what is received */
	uint64_t n_min;                /* of the same ranks */
	uint64_t n_max;
	uint32_t stage;    /* the ring's n_stages: done */
	uint64_t moved_ns; /* when it began, or anything was sent or received in it */
	bool tx_begun;     /* the head is under way */
	bool rx_begun;     /* the head is received */
	uint64_t tx_bytes; /* of the vector's parts, sent */
	uint64_t tx_len;   /* of all parts */
	uint64_t rx_bytes; /* received */
	uint64_t rx_len;
	bool rx_ignored; /* of another n: nothing is kept */
};

struct fanin_ring_guest {
	int fd; /* -1: free */
	struct fanin_ring_piece hello;
	uint64_t deadline_ns;
};

/*
 * The collective in progress: the oldest request. The vector is cut into segments, which move in
 * steps; in step g rank r sends segment r + first - g. A sending step needs the data of the
 * receiving step before it, `lead` steps earlier.
 */
struct fanin_ring_work {
	struct fanin_request *request; /* NULL: none */
	const uint8_t *own;            /* this rank's data, addressed as the whole vector */
	uint8_t *result;     /* the whole result, or as much of it as this rank needs, addressed
				likewise */
	uint8_t *partial;    /* partial results: `result`, or memory of its own */
	void *result_memory; /* owned; if the caller's buffer has no room for it */
	void *partial_memory;
	uint64_t count;
	uint8_t dtype;
	uint32_t element_bytes;
	uint32_t partial_bytes;                /* bytes of an element while it is combined */
	const struct fanin_wide_kernels *wide; /* partial results are f32 and elements are not; or
						  NULL */
	fanin_kernel_fn kernel;
	fanin_finish_fn finish;
	uint8_t token[64]; /* one byte per segment in place of an empty vector */

	uint32_t n_segments;
	uint32_t first;
	uint32_t reducing; /* steps that combine; the others only pass data on */
	uint32_t lead;
	uint32_t tx_steps;
	uint32_t rx_steps;
	uint32_t tx_step;
	uint64_t tx_bytes; /* bytes of this step's segment already sent */
	uint32_t rx_step;
	uint64_t rx_bytes; /* bytes of this step's segment already received and combined */
	uint32_t rx_held;  /* bytes in `scratch`: part of an element */
	bool rx_matched;   /* the previous rank's header fits the request */
};

struct fanin_ring {
	struct fanin_endpoint endpoint; /* first, so that a pointer to it is one to this */
	struct fanin_protocol_config config;
	struct fanin_clock clock;
	enum fanin_isa isa;

	int listener; /* -1 once wired */
	struct fanin_ring_guest guests[FANIN_RING_GUESTS];
	int prev; /* the previous rank's connection, -1: none */
	struct fanin_ring_call next;

	struct fanin_request_list requests;
	uint32_t seq; /* of the oldest request that is not done */
	struct fanin_ring_work work;
	struct fanin_ring_doubling doubling; /* if the work is a sparse one */
	struct fanin_ring_link links[FANIN_RING_LINKS];
	struct fanin_ring_stage stages[FANIN_RING_STAGES];
	uint32_t n_links;
	uint32_t n_stages;
	uint64_t links_ns; /* when all links were looked at last */
	struct fanin_ring_piece tx_header;
	struct fanin_ring_piece rx_header;
	bool tx_blocked; /* the next rank's connection accepts no more data now */

	bool prev_ended;        /* no more data will come */
	uint64_t prev_ended_ns; /* when that was seen */
	bool prev_left;         /* it said goodbye */
	bool next_ended;
	bool next_left;
	uint32_t next_left_seq; /* the first collective that the next rank does not take part in */
	struct fanin_ring_piece tx_notice;
	struct fanin_ring_piece rx_notice;
	struct fanin_ring_notice heard; /* the next rank's last notice */
	uint64_t heard_ns;
	uint64_t posted; /* other ranks that have posted `seq` */
	uint64_t blamed; /* ranks blamed for the ring's failure */
	enum fanin_ring_blame blame;
	uint32_t waited_ms; /* until it failed */
	uint64_t late_ns;   /* when a rank was last found to be late */
	struct fanin_ring_watch prev_watch;
	struct fanin_ring_watch next_watch;
	uint64_t notified_ns; /* when a notice was sent last */
	bool notice_due;      /* there is news to pass on */

	uint64_t now_ns; /* of this poll */
	uint64_t last_poll_ns;
	uint64_t progress_ns; /* last data in either direction */
	uint64_t received_ns; /* when data was last received: sent data may only be in the kernel */
	int status;
	struct fanin_error error;
	struct fanin_ring_stats stats;
	uint8_t scratch[FANIN_RING_CHUNK] __attribute__((aligned(64)));
};

static_assert(offsetof(struct fanin_ring, endpoint) == 0,
	      "a pointer to the endpoint is one to the ring");

static inline struct fanin_ring *
fanin_ring_of(struct fanin_endpoint *endpoint)
{
	assert(endpoint->protocol == &fanin_protocol_ring);
	return (struct fanin_ring *)endpoint;
}

static inline uint16_t
fanin_ring_next_rank(const struct fanin_ring *ring)
{
	return (uint16_t)((ring->config.rank + 1u) % ring->config.size);
}

static inline uint16_t
fanin_ring_prev_rank(const struct fanin_ring *ring)
{
	return (uint16_t)((ring->config.rank + ring->config.size - 1u) % ring->config.size);
}

static inline uint64_t
fanin_ring_all(const struct fanin_ring *ring)
{
	return UINT64_MAX >> (64 - ring->config.size);
}

/* Returns the first element of a segment; for the one after the last, the vector's length. */
static inline uint64_t
fanin_ring_segment_first(const struct fanin_ring_work *work, uint32_t segment)
{
	uint32_t rest = (uint32_t)(work->count % work->n_segments);

	return work->count / work->n_segments * segment + (segment < rest ? segment : rest);
}

static inline uint64_t
fanin_ring_segment_count(const struct fanin_ring_work *work, uint32_t segment)
{
	return fanin_ring_segment_first(work, segment + 1) -
	       fanin_ring_segment_first(work, segment);
}

/* Returns the segment that a rank sends in a step. */
static inline uint32_t
fanin_ring_segment_of(const struct fanin_ring *ring, uint32_t rank, uint32_t step)
{
	uint32_t size = ring->config.size;

	return (rank + ring->work.first + 2u * size - step) % size % ring->work.n_segments;
}

/* Returns the time without progress after which other ranks are told which ranks are waited for. */
static inline uint64_t
fanin_ring_notice_ns(const struct fanin_ring *ring)
{
	uint64_t interval_ns = ring->config.timeout_ns / 32;

	return interval_ns < 100 * 1000000ull ? interval_ns : 100 * 1000000ull;
}

/*
 * Returns the interval of these notices. A rank that has been late for long is known, and may be
 * late for much longer.
 */
static inline uint64_t
fanin_ring_notice_interval_ns(const struct fanin_ring *ring, uint64_t now_ns)
{
	bool long_since = now_ns - ring->received_ns >= ring->config.timeout_ns;

	return fanin_ring_notice_ns(ring) * (long_since ? 4 : 1);
}

/*
 * Sends or receives the rest of a message. Returns 1 if it is complete, 0 if more is to come,
 * -errno on failure; -ECONNRESET also stands for the connection's orderly end.
 *
 * calls: counts those of the system.
 */
int fanin_ring_piece_send(int fd, struct fanin_ring_piece *piece, uint64_t *calls);
int fanin_ring_piece_receive(int fd, struct fanin_ring_piece *piece, uint32_t len, uint64_t *calls);

/* Prepares a message to be sent. */
void fanin_ring_piece_set(struct fanin_ring_piece *piece, const void *message, uint32_t len);

/*
 * ring_wiring.c: true once neighbours and partners are connected. Until then, polling connects
 * them.
 */
bool fanin_ring_wired(const struct fanin_ring *ring);

/* ring_wiring.c: makes one step of connecting the ranks. */
void fanin_ring_wire(struct fanin_ring *ring);

/* Fills in the descriptors for poll() until the ring is wired. */
unsigned int fanin_ring_wiring_fds(const struct fanin_ring *ring, struct pollfd *fds);

/* ring_links.c: plans links and stages. peers: where each rank listens. */
void fanin_ring_links_plan(struct fanin_ring *ring, const struct sockaddr_in *peers);

/*
 * Receives a link's notices, up to the head of a vector. The ring may have failed. Returns how many
 * messages came.
 */
unsigned int fanin_ring_link_receive(struct fanin_ring *ring, struct fanin_ring_link *link);

/* Sends the rest of a message. Returns true if there is none left. */
bool fanin_ring_link_flush(struct fanin_ring *ring, struct fanin_ring_link *link);

/* Notes that the link's connection has ended. */
void fanin_ring_link_end(struct fanin_ring *ring, struct fanin_ring_link *link);

/* True if a link holds the head of a vector. */
static inline bool
fanin_ring_link_has_head(const struct fanin_ring_link *link)
{
	return link->rx.len != 0 && link->rx.done == link->rx.len;
}

/* True if the partner had posted the collective of its last notice. */
static inline bool
fanin_ring_link_has_posted(const struct fanin_ring_link *link)
{
	return (link->heard.posted >> link->call.rank & 1) != 0;
}

/*
 * Checks all links from time to time: receives notices, and tells partners that wait, or may soon,
 * how this rank is doing.
 */
void fanin_ring_links_poll(struct fanin_ring *ring);

/*
 * Tells all partners that this rank leaves or has failed. If the ring has failed, a link on which a
 * vector is being sent is closed for sending instead.
 */
void fanin_ring_links_tell(struct fanin_ring *ring, enum fanin_ring_type type);

/* Sends what is left of such messages. Returns true if nothing is. */
bool fanin_ring_links_flush(struct fanin_ring *ring);

/* Does not count by_ns of the caller's absence as silence. */
void fanin_ring_links_away(struct fanin_ring *ring, uint64_t by_ns);

/* ring_doubling.c: true if the collective in progress is a sparse one. */
static inline bool
fanin_ring_is_doubling(const struct fanin_ring *ring)
{
	return ring->work.request != NULL && ring->work.request->sparse != NULL;
}

/* Returns the link that the sparse collective in progress waits for; NULL if there is none. */
static inline const struct fanin_ring_link *
fanin_ring_doubling_link(const struct fanin_ring *ring)
{
	if (!fanin_ring_is_doubling(ring) || ring->doubling.stage == ring->n_stages)
		return NULL;
	return &ring->links[ring->stages[ring->doubling.stage].link];
}

/* Begins a sparse collective. The ring fails if there is no memory for it. */
void fanin_ring_doubling_begin(struct fanin_ring *ring);

/* Sends and receives. Returns how often. The ring may have failed. */
unsigned int fanin_ring_doubling_work(struct fanin_ring *ring);

/* Hands the result to the caller, as all rounds are done. Returns the request's status. */
int fanin_ring_doubling_finish(struct fanin_ring *ring);

/* Frees what it holds. */
void fanin_ring_doubling_end(struct fanin_ring *ring);

/* Returns the ranks that a sparse collective waits for, as far as known. */
uint64_t fanin_ring_doubling_missing(const struct fanin_ring *ring);

/* Returns what poll() has to wait for on the link that is waited for; 0: nothing. */
short fanin_ring_doubling_events(const struct fanin_ring *ring);

/* ring_plan.c: begins a request's collective. The ring fails if there is no memory for it. */
void fanin_ring_work_begin(struct fanin_ring *ring, struct fanin_request *request);

/* Frees what the collective in progress holds. */
void fanin_ring_work_end(struct fanin_ring *ring);

/* ring_data.c. Both return how often data was sent or received; the ring may have failed. */
unsigned int fanin_ring_work_send(struct fanin_ring *ring);
unsigned int fanin_ring_work_receive(struct fanin_ring *ring);

/* True if all data is received, and sent on to the kernel. */
bool fanin_ring_work_done(const struct fanin_ring *ring);

/* ring_watch.c: address: where the neighbour listens; port 0: unknown. */
void fanin_ring_watch_init(struct fanin_ring_watch *watch, const struct sockaddr_in *address);

/*
 * Does not count by_ns of the caller's absence as silence. An attempt goes on: its answer may be in
 * the socket.
 */
void fanin_ring_watch_away(const struct fanin_ring *ring, struct fanin_ring_watch *watch,
			   uint64_t by_ns);

/*
 * Finds out whether the neighbour's machine refuses connections. Called while nobody waits for the
 * neighbour.
 */
void fanin_ring_watch_idle(struct fanin_ring *ring, struct fanin_ring_watch *watch);

/*
 * Checks the neighbour's machine. Called while the neighbour is waited for. fd: the ring's
 * connection with it.
 */
void fanin_ring_watch_check(struct fanin_ring *ring, struct fanin_ring_watch *watch, int fd);

/*
 * Returns true if the neighbour's machine has not answered although it had to, and this long after
 * that became certain.
 */
bool fanin_ring_watch_is_silent(const struct fanin_ring *ring, const struct fanin_ring_watch *watch,
				uint64_t grace_ns);

/* ring_notice.c: receives the next rank's notices. */
void fanin_ring_notice_receive(struct fanin_ring *ring);

/* Passes on what is known, if it is due. */
void fanin_ring_notice_send(struct fanin_ring *ring);

/* Notifies the previous rank at once, if the connection accepts it. */
void fanin_ring_notice_now(struct fanin_ring *ring, enum fanin_ring_type type);

/* Makes a notice of what this rank knows. */
struct fanin_ring_notice fanin_ring_notice_make(const struct fanin_ring *ring,
						enum fanin_ring_type type);

/* True if a is an earlier collective than b. */
static inline bool
fanin_ring_seq_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/* Fails the ring because of these ranks, which have been waited for this long. */
void fanin_ring_fail_after(struct fanin_ring *ring, uint64_t ranks, enum fanin_ring_blame blame,
			   uint32_t waited_ms);

/* Fails the ring if a rank is gone or there was no progress for too long. */
void fanin_ring_check_timers(struct fanin_ring *ring);

/*
 * Fails every request with the status; ring->error already has the text. Tells the others which
 * ranks ring->blamed names, or this rank if none.
 */
void fanin_ring_fail(struct fanin_ring *ring, int status);

#endif
