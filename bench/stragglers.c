/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stragglers-bench: one run of `./dev bench stragglers`. Jobs with a parameter server beside background
 * traffic in a dumbbell, in virtual time: real switches and queues, real engines, the real server.
 * Prints a JSON object. bench/stragglers.py makes the tables of many runs.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>

#include "bench/straggler_job.h"
#include "hostlib/src/cc/dual.h"
#include "hostlib/src/server/server.h"
#include "pipeline/base/worker.h"
#include "reference/random.h"

#define MS_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)
#define MAX_JOBS DUMBBELL_MAX_SERVERS
#define RATE_MBIT 100u
#define HOST_RATE_MBIT 1000u
#define DELAY_NS 5000u
#define QUEUE_BYTES 256000u
#define PACKETS 65535u
#define EAL_MEGABYTES 512
/* A run that takes longer has failed. */
#define MOST_SECONDS 120u

enum scenario {
	SCENARIO_JOBS,     /* jobs on random paths beside flows */
	SCENARIO_TIMELINE, /* the paper's figure 8 */
	SCENARIO_FAIRNESS, /* a job beside flows that do not end */
};

struct bench_options {
	enum scenario scenario;
	const struct fanin_dual_type *type;
	uint64_t seed;
	double load;
	uint32_t aggregators;
	uint32_t ecn_bytes;
	uint32_t back_mbit;   /* of paths towards the workers */
	uint32_t server_mbit; /* of links to servers */
	uint16_t window;
	uint16_t n_jobs;
	uint16_t n_ranks;
	uint16_t n_paths;
	uint16_t loaded_paths; /* background traffic is on the first ones */
	uint32_t iterations;
	uint64_t bytes;
	uint32_t fixed_window;
	uint32_t eta_percent;
	uint32_t bdp;
	uint32_t p_max_percent;   /* 0: the usual one */
	uint32_t flows;           /* of FAIRNESS, on path 0 */
	uint32_t other_flows;     /* of FAIRNESS, on the others together */
	bool udp;                 /* flows by UDP at the paths' rate, in place of DCTCP */
	const char *worker_paths; /* a digit for each worker; NULL: random ones */
	uint64_t bin_ns;          /* of the trace; 0: none */
};

static struct bench_options options = {
	.seed = 1,
	.load = 0.5,
	.aggregators = 8192,
	.ecn_bytes = 50000,
	.back_mbit = HOST_RATE_MBIT,
	.server_mbit = RATE_MBIT,
	.window = 4096,
	.n_jobs = 2,
	.n_ranks = 3,
	.n_paths = 4,
	.loaded_paths = 4,
	.iterations = 5,
	.bytes = 2000000,
	/* SwitchML's at 100 Gbit/s is 512 packets of 128 bytes. */
	.fixed_window = 64,
	.eta_percent = 80,
	.bdp = 64,
	.flows = 3,
	.other_flows = 0,
};

/* Values of one bin of the trace. */
struct bin {
	uint64_t sent[DUMBBELL_MAX_WORKERS]; /* bytes, since the beginning */
	uint64_t results[MAX_JOBS];          /* blocks that the slowest rank has */
	uint64_t path_bytes[DUMBBELL_MAX_PATHS];
	uint64_t background[DUMBBELL_MAX_PATHS];
	uint64_t server_bytes[DUMBBELL_MAX_SERVERS];
	uint64_t ahead[DUMBBELL_MAX_WORKERS]; /* blocks with a GACK and without a result */
	double cwd[DUMBBELL_MAX_WORKERS];
	double awd[DUMBBELL_MAX_WORKERS];
	double alpha[DUMBBELL_MAX_WORKERS];
	double p[DUMBBELL_MAX_WORKERS];
};

static struct {
	struct dumbbell dumbbell;
	struct straggler_job jobs[MAX_JOBS];
	uint16_t n_jobs;
	struct background *background;
	struct flow_schedule schedule;
	uint64_t began_ns;
	struct background_stats before; /* at that time */
	struct bin *bins;
	size_t n_bins;
} run;

static void __attribute__((noreturn)) die(const char *what, const char *why)
{
	fprintf(stderr, "stragglers-bench: %s: %s\n", what, why);
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
		 "stragglers-bench --no-huge --no-shconf --no-pci --no-telemetry -m %u --lcores 0@(0-1) --log-level=error",
		 EAL_MEGABYTES);
	for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		die("DPDK", "it does not start");
}

static void
network_open(void)
{
	struct dumbbell_options made = {
		.seed = options.seed,
		.n_paths = options.n_paths,
		.n_workers = (uint16_t)(options.n_jobs * options.n_ranks),
		.n_servers = options.n_jobs,
		.rate_mbit = RATE_MBIT,
		.server_rate_mbit = options.server_mbit,
		.back_rate_mbit = options.back_mbit,
		.host_rate_mbit = HOST_RATE_MBIT,
		.ecn_bytes = options.ecn_bytes,
		.queue_bytes = QUEUE_BYTES,
		.delay_ns = DELAY_NS,
		.aggregators = options.aggregators,
		.server_bytes = UINT64_C(64) << 20,
		.max_jobs = options.n_jobs,
		.n_packets = PACKETS,
	};
	struct random random = random_seed(options.seed + 1000);
	const char *chosen = options.worker_paths;
	char error[RIG_ERROR_LEN] = "";

	for (uint16_t w = 0; w < made.n_workers; w++)
		made.path_of_worker[w] = chosen != NULL
						 ? (uint16_t)(chosen[w] - '0')
						 : (uint16_t)random_below(&random, options.n_paths);
	if (options.scenario == SCENARIO_TIMELINE) {
		static const uint16_t paths[] = { 0, 1, 1, 2 }; /* of A's workers and B's */

		memcpy(made.path_of_worker, paths, sizeof(paths));
	} else if (options.scenario == SCENARIO_FAIRNESS) {
		for (uint16_t w = 0; w < made.n_workers; w++)
			made.path_of_worker[w] = w % options.n_paths;
	}
	if (dumbbell_open(&run.dumbbell, &made, error) != 0)
		die("the network", error);
	run.background = background_create(run.dumbbell.rig, run.dumbbell.paths, options.n_paths);
	if (run.background == NULL)
		die("background traffic", "out of memory");
}

static void
jobs_open(void)
{
	char error[PIPELINE_ERROR_LEN] = "";

	/* All are made before the first rank joins: it is told how many share the aggregators. */
	for (uint16_t j = 0; j < options.n_jobs; j++) {
		const struct straggler_job_options made = {
			.id = j + 1u,
			.first_worker = (uint16_t)(j * options.n_ranks),
			.n_ranks = options.n_ranks,
			.server = j,
			.window = options.window,
			.payload_bytes = 1024,
			.congestion = (uint32_t)(options.type - fanin_dual_types),
			.fixed_window = options.fixed_window,
			.eta_percent = options.eta_percent,
			.bdp = options.bdp,
			.p_max_percent = options.p_max_percent,
			.iterations = options.iterations,
			/* Jobs A and B of the paper's figure 8 have 7 and 3 MB. */
			.bytes = options.scenario != SCENARIO_TIMELINE ? options.bytes
				 : j == 0                              ? 7000000
								       : 3000000,
		};

		if (straggler_job_open(&run.jobs[j], &run.dumbbell, &made, error) != 0)
			die("a job", error);
		run.n_jobs++;
	}
	for (uint16_t j = 0; j < options.n_jobs; j++) {
		if (straggler_job_join(&run.jobs[j], error) != 0)
			die("a job", error);
	}
}

/* ------------------------------------------------------------------ running */

/* Blocks whose results the job's slowest rank has. */
static uint64_t
results_of(const struct straggler_job *job)
{
	uint64_t least = UINT64_MAX;

	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++) {
		struct fanin_report report;

		straggler_job_report(job, rank, &report);
		least = RTE_MIN(least, report.aacks);
	}
	return least;
}

static void
bin_take(void)
{
	struct bin *bin;

	run.bins = realloc(run.bins, (run.n_bins + 1) * sizeof(*run.bins));
	if (run.bins == NULL)
		die("the trace", "out of memory");
	bin = &run.bins[run.n_bins++];
	memset(bin, 0, sizeof(*bin));
	for (uint16_t j = 0; j < run.n_jobs; j++) {
		for (uint16_t rank = 0; rank < options.n_ranks; rank++) {
			const uint16_t worker = (uint16_t)(j * options.n_ranks + rank);
			struct fanin_report report;

			straggler_job_report(&run.jobs[j], rank, &report);
			bin->sent[worker] = rig_host_traffic(run.dumbbell.workers[worker].host).bytes;
			bin->cwd[worker] = report.cwd;
			bin->awd[worker] = report.awd;
			bin->alpha[worker] = report.alpha;
			bin->p[worker] = report.progress_degree;
			bin->ahead[worker] = report.gacks > report.aacks ? report.gacks - report.aacks
									 : 0;
		}
		bin->server_bytes[j] = dumbbell_server_traffic(&run.dumbbell, j).bytes;
		bin->results[j] = results_of(&run.jobs[j]);
	}
	for (uint16_t p = 0; p < options.n_paths; p++) {
		bin->path_bytes[p] = dumbbell_path_traffic(&run.dumbbell, p).bytes;
		bin->background[p] = background_delivered(run.background, p);
	}
}

static bool
all_are_done(void *user)
{
	(void)user;
	for (uint16_t j = 0; j < run.n_jobs; j++) {
		/* One that has not begun is not done. */
		if (!straggler_job_is_done(&run.jobs[j]))
			return false;
	}
	return true;
}

/* Lets time pass until then, with a bin of the trace now and then. Returns true if all jobs are done. */
static bool
pass(uint64_t until_ns)
{
	struct rig *rig = run.dumbbell.rig;

	while (rig_now_ns(rig) < until_ns) {
		const uint64_t next_ns =
			options.bin_ns == 0 ? until_ns
					    : RTE_MIN(until_ns, rig_now_ns(rig) + options.bin_ns);
		const bool done = rig_run(rig, next_ns, all_are_done, NULL);

		if (options.bin_ns != 0)
			bin_take();
		if (done)
			return true;
	}
	return false;
}

static void
mark_beginning(void)
{
	run.began_ns = rig_now_ns(run.dumbbell.rig);
	run.before = *background_stats(run.background);
	if (options.bin_ns != 0)
		bin_take();
}

static void
run_jobs(void)
{
	const struct flow_schedule_options made = {
		.seed = options.seed,
		.load = options.load,
		.rate_mbit = RATE_MBIT,
		.n_paths = options.loaded_paths,
		.seconds = MOST_SECONDS,
	};
	struct rig *rig = run.dumbbell.rig;

	if (options.load > 0) {
		if (flow_schedule_make(&run.schedule, &made) != 0 ||
		    background_flows(run.background, &run.schedule, rig_now_ns(rig),
				     options.udp ? RATE_MBIT : 0) != 0)
			die("background traffic", "out of memory");
		/* Queues and flows are there when the jobs begin. */
		rig_run(rig, rig_now_ns(rig) + SECOND_NS, NULL, NULL);
	}
	mark_beginning();
	for (uint16_t j = 0; j < run.n_jobs; j++)
		straggler_job_begin(&run.jobs[j]);
	pass(run.began_ns + (MOST_SECONDS - 2) * SECOND_NS);
	/* Flows sum up to the load in whole seconds. */
	rig_run(rig, run.began_ns + ((rig_now_ns(rig) - run.began_ns) / SECOND_NS + 1) * SECOND_NS,
		NULL, NULL);
}

/* The paper's 1 ms at 40 Gbit/s are 400 ms here. */
#define TIMELINE_NS (400 * MS_NS)

static void
run_timeline(void)
{
	mark_beginning();
	background_udp(run.background, 0, RATE_MBIT * 4 / 5, run.began_ns,
		       run.began_ns + TIMELINE_NS);
	straggler_job_begin(&run.jobs[0]);
	pass(run.began_ns + TIMELINE_NS);
	straggler_job_begin(&run.jobs[1]);
	pass(run.began_ns + MOST_SECONDS * SECOND_NS);
}

static void
run_fairness(void)
{
	struct rig *rig = run.dumbbell.rig;

	run.schedule.n = options.flows + options.other_flows;
	run.schedule.flows = calloc(run.schedule.n + 1, sizeof(run.schedule.flows[0]));
	if (run.schedule.flows == NULL)
		die("background traffic", "out of memory");
	for (uint32_t f = 0; f < run.schedule.n; f++)
		run.schedule.flows[f] = (struct flow_arrival){
			.bytes = UINT32_MAX / 2,
			.at_ns = f * 10 * MS_NS,
			.path = f < options.flows ? 0
						  : (uint16_t)(1 + (f - options.flows) %
									   (options.n_paths - 1u)),
		};
	if (background_flows(run.background, &run.schedule, rig_now_ns(rig), 0) != 0)
		die("background traffic", "out of memory");
	rig_run(rig, rig_now_ns(rig) + SECOND_NS, NULL, NULL);
	mark_beginning();
	for (uint16_t j = 0; j < run.n_jobs; j++)
		straggler_job_begin(&run.jobs[j]);
	pass(run.began_ns + MOST_SECONDS * SECOND_NS);
}

/* ------------------------------------------------------------------ what came of it */

static void
print_rank(const struct straggler_job *job, uint16_t rank)
{
	const uint16_t worker = (uint16_t)(job->options.first_worker + rank);
	struct fanin_report report;

	straggler_job_report(job, rank, &report);
	printf("%s{\"path\": %u, \"sent_bytes\": %" PRIu64 ", \"retransmits\": %" PRIu64
	       ", \"queries\": %" PRIu64 ", \"asks_answered\": %" PRIu64 ", \"gacks\": %" PRIu64
	       ", \"marks\": %" PRIu64 ", \"aecns\": %" PRIu64
	       ", \"cwd\": %.2f, \"awd\": %.2f, \"alpha\": %.4f, \"beta\": %.4f}",
	       rank == 0 ? "" : ", ", run.dumbbell.options.path_of_worker[worker],
	       rig_host_traffic(run.dumbbell.workers[worker].host).bytes, report.retransmits,
	       report.queries, report.asks_answered, report.gacks, report.marks, report.aecns,
	       report.cwd, report.awd, report.alpha, report.beta);
}

static void
print_switch(const struct straggler_job *job)
{
	const struct fanin_counter *counters = job->job->handler->counters;

	printf("\"switch\": {");
	for (unsigned int c = 0; counters != NULL && counters[c].name != NULL; c++) {
		uint64_t sum = 0;

		for (uint16_t w = 0; w < job->job->n_workers; w++)
			sum += job->job->worker_stats[w].stats.own[c];
		printf("%s\"%s\": %" PRIu64, c == 0 ? "" : ", ", counters[c].name, sum);
	}
	printf("}");
}

static void
print_server(const struct straggler_job *job)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };
	unsigned int n = 0;

	fanin_server_job_describe(
		fanin_server_core_job(rig_server_core(run.dumbbell.servers[job->options.server]),
				      job->options.id),
		&stats);
	printf("\"server\": {");
#define FANIN_SERVER_COUNTER(field, text)                                                          \
	printf("%s\"%s\": %" PRIu64, n++ == 0 ? "" : ", ", #field, stats.field);
	FANIN_SERVER_COUNTERS(FANIN_SERVER_COUNTER)
#undef FANIN_SERVER_COUNTER
	printf("}");
}

static void
print_job(const struct straggler_job *job)
{
	uint64_t last_ns = job->begin_ns;

	printf("{\"exact\": %s, \"error\": \"%s\", \"done\": %s, \"begin\": %.6f, \"iterations\": [",
	       job->wrong ? "false" : "true", job->error,
	       straggler_job_is_done(job) ? "true" : "false",
	       (double)(job->begin_ns - run.began_ns) / 1e9);
	for (uint32_t i = 0; i < job->options.iterations && job->end_ns[i] != 0; i++) {
		printf("%s%.6f", i == 0 ? "" : ", ", (double)(job->end_ns[i] - last_ns) / 1e9);
		last_ns = job->end_ns[i];
	}
	printf("], \"seconds\": %.6f, \"ranks\": [", (double)(last_ns - job->begin_ns) / 1e9);
	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++)
		print_rank(job, rank);
	printf("], ");
	print_switch(job);
	printf(", ");
	print_server(job);
	printf(", \"server_dropped\": %" PRIu64 "}",
	       dumbbell_server_drops(&run.dumbbell, job->options.server));
}

static void
print_background(void)
{
	const struct background_stats *stats = background_stats(run.background);
	const double seconds = (double)(rig_now_ns(run.dumbbell.rig) - run.began_ns) / 1e9;
	const double capacity = seconds * RATE_MBIT * 1e6 / 8 * options.loaded_paths;

	printf("\"background\": {\"wanted_load\": %.4f, \"offered_load\": %.4f, \"delivered_load\": %.4f, \"flows\": %" PRIu64
	       ", \"done\": %" PRIu64
	       ", \"mean_seconds\": %.6f, \"marked_share\": %.4f, \"timeouts\": %" PRIu64 "}",
	       options.load, (double)(stats->offered - run.before.offered) / capacity,
	       (double)(stats->delivered - run.before.delivered) / capacity, stats->flows,
	       stats->done, stats->done == 0 ? 0 : stats->done_ns / 1e9 / (double)stats->done,
	       stats->received == 0 ? 0 : (double)stats->marked / (double)stats->received,
	       stats->timeouts);
}

static void
print_paths(void)
{
	printf("\"paths\": [");
	for (uint16_t p = 0; p < options.n_paths; p++) {
		const struct worker *worker = rig_switch_pipeline(run.dumbbell.near[p])->workers[0];

		printf("%s{\"bytes\": %" PRIu64 ", \"background_bytes\": %" PRIu64
		       ", \"dropped\": %" PRIu64 ", \"marked\": %" PRIu64 "}",
		       p == 0 ? "" : ", ", dumbbell_path_traffic(&run.dumbbell, p).bytes,
		       background_delivered(run.background, p),
		       worker->counters.ports[0].tx_dropped, worker->counters.ports[0].ecn_marked);
	}
	printf("]");
}

/* Rates are those of each bin, Mbit/s; the other values are those at its end. */
static void
print_trace(void)
{
	const double to_mbit = 8e3 / (double)options.bin_ns;
	const uint16_t n_workers = run.dumbbell.options.n_workers;

	printf("\"trace\": {\"bin_seconds\": %.4f, \"bins\": [", (double)options.bin_ns / 1e9);
	for (size_t b = 1; b < run.n_bins; b++) {
		const struct bin *bin = &run.bins[b];
		const struct bin *last = &run.bins[b - 1];

		printf("%s{\"sent_mbit\": [", b == 1 ? "" : ", ");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%.2f", w == 0 ? "" : ", ",
			       (double)(bin->sent[w] - last->sent[w]) * to_mbit);
		printf("], \"aggregated_mbit\": [");
		for (uint16_t j = 0; j < run.n_jobs; j++)
			printf("%s%.2f", j == 0 ? "" : ", ",
			       (double)(bin->results[j] - last->results[j]) * 1024 * to_mbit);
		printf("], \"background_mbit\": [");
		for (uint16_t p = 0; p < options.n_paths; p++)
			printf("%s%.2f", p == 0 ? "" : ", ",
			       (double)(bin->background[p] - last->background[p]) * to_mbit);
		printf("], \"path_mbit\": [");
		for (uint16_t p = 0; p < options.n_paths; p++)
			printf("%s%.2f", p == 0 ? "" : ", ",
			       (double)(bin->path_bytes[p] - last->path_bytes[p]) * to_mbit);
		printf("], \"server_mbit\": [");
		for (uint16_t j = 0; j < run.n_jobs; j++)
			printf("%s%.2f", j == 0 ? "" : ", ",
			       (double)(bin->server_bytes[j] - last->server_bytes[j]) * to_mbit);
		printf("], \"ahead\": [");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%" PRIu64, w == 0 ? "" : ", ", bin->ahead[w]);
		printf("], \"cwd\": [");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%.1f", w == 0 ? "" : ", ", bin->cwd[w]);
		printf("], \"awd\": [");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%.1f", w == 0 ? "" : ", ", bin->awd[w]);
		printf("], \"alpha\": [");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%.3f", w == 0 ? "" : ", ", bin->alpha[w]);
		printf("], \"p\": [");
		for (uint16_t w = 0; w < n_workers; w++)
			printf("%s%.2f", w == 0 ? "" : ", ", bin->p[w]);
		printf("]}");
	}
	printf("]}");
}

static void
print_run(void)
{
	static const char *const names[] = { "jobs", "timeline", "fairness" };

	printf("{\"scenario\": \"%s\", \"member\": \"%s\", \"seed\": %" PRIu64
	       ", \"aggregators\": %u, \"window\": %u, \"ecn_bytes\": %u, \"jobs\": [",
	       names[options.scenario], options.type->name, options.seed, options.aggregators,
	       options.window, options.ecn_bytes);
	for (uint16_t j = 0; j < run.n_jobs; j++) {
		if (j != 0)
			printf(", ");
		print_job(&run.jobs[j]);
	}
	printf("], ");
	print_background();
	printf(", ");
	print_paths();
	if (options.bin_ns != 0) {
		printf(", ");
		print_trace();
	}
	printf("}\n");
}

/* ------------------------------------------------------------------ options */

static void __attribute__((noreturn)) usage(void)
{
	fputs("usage: stragglers-bench --member NAME [--scenario jobs|timeline|fairness] [--seed N] [--load SHARE]\n"
	      "       [--aggregators N] [--window BLOCKS] [--jobs N] [--ranks N] [--paths N] [--loaded-paths N]\n"
	      "       [--iterations N] [--bytes N] [--ecn-bytes N] [--fixed-window BLOCKS] [--eta PERCENT] [--bdp PACKETS]\n"
	      "       [--flows N] [--other-flows N] [--trace-ms N] [--back-mbit N] [--server-mbit N] [--udp]\n"
	      "       [--p-max PERCENT] [--worker-paths DIGITS]\n"
	      "--member: sync, atp, straw, straw+progress, straw+limit or pa-atp\n",
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
			"stragglers-bench: found '%s', expected a number from %" PRIu64
			" to %" PRIu64 "\n",
			text, least, most);
		exit(2);
	}
	return value;
}

static enum scenario
scenario_of(const char *name)
{
	if (strcmp(name, "jobs") == 0)
		return SCENARIO_JOBS;
	if (strcmp(name, "timeline") == 0)
		return SCENARIO_TIMELINE;
	if (strcmp(name, "fairness") == 0)
		return SCENARIO_FAIRNESS;
	usage();
}

static double
share(const char *text)
{
	char *end;
	const double value = strtod(text, &end);

	if (*text == '\0' || *end != '\0' || !(value >= 0 && value <= 1)) {
		fprintf(stderr, "stragglers-bench: found '%s', expected a number from 0 to 1\n",
			text);
		exit(2);
	}
	return value;
}

/* A digit for each worker, less than the number of paths. */
static void
worker_paths_check(void)
{
	const size_t n = (size_t)options.n_jobs * options.n_ranks;
	const char *paths = options.worker_paths;
	bool is_right = strlen(paths) == n;

	for (size_t i = 0; is_right && i < n; i++)
		is_right = paths[i] >= '0' && paths[i] - '0' < options.n_paths;
	if (!is_right) {
		fprintf(stderr,
			"stragglers-bench: found the workers' paths '%s', expected %zu digits below %u\n",
			paths, n, options.n_paths);
		exit(2);
	}
}

static void
parse(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "scenario", required_argument, NULL, 'x' },
		{ "member", required_argument, NULL, 'm' },
		{ "seed", required_argument, NULL, 's' },
		{ "load", required_argument, NULL, 'l' },
		{ "aggregators", required_argument, NULL, 'a' },
		{ "window", required_argument, NULL, 'w' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "ranks", required_argument, NULL, 'r' },
		{ "paths", required_argument, NULL, 'p' },
		{ "loaded-paths", required_argument, NULL, 'L' },
		{ "iterations", required_argument, NULL, 'i' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "ecn-bytes", required_argument, NULL, 'e' },
		{ "fixed-window", required_argument, NULL, 'f' },
		{ "eta", required_argument, NULL, 'n' },
		{ "bdp", required_argument, NULL, 'd' },
		{ "udp", no_argument, NULL, 'u' },
		{ "back-mbit", required_argument, NULL, 'B' },
		{ "server-mbit", required_argument, NULL, 'S' },
		{ "p-max", required_argument, NULL, 'P' },
		{ "worker-paths", required_argument, NULL, 'W' },
		{ "flows", required_argument, NULL, 'F' },
		{ "other-flows", required_argument, NULL, 'O' },
		{ "trace-ms", required_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'x':
			options.scenario = scenario_of(optarg);
			break;
		case 'm':
			options.type = fanin_dual_find(optarg);
			break;
		case 's':
			options.seed = number(optarg, 0, UINT32_MAX);
			break;
		case 'l':
			options.load = share(optarg);
			break;
		case 'a':
			options.aggregators = (uint32_t)number(optarg, 1, 1 << 20);
			break;
		case 'w':
			options.window = (uint16_t)number(optarg, 1, FANIN_WIRE_MAX_WINDOW);
			break;
		case 'j':
			options.n_jobs = (uint16_t)number(optarg, 1, MAX_JOBS);
			break;
		case 'r':
			options.n_ranks = (uint16_t)number(optarg, 1, STRAGGLER_MOST_RANKS);
			break;
		case 'p':
			options.n_paths = (uint16_t)number(optarg, 1, DUMBBELL_MAX_PATHS);
			break;
		case 'L':
			options.loaded_paths = (uint16_t)number(optarg, 1, DUMBBELL_MAX_PATHS);
			break;
		case 'i':
			options.iterations = (uint32_t)number(optarg, 1, 10000);
			break;
		case 'b':
			options.bytes = number(optarg, 4, 1 << 30);
			break;
		case 'e':
			options.ecn_bytes = (uint32_t)number(optarg, 0, QUEUE_BYTES);
			break;
		case 'f':
			options.fixed_window = (uint32_t)number(optarg, 0, FANIN_WIRE_MAX_WINDOW);
			break;
		case 'n':
			options.eta_percent = (uint32_t)number(optarg, 1, 100);
			break;
		case 'd':
			options.bdp = (uint32_t)number(optarg, 0, UINT16_MAX);
			break;
		case 'u':
			options.udp = true;
			break;
		case 'B':
			options.back_mbit = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'S':
			options.server_mbit = (uint32_t)number(optarg, 1, 100000);
			break;
		case 'P':
			options.p_max_percent = (uint32_t)number(optarg, 100, 1000);
			break;
		case 'W':
			options.worker_paths = optarg;
			break;
		case 'F':
			options.flows = (uint32_t)number(optarg, 0, 100);
			break;
		case 'O':
			options.other_flows = (uint32_t)number(optarg, 0, 100);
			break;
		case 't':
			options.bin_ns = number(optarg, 1, 10000) * MS_NS;
			break;
		default:
			usage();
		}
	}
	if (optind != argc || options.type == NULL)
		usage();
	if (options.scenario == SCENARIO_TIMELINE) {
		options.n_jobs = 2;
		options.n_ranks = 2;
		options.n_paths = 3;
		options.iterations = 1;
	}
	if (options.scenario == SCENARIO_FAIRNESS)
		options.n_paths = RTE_MAX(options.n_paths, 2);
	options.loaded_paths = RTE_MIN(options.loaded_paths, options.n_paths);
	if (options.worker_paths != NULL)
		worker_paths_check();
}

int
main(int argc, char **argv)
{
	unsigned int lost;

	parse(argc, argv);
	eal_start();
	network_open();
	jobs_open();
	switch (options.scenario) {
	case SCENARIO_JOBS:
		run_jobs();
		break;
	case SCENARIO_TIMELINE:
		run_timeline();
		break;
	case SCENARIO_FAIRNESS:
		run_fairness();
		break;
	}
	print_run();
	for (uint16_t j = 0; j < run.n_jobs; j++)
		straggler_job_close(&run.jobs[j]);
	background_destroy(run.background);
	flow_schedule_free(&run.schedule);
	free(run.bins);
	lost = dumbbell_close(&run.dumbbell);
	if (lost != 0)
		die("the network", "packets are lost to a leak");
	return 0;
}
