/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core-bench: the whole pipeline on packets in memory, beside the roofline: a bare loop that adds
 * every one of the same packets to its block's accumulator, in the same order. Batches of the two
 * alternate, and the medians of those that nobody else on the core disturbed are compared. Exit
 * status: 0 all right, 1 something went wrong or a goal was missed, 2 wrong usage.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "lab/bench/core.h"
#include "tools/measure/machine.h"
#include "tools/measure/options.h"

/*
 * Maximum time to find enough undisturbed batches, unless an option sets it: with one combination,
 * and with each one of a table.
 */
#define SECONDS 10
#define TABLE_SECONDS 1
/* The options do not set it. */
#define SECONDS_DEFAULT UINT32_MAX

/* Hugepages of 2 MiB: enough for the largest combination. */
#define HUGEPAGES 128

static void
print_head(const struct settings *settings)
{
	printf("core-bench: medians of the undisturbed ones of %u or more batches (*: too few, of all), kernels %s, %s, %s\n\n",
	       settings->batches, fanin_isa_name(settings->rig.isa),
	       settings->huge ? "hugepages" : "no hugepages", machine_cpu());
	printf("%-7s %-5s %-4s %7s %5s  %4s %7s %7s %8s %8s %9s %8s %6s %9s\n", "handler", "dtype",
	       "op", "payload", "hosts", "jobs", "workers", "packets", "Mpps", "Gbit/s", "roofline",
	       "cycles", "ratio", "disturbed");
}

static void
print_row(const struct row *row)
{
	const double bits = 8.0 * row->rig.payload;

	printf("%-7s %-5s %-4s %7u %5u%c %4u %7u %7u %8.2f %8.1f %9.1f %8.1f %6.3f %8.0f%%%s\n",
	       row->rig.handler, fanin_dtype_name(row->rig.dtype), fanin_op_name(row->rig.op),
	       row->rig.payload, row->rig.hosts, row->rig.parent ? '^' : ' ', row->rig.jobs,
	       row->rig.n_workers, row->rig.mbufs, row->packets_per_s / 1e6,
	       row->packets_per_s * bits / 1e9, row->roofline_packets_per_s * bits / 1e9,
	       row->cycles_per_packet, row->packets_per_s / row->roofline_packets_per_s,
	       100 * row->disturbed_share, row->undisturbed ? "" : " *");
	fflush(stdout);
}

static void
print_row_json(const struct row *row)
{
	const double bits = 8.0 * row->rig.payload;

	printf("{\"handler\": \"%s\", \"dtype\": \"%s\", \"op\": \"%s\", \"payload\": %u, "
	       "\"hosts\": %u, \"parent\": %s, \"jobs\": %u, \"workers\": %u, \"mbufs\": %u, \"mpps\": %.3f, \"gbps\": %.3f, "
	       "\"roofline_gbps\": %.3f, \"ratio\": %.4f, \"cycles_per_packet\": %.1f, "
	       "\"batches\": %u, \"disturbed_share\": %.4f, \"undisturbed\": %s, \"ratio_all\": %.4f}",
	       row->rig.handler, fanin_dtype_name(row->rig.dtype), fanin_op_name(row->rig.op),
	       row->rig.payload, row->rig.hosts, row->rig.parent ? "true" : "false", row->rig.jobs,
	       row->rig.n_workers, row->rig.mbufs, row->packets_per_s / 1e6,
	       row->packets_per_s * bits / 1e9, row->roofline_packets_per_s * bits / 1e9,
	       row->packets_per_s / row->roofline_packets_per_s, row->cycles_per_packet,
	       row->batches, row->disturbed_share, row->undisturbed ? "true" : "false",
	       row->ratio_all);
}

static void
take_row(struct settings *settings, bool first)
{
	struct row row;

	measure(settings, &row);
	if (!settings->json) {
		print_row(&row);
		return;
	}
	if (!first)
		fputs(", ", stdout);
	print_row_json(&row);
}

/* Measures rows, and prints them with a comma between them in JSON. */
struct tour {
	struct settings settings;
	bool started;
};

static void
take(struct tour *tour)
{
	take_row(&tour->settings, !tour->started);
	tour->started = true;
}

static void
take_core(struct tour *tour)
{
	static const char *const handlers[] = { "single", "multi", "tree" };
	static const unsigned int dtypes[] = { FANIN_WIRE_F32, FANIN_WIRE_I32, FANIN_WIRE_F16,
					       FANIN_WIRE_I8 };
	static const uint32_t payloads[] = { 256, 1024, 4096, 8192 };
	static const uint16_t hosts[] = { 4, 16 };
	struct rig_options *rig = &tour->settings.rig;
	const struct rig_options start = *rig;

	for (size_t i = 0;
	     i < RTE_DIM(handlers) * RTE_DIM(dtypes) * RTE_DIM(hosts) * RTE_DIM(payloads); i++) {
		size_t k = i;

		rig->payload = payloads[k % RTE_DIM(payloads)];
		k /= RTE_DIM(payloads);
		rig->hosts = hosts[k % RTE_DIM(hosts)];
		k /= RTE_DIM(hosts);
		rig->dtype = dtypes[k % RTE_DIM(dtypes)];
		rig->handler = handlers[k / RTE_DIM(dtypes)];
		take(tour);
	}
	/* More packets than the caches near the core hold, and two workers. */
	*rig = start;
	rig->mbufs = 8192;
	for (size_t i = 0; i < RTE_DIM(payloads); i++) {
		rig->payload = payloads[i];
		take(tour);
	}
	*rig = start;
	for (rig->n_workers = 1; rig->n_workers <= tour->settings.max_workers; rig->n_workers++)
		take(tour);
}

/* Measures how the cost grows, with one quantity at a time. */
static void
take_scale(struct tour *tour)
{
	struct rig_options *rig = &tour->settings.rig;
	const struct rig_options start = *rig;

	for (rig->hosts = 2; rig->hosts <= 16; rig->hosts *= 2)
		take(tour);
	*rig = start;
	for (rig->jobs = 1; rig->jobs <= 32; rig->jobs *= 2)
		take(tour);
	*rig = start;
	for (rig->payload = 64; rig->payload <= 8192; rig->payload *= 2)
		take(tour);
	*rig = start;
	/* A window of blocks is in flight, or the whole message if it is smaller. */
	for (rig->mbufs = 64; rig->mbufs <= 16384; rig->mbufs *= 4)
		take(tour);
	*rig = start;
}

#define RIG_NUMBER(member, low, high) CLI_NUMBER(struct settings, rig.member, low, high)

static const struct cli_field fields[] = {
	{ "scale", NULL, "the cost as hosts, jobs, payload and packets in flight grow",
	  CLI_FLAG(struct settings, scale) },
	{ "handler", "NAME", "single, multi, tree or canary (default single)", .kind = CLI_TEXT,
	  CLI_FIELD(struct settings, rig.handler) },
	{ "dtype", "NAME", "default f32", .kind = CLI_FIND, CLI_FIELD(struct settings, rig.dtype),
	  .find = bench_dtype_find, .expected = "one that `faninctl version` lists" },
	{ "op", "NAME", "default sum", .kind = CLI_FIND, CLI_FIELD(struct settings, rig.op),
	  .find = bench_op_find, .expected = "one that `faninctl version` lists" },
	{ "payload", "N", "bytes per packet, a multiple of 64 up to 8192 (default 1024)",
	  RIG_NUMBER(payload, 64, 8192) },
	{ "hosts", "N", "1 to 16 (default 4)", RIG_NUMBER(hosts, 1, RIG_MAX_HOSTS) },
	{ "jobs", "N", "1 to 64 (default 1)", RIG_NUMBER(jobs, 1, RIG_MAX_JOBS) },
	{ "workers", "N", "1 or 2 (default 1)", RIG_NUMBER(n_workers, 1, RIG_MAX_WORKERS) },
	{ "parent", NULL,
	  "as a switch that is no root: sums go up, results come down; per contribution (default: a root)",
	  CLI_FLAG(struct settings, rig.parent) },
	{ "mbufs", "N", "packets in flight; over hosts and jobs a power of two (default 2048)",
	  RIG_NUMBER(mbufs, 4, 65536) },
	{ "batches", "N", "2 to 4096, of which medians are taken (default 200)",
	  CLI_NUMBER(struct settings, batches, 2, MAX_BATCHES) },
	{ "seconds", "N",
	  "0 to 3600: go on so long for enough undisturbed batches (default 10, in a table 1 each)",
	  CLI_NUMBER(struct settings, seconds, 0, 3600) },
	{ "calibration", "N",
	  "cycles of an undisturbed one, as an earlier run found (default: the fastest of this run)",
	  CLI_NUMBER(struct settings, fastest, 1, UINT32_MAX) },
	{ "isa", "NAME", BENCH_ISA(struct settings, rig.isa) },
	{ "no-huge", NULL, "no hugepages (default: if 128 of 2 MiB are free)", .kind = CLI_CLEAR,
	  CLI_FIELD(struct settings, huge) },
	{ "json", NULL, "print one JSON object", CLI_FLAG(struct settings, json) },
	{ "help", .kind = CLI_HELP },
	{ 0 },
};

/* Options that choose one combination: with any of them given, the others are not measured. */
static const char *const of_a_combination[] = { "handler", "dtype",   "op",     "payload",
						"hosts",   "workers", "parent", "jobs" };

static const struct cli_program program = {
	.fields = fields,
	BENCH_PROGRAM,
	.column = 18,
	.about =
		"Usage: core-bench [OPTIONS]\n"
		"Measures the whole pipeline on packets in memory, beside the bare loop over the same packets.\n"
		"Without options that name one combination, it goes through a table of them.\n"
		"\n",
};

static void
check_settings(const struct settings *settings)
{
	const struct rig_options *rig = &settings->rig;
	uint32_t blocks = rig->mbufs / rig->hosts / rig->jobs;

	if (fanin_handler_find(rig->handler) == NULL)
		bench_refuse("handler", rig->handler, "single, multi, tree or canary");
	if (rig->payload % FANIN_PAYLOAD_ALIGN != 0)
		bench_refuse("payload", "not aligned", "a multiple of 64");
	if (rig->mbufs % (rig->hosts * rig->jobs) != 0 || (blocks & (blocks - 1)) != 0 ||
	    blocks < 2)
		bench_refuse("mbufs", "uneven", "a power of two times --hosts times --jobs");
	if (fanin_kernel(rig->isa, rig->dtype, rig->op) == NULL)
		bench_refuse("op", fanin_op_name(rig->op), "one that the data type has");
}

static void
parse(int argc, char **argv, struct settings *settings)
{
	struct cli_given given;

	if (cli_fields_parse(&program, settings, argc, argv, &given) < argc)
		bench_usage(&program, 2);
	for (size_t i = 0; i < RTE_DIM(of_a_combination); i++)
		settings->all &= !cli_given(&given, of_a_combination[i]);
	check_settings(settings);
}

int
main(int argc, char **argv)
{
	struct tour tour = {
		.settings = {
			.rig = {
				.handler = "single",
				.dtype = FANIN_WIRE_F32,
				.op = FANIN_WIRE_SUM,
				.payload = 1024,
				.hosts = 4,
				.jobs = 1,
				.n_workers = 1,
				.mbufs = 2048,
				.isa = fanin_isa_detect(),
			},
			.batches = 200,
			.seconds = SECONDS_DEFAULT,
			.fastest = UINT64_MAX,
			.all = true,
			.huge = machine_free_hugepages() >= HUGEPAGES,
		},
	};
	struct settings *settings = &tour.settings;

	parse(argc, argv, settings);
	if (settings->seconds == SECONDS_DEFAULT)
		settings->seconds = settings->scale || settings->all ? TABLE_SECONDS : SECONDS;
	settings->max_workers = settings->rig.n_workers;
	if (settings->all && !settings->scale && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		settings->max_workers = 2;
	rig_eal(settings->huge, settings->max_workers);
	if (settings->json)
		printf("{\"machine\": {\"cpu\": \"%s\", \"isa\": \"%s\", \"hugepages\": %s}, "
		       "\"results\": [",
		       machine_cpu(), fanin_isa_name(settings->rig.isa),
		       settings->huge ? "true" : "false");
	else
		print_head(settings);
	if (settings->scale)
		take_scale(&tour);
	else if (settings->all)
		take_core(&tour);
	else
		take(&tour);
	if (settings->json)
		printf("], \"calibration\": %" PRIu64 "}\n", settings->fastest);
	else
		printf("\nfastest calibration: %" PRIu64 " cycles\n", settings->fastest);
	return 0;
}
