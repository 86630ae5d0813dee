/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late or gone (docs/protocol.md): the switch probes children whose contributions an overdue block
 * is missing. Ranks that wait for such a child then know whether it is late, has ended or is
 * silent. The results are in job->ended and job->silent.
 *
 * Workers only. The first worker that finds probes due sends them; a worker handles the answers
 * that it receives. The job's lock guards the state of a child. No packet that carries data passes
 * this code.
 */
#ifndef FANIN_PIPELINE_PROBE_H
#define FANIN_PIPELINE_PROBE_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

#define PROBE_INTERVAL_NS UINT64_C(500000000)
/* A child is probed for this long after the last overdue query about a block that misses it. */
#define PROBE_WATCH_NS UINT64_C(5000000000)
/* A child that leaves this many probes in a row unanswered is silent. */
#define PROBE_PATIENCE 3

/* Returns true if there is a child to probe now. */
static inline bool
probes_are_due(const struct pipeline *pipeline, uint64_t now_ns)
{
	return now_ns >= __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED);
}

/* Returns true if any children are being probed. */
static inline bool
probes_are_out(const struct pipeline *pipeline)
{
	return __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED) != UINT64_MAX;
}

/* Returns true if a child is a switch: it has joined the job's run from Fanin's own port. */
static inline bool
probe_is_switch(const struct pipeline *pipeline, const struct job_member *member)
{
	return member->udp_port_be == pipeline->udp_port_be;
}

/*
 * Under the job's lock: replaces what is known of `ranks`. ended, silent: only their members among
 * `ranks` count; NULL: none of them.
 */
static inline void
probe_set(struct job *job, const struct fanin_ranks *ranks, const struct fanin_ranks *ended,
	  const struct fanin_ranks *silent)
{
	job_ranks_set(&job->ended, ranks, ended);
	job_ranks_set(&job->silent, ranks, silent);
}

/*
 * probe.c: starts probing children (a bitmap) for a while, because an overdue query found that a
 * block is missing them.
 */
void probe_watch(struct worker *worker, struct job *job, uint64_t children, uint32_t block);

/* probe.c: sends the probes that are due, unless another worker is sending them. */
void probe_due(struct worker *worker);

/*
 * probe_answer.c: notes that a port (index) received a frame from a host that only a live machine
 * can have sent.
 */
void probe_heard(struct worker *worker, uint16_t port, uint32_t ip_be);

/*
 * probe_answer.c: takes an ICMP message to the switch that is no echo request and whose lengths are
 * valid. Returns true if it answers a probe. The caller keeps the mbuf.
 */
bool probe_take_icmp(struct worker *worker, const struct rte_mbuf *mbuf);

/* probe_answer.c: takes a valid PROBE_ACK. */
void probe_take_ack(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * probe_answer.c: answers a valid PROBE of the job's parent with what is known of the ranks behind
 * this switch, and starts probing them.
 */
void probe_answer(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

/* The identifier of the echo requests (RFC 792). */
#define PROBE_ECHO_ID 0xfa41

#endif
