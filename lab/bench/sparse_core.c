/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sparse-bench: see sparse_core.h. Batches of all kinds and of their bare loops take turns; medians
 * and quartiles are over undisturbed batches. Every result of both is compared with the expected
 * one. Exit status: 0 all right, 1 something went wrong, 2 wrong usage.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "tools/measure/machine.h"
#include "tools/measure/options.h"
#include "lab/bench/sparse_core.h"
#include "protocols/sparse/switch/sparse.h"
#include "pipeline/slot_pool.h"

/* Hugepages of 2 MiB: enough for the longest packets. */
#define HUGEPAGES 384
#define WARM_UP 3
/* Number of undisturbed batches from which their median says more than that of all batches. */
#define ENOUGH 10
/* Approximate number of values in a batch's contributions; the number of blocks follows from it. */
#define BATCH_VALUES 60000
#define MIN_BLOCKS 8

static const double densities[] = { 0.2, 0.1, 0.01, 0.002 };
static const uint32_t mtus[] = { 1500, 9000 };

static const char *const kind_names[SPARSE_KINDS] = { "array", "hash", "dense" };

struct settings {
	struct sparse_options options;
	uint64_t fastest; /* calibration so far; see batches_undisturbed */
	bool all_densities;
	bool all_mtus;
	bool huge;
	bool json;
	bool started; /* a row is printed */
};

/* Cycles of one side's batches. */
struct spread {
	double best;
	double lower; /* quartile */
	double median;
	double upper;
};

struct row {
	const struct sparse_bench *bench;
	enum sparse_kind kind;
	struct spread pipeline;
	struct spread bare;
	unsigned int batches;
	double disturbed_share;
	bool undisturbed; /* there were as many undisturbed batches as asked for */
};

static int
compare_cycles(const void *left, const void *right)
{
	const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static struct spread
spread_of(uint64_t *cycles, unsigned int n)
{
	qsort(cycles, n, sizeof(*cycles), compare_cycles);
	return (struct spread){
		.best = (double)cycles[0],
		.lower = (double)cycles[n / 4],
		.median = (double)cycles[n / 2],
		.upper = (double)cycles[n * 3 / 4],
	};
}

static void
evaluate(struct settings *settings, struct sparse_bench *bench, enum sparse_kind kind,
	 unsigned int n, struct row *row)
{
	static uint64_t pipeline[SPARSE_MAX_BATCHES], bare[SPARSE_MAX_BATCHES];
	struct batch *batches = bench->lanes[kind].batches;
	const unsigned int undisturbed = batches_undisturbed(batches, n, &settings->fastest);
	unsigned int used;

	row->bench = bench;
	row->kind = kind;
	row->batches = n;
	row->disturbed_share = 1 - (double)undisturbed / n;
	row->undisturbed = undisturbed >= batches_enough(settings->options.batches);
	used = undisturbed >= ENOUGH ? undisturbed : n;
	for (unsigned int i = 0; i < used; i++) {
		pipeline[i] = batches[i].pipeline;
		bare[i] = batches[i].bare;
	}
	row->pipeline = spread_of(pipeline, used);
	row->bare = spread_of(bare, used);
}

/* Returns the average per batch. */
static double
per_batch(const struct sparse_lane *lane, const struct sparse_bench *bench, uint64_t total)
{
	const uint32_t blocks = lane == &bench->lanes[SPARSE_KIND_DENSE] ? bench->rig.n_blocks
									 : bench->options.blocks;

	return (double)total / ((double)lane->n_blocks / blocks);
}

static double
per_block(const struct sparse_lane *lane, uint64_t total)
{
	return (double)total / (double)lane->n_blocks;
}

/*
 * Returns the values sent for a block beyond one for each index: values that found no room in the
 * table are sent separately.
 */
static double
extra_traffic(const struct sparse_lane *lane)
{
	if (lane->n_distinct == 0)
		return 0;
	return (double)lane->n_values_out / (double)lane->n_distinct - 1;
}

static double
touched(const struct row *row)
{
	const struct sparse_lane *lane = &row->bench->lanes[row->kind];

	/* The packet of the first contribution is the sum of a dense block. */
	if (row->kind == SPARSE_KIND_DENSE)
		return row->bench->data.payload_bytes;
	return (double)lane->n_bytes_touched / (double)lane->n_sampled;
}

static void
print_json(const struct row *row)
{
	const struct sparse_bench *bench = row->bench;
	const struct sparse_lane *lane = &bench->lanes[row->kind];
	const double hz = (double)rte_get_tsc_hz();
	const double values = per_batch(lane, bench, lane->n_values) * hz;

	printf("{\"kind\": \"%s\", \"handler\": \"%s\", \"density\": %g, \"mtu\": %u, \"payload\": %u, \"hosts\": %u, "
	       "\"span\": %u, \"blocks_in_flight\": %u, \"packets_per_block\": %.2f, \"values_per_block\": %.1f, ",
	       kind_names[row->kind], lane->job->handler->name, bench->options.density,
	       bench->options.mtu, bench->data.payload_bytes, bench->options.hosts,
	       row->kind == SPARSE_KIND_DENSE ? bench->data.payload_bytes / 4 : bench->data.span,
	       bench->options.blocks, per_block(lane, lane->n_packets),
	       per_block(lane, lane->n_values));
	printf("\"mpps\": %.4f, \"gbps\": %.3f, \"nnz_per_s\": %.0f, \"nnz_per_s_best\": %.0f, \"nnz_per_s_quartiles\": [%.0f, %.0f], ",
	       per_batch(lane, bench, lane->n_packets) * hz / row->pipeline.median / 1e6,
	       8 * per_batch(lane, bench, lane->n_bytes) * hz / row->pipeline.median / 1e9,
	       values / row->pipeline.median, values / row->pipeline.best,
	       values / row->pipeline.upper, values / row->pipeline.lower);
	printf("\"bare_nnz_per_s\": %.0f, \"bare_nnz_per_s_best\": %.0f, \"bare_nnz_per_s_quartiles\": [%.0f, %.0f], "
	       "\"ratio\": %.4f, \"ratio_best\": %.4f, ",
	       values / row->bare.median, values / row->bare.best, values / row->bare.upper,
	       values / row->bare.lower, row->bare.median / row->pipeline.median,
	       row->bare.best / row->pipeline.best);
	printf("\"slot_bytes\": %zu, \"touched_bytes\": %.0f, \"result_packets\": %.2f, \"result_bytes\": %.0f, "
	       "\"extra_traffic\": %.5f, \"spills\": %.4f, \"changed_over\": %.4f, ",
	       lane->job->pool->slot_size, touched(row), per_block(lane, lane->n_packets_out),
	       per_block(lane, lane->n_bytes_out), extra_traffic(lane),
	       row->kind == SPARSE_KIND_DENSE
		       ? 0
		       : per_block(lane, lane->job->worker_stats[0].stats.own[FANIN_SPARSE_SPILLS]),
	       row->kind == SPARSE_KIND_DENSE
		       ? 0
		       : per_block(lane, lane->job->worker_stats[0]
						 .stats.own[FANIN_SPARSE_CHANGED_OVER]));
	printf("\"batches\": %u, \"disturbed_share\": %.4f, \"undisturbed\": %s}", row->batches,
	       row->disturbed_share, row->undisturbed ? "true" : "false");
}

static void
print_head(const struct settings *settings)
{
	printf("sparse-bench: %u hosts, f32 sums, kernels %s, %s, %s; medians (best) of undisturbed batches (*: few)\n\n",
	       settings->options.hosts, fanin_isa_name(settings->options.isa),
	       settings->huge ? "hugepages" : "no hugepages", machine_cpu());
	printf("%-6s %8s %5s %7s %7s %7s %16s %16s %6s %9s %9s %9s %7s\n", "kind", "density", "mtu",
	       "span", "Mpps", "Gbit/s", "M nnz/s", "bare M nnz/s", "ratio", "slot", "touched",
	       "result", "extra");
}

static void
print_text(const struct row *row)
{
	const struct sparse_bench *bench = row->bench;
	const struct sparse_lane *lane = &bench->lanes[row->kind];
	const double hz = (double)rte_get_tsc_hz();
	const double values = per_batch(lane, bench, lane->n_values) * hz / 1e6;

	printf("%-6s %6g %% %5u %7u %7.3f %7.1f %7.1f (%6.1f) %7.1f (%6.1f) %6.3f %9zu %9.0f %9.0f %6.2f%%%s\n",
	       kind_names[row->kind], 100 * bench->options.density, bench->options.mtu,
	       row->kind == SPARSE_KIND_DENSE ? bench->data.payload_bytes / 4 : bench->data.span,
	       per_batch(lane, bench, lane->n_packets) * hz / row->pipeline.median / 1e6,
	       8 * per_batch(lane, bench, lane->n_bytes) * hz / row->pipeline.median / 1e9,
	       values / row->pipeline.median, values / row->pipeline.best,
	       values / row->bare.median, values / row->bare.best,
	       row->bare.median / row->pipeline.median, lane->job->pool->slot_size, touched(row),
	       per_block(lane, lane->n_bytes_out), 100 * extra_traffic(lane),
	       row->undisturbed ? "" : " *");
	fflush(stdout);
}

/*
 * Takes batches of all kinds in turns, until enough of each kind are undisturbed. Returns how many
 * batches of each kind there are.
 */
static unsigned int
take_batches(struct settings *settings, struct sparse_bench *bench)
{
	const uint64_t end = rte_rdtsc() + settings->options.seconds * rte_get_tsc_hz();
	const unsigned int wanted = settings->options.batches;

	for (unsigned int i = 0; i < WARM_UP * SPARSE_KINDS; i++)
		sparse_batch(bench, i % SPARSE_KINDS);
	for (unsigned int n = 0;; n++) {
		unsigned int least = UINT32_MAX;

		for (int kind = 0; n >= wanted && kind < SPARSE_KINDS; kind++)
			least = RTE_MIN(least, batches_undisturbed(bench->lanes[kind].batches, n,
								   &settings->fastest));
		if (n >= wanted && (n == SPARSE_MAX_BATCHES || least >= batches_enough(wanted) ||
				    rte_rdtsc() >= end))
			return n;
		for (int kind = 0; kind < SPARSE_KINDS; kind++)
			bench->lanes[kind].batches[n] = sparse_batch(bench, kind);
	}
}

/*
 * Returns a number of blocks with which batches take about the same time for all lengths of
 * packets.
 */
static uint32_t
blocks_for(const struct sparse_options *options)
{
	const uint32_t values = fanin_payload_for_mtu(options->mtu, false) / 6 * options->hosts;
	uint32_t blocks = MIN_BLOCKS;

	while (blocks < 256 && blocks * values < BATCH_VALUES)
		blocks *= 2;
	return blocks;
}

static void
measure(struct settings *settings)
{
	static struct sparse_bench bench;
	struct sparse_options options = settings->options;
	unsigned int n;

	if (options.blocks == 0)
		options.blocks = blocks_for(&options);
	memset(&bench, 0, sizeof(bench));
	sparse_bench_open(&bench, &options);
	n = take_batches(settings, &bench);
	for (int kind = 0; kind < SPARSE_KINDS; kind++) {
		struct row row;

		evaluate(settings, &bench, kind, n, &row);
		if (!settings->json) {
			print_text(&row);
			continue;
		}
		fputs(settings->started ? ", " : "", stdout);
		print_json(&row);
		settings->started = true;
	}
	sparse_bench_close(&bench);
}

#define NUMBER(member, low, high) CLI_NUMBER(struct settings, options.member, low, high)

static const struct cli_field fields[] = {
	{ "density", "D", "of each host's vector, above 0 and up to 1", .kind = CLI_PART,
	  CLI_FIELD(struct settings, options.density), .expected = "a number above 0 and up to 1" },
	{ "mtu", "N", "400 to 9000", NUMBER(mtu, 400, 9000) },
	{ "hosts", "N", "1 to 16 (default 8)", NUMBER(hosts, 1, RIG_MAX_HOSTS) },
	{ "blocks", "N",
	  "in flight, a power of two from 2 to 256 (default: as many as make a batch of some 60000 values)",
	  NUMBER(blocks, 2, 256) },
	{ "batches", "N", "2 to 4096, of which medians are taken (default 100)",
	  NUMBER(batches, 2, SPARSE_MAX_BATCHES) },
	{ "seconds", "N", "0 to 3600: go on so long for enough undisturbed batches (default 5)",
	  NUMBER(seconds, 0, 3600) },
	{ "isa", "NAME", BENCH_ISA(struct settings, options.isa) },
	{ "no-huge", NULL, "no hugepages (default: if 384 of 2 MiB are free)", .kind = CLI_CLEAR,
	  CLI_FIELD(struct settings, huge) },
	{ "json", NULL, "print one JSON object", CLI_FLAG(struct settings, json) },
	{ "help", .kind = CLI_HELP },
	{ 0 },
};

static const struct cli_program program = {
	.fields = fields,
	BENCH_PROGRAM,
	.column = 18,
	.about =
		"Usage: sparse-bench [OPTIONS]\n"
		"Measures the sparse handlers on packets in memory, beside bare loops over the same packets.\n"
		"Without --density and --mtu it goes through 20, 10, 1 and 0.2 % with MTU 1500 and 9000.\n"
		"\n",
};

static void
parse(int argc, char **argv, struct settings *settings)
{
	const uint32_t *blocks = &settings->options.blocks;
	struct cli_given given;
	char found[16];

	if (cli_fields_parse(&program, settings, argc, argv, &given) < argc)
		bench_usage(&program, 2);
	settings->all_densities = !cli_given(&given, "density");
	settings->all_mtus = !cli_given(&given, "mtu");
	snprintf(found, sizeof(found), "%u", *blocks);
	if ((*blocks & (*blocks - 1)) != 0)
		bench_refuse("blocks", found, "a power of two");
}

int
main(int argc, char **argv)
{
	struct settings settings = {
		.options = { .hosts = 8, .batches = 100, .seconds = 5, .isa = fanin_isa_detect() },
		.fastest = UINT64_MAX,
		.huge = machine_free_hugepages() >= HUGEPAGES,
	};

	parse(argc, argv, &settings);
	rig_eal(settings.huge, 1);
	if (settings.json)
		printf("{\"machine\": {\"cpu\": \"%s\", \"isa\": \"%s\", \"hugepages\": %s}, \"results\": [",
		       machine_cpu(), fanin_isa_name(settings.options.isa),
		       settings.huge ? "true" : "false");
	else
		print_head(&settings);
	for (size_t m = 0; m < (settings.all_mtus ? RTE_DIM(mtus) : 1); m++) {
		if (settings.all_mtus)
			settings.options.mtu = mtus[m];
		for (size_t d = 0; d < (settings.all_densities ? RTE_DIM(densities) : 1); d++) {
			if (settings.all_densities)
				settings.options.density = densities[d];
			measure(&settings);
		}
	}
	if (settings.json)
		puts("]}");
	return 0;
}
