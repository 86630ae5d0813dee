/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stragglers-bench: one run of `./dev bench stragglers`. Jobs with a parameter server beside
 * background traffic in a dumbbell, in virtual time: real switches and queues, real engines, the
 * real server. Prints a JSON object. lab/bench/stragglers.py makes the tables of many runs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/measure/options.h"
#include "lab/bench/straggler_job.h"
#include "lab/bench/virtual.h"
#include "protocols/pa_atp/host/dual.h"
#include "protocols/pa_atp/host/server.h"
#include "pipeline/base/worker.h"
#include "lab/reference/random.h"

#define MAX_JOBS DUMBBELL_MAX_SERVERS
#define RATE_MBIT 100u
#define HOST_RATE_MBIT 1000u
#define DELAY_NS 5000u
#define QUEUE_BYTES 256000u
#define PACKETS 65535u
#define EAL_MEGABYTES 512
/* Maximum duration of a run. */
#define MAX_SECONDS 120u

enum scenario {
	SCENARIO_JOBS,     /* jobs on random paths, with background flows */
	SCENARIO_TIMELINE, /* the paper's figure 8 */
	SCENARIO_FAIRNESS, /* a job with flows that do not end */
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
	uint16_t loaded_paths; /* number of paths, from the first on, with background traffic */
	uint32_t iterations;
	uint64_t bytes;
	uint32_t fixed_window;
	uint32_t eta_percent;
	uint32_t bdp;
	uint32_t p_max_percent;   /* 0: the default */
	uint32_t flows;           /* in FAIRNESS, on path 0 */
	uint32_t other_flows;     /* in FAIRNESS, on the other paths together */
	bool udp;                 /* flows by UDP at the paths' rate, in place of DCTCP */
	const char *worker_paths; /* a digit for each worker; NULL: random paths */
	uint64_t bin_ns;          /* length of a bin of the trace; 0: no trace */
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
	uint64_t results[MAX_JOBS];          /* blocks that the slowest rank has the results of */
	uint64_t path_bytes[DUMBBELL_MAX_PATHS];
	uint64_t background[DUMBBELL_MAX_PATHS];
	uint64_t server_bytes[DUMBBELL_MAX_SERVERS];
	uint64_t ahead[DUMBBELL_MAX_WORKERS]; /* blocks with a GACK but no result */
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
	struct background_stats before; /* when the jobs began */
	struct bin *bins;
	size_t n_bins;
} run;

/* ------------------------------------------------------------------ building */

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
		static const uint16_t paths[] = { 0, 1, 1, 2 }; /* of A's workers, and of B's */

		memcpy(made.path_of_worker, paths, sizeof(paths));
	} else if (options.scenario == SCENARIO_FAIRNESS) {
		for (uint16_t w = 0; w < made.n_workers; w++)
			made.path_of_worker[w] = w % options.n_paths;
	}
	if (dumbbell_open(&run.dumbbell, &made, error) != 0)
		virtual_die("the network", error);
	run.background = background_create(run.dumbbell.rig, run.dumbbell.paths, options.n_paths);
	if (run.background == NULL)
		virtual_die("background traffic", "out of memory");
}

static void
jobs_open(void)
{
	char error[PIPELINE_ERROR_LEN] = "";

	/*
	 * All jobs are made before the first rank joins, as the rank is told how many jobs share
	 * the aggregators.
	 */
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
			virtual_die("a job", error);
		run.n_jobs++;
	}
	for (uint16_t j = 0; j < options.n_jobs; j++) {
		if (straggler_job_join(&run.jobs[j], error) != 0)
			virtual_die("a job", error);
	}
}

/* ------------------------------------------------------------------ running */

/* Returns the number of blocks whose results the job's slowest rank has. */
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
		virtual_die("the trace", "out of memory");
	bin = &run.bins[run.n_bins++];
	memset(bin, 0, sizeof(*bin));
	for (uint16_t j = 0; j < run.n_jobs; j++) {
		for (uint16_t rank = 0; rank < options.n_ranks; rank++) {
			const uint16_t worker = (uint16_t)(j * options.n_ranks + rank);
			struct fanin_report report;

			straggler_job_report(&run.jobs[j], rank, &report);
			bin->sent[worker] =
				rig_host_traffic(run.dumbbell.workers[worker].host).bytes;
			bin->cwd[worker] = report.cwd;
			bin->awd[worker] = report.awd;
			bin->alpha[worker] = report.alpha;
			bin->p[worker] = report.progress_degree;
			bin->ahead[worker] = report.gacks > report.aacks
						     ? report.gacks - report.aacks
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
		/* A job that has not begun is not done. */
		if (!straggler_job_is_done(&run.jobs[j]))
			return false;
	}
	return true;
}

/*
 * Lets time pass until then, and adds a bin to the trace when one ends. Returns true if all jobs
 * are done.
 */
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
		.seconds = MAX_SECONDS,
	};
	struct rig *rig = run.dumbbell.rig;

	if (options.load > 0) {
		if (flow_schedule_make(&run.schedule, &made) != 0 ||
		    background_flows(run.background, &run.schedule, rig_now_ns(rig),
				     options.udp ? RATE_MBIT : 0) != 0)
			virtual_die("background traffic", "out of memory");
		/* Background queues and flows exist before the jobs begin. */
		rig_run(rig, rig_now_ns(rig) + SECOND_NS, NULL, NULL);
	}
	mark_beginning();
	for (uint16_t j = 0; j < run.n_jobs; j++)
		straggler_job_begin(&run.jobs[j]);
	pass(run.began_ns + (MAX_SECONDS - 2) * SECOND_NS);
	/* Flows add up to the load over whole seconds. */
	rig_run(rig, run.began_ns + ((rig_now_ns(rig) - run.began_ns) / SECOND_NS + 1) * SECOND_NS,
		NULL, NULL);
}

/* The paper's 1 ms at 40 Gbit/s corresponds to 400 ms here. */
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
	pass(run.began_ns + MAX_SECONDS * SECOND_NS);
}

static void
run_fairness(void)
{
	struct rig *rig = run.dumbbell.rig;

	run.schedule.n = options.flows + options.other_flows;
	run.schedule.flows = calloc(run.schedule.n + 1, sizeof(run.schedule.flows[0]));
	if (run.schedule.flows == NULL)
		virtual_die("background traffic", "out of memory");
	for (uint32_t f = 0; f < run.schedule.n; f++)
		run.schedule.flows[f] = (struct flow_arrival){
			.bytes = UINT32_MAX / 2,
			.at_ns = f * 10 * MS_NS,
			.path = f < options.flows ? 0
						  : (uint16_t)(1 + (f - options.flows) %
									   (options.n_paths - 1u)),
		};
	if (background_flows(run.background, &run.schedule, rig_now_ns(rig), 0) != 0)
		virtual_die("background traffic", "out of memory");
	rig_run(rig, rig_now_ns(rig) + SECOND_NS, NULL, NULL);
	mark_beginning();
	for (uint16_t j = 0; j < run.n_jobs; j++)
		straggler_job_begin(&run.jobs[j]);
	pass(run.began_ns + MAX_SECONDS * SECOND_NS);
}

/* ------------------------------------------------------------------ what came of it */

static void
print_rank(const struct straggler_job *job, uint16_t rank)
{
	const uint16_t worker = (uint16_t)(job->options.first_worker + rank);
	struct fanin_report report;

	straggler_job_report(job, rank, &report);
	json_add("{\"path\": %u, \"sent_bytes\": %" PRIu64 ", \"retransmits\": %" PRIu64
		 ", \"queries\": %" PRIu64 ", \"asks_answered\": %" PRIu64 ", \"gacks\": %" PRIu64
		 ", \"marks\": %" PRIu64 ", \"aecns\": %" PRIu64
		 ", \"cwd\": %.2f, \"awd\": %.2f, \"alpha\": %.4f, \"beta\": %.4f}",
		 run.dumbbell.options.path_of_worker[worker],
		 rig_host_traffic(run.dumbbell.workers[worker].host).bytes, report.retransmits,
		 report.queries, report.asks_answered, report.gacks, report.marks, report.aecns,
		 report.cwd, report.awd, report.alpha, report.beta);
}

static void
print_switch(const struct straggler_job *job)
{
	const struct fanin_counter *counters = job->job->handler->counters;

	json_open("\"switch\": {");
	for (unsigned int c = 0; counters != NULL && counters[c].name != NULL; c++) {
		uint64_t sum = 0;

		for (uint16_t w = 0; w < job->job->n_workers; w++)
			sum += job->job->worker_stats[w].stats.own[c];
		json_add("\"%s\": %" PRIu64, counters[c].name, sum);
	}
	json_close("}");
}

static void
print_server(const struct straggler_job *job)
{
	struct fanin_server_job_stats stats = { .sz = sizeof(stats) };

	fanin_server_job_describe(
		fanin_server_core_job(rig_server_core(run.dumbbell.servers[job->options.server]),
				      job->options.id),
		&stats);
	json_open("\"server\": {");
#define FANIN_SERVER_COUNTER(field, text) json_add("\"%s\": %" PRIu64, #field, stats.field);
	FANIN_SERVER_COUNTERS(FANIN_SERVER_COUNTER)
#undef FANIN_SERVER_COUNTER
	json_close("}");
}

static void
print_job(const struct straggler_job *job)
{
	uint64_t last_ns = job->begin_ns;

	json_open("{");
	json_add("\"exact\": %s, \"error\": \"%s\", \"done\": %s, \"begin\": %.6f",
		 json_bool(!job->wrong), job->error, json_bool(straggler_job_is_done(job)),
		 (double)(job->begin_ns - run.began_ns) / 1e9);
	json_open("\"iterations\": [");
	for (uint32_t i = 0; i < job->options.iterations && job->end_ns[i] != 0; i++) {
		json_add("%.6f", (double)(job->end_ns[i] - last_ns) / 1e9);
		last_ns = job->end_ns[i];
	}
	json_close("]");
	json_add("\"seconds\": %.6f", (double)(last_ns - job->begin_ns) / 1e9);
	json_open("\"ranks\": [");
	for (uint16_t rank = 0; rank < job->options.n_ranks; rank++)
		print_rank(job, rank);
	json_close("]");
	print_switch(job);
	print_server(job);
	json_add("\"server_dropped\": %" PRIu64,
		 dumbbell_server_drops(&run.dumbbell, job->options.server));
	json_close("}");
}

static void
print_background(void)
{
	const struct background_stats *stats = background_stats(run.background);
	const double seconds = (double)(rig_now_ns(run.dumbbell.rig) - run.began_ns) / 1e9;
	const double capacity = seconds * RATE_MBIT * 1e6 / 8 * options.loaded_paths;

	json_add(
		"\"background\": {\"wanted_load\": %.4f, \"offered_load\": %.4f, \"delivered_load\": %.4f, \"flows\": %" PRIu64
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
	json_open("\"paths\": [");
	for (uint16_t p = 0; p < options.n_paths; p++) {
		const struct worker *worker = rig_switch_pipeline(run.dumbbell.near[p])->workers[0];

		json_add("{\"bytes\": %" PRIu64 ", \"background_bytes\": %" PRIu64
			 ", \"dropped\": %" PRIu64 ", \"marked\": %" PRIu64 "}",
			 dumbbell_path_traffic(&run.dumbbell, p).bytes,
			 background_delivered(run.background, p),
			 worker->counters.ports[0].tx_dropped,
			 worker->counters.ports[0].ecn_marked);
	}
	json_close("]");
}

/* Prints rates from the counts at the ends of two successive bins. */
static void
print_rates(const char *name, const uint64_t *now, const uint64_t *before, uint16_t n,
	    double to_mbit)
{
	json_open(name);
	for (uint16_t i = 0; i < n; i++)
		json_add("%.2f", (double)(now[i] - before[i]) * to_mbit);
	json_close("]");
}

static void
print_values(const char *name, const double *values, uint16_t n, int digits)
{
	json_open(name);
	for (uint16_t i = 0; i < n; i++)
		json_add("%.*f", digits, values[i]);
	json_close("]");
}

/* Prints a bin. Rates are averages over the bin, Mbit/s; other values are those at its end. */
static void
print_bin(const struct bin *bin, const struct bin *last)
{
	const double to_mbit = 8e3 / (double)options.bin_ns;
	const uint16_t n_workers = run.dumbbell.options.n_workers;

	json_open("{");
	print_rates("\"sent_mbit\": [", bin->sent, last->sent, n_workers, to_mbit);
	print_rates("\"aggregated_mbit\": [", bin->results, last->results, run.n_jobs,
		    1024 * to_mbit);
	print_rates("\"background_mbit\": [", bin->background, last->background, options.n_paths,
		    to_mbit);
	print_rates("\"path_mbit\": [", bin->path_bytes, last->path_bytes, options.n_paths,
		    to_mbit);
	print_rates("\"server_mbit\": [", bin->server_bytes, last->server_bytes, run.n_jobs,
		    to_mbit);
	json_open("\"ahead\": [");
	for (uint16_t w = 0; w < n_workers; w++)
		json_add("%" PRIu64, bin->ahead[w]);
	json_close("]");
	print_values("\"cwd\": [", bin->cwd, n_workers, 1);
	print_values("\"awd\": [", bin->awd, n_workers, 1);
	print_values("\"alpha\": [", bin->alpha, n_workers, 3);
	print_values("\"p\": [", bin->p, n_workers, 2);
	json_close("}");
}

static void
print_trace(void)
{
	json_open("\"trace\": {");
	json_add("\"bin_seconds\": %.4f", (double)options.bin_ns / 1e9);
	json_open("\"bins\": [");
	for (size_t b = 1; b < run.n_bins; b++)
		print_bin(&run.bins[b], &run.bins[b - 1]);
	json_close("]}");
}

static const char *const scenarios[] = { "jobs", "timeline", "fairness" };

static void
print_run(void)
{
	json_open("{");
	json_add("\"scenario\": \"%s\", \"member\": \"%s\", \"seed\": %" PRIu64
		 ", \"aggregators\": %u, \"window\": %u, \"ecn_bytes\": %u",
		 scenarios[options.scenario], options.type->name, options.seed, options.aggregators,
		 options.window, options.ecn_bytes);
	json_open("\"jobs\": [");
	for (uint16_t j = 0; j < run.n_jobs; j++)
		print_job(&run.jobs[j]);
	json_close("]");
	print_background();
	print_paths();
	if (options.bin_ns != 0)
		print_trace();
	json_close("}\n");
}

/* ------------------------------------------------------------------ options */

static void
member_take(void *all, char *name)
{
	((struct bench_options *)all)->type = fanin_dual_find(name);
}

#define NUMBER(member, low, high) CLI_NUMBER(struct bench_options, member, low, high)

static const struct cli_field fields[] = {
	{ "scenario", "NAME", .kind = CLI_CHOICE, CLI_FIELD(struct bench_options, scenario),
	  CLI_NAMES(scenarios) },
	{ "member", "NAME", .kind = CLI_TAKE, .take = member_take },
	{ "seed", "N", NUMBER(seed, 0, UINT32_MAX) },
	{ "load", "SHARE", .kind = CLI_SHARE, CLI_FIELD(struct bench_options, load) },
	{ "aggregators", "N", NUMBER(aggregators, 1, 1 << 20) },
	{ "window", "BLOCKS", NUMBER(window, 1, FANIN_WIRE_MAX_WINDOW) },
	{ "jobs", "N", NUMBER(n_jobs, 1, MAX_JOBS) },
	{ "ranks", "N", NUMBER(n_ranks, 1, STRAGGLER_MAX_RANKS) },
	{ "paths", "N", NUMBER(n_paths, 1, DUMBBELL_MAX_PATHS) },
	{ "loaded-paths", "N", NUMBER(loaded_paths, 1, DUMBBELL_MAX_PATHS) },
	{ "iterations", "N", NUMBER(iterations, 1, 10000) },
	{ "bytes", "N", NUMBER(bytes, 4, 1 << 30) },
	{ "ecn-bytes", "N", NUMBER(ecn_bytes, 0, QUEUE_BYTES) },
	{ "fixed-window", "BLOCKS", NUMBER(fixed_window, 0, FANIN_WIRE_MAX_WINDOW) },
	{ "eta", "PERCENT", NUMBER(eta_percent, 1, 100) },
	{ "bdp", "PACKETS", NUMBER(bdp, 0, UINT16_MAX) },
	{ "udp", CLI_FLAG(struct bench_options, udp) },
	{ "back-mbit", "N", NUMBER(back_mbit, 1, 100000) },
	{ "server-mbit", "N", NUMBER(server_mbit, 1, 100000) },
	{ "p-max", "PERCENT", NUMBER(p_max_percent, 100, 1000) },
	{ "worker-paths", "DIGITS", .kind = CLI_TEXT,
	  CLI_FIELD(struct bench_options, worker_paths) },
	{ "flows", "N", NUMBER(flows, 0, 100) },
	{ "other-flows", "N", NUMBER(other_flows, 0, 100) },
	{ "trace-ms", "N", NUMBER(bin_ns, 1, 10000), .unit = MS_NS },
	{ 0 },
};

static const struct cli_program program = {
	.fields = fields,
	VIRTUAL_PROGRAM,
	.about =
		"usage: stragglers-bench --member NAME [--scenario jobs|timeline|fairness] [--seed N] [--load SHARE]\n"
		"       [--aggregators N] [--window BLOCKS] [--jobs N] [--ranks N] [--paths N] [--loaded-paths N]\n"
		"       [--iterations N] [--bytes N] [--ecn-bytes N] [--fixed-window BLOCKS] [--eta PERCENT] [--bdp PACKETS]\n"
		"       [--flows N] [--other-flows N] [--trace-ms N] [--back-mbit N] [--server-mbit N] [--udp]\n"
		"       [--p-max PERCENT] [--worker-paths DIGITS]\n"
		"--member: sync, atp, straw, straw+progress, straw+limit or pa-atp\n",
};

/* Checks that there is a digit for each worker, less than the number of paths. */
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
	struct cli_given given;

	if (cli_fields_parse(&program, &options, argc, argv, &given) != argc ||
	    options.type == NULL)
		bench_usage(&program, 2);
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
	parse(argc, argv);
	virtual_eal(EAL_MEGABYTES);
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
	if (dumbbell_close(&run.dumbbell) != 0)
		virtual_die("the network", "packets are lost to a leak");
	return 0;
}
