/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The generator's loop: processes received frames, lets every member send what is due, passes
 * frames to the drivers, and yields the core when there was nothing to do, like the switch's
 * workers. See pktgen.h.
 */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_ether.h>

#include "tools/pktgen/pktgen.h"

#define JOIN_TIMEOUT_NS (10 * UINT64_C(1000000000))
#define LEAVE_TIMEOUT_NS UINT64_C(1000000000)
#define IDLE_EMPTY_ROUNDS 64
/* Maximum number of contributions of one member in a row. */
#define MEMBER_BURST 8

volatile int pktgen_signal;

int
pktgen_fail(struct pktgen *gen, int result, const char *format, ...)
{
	const bool first = gen->error[0] == '\0';
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(gen->error, first ? sizeof(gen->error) : 0, format, arguments);
	va_end(arguments);
	return result;
}

static uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static size_t
n_members(const struct pktgen *gen)
{
	return (size_t)gen->n_jobs * gen->options->hosts;
}

/* ------------------------------------------------------------------ receiving */

/*
 * Handles a result, which comes to a group once at each port: all hosts there that wait for the
 * block take it.
 */
static void
take_result(struct pktgen *gen, uint16_t port, struct pktgen_member *members,
	    const struct fanin_headers *headers)
{
	const uint16_t step = gen->options->n_ports;
	bool taken = false;

	for (uint16_t h = port; h < gen->options->hosts; h += step)
		taken |= pktgen_member_result(&members[h], headers, gen->now_ns);
	if (!taken)
		pktgen_job_unclaimed(members->job, &members[port], headers);
}

static void
take_fanin(struct pktgen *gen, uint16_t port, const struct fanin_headers *headers)
{
	const uint32_t id = headers->fanin.job;
	const uint16_t hosts = gen->options->hosts;
	struct pktgen_member *members;
	uint8_t index;

	index = id <= FANIN_WIRE_MAX_JOB ? gen->job_index[id] : 0;
	if (index == 0) {
		gen->stats.foreign++;
		return;
	}
	members = &gen->members[(size_t)(index - 1) * hosts];
	if (headers->fanin.type == FANIN_TYPE_RESULT) {
		take_result(gen, port, members, headers);
		return;
	}
	for (uint16_t h = port; h < hosts; h += gen->options->n_ports) {
		if (gen->hosts[h].ip_be == headers->ip.dst_be) {
			pktgen_member_receive(&members[h], headers);
			return;
		}
	}
	gen->stats.foreign++;
}

static void
take_frame(struct pktgen *gen, uint16_t port, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const struct pktgen_options *options = gen->options;

	if (mbuf->nb_segs == 1 && mbuf->data_len >= RTE_ETHER_HDR_LEN &&
	    headers->eth.type_be == RTE_BE16(RTE_ETHER_TYPE_ARP)) {
		for (uint16_t h = port; h < options->hosts; h += options->n_ports)
			pktgen_host_arp(&gen->hosts[h], headers, mbuf->data_len);
	} else if (mbuf->nb_segs == 1 && mbuf->data_len >= FANIN_PAYLOAD_OFFSET &&
		   headers->eth.type_be == RTE_BE16(RTE_ETHER_TYPE_IPV4) &&
		   headers->ip.src_be == options->switch_ip_be &&
		   headers->udp.src_be == rte_cpu_to_be_16(options->udp_port) &&
		   fanin_wire_validate(headers, mbuf->data_len) == FANIN_REASON_NONE) {
		take_fanin(gen, port, headers);
	} else {
		gen->stats.foreign++;
	}
}

static unsigned int
receive(struct pktgen *gen)
{
	struct rte_mbuf *mbufs[PKTGEN_BURST];
	unsigned int total = 0;

	for (uint16_t p = 0; p < gen->options->n_ports; p++) {
		uint16_t n = rte_eth_rx_burst(gen->ports[p].ethdev, 0, mbufs, PKTGEN_BURST);

		gen->ports[p].drained = n < PKTGEN_BURST;
		if (n == 0)
			continue;
		gen->now_ns = clock_ns();
		for (uint16_t i = 0; i < n; i++)
			take_frame(gen, p, mbufs[i]);
		rte_pktmbuf_free_bulk(mbufs, n);
		total += n;
	}
	return total;
}

/* -------------------------------------------------------------------- sending */

/* Returns the time from one contribution of a member to its next. */
static double
gap(struct pktgen *gen)
{
	if (!gen->options->exponential)
		return gen->gap_ns;
	return -log(1 - erand48(gen->random)) * gen->gap_ns;
}

/* Returns a packet for one more frame at the member's port; NULL if there is no room. */
static struct rte_mbuf *
reserve(struct pktgen *gen, struct pktgen_port *port)
{
	if (port->n_tx == PKTGEN_BURST)
		pktgen_port_flush(port);
	return port->n_tx == PKTGEN_BURST ? NULL : rte_pktmbuf_alloc(gen->pool);
}

static void
commit(struct pktgen_port *port, struct rte_mbuf *mbuf, size_t len)
{
	mbuf->data_len = (uint16_t)len;
	mbuf->pkt_len = (uint32_t)len;
	port->tx[port->n_tx++] = mbuf;
}

static unsigned int
member_send(struct pktgen *gen, size_t index)
{
	struct pktgen_member *member = &gen->members[index];
	struct pktgen_port *port = &gen->ports[member->host->port];
	unsigned int n = 0;

	if (pktgen_member_control_due(member, gen->now_ns)) {
		struct rte_mbuf *mbuf = reserve(gen, port);

		if (mbuf != NULL)
			commit(port, mbuf,
			       pktgen_member_control(member, gen->now_ns,
						     rte_pktmbuf_mtod(mbuf, void *)));
		return mbuf != NULL;
	}
	if (port->drained)
		pktgen_member_scan(member, gen->now_ns);
	for (; n < MEMBER_BURST; n++) {
		struct rte_mbuf *mbuf;

		if (gen->gap_ns > 0 && (double)gen->now_ns < gen->due_ns[index])
			break;
		if (!pktgen_member_ready(member))
			break;
		mbuf = reserve(gen, port);
		if (mbuf == NULL)
			break;
		commit(port, mbuf,
		       pktgen_member_contribution(member, gen->now_ns,
						  rte_pktmbuf_mtod(mbuf, void *)));
		if (gen->gap_ns > 0)
			gen->due_ns[index] += gap(gen);
	}
	return n;
}

/*
 * Runs one round. Returns 0, -EIO with gen->error filled if a job has failed, or -EINTR after a
 * signal.
 */
static int
round_run(struct pktgen *gen)
{
	const size_t n = n_members(gen);
	unsigned int done;

	gen->now_ns = clock_ns();
	done = receive(gen);
	gen->now_ns = clock_ns();
	for (size_t i = 0; i < n; i++)
		done += member_send(gen, (gen->turn + i) % n);
	gen->turn = (uint16_t)((gen->turn + 1u) % n);
	for (uint16_t p = 0; p < gen->options->n_ports; p++)
		pktgen_port_flush(&gen->ports[p]);
	gen->empty_rounds = done == 0 ? gen->empty_rounds + 1 : 0;
	if (gen->empty_rounds >= IDLE_EMPTY_ROUNDS)
		sched_yield();
	for (uint16_t j = 0; j < gen->n_jobs; j++) {
		if (gen->jobs[j].error[0] != '\0')
			return pktgen_fail(gen, -EIO, "%s", gen->jobs[j].error);
	}
	return pktgen_signal != 0 ? -EINTR : 0;
}

/* --------------------------------------------------------------------- phases */

static bool
all_in(const struct pktgen *gen, enum pktgen_state state)
{
	for (size_t i = 0; i < n_members(gen); i++) {
		if (gen->members[i].state != state)
			return false;
	}
	return true;
}

/* Reports why joining takes too long, for the first member that has not joined. */
static int
join_time_out(struct pktgen *gen)
{
	const double seconds = (double)JOIN_TIMEOUT_NS / 1e9;

	for (size_t i = 0; i < n_members(gen); i++) {
		const struct pktgen_member *member = &gen->members[i];
		const uint16_t rank = member->rank;

		if (member->state == PKTGEN_RESOLVE)
			return pktgen_fail(
				gen, -ETIMEDOUT,
				"nobody answered host %u's ARP request for --switch within %.0f s",
				rank, seconds);
		if (member->state == PKTGEN_RUN)
			continue;
		if (member->refusal != FANIN_REASON_NONE)
			return pktgen_fail(
				gen, -ETIMEDOUT,
				"the switch kept refusing host %u of job %u for %.0f s: %s", rank,
				member->job->id, seconds, fanin_reason_text(member->refusal));
		if (!member->joined)
			return pktgen_fail(
				gen, -ETIMEDOUT,
				"the switch did not answer the JOIN of host %u of job %u within %.0f s",
				rank, member->job->id, seconds);
	}
	return pktgen_fail(gen, -ETIMEDOUT, "not all hosts have joined within %.0f s", seconds);
}

int
pktgen_join(struct pktgen *gen)
{
	const uint64_t deadline_ns = clock_ns() + JOIN_TIMEOUT_NS;
	int ret = 0;

	while (ret == 0 && !all_in(gen, PKTGEN_RUN)) {
		ret = round_run(gen);
		if (ret == 0 && gen->now_ns > deadline_ns)
			ret = join_time_out(gen);
	}
	for (uint16_t j = 0; j < gen->n_jobs && ret == 0; j++) {
		ret = pktgen_job_start(&gen->jobs[j]);
		if (ret != 0)
			pktgen_fail(gen, ret, "%s", gen->jobs[j].error);
	}
	for (size_t i = 0; i < n_members(gen) && ret == 0; i++) {
		ret = pktgen_member_start(&gen->members[i]);
		if (ret != 0)
			pktgen_fail(gen, ret, "%s", gen->members[i].job->error);
	}
	return ret;
}

static bool
all_done(const struct pktgen *gen)
{
	for (size_t i = 0; i < n_members(gen); i++) {
		if (!pktgen_member_done(&gen->members[i]))
			return false;
	}
	return true;
}

static void
trial_start(struct pktgen *gen, double rate)
{
	const uint64_t blocks = gen->options->blocks;
	const size_t n = n_members(gen);

	gen->now_ns = clock_ns();
	memset(&gen->stats, 0, sizeof(gen->stats));
	gen->gap_ns = rate > 0 ? 1e9 * (double)n / rate : 0;
	for (uint16_t j = 0; j < gen->n_jobs; j++) {
		struct pktgen_job *job = &gen->jobs[j];

		pktgen_job_limit(job, blocks == 0 ? PKTGEN_NO_LIMIT : job->next_block + blocks,
				 gen->now_ns);
	}
	for (size_t i = 0; i < n; i++) {
		gen->due_ns[i] = (double)gen->now_ns + gen->gap_ns * (double)i / (double)n;
		pktgen_member_resume(&gen->members[i]);
	}
}

int
pktgen_trial(struct pktgen *gen, double rate, struct pktgen_trial *trial)
{
	const struct pktgen_options *options = gen->options;
	const uint64_t missed = pktgen_ports_missed(gen);
	uint64_t start_ns, end_ns;
	int ret = 0;

	*trial = (struct pktgen_trial){ .rate = rate };
	trial_start(gen, rate);
	start_ns = gen->now_ns;
	end_ns = start_ns + (uint64_t)(options->seconds * 1e9);
	while (ret == 0 && (options->blocks != 0 ? !all_done(gen) : gen->now_ns < end_ns))
		ret = round_run(gen);
	trial->seconds = (double)(gen->now_ns - start_ns) / 1e9;
	trial->contributions = gen->stats.contributions;
	/* All hosts have to send the blocks that any host has sent. */
	gen->gap_ns = 0;
	for (uint16_t j = 0; j < gen->n_jobs && options->blocks == 0; j++)
		pktgen_job_limit(&gen->jobs[j], gen->jobs[j].next_block, gen->now_ns);
	while (ret == 0 && !all_done(gen))
		ret = round_run(gen);
	trial->stats = gen->stats;
	trial->missed = pktgen_ports_missed(gen) - missed;
	for (uint16_t p = 0; p < options->n_ports; p++) {
		trial->tx_full += gen->ports[p].tx_full;
		gen->ports[p].tx_full = 0;
	}
	return ret;
}

void
pktgen_hold(struct pktgen *gen)
{
	struct rte_mbuf *mbufs[PKTGEN_BURST];
	const struct timespec pause = { .tv_nsec = 1000000 };

	while (pktgen_signal == 0) {
		unsigned int total = 0;

		for (uint16_t p = 0; p < gen->options->n_ports; p++) {
			uint16_t n = rte_eth_rx_burst(gen->ports[p].ethdev, 0, mbufs, PKTGEN_BURST);

			rte_pktmbuf_free_bulk(mbufs, n);
			total += n;
		}
		if (total == 0)
			nanosleep(&pause, NULL);
	}
}

int
pktgen_leave(struct pktgen *gen)
{
	const uint64_t deadline_ns = clock_ns() + LEAVE_TIMEOUT_NS;
	bool joined = false;

	for (size_t i = 0; i < n_members(gen); i++) {
		pktgen_member_leave(&gen->members[i]);
		joined = joined || gen->members[i].state == PKTGEN_LEAVE;
	}
	gen->gap_ns = 0;
	while (joined && !all_in(gen, PKTGEN_LEFT)) {
		/* Neither a signal nor an earlier failure keeps members from leaving. */
		round_run(gen);
		if (gen->now_ns > deadline_ns)
			return pktgen_fail(gen, -ETIMEDOUT,
					   "the switch did not confirm that all hosts have left");
	}
	return 0;
}
