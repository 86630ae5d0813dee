/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traffic of training with sharded parameters (FSDP; Khalilov et al., sections I and II-A): a reduce_scatter of gradients and an allgather of parameters at the
 * same time, in virtual time over links of one rate. Real engines and real switches: the reduce_scatter in a job with the handler `single`, whose results go to their owners, the
 * allgather by reliable multicast. Beside it the ring's pair, whose packets have no data. Prints one JSON object.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "bench/congestion_network.h"
#include "bench/ring_player.h"
#include "bench/shared_host.h"
#include "hostlib/src/protocol/protocol.h"
#include "wire/broadcast.h"

#define SECOND_NS UINT64_C(1000000000)
#define MOST_JOIN_NS (60 * SECOND_NS)
#define LIMIT_NS (60 * SECOND_NS)
#define MOST_REPEATS 16u
#define EAL_MEGABYTES 768
#define PACKETS 131071

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
	int32_t *send; /* of the reduce_scatter: the vector, and what is kept of it */
	int32_t *kept;
	int32_t *gathered; /* of the allgather: the vector, with this rank's part in place */
	uint16_t rank;
};

static struct {
	enum variant variant;
	struct congestion_options network;
	uint64_t bytes; /* of each of the two vectors */
	uint32_t repeats;
	uint32_t window;
	uint64_t queue_ns; /* that may wait for a host's link, as in a NIC's ring; 0: any */
	uint32_t chains;   /* of the allgather: ranks that send at once; 0: all */
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
		     .n_packets = PACKETS },
	.bytes = 8 << 20,
	.repeats = 3,
	.window = 512,
	.queue_ns = 60000,
};

static struct {
	struct congestion_network network;
	struct rig_job jobs[PARTS];
	struct rank ranks[CONGESTION_MOST_HOSTS];
	struct ring_player *ring;
	struct congestion_links before;
	struct congestion_links after;
	uint64_t took_ns[MOST_REPEATS];
	uint64_t part_ns[PARTS]; /* of the last one: when its last rank had all */
	uint32_t n_busy;
	uint32_t count; /* elements of a rank's part */
	bool wrong;
} run;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "sharded-bench: %s: %s\n", what, why);
	exit(1);
}

/* ------------------------------------------------------------------ collectives */

static bool
runs(enum part part)
{
	return options.variant == VARIANT_PAIR ||
	       (options.variant == VARIANT_REDUCE_SCATTER && part == PART_SCATTER) ||
	       (options.variant == VARIANT_ALLGATHER && part == PART_GATHER);
}

/* Element i of rank r's vector to be reduced is (r + 1) * i, of its part to be gathered r * 2^20 + i; modulo 2^32. */
static void
result_check(const struct rank *rank, enum part part)
{
	const uint32_t n = options.network.n_ranks;
	const uint32_t factor = n * (n + 1) / 2;

	for (uint32_t i = 0; part == PART_SCATTER && i < run.count; i++)
		run.wrong |= rank->kept[i] != (int32_t)(factor * (rank->rank * run.count + i));
	for (uint32_t i = 0; part == PART_GATHER && i < n * run.count; i++)
		run.wrong |= rank->gathered[i] != (int32_t)((i / run.count << 20) + i % run.count);
}

static void
request_end(struct rank *rank, enum part part)
{
	rank->is_busy[part] = false;
	run.n_busy--;
	run.part_ns[part] = rig_now_ns(run.network.rig);
	if (rank->requests[part].status != FANIN_OK)
		die(variants[options.variant],
		    rank->protocols[part]->error(rank->engines[part])->text);
	result_check(rank, part);
}

static uint64_t
engines_poll(struct rank *rank)
{
	uint64_t least_ns = SECOND_NS;
	unsigned int n;

	do {
		n = shared_host_receive(&rank->shared);
		/* The allgather first: it has little to send, and the reduce_scatter takes all the room that there is. */
		for (int p = PARTS - 1; p >= 0; p--) {
			while (rank->engines[p] != NULL &&
			       rank->protocols[p]->poll(rank->engines[p]) > 0 &&
			       shared_host_has_frames(rank->transports[p])) {
			}
		}
	} while (n != 0);
	for (int p = 0; p < PARTS; p++) {
		if (rank->engines[p] != NULL)
			least_ns = RTE_MIN(least_ns, rank->protocols[p]->idle_ns(rank->engines[p]));
	}
	return RTE_MAX(least_ns, 1u);
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
		memset(rank->kept, 0, run.count * sizeof(int32_t));
	} else {
		int32_t *own = rank->gathered + rank->rank * run.count;

		request->collective = FANIN_COLLECTIVE_ALLGATHER;
		request->send = (const uint8_t *)own;
		request->recv = (uint8_t *)rank->gathered;
		memset(rank->gathered, 0, options.network.n_ranks * run.count * sizeof(int32_t));
		for (uint32_t i = 0; i < run.count; i++)
			own[i] = (int32_t)(((uint32_t)rank->rank << 20) + i);
	}
	if (rank->protocols[part]->post(rank->engines[part], request, run.count) != FANIN_OK)
		die(variants[options.variant], "a request is not taken");
	rank->is_busy[part] = true;
	run.n_busy++;
}

/* ------------------------------------------------------------------ building */

static void
eal_start(void)
{
	char line[160];
	char *argv[16] = { NULL };
	int argc = 0;

	snprintf(line, sizeof(line),
		 "sharded-bench --no-huge --no-shconf --no-pci --no-telemetry -m %u --lcores 0@(0-1) --log-level=error",
		 EAL_MEGABYTES);
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		die("DPDK", "it does not start");
}

static void
job_open(enum part part)
{
	static const char *const handlers[PARTS] = { "single", "broadcast" };
	const struct job_spec spec = { .handler = handlers[part], .slots = 2u * options.window };
	/*
	 * Blocks of the reduce_scatter go at the pace of the slowest rank. Where all ranks send their parts of the allgather at once, each one's link carries
	 * little of it at any time.
	 */
	const uint64_t chains = options.chains != 0 ? options.chains : options.network.n_ranks;
	struct rig_job *job = &run.jobs[part];
	char error[PIPELINE_ERROR_LEN] = "";
	char reason[128];

	if (rig_job_create_on(&run.network.leaf_spine, &spec, run.network.ranks,
			      options.network.n_ranks, (uint16_t)part, job, error) != 0)
		die(handlers[part], error);
	if (rig_job_join(job, MOST_JOIN_NS) != 0)
		die(handlers[part], "the ranks don't join");
	for (uint16_t r = 0; r < options.network.n_ranks; r++) {
		struct rank *rank = &run.ranks[r];
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
			die(handlers[part], problem.text);
	}
}

static void
ranks_open(void)
{
	const uint16_t n = options.network.n_ranks;

	run.count = (uint32_t)(options.bytes / sizeof(int32_t) / n);
	for (uint16_t r = 0; r < n; r++) {
		struct rank *rank = &run.ranks[r];

		rank->rank = r;
		shared_host_init(&rank->shared, run.network.leaf_spine.hosts[run.network.ranks[r]]);
		rank->send = malloc((size_t)n * run.count * sizeof(int32_t));
		rank->kept = malloc(run.count * sizeof(int32_t));
		rank->gathered = malloc((size_t)n * run.count * sizeof(int32_t));
		if (rank->send == NULL || rank->kept == NULL || rank->gathered == NULL)
			die("vectors", "out of memory");
		for (uint32_t i = 0; i < n * run.count; i++)
			rank->send[i] = (int32_t)((r + 1u) * i);
	}
	for (int p = 0; p < PARTS; p++) {
		if (runs((enum part)p))
			job_open((enum part)p);
	}
	for (uint16_t r = 0; r < n; r++)
		run.ranks[r].shared.queue_ns = options.queue_ns;
	for (uint16_t r = 0; r < n; r++)
		rig_host_set_poll(run.ranks[r].shared.host, rank_poll, &run.ranks[r]);
}

static void
bench_open(void)
{
	char error[RIG_ERROR_LEN] = "";

	eal_start();
	options.network.slots = 4u * options.window;
	if (congestion_network_open(&run.network, &options.network, error) != 0)
		die("the network", error);
	if (options.variant != VARIANT_RING) {
		ranks_open();
		return;
	}
	run.ring = ring_player_create(&run.network.leaf_spine, run.network.ranks,
				      options.network.n_ranks, options.network.seed);
	if (run.ring == NULL)
		die("the ring", "out of memory");
}

/* ------------------------------------------------------------------ running */

static bool
is_done(void *user)
{
	(void)user;
	return run.ring != NULL ? ring_player_is_done(run.ring) : run.n_busy == 0;
}

/* One of each collective. Returns how long it took until the last rank had all. */
static uint64_t
once(void)
{
	struct rig *rig = run.network.rig;
	const uint64_t began_ns = rig_now_ns(rig);

	/*
	 * The ring's reduce_scatter and allgather of vectors of so many bytes send, each, (n - 1) / n of them over every link, both ways. Whether they take turns
	 * or not, that is what an allreduce sends, whose two halves they are.
	 */
	if (run.ring != NULL && ring_player_begin(run.ring, options.bytes) != 0)
		die("the ring", "out of memory");
	for (uint16_t r = 0; r < options.network.n_ranks && run.ring == NULL; r++) {
		for (int p = 0; p < PARTS; p++) {
			if (runs((enum part)p))
				post(&run.ranks[r], (enum part)p);
		}
		rig_host_wake(run.ranks[r].shared.host, began_ns);
	}
	if (!rig_run(rig, began_ns + LIMIT_NS, is_done, NULL))
		die(variants[options.variant], "it does not end");
	for (int p = 0; p < PARTS; p++)
		run.part_ns[p] = runs((enum part)p) ? run.part_ns[p] - began_ns : 0;
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
	for (uint16_t r = 0; r < options.network.n_ranks && run.ring == NULL; r++) {
		for (int p = 0; p < PARTS; p++) {
			struct fanin_report found = { .sz = sizeof(found) };

			if (run.ranks[r].engines[p] == NULL)
				continue;
			run.ranks[r].protocols[p]->report(run.ranks[r].engines[p], &found);
			retransmits += found.retransmits;
			fetched += found.multicast_fetched;
		}
	}
	printf("{\"variant\": \"%s\", \"ranks\": %u, \"leaves\": %u, \"bytes\": %" PRIu64
	       ", \"rate_mbit\": %u, \"seconds\": [",
	       variants[options.variant], options.network.n_ranks, options.network.n_leaves,
	       options.bytes, options.network.rate_mbit);
	for (uint32_t i = 0; i < options.repeats; i++)
		printf("%s%.9f", i == 0 ? "" : ", ", (double)run.took_ns[i] / 1e9);
	printf("], \"reduce_scatter_seconds\": %.9f, \"allgather_seconds\": %.9f",
	       (double)run.part_ns[PART_SCATTER] / 1e9, (double)run.part_ns[PART_GATHER] / 1e9);
	/* Traffic is a share of the vector's bytes, in each collective or pair. */
	printf(", \"most\": {\"host_up\": %.4f, \"host_down\": %.4f, \"leaf_up\": %.4f, \"leaf_down\": %.4f}",
	       most[CONGESTION_HOST_UP], most[CONGESTION_HOST_DOWN], most[CONGESTION_LEAF_UP],
	       most[CONGESTION_LEAF_DOWN]);
	printf(", \"dropped\": %" PRIu64 ", \"retransmits\": %" PRIu64 ", \"fetched\": %" PRIu64
	       ", \"exact\": %s}\n",
	       dropped, retransmits, fetched, run.wrong ? "false" : "true");
}

static void
bench_close(void)
{
	ring_player_destroy(run.ring);
	for (uint16_t r = 0; r < options.network.n_ranks && run.ring == NULL; r++) {
		struct rank *rank = &run.ranks[r];

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
			rig_job_destroy(&run.jobs[p]);
	}
	(void)congestion_network_close(&run.network);
}

/* ------------------------------------------------------------------ options */

static uint64_t
number(const char *name, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	const unsigned long long found = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end != '\0' || found < least || found > most) {
		fprintf(stderr,
			"sharded-bench: --%s: found '%s', expected %" PRIu64 " to %" PRIu64 "\n",
			name, text, least, most);
		exit(2);
	}
	return found;
}

static enum variant
variant_of(const char *name)
{
	for (int v = 0; v < VARIANTS; v++) {
		if (strcmp(variants[v], name) == 0)
			return (enum variant)v;
	}
	fprintf(stderr,
		"sharded-bench: --variant: found '%s', expected reduce_scatter, allgather, pair or ring\n",
		name);
	exit(2);
}

static void
options_read(int argc, char **argv)
{
	static const struct option known[] = {
		{ "variant", required_argument, NULL, 'v' },
		{ "ranks", required_argument, NULL, 'n' },
		{ "leaves", required_argument, NULL, 'l' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "rate-mbit", required_argument, NULL, 'r' },
		{ "repeats", required_argument, NULL, 'i' },
		{ "seed", required_argument, NULL, 's' },
		{ "chains", required_argument, NULL, 'c' },
		{ "window", required_argument, NULL, 'w' },
		{ "queue-us", required_argument, NULL, 'q' },
		{ "ecn-bytes", required_argument, NULL, 'e' },
		{ NULL, 0, NULL, 0 },
	};
	struct congestion_options *network = &options.network;
	int c, which;

	while ((c = getopt_long(argc, argv, "", known, &which)) != -1) {
		if (c == 'v')
			options.variant = variant_of(optarg);
		else if (c == 'n')
			network->n_ranks = (uint16_t)number("ranks", optarg, 2,
							    CONGESTION_MOST_HOSTS);
		else if (c == 'l')
			network->n_leaves = (uint16_t)number("leaves", optarg, 1, RIG_MAX_LEAVES);
		else if (c == 'b')
			options.bytes = number("bytes", optarg, 1024, 1 << 30);
		else if (c == 'r')
			network->rate_mbit = (uint32_t)number("rate-mbit", optarg, 10, 400000);
		else if (c == 'i')
			options.repeats = (uint32_t)number("repeats", optarg, 1, MOST_REPEATS);
		else if (c == 'c')
			options.chains = (uint32_t)number("chains", optarg, 1, CONGESTION_MOST_HOSTS);
		else if (c == 'q')
			options.queue_ns = 1000 * number("queue-us", optarg, 0, 1000000);
		else if (c == 'e')
			network->ecn_bytes = (uint32_t)number("ecn-bytes", optarg, 0, 1 << 30);
		else if (c == 'w')
			options.window = (uint32_t)number("window", optarg, 1, 4096);
		else if (c == 's')
			network->seed = number("seed", optarg, 0, UINT32_MAX);
		else
			exit(2);
	}
	if (optind != argc || network->n_ranks % network->n_leaves != 0) {
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
	return run.wrong ? 1 : 0;
}
