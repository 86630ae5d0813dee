/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of aggregators, and jobs of PA-ATP that share it, under exact control: the test plays the
 * pipeline, the hosts and the server. What the handler emits is kept in the order in which it was
 * emitted. One rig at a time.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_TESTS_PA_ATP_RIG_H
#define FANIN_PROTOCOLS_PA_ATP_TESTS_PA_ATP_RIG_H

#include "protocols/pa_atp/switch/pa_atp.h"
#include "tests/unit/fake_switch.h"

#define PA_ATP_RIG_JOBS 2
#define PA_ATP_RIG_SLOTS_MAX 64
#define PA_ATP_RIG_OUTPUTS 256
#define PA_ATP_RIG_COUNT 4 /* elements, i32, of what pa_atp_rig_gradient makes */
#define PA_ATP_RIG_PAYLOAD 256
#define PA_ATP_RIG_EPOCH 9u         /* of the first run of a job; that of job j is j higher */
#define PA_ATP_RIG_PARENT_EPOCH 70u /* likewise */

/* An emission. */
struct pa_atp_output {
	enum fanin_emission_kind kind;
	uint64_t children;
	uint32_t payload_len;
	struct fanin_headers headers;
	uint8_t payload[PA_ATP_RIG_PAYLOAD];
};

struct pa_atp_rig {
	const struct fanin_handler *handler;
	struct fanin_job_params jobs[PA_ATP_RIG_JOBS];
	struct pa_atp_state *states[PA_ATP_RIG_JOBS];
	struct fanin_handler_stats stats[PA_ATP_RIG_JOBS];
	struct fanin_handler_ctx ctx;
	struct fake_pool pool;
	uint8_t *slots[PA_ATP_RIG_SLOTS_MAX];
	struct pa_atp_common common;
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
	struct pa_atp_output outputs[PA_ATP_RIG_OUTPUTS];
	unsigned int n_outputs;
	unsigned int next;        /* output that the test looks at */
	bool dry;                 /* a test's: the handler finds no empty mbufs */
	enum fanin_reason reason; /* of the last packet that was dropped */
};

/* How a rig is made. What is 0 is as usual. */
struct pa_atp_rig_options {
	uint32_t n_slots; /* 8 */
	uint16_t window;  /* 8 */
	uint16_t n_ranks; /* 3 */
	bool leaf;        /* the parent is a switch; it has two ranks more, 5 and 6 */
};

void pa_atp_rig_start(struct pa_atp_rig *rig, const struct pa_atp_rig_options *options);

/* Ends all runs, releases the slots, and checks that every mbuf came back and nothing is in use. */
void pa_atp_rig_stop(struct pa_atp_rig *rig);

/* The calls from now on are of this job, 0 or 1. */
void pa_atp_rig_select(struct pa_atp_rig *rig, unsigned int job);

/*
 * A packet for the handler, of the job that is selected. payload: may be NULL. The mbuf is the
 * test's until it is offered.
 */
struct rte_mbuf *pa_atp_rig_make(struct pa_atp_rig *rig, enum fanin_type type, uint32_t block,
				 const void *payload, uint32_t payload_len);

/*
 * A rank's gradient: element i is (rank + 1) * (block + i), summed up. It says that all blocks
 * before `progress` are done.
 */
struct rte_mbuf *pa_atp_rig_make_gradient(struct pa_atp_rig *rig, unsigned int rank, uint32_t block,
					  uint32_t progress, uint16_t flags);

/* Hands a packet of a child to the handler, and keeps what it emits. */
enum fanin_verdict pa_atp_rig_offer(struct pa_atp_rig *rig, unsigned int child,
				    struct rte_mbuf *mbuf);

/* Both, of a host whose progress is 0; the packet is not dropped. */
void pa_atp_rig_gradient(struct pa_atp_rig *rig, unsigned int rank, uint32_t block, uint16_t flags);

/* A host asks; the server does, and says its result, whose elements are zeros. */
void pa_atp_rig_query(struct pa_atp_rig *rig, unsigned int child, uint32_t block);
void pa_atp_rig_flush(struct pa_atp_rig *rig, uint32_t block);
void pa_atp_rig_result(struct pa_atp_rig *rig, uint32_t block);

/* The clock goes on by so much, and timers that are due expire. */
void pa_atp_rig_pass_time(struct pa_atp_rig *rig, uint64_t ns);

/* The slot of a block of the selected job. */
struct pa_atp_slot *pa_atp_rig_slot(struct pa_atp_rig *rig, uint32_t block);

/* The next emission, which has to be of this kind and type. */
const struct pa_atp_output *pa_atp_rig_take(struct pa_atp_rig *rig, enum fanin_emission_kind kind,
					    enum fanin_type type);

/*
 * Takes the GACK of a gradient. ce: whether it has that mark. Returns its sum of sequence numbers.
 */
uint64_t pa_atp_rig_take_gack(struct pa_atp_rig *rig, unsigned int rank, uint32_t block, bool ce);

/*
 * Takes what goes to the server, with the sum of these ranks' gradients: a CONTRIBUTION if
 * complete, else a PARTIAL. Returns it.
 */
const struct pa_atp_output *pa_atp_rig_take_sum(struct pa_atp_rig *rig, uint64_t members,
						uint32_t block);

/* Nothing was emitted that the test has not taken. */
void pa_atp_rig_expect_nothing(struct pa_atp_rig *rig);

/* Of the selected job. */
uint64_t pa_atp_rig_count(const struct pa_atp_rig *rig, enum pa_atp_counter counter);

#endif
