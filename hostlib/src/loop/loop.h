/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of a protocol over a transport: receives and sends frames, reads the clock, tells when timers are to be looked at, and
 * keeps what is the same for all protocols: the requests in progress and why there can be no more. What frames mean is the
 * protocol's, whose struct begins with a struct fanin_loop. It knows a transport and a clock, nothing else of the system, so that
 * tests can run many ranks in one process. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_LOOP_H
#define FANIN_HOSTLIB_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/base/error.h"
#include "hostlib/src/request/request.h"
#include "hostlib/src/transport/transport.h"

struct fanin_loop;

struct fanin_loop_ops {
	/* One received frame, valid during the call. It may fail the loop, and is then still called for the burst's other frames. */
	void (*receive)(struct fanin_loop *loop, const struct fanin_frame *frame);

	/* After what was received: sends what may be sent now. */
	void (*send)(struct fanin_loop *loop);

	/* What was due at timers_ns has run out; nothing that was received before is unread. */
	void (*timers)(struct fanin_loop *loop);

	/*
	 * While requests were in progress the caller was away: its times of the past are to move by_ns towards now
	 * (base/absence.h). received: there are frames to be read first.
	 */
	void (*away)(struct fanin_loop *loop, uint64_t by_ns, bool received);
};

struct fanin_loop {
	const struct fanin_loop_ops *ops;
	struct fanin_transport *transport; /* the owner's */
	struct fanin_clock clock;
	uint64_t timeout_ns;
	uint32_t most_unchecked;            /* frames from one look at the timers to the next */
	uint32_t unchecked_frames;          /* received since the timers were looked at */
	struct fanin_request_list requests; /* in order of their blocks */
	uint64_t now_ns;                    /* of this poll */
	uint64_t last_poll_ns;
	uint64_t timers_ns;     /* timers that were due then have run out */
	uint64_t next_timer_ns; /* nothing is due before */
	uint64_t resumed_ns; /* when the caller came back last: older samples are not the network's */
	int tx_errnum; /* why sending failed; 0, or cleared by the protocol as there was progress: it didn't */
	int status; /* FANIN_OK or why the loop failed */
	struct fanin_error error;
};

/*
 * Begins a loop. What is not named here is zero.
 *
 * clock: copied. timeout_ns: of requests, of which an absence counts a part at most. most_unchecked: frames, 1 at least.
 */
void fanin_loop_init(struct fanin_loop *loop, const struct fanin_loop_ops *ops,
		     struct fanin_transport *transport, const struct fanin_clock *clock,
		     uint64_t timeout_ns, uint32_t most_unchecked);

/*
 * Receives, sends and looks at the timers once, without blocking.
 *
 * Returns the number of frames received, or a negative status once the loop has failed.
 */
int fanin_loop_poll(struct fanin_loop *loop);

/* Ends every request with the status, which is negative; loop->error has the text already. */
void fanin_loop_fail(struct fanin_loop *loop, int status);

/* The time now, for what is not done in a poll. */
static inline uint64_t
fanin_loop_clock_ns(const struct fanin_loop *loop)
{
	return fanin_clock_read(&loop->clock);
}

/* Timers are looked at by then. */
static inline void
fanin_loop_wake_by(struct fanin_loop *loop, uint64_t time_ns)
{
	if (time_ns < loop->next_timer_ns)
		loop->next_timer_ns = time_ns;
}

#endif
