/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel-bench: how fast each kernel combines vectors of 1 KiB, in a working set that fits into a
 * core's L2 cache and in one that does not, compared with memcpy on the same memory. The best of
 * several rounds counts; every kernel runs once in each round, so that other load on the machine
 * affects all alike. Exit status: 0 all right, 1 a type of less than 32 bits gains too little over
 * f32, 2 wrong usage.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/measure/machine.h"
#include "handlers/kernels/kernels.h"
#include "wire/types.h"

#define VECTOR_BYTES 1024
#define SMALL_BYTES (256u << 10) /* half of it accumulators, half of it contributions */
#define LARGE_BYTES (64u << 20)
#define ROUNDS 5
#define ROUND_SECONDS 0.001 /* minimum, for each kernel and working set */

/*
 * Minimum gain of types of less than 32 bits in L2, in elements per second of a sum relative to
 * f32, from this instruction set on. Without arithmetic on f16 the conversions cost as much as the
 * smaller elements save.
 */
static const struct goal {
	unsigned int dtype;
	enum fanin_isa isa;
	double ratio;
} goals[] = {
	{ FANIN_WIRE_F16, FANIN_ISA_AVX512FP16, 1.7 },
	{ FANIN_WIRE_I8, FANIN_ISA_PORTABLE, 3.0 },
};

#define N_GOALS (sizeof(goals) / sizeof(goals[0]))

/* Maximum of bytes of one vector combined (or copied) per second. */
struct rate {
	double small;
	double large;
};

struct bench {
	enum fanin_isa isa;
	uint8_t *memory; /* LARGE_BYTES */
	struct rate combine[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	struct rate finish[FANIN_WIRE_DTYPE_COUNT]; /* for averages */
	struct rate wide[FANIN_WIRE_DTYPE_COUNT]; /* for accumulation in f32, by bytes of the input
						   */
	struct rate copy;
};

static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/*
 * Fills the memory with ones and zeros in turn: no sum of them becomes denormal, no product
 * overflows.
 */
static void
fill(uint8_t *memory, size_t len, unsigned int dtype)
{
	static const uint64_t one[FANIN_WIRE_DTYPE_COUNT] = {
		[FANIN_WIRE_F16] = 0x3c00,
		[FANIN_WIRE_BF16] = 0x3f80,
		[FANIN_WIRE_F32] = 0x3f800000,
		[FANIN_WIRE_F64] = 0x3ff0000000000000,
	};
	uint64_t element = one[dtype] != 0 ? one[dtype] : 1;
	unsigned int size = fanin_dtype_size(dtype);

	memset(memory, 0, len);
	for (size_t i = 0; i < len; i += 2 * size)
		memcpy(memory + i, &element, size);
}

struct work {
	fanin_kernel_fn combine;
	fanin_finish_fn finish;
	const struct fanin_wide_kernels *wide;
	size_t count; /* elements of one vector */
};

static void
vector_work(const struct work *work, void *acc, const void *in)
{
	if (work->combine != NULL)
		work->combine(acc, in, work->count);
	else if (work->finish != NULL)
		work->finish(acc, 1, work->count);
	else if (work->wide != NULL)
		work->wide->accumulate(acc, in, work->count);
	else
		memcpy(acc, in, VECTOR_BYTES);
}

/*
 * Makes passes over a working set until enough time has passed. Returns bytes of contributions per
 * second.
 */
static double
rate_of(const struct bench *bench, const struct work *work, size_t set_bytes, size_t acc_bytes)
{
	size_t n_vectors = set_bytes / (VECTOR_BYTES + acc_bytes);
	const uint8_t *in = bench->memory + n_vectors * acc_bytes;
	double start, elapsed;
	size_t passes = 0;

	start = now_seconds();
	do {
		for (size_t i = 0; i < n_vectors; i++)
			vector_work(work, bench->memory + i * acc_bytes, in + i * VECTOR_BYTES);
		passes++;
		elapsed = now_seconds() - start;
	} while (elapsed < ROUND_SECONDS);
	return (double)(passes * n_vectors * VECTOR_BYTES) / elapsed;
}

static void
measure(struct bench *bench, struct rate *best, const struct work *work, size_t acc_bytes)
{
	double small, large;

	/* The first call fills the caches. */
	rate_of(bench, work, SMALL_BYTES, acc_bytes);
	small = rate_of(bench, work, SMALL_BYTES, acc_bytes);
	large = rate_of(bench, work, LARGE_BYTES, acc_bytes);
	best->small = small > best->small ? small : best->small;
	best->large = large > best->large ? large : best->large;
}

static void
measure_dtype(struct bench *bench, unsigned int dtype)
{
	size_t count = VECTOR_BYTES / fanin_dtype_size(dtype);
	struct work wide = { .wide = fanin_kernel_wide(bench->isa, dtype), .count = count };
	struct work finish = {
		.finish = fanin_kernel_finish(bench->isa, dtype, FANIN_WIRE_AVG),
		.count = count,
	};

	fill(bench->memory, LARGE_BYTES, dtype);
	for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
		struct work combine = {
			.combine = fanin_kernel(bench->isa, dtype, op),
			.count = count,
		};

		if (combine.combine != NULL)
			measure(bench, &bench->combine[dtype][op], &combine, VECTOR_BYTES);
	}
	measure(bench, &bench->finish[dtype], &finish, VECTOR_BYTES);
	if (wide.wide != NULL) {
		fill(bench->memory, LARGE_BYTES, dtype);
		measure(bench, &bench->wide[dtype], &wide, count * sizeof(float));
	}
}

/* Returns elements per second relative to f32. */
static double
goal_ratio(const struct bench *bench, const struct goal *goal)
{
	double elements = bench->combine[goal->dtype][FANIN_WIRE_SUM].small /
			  fanin_dtype_size(goal->dtype);

	return elements / (bench->combine[FANIN_WIRE_F32][FANIN_WIRE_SUM].small / sizeof(float));
}

static bool
goal_missed(const struct bench *bench, const struct goal *goal)
{
	return bench->isa >= goal->isa && goal_ratio(bench, goal) < goal->ratio;
}

typedef void (*take_fn)(const struct bench *bench, unsigned int dtype, const char *what,
			const struct rate *rate);

/* Calls `take` for each kernel that was measured, and prints the separator between two. */
static void
for_each_rate(const struct bench *bench, take_fn take, const char *separator)
{
	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (bench->combine[dtype][op].small <= 0)
				continue;
			fputs(dtype == 1 && op == 1 ? "" : separator, stdout);
			take(bench, dtype, fanin_op_name(op), &bench->combine[dtype][op]);
		}
		fputs(separator, stdout);
		take(bench, dtype, "division", &bench->finish[dtype]);
		if (bench->wide[dtype].small <= 0)
			continue;
		fputs(separator, stdout);
		take(bench, dtype, "sum-in-f32", &bench->wide[dtype]);
	}
}

static void
print_rate(const struct bench *bench, unsigned int dtype, const char *what, const struct rate *rate)
{
	double size = fanin_dtype_size(dtype);

	printf("%-5s %-10s %9.2f %8.1f %7.2f %9.2f %8.1f %7.2f\n", fanin_dtype_name(dtype), what,
	       rate->small / size / 1e9, rate->small / 1e9, rate->small / bench->copy.small,
	       rate->large / size / 1e9, rate->large / 1e9, rate->large / bench->copy.large);
}

static void
print_table(const struct bench *bench)
{
	printf("kernel-bench --isa %s, one core of %s, vectors of %u bytes, best of %u rounds\n",
	       fanin_isa_name(bench->isa), machine_cpu(), VECTOR_BYTES, ROUNDS);
	printf("Bytes are those of contributions: accumulators are read and written besides.\n");
	printf("\"memcpy\" is relative to memcpy, which copies %.1f and %.1f GB/s. \"division\" is the end of an average.\n\n",
	       bench->copy.small / 1e9, bench->copy.large / 1e9);
	printf("%-16s %26s %26s\n", "", "256 KiB", "64 MiB");
	printf("%-5s %-10s %9s %8s %7s %9s %8s %7s\n", "dtype", "kernel", "Gelem/s", "GB/s",
	       "memcpy", "Gelem/s", "GB/s", "memcpy");
	for_each_rate(bench, print_rate, "");
	printf("\nelements per second of sums in 256 KiB, relative to f32:\n");
	for (size_t i = 0; i < N_GOALS; i++) {
		printf("  %-4s %.2f", fanin_dtype_name(goals[i].dtype),
		       goal_ratio(bench, &goals[i]));
		if (bench->isa < goals[i].isa)
			printf("  (%.1f wanted with %s)\n", goals[i].ratio,
			       fanin_isa_name(goals[i].isa));
		else
			printf("  (%.1f wanted: %s)\n", goals[i].ratio,
			       goal_missed(bench, &goals[i]) ? "missed" : "reached");
	}
}

static void
print_rate_json(const struct bench *bench, unsigned int dtype, const char *what,
		const struct rate *rate)
{
	double size = fanin_dtype_size(dtype);

	(void)bench;
	printf("{\"dtype\": \"%s\", \"kernel\": \"%s\", \"small_elements_per_s\": %.0f, "
	       "\"small_bytes_per_s\": %.0f, \"large_elements_per_s\": %.0f, \"large_bytes_per_s\": %.0f}",
	       fanin_dtype_name(dtype), what, rate->small / size, rate->small, rate->large / size,
	       rate->large);
}

static void
print_json(const struct bench *bench)
{
	printf("{\"isa\": \"%s\", \"cpu\": \"%s\", \"vector_bytes\": %u, \"small_set_bytes\": %u, "
	       "\"large_set_bytes\": %u, \"rounds\": %u, ",
	       fanin_isa_name(bench->isa), machine_cpu(), VECTOR_BYTES, SMALL_BYTES, LARGE_BYTES,
	       ROUNDS);
	printf("\"memcpy\": {\"small_bytes_per_s\": %.0f, \"large_bytes_per_s\": %.0f}, \"kernels\": [",
	       bench->copy.small, bench->copy.large);
	for_each_rate(bench, print_rate_json, ", ");
	printf("], \"ratios\": {");
	for (size_t i = 0; i < N_GOALS; i++)
		printf("%s\"%s\": {\"found\": %.3f, \"wanted\": %.1f, \"ok\": %s}",
		       i == 0 ? "" : ", ", fanin_dtype_name(goals[i].dtype),
		       goal_ratio(bench, &goals[i]), goals[i].ratio,
		       goal_missed(bench, &goals[i]) ? "false" : "true");
	printf("}}\n");
}

static void __attribute__((noreturn)) usage(int status)
{
	fputs("Usage: kernel-bench [--isa NAME] [--json]\n"
	      "Measures the reduction kernels on one core, in some seconds.\n"
	      "\n"
	      "  --isa NAME  portable, avx2, avx512 or avx512fp16 (default: the best of this CPU)\n"
	      "  --json      print one JSON object\n"
	      "  --help\n",
	      status == 0 ? stdout : stderr);
	exit(status);
}

static enum fanin_isa
parse_isa(const char *name)
{
	enum fanin_isa best = fanin_isa_detect();

	for (int isa = 0; isa <= (int)best; isa++) {
		if (strcmp(name, fanin_isa_name((enum fanin_isa)isa)) == 0)
			return (enum fanin_isa)isa;
	}
	fprintf(stderr, "kernel-bench: --isa is '%s', expected one that this CPU has, up to %s\n",
		name, fanin_isa_name(best));
	exit(2);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "isa", required_argument, NULL, 'i' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	static struct bench bench;
	struct work copy = { .count = VECTOR_BYTES };
	bool json = false;
	int code, missed = 0;

	bench.isa = fanin_isa_detect();
	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (code == 'i')
			bench.isa = parse_isa(optarg);
		else if (code == 'j')
			json = true;
		else
			usage(code == 'h' ? 0 : 2);
	}
	if (optind < argc)
		usage(2);

	bench.memory = aligned_alloc(64, LARGE_BYTES);
	if (bench.memory == NULL) {
		fputs("kernel-bench: out of memory\n", stderr);
		return 2;
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++)
			measure_dtype(&bench, dtype);
		measure(&bench, &bench.copy, &copy, VECTOR_BYTES);
	}
	if (json)
		print_json(&bench);
	else
		print_table(&bench);
	for (size_t i = 0; i < N_GOALS; i++)
		missed += goal_missed(&bench, &goals[i]);
	free(bench.memory);
	return missed == 0 ? 0 : 1;
}
