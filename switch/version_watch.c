/* SPDX-License-Identifier: BSD-3-Clause */
/* See version_watch.h. */
#include "switch/version_watch.h"

#include <arpa/inet.h>

#include "pipeline/job.h"
#include "switch/log.h"

static void
tell_child(const struct job *job, unsigned int child)
{
	const struct job_member *member = &job->members[child];
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &member->ip_be, ip, sizeof(ip));
	log_warning(
		"job %u: refused the %s of rank %u at %s: its packets have version %u, those of this switch %d",
		job->params.id,
		fanin_ranks_count(&job->params.child_ranks[child]) > 1 ? "switch" : "host",
		member->rank, ip, __atomic_load_n(&member->other_version, __ATOMIC_RELAXED),
		FANIN_WIRE_VERSION);
}

static void
tell_parent(const struct job *job, unsigned int version)
{
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &job->parent_ip_be, ip, sizeof(ip));
	log_warning(
		"job %u: the packets of the parent %s have version %u, those of this switch %d: nobody can join",
		job->params.id, ip, version, FANIN_WIRE_VERSION);
}

static void
look_at(struct job *job)
{
	const uint16_t version = __atomic_load_n(&job->parent_version, __ATOMIC_RELAXED);

	if (version != job->logged_version) {
		job->logged_version = version;
		tell_parent(job, version);
	}
	for (uint16_t i = 0; i < job->params.n_children; i++) {
		struct job_member *member = &job->members[i];

		if (__atomic_load_n(&member->other_version, __ATOMIC_RELAXED) == 0 ||
		    member->told_version)
			continue;
		member->told_version = true;
		tell_child(job, i);
	}
}

void
version_watch_serve(struct pipeline *pipeline)
{
	uint16_t left = pipeline->jobs->n_jobs;

	for (uint32_t id = 1; id <= FANIN_WIRE_MAX_JOB && left != 0; id++) {
		struct job *job = job_lookup(pipeline->jobs, id);

		if (job == NULL)
			continue;
		left--;
		look_at(job);
	}
}
