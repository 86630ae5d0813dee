/* SPDX-License-Identifier: BSD-3-Clause */
/* See congestion_job.h. */
#include "lab/bench/congestion_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

int
congestion_job_init(struct congestion_job *job, struct congestion_network *network,
		    const struct fanin_protocol *protocol, uint64_t max_bytes)
{
	*job = (struct congestion_job){ .network = network,
					.protocol = protocol,
					.n_ranks = network->options.n_ranks,
					.most = max_bytes / sizeof(int32_t) };
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		struct congestion_rank *rank = &job->ranks[r];

		rank->job = job;
		rank->rank = r;
		rank->split.protocol = protocol;
		shared_host_init(&rank->shared, network->leaf_spine.hosts[network->ranks[r]]);
		rank->send = malloc(job->most * sizeof(int32_t));
		rank->recv = malloc(job->most * sizeof(int32_t));
		if (rank->send == NULL || rank->recv == NULL)
			return -ENOMEM;
		for (uint32_t i = 0; i < job->most; i++)
			rank->send[i] = (int32_t)((r + 1u) * i);
	}
	return 0;
}

void
congestion_job_add(struct congestion_job *job, uint16_t rank, struct fanin_endpoint *engine,
		   const struct fanin_transport *transport)
{
	struct fanin_split *split = &job->ranks[rank].split;

	job->ranks[rank].transports[split->n_endpoints] = transport;
	split->endpoints[split->n_endpoints++] = engine;
}

void
congestion_job_close(struct congestion_job *job)
{
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		struct congestion_rank *rank = &job->ranks[r];

		if (rank->shared.host != NULL)
			rig_host_set_poll(rank->shared.host, NULL, NULL);
		for (uint16_t i = 0; i < rank->split.n_endpoints; i++)
			job->protocol->close(rank->split.endpoints[i]);
		fanin_split_free(&rank->request);
		free(rank->send);
		free(rank->recv);
	}
}

/* ------------------------------------------------------------------ allreduces */

static void
error_note(struct congestion_rank *rank)
{
	struct congestion_job *job = rank->job;

	for (uint16_t i = 0; i < rank->split.n_endpoints && job->error[0] == '\0'; i++) {
		const struct fanin_error *error = job->protocol->error(rank->split.endpoints[i]);

		if (error->text[0] != '\0')
			snprintf(job->error, sizeof(job->error), "rank %u: %.200s", rank->rank,
				 error->text);
	}
}

/* Element i of rank r is (r + 1) * i, modulo 2^32. */
static void
result_check(const struct congestion_rank *rank)
{
	struct congestion_job *job = rank->job;
	const uint32_t factor = job->n_ranks * (job->n_ranks + 1u) / 2;

	for (uint32_t i = 0; i < job->count; i++)
		job->wrong |= rank->recv[i] != (int32_t)(factor * i);
}

static void
request_end(struct congestion_rank *rank)
{
	struct congestion_job *job = rank->job;

	rank->is_busy = false;
	job->n_busy--;
	if (rank->request.status != FANIN_OK)
		error_note(rank);
	else
		result_check(rank);
	fanin_split_free(&rank->request);
}

static void
engines_poll(struct congestion_rank *rank)
{
	const struct fanin_protocol *protocol = rank->job->protocol;
	unsigned int n;

	do {
		n = shared_host_receive(&rank->shared);
		for (uint16_t i = 0; i < rank->split.n_endpoints; i++) {
			while (protocol->poll(rank->split.endpoints[i]) > 0 &&
			       shared_host_has_frames(rank->transports[i])) {
			}
		}
	} while (n != 0);
}

static uint64_t
idle_ns(const struct congestion_rank *rank)
{
	uint64_t least = SECOND_NS;

	for (uint16_t i = 0; i < rank->split.n_endpoints; i++)
		least = RTE_MIN(least, rank->job->protocol->idle_ns(rank->split.endpoints[i]));
	return RTE_MAX(least, 1u);
}

static void
rank_poll(struct rig_host *host, void *user)
{
	struct congestion_rank *rank = user;
	uint64_t until_ns;

	if (shared_host_is_away(&rank->shared, rig_now_ns(rank->job->network->rig), &until_ns)) {
		rig_host_wake(host, until_ns);
		return;
	}
	engines_poll(rank);
	if (rank->is_busy && rank->request.status != FANIN_IN_PROGRESS)
		request_end(rank);
	/* An engine without a request may have to answer others. */
	if (rank->is_busy || rank->job->protocol->has_duties)
		rig_host_wake(host, rig_now_ns(rank->job->network->rig) + idle_ns(rank));
}

void
congestion_job_attach(struct congestion_job *job)
{
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		rig_host_set_poll(job->ranks[r].shared.host, rank_poll, &job->ranks[r]);
		rig_host_wake(job->ranks[r].shared.host, rig_now_ns(job->network->rig));
	}
}

bool
congestion_job_is_ready(struct congestion_job *job)
{
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		struct congestion_rank *rank = &job->ranks[r];
		struct fanin_error problem;

		error_note(rank);
		for (uint16_t i = 0; i < rank->split.n_endpoints && job->protocol->ready != NULL;
		     i++) {
			if (job->error[0] == '\0' &&
			    !job->protocol->ready(rank->split.endpoints[i], &problem))
				return false;
		}
	}
	return true;
}

static void
post(struct congestion_rank *rank)
{
	struct congestion_job *job = rank->job;
	int status;

	rank->request = (struct fanin_request){ .collective = FANIN_COLLECTIVE_ALLREDUCE,
						.dtype = FANIN_WIRE_I32,
						.op = FANIN_WIRE_SUM,
						.send = (const uint8_t *)rank->send,
						.recv = (uint8_t *)rank->recv };
	memset(rank->recv, 0, job->count * sizeof(int32_t));
	if (rank->split.n_endpoints > 1)
		status = fanin_split_post(&rank->split, &rank->request, job->count);
	else
		status = job->protocol->post(rank->split.endpoints[0], &rank->request, job->count);
	rank->is_busy = true;
	job->n_busy++;
	if (status != FANIN_OK)
		snprintf(job->error, sizeof(job->error), "rank %u: a request is not taken: %d",
			 rank->rank, status);
}

void
congestion_job_begin(struct congestion_job *job, uint64_t bytes)
{
	job->count = bytes / sizeof(int32_t);
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		post(&job->ranks[r]);
		rig_host_wake(job->ranks[r].shared.host, rig_now_ns(job->network->rig));
	}
}

bool
congestion_job_is_done(const struct congestion_job *job)
{
	return job->error[0] != '\0' || job->n_busy == 0;
}

void
congestion_job_report(const struct congestion_job *job, struct fanin_report *sum)
{
	*sum = (struct fanin_report){ .sz = sizeof(*sum) };
	for (uint16_t r = 0; r < job->n_ranks; r++) {
		for (uint16_t i = 0; i < job->ranks[r].split.n_endpoints; i++) {
			struct fanin_report report = { .sz = sizeof(report) };

			job->protocol->report(job->ranks[r].split.endpoints[i], &report);
			sum->blocks += report.blocks;
			sum->frames_sent += report.frames_sent;
			sum->frames_received += report.frames_received;
			sum->retransmits += report.retransmits;
			sum->duplicates += report.duplicates;
			sum->queries += report.queries;
		}
	}
}
