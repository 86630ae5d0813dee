/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Switches with the handler `canary`, and the table of descriptors of each, under exact control:
 * the test plays pipelines, links, hosts and leaders, and carries out what the handler emits. One
 * rig at a time.
 */
#ifndef FANIN_PROTOCOLS_CANARY_TESTS_CANARY_RIG_H
#define FANIN_PROTOCOLS_CANARY_TESTS_CANARY_RIG_H

#include "protocols/canary/switch/canary.h"
#include "tests/unit/fake_switch.h"

#define CANARY_RIG_SWITCHES 4
#define CANARY_RIG_SLOTS_MAX 64
#define CANARY_RIG_COUNT 4 /* elements, i32 */
#define CANARY_RIG_RUN 1000u
#define CANARY_RIG_EPOCH 9u /* of the job on each switch, which is no run's number */
#define CANARY_RIG_LEADER_IP(rank) (0x0a000001u + (rank)) /* 10.0.0.1 and on, host order */
#define CANARY_RIG_SWITCH_IP(number) (0x0a010001u + (number))

/* The test's part of an emission: to carry it out. The mbuf's references are the rig's. */
typedef void (*canary_rig_emit_fn)(void *user, unsigned int number,
				   const struct fanin_emission *emission);

struct canary_rig_switch {
	struct fanin_job_params job;
	struct canary_state *state;
	struct fanin_handler_stats stats;
	struct fanin_handler_ctx ctx;
	uint8_t *slots[CANARY_RIG_SLOTS_MAX];
	struct fanin_timer_fifo *timers;
	uint64_t earliest_ns;
};

struct canary_rig {
	const struct fanin_handler *handler;
	struct canary_rig_switch switches[CANARY_RIG_SWITCHES];
	struct fake_pool pool;
	canary_rig_emit_fn emit;
	void *user;
	uint64_t now_ns;
	unsigned int n_switches;
	uint16_t n_ranks;
	enum fanin_reason reason; /* of the last packet that was dropped */
};

/*
 * Makes switches without ports. window: W. slots: of each switch, a power of two. Ports are given
 * by canary_rig_host and _link.
 */
void canary_rig_start(struct canary_rig *rig, unsigned int n_switches, uint16_t n_ranks,
		      uint16_t window, uint32_t slots);

/* Releases the slots, and checks that every mbuf came back and no slot is in use. */
void canary_rig_stop(struct canary_rig *rig);

/* A port of a switch leads to a rank, or to another switch. */
void canary_rig_host(struct canary_rig *rig, unsigned int number, unsigned int port,
		     unsigned int rank);
void canary_rig_link(struct canary_rig *rig, unsigned int number, unsigned int port);

/* A switch starts again: it has forgotten everything. */
void canary_rig_restart(struct canary_rig *rig, unsigned int number);

/* Element i of a rank's data of a block. */
static inline uint32_t
canary_rig_value(unsigned int rank, uint32_t block, unsigned int i)
{
	return (rank + 1) * (block * 7 + i + 1);
}

/*
 * The data of these ranks in a REDUCE, summed up. flags: FANIN_FLAG_EMPTY leaves it out. The mbuf
 * is the test's until it is offered.
 */
struct rte_mbuf *canary_rig_reduce(struct canary_rig *rig, uint32_t block, uint64_t members,
				   uint16_t flags);

/*
 * The result of a block, as its leader sends it: RESULT, or RESTORE to a switch, for these ports.
 */
struct rte_mbuf *canary_rig_result(struct canary_rig *rig, uint32_t block);
struct rte_mbuf *canary_rig_restore(struct canary_rig *rig, uint32_t block, unsigned int number,
				    uint64_t ports);

/* True if the elements are the sum of these ranks' data of the block. */
bool canary_rig_is_sum(const struct rte_mbuf *mbuf, uint32_t block, uint64_t members);

/* A packet comes in at a port of a switch. Returns the verdict on it. */
enum fanin_verdict canary_rig_offer(struct canary_rig *rig, unsigned int number, unsigned int port,
				    struct rte_mbuf *mbuf);

/* The clock goes on by so much, and timers that are due expire on all switches. */
void canary_rig_pass_time(struct canary_rig *rig, uint64_t ns);

static inline struct canary_slot *
canary_rig_slot(struct canary_rig *rig, unsigned int number, uint32_t block)
{
	struct canary_rig_switch *which = &rig->switches[number];

	return (void *)which->slots[fanin_slot_index(&which->job.slots, block)];
}

#endif
