/* SPDX-License-Identifier: BSD-3-Clause */
/* See straggler_job.h. */
#include "lab/bench/straggler_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocols/pa_atp/host/server.h"
#include "wire/keys.h"
#include "protocols/pa_atp/pa_atp.h"

#define SECRET UINT64_C(0x5eed5eed5eed5eed)
#define JOIN_SOURCE_PORT 50000
#define JOIN_AGAIN_NS UINT64_C(100000000)
#define JOIN_TRIES 100
#define SECOND_NS UINT64_C(1000000000)
/* Aggregators wait for stragglers without a limit, as the paper's do. */
#define EXPIRE_US 60000000u
#define TIMEOUT_NS (30 * SECOND_NS)

/* ------------------------------------------------------------------ making it */

static void
parameters_fill(const struct straggler_job_options *options, struct job_spec *spec)
{
	const struct job_parameter parameters[] = {
		{ "congestion", options->congestion },
		{ "eta_percent", options->eta_percent },
		{ "bdp", options->bdp },
		{ "expire_us", EXPIRE_US },
		{ "fixed_window", options->fixed_window },
		{ "p_max_percent", options->p_max_percent },
	};

	spec->n_parameters = RTE_DIM(parameters) - (options->p_max_percent == 0);
	memcpy(spec->parameters, parameters, sizeof(parameters));
}

static int
serve(const struct straggler_job *job, char *error)
{
	const struct dumbbell *dumbbell = job->dumbbell;
	struct fanin_server_spec spec = { .id = job->options.id,
					  .key = SECRET,
					  .member_ip_be = dumbbell->far_ip_be,
					  .n_ranks = job->options.n_ranks,
					  .payload_bytes = (uint16_t)job->job->params.payload_bytes,
					  .slots = 2u * job->options.window };
	struct fanin_error why = { 0 };
	int status;

	memcpy(spec.parameters, job->job->params.parameters, sizeof(spec.parameters));
	snprintf(spec.handler, sizeof(spec.handler), "%s", job->job->handler->name);
	status = fanin_server_core_add(rig_server_core(dumbbell->servers[job->options.server]),
				       &spec, &why);
	if (status != FANIN_OK)
		snprintf(error, PIPELINE_ERROR_LEN, "the server: %.200s", why.text);
	return status;
}

static int
job_make(struct straggler_job *job, char *error)
{
	const struct straggler_job_options *options = &job->options;
	const struct dumbbell *dumbbell = job->dumbbell;
	const struct rig_server *server = dumbbell->servers[options->server];
	struct job_spec spec = {
		.id = options->id,
		.key = SECRET,
		.handler = "pa-atp",
		.slots = 2u * options->window,
		.payload_bytes = options->payload_bytes,
		.n_members = options->n_ranks,
		.has_parent = true,
		.parent = { .port = dumbbell_server_port(dumbbell, options->server),
			    .ip_be = rig_parameter_server.ip_be(server),
			    .is_server = true },
	};
	const char *code;

	memcpy(spec.parent.mac, rig_parameter_server.mac(server), sizeof(spec.parent.mac));
	for (uint16_t rank = 0; rank < options->n_ranks; rank++) {
		spec.members[rank].port = dumbbell->workers[options->first_worker + rank].far_port;
		spec.members[rank].ip_be = dumbbell->workers[options->first_worker + rank].ip_be;
	}
	parameters_fill(options, &spec);
	return job_create(rig_switch_pipeline(dumbbell->far), &spec, &job->job, &code, error);
}

int
straggler_job_open(struct straggler_job *job, struct dumbbell *dumbbell,
		   const struct straggler_job_options *options, char *error)
{
	char reason[128];
	int ret;

	*job = (struct straggler_job){ .options = *options, .dumbbell = dumbbell };
	job->protocol = fanin_protocol_of("pa-atp", reason, sizeof(reason));
	job->count = (uint32_t)(options->bytes / sizeof(int32_t));
	job->end_ns = calloc(options->iterations, sizeof(job->end_ns[0]));
	job->finished = calloc(options->iterations, sizeof(job->finished[0]));
	if (job->end_ns == NULL || job->finished == NULL) {
		snprintf(error, PIPELINE_ERROR_LEN, "no memory for %u iterations",
			 options->iterations);
		return -ENOMEM;
	}
	ret = job_make(job, error);
	return ret != 0 ? ret : serve(job, error);
}

void
straggler_job_close(struct straggler_job *job)
{
	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
		if (job->ranks[rank].host != NULL)
			rig_host_set_poll(job->ranks[rank].host, NULL, NULL);
		if (job->ranks[rank].engine != NULL)
			job->protocol->close(job->ranks[rank].engine);
		free(job->ranks[rank].send);
		free(job->ranks[rank].recv);
	}
	free(job->end_ns);
	free(job->finished);
}

/* ------------------------------------------------------------------ joining */

static void
flow_of(const struct straggler_rank *rank, struct fanin_flow *flow)
{
	const struct dumbbell *dumbbell = rank->job->dumbbell;

	*flow = (struct fanin_flow){
		.dst_ip_be = dumbbell->far_ip_be,
		.src_ip_be = dumbbell->workers[rank->job->options.first_worker + rank->rank].ip_be,
		.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.src_port = JOIN_SOURCE_PORT
	};
	memcpy(flow->dst_mac, rig_switch_pipeline(dumbbell->far)->mac, sizeof(flow->dst_mac));
	memcpy(flow->src_mac, rig_host_mac(rank->host), sizeof(flow->src_mac));
}

static void
join_send(const struct straggler_rank *rank)
{
	struct {
		struct fanin_headers headers;
		struct fanin_join_body body;
	} __attribute__((packed)) frame = { 0 };
	struct fanin_flow flow;
	struct fanin_keys keys;

	if (fanin_keys_derive(SECRET, &keys) != 0)
		return;
	flow_of(rank, &flow);
	fanin_wire_encode_l4(&frame.headers, &flow, sizeof(frame.body));
	fanin_wire_encode_header(&frame.headers.fanin, FANIN_TYPE_JOIN, rank->job->options.id, 0,
				 keys.up);
	frame.headers.fanin.rank = rank->rank;
	frame.headers.fanin.contributions = 1;
	frame.body = (struct fanin_join_body){ .nonce = 1u + rank->rank,
					       .size = rank->job->options.n_ranks,
					       .udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
					       .mtu = rig_mtu(rank->job->dumbbell->rig),
					       .cookie = rank->cookie };
	rig_host_send(rank->host, &frame, sizeof(frame));
}

static void
join_hear(struct straggler_rank *rank, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;

	if (headers->fanin.type != FANIN_TYPE_JOIN_ACK ||
	    headers->fanin.job != rank->job->options.id ||
	    frame->len < sizeof(*headers) + sizeof(rank->ack))
		return;
	memcpy(&rank->ack, headers + 1, sizeof(rank->ack));
	if (rank->ack.state == FANIN_JOIN_CHALLENGE) {
		rank->cookie = rank->ack.cookie;
		join_send(rank);
	}
	rank->epoch = headers->fanin.epoch;
	rank->joined = rank->ack.state == FANIN_JOIN_ACTIVE;
}

static void
join_poll(struct rig_host *host, void *user)
{
	struct fanin_transport *transport = rig_host_transport(host);
	struct fanin_frame frames[16];
	unsigned int n;

	while ((n = transport->ops->rx_burst(transport, frames, RTE_DIM(frames))) != 0) {
		for (unsigned int i = 0; i < n; i++)
			join_hear(user, &frames[i]);
		transport->ops->rx_release(transport, frames, n);
	}
}

static bool
all_have_joined(void *user)
{
	const struct straggler_job *job = user;

	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
		if (!job->ranks[rank].joined)
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------ iterations */

static void
post(struct straggler_rank *rank)
{
	struct straggler_job *job = rank->job;

	rank->request = (struct fanin_request){ .collective = FANIN_COLLECTIVE_ALLREDUCE,
						.dtype = FANIN_WIRE_I32,
						.op = FANIN_WIRE_SUM,
						.send = (const uint8_t *)rank->send,
						.recv = (uint8_t *)rank->recv };
	memset(rank->recv, 0, job->count * sizeof(int32_t));
	if (job->protocol->post(rank->engine, &rank->request, job->count) != FANIN_OK)
		snprintf(job->error, sizeof(job->error), "rank %u: %.200s", rank->rank,
			 job->protocol->error(rank->engine)->text);
}

/* Element i of rank r is (r + 1) * i, modulo 2^32. */
static void
result_check(const struct straggler_rank *rank)
{
	struct straggler_job *job = rank->job;
	const uint32_t factor = job->options.n_ranks * (job->options.n_ranks + 1u) / 2;

	for (uint32_t i = 0; i < job->count; i++)
		job->wrong |= rank->recv[i] != (int32_t)(factor * i);
}

static void
iteration_end(struct straggler_rank *rank)
{
	struct straggler_job *job = rank->job;

	result_check(rank);
	if (++job->finished[rank->iteration] == job->options.n_ranks)
		job->end_ns[rank->iteration] = rig_now_ns(job->dumbbell->rig);
	if (++rank->iteration != job->options.iterations)
		post(rank);
}

static void
rank_poll(struct rig_host *host, void *user)
{
	struct straggler_rank *rank = user;
	struct straggler_job *job = rank->job;

	job->protocol->poll(rank->engine);
	if (job->begin_ns == 0)
		return;
	while (rank->iteration != job->options.iterations && rank->request.status == FANIN_OK &&
	       job->error[0] == '\0') {
		iteration_end(rank);
		job->protocol->poll(rank->engine);
	}
	if (rank->request.status < 0 && job->error[0] == '\0')
		snprintf(job->error, sizeof(job->error), "rank %u: %.200s", rank->rank,
			 job->protocol->error(rank->engine)->text);
	if (rank->request.status == FANIN_IN_PROGRESS)
		rig_host_wake(host, rig_now_ns(job->dumbbell->rig) +
					    RTE_MAX(job->protocol->idle_ns(rank->engine), 1u));
}

static int
engine_open(struct straggler_rank *rank, char *error)
{
	struct straggler_job *job = rank->job;
	struct fanin_protocol_config config = {
		.timeout_ns = TIMEOUT_NS,
		.rank = rank->rank,
		.size = job->options.n_ranks,
		.now_ns = rig_clock,
		.now_arg = job->dumbbell->rig,
		.transport = rig_host_transport(rank->host),
		.instance = rank->ack.instance,
		.job = job->options.id,
		.epoch = rank->epoch,
		.window = rank->ack.window,
		.payload_bytes = rank->ack.payload_bytes,
		.slots = rank->ack.slots,
		.sharing_jobs = rank->ack.sharing,
		.listener = -1,
	};
	struct fanin_error why = { 0 };
	int status;

	memcpy(config.parameters, rank->ack.parameters, sizeof(config.parameters));
	flow_of(rank, &config.flow);
	status = fanin_keys_derive(SECRET, &config.keys);
	if (status == 0)
		status = job->protocol->open(job->protocol, &config, &rank->engine, &why);
	if (status != FANIN_OK)
		snprintf(error, PIPELINE_ERROR_LEN, "rank %u: %.200s", rank->rank, why.text);
	return status;
}

static int
rank_open(struct straggler_rank *rank, char *error)
{
	const uint32_t count = rank->job->count;
	int status = engine_open(rank, error);

	if (status != FANIN_OK)
		return status;
	rank->send = malloc(count * sizeof(int32_t));
	rank->recv = malloc(count * sizeof(int32_t));
	if (rank->send == NULL || rank->recv == NULL) {
		snprintf(error, PIPELINE_ERROR_LEN, "no memory for vectors of %u elements", count);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++)
		rank->send[i] = (int32_t)((rank->rank + 1u) * i);
	rig_host_set_poll(rank->host, rank_poll, rank);
	return 0;
}

int
straggler_job_join(struct straggler_job *job, char *error)
{
	struct rig *rig = job->dumbbell->rig;
	int ret = 0;

	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
		job->ranks[rank] = (struct straggler_rank){
			.job = job,
			.rank = rank,
			.host = job->dumbbell->workers[job->options.first_worker + rank].host
		};
		rig_host_set_poll(job->ranks[rank].host, join_poll, &job->ranks[rank]);
	}
	for (unsigned int tries = 0; !all_have_joined(job); tries++) {
		if (tries == JOIN_TRIES) {
			snprintf(error, PIPELINE_ERROR_LEN, "job %u: its ranks do not join",
				 job->options.id);
			return -ETIMEDOUT;
		}
		for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
			if (!job->ranks[rank].joined)
				join_send(&job->ranks[rank]);
		}
		rig_run(rig, rig_now_ns(rig) + JOIN_AGAIN_NS, all_have_joined, job);
	}
	for (uint16_t rank = 0; rank < job->options.n_ranks && ret == 0; rank++)
		ret = rank_open(&job->ranks[rank], error);
	return ret;
}

void
straggler_job_begin(struct straggler_job *job)
{
	job->begin_ns = rig_now_ns(job->dumbbell->rig);
	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
		post(&job->ranks[rank]);
		rig_host_wake(job->ranks[rank].host, job->begin_ns);
	}
}

bool
straggler_job_is_done(const struct straggler_job *job)
{
	return job->error[0] != '\0' ||
	       job->finished[job->options.iterations - 1] == job->options.n_ranks;
}

void
straggler_job_report(const struct straggler_job *job, uint16_t rank, struct fanin_report *report)
{
	*report = (struct fanin_report){ .sz = sizeof(*report) };
	job->protocol->report(job->ranks[rank].engine, report);
}
