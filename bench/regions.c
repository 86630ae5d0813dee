/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regions-bench: one run of `./dev bench regions`. Allreduces by a handler, `push`, `pull` or one of the dense ones, over leaves and spines with links of one rate, in virtual
 * time: real switches and queues, real engines. Prints a JSON object. bench/regions.py makes the tables of many runs.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "bench/congestion_job.h"

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS UINT64_C(1000000)
#define EAL_MEGABYTES 700
#define PACKETS 131071u
/* Between two allreduces: what is late has come. */
#define PAUSE_NS (2 * MS_NS)
#define JOIN_NS (60 * SECOND_NS)
/* The library's usual one: intervals of questions follow from it. */
#define TIMEOUT_NS (5 * SECOND_NS)
#define MOST_ALLREDUCES 64
#define MOST_COUNTERS FANIN_OWN_COUNTERS_MAX

struct bench_options {
	const char *handler;
	struct congestion_options network;
	uint64_t bytes;
	uint32_t allreduces;
	uint16_t window; /* blocks */
	uint16_t payload_bytes;
	/* Parameters of the handler, if it has them; 0: its defaults. */
	uint64_t entries;
	uint64_t waves;
	uint64_t wave_blocks;
	double busy_share;
	uint64_t busy_ns;
	uint64_t away_every_ns; /* of each rank, on average; 0: none is */
	uint64_t away_ns;
	uint64_t limit_ns; /* an allreduce that takes longer has failed */
};

static struct bench_options options = {
	.handler = "single",
	.network = { .seed = 1,
		     .n_leaves = 4,
		     .hosts_per_leaf = 4,
		     .n_spines = 1,
		     .n_ranks = 16,
		     .rate_mbit = 1000,
		     .delay_ns = 1000,
		     .queue_bytes = 256000,
		     .ecn_bytes = 30000,
		     .n_packets = PACKETS,
		     .max_jobs = 1 },
	.bytes = 4 << 20,
	.allreduces = 1,
	.window = 512,
	.payload_bytes = 1024,
	.limit_ns = 60 * SECOND_NS,
};

static struct {
	struct congestion_network network;
	struct congestion_job job;
	struct rig_job tree;
	struct congestion_links before;
	struct congestion_links after;
	uint64_t counted[MOST_COUNTERS]; /* by switches before the first allreduce */
	uint64_t took_ns[MOST_ALLREDUCES];
	uint32_t n_done;
} run;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "regions-bench: %s: %s\n", what, why);
	exit(1);
}

/* ------------------------------------------------------------------ building */

static void
eal_start(void)
{
	char line[160];
	char *argv[16] = { NULL };
	int argc = 0;

	snprintf(line, sizeof(line),
		 "regions-bench --no-huge --no-shconf --no-pci --no-telemetry -m %u --lcores 0@(0-1) --log-level=error",
		 EAL_MEGABYTES);
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		die("DPDK", "it does not start");
}

static void
network_open(void)
{
	char error[RIG_ERROR_LEN] = "";

	/* A slot of a pull job counts twice. */
	options.network.slots = 4u * options.window;
	options.network.shared_slots = 2u * options.window;
	if (congestion_network_open(&run.network, &options.network, error) != 0)
		die("the network", error);
}

/* A parameter of the job, if it has been given. A handler that does not have it refuses the job. */
static void
parameter_add(struct job_spec *spec, const char *name, uint64_t value)
{
	if (value != 0)
		spec->parameters[spec->n_parameters++] = (struct job_parameter){ .name = name,
										 .value = value };
}

static void
tree_open(void)
{
	struct job_spec spec = { .handler = options.handler,
				 .slots = 2u * options.window,
				 .payload_bytes = options.payload_bytes };
	char error[PIPELINE_ERROR_LEN] = "";

	parameter_add(&spec, "entries", options.entries);
	parameter_add(&spec, "waves", options.waves);
	parameter_add(&spec, "wave_blocks", options.wave_blocks);
	if (rig_job_create_on(&run.network.leaf_spine, &spec, run.network.ranks,
			      options.network.n_ranks, 0, &run.tree, error) != 0)
		die("the job", error);
	if (rig_job_join(&run.tree, JOIN_NS) != 0)
		die("the job", "its ranks don't join");
}

static void
engine_add(uint16_t rank)
{
	struct shared_host *shared = &run.job.ranks[rank].shared;
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS };
	struct fanin_error why = { 0 };
	struct fanin_endpoint *engine;

	rig_protocol_config(&run.tree, rank, &config);
	config.transport = shared_host_add(shared, run.tree.id);
	shared->random = random_seed(options.network.seed * 1000 + rank);
	shared->busy_share = options.busy_share;
	shared->busy_ns = options.busy_ns;
	shared->away_every_ns = options.away_every_ns;
	shared->away_ns = options.away_ns;
	if (run.job.protocol->open(run.job.protocol, &config, &engine, &why) != FANIN_OK)
		die("an engine", why.text);
	congestion_job_add(&run.job, rank, engine, config.transport);
}

static bool
is_ready(void *user)
{
	(void)user;
	return congestion_job_is_ready(&run.job);
}

static void
job_open(void)
{
	struct rig *rig = run.network.rig;
	char reason[128];

	tree_open();
	if (congestion_job_init(&run.job, &run.network,
				fanin_protocol_of(options.handler, reason, sizeof(reason)),
				options.bytes) != 0)
		die("the job", "out of memory");
	for (uint16_t rank = 0; rank < run.job.n_ranks; rank++)
		engine_add(rank);
	congestion_job_attach(&run.job);
	if (!rig_run(rig, rig_now_ns(rig) + JOIN_NS, is_ready, NULL) || run.job.error[0] != '\0')
		die("the job is not ready", run.job.error);
}

/* ------------------------------------------------------------------ running */

/* Adds up one of the handler's own counters over all switches. */
static uint64_t
count_of(unsigned int position)
{
	const uint16_t n_jobs = (uint16_t)(run.tree.n_leaves + (run.tree.n_leaves > 1));
	uint64_t sum = 0;

	for (uint16_t i = 0; i < n_jobs; i++) {
		const struct job *job = run.tree.jobs[i];

		for (uint16_t w = 0; w < job->n_workers; w++)
			sum += job->worker_stats[w].stats.own[position];
	}
	return sum;
}

static bool
is_done(void *user)
{
	(void)user;
	return congestion_job_is_done(&run.job);
}

/* Returns true if it has ended well. */
static bool
allreduce(void)
{
	struct rig *rig = run.network.rig;
	const uint64_t began_ns = rig_now_ns(rig);

	congestion_job_begin(&run.job, options.bytes);
	if (!rig_run(rig, began_ns + options.limit_ns, is_done, NULL) || run.job.error[0] != '\0')
		return false;
	run.took_ns[run.n_done++] = rig_now_ns(rig) - began_ns;
	return true;
}

static void
run_all(void)
{
	struct rig *rig = run.network.rig;

	for (unsigned int i = 0; i < MOST_COUNTERS; i++)
		run.counted[i] = count_of(i);
	congestion_links_read(&run.network, &run.before);
	while (run.n_done < options.allreduces && allreduce()) {
		if (run.n_done < options.allreduces)
			rig_run(rig, rig_now_ns(rig) + PAUSE_NS, NULL, NULL);
	}
	congestion_links_read(&run.network, &run.after);
}

/* ------------------------------------------------------------------ what came of it */

static void
print_times(void)
{
	printf("\"done\": %s, \"exact\": %s, \"error\": \"%s\", \"seconds\": [",
	       run.n_done == options.allreduces ? "true" : "false",
	       run.job.wrong ? "false" : "true", run.job.error);
	for (uint32_t i = 0; i < run.n_done; i++)
		printf("%s%.9f", i == 0 ? "" : ", ", (double)run.took_ns[i] / 1e9);
	printf("]");
}

static void
print_switches(void)
{
	const struct fanin_counter *counters = run.tree.jobs[0]->handler->counters;

	printf("\"switches\": {");
	for (unsigned int i = 0; counters != NULL && counters[i].name != NULL; i++)
		printf("%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", counters[i].name,
		       count_of(i) - run.counted[i]);
	printf("}");
}

static void
print_hosts(void)
{
	struct fanin_report report = { 0 };

	congestion_job_report(&run.job, &report);
	printf("\"hosts\": {\"frames_sent\": %" PRIu64 ", \"frames_received\": %" PRIu64
	       ", \"retransmits\": %" PRIu64 ", \"queries\": %" PRIu64 ", \"duplicates\": %" PRIu64
	       "}",
	       report.frames_sent, report.frames_received, report.retransmits, report.queries,
	       report.duplicates);
}

/* Bytes of all links of each tier, and of the one that carried most. */
static void
print_links(void)
{
	uint64_t sum[CONGESTION_TIERS] = { 0 };
	uint64_t most[CONGESTION_TIERS] = { 0 };
	uint64_t dropped = 0;

	for (uint16_t i = 0; i < run.after.n; i++) {
		const struct congestion_link *link = &run.after.links[i];
		const uint64_t bytes = link->bytes - run.before.links[i].bytes;

		sum[link->tier] += bytes;
		most[link->tier] = RTE_MAX(most[link->tier], bytes);
		dropped += link->dropped - run.before.links[i].dropped;
	}
	printf("\"links\": {");
	for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
		printf("%s\"%s\": {\"bytes\": %" PRIu64 ", \"most\": %" PRIu64 "}",
		       tier == 0 ? "" : ", ", congestion_tiers[tier], sum[tier], most[tier]);
	printf("}, \"dropped\": %" PRIu64, dropped);
}

static void
print_run(void)
{
	printf("{\"handler\": \"%s\", \"seed\": %" PRIu64
	       ", \"leaves\": %u, \"hosts_per_leaf\": %u, \"ranks\": %u, \"rate_mbit\": %u, \"bytes\": %" PRIu64
	       ", \"payload_bytes\": %u, \"window\": %u, \"entries\": %" PRIu64
	       ", \"waves\": %" PRIu64 ", \"wave_blocks\": %" PRIu64 ", ",
	       options.handler, options.network.seed, options.network.n_leaves,
	       options.network.hosts_per_leaf, options.network.n_ranks, options.network.rate_mbit,
	       options.bytes, options.payload_bytes, options.window, options.entries, options.waves,
	       options.wave_blocks);
	print_times();
	printf(", ");
	print_hosts();
	printf(", ");
	print_switches();
	printf(", ");
	print_links();
	printf("}\n");
}

/* ------------------------------------------------------------------ options */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: regions-bench --handler push|pull|single|... [--entries N] [--waves N] [--wave-blocks N] [--seed N]\n"
	      "       [--leaves N] [--hosts-per-leaf N] [--ranks N] [--bytes N] [--allreduces N] [--window BLOCKS] [--payload-bytes N]\n"
	      "       [--rate-mbit N] [--queue-bytes N] [--busy-share SHARE] [--busy-ns N] [--away-every-ms N] [--away-ms N] [--loss SHARE] [--limit-ms N]\n",
	      stderr);
	exit(2);
}

static uint64_t
number(const char *text, uint64_t least, uint64_t most)
{
	char *end;
	const unsigned long long value = strtoull(text, &end, 10);

	if (*text == '\0' || *text == '-' || *end != '\0' || value < least || value > most) {
		fprintf(stderr,
			"regions-bench: found '%s', expected a number from %" PRIu64 " to %" PRIu64
			"\n",
			text, least, most);
		exit(2);
	}
	return value;
}

static double
share(const char *text)
{
	char *end;
	const double value = strtod(text, &end);

	if (*text == '\0' || *end != '\0' || !(value >= 0 && value <= 1)) {
		fprintf(stderr, "regions-bench: found '%s', expected a number from 0 to 1\n", text);
		exit(2);
	}
	return value;
}

static void
parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "handler", required_argument, NULL, 'H' },
		{ "entries", required_argument, NULL, 'e' },
		{ "waves", required_argument, NULL, 'w' },
		{ "wave-blocks", required_argument, NULL, 'b' },
		{ "seed", required_argument, NULL, 's' },
		{ "leaves", required_argument, NULL, 'l' },
		{ "hosts-per-leaf", required_argument, NULL, 'h' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "bytes", required_argument, NULL, 'B' },
		{ "allreduces", required_argument, NULL, 'a' },
		{ "window", required_argument, NULL, 'W' },
		{ "payload-bytes", required_argument, NULL, 'p' },
		{ "rate-mbit", required_argument, NULL, 'R' },
		{ "queue-bytes", required_argument, NULL, 'q' },
		{ "busy-share", required_argument, NULL, 'n' },
		{ "busy-ns", required_argument, NULL, 'N' },
		{ "away-every-ms", required_argument, NULL, 'A' },
		{ "away-ms", required_argument, NULL, 'D' },
		{ "loss", required_argument, NULL, 'F' },
		{ "limit-ms", required_argument, NULL, 'L' },
		{ NULL, 0, NULL, 0 },
	};
	struct congestion_options *network = &options.network;
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'H':
			options.handler = optarg;
			break;
		case 'e':
			options.entries = number(optarg, 1, UINT32_MAX);
			break;
		case 'w':
			options.waves = number(optarg, 1, UINT32_MAX);
			break;
		case 'b':
			options.wave_blocks = number(optarg, 1, UINT32_MAX);
			break;
		case 's':
			network->seed = number(optarg, 0, UINT32_MAX);
			break;
		case 'l':
			network->n_leaves = (uint16_t)number(optarg, 1, 16);
			break;
		case 'h':
			network->hosts_per_leaf = (uint16_t)number(optarg, 1, 32);
			break;
		case 'r':
			network->n_ranks = (uint16_t)number(optarg, 2, CONGESTION_MOST_HOSTS);
			break;
		case 'B':
			options.bytes = number(optarg, 4, 1 << 28);
			break;
		case 'a':
			options.allreduces = (uint32_t)number(optarg, 1, MOST_ALLREDUCES);
			break;
		case 'W':
			options.window = (uint16_t)number(optarg, 1, FANIN_WIRE_MAX_WINDOW);
			break;
		case 'p':
			options.payload_bytes = (uint16_t)number(optarg, 64, 1408);
			break;
		case 'R':
			network->rate_mbit = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'q':
			network->queue_bytes = (uint32_t)number(optarg, 1, 1 << 28);
			break;
		case 'n':
			options.busy_share = share(optarg);
			break;
		case 'N':
			options.busy_ns = number(optarg, 0, SECOND_NS);
			break;
		case 'A':
			options.away_every_ns = number(optarg, 0, 1000000) * MS_NS;
			break;
		case 'D':
			options.away_ns = number(optarg, 0, 1000000) * MS_NS;
			break;
		case 'F':
			network->loss = share(optarg);
			break;
		case 'L':
			options.limit_ns = number(optarg, 1, 1000000) * MS_NS;
			break;
		default:
			usage();
		}
	}
	if (optind != argc)
		usage();
}

int
main(int argc, char **argv)
{
	parse(argc, argv);
	eal_start();
	network_open();
	job_open();
	run_all();
	print_run();
	congestion_job_close(&run.job);
	rig_job_destroy(&run.tree);
	if (congestion_network_close(&run.network) != 0)
		die("the network", "packets are lost to a leak");
	return 0;
}
