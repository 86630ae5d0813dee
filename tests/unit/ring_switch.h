/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch in the test's own process: the real pipeline on ports made of rte_rings. The test acts
 * as the hosts and moves the clock: it puts frames into a port, lets the workers make their rounds,
 * and takes the frames that came out. One switch at a time.
 */
#ifndef FANIN_TESTS_UNIT_RING_SWITCH_H
#define FANIN_TESTS_UNIT_RING_SWITCH_H

#include <rte_mbuf.h>

#include "tests/unit/answer_words.h"
#include "pipeline/job.h"
#include "pipeline/pipeline.h"
#include "pipeline/net/route_table.h"
#include "pipeline/base/worker.h"

#define RING_SWITCH_IP "10.0.0.254"
#define RING_SWITCH_KEY UINT64_C(0x1122334455667788)

#define RING_SWITCH_KEY_RATE 50000000u /* packets per second that are admitted by key */
#define RING_SWITCH_MAX_PORTS 16
#define RING_SWITCH_COUNT 64 /* elements of a contribution */

struct ring_switch {
	struct pipeline *pipeline;
	struct rte_mempool *pool;
	struct rte_ring *rx[RING_SWITCH_MAX_PORTS];
	struct rte_ring *tx[RING_SWITCH_MAX_PORTS];
	uint16_t n_ports;
	uint16_t hosts_per_port;     /* 1; a test may set it before it makes jobs */
	struct fanin_tagger *tagger; /* of hosts and parent: see ring_switch_authenticate; NULL:
					packets have no tags */
	const uint16_t *ranks;       /* of the hosts; NULL: host h is rank h */
};

/* Routing of a switch of the tests. */
struct ring_switch_routing {
	uint16_t routed_ports; /* bitmap */
	const struct route_spec *routes;
	uint16_t n_routes;
	const struct pipeline_egress *limits; /* of each port's queue; NULL: none */
};

/*
 * Starts the EAL without hugepages if this process has none yet. Its memory is private, so each
 * process that is forked later has the EAL as at the fork, except for threads.
 *
 * Returns 0 or a negative errno value.
 */
int ring_switch_eal_start(void);

/* Starts the EAL for a test, which fails if it can't be started. */
void ring_switch_eal(void);

/*
 * Slots of switches that are made from now on; 64 by default. A handler whose slots keep many
 * packets needs correspondingly more.
 */
extern uint32_t ring_switch_slots;

/* Makes a switch; faults may be NULL. Aborts the test on failure. */
void ring_switch_open(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
		      const struct pipeline_faults *faults);

/* Makes a switch with several workers in each cluster, which share blocks. */
void ring_switch_open_clusters(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
			       uint16_t cluster_size, const struct pipeline_faults *faults);

/* Makes a switch with one worker, and ports that lead to other switches. */
void ring_switch_open_routed(struct ring_switch *sw, uint16_t n_ports,
			     const struct ring_switch_routing *routing);

/*
 * Makes a switch with workers that don't share blocks, and limits of the ports' queues, one entry
 * for each port.
 */
void ring_switch_open_limited(struct ring_switch *sw, uint16_t n_ports, uint16_t n_workers,
			      const struct pipeline_egress *limits);

/* Instance of a parent that the test plays, for tags and its JOIN_ACK. */
#define RING_SWITCH_PARENT_INSTANCE UINT64_C(0xfedcba9876543210)

/*
 * Gives the jobs of ring_switch_job tags from now on. Frames that are put into ports get a tag,
 * unless they have one, and frames that come out are opened: tests see packets without tags. Aborts
 * the test if a packet lacks a necessary tag, or has a wrong one.
 */
void ring_switch_authenticate(struct ring_switch *sw);

/*
 * Adds the tag to a Fanin frame, as hosts or the parent do; returns its length with the tag. frame:
 * 4096 bytes.
 */
size_t ring_switch_seal(const struct ring_switch *sw, void *frame, size_t len);

/* Frees the switch and checks that every mbuf came back. */
void ring_switch_close(struct ring_switch *sw);

/*
 * Makes a job with handler "single" whose rank r is host r on port r / hosts_per_port. Aborts the
 * test on failure.
 */
struct job *ring_switch_job(struct ring_switch *sw, uint16_t n_members, uint32_t slots);

/* Makes such a job with another handler. */
struct job *ring_switch_job_of(struct ring_switch *sw, const char *handler, uint16_t n_members,
			       uint32_t slots);

/* Puts a frame into a port unchanged, without a tag. */
void ring_switch_enqueue_raw(struct ring_switch *sw, uint16_t port, const void *frame, size_t len);

/* Puts a frame into a port. */
void ring_switch_enqueue(struct ring_switch *sw, uint16_t port, const void *frame, size_t len);

/* Puts a frame into a port, and lets every worker make two rounds. */
void ring_switch_put(struct ring_switch *sw, uint16_t port, const void *frame, size_t len);

/* Lets every worker make this many rounds. */
void ring_switch_rounds(struct ring_switch *sw, unsigned int rounds);

/*
 * Takes the next frame that left through a port. Returns its length, or 0 if there is none. frame:
 * 4096 bytes.
 */
size_t ring_switch_take(struct ring_switch *sw, uint16_t port, void *frame);

/* Returns the count of a drop reason over all workers. */
uint64_t ring_switch_drops(const struct ring_switch *sw, enum fanin_reason reason);

/* The MAC and the address of host h. */
void host_mac(unsigned int h, uint8_t mac[6]);
uint32_t host_ip_be(unsigned int h);

/* Returns the key of packets of a type in these jobs. */
uint64_t ring_switch_key(enum fanin_type type);

/*
 * Builds a Fanin packet of host h to the switch: key, rank h, and payload_len bytes from payload.
 * Returns its length. frame: 4096 bytes.
 */
size_t host_packet(const struct ring_switch *sw, unsigned int h, enum fanin_type type, uint32_t job,
		   uint32_t epoch, const void *payload, uint32_t payload_len,
		   struct fanin_headers *frame);

/*
 * Sends one JOIN of host h; returns the answer, copied to answer (4096 bytes), or NULL if none
 * came.
 */
const struct fanin_headers *host_join_with(struct ring_switch *sw, unsigned int h, uint32_t job,
					   uint64_t nonce, uint64_t cookie, uint16_t size,
					   struct fanin_headers *answer);

/* The same, with a second JOIN that returns the cookie if the first one is challenged. */
const struct fanin_headers *host_sends_join(struct ring_switch *sw, unsigned int h, uint32_t job,
					    uint64_t nonce, uint16_t size,
					    struct fanin_headers *answer);

/*
 * Joins hosts 0 to n - 1, which are all hosts of the job, and returns the run's epoch. Aborts the
 * test on failure.
 */
uint32_t host_join_all(struct ring_switch *sw, const struct job *job, uint16_t n, uint64_t nonce);

/*
 * Builds host h's i32 sum contribution to a block: element i is (h + 1) * i + block. again: as a
 * retransmission. Returns its length. frame: 4096 bytes.
 */
size_t host_contribution(const struct ring_switch *sw, const struct job *job, unsigned int h,
			 uint32_t epoch, uint32_t block, bool again, uint8_t *frame);

/* Sends such a contribution. */
void host_contribute(struct ring_switch *sw, const struct job *job, unsigned int h, uint32_t epoch,
		     uint32_t block, bool again);

/*
 * Sends a query of host h about a block. number: not 0. overdue: also asks for a result that
 * exists.
 */
void host_query(struct ring_switch *sw, const struct job *job, unsigned int h, uint32_t epoch,
		uint32_t block, uint32_t number, bool overdue);

/*
 * Takes the next frame to host h, which must be an ANSWER with this number, and copies it to answer
 * (4096 bytes). Returns its body. Aborts the test for any other frame.
 */
const struct answer_words *host_take_answer(struct ring_switch *sw, unsigned int h, uint32_t number,
					    struct fanin_headers *answer);

/* Aborts the test unless the frame is the expected result of hosts 0 to n - 1 for a block. */
void host_result_check(const struct job *job, unsigned int n, uint32_t block, const void *frame,
		       size_t len);

#endif
