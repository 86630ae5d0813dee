/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin-perf's command line. See perf.h. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/job_key.h"
#include "reference/perf_custom.h"
#include "reference/perf_random.h"
#include "tools/perf_values.h"
#include "tools/perf.h"

/* "SOCKET:ID" */
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

/* Returns whether there is one. */
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
	OPT_SWITCH = 1,
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
	OPT_INTERFACE,
	OPT_TRANSPORT,
	OPT_MEMIF,
	OPT_ADDRESS,
	OPT_COLLECTIVE,
	OPT_ROOT,
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
	{ "key-file", required_argument, NULL, OPT_KEY_FILE },
	{ "manager", required_argument, NULL, OPT_MANAGER },
	{ "job-name", required_argument, NULL, OPT_JOB_NAME },
	{ "handler", required_argument, NULL, OPT_HANDLER },
	{ "reproducible", no_argument, NULL, OPT_REPRODUCIBLE },
	{ "accumulate", required_argument, NULL, OPT_ACCUMULATE },
	{ "authenticate", no_argument, NULL, OPT_AUTHENTICATE },
	{ "no-fallback", no_argument, NULL, OPT_NO_FALLBACK },
	{ "trees", required_argument, NULL, OPT_TREES },
	{ "interface", required_argument, NULL, OPT_INTERFACE },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "memif", required_argument, NULL, OPT_MEMIF },
	{ "address", required_argument, NULL, OPT_ADDRESS },
	{ "collective", required_argument, NULL, OPT_COLLECTIVE },
	{ "root", required_argument, NULL, OPT_ROOT },
	{ "in-place", no_argument, NULL, OPT_IN_PLACE },
	{ "bytes", required_argument, NULL, OPT_BYTES },
	{ "dtype", required_argument, NULL, OPT_DTYPE },
	{ "op", required_argument, NULL, OPT_OP },
	{ "iters", required_argument, NULL, OPT_ITERS },
	{ "warmup", required_argument, NULL, OPT_WARMUP },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "check-ends", no_argument, NULL, OPT_CHECK_ENDS },
	{ "data", required_argument, NULL, OPT_DATA },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "window", required_argument, NULL, OPT_WINDOW },
	{ "no-stagger", no_argument, NULL, OPT_NO_STAGGER },
	{ "recover", no_argument, NULL, OPT_RECOVER },
	{ "timeout-ms", required_argument, NULL, OPT_TIMEOUT },
	{ "wait-limit-ms", required_argument, NULL, OPT_WAIT_LIMIT },
	{ "join-timeout-ms", required_argument, NULL, OPT_JOIN_TIMEOUT },
	{ "pause", required_argument, NULL, OPT_PAUSE },
	{ "pause-at", required_argument, NULL, OPT_PAUSE_AT },
	{ "pause-busy", no_argument, NULL, OPT_PAUSE_BUSY },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "times", no_argument, NULL, OPT_TIMES },
	{ "progress", no_argument, NULL, OPT_PROGRESS },
	{ "no-progress", no_argument, NULL, OPT_NO_PROGRESS },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

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
on_print(int level, const char *line, void *arg)
{
	const struct options *options = arg;

	/* Warnings always; of the rest everything but libbpf's details. */
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
		usage_print();
	case OPT_VERSION:
		printf("fanin-perf %s\n", fanin_version());
		exit(0);
	default:
		exit(2);
	}
}

/* What the collective wants of the other options; dtype is resolved. bytes_given: by --bytes. */
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
	if (options->bytes % size != 0)
		usage_error("--bytes is %" PRIu64 ", not a multiple of %s's %zu bytes",
			    options->bytes, options->dtype_name, size);
	if (!perf_collective_has_parts(options->collective) ||
	    options->bytes % (size * options->join.size) == 0)
		return;
	/* The default is for any number of ranks. */
	if (bytes_given)
		usage_error("--bytes is %" PRIu64
			    ", not a multiple of the %zu bytes that %u ranks have "
			    "at least with %s",
			    options->bytes, size * options->join.size, options->join.size,
			    collective);
	options->bytes -= options->bytes % (size * options->join.size);
}

/* Either a job on a switch or one of the manager's. */
static void
check_way(const bool *given, bool key_is_there)
{
	static const int on_switch[] = { OPT_SWITCH, OPT_JOB, OPT_KEY, OPT_KEY_FILE };
	static const int at_manager[] = { OPT_MANAGER, OPT_HANDLER, OPT_REPRODUCIBLE,
					  OPT_ACCUMULATE, OPT_NO_FALLBACK };

	if (!given[OPT_SIZE])
		usage_error("--size is missing");
	for (size_t i = 0; i < sizeof(on_switch) / sizeof(on_switch[0]); i++) {
		const char *name = long_options[on_switch[i] - OPT_SWITCH].name;

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
				    long_options[at_manager[i] - OPT_SWITCH].name);
	}
	if (!given[OPT_JOB_NAME] && !given[OPT_RANK])
		usage_error("--rank is missing");
}

void
options_parse(struct options *options, int argc, char **argv)
{
	bool given[OPT_COUNT] = { false };
	bool key_is_there;
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
	check_way(given, key_is_there);
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
}
