/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late or gone (docs/protocol.md): children that an overdue block misses are probed, so that
 * whoever waits for them knows whether they are late, have ended or are silent. What is found is in
 * job->ended and job->silent.
 *
 * Workers only. One of them, whichever looks first, sends the probes that are due; answers are
 * taken by the worker that they come to. The job's lock guards what belongs to a child. Nothing
 * here is on the way of a packet that carries data.
 */
#ifndef FANIN_PIPELINE_PROBE_H
#define FANIN_PIPELINE_PROBE_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

#define PROBE_INTERVAL_NS UINT64_C(500000000)
/* So long after the last overdue query a child is probed that the block misses. */
#define PROBE_WATCH_NS UINT64_C(5000000000)
/* A child that leaves so many probes in a row unanswered is silent. */
#define PROBE_PATIENCE 3

/* Is there a child to probe now? */
static inline bool
probes_are_due(const struct pipeline *pipeline, uint64_t now_ns)
{
	return now_ns >= __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED);
}

/* Are there children that are being probed? */
static inline bool
probes_are_out(const struct pipeline *pipeline)
{
	return __atomic_load_n(&pipeline->probes_due_ns, __ATOMIC_RELAXED) != UINT64_MAX;
}

/* A child in the run of a job has joined from Fanin's own port: it is a switch. */
static inline bool
probe_is_switch(const struct pipeline *pipeline, const struct job_member *member)
{
	return member->udp_port_be == pipeline->udp_port_be;
}

/*
 * Under the job's lock: what is known of ranks from now on. ended, silent: of which only `ranks`
 * count; NULL: none of them.
 */
static inline void
probe_set(struct job *job, const struct fanin_ranks *ranks, const struct fanin_ranks *ended,
	  const struct fanin_ranks *silent)
{
	job_ranks_set(&job->ended, ranks, ended);
	job_ranks_set(&job->silent, ranks, silent);
}

/*
 * probe.c: an overdue query found that a block misses children (a bitmap): they are probed for a
 * while.
 */
void probe_watch(struct worker *worker, struct job *job, uint64_t children, uint32_t block);

/* probe.c: sends the probes that are due, if no other worker is at it. */
void probe_due(struct worker *worker);

/*
 * probe_answer.c: something came from a host on a port (index) that only a machine which is there
 * can have sent.
 */
void probe_heard(struct worker *worker, uint16_t port, uint32_t ip_be);

/*
 * probe_answer.c: an ICMP message to the switch, whose lengths are right, that is no echo request.
 * Returns true if it answers a probe; the mbuf stays the caller's.
 */
bool probe_take_icmp(struct worker *worker, const struct rte_mbuf *mbuf);

/* probe_answer.c: a valid PROBE_ACK. */
void probe_take_ack(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * probe_answer.c: a valid PROBE of the job's parent: tells what is known of the ranks behind this
 * switch, and probes them.
 */
void probe_answer(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

/* The identifier of the echo requests (RFC 792). */
#define PROBE_ECHO_ID 0xfa41

#endif
