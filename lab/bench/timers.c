/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * timers-bench: the cost of timers for a worker. Batches of packets in memory
 * (lab/bench/core_rig.h) go through the pipeline to a handler that arms a timer with every Nth
 * packet. N is chosen such that a worker without timers would arm the requested number per second.
 * For comparison, batches go to the same handler, which also selects every Nth packet, but arms no
 * timer. Timers expire while packets come, on a clock that advances by the time of each packet; all
 * of them expire before a batch's time is taken. Three batches make a comparison: without, with,
 * without. So a drift cancels out, and the difference of the first and the last one shows the
 * noise. Medians are over undisturbed comparisons. Exit status: 0 all right, 1 something went
 * wrong, 2 wrong usage.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "lab/bench/core_rig.h"
#include "tools/measure/machine.h"
#include "tools/measure/options.h"
#include "pipeline/worker.h"

#define HUGEPAGES 128
#define TIMEOUT_NS UINT64_C(50000)
#define WARM_UP 50
#define MAX_COMPARISONS 16384
/*
 * As for core-bench: undisturbed calibrations lie within 3 %, others begin at 8 % above the
 * fastest.
 */
#define TOLERANCE_PERCENT 5

enum mode {
	COMPARE,
	ONLY_WITH, /* for counting instructions */
	ONLY_WITHOUT,
};

struct settings {
	struct rig_options rig;
	uint64_t per_second; /* timers to be armed */
	uint32_t every;      /* packets per timer; 0: as per_second requires */
	uint32_t comparisons;
	enum mode mode;
	bool huge;
	bool json;
};

/* State of the handler and of the clock. One worker. */
static struct {
	const struct fanin_handler *reduces; /* does the rest of the handler's work */
	uint32_t every;                      /* packets per timer */
	uint32_t left;                       /* packets until the next one */
	bool arms;
	uint64_t armed;
	uint64_t expired;
	uint64_t stale; /* of these, timers whose slot had moved to another block */
	uint64_t clock_ns;
	double packet_ns; /* time of a packet without timers */
} bench;

/* Cycles of the batches of one comparison. */
struct comparison {
	uint64_t before;
	uint64_t with;
	uint64_t after;
	uint64_t calibration; /* the slowest of them */
};

static uint64_t
read_clock(void *user)
{
	(void)user;
	return bench.clock_ns;
}

static enum fanin_verdict
arming_contribution(struct fanin_handler_ctx *ctx, void *slot, uint32_t index,
		    struct fanin_packet *packet, enum fanin_reason *reason)
{
	if (__builtin_expect(--bench.left == 0, 0)) {
		bench.left = bench.every;
		if (bench.arms)
			bench.armed += fanin_timer_arm(ctx, index, packet->headers->fanin.block);
	}
	return bench.reduces->contribution(ctx, slot, index, packet, reason);
}

static uint64_t
arming_timeout_ns(const struct fanin_job_params *job)
{
	(void)job;
	return TIMEOUT_NS;
}

/* Reads the slot, as every handler has to. */
static bool
arming_expired(struct fanin_handler_ctx *ctx, void *slot, uint32_t index, uint32_t block)
{
	uint32_t first;

	(void)ctx;
	(void)index;
	memcpy(&first, slot, sizeof(first));
	bench.stale += first != block;
	bench.expired++;
	return true;
}

static void
register_handler(void)
{
	static struct fanin_handler arming;

	bench.reduces = fanin_handler_find("single");
	arming = *bench.reduces;
	arming.name = "arming";
	arming.description = "as single, with a timer for every so many packets";
	arming.suits = NULL;
	arming.contribution = arming_contribution;
	arming.timeout_ns = arming_timeout_ns;
	arming.expired = arming_expired;
	fanin_handler_register(&arming);
}

/* Runs until all packets are taken and no timer is left. */
static uint64_t
run(struct rig *rig, unsigned int worker, void *argument)
{
	struct worker *state = rig->pipeline->workers[worker];
	const uint32_t expected = rig_share(rig);
	const uint64_t start = rte_rdtsc();
	const uint64_t start_ns = bench.clock_ns;
	uint32_t done = 0;

	(void)argument;
	while (done < expected) {
		done += worker_round(state);
		bench.clock_ns = start_ns + (uint64_t)(done * bench.packet_ns);
	}
	bench.clock_ns += TIMEOUT_NS;
	worker_round(state);
	return rte_rdtsc() - start;
}

/* Runs one batch. calibration: raised to the slowest. */
static uint64_t
take_batch(struct rig *rig, bool arms, uint64_t *calibration)
{
	uint64_t cycles;

	bench.arms = arms;
	rig_prepare(rig);
	rig_offer(rig);
	*calibration = RTE_MAX(*calibration, rig_calibrate(rig));
	cycles = rig_on_workers(rig, run, NULL);
	*calibration = RTE_MAX(*calibration, rig_calibrate(rig));
	rig_collect(rig);
	return cycles;
}

static struct comparison
compare(struct rig *rig)
{
	struct comparison found = { 0 };

	found.before = take_batch(rig, false, &found.calibration);
	found.with = take_batch(rig, true, &found.calibration);
	found.after = take_batch(rig, false, &found.calibration);
	return found;
}

static int
order(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double
median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), order);
	return values[n / 2];
}

/*
 * Returns packets per second without timers, in the fastest of some batches: the clock and the rate
 * of timers use it.
 */
static double
packets_per_second(struct rig *rig)
{
	uint64_t fastest = UINT64_MAX, ignored = 0;

	for (unsigned int i = 0; i < WARM_UP; i++)
		fastest = RTE_MIN(fastest, take_batch(rig, false, &ignored));
	return (double)rte_get_tsc_hz() * rig->options.mbufs / (double)fastest;
}

static void
check_timers(const struct rig *rig)
{
	const struct counters *counters = &rig->pipeline->workers[0]->counters;

	if (bench.expired != bench.armed || counters->timers_early != 0)
		rig_die("%" PRIu64 " timers were armed, %" PRIu64 " have expired, %" PRIu64
			" early",
			bench.armed, bench.expired, counters->timers_early);
}

static void
print(const struct settings *settings, double packets, double cost, double noise,
      uint32_t undisturbed)
{
	const uint32_t every = bench.every;
	const double share = (double)undisturbed / settings->comparisons;

	if (settings->json)
		printf("{\"cpu\": \"%s\", \"isa\": \"%s\", \"payload\": %u, \"hosts\": %u, \"packets_per_s\": %.0f, "
		       "\"every\": %u, \"timers_per_s\": %.0f, \"cost\": %.5f, \"noise\": %.5f, "
		       "\"comparisons\": %u, \"undisturbed\": %u, \"stale\": %.4f}\n",
		       machine_cpu(), fanin_isa_name(settings->rig.isa), settings->rig.payload,
		       settings->rig.hosts, packets, every, packets / every, cost, noise,
		       settings->comparisons, undisturbed,
		       bench.expired == 0 ? 0 : (double)bench.stale / (double)bench.expired);
	else
		printf("%u bytes, %u hosts: %.2f Mpps; with a timer for every %u packets, %.2f M per second, %.2f %% less (noise %.2f %%; %.0f %% of %u comparisons undisturbed)\n",
		       settings->rig.payload, settings->rig.hosts, packets / 1e6, every,
		       packets / every / 1e6, 100 * cost, 100 * noise, 100 * share,
		       settings->comparisons);
}

static void
measure(const struct settings *settings, struct rig *rig, double packets)
{
	static struct comparison found[MAX_COMPARISONS];
	static double costs[MAX_COMPARISONS], noises[MAX_COMPARISONS];
	uint64_t fastest = UINT64_MAX;
	uint32_t n = 0;

	for (uint32_t i = 0; i < settings->comparisons; i++) {
		found[i] = compare(rig);
		fastest = RTE_MIN(fastest, found[i].calibration);
	}
	for (uint32_t i = 0; i < settings->comparisons; i++) {
		const double without = (double)(found[i].before + found[i].after) / 2;

		if ((found[i].calibration - fastest) * 100 > fastest * TOLERANCE_PERCENT)
			continue;
		/* Both are shares of the packets per second without timers. */
		costs[n] = 1 - without / (double)found[i].with;
		noises[n++] = 1 - (double)found[i].before / (double)found[i].after;
	}
	check_timers(rig);
	print(settings, packets, median(costs, n), median(noises, n), n);
}

static const char *const kinds[] = { [ONLY_WITH] = "with", [ONLY_WITHOUT] = "without" };

static const struct cli_field fields[] = {
	{ "per-second", "N", "timers armed per second (default 1000000)",
	  CLI_NUMBER(struct settings, per_second, 1, 1000000000) },
	{ "every", "N", "a timer for every N packets instead",
	  CLI_NUMBER(struct settings, every, 1, 1000000) },
	{ "payload", "N", "bytes per packet, a multiple of 64 up to 8192 (default 1024)",
	  CLI_NUMBER(struct settings, rig.payload, 64, 8192) },
	{ "hosts", "N", "1 to 16 (default 4)",
	  CLI_NUMBER(struct settings, rig.hosts, 1, RIG_MAX_HOSTS) },
	{ "comparisons", "N", "1 to 16384 (default 2000)",
	  CLI_NUMBER(struct settings, comparisons, 1, MAX_COMPARISONS) },
	{ "only", "KIND", "with or without: batches of that kind alone, and nothing is told",
	  .kind = CLI_CHOICE, CLI_FIELD(struct settings, mode), CLI_NAMES(kinds),
	  .expected = "with or without" },
	{ "isa", "NAME", BENCH_ISA(struct settings, rig.isa) },
	{ "no-huge", NULL, "no hugepages (default: if 128 of 2 MiB are free)", .kind = CLI_CLEAR,
	  CLI_FIELD(struct settings, huge) },
	{ "json", NULL, "print one JSON object", CLI_FLAG(struct settings, json) },
	{ "help", .kind = CLI_HELP },
	{ 0 },
};

static const struct cli_program program = {
	.fields = fields,
	BENCH_PROGRAM,
	.column = 19,
	.about = "Usage: timers-bench [OPTIONS]\n"
		 "Measures what timers of handlers cost a worker, on packets in memory.\n"
		 "\n",
};

static void
parse(int argc, char **argv, struct settings *settings)
{
	struct cli_given given;

	if (cli_fields_parse(&program, settings, argc, argv, &given) < argc ||
	    settings->rig.payload % FANIN_PAYLOAD_ALIGN != 0 ||
	    settings->rig.mbufs % settings->rig.hosts != 0)
		bench_usage(&program, 2);
}

int
main(int argc, char **argv)
{
	struct settings settings = {
		.rig = { .handler = "arming",
			 .dtype = FANIN_WIRE_F32,
			 .op = FANIN_WIRE_SUM,
			 .payload = 1024,
			 .hosts = 4,
			 .jobs = 1,
			 .n_workers = 1,
			 .mbufs = 2048,
			 .isa = fanin_isa_detect() },
		.per_second = 1000000,
		.comparisons = 2000,
		.huge = machine_free_hugepages() >= HUGEPAGES,
	};
	struct rig rig;
	uint64_t ignored = 0;
	double packets;

	parse(argc, argv, &settings);
	register_handler();
	rig_eal(settings.huge, 1);
	rig_open(&rig, &settings.rig);
	bench.clock_ns = pipeline_now_ns();
	rig.pipeline->clock = read_clock;
	bench.every = settings.every != 0 ? settings.every : UINT32_MAX;
	bench.left = bench.every;
	packets = settings.mode == COMPARE ? packets_per_second(&rig)
					   : (double)bench.every * (double)settings.per_second;
	/* Rounds so that no fewer timers are armed than requested. */
	if (settings.every == 0)
		bench.every = (uint32_t)RTE_MAX(1.0, packets / (double)settings.per_second);
	bench.left = bench.every;
	bench.packet_ns = 1e9 / packets;
	if (settings.mode == COMPARE) {
		measure(&settings, &rig, packets);
	} else {
		for (uint32_t i = 0; i < settings.comparisons; i++)
			take_batch(&rig, settings.mode == ONLY_WITH, &ignored);
		check_timers(&rig);
	}
	rig_close(&rig);
	return 0;
}
