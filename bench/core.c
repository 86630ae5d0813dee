/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * core-bench: the whole pipeline on packets in memory, beside the roofline: a bare loop that adds every one of the same
 * packets to its block's accumulator, in the same order. Batches of the two alternate, and the medians of those that nobody
 * else on the core disturbed are compared.
 * Exit status: 0 all right, 1 something went wrong or a goal was missed, 2 wrong usage.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/core.h"
#include "bench/machine.h"

/* How long to go on for enough undisturbed batches, unless told otherwise: with one combination, and with each one of a table. */
#define SECONDS 10
#define TABLE_SECONDS 1
/* Left to the options. */
#define SECONDS_DEFAULT UINT32_MAX

/* Of 2 MiB: enough for the largest combination. */
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
	       row->packets_per_s / row->roofline_packets_per_s, row->cycles_per_packet, row->batches,
	       row->disturbed_share, row->undisturbed ? "true" : "false", row->ratio_all);
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

/* Takes rows, with a comma between them in JSON. */
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
	/* More packets than the caches near the core hold; and two workers. */
	*rig = start;
	rig->mbufs = 8192;
	for (size_t i = 0; i < RTE_DIM(payloads); i++) {
		rig->payload = payloads[i];
		take(tour);
	}
	*rig = start;
	for (rig->n_workers = 1; rig->n_workers <= tour->settings.most_workers; rig->n_workers++)
		take(tour);
}

/* What grows, one thing at a time. */
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

static void __attribute__((noreturn)) usage(int status)
{
	fputs("Usage: core-bench [OPTIONS]\n"
	      "Measures the whole pipeline on packets in memory, beside the bare loop over the same packets.\n"
	      "Without options that name one combination, it goes through a table of them.\n"
	      "\n"
	      "  --scale         the cost as hosts, jobs, payload and packets in flight grow\n"
	      "  --handler NAME  single, multi, tree or canary (default single)\n"
	      "  --dtype NAME    default f32\n"
	      "  --op NAME       default sum\n"
	      "  --payload N     bytes per packet, a multiple of 64 up to 8192 (default 1024)\n"
	      "  --hosts N       1 to 16 (default 4)\n"
	      "  --jobs N        1 to 64 (default 1)\n"
	      "  --workers N     1 or 2 (default 1)\n"
	      "  --parent        as a switch that is no root: sums go up, results come down; per contribution (default: a root)\n"
	      "  --mbufs N       packets in flight; over hosts and jobs a power of two (default 2048)\n"
	      "  --batches N     2 to 4096, of which medians are taken (default 200)\n"
	      "  --seconds N     0 to 3600: go on so long for enough undisturbed batches (default 10, in a table 1 each)\n"
	      "  --calibration N cycles of an undisturbed one, as an earlier run found (default: the fastest of this run)\n"
	      "  --isa NAME      portable, avx2, avx512 or avx512fp16 (default: the best of this CPU)\n"
	      "  --no-huge       no hugepages (default: if 128 of 2 MiB are free)\n"
	      "  --json          print one JSON object\n"
	      "  --help\n",
	      status == 0 ? stdout : stderr);
	exit(status);
}

static void __attribute__((noreturn))
wrong(const char *option, const char *found, const char *expected)
{
	fprintf(stderr, "core-bench: --%s is '%s', expected %s\n", option, found, expected);
	exit(2);
}

static uint32_t
parse_number(const char *option, const char *text, uint32_t least, uint32_t most)
{
	char expected[64], *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < least || value > most) {
		snprintf(expected, sizeof(expected), "a number from %u to %u", least, most);
		wrong(option, text, expected);
	}
	return (uint32_t)value;
}

static unsigned int
parse_dtype(const char *name)
{
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		if (strcmp(name, fanin_dtype_name(dtype)) == 0)
			return dtype;
	}
	wrong("dtype", name, "one that `faninctl version` lists");
}

static unsigned int
parse_op(const char *name)
{
	for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
		if (strcmp(name, fanin_op_name(op)) == 0)
			return op;
	}
	wrong("op", name, "one that `faninctl version` lists");
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
check_settings(const struct settings *settings)
{
	const struct rig_options *rig = &settings->rig;
	uint32_t blocks = rig->mbufs / rig->hosts / rig->jobs;

	if (fanin_handler_find(rig->handler) == NULL)
		wrong("handler", rig->handler, "single, multi, tree or canary");
	if (rig->payload % FANIN_PAYLOAD_ALIGN != 0)
		wrong("payload", "not aligned", "a multiple of 64");
	if (rig->mbufs % (rig->hosts * rig->jobs) != 0 || (blocks & (blocks - 1)) != 0 || blocks < 2)
		wrong("mbufs", "uneven", "a power of two times --hosts times --jobs");
	if (fanin_kernel(rig->isa, rig->dtype, rig->op) == NULL)
		wrong("op", fanin_op_name(rig->op), "one that the data type has");
}

static void
parse(int argc, char **argv, struct settings *settings)
{
	static const struct option options[] = {
		{ "handler", required_argument, NULL, 'H' },
		{ "dtype", required_argument, NULL, 'd' },
		{ "op", required_argument, NULL, 'o' },
		{ "jobs", required_argument, NULL, 'J' },
		{ "scale", no_argument, NULL, 's' },
		{ "payload", required_argument, NULL, 'p' },
		{ "hosts", required_argument, NULL, 'n' },
		{ "workers", required_argument, NULL, 'w' },
		{ "parent", no_argument, NULL, 'P' },
		{ "mbufs", required_argument, NULL, 'm' },
		{ "batches", required_argument, NULL, 'b' },
		{ "seconds", required_argument, NULL, 't' },
		{ "calibration", required_argument, NULL, 'c' },
		{ "isa", required_argument, NULL, 'i' },
		{ "no-huge", no_argument, NULL, 'u' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct rig_options *rig = &settings->rig;
	int code;

	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		/* What names a combination ends the tour through all of them. */
		if (strchr("HdopnwJP", code) != NULL)
			settings->all = false;
		switch (code) {
		case 'H':
			rig->handler = optarg;
			break;
		case 'd':
			rig->dtype = parse_dtype(optarg);
			break;
		case 'o':
			rig->op = parse_op(optarg);
			break;
		case 'p':
			rig->payload = parse_number("payload", optarg, 64, 8192);
			break;
		case 'n':
			rig->hosts = (uint16_t)parse_number("hosts", optarg, 1, RIG_MAX_HOSTS);
			break;
		case 'w':
			rig->n_workers = (uint16_t)parse_number("workers", optarg, 1,
								RIG_MAX_WORKERS);
			break;
		case 'P':
			rig->parent = true;
			break;
		case 'J':
			rig->jobs = (uint16_t)parse_number("jobs", optarg, 1, RIG_MAX_JOBS);
			break;
		case 's':
			settings->scale = true;
			break;
		case 'm':
			rig->mbufs = parse_number("mbufs", optarg, 4, 65536);
			break;
		case 'b':
			settings->batches = parse_number("batches", optarg, 2, MAX_BATCHES);
			break;
		case 't':
			settings->seconds = parse_number("seconds", optarg, 0, 3600);
			break;
		case 'c':
			settings->fastest = parse_number("calibration", optarg, 1, UINT32_MAX);
			break;
		case 'i':
			rig->isa = parse_isa(optarg);
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
	check_settings(settings);
}

int
main(int argc, char **argv)
{
	struct tour tour = {
		.settings = {
			.rig = { .handler = "single", .dtype = FANIN_WIRE_F32, .op = FANIN_WIRE_SUM,
				 .payload = 1024, .hosts = 4, .jobs = 1, .n_workers = 1, .mbufs = 2048,
				 .isa = fanin_isa_detect() },
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
	settings->most_workers = settings->rig.n_workers;
	if (settings->all && !settings->scale && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		settings->most_workers = 2;
	rig_eal(settings->huge, settings->most_workers);
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
