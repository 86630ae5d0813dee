/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-perf: runs allreduces as one rank of a job, measures them and can check every element against a result that it
 * computes itself (perf_data.c), without the switch. Uses the public library only. Exit status: 0 all right, 1 a wrong
 * element or a failed run, 2 wrong usage, 130 and 143 after SIGINT and SIGTERM.
 */
#include <errno.h>
#include <fanin/fanin.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/perf_custom.h"
#include "tools/perf_data.h"

#define CHECK_CHUNK 16384 /* elements */
#define BAR_WIDTH 30

struct options {
	struct fanin_init_opts init;
	struct fanin_join_opts join;
	uint64_t bytes;
	uint64_t iters;
	uint64_t warmup;
	uint32_t seed;
	const char *dtype_name;
	const char *op_name;
	enum fanin_dtype dtype;
	enum fanin_op op;
	bool check;
	bool json;
	bool progress;
	bool verbose;
};

struct run {
	const struct options *options;
	fanin_ctx *ctx;
	fanin_comm *comm;
	fanin_request *request; /* being waited for, or NULL */
	struct fanin_report report;
	void *send;
	void *recv;
	uint64_t count;     /* elements */
	uint64_t iteration; /* including warm-up */
	uint64_t measured;  /* iterations that count */
	uint64_t mismatches;
	double seconds; /* of the measured allreduces alone */
	double started; /* the one that runs */
	int status;
	char message[512];
	uint64_t missing;
};

static volatile sig_atomic_t got_signal;

static void
on_signal(int number)
{
	got_signal = number;
}

static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ----------------------------------------------------------------- check */

static struct perf_data
data_of(const struct options *options)
{
	return (struct perf_data){
		.dtype = options->dtype,
		.op = options->op,
		.seed = options->seed,
		.size = options->join.size,
	};
}

/* The bits of an element, for people. */
static uint64_t
element_bits(const uint8_t *elements, uint64_t index, size_t size)
{
	uint64_t bits = 0;

	memcpy(&bits, elements + index * size, size);
	return bits;
}

/* Counts the elements of a result that differ in any bit from the reference. */
static uint64_t
result_check(const struct run *run, const void *result)
{
	static uint64_t expected_chunk[CHECK_CHUNK];
	const uint8_t *expected = (const uint8_t *)expected_chunk;
	const struct options *options = run->options;
	struct perf_data data = data_of(options);
	size_t size = fanin_dtype_size_of(options->dtype);
	uint64_t mismatches = 0;

	for (uint64_t first = 0; first < run->count && got_signal == 0; first += CHECK_CHUNK) {
		uint64_t n = run->count - first < CHECK_CHUNK ? run->count - first : CHECK_CHUNK;
		const uint8_t *found = (const uint8_t *)result + first * size;

		perf_data_expect(&data, run->iteration, first, n, expected_chunk);
		if (memcmp(expected, found, n * size) == 0)
			continue;
		for (uint64_t i = 0; i < n; i++) {
			if (memcmp(expected + i * size, found + i * size, size) == 0)
				continue;
			if (mismatches++ == 0)
				fprintf(stderr,
					"fanin-perf: iteration %" PRIu64 ", element %" PRIu64
					": found 0x%0*" PRIx64 ", expected 0x%0*" PRIx64 "\n",
					run->iteration, first + i, (int)size * 2,
					element_bits(found, i, size), (int)size * 2,
					element_bits(expected, i, size));
		}
	}
	return mismatches;
}

/* -------------------------------------------------------------- progress */

static void
bar_draw(const struct run *run)
{
	uint64_t total_bytes;
	uint64_t done_bytes = fanin_request_progress(run->request, &total_bytes);
	double share = total_bytes == 0 ? 0 : (double)done_bytes / (double)total_bytes;
	double elapsed = now_seconds() - run->started;
	double rate = elapsed > 0 ? (double)done_bytes / elapsed : 0;
	char bar[BAR_WIDTH + 1];

	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr,
		"\rrank %u  %" PRIu64 "/%" PRIu64 "  [%s] %3.0f %%  %7.1f MB/s  ETA %.1f s   ",
		run->options->join.rank, run->iteration + 1,
		run->options->warmup + run->options->iters, bar, share * 100, rate / 1e6,
		rate > 0 ? (double)(total_bytes - done_bytes) / rate : 0);
}

static bool
on_wait(void *arg)
{
	const struct run *run = arg;

	if (run->options->progress && run->request != NULL)
		bar_draw(run);
	return got_signal != 0;
}

static void
on_print(int level, const char *line, void *arg)
{
	(void)arg;
	if (level <= 2) /* everything but libbpf's details */
		fprintf(stderr, "fanin-perf: %s\n", line);
}

/* ------------------------------------------------------------------- run */

static int
allreduce(struct run *run, const void *send, void *recv, uint64_t count)
{
	int status;

	status = fanin_iallreduce(send, recv, count, run->options->dtype, run->options->op,
				  run->comm, &run->request);
	if (status == FANIN_OK)
		status = fanin_wait(&run->request);
	return status;
}

static int
iterate(struct run *run)
{
	const struct options *options = run->options;
	struct perf_data data = data_of(options);
	double seconds;
	int status;

	perf_data_fill(&data, options->join.rank, run->iteration, 0, run->count, run->send);
	memset(run->recv, 0xa5, run->count * fanin_dtype_size_of(options->dtype));

	/* An empty collective first: the time must not hold how long the others took for their data. */
	status = allreduce(run, NULL, NULL, 0);
	if (status != FANIN_OK)
		return status;
	run->started = now_seconds();
	status = allreduce(run, run->send, run->recv, run->count);
	seconds = now_seconds() - run->started;
	if (status != FANIN_OK)
		return status;
	if (options->progress)
		fputs("\r\033[K", stderr);
	if (run->iteration >= options->warmup) {
		run->seconds += seconds;
		run->measured++;
	}
	if (options->check)
		run->mismatches += result_check(run, run->recv);
	return got_signal == 0 ? FANIN_OK : FANIN_ERR_INTERRUPTED;
}

/* Everything between fanin_init and fanin_leave. */
static int
run_all(struct run *run)
{
	const struct options *options = run->options;
	size_t len = options->bytes != 0 ? options->bytes : 1;
	int status = FANIN_ERR_NO_MEMORY;

	run->send = malloc(len);
	run->recv = malloc(len);
	if (run->send != NULL && run->recv != NULL)
		status = fanin_join(run->ctx, &options->join, &run->comm);
	for (run->iteration = 0;
	     status == FANIN_OK && run->iteration < options->warmup + options->iters;
	     run->iteration++)
		status = iterate(run);

	snprintf(run->message, sizeof(run->message), "%s", fanin_ctx_error(run->ctx));
	if (status != FANIN_OK && run->message[0] == '\0')
		snprintf(run->message, sizeof(run->message), "%s", fanin_strerror(status));
	run->missing = fanin_ctx_missing(run->ctx);
	run->status = status;
	return status;
}

/* ---------------------------------------------------------------- output */

static const char *
status_code(int status)
{
	switch (status) {
	case FANIN_ERR_INVALID:
		return "invalid";
	case FANIN_ERR_NO_MEMORY:
		return "no_memory";
	case FANIN_ERR_TRANSPORT:
		return "transport";
	case FANIN_ERR_NO_ROUTE:
		return "no_route";
	case FANIN_ERR_JOIN_REFUSED:
		return "join_refused";
	case FANIN_ERR_JOIN_TIMEOUT:
		return "join_timeout";
	case FANIN_ERR_UNSUPPORTED:
		return "unsupported";
	case FANIN_ERR_TIMEOUT:
		return "timeout";
	case FANIN_ERR_REFUSED:
		return "refused";
	case FANIN_ERR_PERMISSION:
		return "permission";
	case FANIN_ERR_INTERRUPTED:
		return "interrupted";
	default:
		return "system";
	}
}

static void
json_string(const char *name, const char *value)
{
	printf("\"%s\": ", name);
	if (value == NULL) {
		printf("null, ");
		return;
	}
	putchar('"');
	for (; *value != '\0'; value++) {
		if (*value == '"' || *value == '\\')
			printf("\\%c", *value);
		else if ((unsigned char)*value < ' ')
			printf("\\u%04x", (unsigned int)*value);
		else
			putchar(*value);
	}
	printf("\", ");
}

static double
goodput_gbps(const struct run *run)
{
	return run->seconds > 0
		       ? (double)(run->options->bytes * run->measured) * 8 / run->seconds / 1e9
		       : 0;
}

static void
json_print(const struct run *run)
{
	const struct options *options = run->options;
	const struct fanin_report *report = &run->report;
	const char *separator = "";

	printf("{\"ok\": %s, \"rank\": %u, \"size\": %u, \"bytes\": %" PRIu64 ", ",
	       run->status == FANIN_OK && run->mismatches == 0 ? "true" : "false",
	       options->join.rank, options->join.size, options->bytes);
	json_string("dtype", options->dtype_name);
	json_string("op", options->op_name);
	printf("\"iters\": %" PRIu64 ", \"checked\": %s, \"mismatches\": %" PRIu64
	       ", \"seconds\": %.9f, "
	       "\"goodput_gbps\": %.6f, ",
	       run->measured, options->check ? "true" : "false", run->mismatches, run->seconds,
	       goodput_gbps(run));
	json_string("transport", report->transport);
	json_string("transport_reason", report->transport_reason);
	printf("\"in_network\": %s, ", report->in_network ? "true" : "false");
	json_string("handler", report->handler);
	printf("\"retransmits\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"invalid\": %" PRIu64
	       ", \"frames_sent\": %" PRIu64 ", \"frames_received\": %" PRIu64
	       ", \"window\": %u, \"payload_bytes\": %u, ",
	       report->retransmits, report->duplicates, report->invalid, report->frames_sent,
	       report->frames_received, report->window, report->payload_bytes);
	if (run->status == FANIN_OK) {
		printf("\"error\": null}\n");
		return;
	}
	printf("\"error\": {");
	json_string("code", status_code(run->status));
	json_string("message", run->message);
	printf("\"missing\": [");
	for (uint64_t ranks = run->missing; ranks != 0; ranks &= ranks - 1) {
		printf("%s%d", separator, __builtin_ctzll(ranks));
		separator = ", ";
	}
	printf("]}}\n");
}

static void
line_print(const struct run *run)
{
	const struct options *options = run->options;
	const struct fanin_report *report = &run->report;

	if (run->status != FANIN_OK) {
		fprintf(stderr, "fanin-perf: %s\n", run->message);
		return;
	}
	printf("rank %u/%u  %" PRIu64 " bytes %s %s x%" PRIu64 "  %.6f s  %.3f Gbit/s  %s  %s (%s)  "
	       "%" PRIu64 " retransmits  %s\n",
	       options->join.rank, options->join.size, options->bytes, options->dtype_name,
	       options->op_name, run->measured, run->seconds, goodput_gbps(run), report->transport,
	       report->in_network ? "in network" : "not in network", report->handler,
	       report->retransmits,
	       run->mismatches != 0 ? "WRONG"
	       : options->check     ? "checked"
				    : "not checked");
	if (run->mismatches != 0)
		fprintf(stderr, "fanin-perf: %" PRIu64 " elements are wrong\n", run->mismatches);
}

/* --------------------------------------------------------------- options */

static const char usage_text[] =
	"Usage: fanin-perf --switch IP --job N --rank R --size P --key KEY [option...]\n"
	"Runs allreduces as rank R of P of a job on a Fanin switch and measures them.\n"
	"\n"
	"  --switch IP          the switch's IPv4 address\n"
	"  --job N              the job's number\n"
	"  --rank R             this host's rank, 0 to P - 1\n"
	"  --size P             ranks in the job\n"
	"  --key KEY            the job's key, as 0x...\n"
	"  --interface NAME     network interface (default: that of the route to the switch)\n"
	"  --transport NAME     auto, af_xdp or af_packet (default: auto)\n"
	"  --bytes N            size of the vector; k, KiB, MB, MiB, GiB... (default: 64MiB)\n"
	"  --dtype TYPE         i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 or f64\n"
	"                       (default: f32)\n"
	"  --op OP              sum, prod, min, max or avg; on integers also land, lor, lxor,\n"
	"                       band, bor and bxor (default: sum)\n"
	"                       --dtype complex-f32 --op prod is a custom operator\n"
	"  --iters N            measured allreduces (default: 1)\n"
	"  --warmup N           allreduces before that (default: 0)\n"
	"  --check              compare every element with a result computed here\n"
	"  --seed N             of the data; the same on every rank (default: 1)\n"
	"  --window N           most packets in flight (default: the job's)\n"
	"  --no-stagger         send in order instead of rotated by rank\n"
	"  --timeout-ms N       longest wait without a result (default: 5000)\n"
	"  --join-timeout-ms N  longest wait for the other ranks to join (default: 30000)\n"
	"  --json               print one JSON object\n"
	"  --progress, --no-progress\n"
	"                       progress bar on stderr (default: if it is a terminal)\n"
	"  --verbose            diagnostics on stderr\n"
	"  --help, --version\n";

static void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...)
{
	va_list args;

	fputs("fanin-perf: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\nfanin-perf --help lists the options.\n", stderr);
	exit(2);
}

static uint64_t
parse_number(const char *name, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < least ||
	    value > most)
		usage_error("--%s is '%s', expected %" PRIu64 " to %" PRIu64, name, text, least,
			    most);
	return value;
}

static uint64_t
parse_bytes(const char *text)
{
	static const struct {
		const char *suffix;
		uint64_t factor;
	} units[] = {
		{ "", 1 },          { "B", 1 },          { "k", 1000 },
		{ "kB", 1000 },     { "KB", 1000 },      { "M", 1000000 },
		{ "MB", 1000000 },  { "G", 1000000000 }, { "GB", 1000000000 },
		{ "K", 1024 },      { "KiB", 1024 },     { "MiB", 1 << 20 },
		{ "GiB", 1 << 30 },
	};
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	for (size_t i = 0;
	     errno == 0 && end != text && text[0] != '-' && i < sizeof(units) / sizeof(units[0]);
	     i++) {
		if (strcmp(end, units[i].suffix) == 0 && value <= INT64_MAX / units[i].factor)
			return value * units[i].factor;
	}
	usage_error("--bytes is '%s', expected a size such as 4096, 64KiB or 1GiB", text);
}

enum option_code {
	OPT_SWITCH = 1,
	OPT_JOB,
	OPT_RANK,
	OPT_SIZE,
	OPT_KEY,
	OPT_INTERFACE,
	OPT_TRANSPORT,
	OPT_BYTES,
	OPT_DTYPE,
	OPT_OP,
	OPT_ITERS,
	OPT_WARMUP,
	OPT_CHECK,
	OPT_SEED,
	OPT_WINDOW,
	OPT_NO_STAGGER,
	OPT_TIMEOUT,
	OPT_JOIN_TIMEOUT,
	OPT_JSON,
	OPT_PROGRESS,
	OPT_NO_PROGRESS,
	OPT_VERBOSE,
	OPT_HELP,
	OPT_VERSION,
	OPT_COUNT
};

static const struct option long_options[] = {
	{ "switch", required_argument, NULL, OPT_SWITCH },
	{ "job", required_argument, NULL, OPT_JOB },
	{ "rank", required_argument, NULL, OPT_RANK },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "key", required_argument, NULL, OPT_KEY },
	{ "interface", required_argument, NULL, OPT_INTERFACE },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "bytes", required_argument, NULL, OPT_BYTES },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "op", required_argument, NULL, OPT_OP },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "warmup", required_argument, NULL, OPT_WARMUP },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "window", required_argument, NULL, OPT_WINDOW },
	{ "no-stagger", no_argument, NULL, OPT_NO_STAGGER },
	{ "timeout-ms", required_argument, NULL, OPT_TIMEOUT },
	{ "join-timeout-ms", required_argument, NULL, OPT_JOIN_TIMEOUT },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "progress", no_argument, NULL, OPT_PROGRESS },
	{ "no-progress", no_argument, NULL, OPT_NO_PROGRESS },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* Appends a name to a list in text. */
static void
list_append(char *text, size_t len, const char *name)
{
	size_t used = strlen(text);

	snprintf(text + used, len - used, "%s%s", used == 0 ? "" : ", ", name);
}

static enum fanin_dtype
parse_dtype(const char *text)
{
	char names[256] = "";

	for (int code = FANIN_I8; code <= FANIN_F64; code++) {
		const char *name = fanin_dtype_name_of((enum fanin_dtype)code);

		if (strcmp(text, name) == 0)
			return (enum fanin_dtype)code;
		list_append(names, sizeof(names), name);
	}
	for (size_t i = 0; perf_custom_at(i) != NULL; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s with --op %s", perf_custom_at(i)->dtype_name,
			 perf_custom_at(i)->op_name);
		list_append(names, sizeof(names), name);
	}
	usage_error("--dtype is '%s', expected one of: %s", text, names);
}

static enum fanin_op
parse_op(const char *text)
{
	char names[256] = "";

	for (int code = FANIN_SUM; code <= FANIN_AVG; code++) {
		const char *name = fanin_op_name_of((enum fanin_op)code);

		if (strcmp(text, name) == 0)
			return (enum fanin_op)code;
		list_append(names, sizeof(names), name);
	}
	usage_error("--op is '%s', expected one of: %s", text, names);
}

static void
check_operation(enum fanin_dtype dtype, enum fanin_op op)
{
	char names[256] = "";

	if (fanin_supports(dtype, op))
		return;
	for (int code = FANIN_SUM; code <= FANIN_AVG; code++) {
		if (fanin_supports(dtype, (enum fanin_op)code))
			list_append(names, sizeof(names), fanin_op_name_of((enum fanin_op)code));
	}
	usage_error("--op is '%s', which is not defined on %s; expected one of: %s",
		    fanin_op_name_of(op), fanin_dtype_name_of(dtype), names);
}

/* From the names to the codes. */
static void
operation_resolve(struct options *options)
{
	const struct perf_custom *custom = perf_custom_find(options->dtype_name, options->op_name);

	if (custom != NULL) {
		options->dtype = custom->dtype;
		options->op = custom->op;
		return;
	}
	options->dtype = parse_dtype(options->dtype_name);
	options->op = parse_op(options->op_name);
	check_operation(options->dtype, options->op);
}

static void
option_take(struct options *options, int code, const char *name, const char *value)
{
	struct fanin_join_opts *join = &options->join;

	switch (code) {
	case OPT_SWITCH:
		join->switch_address = value;
		break;
	case OPT_JOB:
		join->job = (uint32_t)parse_number(name, value, 1, 65535);
		break;
	case OPT_RANK:
		join->rank = (uint16_t)parse_number(name, value, 0, 63);
		break;
	case OPT_SIZE:
		join->size = (uint16_t)parse_number(name, value, 1, 64);
		break;
	case OPT_KEY:
		join->key = parse_number(name, value, 0, UINT64_MAX);
		break;
	case OPT_INTERFACE:
		join->interface = value;
		break;
	case OPT_TRANSPORT:
		options->init.transport = value;
		break;
	case OPT_BYTES:
		options->bytes = parse_bytes(value);
		break;
	case OPT_DTYPE:
		options->dtype_name = value;
		break;
	case OPT_OP:
		options->op_name = value;
		break;
	case OPT_ITERS:
		options->iters = parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_WARMUP:
		options->warmup = parse_number(name, value, 0, UINT32_MAX);
		break;
	case OPT_CHECK:
		options->check = true;
		break;
	case OPT_SEED:
		options->seed = (uint32_t)parse_number(name, value, 0, UINT32_MAX);
		break;
	case OPT_WINDOW:
		join->window = (uint16_t)parse_number(name, value, 1, UINT16_MAX);
		break;
	case OPT_NO_STAGGER:
		join->no_stagger = true;
		break;
	case OPT_TIMEOUT:
		join->timeout_ms = (uint32_t)parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_JOIN_TIMEOUT:
		join->join_timeout_ms = (uint32_t)parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_PROGRESS:
		options->progress = true;
		break;
	case OPT_NO_PROGRESS:
		options->progress = false;
		break;
	case OPT_VERBOSE:
		options->init.print = on_print;
		break;
	case OPT_HELP:
		fputs(usage_text, stdout);
		exit(0);
	case OPT_VERSION:
		printf("fanin-perf %s\n", fanin_version());
		exit(0);
	default:
		exit(2);
	}
}

static void
options_parse(struct options *options, int argc, char **argv)
{
	bool given[OPT_COUNT] = { false };
	int index = 0;
	int code;

	*options = (struct options){
		.init = { .sz = sizeof(options->init) },
		.join = { .sz = sizeof(options->join) },
		.bytes = 64 << 20,
		.iters = 1,
		.seed = 1,
		.dtype_name = "f32",
		.op_name = "sum",
		.progress = isatty(STDERR_FILENO) != 0,
	};
	while ((code = getopt_long(argc, argv, "", long_options, &index)) != -1) {
		if (code == '?') {
			fputs("fanin-perf --help lists the options.\n", stderr);
			exit(2);
		}
		option_take(options, code, long_options[index].name, optarg);
		given[code] = true;
	}
	if (optind < argc)
		usage_error("'%s' is not an option", argv[optind]);
	for (code = OPT_SWITCH; code <= OPT_KEY; code++) {
		if (!given[code])
			usage_error("--%s is missing", long_options[code - OPT_SWITCH].name);
	}
	if (options->join.rank >= options->join.size)
		usage_error("--rank is %u, expected 0 to %u (--size %u)", options->join.rank,
			    options->join.size - 1, options->join.size);
	operation_resolve(options);
	if (options->bytes % fanin_dtype_size_of(options->dtype) != 0)
		usage_error("--bytes is %" PRIu64 ", not a multiple of %s's %zu bytes",
			    options->bytes, options->dtype_name, fanin_dtype_size_of(options->dtype));
}

int
main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct options options;
	struct run run = { .options = &options, .report = { .sz = sizeof(run.report) } };

	options_parse(&options, argc, argv);
	run.count = options.bytes / fanin_dtype_size_of(options.dtype);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	options.init.interrupt = on_wait;
	options.init.interrupt_arg = &run;
	if (fanin_init(&options.init, &run.ctx) != FANIN_OK)
		usage_error("--transport is '%s', expected auto, af_xdp or af_packet",
			    options.init.transport);
	run_all(&run);
	if (run.comm != NULL)
		fanin_comm_report(run.comm, &run.report);
	if (options.json)
		json_print(&run);
	else
		line_print(&run);
	fflush(stdout);
	fanin_finalize(run.ctx);
	free(run.send);
	free(run.recv);
	if (got_signal != 0)
		return 128 + got_signal;
	return run.status == FANIN_OK && run.mismatches == 0 ? 0 : 1;
}
