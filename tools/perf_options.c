/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin-perf's command line. See perf.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/cli.h"
#include "control/job_key.h"
#include "reference/perf_custom.h"
#include "reference/perf_random.h"
#include "tools/perf_values.h"
#include "tools/perf.h"

/* "SOCKET:ID" */
static enum fanin_multicast_use
parse_multicast(const char *value)
{
	if (strcmp(value, "always") == 0)
		return FANIN_MULTICAST_ALWAYS;
	if (strcmp(value, "auto") == 0)
		return FANIN_MULTICAST_AUTO;
	if (strcmp(value, "never") != 0)
		usage_error("--multicast is '%s', expected always, auto or never", value);
	return FANIN_MULTICAST_NEVER;
}

static void
parse_memif(struct options *options, const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon == NULL ? 0 : (size_t)(colon - text);

	if (len == 0 || len >= sizeof(options->memif_socket))
		usage_error("--memif is '%s', expected SOCKET:ID like /run/fanin/memif.sock:0", text);
	memcpy(options->memif_socket, text, len);
	options->join.memif_socket = options->memif_socket;
	options->join.memif_id = (uint32_t)parse_number("memif", colon + 1, 0, UINT16_MAX);
}

static void
key_load(struct options *options, const char *path)
{
	char error[JOB_KEY_ERROR_LEN];

	if (job_key_load(path, &options->join.key, error) != 0)
		usage_error("--key-file %s", error);
}

/* Returns true if the environment has a key. */
static bool
key_from_environment(struct options *options)
{
	char error[JOB_KEY_ERROR_LEN];
	int ret = job_key_from_environment(&options->join.key, error);

	if (ret < 0)
		usage_error("%s", error);
	return ret > 0;
}

enum option_code {
	OPT_SWITCH = 256 /* no letters */,
	OPT_JOB,
	OPT_RANK,
	OPT_SIZE,
	OPT_KEY,
	OPT_KEY_FILE,
	OPT_MANAGER,
	OPT_JOB_NAME,
	OPT_HANDLER,
	OPT_REPRODUCIBLE,
	OPT_ACCUMULATE,
	OPT_AUTHENTICATE,
	OPT_NO_FALLBACK,
	OPT_TREES,
	OPT_MULTICAST,
	OPT_SUBGROUPS,
	OPT_INTERFACE,
	OPT_TRANSPORT,
	OPT_MEMIF,
	OPT_ADDRESS,
	OPT_COLLECTIVE,
	OPT_ROOT,
	OPT_SPARSE,
	OPT_MAYBE_SPARSE,
	OPT_DENSITY,
	OPT_PATTERN,
	OPT_IN_PLACE,
	OPT_BYTES,
	OPT_DTYPE,
	OPT_OP,
	OPT_ITERS,
	OPT_WARMUP,
	OPT_CHECK,
	OPT_CHECK_ENDS,
	OPT_DATA,
	OPT_SEED,
	OPT_WINDOW,
	OPT_NO_STAGGER,
	OPT_RECOVER,
	OPT_TIMEOUT,
	OPT_WAIT_LIMIT,
	OPT_JOIN_TIMEOUT,
	OPT_PAUSE,
	OPT_PAUSE_AT,
	OPT_PAUSE_BUSY,
	OPT_JSON,
	OPT_TIMES,
	OPT_TRACE,
	OPT_TRACE_US,
	OPT_PROGRESS,
	OPT_NO_PROGRESS,
	OPT_VERBOSE,
	OPT_HELP,
	OPT_VERSION,
	OPT_END
};

static const struct cli_option known_options[] = {
	{ "manager", "ADDRESS", OPT_MANAGER,
	  "the network manager's address, with :PORT if that is not 21932 (default: FANIN_MANAGER, else that in /etc/fanin/fanin.conf)" },
	{ "job-name", "NAME", OPT_JOB_NAME,
	  "the job's name there; --rank is then by switches and addresses unless given" },
	{ "handler", "NAME", OPT_HANDLER,
	  "that the job is to have; ring: none, the hosts reduce among themselves (default: auto)" },
	{ "reproducible", NULL, OPT_REPRODUCIBLE, "the job gives the same bits every time" },
	{ "accumulate", "f32", OPT_ACCUMULATE, "the job sums f16 and bf16 in f32" },
	{ "authenticate", NULL, OPT_AUTHENTICATE,
	  "packets carry message authentication codes; the job must have been created so, and one of the manager's is" },
	{ "trees", "N", OPT_TREES,
	  "reduction trees that the job is to have, which its blocks take in turn (default: the manager's)" },
	{ "multicast", "WHEN", OPT_MULTICAST,
	  "broadcasts and allgathers go by multicast: always, auto (where a blocking call finds it faster), or never (default)" },
	{ "subgroups", "N", OPT_SUBGROUPS,
	  "trees of that multicast, which packets take in turn (default: as many as --trees)" },
	{ "no-fallback", NULL, OPT_NO_FALLBACK,
	  "fail if no reduction tree can be had, instead of a ring of hosts" },
	{ "switch", "IP", OPT_SWITCH, "the switch's IPv4 address" },
	{ "job", "N", OPT_JOB, "the job's number" },
	{ "rank", "R", OPT_RANK, "this host's rank, 0 to P - 1" },
	{ "size", "P", OPT_SIZE, "ranks in the job" },
	{ "key-file", "FILE", OPT_KEY_FILE,
	  "has the job's key, as 0x...; - is standard input (default: the key is in FANIN_KEY)" },
	{ "key", "KEY", OPT_KEY,
	  "the same on the command line, which other users can see until it is read" },
	{ "interface", "NAME", OPT_INTERFACE,
	  "network interface (default: that of the route to the switch)" },
	{ "transport", "NAME", OPT_TRANSPORT, "auto, af_xdp, af_packet or memif (default: auto)" },
	{ "memif", "SOCKET:ID", OPT_MEMIF,
	  "shared memory with a switch on this machine: its socket and the port's number there; needs --address" },
	{ "address", "IP", OPT_ADDRESS,
	  "this host's address as a member of the job; needed with --memif, with --job-name (default: that of the route to the manager)" },
	{ "collective", "NAME", OPT_COLLECTIVE,
	  "allreduce, reduce, reduce_scatter, broadcast, allgather or barrier (default: allreduce)" },
	{ "root", "R", OPT_ROOT, "of reduce and broadcast (default: 0)" },
	{ "sparse", NULL, OPT_SPARSE,
	  "the allreduce is one of sparse vectors, with a dense result; the job's handler is sparse, sparse-array or sparse-hash, or there is no switch" },
	{ "maybe-sparse", NULL, OPT_MAYBE_SPARSE,
	  "the allreduce is one of dense vectors with zeros at other indices, and the hint that they may be sparse" },
	{ "density", "D", OPT_DENSITY,
	  "part of the indices that a rank has values at, above 0, 1 at most, the same on every rank (default: 0.01)" },
	{ "pattern", "NAME|FILE", OPT_PATTERN,
	  "where these are: uniform, clustered, same (on all ranks), disjoint, or a file with a line of indices for each rank, see fanin-perf(1) (default: uniform)" },
	{ "in-place", NULL, OPT_IN_PLACE, "receive where the data to be sent are" },
	{ "bytes", "N", OPT_BYTES,
	  "size of the vector, with reduce_scatter and allgather of all ranks' parts together; k, KiB, MB, MiB, GiB... (default: 64MiB)" },
	{ "dtype", "TYPE", OPT_DTYPE,
	  "i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 or f64 (default: f32)" },
	{ "op", "OP", OPT_OP,
	  "sum, prod, min, max or avg; on integers also land, lor, lxor, band, bor and bxor; not used where nothing is combined (default: sum). --dtype complex-f32 --op prod is a custom operator" },
	{ "iters", "N", OPT_ITERS, "measured collectives (default: 1)" },
	{ "warmup", "N", OPT_WARMUP, "collectives before that (default: 0)" },
	{ "check", NULL, OPT_CHECK, "compare every element with a result computed here" },
	{ "check-ends", NULL, OPT_CHECK_ENDS,
	  "only in the first and the last one, which alone get new data" },
	{ "data", "KIND", OPT_DATA,
	  "exact: sums without rounding (default); random: sums of f16, bf16, f32 or f64 that depend on the order, checked bit by bit if the job is reproducible" },
	{ "seed", "N", OPT_SEED, "of the data; the same on every rank (default: 1)" },
	{ "window", "N", OPT_WINDOW,
	  "most packets in flight (default: the job's, but 512 KiB of packets that hold more than 32 KiB)" },
	{ "no-stagger", NULL, OPT_NO_STAGGER, "send in order instead of rotated by rank" },
	{ "recover", NULL, OPT_RECOVER, "go on if the job is made anew, as when a switch has failed" },
	{ "timeout-ms", "N", OPT_TIMEOUT,
	  "longest wait without a result if a rank or the switch is gone (default: 5000)" },
	{ "wait-limit-ms", "N", OPT_WAIT_LIMIT,
	  "longest wait for ranks that are late (default: 0, no limit)" },
	{ "join-timeout-ms", "N", OPT_JOIN_TIMEOUT,
	  "longest wait for the other ranks to join (default: 30000)" },
	{ "pause", "SECONDS", OPT_PAUSE,
	  "this rank sleeps once, as if it wrote a checkpoint: the others wait" },
	{ "pause-at", "N", OPT_PAUSE_AT,
	  "before that iteration, from 0, those of the warm-up too (default: 0)" },
	{ "pause-busy", NULL, OPT_PAUSE_BUSY, "computes instead, while the collective is posted" },
	{ "json", NULL, OPT_JSON, "print one JSON object" },
	{ "times", NULL, OPT_TIMES, "with the seconds of each measured collective in it" },
	{ "trace", "FILE", OPT_TRACE,
	  "the windows of a job with a parameter server over time: a JSON object on each line" },
	{ "trace-us", "N", OPT_TRACE_US, "microseconds between its lines, at least (default: 1000)" },
	{ "verbose", NULL, OPT_VERBOSE, "diagnostics on stderr" },
	{ "progress", NULL, OPT_PROGRESS, "progress bar on stderr (default: if it is a terminal)" },
	{ "no-progress", NULL, OPT_NO_PROGRESS, "no progress bar" },
	{ "help", NULL, OPT_HELP, "print this help" },
	{ "version", NULL, OPT_VERSION, "print the version of this program" },
	{ 0 },
};

/* Resolves the names of type and operator to their codes. */
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
on_print(int level, const char *line, void *arg)
{
	const struct options *options = arg;

	/* Warnings always; with --verbose also everything but libbpf's details. */
	if (level <= (options->verbose ? 2 : 1))
		fprintf(stderr, "fanin-perf: %s\n", line);
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
		join->rank = (uint16_t)parse_number(name, value, 0, FANIN_MAX_RANKS - 1);
		join->fixed_rank = true;
		break;
	case OPT_MANAGER:
		join->manager = value;
		break;
	case OPT_JOB_NAME:
		join->job_name = value;
		break;
	case OPT_HANDLER:
		join->handler = value;
		break;
	case OPT_REPRODUCIBLE:
		join->reproducible = true;
		break;
	case OPT_ACCUMULATE:
		join->accumulate_f32 = parse_accumulate(value);
		break;
	case OPT_AUTHENTICATE:
		join->authenticate = true;
		break;
	case OPT_NO_FALLBACK:
		join->no_fallback = true;
		break;
	case OPT_TREES:
		join->trees = (uint16_t)parse_number(name, value, 1, FANIN_MAX_TREES);
		break;
	case OPT_MULTICAST:
		join->multicast = parse_multicast(value);
		options->finds_multicast = join->multicast == FANIN_MULTICAST_AUTO;
		break;
	case OPT_SUBGROUPS:
		join->subgroups = (uint32_t)parse_number(name, value, 1, FANIN_MAX_TREES);
		break;
	case OPT_SIZE:
		join->size = (uint16_t)parse_number(name, value, 1, FANIN_MAX_RANKS);
		break;
	case OPT_KEY:
		join->key = parse_number(name, value, 0, UINT64_MAX);
		break;
	case OPT_KEY_FILE:
		key_load(options, value);
		break;
	case OPT_INTERFACE:
		join->interface = value;
		break;
	case OPT_TRANSPORT:
		options->init.transport = value;
		break;
	case OPT_MEMIF:
		parse_memif(options, value);
		break;
	case OPT_ADDRESS:
		join->address = value;
		break;
	case OPT_COLLECTIVE:
		options->collective = parse_collective(value);
		break;
	case OPT_ROOT:
		options->root = (uint16_t)parse_number(name, value, 0, 63);
		break;
	case OPT_SPARSE:
		options->sparse = true;
		break;
	case OPT_MAYBE_SPARSE:
		options->maybe_sparse = true;
		break;
	case OPT_DENSITY:
		options->density = parse_share(name, value);
		break;
	case OPT_PATTERN:
		options->pattern_file = parse_pattern(value, &options->pattern) ? NULL : value;
		break;
	case OPT_IN_PLACE:
		options->in_place = true;
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
	case OPT_CHECK_ENDS:
		options->check = true;
		options->check_ends = true;
		break;
	case OPT_DATA:
		options->random_data = parse_data(value);
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
	case OPT_RECOVER:
		join->recover = true;
		break;
	case OPT_TIMEOUT:
		join->timeout_ms = (uint32_t)parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_WAIT_LIMIT:
		join->wait_limit_ms = parse_number(name, value, 0, UINT32_MAX);
		break;
	case OPT_PAUSE:
		options->pause_seconds = parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_PAUSE_AT:
		options->pause_at = parse_number(name, value, 0, UINT64_MAX);
		break;
	case OPT_PAUSE_BUSY:
		options->pause_busy = true;
		break;
	case OPT_JOIN_TIMEOUT:
		join->join_timeout_ms = (uint32_t)parse_number(name, value, 1, UINT32_MAX);
		break;
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_TRACE:
		options->trace_file = value;
		break;
	case OPT_TRACE_US:
		options->trace_us = parse_number(name, value, 1, 1000000);
		break;
	case OPT_TIMES:
		options->times = true;
		break;
	case OPT_PROGRESS:
		options->progress = true;
		break;
	case OPT_NO_PROGRESS:
		options->progress = false;
		break;
	case OPT_VERBOSE:
		options->verbose = true;
		break;
	case OPT_HELP:
		usage_print(known_options);
	case OPT_VERSION:
		printf("fanin-perf %s\n", fanin_version());
		exit(0);
	default:
		exit(2);
	}
}

/* Checks the other options against the collective; dtype is resolved. bytes_given: by --bytes. */
static void
collective_check(struct options *options, bool bytes_given)
{
	const char *collective = perf_collective_name(options->collective);
	size_t size = fanin_dtype_size_of(options->dtype);

	if (options->root >= options->join.size)
		usage_error("--root is %u, expected 0 to %u (--size %u)", options->root,
			    options->join.size - 1, options->join.size);
	if (options->collective == PERF_BARRIER && bytes_given && options->bytes != 0)
		usage_error("--bytes is %" PRIu64 ", but a barrier has no data", options->bytes);
	if (options->collective == PERF_BARRIER)
		options->bytes = 0;
	/* As much as fits in the usual size: elements may have 12 bytes. */
	if (!bytes_given)
		options->bytes -= options->bytes % size;
	if (options->bytes % size != 0)
		usage_error("--bytes is %" PRIu64 ", not a multiple of %s's %zu bytes",
			    options->bytes, options->dtype_name, size);
	if (!perf_collective_has_parts(options->collective) ||
	    options->bytes % (size * options->join.size) == 0)
		return;
	/* The default is rounded for any number of ranks. */
	if (bytes_given)
		usage_error("--bytes is %" PRIu64
			    ", not a multiple of the %zu bytes that %u ranks have "
			    "at least with %s",
			    options->bytes, size * options->join.size, options->join.size,
			    collective);
	options->bytes -= options->bytes % (size * options->join.size);
}

/* What sparse vectors want of the other options. */
static void
sparse_check(const struct options *options, const bool *given)
{
	const char *name = options->sparse ? "sparse" : "maybe-sparse";

	if (options->sparse && options->maybe_sparse)
		usage_error("--sparse and --maybe-sparse are given, expected one of them");
	for (int code = OPT_DENSITY; code <= OPT_PATTERN; code++) {
		if (given[code] && !options_has_zeros(options))
			usage_error("--%s needs --sparse or --maybe-sparse",
				    cli_option_name(known_options, code));
	}
	if (!options_has_zeros(options))
		return;
	if (options->collective != PERF_ALLREDUCE)
		usage_error("--%s is for allreduce, not for %s", name,
			    perf_collective_name(options->collective));
	if (options->sparse && options->in_place)
		usage_error("--sparse has a dense result, which --in-place has no room for");
	if (options->random_data)
		usage_error("--data is random with --%s, expected exact", name);
	if (options->maybe_sparse && options->op != FANIN_SUM)
		usage_error("--op is %s, but --maybe-sparse is for sum", options->op_name);
	if (options->op == FANIN_AVG || options->op >= FANIN_CUSTOM_FIRST)
		usage_error("--op is %s, which is not defined on sparse vectors", options->op_name);
}

/* Reads where values are, if a file says so. The vector's length and the density are the file's unless they are given. */
static void
pattern_load(struct options *options, const bool *given)
{
	const size_t size = fanin_dtype_size_of(options->dtype);

	if (options->pattern_file == NULL)
		return;
	if (options->bytes == 0)
		usage_error("--bytes is 0, expected one element or more with --pattern %s",
			    options->pattern_file);
	load_pattern(&options->places, options->pattern_file, options->join.size,
		     options->bytes / size, given[OPT_BYTES]);
	if (options->places.n > (uint64_t)INT64_MAX / size)
		usage_error("--pattern %s: found n %" PRIu64 ", too many elements of %zu bytes",
			    options->pattern_file, options->places.n, size);
	options->bytes = options->places.n * size;
	if (!given[OPT_DENSITY])
		options->density = perf_places_density(&options->places);
}

/* Checks that the job is given either on a switch or by name at the manager. */
static void
check_join_options(const bool *given, bool key_is_there)
{
	static const int on_switch[] = { OPT_SWITCH, OPT_JOB, OPT_KEY, OPT_KEY_FILE };
	static const int at_manager[] = { OPT_MANAGER, OPT_HANDLER, OPT_REPRODUCIBLE,
					  OPT_ACCUMULATE, OPT_NO_FALLBACK };

	if (!given[OPT_SIZE])
		usage_error("--size is missing");
	for (size_t i = 0; i < sizeof(on_switch) / sizeof(on_switch[0]); i++) {
		const char *name = cli_option_name(known_options, on_switch[i]);

		if (given[OPT_JOB_NAME] && given[on_switch[i]])
			usage_error("--job-name and --%s are two ways to a job, expected one", name);
		if (!given[OPT_JOB_NAME] && !given[on_switch[i]] && on_switch[i] != OPT_KEY &&
		    on_switch[i] != OPT_KEY_FILE)
			usage_error("--%s is missing, or --job-name", name);
	}
	if (given[OPT_KEY] && given[OPT_KEY_FILE])
		usage_error("--key and --key-file are two ways to say the key, expected one");
	if (!given[OPT_JOB_NAME] && !key_is_there)
		usage_error("--key-file is missing, or %s in the environment, or --job-name",
			    JOB_KEY_VARIABLE);
	for (size_t i = 0; i < sizeof(at_manager) / sizeof(at_manager[0]); i++) {
		if (!given[OPT_JOB_NAME] && given[at_manager[i]])
			usage_error("--%s needs --job-name",
				    cli_option_name(known_options, at_manager[i]));
	}
	if (!given[OPT_JOB_NAME] && !given[OPT_RANK])
		usage_error("--rank is missing");
}

void
options_parse(struct options *options, int argc, char **argv)
{
	bool given[OPT_END] = { false };
	struct cli cli;
	bool key_is_there;
	int index = 0;
	int code;

	*options = (struct options){
		.init = { .sz = sizeof(options->init) },
		.join = { .sz = sizeof(options->join) },
		.bytes = 64 << 20,
		.iters = 1,
		.seed = 1,
		.density = 0.01,
		.trace_us = 1000,
		.dtype_name = "f32",
		.op_name = "sum",
		.progress = isatty(STDERR_FILENO) != 0,
	};
	cli_prepare(&cli, known_options, NULL, 0);
	while ((code = getopt_long(argc, argv, cli.letters, cli.long_options, &index)) != -1) {
		if (code == '?') {
			fputs("fanin-perf --help lists the options.\n", stderr);
			exit(2);
		}
		option_take(options, code, known_options[index].name, optarg);
		if (code == OPT_KEY)
			job_key_hide(optarg);
		given[code] = true;
	}
	if (optind < argc)
		usage_error("'%s' is not an option", argv[optind]);
	options->init.print = on_print;
	options->init.print_arg = options;
	key_is_there = given[OPT_KEY] || given[OPT_KEY_FILE] ||
		       (!given[OPT_JOB_NAME] && key_from_environment(options));
	check_join_options(given, key_is_there);
	if (options->join.rank >= options->join.size)
		usage_error("--rank is %u, expected 0 to %u (--size %u)", options->join.rank,
			    options->join.size - 1, options->join.size);
	if (given[OPT_MEMIF] && !given[OPT_ADDRESS])
		usage_error("--memif needs --address");
	if (given[OPT_ADDRESS] && !given[OPT_MEMIF] && !given[OPT_JOB_NAME])
		usage_error("--address goes with --memif or --job-name");
	operation_resolve(options);
	if (options->random_data && !perf_random_supports(options->dtype, options->op))
		usage_error("--data is random with --dtype %s --op %s, expected the sum of f16, bf16, f32 or f64",
			    options->dtype_name, options->op_name);
	collective_check(options, given[OPT_BYTES]);
	sparse_check(options, given);
	pattern_load(options, given);
	if (given[OPT_TRACE_US] && !given[OPT_TRACE])
		usage_error("--trace-us needs --trace");
}
