/* SPDX-License-Identifier: BSD-3-Clause */
/* See comm_local.h. */
#include "comm_local.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/report.h"
#include "hostlib/src/local/local.h"
#include "hostlib/src/protocol/split.h"

/* Beyond the leader's own limit, for the other ranks' wait. */
#define LEADER_GRACE_NS (2000 * 1000000ull)
#define LOOK_MS 50
/* Characters of a job's secret: names, addresses and numbers. */
#define SECRET_LEN 1024

bool
fanin_comm_is_local(const struct fanin_join_opts *options)
{
	if (options->hosts == NULL)
		return false;
	for (unsigned int rank = 0; rank < options->size; rank++)
		if (options->hosts[rank] != rank)
			return true;
	return false;
}

/* ---- the job of hosts, for the leader's endpoint */

static int
network_post(void *arg, struct fanin_request *request, uint64_t count)
{
	struct fanin_comm *network = arg;
	struct fanin_comm *by;

	fanin_request_layout(request, network->member.config.rank, network->member.config.size,
			     count);
	by = fanin_comm_for(network, request);
	request->comm = by;
	return by->ops->post(by, request, count);
}

/* Fails all jobs of the hosts, and tells the switch at once: this may be the last poll. */
static void
network_abort(void *arg, int status, const struct fanin_error *error)
{
	struct fanin_comm *network = arg;
	struct fanin_error hosts = { 0 };

	memcpy(hosts.text, error->text, sizeof(hosts.text));
	for (unsigned int use = 0; use < FANIN_BESIDE_USES; use++) {
		struct fanin_comm *beside = network->beside[use];

		if (beside == NULL)
			continue;
		fanin_comm_abort(beside, status, &hosts);
		(void)beside->ops->poll(beside);
	}
	fanin_comm_abort(network, status, &hosts);
	(void)network->ops->poll(network);
}

static const struct fanin_error *
network_error(void *arg)
{
	return fanin_comm_error_of(arg);
}

static void
network_missing(void *arg, struct fanin_ranks *hosts)
{
	fanin_comm_missing_set(arg, hosts);
}

/* Fills in what the job of hosts tells, except who and how many its members are. */
static void
network_report(void *arg, struct fanin_report *report)
{
	const struct fanin_comm *network = arg;
	struct fanin_report hosts = { .sz = report->sz };

	fanin_comm_report_fill(network, &hosts);
	hosts.rank = report->rank;
	hosts.size = report->size;
	hosts.job_name = report->job_name;
	*report = hosts;
}

/* ---- joining */

static int
options_check(const struct fanin_join_opts *options, const struct fanin_local_layout *layout,
	      struct fanin_error *error)
{
	if (options->memif_socket != NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"both hosts and memif_socket are given, expected one of them");
	if (options->reproducible && !layout->in_row)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"reproducible: sums are in the order of ranks, and the ranks of a host are "
			"summed first: expected the ranks of each host in a row");
	return FANIN_OK;
}

static const char *
or_nothing(const char *text)
{
	return text != NULL ? text : "";
}

/* FNV-1a. */
static uint64_t
hash_add(uint64_t hash, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* Returns what all ranks of a host must have alike, as a number. */
static uint64_t
agreement_of(const struct fanin_join_opts *options, const struct fanin_local_layout *layout)
{
	const uint32_t others[] = { options->size,         options->accumulate_f32,
				    options->reproducible, options->authenticate,
				    options->trees,        options->no_fallback,
				    options->multicast,    options->subgroups };
	const char *handler = or_nothing(options->handler);
	uint64_t hash = hash_add(UINT64_C(0xcbf29ce484222325), others, sizeof(others));

	hash = hash_add(hash, handler, strlen(handler));
	return hash_add(hash, layout->host_of, layout->size * sizeof(layout->host_of[0]));
}

static int
meet(const struct fanin_comm *comm, const struct fanin_join_opts *options,
     const struct fanin_local_layout *layout, uint64_t deadline_ns,
     struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	char secret[SECRET_LEN];
	const struct fanin_local_meeting_config config = {
		.secret = secret,
		.ranks = layout->neighbors,
		.n = layout->n_neighbors,
		.place = layout->place_of[layout->rank],
		.agreement = agreement_of(options, layout),
		.deadline_ns = deadline_ns,
		.join_timeout_ms = options->join_timeout_ms,
		.interrupt = comm->ctx->interrupt,
		.interrupt_arg = comm->ctx->interrupt_arg,
	};

	snprintf(secret, sizeof(secret), "%s/%s/%u/%llx", or_nothing(options->job_name),
		 or_nothing(options->switch_address), options->job,
		 (unsigned long long)options->key);
	return fanin_local_meet(&config, meeting, error);
}

/* Joins the job of hosts, at the leader. */
static int
hosts_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
	   const struct fanin_local_layout *layout, uint64_t deadline_ns, struct fanin_error *error)
{
	const uint64_t now_ns = fanin_now_ns(NULL);
	struct fanin_join_opts hosts = *options;
	int status;

	hosts.hosts = NULL;
	hosts.rank = layout->host;
	hosts.size = layout->n_hosts;
	hosts.fixed_rank = true;
	/* Elements that are summed in f32 go through the network as f32. */
	hosts.accumulate_f32 = false;
	hosts.join_timeout_ms = now_ns < deadline_ns
					? (uint32_t)((deadline_ns - now_ns) / 1000000) + 1
					: 1;
	status = fanin_comm_join(comm->ctx, &hosts, &(struct fanin_beside){ 0 }, &comm->network);
	if (status != FANIN_OK) {
		const struct fanin_error found = comm->ctx->error;

		return fanin_local_error_of(layout, status, &found, error);
	}
	fanin_ctx_lock(comm->ctx);
	comm->network->owner = comm;
	fanin_ctx_unlock(comm->ctx);
	return FANIN_OK;
}

/* Tells the other ranks of the host what the leader has joined. */
static void
facts_tell(const struct fanin_comm *comm, const struct fanin_join_opts *options,
	   struct fanin_local_meeting *meeting)
{
	struct fanin_local_head *head = meeting->memory.head;
	struct fanin_local_facts *facts = &head->facts;
	struct fanin_report report = { .transport = "", .handler = "", .mode = "", .manager = "" };

	fanin_ctx_lock(comm->ctx);
	if (comm->network != NULL)
		network_report(comm->network, &report);
	snprintf(facts->mode, sizeof(facts->mode), "%s",
		 comm->network != NULL ? report.mode : fanin_local_protocol.name);
	snprintf(facts->handler, sizeof(facts->handler), "%s",
		 comm->network != NULL ? or_nothing(report.handler) : fanin_local_protocol.name);
	snprintf(facts->protocol, sizeof(facts->protocol), "%s",
		 comm->network != NULL ? report.protocol : fanin_local_protocol.name);
	snprintf(facts->transport, sizeof(facts->transport), "%s",
		 comm->network != NULL ? or_nothing(report.transport) : "shared memory");
	snprintf(facts->manager, sizeof(facts->manager), "%s", or_nothing(report.manager));
	facts->window = report.window;
	facts->payload_bytes = report.payload_bytes;
	facts->trees = report.trees;
	facts->in_network = report.in_network;
	facts->authenticated = report.authenticated;
	facts->sparse = comm->network == NULL ||
			(comm->network->protocol->collectives >> FANIN_COLLECTIVE_ALLREDUCE_SPARSE &
			 1) != 0;
	facts->wide = options->accumulate_f32 ||
		      (comm->network != NULL && comm->network->member.wide);
	fanin_ctx_unlock(comm->ctx);
	__atomic_store_n(&head->joined, 1, __ATOMIC_RELEASE);
	for (unsigned int place = 1; place < meeting->n; place++)
		fanin_local_wake(meeting, place);
}

/* Waits until the leader has joined, or has failed to. */
static int
leader_await(struct fanin_comm *comm, struct fanin_local_meeting *meeting, uint64_t deadline_ns,
	     struct fanin_error *error)
{
	const struct fanin_local_head *head = meeting->memory.head;
	const struct fanin_ctx *ctx = comm->ctx;
	int status;

	for (;;) {
		struct pollfd woken = { .fd = meeting->epoll_fd, .events = POLLIN };
		bool is_gone;

		is_gone = fanin_local_listen(meeting) || meeting->peers[0].gone;
		status = fanin_local_told(meeting, error);
		if (status != FANIN_OK)
			return status;
		if (__atomic_load_n(&head->joined, __ATOMIC_ACQUIRE) != 0)
			return FANIN_OK;
		if (ctx->interrupt != NULL && ctx->interrupt(ctx->interrupt_arg))
			return fanin_error_set(
				error, FANIN_ERR_INTERRUPTED,
				"interrupted while the rank that leads this host joins the job");
		if (is_gone || fanin_now_ns(NULL) >= deadline_ns + LEADER_GRACE_NS) {
			fanin_error_set(error, FANIN_ERR_JOIN_TIMEOUT,
					is_gone ? "rank %u, which leads this host, has ended"
						: "rank %u, which leads this host, has not joined "
						  "the job in time",
					meeting->ranks[0]);
			fanin_ranks_add(&error->missing, meeting->ranks[0]);
			return FANIN_ERR_JOIN_TIMEOUT;
		}
		poll(&woken, 1, LOOK_MS);
	}
}

/* Tells the ranks that have met of this one's failure. An interruption is this rank's alone. */
static void
failure_tell(struct fanin_local_meeting *meeting, const struct fanin_local_layout *layout,
	     int status, const struct fanin_error *error)
{
	struct fanin_error others = *error;

	if (status == FANIN_ERR_INTERRUPTED) {
		status = fanin_error_set(&others, FANIN_ERR_JOIN_REFUSED,
					 "rank %u was interrupted while it joined the job",
					 layout->rank);
		fanin_ranks_add(&others.missing, layout->rank);
	}
	fanin_local_tell(meeting, status, &others);
}

/* Looks, at the leader, whether another rank has failed or ended while the leader joined. */
static int
others_check(struct fanin_local_meeting *meeting, struct fanin_error *error)
{
	int status;

	(void)fanin_local_listen(meeting);
	status = fanin_local_told(meeting, error);
	for (unsigned int place = 1; place < meeting->n && status == FANIN_OK; place++) {
		if (!meeting->peers[place].gone)
			continue;
		status = fanin_error_set(error, FANIN_ERR_JOIN_REFUSED,
					 "rank %u of this host has ended while the job was joined",
					 meeting->ranks[place]);
		fanin_ranks_add(&error->missing, meeting->ranks[place]);
	}
	return status;
}

/* Joins, as the leader or behind it. Ranks that have met learn of a failure. */
static int
together_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
	      const struct fanin_local_layout *layout, struct fanin_local_meeting *meeting,
	      struct fanin_error *error)
{
	const uint64_t deadline_ns = fanin_now_ns(NULL) + options->join_timeout_ms * 1000000ull;
	int status = meet(comm, options, layout, deadline_ns, meeting, error);

	if (status == FANIN_OK && meeting->place != 0)
		status = leader_await(comm, meeting, deadline_ns, error);
	else if (status == FANIN_OK && layout->n_hosts > 1)
		status = hosts_join(comm, options, layout, deadline_ns, error);
	if (status == FANIN_OK && meeting->place == 0)
		status = others_check(meeting, error);
	if (status == FANIN_OK && meeting->place == 0)
		facts_tell(comm, options, meeting);
	if (status != FANIN_OK)
		failure_tell(meeting, layout, status, error);
	return status;
}

int
fanin_comm_local_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
		      struct fanin_error *error)
{
	struct fanin_local_config config = {
		.meeting.epoll_fd = -1,
		.wait_limit_ns = fanin_comm_wait_limit_ns(options),
	};
	int status;

	if (options->size == 0 || options->size > FANIN_MAX_RANKS || options->rank >= options->size)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"rank is %u and size %u, expected a rank below the size, and a size of at "
			"most %u",
			options->rank, options->size, FANIN_MAX_RANKS);
	if (options->job_name != NULL && !options->fixed_rank)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"hosts is given without fixed_rank: expected this rank's number");
	status = fanin_local_layout_make(&config.layout, options->hosts, options->rank,
					 options->size, error);
	if (status != FANIN_OK)
		return status;
	comm->protocol = &fanin_local_protocol;
	comm->member.config.rank = options->rank;
	comm->member.config.size = options->size;
	comm->trees.n = 0;
	if (options->job_name != NULL)
		snprintf(comm->job_name, sizeof(comm->job_name), "%s", options->job_name);
	status = options_check(options, &config.layout, error);
	if (status == FANIN_OK)
		status = together_join(comm, options, &config.layout, &config.meeting, error);
	if (status == FANIN_OK && comm->network != NULL)
		config.network = (struct fanin_local_network){ .post = network_post,
							       .abort = network_abort,
							       .error = network_error,
							       .missing = network_missing,
							       .report = network_report,
							       .arg = comm->network };
	if (status == FANIN_OK)
		status = fanin_local_open(&config, &comm->endpoint, error);
	if (status != FANIN_OK) {
		fanin_local_part(&config.meeting);
		fanin_local_layout_free(&config.layout);
		return status;
	}
	comm->protocol = comm->endpoint->protocol;
	comm->is_local = true;
	memcpy(comm->member.handler, config.meeting.memory.head->facts.handler,
	       sizeof(comm->member.handler) - 1);
	comm->member.wide = config.meeting.memory.head->facts.wide != 0;
	snprintf(comm->mode_reason, sizeof(comm->mode_reason),
		 "%u of %u ranks are on this host, and rank %u joins the network for them",
		 config.layout.n_neighbors, config.layout.size, config.layout.neighbors[0]);
	snprintf(comm->protocol_reason, sizeof(comm->protocol_reason),
		 "several ranks are on one host");
	snprintf(comm->multicast.reason, sizeof(comm->multicast.reason),
		 "the rank that leads this host tells of it");
	return FANIN_OK;
}

int
fanin_comm_local_leave(struct fanin_comm *comm, struct fanin_error *error)
{
	struct fanin_comm *network = comm->network;
	int status;

	/*
	 * The endpoint posts nothing more, and nobody polls it once the job of hosts, which it
	 * uses, is gone.
	 */
	fanin_ctx_lock(comm->ctx);
	fanin_local_end(comm->endpoint);
	fanin_ctx_detach(comm->ctx, comm);
	fanin_ctx_unlock(comm->ctx);
	comm->network = NULL;
	status = fanin_leave(network);
	if (status != FANIN_OK)
		*error = comm->ctx->error;
	return status;
}
