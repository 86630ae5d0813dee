/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tag-bench: the cost of a tag on one core, for packets of several sizes, compared with the
 * addition of the same payload as f32. The best of several rounds counts; each round runs
 * everything once. Exit status: 0 all right, 2 wrong usage or no libcrypto.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/measure/machine.h"
#include "handlers/kernels/kernels.h"
#include "wire/tag.h"

#define ROUNDS 15
#define ROUND_PACKETS 2000
#define MAX_PAYLOAD 8896

static const uint32_t payloads[] = { 0, 1024, 3392, MAX_PAYLOAD };
#define N_PAYLOADS (sizeof(payloads) / sizeof(payloads[0]))

/* Minimum of nanoseconds per packet. */
struct cost {
	double seal;
	double open;
	double add;
};

static uint8_t frame[FANIN_PAYLOAD_OFFSET + MAX_PAYLOAD + FANIN_TAG_LEN]
	__attribute__((aligned(64)));
static uint8_t sum[MAX_PAYLOAD] __attribute__((aligned(64)));

static double
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void
min_set(double *least, double begun_ns)
{
	const double ns = (now_ns() - begun_ns) / ROUND_PACKETS;

	if (*least == 0 || ns < *least)
		*least = ns;
}

/* Runs one round. Returns false if libcrypto fails. */
static bool
round_run(struct fanin_tagger *tagger, uint32_t payload_len, struct cost *cost)
{
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	const fanin_kernel_fn add = fanin_kernel(fanin_isa_detect(), FANIN_WIRE_F32,
						 FANIN_WIRE_SUM);
	static struct fanin_headers sealed;
	double begun_ns = now_ns();
	bool ok = true;

	for (int i = 0; i < ROUND_PACKETS; i++) {
		fanin_wire_set_payload_len(headers, payload_len);
		headers->fanin.flags = 0;
		ok = ok && fanin_tagger_seal_frame(tagger, FANIN_TAG_UP, 1, headers);
	}
	min_set(&cost->seal, begun_ns);
	sealed = *headers;
	begun_ns = now_ns();
	for (int i = 0; i < ROUND_PACKETS; i++) {
		*headers = sealed;
		ok = ok && fanin_tagger_open_frame(tagger, FANIN_TAG_UP, 1, headers);
	}
	min_set(&cost->open, begun_ns);
	begun_ns = now_ns();
	for (int i = 0; i < ROUND_PACKETS; i++)
		add(sum, headers + 1, payload_len / 4);
	min_set(&cost->add, begun_ns);
	return ok;
}

static void
print_table(const struct cost *costs)
{
	printf("tag-bench: Poly1305-AES over header and payload, %s; ns per packet\n\n",
	       machine_cpu());
	printf("%8s %9s %9s %12s\n", "payload", "put on", "check", "add (f32)");
	for (size_t i = 0; i < N_PAYLOADS; i++)
		printf("%8u %9.0f %9.0f %12.0f\n", payloads[i], costs[i].seal, costs[i].open,
		       costs[i].add);
}

static void
print_json(const struct cost *costs)
{
	printf("{\"cpu\": \"%s\", \"rounds\": %d, \"costs\": [", machine_cpu(), ROUNDS);
	for (size_t i = 0; i < N_PAYLOADS; i++)
		printf("%s{\"payload_bytes\": %u, \"seal_ns\": %.1f, \"open_ns\": %.1f, \"add_ns\": %.1f}",
		       i == 0 ? "" : ", ", payloads[i], costs[i].seal, costs[i].open, costs[i].add);
	printf("]}\n");
}

static void __attribute__((noreturn)) usage(int status)
{
	fputs("Usage: tag-bench [--json]\n"
	      "Measures what it takes to put tags on packets and to check them, on one core, in a second.\n"
	      "\n"
	      "  --json      print one JSON object\n"
	      "  --help\n",
	      status == 0 ? stdout : stderr);
	exit(status);
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct cost costs[N_PAYLOADS] = { 0 };
	struct fanin_tagger *tagger;
	bool json = false, ok;
	int code;

	while ((code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (code == 'j')
			json = true;
		else
			usage(code == 'h' ? 0 : 2);
	}
	if (optind < argc)
		usage(2);
	ok = fanin_tagger_create(1, &tagger) == 0;
	fanin_wire_encode_header(&((struct fanin_headers *)frame)->fanin, FANIN_TYPE_CONTRIBUTION,
				 1, 1, 1);
	for (int round = 0; ok && round < ROUNDS; round++) {
		for (size_t i = 0; ok && i < N_PAYLOADS; i++)
			ok = round_run(tagger, payloads[i], &costs[i]);
	}
	if (!ok) {
		fputs("tag-bench: libcrypto has no AES-128 or no Poly1305\n", stderr);
		return 2;
	}
	fanin_tagger_destroy(tagger);
	if (json)
		print_json(costs);
	else
		print_table(costs);
	return 0;
}
