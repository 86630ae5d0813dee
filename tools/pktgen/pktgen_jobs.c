/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The generator's jobs and hosts: created over the switch's control socket, or given. See pktgen.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <jansson.h>

#include "tools/pktgen/pktgen.h"
#include "control/client.h"

static void
hosts_init(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;

	for (uint16_t h = 0; h < options->hosts; h++) {
		const uint8_t mac[6] = { 0x02, 0xfa, 0x01, 0, 0, (uint8_t)(h + 1) };
		struct pktgen_host *host = &gen->hosts[h];

		memcpy(host->mac, mac, sizeof(mac));
		host->port = h % options->n_ports;
		host->ip_be = htonl(ntohl(options->first_ip_be) + h);
		host->switch_ip_be = options->switch_ip_be;
		host->mtu = options->mtu;
		host->udp_port = options->udp_port;
	}
}

/* Runs a command on the switch. A refusal becomes the generator's error. */
static int
ask(struct pktgen *gen, const char *command, json_t *args, json_t **result)
{
	char error[CLIENT_ERROR_LEN];
	int ret = client_call(gen->control, command, args, result, error);

	return ret == 0 ? 0 : pktgen_fail(gen, ret, "%s: %s", command, error);
}

/*
 * Lists the job's members for the control protocol: host h is at the switch port that its own port
 * leads to.
 */
static json_t *
members_of(struct pktgen *gen, const json_t *ports)
{
	const struct pktgen_options *options = gen->options;
	json_t *members = json_array();

	for (uint16_t h = 0; h < options->hosts; h++) {
		const uint16_t port = gen->hosts[h].port;
		const char *name =
			options->n_switch_ports != 0
				? options->switch_ports[port]
				: json_string_value(
					  json_object_get(json_array_get(ports, port), "name"));
		char address[INET_ADDRSTRLEN];

		inet_ntop(AF_INET, &gen->hosts[h].ip_be, address, sizeof(address));
		json_array_append_new(members, json_pack("{s:s,s:s}", "port", name, "ip", address));
	}
	return members;
}

static int
keys_derive(struct pktgen *gen, uint64_t secret, struct pktgen_job *job)
{
	if (fanin_keys_derive(secret, &job->keys) != 0)
		return pktgen_fail(gen, -ENOMEM, "no memory for the keys of job %u", job->id);
	job->secret = secret;
	return 0;
}

static int
job_create(struct pktgen *gen, const json_t *ports, struct pktgen_job *job)
{
	const struct pktgen_options *options = gen->options;
	json_t *args = json_pack("{s:o,s:s}", "members", members_of(gen, ports), "handler",
				 options->handler);
	json_t *result;
	uint64_t secret;
	int ret;

	if (options->payload != 0)
		json_object_set_new(args, "payload_bytes",
				    json_integer(RTE_ALIGN_CEIL(options->payload,
								(uint32_t)FANIN_PAYLOAD_ALIGN)));
	if (options->window != 0)
		json_object_set_new(args, "slots", json_integer(2 * options->window));
	ret = ask(gen, "jobs.create", args, &result);
	if (ret != 0)
		return ret;
	job->id = (uint32_t)json_integer_value(json_object_get(result, "id"));
	secret = strtoull(json_string_value(json_object_get(result, "key")), NULL, 16);
	json_decref(result);
	gen->n_created++;
	return keys_derive(gen, secret, job);
}

static int
jobs_create(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	char error[CLIENT_ERROR_LEN];
	json_t *listed;
	size_t n_ports;
	const struct client_options control = { .at = options->control };
	int ret = client_open(&control, &gen->control, error);

	if (ret != 0)
		return pktgen_fail(gen, ret, "%s", error);
	ret = ask(gen, "ports.list", NULL, &listed);
	if (ret != 0)
		return ret;
	n_ports = json_array_size(json_object_get(listed, "ports"));
	if (options->n_switch_ports == 0 && n_ports < options->n_ports)
		ret = pktgen_fail(gen, -EINVAL,
				  "found %u times --port, but the switch has %zu ports",
				  options->n_ports, n_ports);
	for (uint16_t j = 0; j < gen->n_jobs && ret == 0; j++)
		ret = job_create(gen, json_object_get(listed, "ports"), &gen->jobs[j]);
	json_decref(listed);
	return ret;
}

static int
allocate(struct pktgen *gen)
{
	const size_t n_members = (size_t)gen->options->n_jobs * gen->options->hosts;

	gen->jobs = calloc(gen->options->n_jobs, sizeof(*gen->jobs));
	gen->members = calloc(n_members, sizeof(*gen->members));
	gen->due_ns = calloc(n_members, sizeof(*gen->due_ns));
	gen->job_index = calloc(FANIN_WIRE_MAX_JOB + 1, sizeof(*gen->job_index));
	if (gen->jobs == NULL || gen->members == NULL || gen->due_ns == NULL ||
	    gen->job_index == NULL)
		return pktgen_fail(gen, -ENOMEM, "no memory for %zu members", n_members);
	gen->n_jobs = gen->options->n_jobs;
	return 0;
}

static int
members_init(struct pktgen *gen, uint16_t index)
{
	const uint16_t hosts = gen->options->hosts;

	for (uint16_t h = 0; h < hosts; h++) {
		uint64_t nonce;

		if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
			return pktgen_fail(gen, -EIO, "the kernel gives no random number: %s",
					   strerror(errno));
		pktgen_member_init(&gen->members[(size_t)index * hosts + h], &gen->hosts[h],
				   &gen->jobs[index], h, nonce);
	}
	return 0;
}

int
pktgen_jobs_open(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	int ret = allocate(gen);

	if (ret != 0)
		return ret;
	hosts_init(gen);
	for (uint16_t j = 0; j < gen->n_jobs; j++) {
		gen->jobs[j] = (struct pktgen_job){
			.id = options->jobs[j].id,
			.size = options->hosts,
			.dtype = options->dtype,
			.op = options->op,
			.payload = options->payload,
			.max_window = options->window,
			.stagger = options->stagger,
			.timeout_ns = (uint64_t)(options->timeout_s * 1e9),
			.stall_ns = (uint64_t)(options->stall_s * 1e9),
			.stats = &gen->stats,
		};
	}
	if (options->control != NULL)
		ret = jobs_create(gen);
	for (uint16_t j = 0; options->control == NULL && j < gen->n_jobs && ret == 0; j++)
		ret = keys_derive(gen, options->jobs[j].key, &gen->jobs[j]);
	for (uint16_t j = 0; j < gen->n_jobs && ret == 0; j++) {
		gen->job_index[gen->jobs[j].id] = (uint8_t)(j + 1);
		ret = members_init(gen, j);
	}
	return ret;
}

int
pktgen_jobs_close(struct pktgen *gen)
{
	const size_t n_members = (size_t)gen->n_jobs * gen->options->hosts;
	int ret = 0;

	for (uint16_t j = 0; j < gen->n_created && ret == 0 && !gen->options->keep; j++) {
		json_t *result;

		ret = ask(gen, "jobs.destroy",
			  json_pack("{s:I}", "id", (json_int_t)gen->jobs[j].id), &result);
		if (ret == 0)
			json_decref(result);
	}
	client_close(gen->control);
	for (size_t m = 0; m < n_members; m++)
		pktgen_member_free(&gen->members[m]);
	for (uint16_t j = 0; j < gen->n_jobs; j++)
		pktgen_job_free(&gen->jobs[j]);
	free(gen->jobs);
	free(gen->members);
	free(gen->due_ns);
	free(gen->job_index);
	return ret;
}
