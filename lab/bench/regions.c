/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * regions-bench: one run of `./dev bench regions`. Allreduces by a handler, `push`, `pull` or one
 * of the dense ones, over leaves and spines with links of one rate, in virtual time: real switches
 * and queues, real engines. Prints a JSON object. lab/bench/regions.py makes the tables of many
 * runs.
 */
#include <inttypes.h>

#include "lab/bench/congestion_run.h"
#include "tools/measure/options.h"

#define JOIN_NS (60 * SECOND_NS)
/* The library's default: intervals of questions follow from it. */
#define TIMEOUT_NS (5 * SECOND_NS)
#define MAX_COUNTERS FANIN_OWN_COUNTERS_MAX

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
	uint64_t away_every_ns; /* of each rank, on average; 0: no rank is ever away */
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
		     .n_packets = CONGESTION_PACKETS,
		     .max_jobs = 1 },
	.bytes = 4 << 20,
	.allreduces = 1,
	.window = 512,
	.payload_bytes = 1024,
	.limit_ns = 60 * SECOND_NS,
};

static struct congestion_run run;

static struct {
	struct rig_job tree;
	uint64_t counted[MAX_COUNTERS]; /* by switches, before the first allreduce */
} bench;

/* ------------------------------------------------------------------ building */

static void
network_open(void)
{
	/* A slot of a pull job counts twice. */
	options.network.slots = 4u * options.window;
	options.network.shared_slots = 2u * options.window;
	congestion_run_open(&run, &options.network, CONGESTION_MEGABYTES);
}

/*
 * Adds a parameter to the job, if it was given. A handler without that parameter refuses the job.
 */
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
			      options.network.n_ranks, 0, &bench.tree, error) != 0)
		virtual_die("the job", error);
	if (rig_job_join(&bench.tree, JOIN_NS) != 0)
		virtual_die("the job", "its ranks don't join");
}

static void
engine_add(uint16_t rank)
{
	struct shared_host *shared = &run.job.ranks[rank].shared;
	struct fanin_protocol_config config = { .timeout_ns = TIMEOUT_NS };
	struct fanin_error why = { 0 };
	struct fanin_endpoint *engine;

	rig_protocol_config(&bench.tree, rank, &config);
	config.transport = shared_host_add(shared, bench.tree.id);
	shared->random = random_seed(options.network.seed * 1000 + rank);
	shared->busy_share = options.busy_share;
	shared->busy_ns = options.busy_ns;
	shared->away_every_ns = options.away_every_ns;
	shared->away_ns = options.away_ns;
	if (run.job.protocol->open(run.job.protocol, &config, &engine, &why) != FANIN_OK)
		virtual_die("an engine", why.text);
	congestion_job_add(&run.job, rank, engine, config.transport);
}

static void
job_open(void)
{
	tree_open();
	congestion_run_job(&run, options.handler, options.bytes);
	for (uint16_t rank = 0; rank < run.job.n_ranks; rank++)
		engine_add(rank);
	congestion_run_start(&run);
}

/* ------------------------------------------------------------------ running */

/* Adds up one of the handler's own counters over all switches. */
static uint64_t
count_of(unsigned int position)
{
	const uint16_t n_jobs = (uint16_t)(bench.tree.n_leaves + (bench.tree.n_leaves > 1));
	uint64_t sum = 0;

	for (uint16_t i = 0; i < n_jobs; i++) {
		const struct job *job = bench.tree.jobs[i];

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

/* Runs an allreduce. Returns true if it has ended well. */
static bool
allreduce(void)
{
	struct rig *rig = run.network.rig;

	congestion_job_begin(&run.job, options.bytes);
	return rig_run(rig, rig_now_ns(rig) + options.limit_ns, is_done, NULL) &&
	       run.job.error[0] == '\0';
}

/* ------------------------------------------------------------------ what came of it */

static void
print_switches(void)
{
	const struct fanin_counter *counters = bench.tree.jobs[0]->handler->counters;

	json_open("\"switches\": {");
	for (unsigned int i = 0; counters != NULL && counters[i].name != NULL; i++)
		json_add("\"%s\": %" PRIu64, counters[i].name, count_of(i) - bench.counted[i]);
	json_close("}");
}

static void
print_hosts(void)
{
	struct fanin_report report = { 0 };

	congestion_job_report(&run.job, &report);
	json_add("\"hosts\": {\"frames_sent\": %" PRIu64 ", \"frames_received\": %" PRIu64
		 ", \"retransmits\": %" PRIu64 ", \"queries\": %" PRIu64
		 ", \"duplicates\": %" PRIu64 "}",
		 report.frames_sent, report.frames_received, report.retransmits, report.queries,
		 report.duplicates);
}

/* Prints the bytes of all links of each tier, and of the link that carried most. */
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
	json_open("\"links\": {");
	for (unsigned int tier = 0; tier < CONGESTION_TIERS; tier++)
		json_add("\"%s\": {\"bytes\": %" PRIu64 ", \"most\": %" PRIu64 "}",
			 congestion_tiers[tier], sum[tier], most[tier]);
	json_close("}");
	json_add("\"dropped\": %" PRIu64, dropped);
}

static void
print_run(void)
{
	json_open("{");
	json_add(
		"\"handler\": \"%s\", \"seed\": %" PRIu64
		", \"leaves\": %u, \"hosts_per_leaf\": %u, \"ranks\": %u, \"rate_mbit\": %u, \"bytes\": %" PRIu64
		", \"payload_bytes\": %u, \"window\": %u, \"entries\": %" PRIu64
		", \"waves\": %" PRIu64 ", \"wave_blocks\": %" PRIu64,
		options.handler, options.network.seed, options.network.n_leaves,
		options.network.hosts_per_leaf, options.network.n_ranks, options.network.rate_mbit,
		options.bytes, options.payload_bytes, options.window, options.entries,
		options.waves, options.wave_blocks);
	congestion_run_print(&run, options.allreduces);
	print_hosts();
	print_switches();
	print_links();
	json_close("}\n");
}

/* ------------------------------------------------------------------ options */

#define NUMBER(member, low, high) CLI_NUMBER(struct bench_options, member, low, high)
#define SHARE(member) .kind = CLI_SHARE, CLI_FIELD(struct bench_options, member)

static const struct cli_field fields[] = {
	{ "handler", "NAME", .kind = CLI_TEXT, CLI_FIELD(struct bench_options, handler) },
	{ "entries", "N", NUMBER(entries, 1, UINT32_MAX) },
	{ "waves", "N", NUMBER(waves, 1, UINT32_MAX) },
	{ "wave-blocks", "N", NUMBER(wave_blocks, 1, UINT32_MAX) },
	{ "seed", "N", NUMBER(network.seed, 0, UINT32_MAX) },
	{ "leaves", "N", NUMBER(network.n_leaves, 1, 16) },
	{ "hosts-per-leaf", "N", NUMBER(network.hosts_per_leaf, 1, 32) },
	{ "ranks", "N", NUMBER(network.n_ranks, 2, CONGESTION_MAX_HOSTS) },
	{ "bytes", "N", NUMBER(bytes, 4, 1 << 28) },
	{ "allreduces", "N", NUMBER(allreduces, 1, CONGESTION_MAX_RUNS) },
	{ "window", "BLOCKS", NUMBER(window, 1, FANIN_WIRE_MAX_WINDOW) },
	{ "payload-bytes", "N", NUMBER(payload_bytes, 64, 1408) },
	{ "rate-mbit", "N", NUMBER(network.rate_mbit, 1, 100000) },
	{ "queue-bytes", "N", NUMBER(network.queue_bytes, 1, 1 << 28) },
	{ "busy-share", "SHARE", SHARE(busy_share) },
	{ "busy-ns", "N", NUMBER(busy_ns, 0, SECOND_NS) },
	{ "away-every-ms", "N", NUMBER(away_every_ns, 0, 1000000), .unit = MS_NS },
	{ "away-ms", "N", NUMBER(away_ns, 0, 1000000), .unit = MS_NS },
	{ "loss", "SHARE", SHARE(network.loss) },
	{ "limit-ms", "N", NUMBER(limit_ns, 1, 1000000), .unit = MS_NS },
	{ 0 },
};

static const struct cli_program program = {
	.fields = fields,
	VIRTUAL_PROGRAM,
	.about =
		"usage: regions-bench --handler push|pull|single|... [--entries N] [--waves N] [--wave-blocks N] [--seed N]\n"
		"       [--leaves N] [--hosts-per-leaf N] [--ranks N] [--bytes N] [--allreduces N] [--window BLOCKS] [--payload-bytes N]\n"
		"       [--rate-mbit N] [--queue-bytes N] [--busy-share SHARE] [--busy-ns N] [--away-every-ms N] [--away-ms N] [--loss SHARE] [--limit-ms N]\n",
};

int
main(int argc, char **argv)
{
	struct cli_given given;

	if (cli_fields_parse(&program, &options, argc, argv, &given) != argc)
		bench_usage(&program, 2);
	network_open();
	job_open();
	for (unsigned int i = 0; i < MAX_COUNTERS; i++)
		bench.counted[i] = count_of(i);
	congestion_run_all(&run, options.allreduces, allreduce, NULL);
	print_run();
	congestion_job_close(&run.job);
	rig_job_destroy(&bench.tree);
	congestion_run_close(&run);
	return 0;
}
