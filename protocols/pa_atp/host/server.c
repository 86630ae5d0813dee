/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parameter server's jobs, and the checks of every packet. Valid packets go on to
 * server_join.c, server_blocks.c and server_query.c. See server.h.
 */
#include "server_internal.h"

#include <stdlib.h>
#include <string.h>

#include "wire/version.h"

#define CACHE_LINE 64u

int
fanin_server_core_create(const struct fanin_server_core_options *options,
			 struct fanin_server_core **core)
{
	struct fanin_server_core *created = calloc(1, sizeof(*created));

	if (created == NULL)
		return FANIN_ERR_NO_MEMORY;
	created->by_id = calloc(FANIN_WIRE_MAX_JOB + 1, sizeof(*created->by_id));
	if (created->by_id == NULL) {
		free(created);
		return FANIN_ERR_NO_MEMORY;
	}
	created->options = *options;
	created->instance = options->random(options->arg);
	created->next_epoch = (uint32_t)options->random(options->arg) | 1;
	TAILQ_INIT(&created->jobs);
	*core = created;
	return FANIN_OK;
}

static void
job_free(struct fanin_server_job *job)
{
	free(job->entries);
	free(job->payloads);
	free(job);
}

void
fanin_server_core_free(struct fanin_server_core *core)
{
	if (core == NULL)
		return;
	while (!TAILQ_EMPTY(&core->jobs))
		fanin_server_core_remove(core, TAILQ_FIRST(&core->jobs)->spec.id);
	free(core->by_id);
	free(core);
}

uint64_t
fanin_server_job_bytes(uint32_t slots, uint32_t payload_bytes)
{
	return (uint64_t)slots * (payload_bytes + sizeof(struct server_entry)) +
	       sizeof(struct fanin_server_job);
}

uint64_t
fanin_server_job_share(const struct fanin_server_core *core)
{
	return core->options.memory_bytes / core->options.max_jobs;
}

uint32_t
fanin_server_max_slots(const struct fanin_server_core *core, uint32_t payload_bytes)
{
	const uint64_t share = fanin_server_job_share(core);
	uint32_t slots = FANIN_SERVER_MAX_SLOTS;

	while (slots >= 2 && fanin_server_job_bytes(slots, payload_bytes) > share)
		slots /= 2;
	return slots >= 2 ? slots : 0;
}

static int
check_spec(const struct fanin_server_core *core, const struct fanin_server_spec *spec,
	   struct fanin_error *error)
{
	const uint64_t bytes = fanin_server_job_bytes(spec->slots, spec->payload_bytes);

	if (spec->id == 0 || spec->id > FANIN_WIRE_MAX_JOB)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "found job number %u, expected 1 to %u", spec->id,
				       FANIN_WIRE_MAX_JOB);
	if (core->by_id[spec->id] != NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID, "job %u exists already", spec->id);
	if (spec->n_ranks == 0)
		return fanin_error_set(error, FANIN_ERR_INVALID, "found no ranks, expected 1 to %u",
				       FANIN_SERVER_RANKS_MAX);
	if (spec->n_ranks > FANIN_SERVER_RANKS_MAX)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "found %u ranks, expected at most %u in a job with a server",
				       spec->n_ranks, FANIN_SERVER_RANKS_MAX);
	if (spec->slots < 2 || spec->slots > FANIN_SERVER_MAX_SLOTS ||
	    (spec->slots & (spec->slots - 1)) != 0)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "found %u slots, expected a power of two from 2 to %u",
				       spec->slots, FANIN_SERVER_MAX_SLOTS);
	if (spec->payload_bytes == 0 || spec->payload_bytes % FANIN_PAYLOAD_ALIGN != 0)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "found payload_bytes %u, expected a multiple of %u",
				       spec->payload_bytes, FANIN_PAYLOAD_ALIGN);
	if (core->n_jobs == core->options.max_jobs)
		return fanin_error_set(error, FANIN_ERR_CAPACITY,
				       "there are %u jobs, as many as there may be", core->n_jobs);
	if (bytes > fanin_server_job_share(core))
		return fanin_error_set(
			error, FANIN_ERR_CAPACITY,
			"asked for %u slots of %u bytes, which take %lu bytes; %lu are available to each job (memory of %lu bytes over %u jobs), which are enough for %u slots",
			spec->slots, spec->payload_bytes, (unsigned long)bytes,
			(unsigned long)fanin_server_job_share(core),
			(unsigned long)core->options.memory_bytes, core->options.max_jobs,
			fanin_server_max_slots(core, spec->payload_bytes));
	return FANIN_OK;
}

int
fanin_server_core_add(struct fanin_server_core *core, const struct fanin_server_spec *spec,
		      struct fanin_error *error)
{
	int status = check_spec(core, spec, error);
	struct fanin_server_job *job;

	if (status != FANIN_OK)
		return status;
	job = calloc(1, sizeof(*job));
	if (job == NULL)
		goto no_memory;
	job->spec = *spec;
	job->entries = calloc(spec->slots, sizeof(*job->entries));
	job->payloads = aligned_alloc(CACHE_LINE, (size_t)spec->slots * spec->payload_bytes);
	if (job->entries == NULL || job->payloads == NULL ||
	    fanin_keys_derive(spec->key, &job->keys) != 0)
		goto no_memory;
	job->all = fanin_ranks_all_word(spec->n_ranks, 0);
	job->sums = (struct fanin_sums){ .isa = core->options.isa,
					 .n_ranks = spec->n_ranks,
					 .n_words = 1 };
	job->group_be = __builtin_bswap32(FANIN_WIRE_GROUPS | spec->id);
	job->round_trip_ns = core->options.round_trip_ns != 0 ? core->options.round_trip_ns
							      : FANIN_SERVER_ROUND_TRIP_NS;
	server_blocks_reset(job);
	TAILQ_INSERT_TAIL(&core->jobs, job, entry);
	core->by_id[spec->id] = job;
	core->n_jobs++;
	return FANIN_OK;

no_memory:
	if (job != NULL)
		job_free(job);
	return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "no memory for %u slots of %u bytes",
			       spec->slots, spec->payload_bytes);
}

bool
fanin_server_core_remove(struct fanin_server_core *core, uint32_t id)
{
	struct fanin_server_job *job = id <= FANIN_WIRE_MAX_JOB ? core->by_id[id] : NULL;

	if (job == NULL)
		return false;
	core->by_id[id] = NULL;
	core->n_jobs--;
	TAILQ_REMOVE(&core->jobs, job, entry);
	job_free(job);
	return true;
}

const struct fanin_server_job *
fanin_server_core_job(const struct fanin_server_core *core, uint32_t id)
{
	return id <= FANIN_WIRE_MAX_JOB ? core->by_id[id] : NULL;
}

uint32_t
fanin_server_core_next(const struct fanin_server_core *core, uint32_t after)
{
	for (uint32_t id = after; id < FANIN_WIRE_MAX_JOB; id++) {
		if (core->by_id[id + 1] != NULL)
			return id + 1;
	}
	return 0;
}

void
server_begin(const struct fanin_server_job *job, enum fanin_type type, struct fanin_hdr *hdr)
{
	fanin_wire_encode_header(hdr, type, job->spec.id, job->epoch, job->keys.down);
}

void
server_send(const struct fanin_server_core *core, const struct fanin_server_job *job,
	    const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len, bool lasting)
{
	const struct fanin_server_emission emission = {
		.hdr = hdr,
		.payload = payload,
		.payload_len = payload_len,
		.dst_ip_be = job->spec.member_ip_be,
		.dst_port = core->options.udp_port,
		.lasting = lasting,
	};

	core->options.send(core->options.arg, &emission);
}

void
server_multicast(const struct fanin_server_core *core, const struct fanin_server_job *job,
		 const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len)
{
	const struct fanin_server_emission emission = {
		.hdr = hdr,
		.payload = payload,
		.payload_len = payload_len,
		.dst_ip_be = job->group_be,
		.dst_port = core->options.udp_port,
		.lasting = true,
	};

	core->options.send(core->options.arg, &emission);
}

void
server_reply(const struct fanin_server_core *core, const struct fanin_headers *to,
	     const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len)
{
	struct fanin_server_emission emission = {
		.hdr = hdr,
		.payload = payload,
		.payload_len = payload_len,
		.dst_ip_be = to->ip.src_be,
		.dst_port = core->options.udp_port,
	};

	/*
	 * A packet of version 2 has no port in its header: the answer goes to the packet's source
	 * port.
	 */
	if (to->fanin.version != FANIN_WIRE_VERSION)
		emission.dst_port = __builtin_bswap16(to->udp.src_be);
	else if (to->fanin.port != 0)
		emission.dst_port = to->fanin.port;

	core->options.send(core->options.arg, &emission);
}

void
server_refuse(struct fanin_server_core *core, const struct fanin_server_job *job,
	      const struct fanin_headers *headers, const void *payload, uint32_t payload_len,
	      enum fanin_reason reason)
{
	struct fanin_hdr hdr = headers->fanin;
	uint64_t nonce = 0;

	core->drops[reason]++;
	/*
	 * The answer carries the JOIN's nonce, so that the sender knows that its own JOIN is
	 * refused.
	 */
	if (hdr.type == FANIN_TYPE_JOIN && payload_len >= FANIN_JOIN_BODY_BEFORE)
		memcpy(&nonce, (const uint8_t *)payload + offsetof(struct fanin_join_body, nonce),
		       sizeof(nonce));
	/* An answer to an unknown sender contains only what the sender sent. */
	fanin_wire_encode_header(&hdr, FANIN_TYPE_REFUSED, headers->fanin.job, headers->fanin.epoch,
				 job != NULL ? job->keys.down : headers->fanin.key);
	hdr.rank = headers->fanin.rank;
	hdr.block = headers->fanin.block;
	hdr.count = (uint16_t)reason;
	hdr.members = nonce;
	if (headers->fanin.version != FANIN_WIRE_VERSION) {
		hdr.version = headers->fanin.version;
		hdr.contributions = FANIN_WIRE_VERSION;
	}
	if (headers->fanin.type == FANIN_TYPE_JOIN && reason == FANIN_REASON_SOURCE)
		hdr.progress = headers->ip.src_be;
	server_reply(core, headers, &hdr, NULL, 0);
}

/*
 * Checks that the packet is from the job's switch, as pipeline/admission.c does. Returns NONE or
 * the reason to refuse it.
 */
static enum fanin_reason
check_sender(const struct fanin_server_core *core, const struct fanin_headers *headers,
	     struct fanin_server_job **found)
{
	const struct fanin_hdr *hdr = &headers->fanin;
	struct fanin_server_job *job = hdr->job <= FANIN_WIRE_MAX_JOB ? core->by_id[hdr->job]
								      : NULL;

	*found = job;
	if (job == NULL)
		return FANIN_REASON_JOB;
	if (hdr->key != job->keys.up)
		return FANIN_REASON_KEY;
	/* All ranks are behind the switch; the lowest rank stands for it. */
	if (hdr->rank != 0)
		return FANIN_REASON_RANK;
	if (headers->ip.src_be != job->spec.member_ip_be)
		return FANIN_REASON_SOURCE;
	return FANIN_REASON_NONE;
}

static void
receive_block(struct fanin_server_core *core, struct fanin_server_job *job,
	      const struct server_packet *packet, enum fanin_reason reason)
{
	const struct fanin_headers *headers = packet->headers;

	if (reason != FANIN_REASON_NONE && reason != FANIN_REASON_JOB) {
		core->drops[reason]++;
		return;
	}
	/* The job is gone; its ranks learn that at once. */
	if (reason == FANIN_REASON_JOB)
		job = NULL;
	else if (job->epoch == 0)
		reason = FANIN_REASON_NOT_ACTIVE;
	else if (headers->fanin.epoch != job->epoch)
		reason = FANIN_REASON_EPOCH;
	else
		reason = server_block(core, job, packet);
	if (reason != FANIN_REASON_NONE)
		server_refuse(core, job, headers, packet->payload, packet->payload_len, reason);
}

/* A JOIN of the previous protocol version. */
static void
refuse_before(struct fanin_server_core *core, const struct fanin_headers *headers,
	      const void *payload)
{
	struct fanin_server_job *job;
	const enum fanin_reason reason = check_sender(core, headers, &job);
	const uint32_t len = fanin_wire_payload_len(headers);

	if (reason != FANIN_REASON_NONE)
		server_refuse(core, NULL, headers, payload, len, reason);
	else
		server_refuse(core, job, headers, payload, len, FANIN_REASON_VERSION);
}

void
fanin_server_core_receive(struct fanin_server_core *core, const struct fanin_headers *headers,
			  size_t frame_len, const void *payload, uint64_t now_ns)
{
	enum fanin_reason reason = fanin_wire_validate(headers, frame_len);
	struct server_packet packet = { .headers = headers, .payload = payload, .now_ns = now_ns };
	struct fanin_server_job *job;

	if (reason == FANIN_REASON_VERSION && headers->fanin.type == FANIN_TYPE_JOIN &&
	    fanin_version_validate(headers, frame_len) == FANIN_REASON_NONE) {
		refuse_before(core, headers, payload);
		return;
	}
	if (reason == FANIN_REASON_NONE && fanin_type_direction(headers->fanin.type) != FANIN_UP)
		reason = FANIN_REASON_DIRECTION;
	if (reason != FANIN_REASON_NONE) {
		core->drops[reason]++;
		return;
	}
	packet.payload_len = fanin_wire_payload_len(headers);
	reason = check_sender(core, headers, &job);
	switch (fanin_type_class(headers->fanin.type)) {
	case FANIN_CLASS_BLOCK:
		receive_block(core, job, &packet, reason);
		break;
	case FANIN_CLASS_MEMBERSHIP:
		/* A sender of JOIN gets an answer, whatever is wrong. */
		if (reason != FANIN_REASON_NONE)
			server_refuse(core, NULL, headers, payload, packet.payload_len, reason);
		else
			server_membership(core, job, &packet);
		break;
	default:
		core->drops[FANIN_REASON_TYPE]++;
		break;
	}
}

uint64_t
fanin_server_core_due(const struct fanin_server_core *core)
{
	const struct fanin_server_job *job;
	uint64_t due_ns = UINT64_MAX;

	TAILQ_FOREACH(job, &core->jobs, entry) {
		if (job->due_ns < due_ns)
			due_ns = job->due_ns;
	}
	return due_ns;
}

uint64_t
fanin_server_core_timers(struct fanin_server_core *core, uint64_t now_ns)
{
	struct fanin_server_job *job;

	TAILQ_FOREACH(job, &core->jobs, entry) {
		if (job->due_ns <= now_ns)
			server_flush(core, job, now_ns);
	}
	return fanin_server_core_due(core);
}

uint64_t
fanin_server_core_drops(const struct fanin_server_core *core, enum fanin_reason reason)
{
	return core->drops[reason];
}

void
fanin_server_core_note_drop(struct fanin_server_core *core, enum fanin_reason reason)
{
	core->drops[reason]++;
}

uint64_t
fanin_server_core_instance(const struct fanin_server_core *core)
{
	return core->instance;
}

uint32_t
fanin_server_core_n_jobs(const struct fanin_server_core *core)
{
	return core->n_jobs;
}

uint32_t
fanin_server_job_member(const struct fanin_server_job *job)
{
	return job->spec.member_ip_be;
}

void
fanin_server_job_describe(const struct fanin_server_job *job, struct fanin_server_job_stats *stats)
{
	const size_t sz = stats->sz;

	*stats = job->stats;
	stats->sz = sz;
	stats->job = job->spec.id;
	stats->epoch = job->epoch;
	stats->size = job->spec.n_ranks;
	stats->window = (uint16_t)(job->spec.slots / 2);
	stats->payload_bytes = job->spec.payload_bytes;
	stats->waiting = (uint16_t)job->n_waiting;
	stats->slots = job->spec.slots;
	stats->round_trip_us = (uint32_t)(job->round_trip_ns / 1000);
	stats->memory_bytes = fanin_server_job_bytes(job->spec.slots, job->spec.payload_bytes);
}

size_t
fanin_server_job_waits(const struct fanin_server_job *job, uint64_t now_ns,
		       struct fanin_server_wait *waits, size_t n)
{
	const struct server_entry *entry;
	size_t i = 0;

	TAILQ_FOREACH(entry, &job->waiting, waiting) {
		if (i == n)
			break;
		waits[i++] = (struct fanin_server_wait){
			.block = entry->block,
			.flushes = entry->flushes,
			.since_ns = now_ns > entry->begun_ns ? now_ns - entry->begun_ns : 0,
			.missing = job->all & ~entry->members,
		};
	}
	return job->n_waiting;
}
