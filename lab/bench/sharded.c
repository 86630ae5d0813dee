/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traffic of training with sharded parameters (FSDP; Khalilov et al., sections I and II-A): a
 * reduce_scatter of gradients and an allgather of parameters at the same time, in virtual time over
 * links of one rate. Real engines and real switches: the reduce_scatter in a job with the handler
 * `single`, whose results go to their owners, the allgather by reliable multicast. For comparison,
 * the same pair by rings, whose packets have no data. Prints one JSON object.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench/congestion_run.h"
#include "tools/measure/options.h"
#include "lab/bench/shared_host.h"
#include "hostlib/src/protocol/protocol.h"
#include "protocols/broadcast/broadcast.h"

#define MAX_JOIN_NS (60 * SECOND_NS)
#define LIMIT_NS (60 * SECOND_NS)
#define MAX_REPEATS 16u
#define EAL_MEGABYTES 768

enum variant {
	VARIANT_REDUCE_SCATTER,
	VARIANT_ALLGATHER,
	VARIANT_PAIR, /* both at the same time */
	VARIANT_RING, /* both by the ring */
	VARIANTS,
};

static const char *const variants[VARIANTS] = { "reduce_scatter", "allgather", "pair", "ring" };

enum part {
	PART_SCATTER,
	PART_GATHER,
	PARTS,
};

struct rank {
	struct shared_host shared;
	const struct fanin_protocol *protocols[PARTS];
	struct fanin_endpoint *engines[PARTS];
	struct fanin_transport *transports[PARTS];
	struct fanin_request requests[PARTS];
	bool is_busy[PARTS];
	int32_t *send; /* of the reduce_scatter: the vector, and the part that is kept */
	int32_t *kept;
	int32_t *gathered; /* of the allgather: the vector, with this rank's part in place */
	uint16_t rank;
};

static struct bench_options {
	enum variant variant;
	struct congestion_options network;
	uint64_t bytes; /* of each of the two vectors */
	uint32_t repeats;
	uint32_t window;
	uint64_t queue_ns; /* maximum that may wait for a host's link, as in a NIC's ring; 0: any */
	uint32_t chains;   /* of the allgather: ranks that send at the same time; 0: all */
} options = {
	.variant = VARIANT_PAIR,
	.network = { .seed = 1,
		     .n_leaves = 1,
		     .hosts_per_leaf = 8,
		     .n_spines = PARTS, /* each job's tree has a spine of its own */
		     .n_ranks = 8,
		     .rate_mbit = 10000,
		     .delay_ns = 1000,
		     .queue_bytes = 1000000,
		     .ecn_bytes = 300000,
		     .max_jobs = 2,
		     .n_packets = CONGESTION_PACKETS },
	.bytes = 8 << 20,
	.repeats = 3,
	.window = 512,
	.queue_ns = 60000,
};

static struct congestion_run run; /* its job is unused */

static struct {
	struct rig_job jobs[PARTS];
	struct rank ranks[CONGESTION_MAX_HOSTS];
	struct ring_player *ring;
	uint64_t part_ns[PARTS]; /* of the last run: when its last rank had the whole result */
	uint32_t n_busy;
	uint32_t count; /* elements of a rank's part */
	bool wrong;
} bench;

/* ------------------------------------------------------------------ collectives */

static bool
runs(enum part part)
{
	return options.variant == VARIANT_PAIR ||
	       (options.variant == VARIANT_REDUCE_SCATTER && part == PART_SCATTER) ||
	       (options.variant == VARIANT_ALLGATHER && part == PART_GATHER);
}

/*
 * Element i of rank r's vector to be reduced is (r + 1) * i, and of its part to be gathered r *
 * 2^20 + i; modulo 2^32.
 */
static void
result_check(const struct rank *rank, enum part part)
{
	const uint32_t n = options.network.n_ranks;
	const uint32_t factor = n * (n + 1) / 2;

	for (uint32_t i = 0; part == PART_SCATTER && i < bench.count; i++)
		bench.wrong |= rank->kept[i] != (int32_t)(factor * (rank->rank * bench.count + i));
	for (uint32_t i = 0; part == PART_GATHER && i < n * bench.count; i++)
		bench.wrong |= rank->gathered[i] !=
			       (int32_t)((i / bench.count << 20) + i % bench.count);
}

static void
request_end(struct rank *rank, enum part part)
{
	rank->is_busy[part] = false;
	bench.n_busy--;
	bench.part_ns[part] = rig_now_ns(run.network.rig);
	if (rank->requests[part].status != FANIN_OK)
		virtual_die(variants[options.variant],
			    rank->protocols[part]->error(rank->engines[part])->text);
	result_check(rank, part);
}

static uint64_t
engines_poll(struct rank *rank)
{
	uint64_t min_ns = SECOND_NS;
	unsigned int n;

	do {
		n = shared_host_receive(&rank->shared);
		/*
		 * The allgather comes first: it has little to send, and the reduce_scatter takes
		 * all the room there is.
		 */
		for (int p = PARTS - 1; p >= 0; p--) {
			while (rank->engines[p] != NULL &&
			       rank->protocols[p]->poll(rank->engines[p]) > 0 &&
			       shared_host_has_frames(rank->transports[p])) {
			}
		}
	} while (n != 0);
	for (int p = 0; p < PARTS; p++) {
		if (rank->engines[p] != NULL)
			min_ns = RTE_MIN(min_ns, rank->protocols[p]->idle_ns(rank->engines[p]));
	}
	return RTE_MAX(min_ns, 1u);
}

static void
rank_poll(struct rig_host *host, void *user)
{
	struct rank *rank = user;
	const uint64_t idle_ns = engines_poll(rank);

	for (int p = 0; p < PARTS; p++) {
		if (rank->is_busy[p] && rank->requests[p].status != FANIN_IN_PROGRESS)
			request_end(rank, (enum part)p);
	}
	rig_host_wake(host, rig_now_ns(run.network.rig) + idle_ns);
}

static void
post(struct rank *rank, enum part part)
{
	struct fanin_request *request = &rank->requests[part];

	*request = (struct fanin_request){ .dtype = FANIN_WIRE_I32 };
	if (part == PART_SCATTER) {
		request->collective = FANIN_COLLECTIVE_REDUCE_SCATTER;
		request->op = FANIN_WIRE_SUM;
		request->send = (const uint8_t *)rank->send;
		request->recv = (uint8_t *)rank->kept;
		memset(rank->kept, 0, bench.count * sizeof(int32_t));
	} else {
		int32_t *own = rank->gathered + rank->rank * bench.count;

		request->collective = FANIN_COLLECTIVE_ALLGATHER;
		request->send = (const uint8_t *)own;
		request->recv = (uint8_t *)rank->gathered;
		memset(rank->gathered, 0, options.network.n_ranks * bench.count * sizeof(int32_t));
		for (uint32_t i = 0; i < bench.count; i++)
			own[i] = (int32_t)(((uint32_t)rank->rank << 20) + i);
	}
	if (rank->protocols[part]->post(rank->engines[part], request, bench.count) != FANIN_OK)
		virtual_die(variants[options.variant], "a request is not taken");
	rank->is_busy[part] = true;
	bench.n_busy++;
}

/* ------------------------------------------------------------------ building */

static void
job_open(enum part part)
{
	static const char *const handlers[PARTS] = { "single", "broadcast" };
	const struct job_spec spec = { .handler = handlers[part], .slots = 2u * options.window };
	/*
	 * Blocks of the reduce_scatter go at the pace of the slowest rank. If all ranks send their
	 * parts of the allgather at the same time, each rank's link carries little of it at any
	 * time.
	 */
	const uint64_t chains = options.chains != 0 ? options.chains : options.network.n_ranks;
	struct rig_job *job = &bench.jobs[part];
	char error[PIPELINE_ERROR_LEN] = "";
	char reason[128];

	if (rig_job_create_on(&run.network.leaf_spine, &spec, run.network.ranks,
			      options.network.n_ranks, (uint16_t)part, job, error) != 0)
		virtual_die(handlers[part], error);
	if (rig_job_join(job, MAX_JOIN_NS) != 0)
		virtual_die(handlers[part], "the ranks don't join");
	for (uint16_t r = 0; r < options.network.n_ranks; r++) {
		struct rank *rank = &bench.ranks[r];
		struct fanin_protocol_config config = { .timeout_ns = LIMIT_NS };
		struct fanin_error problem;

		rank->protocols[part] = fanin_protocol_of(handlers[part], reason, sizeof(reason));
		rank->transports[part] = shared_host_add(&rank->shared, job->id);
		rig_protocol_config(job, r, &config);
		config.transport = rank->transports[part];
		if (part == PART_GATHER)
			config.parameters[FANIN_BROADCAST_CHAINS] = chains;
		if (rank->protocols[part]->open(rank->protocols[part], &config,
						&rank->engines[part], &problem) != FANIN_OK)
			virtual_die(handlers[part], problem.text);
	}
}

static void
ranks_open(void)
{
	const uint16_t n = options.network.n_ranks;

	bench.count = (uint32_t)(options.bytes / sizeof(int32_t) / n);
	for (uint16_t r = 0; r < n; r++) {
		struct rank *rank = &bench.ranks[r];

		rank->rank = r;
		shared_host_init(&rank->shared, run.network.leaf_spine.hosts[run.network.ranks[r]]);
		rank->send = malloc((size_t)n * bench.count * sizeof(int32_t));
		rank->kept = malloc(bench.count * sizeof(int32_t));
		rank->gathered = malloc((size_t)n * bench.count * sizeof(int32_t));
		if (rank->send == NULL || rank->kept == NULL || rank->gathered == NULL)
			virtual_die("vectors", "out of memory");
		for (uint32_t i = 0; i < n * bench.count; i++)
			rank->send[i] = (int32_t)((r + 1u) * i);
	}
	for (int p = 0; p < PARTS; p++) {
		if (runs((enum part)p))
			job_open((enum part)p);
	}
	for (uint16_t r = 0; r < n; r++)
		bench.ranks[r].shared.queue_ns = options.queue_ns;
	for (uint16_t r = 0; r < n; r++)
		rig_host_set_poll(bench.ranks[r].shared.host, rank_poll, &bench.ranks[r]);
}

static void
bench_open(void)
{
	options.network.slots = 4u * options.window;
	congestion_run_open(&run, &options.network, EAL_MEGABYTES);
	if (options.variant == VARIANT_RING)
		bench.ring = congestion_run_ring(&run);
	else
		ranks_open();
}

/* ------------------------------------------------------------------ running */

static bool
is_done(void *user)
{
	(void)user;
	return bench.ring != NULL ? ring_player_is_done(bench.ring) : bench.n_busy == 0;
}

/* Runs one of each collective. Returns the time until the last rank had all results. */
static uint64_t
once(void)
{
	struct rig *rig = run.network.rig;
	const uint64_t began_ns = rig_now_ns(rig);

	/*
	 * The ring's reduce_scatter and its allgather of vectors of `bytes` bytes each send (n - 1)
	 * / n of these over every link, both ways. Together, in turns or not, they send as much as
	 * an allreduce, whose two halves they are.
	 */
	if (bench.ring != NULL && ring_player_begin(bench.ring, options.bytes) != 0)
		virtual_die("the ring", "out of memory");
	for (uint16_t r = 0; r < options.network.n_ranks && bench.ring == NULL; r++) {
		for (int p = 0; p < PARTS; p++) {
			if (runs((enum part)p))
				post(&bench.ranks[r], (enum part)p);
		}
		rig_host_wake(bench.ranks[r].shared.host, began_ns);
	}
	if (!rig_run(rig, began_ns + LIMIT_NS, is_done, NULL))
		virtual_die(variants[options.variant], "it does not end");
	for (int p = 0; p < PARTS; p++)
		bench.part_ns[p] = runs((enum part)p) ? bench.part_ns[p] - began_ns : 0;
	return rig_now_ns(rig) - began_ns;
}

static void
report(void)
{
	double most[CONGESTION_TIERS] = { 0 };
	uint64_t dropped = 0, retransmits = 0, fetched = 0;

	for (uint16_t i = 0; i < run.after.n; i++) {
		const struct congestion_link *link = &run.after.links[i];
		const double bytes = (double)(link->bytes - run.before.links[i].bytes);

		most[link->tier] = RTE_MAX(most[link->tier],
					   bytes / options.repeats / (double)options.bytes);
		dropped += link->dropped - run.before.links[i].dropped;
	}
	for (uint16_t r = 0; r < options.network.n_ranks && bench.ring == NULL; r++) {
		for (int p = 0; p < PARTS; p++) {
			struct fanin_report found = { .sz = sizeof(found) };

			if (bench.ranks[r].engines[p] == NULL)
				continue;
			bench.ranks[r].protocols[p]->report(bench.ranks[r].engines[p], &found);
			retransmits += found.retransmits;
			fetched += found.multicast_fetched;
		}
	}
	json_open("{");
	json_add("\"variant\": \"%s\", \"ranks\": %u, \"leaves\": %u, \"bytes\": %" PRIu64
		 ", \"rate_mbit\": %u",
		 variants[options.variant], options.network.n_ranks, options.network.n_leaves,
		 options.bytes, options.network.rate_mbit);
	json_seconds("seconds", run.took_ns, options.repeats);
	json_add("\"reduce_scatter_seconds\": %.9f, \"allgather_seconds\": %.9f",
		 (double)bench.part_ns[PART_SCATTER] / 1e9,
		 (double)bench.part_ns[PART_GATHER] / 1e9);
	/* Traffic is a share of the vector's bytes, for each collective or pair. */
	json_add(
		"\"most\": {\"host_up\": %.4f, \"host_down\": %.4f, \"leaf_up\": %.4f, \"leaf_down\": %.4f}",
		most[CONGESTION_HOST_UP], most[CONGESTION_HOST_DOWN], most[CONGESTION_LEAF_UP],
		most[CONGESTION_LEAF_DOWN]);
	json_add("\"dropped\": %" PRIu64 ", \"retransmits\": %" PRIu64 ", \"fetched\": %" PRIu64
		 ", \"exact\": %s",
		 dropped, retransmits, fetched, json_bool(!bench.wrong));
	json_close("}\n");
}

static void
bench_close(void)
{
	ring_player_destroy(bench.ring);
	for (uint16_t r = 0; r < options.network.n_ranks && bench.ring == NULL; r++) {
		struct rank *rank = &bench.ranks[r];

		for (int p = 0; p < PARTS; p++) {
			if (rank->engines[p] != NULL)
				rank->protocols[p]->close(rank->engines[p]);
		}
		free(rank->send);
		free(rank->kept);
		free(rank->gathered);
	}
	for (int p = 0; p < PARTS && options.variant != VARIANT_RING; p++) {
		if (runs((enum part)p))
			rig_job_destroy(&bench.jobs[p]);
	}
	(void)congestion_network_close(&run.network);
}

/* ------------------------------------------------------------------ options */

#define NUMBER(member, low, high) CLI_NUMBER(struct bench_options, member, low, high)

static const struct cli_field fields[] = {
	{ "variant", "NAME", .kind = CLI_CHOICE, CLI_FIELD(struct bench_options, variant),
	  CLI_NAMES(variants), .expected = "reduce_scatter, allgather, pair or ring" },
	{ "ranks", "N", NUMBER(network.n_ranks, 2, CONGESTION_MAX_HOSTS) },
	{ "leaves", "N", NUMBER(network.n_leaves, 1, RIG_MAX_LEAVES) },
	{ "bytes", "B", NUMBER(bytes, 1024, 1 << 30) },
	{ "rate-mbit", "N", NUMBER(network.rate_mbit, 10, 400000) },
	{ "repeats", "N", NUMBER(repeats, 1, MAX_REPEATS) },
	{ "seed", "N", NUMBER(network.seed, 0, UINT32_MAX) },
	{ "chains", "N", NUMBER(chains, 1, CONGESTION_MAX_HOSTS) },
	{ "window", "N", NUMBER(window, 1, 4096) },
	{ "queue-us", "N", NUMBER(queue_ns, 0, 1000000), .unit = 1000 },
	{ "ecn-bytes", "N", NUMBER(network.ecn_bytes, 0, 1 << 30) },
	{ 0 },
};

static void __attribute__((noreturn))
refuse(const char *name, const char *found, const char *expected)
{
	fprintf(stderr, "sharded-bench: --%s: found '%s', expected %s\n", name, found, expected);
	exit(2);
}

static const struct cli_program program = {
	.fields = fields,
	.about = "",
	.base = 10,
	.number = "",
	.usage = bench_usage,
	.refuse = refuse,
};

static void
options_read(int argc, char **argv)
{
	struct congestion_options *network = &options.network;
	struct cli_given given;

	if (cli_fields_parse(&program, &options, argc, argv, &given) != argc ||
	    network->n_ranks % network->n_leaves != 0) {
		fputs("usage: sharded-bench --variant reduce_scatter|allgather|pair|ring [--ranks N] [--leaves N] [--bytes B] [--chains N] [--window N] [--rate-mbit N] [--repeats N] [--seed N]\n"
		      "each leaf has as many ranks as the others\n",
		      stderr);
		exit(2);
	}
	network->hosts_per_leaf = network->n_ranks / network->n_leaves;
}

int
main(int argc, char **argv)
{
	options_read(argc, argv);
	bench_open();
	congestion_links_read(&run.network, &run.before);
	for (uint32_t i = 0; i < options.repeats; i++)
		run.took_ns[i] = once();
	congestion_links_read(&run.network, &run.after);
	report();
	bench_close();
	return bench.wrong ? 1 : 0;
}
