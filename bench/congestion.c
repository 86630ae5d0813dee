/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * congestion-bench: one run of `./dev bench congestion`. Allreduces over leaves and spines beside background traffic, in virtual time: real switches and queues,
 * real engines. Prints a JSON object. bench/congestion.py makes the tables of many runs.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "bench/congestion_canary.h"
#include "bench/congestion_trees.h"
#include "bench/injection.h"
#include "bench/ring_player.h"

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS UINT64_C(1000000)
#define EAL_MEGABYTES 700
#define PACKETS 131071u
/* Background traffic has filled its queues when the first allreduce begins. */
#define WARM_NS (20 * MS_NS)
/* Between two allreduces: what is late has come. */
#define PAUSE_NS (2 * MS_NS)
/* Joining takes no longer. */
#define READY_NS (60 * SECOND_NS)
#define MOST_ALLREDUCES 64

enum variant {
	VARIANT_CANARY,
	VARIANT_RING,
	VARIANT_STATIC,
};

enum background {
	BACKGROUND_NONE,
	BACKGROUND_SPINE,       /* over the links of the first tree's spine */
	BACKGROUND_UNIFORM,     /* to random hosts */
	BACKGROUND_PERMUTATION, /* of each host to one, which has no other */
};

static const char *const variants[] = { "canary", "ring", "static" };
static const char *const backgrounds[] = { "none", "spine", "uniform", "permutation" };

struct bench_options {
	enum variant variant;
	enum background background;
	struct congestion_options network;
	uint64_t bytes;
	uint32_t allreduces;
	uint32_t background_mbit;
	uint32_t message_bytes;
	uint16_t trees;
	uint16_t window; /* of each tree, blocks */
	uint16_t payload_bytes;
	uint32_t descriptors; /* of each switch, of Canary */
	uint32_t timeout_us;  /* likewise; 0: learned */
	double busy_share;
	uint64_t busy_ns;
	uint64_t queue_ns; /* of ranks' send queues, at most; 0: any */
	uint64_t bin_ns;   /* of the trace; 0: none */
	uint64_t limit_ns; /* an allreduce that takes longer has failed */
};

/* Descriptors of a switch. */
struct occupancy {
	uint32_t used; /* after the last event */
	uint32_t most;
	double used_ns; /* the integral of used over time */
};

/* Values of one bin of the trace. */
struct bin {
	double used[CONGESTION_TIERS];           /* mean share of links' rates */
	uint64_t most_waiting[CONGESTION_TIERS]; /* bytes at a port, at its end */
};

static struct bench_options options = {
	.variant = VARIANT_STATIC,
	.network = { .seed = 1,
		     .n_leaves = 4,
		     .hosts_per_leaf = 4,
		     .n_spines = 4,
		     .n_ranks = 8,
		     .rate_mbit = 1000,
		     .delay_ns = 1000,
		     .queue_bytes = 256000,
		     .ecn_bytes = 30000,
		     .detour_bytes = 3000,
		     .n_packets = PACKETS },
	.bytes = 4 << 20,
	.allreduces = 1,
	.background_mbit = 900,
	.message_bytes = 65536,
	.trees = 1,
	.window = 128,
	.payload_bytes = 1024,
	.descriptors = 4096,
	.limit_ns = 60 * SECOND_NS,
};

static struct {
	struct congestion_network network;
	struct congestion_job job;
	struct congestion_trees trees;
	struct rig_leaders leaders;
	struct ring_player *ring;
	struct injection injection;
	struct congestion_links before;
	struct congestion_links after;
	struct congestion_links last; /* of the trace */
	struct bin *bins;
	size_t n_bins;
	uint64_t took_ns[MOST_ALLREDUCES];
	uint32_t n_done;
	uint64_t began_ns;
	uint64_t ended_ns;
	struct occupancy occupancy[RIG_MAX_LEAVES + RIG_MAX_SPINES]; /* of each switch, of Canary */
	uint64_t noted_ns;
	uint16_t spine; /* of the first tree, and of background traffic over one */
} run;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "congestion-bench: %s: %s\n", what, why);
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
		 "congestion-bench --no-huge --no-shconf --no-pci --no-telemetry -m %u --lcores 0@(0-1) --log-level=error",
		 EAL_MEGABYTES);
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		die("DPDK", "it does not start");
}

static void
network_open(void)
{
	struct random random = random_seed(options.network.seed + 1000);
	char error[RIG_ERROR_LEN] = "";

	options.network.mixed = options.background == BACKGROUND_SPINE;
	options.network.max_jobs = options.trees;
	options.network.shared_slots = options.variant == VARIANT_CANARY ? options.descriptors : 0;
	options.network.slots = 2u * options.window * options.trees;
	run.spine = (uint16_t)random_below(&random, options.network.n_spines);
	if (congestion_network_open(&run.network, &options.network, error) != 0)
		die("the network", error);
}

static void
job_init(const char *handler)
{
	char reason[128];

	if (congestion_job_init(&run.job, &run.network,
				fanin_protocol_of(handler, reason, sizeof(reason)),
				options.bytes) != 0)
		die("the job", "out of memory");
}

static void
canary_open(char *error)
{
	const struct congestion_canary_options canary = {
		.window = options.window,
		.payload_bytes = options.payload_bytes,
		.timeout_us = options.timeout_us,
	};

	job_init("canary");
	if (congestion_canary_open(&run.leaders, &run.job, &canary, error) != 0)
		die("the job", error);
}

static void
trees_open(char *error)
{
	const struct congestion_trees_options trees = {
		.n = options.trees,
		.first_spine = run.spine,
		.window = options.window,
		.payload_bytes = options.payload_bytes,
	};

	job_init("single");
	if (congestion_trees_open(&run.trees, &run.job, &trees, error) != 0)
		die("the trees", error);
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
	char error[PIPELINE_ERROR_LEN] = "";

	if (options.variant == VARIANT_RING) {
		run.ring = ring_player_create(&run.network.leaf_spine, run.network.ranks,
					      options.network.n_ranks, options.network.seed);
		if (run.ring == NULL)
			die("the ring", "out of memory");
		return;
	}
	if (options.variant == VARIANT_CANARY)
		canary_open(error);
	else
		trees_open(error);
	congestion_job_attach(&run.job);
	if (!rig_run(rig, rig_now_ns(rig) + READY_NS, is_ready, NULL) || run.job.error[0] != '\0')
		die("the job is not ready", run.job.error);
	for (uint16_t rank = 0; rank < run.job.n_ranks; rank++) {
		struct shared_host *shared = &run.job.ranks[rank].shared;

		shared->random = random_seed(options.network.seed * 1000 + rank);
		shared->busy_share = options.busy_share;
		shared->busy_ns = options.busy_ns;
		shared->queue_ns = options.queue_ns;
	}
}

static void
background_begin(void)
{
	const struct congestion_network *network = &run.network;
	const struct injection_options made = { .seed = options.network.seed,
						.rate_mbit = options.background_mbit,
						.message_bytes = options.message_bytes };

	if (options.background == BACKGROUND_UNIFORM)
		injection_uniform(&run.injection, &network->leaf_spine, &made, network->others,
				  network->n_others);
	if (options.background == BACKGROUND_SPINE)
		injection_over_spine(&run.injection, &network->leaf_spine, &made, network->others,
				     network->n_others, run.spine);
	if (options.background == BACKGROUND_PERMUTATION)
		injection_permutation(&run.injection, &network->leaf_spine, &made, network->others,
				      network->n_others);
	if (options.background != BACKGROUND_NONE)
		rig_run(network->rig, rig_now_ns(network->rig) + WARM_NS, NULL, NULL);
}

/* ------------------------------------------------------------------ running */

static uint16_t
n_switches(void)
{
	return (uint16_t)(options.network.n_leaves + options.network.n_spines);
}

static void
occupancy_note(void)
{
	const uint64_t now_ns = rig_now_ns(run.network.rig);

	for (uint16_t i = 0; i < n_switches() && options.variant == VARIANT_CANARY; i++) {
		struct occupancy *occupancy = &run.occupancy[i];

		occupancy->used_ns += (double)occupancy->used * (double)(now_ns - run.noted_ns);
		occupancy->used = congestion_canary_descriptors(&run.leaders, i).used;
		occupancy->most = RTE_MAX(occupancy->most, occupancy->used);
	}
	run.noted_ns = now_ns;
}

/* The condition of a run is looked at after each event. */
static bool
is_done(void *user)
{
	(void)user;
	occupancy_note();
	return run.ring != NULL ? ring_player_is_done(run.ring) : congestion_job_is_done(&run.job);
}

static bool
is_never(void *user)
{
	(void)user;
	occupancy_note();
	return false;
}

static void
allreduce_begin(void)
{
	if (run.ring == NULL)
		congestion_job_begin(&run.job, options.bytes);
	else if (ring_player_begin(run.ring, options.bytes) != 0)
		die("the ring", "out of memory");
}

static void
bin_take(void)
{
	static struct congestion_links now;
	unsigned int n[CONGESTION_TIERS] = { 0 };
	struct bin *bin;

	run.bins = realloc(run.bins, (run.n_bins + 1) * sizeof(*run.bins));
	if (run.bins == NULL)
		die("the trace", "out of memory");
	bin = &run.bins[run.n_bins++];
	memset(bin, 0, sizeof(*bin));
	congestion_links_read(&run.network, &now);
	for (uint16_t i = 0; i < now.n; i++) {
		const struct congestion_link *link = &now.links[i];

		n[link->tier]++;
		bin->used[link->tier] += (double)(link->bytes - run.last.links[i].bytes) * 8000 /
					 ((double)options.bin_ns * options.network.rate_mbit);
		bin->most_waiting[link->tier] = RTE_MAX(bin->most_waiting[link->tier], link->waiting);
	}
	for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
		bin->used[tier] /= RTE_MAX(n[tier], 1u);
	run.last = now;
}

/* Lets time pass until the allreduce is done, with a bin of the trace now and then. Returns true if it is. */
static bool
pass(uint64_t until_ns)
{
	struct rig *rig = run.network.rig;

	if (options.bin_ns == 0)
		return rig_run(rig, until_ns, is_done, NULL);
	congestion_links_read(&run.network, &run.last);
	while (rig_now_ns(rig) < until_ns) {
		if (rig_run(rig, rig_now_ns(rig) + options.bin_ns, is_done, NULL))
			return true;
		bin_take();
	}
	return false;
}

/* Returns true if it has ended well. */
static bool
allreduce(void)
{
	struct rig *rig = run.network.rig;
	const uint64_t began_ns = rig_now_ns(rig);

	allreduce_begin();
	if (!pass(began_ns + options.limit_ns) || run.job.error[0] != '\0')
		return false;
	run.took_ns[run.n_done++] = rig_now_ns(rig) - began_ns;
	return true;
}

/* Links are measured over all allreduces, pauses included. */
static void
run_all(void)
{
	struct rig *rig = run.network.rig;

	congestion_links_read(&run.network, &run.before);
	run.began_ns = rig_now_ns(rig);
	run.noted_ns = run.began_ns;
	while (run.n_done < options.allreduces && allreduce()) {
		run.ended_ns = rig_now_ns(rig);
		if (run.n_done < options.allreduces)
			rig_run(rig, run.ended_ns + PAUSE_NS, is_never, NULL);
	}
	congestion_links_read(&run.network, &run.after);
	run.ended_ns = rig_now_ns(rig);
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
print_link(const struct congestion_link *before, const struct congestion_link *after, bool is_first)
{
	const double most = (double)(run.ended_ns - run.began_ns) * options.network.rate_mbit / 8000;

	printf("%s{\"tier\": \"%s\", \"leaf\": %u, \"other\": %u, \"used\": %.4f, \"dropped\": %" PRIu64
	       ", \"marked\": %" PRIu64 "}",
	       is_first ? "" : ", ", congestion_tiers[after->tier], after->leaf, after->other,
	       (double)(after->bytes - before->bytes) / most, after->dropped - before->dropped,
	       after->marked - before->marked);
}

static void
print_hosts(void)
{
	struct fanin_report report = { 0 };
	struct ring_player_stats ring = { 0 };

	if (run.ring != NULL)
		ring_player_stats(run.ring, &ring);
	else
		congestion_job_report(&run.job, &report);
	printf("\"hosts\": {\"frames_sent\": %" PRIu64 ", \"retransmits\": %" PRIu64
	       ", \"queries\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"timeouts\": %" PRIu64 "}",
	       run.ring != NULL ? ring.sent : report.frames_sent,
	       run.ring != NULL ? ring.sent - ring.packets * run.n_done : report.retransmits,
	       report.queries, report.duplicates, ring.timeouts);
}

static void
print_switches(void)
{
	const char *name;
	uint64_t sum;

	printf("\"switches\": {");
	for (unsigned int i = 0; (name = congestion_canary_count(&run.leaders, i, &sum)) != NULL; i++)
		printf("%s\"%s\": %" PRIu64, i == 0 ? "" : ", ", name, sum);
	printf("}, \"timeout_ns\": %" PRIu64, congestion_canary_timeout_ns(&run.leaders));
}

/* Descriptors of each switch, over all allreduces, pauses included. Those that are left wait for results that come no more. */
static void
print_descriptors(void)
{
	const double elapsed_ns = (double)(run.ended_ns - run.began_ns);

	printf("\"descriptors\": [");
	for (uint16_t i = 0; i < n_switches(); i++) {
		const struct occupancy *occupancy = &run.occupancy[i];
		const struct congestion_descriptors found =
			congestion_canary_descriptors(&run.leaders, i);

		printf("%s{\"tier\": \"%s\", \"mean\": %.3f, \"most\": %" PRIu32 ", \"left\": %" PRIu32
		       ", \"released\": %" PRIu64 ", \"held_ns\": %" PRIu64 "}",
		       i == 0 ? "" : ", ", i < options.network.n_leaves ? "leaf" : "spine",
		       occupancy->used_ns / elapsed_ns, occupancy->most, occupancy->used,
		       found.released, found.held_ns);
	}
	printf("]");
}

static void
print_trace(void)
{
	printf(", \"trace\": {\"bin_seconds\": %.9f, \"bins\": [", (double)options.bin_ns / 1e9);
	for (size_t b = 0; b < run.n_bins; b++) {
		printf("%s{", b == 0 ? "" : ", ");
		for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
			printf("%s\"%s\": {\"used\": %.3f, \"most_waiting\": %" PRIu64 "}",
			       tier == 0 ? "" : ", ", congestion_tiers[tier],
			       run.bins[b].used[tier], run.bins[b].most_waiting[tier]);
		printf("}");
	}
	printf("]}");
}

static void
print_run(void)
{
	printf("{\"variant\": \"%s\", \"trees\": %u, \"background\": \"%s\", \"seed\": %" PRIu64
	       ", \"leaves\": %u, \"hosts_per_leaf\": %u, \"spines\": %u, \"ranks\": %u, \"spine\": %u, \"bytes\": %" PRIu64
	       ", ",
	       variants[options.variant], options.variant == VARIANT_STATIC ? options.trees : 0,
	       backgrounds[options.background], options.network.seed, options.network.n_leaves,
	       options.network.hosts_per_leaf, options.network.n_spines, options.network.n_ranks,
	       run.spine, options.bytes);
	print_times();
	printf(", ");
	print_hosts();
	if (options.variant == VARIANT_CANARY) {
		printf(", ");
		print_switches();
		printf(", ");
		print_descriptors();
	}
	printf(", \"background_sent\": %" PRIu64 ", \"background_delivered\": %" PRIu64
	       ", \"links\": [",
	       run.injection.sent, injection_delivered(&run.injection));
	for (uint16_t i = 0; i < run.after.n; i++)
		print_link(&run.before.links[i], &run.after.links[i], i == 0);
	printf("]");
	if (options.bin_ns != 0)
		print_trace();
	printf("}\n");
}

/* ------------------------------------------------------------------ options */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: congestion-bench --variant canary|ring|static [--trees N] [--background none|spine|uniform|permutation] [--seed N]\n"
	      "       [--leaves N] [--hosts-per-leaf N] [--spines N] [--ranks N] [--bytes N] [--allreduces N] [--window BLOCKS]\n"
	      "       [--background-mbit N] [--message-bytes N] [--queue-bytes N] [--ecn-bytes N] [--detour-bytes N] [--busy-share SHARE] [--busy-ns N]\n"
	      "       [--descriptors N] [--timeout-us N] [--send-queue-us N] [--trace-us N] [--limit-ms N]\n",
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
			"congestion-bench: found '%s', expected a number from %" PRIu64
			" to %" PRIu64 "\n",
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
		fprintf(stderr, "congestion-bench: found '%s', expected a number from 0 to 1\n",
			text);
		exit(2);
	}
	return value;
}

/* The index of a name. */
static unsigned int
choice(const char *name, const char *const *names, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	usage();
}

static void
parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "variant", required_argument, NULL, 'v' },
		{ "trees", required_argument, NULL, 't' },
		{ "background", required_argument, NULL, 'b' },
		{ "seed", required_argument, NULL, 's' },
		{ "leaves", required_argument, NULL, 'l' },
		{ "hosts-per-leaf", required_argument, NULL, 'h' },
		{ "spines", required_argument, NULL, 'S' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "bytes", required_argument, NULL, 'B' },
		{ "allreduces", required_argument, NULL, 'a' },
		{ "window", required_argument, NULL, 'w' },
		{ "background-mbit", required_argument, NULL, 'm' },
		{ "message-bytes", required_argument, NULL, 'M' },
		{ "queue-bytes", required_argument, NULL, 'q' },
		{ "ecn-bytes", required_argument, NULL, 'e' },
		{ "detour-bytes", required_argument, NULL, 'D' },
		{ "busy-share", required_argument, NULL, 'n' },
		{ "busy-ns", required_argument, NULL, 'N' },
		{ "descriptors", required_argument, NULL, 'd' },
		{ "timeout-us", required_argument, NULL, 'T' },
		{ "send-queue-us", required_argument, NULL, 'Q' },
		{ "trace-us", required_argument, NULL, 'R' },
		{ "limit-ms", required_argument, NULL, 'L' },
		{ NULL, 0, NULL, 0 },
	};
	struct congestion_options *network = &options.network;
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'v':
			options.variant = (enum variant)choice(optarg, variants, RTE_DIM(variants));
			break;
		case 't':
			options.trees = (uint16_t)number(optarg, 1, FANIN_MAX_TREES);
			break;
		case 'b':
			options.background = (enum background)choice(optarg, backgrounds,
								     RTE_DIM(backgrounds));
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
		case 'S':
			network->n_spines = (uint16_t)number(optarg, 1, RIG_MAX_SPINES);
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
		case 'w':
			options.window = (uint16_t)number(optarg, 1, FANIN_WIRE_MAX_WINDOW);
			break;
		case 'm':
			options.background_mbit = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'M':
			options.message_bytes = (uint32_t)number(optarg, 1, 1 << 28);
			break;
		case 'q':
			network->queue_bytes = (uint32_t)number(optarg, 1, 1 << 28);
			break;
		case 'e':
			network->ecn_bytes = (uint32_t)number(optarg, 0, 1 << 28);
			break;
		case 'D':
			network->detour_bytes = (uint32_t)number(optarg, 0, 1 << 28);
			break;
		case 'n':
			options.busy_share = share(optarg);
			break;
		case 'N':
			options.busy_ns = number(optarg, 0, SECOND_NS);
			break;
		case 'd':
			options.descriptors = (uint32_t)number(optarg, 1, 1 << 20);
			break;
		case 'T':
			options.timeout_us = (uint32_t)number(optarg, 0, 1000000);
			break;
		case 'Q':
			options.queue_ns = number(optarg, 0, 1000000) * 1000;
			break;
		case 'R':
			options.bin_ns = number(optarg, 1, 1000000) * 1000;
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
	unsigned int lost;

	parse(argc, argv);
	eal_start();
	network_open();
	job_open();
	background_begin();
	run_all();
	print_run();
	if (run.ring != NULL)
		ring_player_destroy(run.ring);
	else
		congestion_job_close(&run.job);
	injection_end(&run.injection);
	congestion_trees_close(&run.trees);
	if (options.variant == VARIANT_CANARY)
		rig_leaders_destroy(&run.leaders);
	free(run.bins);
	lost = congestion_network_close(&run.network);
	if (lost != 0)
		die("the network", "packets are lost to a leak");
	return 0;
}
