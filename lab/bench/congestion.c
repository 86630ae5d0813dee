/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * congestion-bench: one run of `./dev bench congestion`. Allreduces over leaves and spines beside
 * background traffic, in virtual time: real switches and queues, real engines. Prints a JSON
 * object. lab/bench/congestion.py makes the tables of many runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/bench/congestion_canary.h"
#include "lab/bench/congestion_run.h"
#include "lab/bench/congestion_trees.h"
#include "lab/bench/injection.h"
#include "tools/measure/options.h"

/* Background traffic has filled its queues by the time the first allreduce begins. */
#define WARM_NS (20 * MS_NS)

enum variant {
	VARIANT_CANARY,
	VARIANT_RING,
	VARIANT_STATIC,
};

enum background {
	BACKGROUND_NONE,
	BACKGROUND_SPINE,       /* over the links of the first tree's spine */
	BACKGROUND_UNIFORM,     /* to random hosts */
	BACKGROUND_PERMUTATION, /* from each host to one other, which receives from no other host */
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
	uint32_t descriptors; /* of each switch, for Canary */
	uint32_t timeout_us;  /* for Canary; 0: learned */
	double busy_share;
	uint64_t busy_ns;
	uint64_t queue_ns; /* maximum of ranks' send queues; 0: any */
	uint64_t bin_ns;   /* length of a bin of the trace; 0: no trace */
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
	uint64_t most_waiting[CONGESTION_TIERS]; /* maximum of bytes that wait at a port, at the
						    bin's end */
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
		     .n_packets = CONGESTION_PACKETS },
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

static struct congestion_run run;

static struct {
	struct congestion_trees trees;
	struct rig_leaders leaders;
	struct ring_player *ring;
	struct injection injection;
	struct congestion_links last; /* at the end of the trace's last bin */
	struct bin *bins;
	size_t n_bins;
	struct occupancy occupancy[RIG_MAX_LEAVES + RIG_MAX_SPINES]; /* of each switch, for Canary
								      */
	uint64_t noted_ns;
	uint16_t spine; /* of the first tree, and of background traffic over one spine */
} bench;

/* ------------------------------------------------------------------ building */

static void
network_open(void)
{
	struct random random = random_seed(options.network.seed + 1000);

	options.network.mixed = options.background == BACKGROUND_SPINE;
	options.network.max_jobs = options.trees;
	options.network.shared_slots = options.variant == VARIANT_CANARY ? options.descriptors : 0;
	options.network.slots = 2u * options.window * options.trees;
	bench.spine = (uint16_t)random_below(&random, options.network.n_spines);
	congestion_run_open(&run, &options.network, CONGESTION_MEGABYTES);
}

static void
canary_open(char *error)
{
	const struct congestion_canary_options canary = {
		.window = options.window,
		.payload_bytes = options.payload_bytes,
		.timeout_us = options.timeout_us,
	};

	congestion_run_job(&run, "canary", options.bytes);
	if (congestion_canary_open(&bench.leaders, &run.job, &canary, error) != 0)
		virtual_die("the job", error);
}

static void
trees_open(char *error)
{
	const struct congestion_trees_options trees = {
		.n = options.trees,
		.first_spine = bench.spine,
		.window = options.window,
		.payload_bytes = options.payload_bytes,
	};

	congestion_run_job(&run, "single", options.bytes);
	if (congestion_trees_open(&bench.trees, &run.job, &trees, error) != 0)
		virtual_die("the trees", error);
}

static void
job_open(void)
{
	char error[PIPELINE_ERROR_LEN] = "";

	if (options.variant == VARIANT_RING) {
		bench.ring = congestion_run_ring(&run);
		return;
	}
	if (options.variant == VARIANT_CANARY)
		canary_open(error);
	else
		trees_open(error);
	congestion_run_start(&run);
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
		injection_uniform(&bench.injection, &network->leaf_spine, &made, network->others,
				  network->n_others);
	if (options.background == BACKGROUND_SPINE)
		injection_over_spine(&bench.injection, &network->leaf_spine, &made, network->others,
				     network->n_others, bench.spine);
	if (options.background == BACKGROUND_PERMUTATION)
		injection_permutation(&bench.injection, &network->leaf_spine, &made,
				      network->others, network->n_others);
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
		struct occupancy *occupancy = &bench.occupancy[i];

		occupancy->used_ns += (double)occupancy->used * (double)(now_ns - bench.noted_ns);
		occupancy->used = congestion_canary_descriptors(&bench.leaders, i).used;
		occupancy->most = RTE_MAX(occupancy->most, occupancy->used);
	}
	bench.noted_ns = now_ns;
}

/* Checks the condition of a run after each event. */
static bool
is_done(void *user)
{
	(void)user;
	occupancy_note();
	return bench.ring != NULL ? ring_player_is_done(bench.ring)
				  : congestion_job_is_done(&run.job);
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
	if (bench.ring == NULL)
		congestion_job_begin(&run.job, options.bytes);
	else if (ring_player_begin(bench.ring, options.bytes) != 0)
		virtual_die("the ring", "out of memory");
}

static void
bin_take(void)
{
	static struct congestion_links now;
	unsigned int n[CONGESTION_TIERS] = { 0 };
	struct bin *bin;

	bench.bins = realloc(bench.bins, (bench.n_bins + 1) * sizeof(*bench.bins));
	if (bench.bins == NULL)
		virtual_die("the trace", "out of memory");
	bin = &bench.bins[bench.n_bins++];
	memset(bin, 0, sizeof(*bin));
	congestion_links_read(&run.network, &now);
	for (uint16_t i = 0; i < now.n; i++) {
		const struct congestion_link *link = &now.links[i];

		n[link->tier]++;
		bin->used[link->tier] += (double)(link->bytes - bench.last.links[i].bytes) * 8000 /
					 ((double)options.bin_ns * options.network.rate_mbit);
		bin->most_waiting[link->tier] = RTE_MAX(bin->most_waiting[link->tier],
							link->waiting);
	}
	for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
		bin->used[tier] /= RTE_MAX(n[tier], 1u);
	bench.last = now;
}

/*
 * Lets time pass until the allreduce is done, and adds a bin to the trace when one ends. Returns
 * true if it is done.
 */
static bool
pass(uint64_t until_ns)
{
	struct rig *rig = run.network.rig;

	if (options.bin_ns == 0)
		return rig_run(rig, until_ns, is_done, NULL);
	congestion_links_read(&run.network, &bench.last);
	while (rig_now_ns(rig) < until_ns) {
		if (rig_run(rig, rig_now_ns(rig) + options.bin_ns, is_done, NULL))
			return true;
		bin_take();
	}
	return false;
}

/* Runs an allreduce. Returns true if it has ended well. */
static bool
allreduce(void)
{
	allreduce_begin();
	return pass(rig_now_ns(run.network.rig) + options.limit_ns) && run.job.error[0] == '\0';
}

/* ------------------------------------------------------------------ what came of it */

static void
print_link(const struct congestion_link *before, const struct congestion_link *after)
{
	const double most = (double)(run.ended_ns - run.began_ns) * options.network.rate_mbit /
			    8000;

	json_add("{\"tier\": \"%s\", \"leaf\": %u, \"other\": %u, \"used\": %.4f, "
		 "\"dropped\": %" PRIu64 ", \"marked\": %" PRIu64 "}",
		 congestion_tiers[after->tier], after->leaf, after->other,
		 (double)(after->bytes - before->bytes) / most, after->dropped - before->dropped,
		 after->marked - before->marked);
}

static void
print_hosts(void)
{
	struct fanin_report report = { 0 };
	struct ring_player_stats ring = { 0 };

	if (bench.ring != NULL)
		ring_player_stats(bench.ring, &ring);
	else
		congestion_job_report(&run.job, &report);
	json_add("\"hosts\": {\"frames_sent\": %" PRIu64 ", \"retransmits\": %" PRIu64
		 ", \"queries\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"timeouts\": %" PRIu64
		 "}",
		 bench.ring != NULL ? ring.sent : report.frames_sent,
		 bench.ring != NULL ? ring.sent - ring.packets * run.n_done : report.retransmits,
		 report.queries, report.duplicates, ring.timeouts);
}

static void
print_switches(void)
{
	const char *name;
	uint64_t sum;

	json_open("\"switches\": {");
	for (unsigned int i = 0; (name = congestion_canary_count(&bench.leaders, i, &sum)) != NULL;
	     i++)
		json_add("\"%s\": %" PRIu64, name, sum);
	json_close("}");
	json_add("\"timeout_ns\": %" PRIu64, congestion_canary_timeout_ns(&bench.leaders));
}

/*
 * Prints the descriptors of each switch over all allreduces, including pauses. Those that are left
 * wait for results that will not come.
 */
static void
print_descriptors(void)
{
	const double elapsed_ns = (double)(run.ended_ns - run.began_ns);

	json_open("\"descriptors\": [");
	for (uint16_t i = 0; i < n_switches(); i++) {
		const struct occupancy *occupancy = &bench.occupancy[i];
		const struct congestion_descriptors found =
			congestion_canary_descriptors(&bench.leaders, i);

		json_add("{\"tier\": \"%s\", \"mean\": %.3f, \"most\": %" PRIu32
			 ", \"left\": %" PRIu32 ", \"released\": %" PRIu64 ", \"held_ns\": %" PRIu64
			 "}",
			 i < options.network.n_leaves ? "leaf" : "spine",
			 occupancy->used_ns / elapsed_ns, occupancy->most, occupancy->used,
			 found.released, found.held_ns);
	}
	json_close("]");
}

static void
print_trace(void)
{
	json_open("\"trace\": {");
	json_add("\"bin_seconds\": %.9f", (double)options.bin_ns / 1e9);
	json_open("\"bins\": [");
	for (size_t b = 0; b < bench.n_bins; b++) {
		json_open("{");
		for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
			json_add("\"%s\": {\"used\": %.3f, \"most_waiting\": %" PRIu64 "}",
				 congestion_tiers[tier], bench.bins[b].used[tier],
				 bench.bins[b].most_waiting[tier]);
		json_close("}");
	}
	json_close("]}");
}

static void
print_run(void)
{
	json_open("{");
	json_add(
		"\"variant\": \"%s\", \"trees\": %u, \"background\": \"%s\", \"seed\": %" PRIu64
		", \"leaves\": %u, \"hosts_per_leaf\": %u, \"spines\": %u, \"ranks\": %u, \"spine\": %u, \"bytes\": %" PRIu64,
		variants[options.variant], options.variant == VARIANT_STATIC ? options.trees : 0,
		backgrounds[options.background], options.network.seed, options.network.n_leaves,
		options.network.hosts_per_leaf, options.network.n_spines, options.network.n_ranks,
		bench.spine, options.bytes);
	congestion_run_print(&run, options.allreduces);
	print_hosts();
	if (options.variant == VARIANT_CANARY) {
		print_switches();
		print_descriptors();
	}
	json_add("\"background_sent\": %" PRIu64 ", \"background_delivered\": %" PRIu64,
		 bench.injection.sent, injection_delivered(&bench.injection));
	json_open("\"links\": [");
	for (uint16_t i = 0; i < run.after.n; i++)
		print_link(&run.before.links[i], &run.after.links[i]);
	json_close("]");
	if (options.bin_ns != 0)
		print_trace();
	json_close("}\n");
}

/* ------------------------------------------------------------------ options */

#define NUMBER(member, low, high) CLI_NUMBER(struct bench_options, member, low, high)
#define SHARE(member) .kind = CLI_SHARE, CLI_FIELD(struct bench_options, member)
#define CHOICE(member, names)                                                                      \
	.kind = CLI_CHOICE, CLI_FIELD(struct bench_options, member), CLI_NAMES(names)

static const struct cli_field fields[] = {
	{ "variant", "NAME", CHOICE(variant, variants) },
	{ "trees", "N", NUMBER(trees, 1, FANIN_MAX_TREES) },
	{ "background", "NAME", CHOICE(background, backgrounds) },
	{ "seed", "N", NUMBER(network.seed, 0, UINT32_MAX) },
	{ "leaves", "N", NUMBER(network.n_leaves, 1, 16) },
	{ "hosts-per-leaf", "N", NUMBER(network.hosts_per_leaf, 1, 32) },
	{ "spines", "N", NUMBER(network.n_spines, 1, RIG_MAX_SPINES) },
	{ "ranks", "N", NUMBER(network.n_ranks, 2, CONGESTION_MAX_HOSTS) },
	{ "bytes", "N", NUMBER(bytes, 4, 1 << 28) },
	{ "allreduces", "N", NUMBER(allreduces, 1, CONGESTION_MAX_RUNS) },
	{ "window", "BLOCKS", NUMBER(window, 1, FANIN_WIRE_MAX_WINDOW) },
	{ "background-mbit", "N", NUMBER(background_mbit, 1, 100000) },
	{ "message-bytes", "N", NUMBER(message_bytes, 1, 1 << 28) },
	{ "queue-bytes", "N", NUMBER(network.queue_bytes, 1, 1 << 28) },
	{ "ecn-bytes", "N", NUMBER(network.ecn_bytes, 0, 1 << 28) },
	{ "detour-bytes", "N", NUMBER(network.detour_bytes, 0, 1 << 28) },
	{ "busy-share", "SHARE", SHARE(busy_share) },
	{ "busy-ns", "N", NUMBER(busy_ns, 0, SECOND_NS) },
	{ "descriptors", "N", NUMBER(descriptors, 1, 1 << 20) },
	{ "timeout-us", "N", NUMBER(timeout_us, 0, 1000000) },
	{ "send-queue-us", "N", NUMBER(queue_ns, 0, 1000000), .unit = 1000 },
	{ "trace-us", "N", NUMBER(bin_ns, 1, 1000000), .unit = 1000 },
	{ "limit-ms", "N", NUMBER(limit_ns, 1, 1000000), .unit = MS_NS },
	{ 0 },
};

static const struct cli_program program = {
	.fields = fields,
	VIRTUAL_PROGRAM,
	.about =
		"usage: congestion-bench --variant canary|ring|static [--trees N] [--background none|spine|uniform|permutation] [--seed N]\n"
		"       [--leaves N] [--hosts-per-leaf N] [--spines N] [--ranks N] [--bytes N] [--allreduces N] [--window BLOCKS]\n"
		"       [--background-mbit N] [--message-bytes N] [--queue-bytes N] [--ecn-bytes N] [--detour-bytes N] [--busy-share SHARE] [--busy-ns N]\n"
		"       [--descriptors N] [--timeout-us N] [--send-queue-us N] [--trace-us N] [--limit-ms N]\n",
};

int
main(int argc, char **argv)
{
	struct cli_given given;

	if (cli_fields_parse(&program, &options, argc, argv, &given) != argc)
		bench_usage(&program, 2);
	network_open();
	job_open();
	background_begin();
	bench.noted_ns = rig_now_ns(run.network.rig);
	congestion_run_all(&run, options.allreduces, allreduce, is_never);
	print_run();
	if (bench.ring != NULL)
		ring_player_destroy(bench.ring);
	else
		congestion_job_close(&run.job);
	injection_end(&bench.injection);
	congestion_trees_close(&bench.trees);
	if (options.variant == VARIANT_CANARY)
		rig_leaders_destroy(&bench.leaders);
	free(bench.bins);
	congestion_run_close(&run);
	return 0;
}
