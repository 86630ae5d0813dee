/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joins and leaves a job over a channel for control packets, from which the switch learns the
 * host's address. Blocks for at most the times given. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_JOIN_H
#define FANIN_HOSTLIB_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "hostlib/src/base/error.h"
#include "hostlib/src/transport/route.h"
#include "wire/keys.h"
#include "wire/tag.h"
#include "wire/wire.h"

/*
 * JOINs of a rank that waits for others to join again are at most this far apart. While each JOIN
 * is answered and the answers don't change, the interval is an eighth of the time for which this
 * has been so, up to the second limit and half the timeout.
 */
#define FANIN_REJOIN_REPEAT_MAX_NS (1000 * 1000000ull)
#define FANIN_REJOIN_CALM_MAX_NS (2000 * 1000000ull)

struct fanin_member_config {
	uint64_t key; /* the job's secret */
	uint32_t job;
	uint16_t rank;
	uint16_t size;
	uint16_t udp_port;
	bool wants_path;     /* find out whether super-frames pass */
	bool authenticate;   /* packets have tags; never joins a job whose packets have none */
	bool awaits_new_job; /* the job may be missing for a while: it is being created again */
	uint64_t timeout_ns; /* of collectives: an answer to a JOIN counts as progress, like a
				result */
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
};

struct fanin_member {
	struct fanin_member_config config;
	struct fanin_keys keys;
	struct fanin_tagger *tagger; /* NULL unless config.authenticate; shared with the engine
					until fanin_member_close */
	uint32_t switch_ip_be;
	uint32_t local_ip_be;
	uint32_t mtu;
	struct fanin_channel channel;
	uint64_t nonce;
	uint64_t cookie;       /* from the switch, which wants it echoed */
	bool challenged;       /* the switch has sent a cookie */
	bool rejoins;          /* the member has been in a run that was lost */
	uint32_t progress;     /* first block that this rank still needs */
	unsigned int refusal;  /* last temporary refusal while joining; else FANIN_REASON_NONE */
	int errnum;            /* last error of the channel; 0: none */
	uint64_t next_send_ns; /* when the next JOIN is due */
	uint64_t begun_ns;     /* when joining began, for the first time or again */
	bool heard;            /* the switch has answered since then, in this version */
	bool is_older;         /* the switch has answered in the version before */
	bool super_frames;     /* super-frames have reached this rank from this switch */
	unsigned int pairs;    /* number of super-frames that were sent to find out */
	int pair_errnum;       /* why the kernel refuses super-frames; 0: it does not */
	uint64_t sent_ns;      /* when the last one was sent */
	uint64_t repeat_ns;    /* interval of JOINs while it joins again */
	uint64_t unchanged_since_ns; /* when answers last changed; none since is a refusal */

	/* From JOIN_ACK. */
	bool acknowledged;
	bool active;
	uint32_t epoch;
	uint64_t instance;         /* of the switch */
	struct fanin_ranks joined; /* ranks that have joined */
	uint64_t told_ns;          /* when the switch last said so; 0: never */
	uint32_t first_block;      /* minimum progress of all ranks, once active */
	uint32_t group_be;
	uint16_t window; /* a power of two */
	uint16_t payload_bytes;
	bool wide;             /* sums and averages of f16 and bf16 are accumulated in f32 */
	bool spread;           /* the switch has several workers */
	uint8_t port_shift;    /* 2^this blocks in a row have one source port */
	bool multicast;        /* packets of any member go to all others, and nothing is reduced */
	uint32_t slots;        /* of the switch, for the job and the jobs that share them with it */
	uint32_t sharing_jobs; /* how many jobs share them */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* of the job's handler */
	char handler[17];
};

/* The condition that fanin_member_join waits for. */
enum fanin_join_until {
	FANIN_JOIN_UNTIL_ACKNOWLEDGED, /* this rank is in; the job's parameters are known */
	FANIN_JOIN_UNTIL_ACTIVE,       /* every rank is in; the epoch is final */
};

/*
 * Opens a member.
 *
 * channel: open; the member's from now on. member: filled in also on failure: fanin_member_close
 * may always be called.
 * Returns FANIN_OK, FANIN_ERR_NO_MEMORY or FANIN_ERR_SYSTEM, the latter also if libcrypto lacks the
 * algorithms of tags.
 */
int fanin_member_open(struct fanin_member *member, const struct fanin_member_config *config,
		      const struct fanin_route *route, const struct fanin_channel *channel,
		      struct fanin_error *error);

/*
 * Repeats JOIN until the condition holds. May be called once for each condition.
 *
 * deadline_ns: on the clock of fanin_now_ns. error: on a timeout error->missing has the ranks that
 * have not joined. Returns FANIN_OK, FANIN_ERR_JOIN_REFUSED, FANIN_ERR_JOIN_TIMEOUT,
 * FANIN_ERR_INTERRUPTED or FANIN_ERR_SYSTEM.
 */
int fanin_member_join(struct fanin_member *member, enum fanin_join_until until,
		      uint64_t deadline_ns, uint64_t timeout_ns, struct fanin_error *error);

/*
 * Waits a little to learn whether super-frames pass, if that is wanted and not known yet, since
 * many JOINs may have been lost. Sets super_frames. To be called once the member has joined.
 */
void fanin_member_try_path(struct fanin_member *member);

/*
 * Begins to join again after the switch has lost the member's run. Does not block;
 * fanin_member_rejoin_poll continues.
 *
 * progress: the first block whose result the rank lacks.
 */
void fanin_member_rejoin(struct fanin_member *member, uint32_t progress);

/*
 * Makes fanin_member_rejoin join at another switch from now on.
 *
 * channel: open; the member's from now on. The old one is closed.
 */
void fanin_member_move(struct fanin_member *member, const struct fanin_route *route,
		       uint16_t udp_port, const struct fanin_channel *channel);

/*
 * Continues to join again. Returns FANIN_IN_PROGRESS; FANIN_OK once every rank has joined again; or
 * FANIN_ERR_JOIN_REFUSED.
 */
int fanin_member_rejoin_poll(struct fanin_member *member, struct fanin_error *error);

/*
 * Sends LEAVE without waiting: the member will not contribute any more, and others need not wait
 * for it. fanin_member_leave must still be called.
 */
void fanin_member_give_up(struct fanin_member *member);

/*
 * Repeats LEAVE until it is confirmed, for a second at most. Returns FANIN_OK or FANIN_ERR_TIMEOUT.
 */
int fanin_member_leave(struct fanin_member *member, struct fanin_error *error);

/* Closes the channel. An engine that uses the tagger must be gone. */
void fanin_member_close(struct fanin_member *member);

#endif
