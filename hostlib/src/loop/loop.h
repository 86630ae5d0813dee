/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of a protocol over a transport: receives and sends frames, reads the clock and checks
 * the timers. It keeps what all protocols have in common: the requests in progress, and the reason
 * of a failure. The protocol, whose struct begins with a struct fanin_loop, interprets the frames.
 * It depends on a transport and a clock only, so that tests can run many ranks in one process. One
 * thread at a time.
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
	/*
	 * Handles one received frame, valid during the call. It may fail the loop, and is still
	 * called for the burst's other frames.
	 */
	void (*receive)(struct fanin_loop *loop, const struct fanin_frame *frame);

	/* Called after receiving: sends all that may be sent now. */
	void (*send)(struct fanin_loop *loop);

	/*
	 * Handles the timers that were due at timers_ns; every frame received before has been read.
	 */
	void (*timers)(struct fanin_loop *loop);

	/*
	 * The caller was away while requests were in progress: moves past timestamps by by_ns
	 * towards now (base/absence.h). received: there are frames to be read first.
	 */
	void (*away)(struct fanin_loop *loop, uint64_t by_ns, bool received);
};

struct fanin_loop {
	const struct fanin_loop_ops *ops;
	struct fanin_transport *transport; /* the owner's */
	struct fanin_clock clock;
	uint64_t timeout_ns;
	uint32_t max_unchecked;             /* maximum of frames between two checks of the timers */
	uint32_t unchecked_frames;          /* frames received since the timers were last checked */
	struct fanin_request_list requests; /* ordered by block number */
	uint64_t now_ns;                    /* of this poll */
	uint64_t last_poll_ns;
	uint64_t timers_ns;     /* timers that were due at this time have been handled */
	uint64_t next_timer_ns; /* no timer is due before */
	uint64_t resumed_ns; /* when the caller last came back: older samples include its absence */
	int tx_errnum;       /* why sending failed; 0: it did not, or the protocol cleared it after
				progress */
	int status;          /* FANIN_OK, or the error that the loop failed with */
	struct fanin_error error;
};

/*
 * Initialises a loop. Fields that are not named here are zero.
 *
 * clock: copied. timeout_ns: of requests; bounds the part of an absence that counts.
 * max_unchecked: frames, 1 at least.
 */
void fanin_loop_init(struct fanin_loop *loop, const struct fanin_loop_ops *ops,
		     struct fanin_transport *transport, const struct fanin_clock *clock,
		     uint64_t timeout_ns, uint32_t max_unchecked);

/*
 * Receives, sends and checks the timers once, without blocking.
 *
 * Returns the number of frames received, or a negative status once the loop has failed.
 */
int fanin_loop_poll(struct fanin_loop *loop);

/* Fails every request with a negative status; loop->error already has the text. */
void fanin_loop_fail(struct fanin_loop *loop, int status);

/* Returns the current time, for code outside of a poll. */
static inline uint64_t
fanin_loop_clock_ns(const struct fanin_loop *loop)
{
	return fanin_clock_read(&loop->clock);
}

/* Makes sure that timers are checked by this time. */
static inline void
fanin_loop_wake_by(struct fanin_loop *loop, uint64_t time_ns)
{
	if (time_ns < loop->next_timer_ns)
		loop->next_timer_ns = time_ns;
}

#endif
