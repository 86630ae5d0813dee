/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sparse-bench: see sparse_core.h. Batches of all kinds and of their bare loops take turns; medians and quartiles are of those that nobody else on the
 * core disturbed. Every result of either is compared with what was computed beforehand.
 * Exit status: 0 all right, 1 something went wrong, 2 wrong usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "bench/machine.h"
#include "bench/sparse_core.h"
#include "handlers/sparse.h"
#include "pipeline/slot_pool.h"

/* Of 2 MiB: enough for the longest packets. */
#define HUGEPAGES 384
#define WARM_UP 3
/* Undisturbed batches, of which a median still says more than that of all. */
#define ENOUGH 10
/* Contributions' values of a batch, about, from which the number of blocks follows. */
#define BATCH_VALUES 60000
#define LEAST_BLOCKS 8

static const double densities[] = { 0.2, 0.1, 0.01, 0.002 };
static const uint32_t mtus[] = { 1500, 9000 };

static const char *const kind_names[SPARSE_KINDS] = { "array", "hash", "dense" };

struct settings {
	struct sparse_options options;
	uint64_t fastest; /* calibration so far */
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
	bool undisturbed; /* there were as many undisturbed batches as were asked for */
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
	static uint64_t pipeline[SPARSE_MOST_BATCHES], bare[SPARSE_MOST_BATCHES];
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

/* Of a batch. */
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

/* Values sent for a block beyond one for each index: those that the table had no room for are sent by themselves. */
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

	/* The first contribution's packet is the sum of a dense block. */
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
		       : per_block(lane,
				   lane->job->worker_stats[0].stats.own[FANIN_SPARSE_CHANGED_OVER]));
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
	       values / row->pipeline.median, values / row->pipeline.best, values / row->bare.median,
	       values / row->bare.best, row->bare.median / row->pipeline.median,
	       lane->job->pool->slot_size, touched(row), per_block(lane, lane->n_bytes_out),
	       100 * extra_traffic(lane), row->undisturbed ? "" : " *");
	fflush(stdout);
}

/* In turns, until enough batches of each kind are undisturbed. Returns how many there are of each. */
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
		if (n >= wanted && (n == SPARSE_MOST_BATCHES || least >= batches_enough(wanted) ||
				    rte_rdtsc() >= end))
			return n;
		for (int kind = 0; kind < SPARSE_KINDS; kind++)
			bench->lanes[kind].batches[n] = sparse_batch(bench, kind);
	}
}

/* So many blocks that batches of all lengths of packets take about the same time. */
static uint32_t
blocks_for(const struct sparse_options *options)
{
	const uint32_t values = fanin_payload_for_mtu(options->mtu, false) / 6 * options->hosts;
	uint32_t blocks = LEAST_BLOCKS;

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

static void __attribute__((noreturn)) usage(int status)
{
	fputs("Usage: sparse-bench [OPTIONS]\n"
	      "Measures the sparse handlers on packets in memory, beside bare loops over the same packets.\n"
	      "Without --density and --mtu it goes through 20, 10, 1 and 0.2 % with MTU 1500 and 9000.\n"
	      "\n"
	      "  --density D     of each host's vector, above 0 and up to 1\n"
	      "  --mtu N         400 to 9000\n"
	      "  --hosts N       1 to 16 (default 8)\n"
	      "  --blocks N      in flight, a power of two from 2 to 256 (default: as many as make a batch of some 60000 values)\n"
	      "  --batches N     2 to 4096, of which medians are taken (default 100)\n"
	      "  --seconds N     0 to 3600: go on so long for enough undisturbed batches (default 5)\n"
	      "  --isa NAME      portable, avx2, avx512 or avx512fp16 (default: the best of this CPU)\n"
	      "  --no-huge       no hugepages (default: if 384 of 2 MiB are free)\n"
	      "  --json          print one JSON object\n"
	      "  --help\n",
	      status == 0 ? stdout : stderr);
	exit(status);
}

static void __attribute__((noreturn))
wrong(const char *option, const char *found, const char *expected)
{
	fprintf(stderr, "sparse-bench: --%s is '%s', expected %s\n", option, found, expected);
	exit(2);
}

static uint32_t
parse_number(const char *option, const char *text, uint32_t least, uint32_t most)
{
	char expected[64], *end;
	const unsigned long value = strtoul(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < least || value > most) {
		snprintf(expected, sizeof(expected), "a number from %u to %u", least, most);
		wrong(option, text, expected);
	}
	return (uint32_t)value;
}

static double
parse_density(const char *text)
{
	char *end;
	const double value = strtod(text, &end);

	if (*text == '\0' || *end != '\0' || !(value > 0 && value <= 1))
		wrong("density", text, "a number above 0 and up to 1");
	return value;
}

static enum fanin_isa
parse_isa(const char *name)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		if (strcmp(name, fanin_isa_name((enum fanin_isa)isa)) == 0)
			return (enum fanin_isa)isa;
	}
	wrong("isa", name, "one that this CPU has");
}

static void
parse(int argc, char **argv, struct settings *settings)
{
	static const struct option options[] = {
		{ "density", required_argument, NULL, 'd' },
		{ "mtu", required_argument, NULL, 'm' },
		{ "hosts", required_argument, NULL, 'n' },
		{ "blocks", required_argument, NULL, 'w' },
		{ "batches", required_argument, NULL, 'b' },
		{ "seconds", required_argument, NULL, 't' },
		{ "isa", required_argument, NULL, 'i' },
		{ "no-huge", no_argument, NULL, 'u' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct sparse_options *asked = &settings->options;
	int code;

	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (code) {
		case 'd':
			asked->density = parse_density(optarg);
			settings->all_densities = false;
			break;
		case 'm':
			asked->mtu = parse_number("mtu", optarg, 400, 9000);
			settings->all_mtus = false;
			break;
		case 'n':
			asked->hosts = (uint16_t)parse_number("hosts", optarg, 1, RIG_MAX_HOSTS);
			break;
		case 'w':
			asked->blocks = parse_number("blocks", optarg, 2, 256);
			if ((asked->blocks & (asked->blocks - 1)) != 0)
				wrong("blocks", optarg, "a power of two");
			break;
		case 'b':
			asked->batches = parse_number("batches", optarg, 2, SPARSE_MOST_BATCHES);
			break;
		case 't':
			asked->seconds = parse_number("seconds", optarg, 0, 3600);
			break;
		case 'i':
			asked->isa = parse_isa(optarg);
			break;
		case 'u':
			settings->huge = false;
			break;
		case 'j':
			settings->json = true;
			break;
		default:
			usage(code == 'h' ? 0 : 2);
		}
	}
	if (optind < argc)
		usage(2);
}

int
main(int argc, char **argv)
{
	struct settings settings = {
		.options = { .hosts = 8, .batches = 100, .seconds = 5, .isa = fanin_isa_detect() },
		.fastest = UINT64_MAX,
		.all_densities = true,
		.all_mtus = true,
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
