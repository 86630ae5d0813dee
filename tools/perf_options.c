/* SPDX-License-Identifier: BSD-3-Clause */
/* fanin-perf's command line. See perf.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/cli_fields.h"
#include "control/job_key.h"
#include "lab/reference/perf_custom.h"
#include "lab/reference/perf_random.h"
#include "tools/perf_values.h"
#include "tools/perf.h"

static const char usage_text[] =
	"Usage: fanin-perf --switch IP --job N --rank R --size P --key-file FILE [option...]\n"
	"       fanin-perf --job-name NAME --size P [--manager ADDRESS] [option...]\n"
	"Runs collectives as rank R of P of a job on a Fanin switch and measures them. The job\n"
	"was created on the switch, or is found by its name at the network manager.\n"
	"\n";

/* Parses "SOCKET:ID". */
static void
memif_take(void *all, char *text)
{
	struct options *options = all;
	const char *colon = strrchr(text, ':');
	size_t len = colon == NULL ? 0 : (size_t)(colon - text);

	if (len == 0 || len >= sizeof(options->memif_socket))
		usage_error("--memif is '%s', expected SOCKET:ID like /run/fanin/memif.sock:0",
			    text);
	memcpy(options->memif_socket, text, len);
	options->join.memif_socket = options->memif_socket;
	options->join.memif_id = (uint32_t)parse_number("memif", colon + 1, 0, UINT16_MAX);
}

/* Parses the hosts of ranks, such as "0,0,1,1". */
static void
hosts_take(void *all, char *text)
{
	struct options *options = all;
	char *rest = text, *word;

	options->n_placed = 0;
	while ((word = strsep(&rest, ",")) != NULL) {
		if (options->n_placed == FANIN_MAX_RANKS)
			usage_error("--hosts has more than %u numbers", FANIN_MAX_RANKS);
		options->hosts[options->n_placed++] = (uint16_t)parse_number("hosts", word, 0,
									     FANIN_MAX_RANKS - 1);
	}
	options->join.hosts = options->hosts;
}

static void
key_load(void *all, char *path)
{
	char error[JOB_KEY_ERROR_LEN];

	if (job_key_load(path, &((struct options *)all)->join.key, error) != 0)
		usage_error("--key-file %s", error);
}

static void
key_take(void *all, char *text)
{
	((struct options *)all)->join.key = parse_number("key", text, 0, UINT64_MAX);
	job_key_hide(text);
}

static void
collective_take(void *all, char *text)
{
	((struct options *)all)->collective = parse_collective(text);
}

static void
bytes_take(void *all, char *text)
{
	((struct options *)all)->bytes = parse_bytes(text);
}

static void
pattern_take(void *all, char *text)
{
	struct options *options = all;

	options->pattern_file = parse_pattern(text, &options->pattern) ? NULL : text;
}

static void __attribute__((noreturn)) version_print(void *all, char *text)
{
	(void)all;
	(void)text;
	printf("fanin-perf " FANIN_VERSION " (libfanin %s; built with %s)\n", fanin_version(),
	       FANIN_HEADER_VERSION);
	exit(0);
}

/* Reads the key from the environment. Returns false if there is none. */
static bool
key_from_environment(struct options *options)
{
	char error[JOB_KEY_ERROR_LEN];
	int ret = job_key_from_environment(&options->join.key, error);

	if (ret < 0)
		usage_error("%s", error);
	return ret > 0;
}

static const char *const multicasts[] = {
	[FANIN_MULTICAST_AUTO] = "auto",
	[FANIN_MULTICAST_ALWAYS] = "always",
	[FANIN_MULTICAST_NEVER] = "never",
};
static const char *const accumulations[] = { "native", "f32" };
static const char *const data_kinds[] = { "exact", "random" };

#define TEXT(member) .kind = CLI_TEXT, CLI_FIELD(struct options, member)
#define FLAG(member) CLI_FLAG(struct options, member)
#define NUMBER(member, low, high) CLI_NUMBER(struct options, member, low, high)
#define CHOICE(member, names)                                                                      \
	.kind = CLI_CHOICE, CLI_FIELD(struct options, member), CLI_NAMES(names)
#define TAKE(function) .kind = CLI_TAKE, .take = (function)

static const struct cli_field fields[] = {
	{ "manager", "ADDRESS",
	  "the network manager's address, with :PORT if that is not 21932 (default: FANIN_MANAGER, else that in /etc/fanin/fanin.conf)",
	  TEXT(join.manager) },
	{ "job-name", "NAME",
	  "the job's name there; --rank is then by switches and addresses unless given",
	  TEXT(join.job_name) },
	{ "handler", "NAME",
	  "that the job is to have; ring: none, the hosts reduce among themselves (default: auto)",
	  TEXT(join.handler) },
	{ "reproducible", NULL, "the job gives the same bits every time", FLAG(join.reproducible) },
	{ "accumulate", "f32", "the job sums f16 and bf16 in f32",
	  CHOICE(join.accumulate_f32, accumulations), .expected = "native or f32" },
	{ "authenticate", NULL,
	  "packets carry message authentication codes; the job must have been created so, and one of the manager's is",
	  FLAG(join.authenticate) },
	{ "trees", "N",
	  "reduction trees that the job is to have, which its blocks take in turn (default: the manager's)",
	  NUMBER(join.trees, 1, FANIN_MAX_TREES) },
	{ "multicast", "WHEN",
	  "broadcasts and allgathers go by multicast: always, auto (where a blocking call finds it faster), or never (default)",
	  CHOICE(join.multicast, multicasts), .expected = "always, auto or never" },
	{ "subgroups", "N",
	  "trees of that multicast, which packets take in turn (default: as many as --trees)",
	  NUMBER(join.subgroups, 1, FANIN_MAX_TREES) },
	{ "no-fallback", NULL, "fail if no reduction tree can be had, instead of a ring of hosts",
	  FLAG(join.no_fallback) },
	{ "switch", "IP", "the switch's IPv4 address", TEXT(join.switch_address) },
	{ "job", "N", "the job's number", NUMBER(join.job, 1, 65535) },
	{ "rank", "R", "this host's rank, 0 to P - 1", NUMBER(join.rank, 0, FANIN_MAX_RANKS - 1) },
	{ "size", "P", "ranks in the job", NUMBER(join.size, 1, FANIN_MAX_RANKS) },
	{ "hosts", "LIST",
	  "the host of each rank, such as 0,0,1,1: ranks of one host reduce in shared memory, and one of them takes part in the job; needs --rank (default: each rank is a host)",
	  TAKE(hosts_take) },
	{ "key-file", "FILE",
	  "has the job's key, as 0x...; - is standard input (default: the key is in FANIN_KEY)",
	  TAKE(key_load) },
	{ "key", "KEY", "the same on the command line, which other users can see until it is read",
	  TAKE(key_take) },
	{ "interface", "NAME", "network interface (default: that of the route to the switch)",
	  TEXT(join.interface) },
	{ "transport", "NAME", "auto, af_xdp, af_packet, udp or memif (default: auto)",
	  TEXT(init.transport) },
	{ "memif", "SOCKET:ID",
	  "shared memory with a switch on this machine: its socket and the port's number there; needs --address",
	  TAKE(memif_take) },
	{ "address", "IP",
	  "this host's address as a member of the job; needed with --memif, with --job-name (default: that of the route to the manager)",
	  TEXT(join.address) },
	{ "collective", "NAME",
	  "allreduce, reduce, reduce_scatter, broadcast, allgather or barrier (default: allreduce)",
	  TAKE(collective_take) },
	{ "root", "R", "of reduce and broadcast (default: 0)", NUMBER(root, 0, 63) },
	{ "sparse", NULL,
	  "the allreduce is one of sparse vectors, with a dense result; the job's handler is sparse, sparse-array or sparse-hash, or there is no switch",
	  FLAG(sparse) },
	{ "maybe-sparse", NULL,
	  "the allreduce is one of dense vectors with zeros at other indices, and the hint that they may be sparse",
	  FLAG(maybe_sparse) },
	{ "density", "D",
	  "part of the indices that a rank has values at, above 0, 1 at most, the same on every rank (default: 0.01)",
	  .kind = CLI_PART, CLI_FIELD(struct options, density),
	  .expected = "a number above 0, and 1 at most" },
	{ "pattern", "NAME|FILE",
	  "where these are: uniform, clustered, same (on all ranks), disjoint, or a file with a line of indices for each rank, see fanin-perf(1) (default: uniform)",
	  TAKE(pattern_take) },
	{ "in-place", NULL, "receive where the data to be sent are", FLAG(in_place) },
	{ "bytes", "N",
	  "size of the vector, with reduce_scatter and allgather of all ranks' parts together; k, KiB, MB, MiB, GiB... (default: 64MiB)",
	  TAKE(bytes_take) },
	{ "dtype", "TYPE",
	  "i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 or f64 (default: f32)",
	  TEXT(dtype_name) },
	{ "op", "OP",
	  "sum, prod, min, max or avg; on integers also land, lor, lxor, band, bor and bxor; not used where nothing is combined (default: sum). --dtype complex-f32 --op prod is a custom operator",
	  TEXT(op_name) },
	{ "iters", "N", "measured collectives (default: 1)", NUMBER(iters, 1, UINT32_MAX) },
	{ "warmup", "N", "collectives before that (default: 0)", NUMBER(warmup, 0, UINT32_MAX) },
	{ "check", NULL, "compare every element with a result computed here", FLAG(check) },
	{ "check-ends", NULL, "only in the first and the last one, which alone get new data",
	  FLAG(check_ends) },
	{ "data", "KIND",
	  "exact: sums without rounding (default); random: sums of f16, bf16, f32 or f64 that depend on the order, checked bit by bit if the job is reproducible",
	  CHOICE(random_data, data_kinds), .expected = "exact or random" },
	{ "seed", "N", "of the data; the same on every rank (default: 1)",
	  NUMBER(seed, 0, UINT32_MAX) },
	{ "window", "N",
	  "most packets in flight (default: the job's, but 512 KiB of packets that hold more than 32 KiB)",
	  NUMBER(join.window, 1, UINT16_MAX) },
	{ "no-stagger", NULL, "send in order instead of rotated by rank", FLAG(join.no_stagger) },
	{ "recover", NULL, "go on if the job is made anew, as when a switch has failed",
	  FLAG(join.recover) },
	{ "timeout-ms", "N",
	  "longest wait without a result if a rank or the switch is gone (default: 5000)",
	  NUMBER(join.timeout_ms, 1, UINT32_MAX) },
	{ "wait-limit-ms", "N", "longest wait for ranks that are late (default: 0, no limit)",
	  NUMBER(join.wait_limit_ms, 0, UINT32_MAX) },
	{ "join-timeout-ms", "N", "longest wait for the other ranks to join (default: 30000)",
	  NUMBER(join.join_timeout_ms, 1, UINT32_MAX) },
	{ "pause", "SECONDS", "this rank sleeps once, as if it wrote a checkpoint: the others wait",
	  NUMBER(pause_seconds, 1, UINT32_MAX) },
	{ "pause-at", "N", "before that iteration, from 0, those of the warm-up too (default: 0)",
	  NUMBER(pause_at, 0, UINT64_MAX) },
	{ "pause-busy", NULL, "computes instead, while the collective is posted",
	  FLAG(pause_busy) },
	{ "pause-ms", "N",
	  "all ranks sleep so long before each measured collective, behind the barrier (default: 0)",
	  NUMBER(pause_ms, 0, UINT32_MAX) },
	{ "json", NULL, "print one JSON object", FLAG(json) },
	{ "times", NULL, "with the seconds of each measured collective in it, and when each began",
	  FLAG(times) },
	{ "profile", NULL,
	  "where the time of the measured collectives went: CPU time, waits, system calls, packets, copies, and what stands out",
	  FLAG(profile) },
	{ "mark", "SOCKET",
	  "rank 0 connects to this UNIX socket and waits until it hangs up, before the first measured collective and before the last one: there somebody takes the times of processes",
	  TEXT(mark) },
	{ "trace", "FILE",
	  "the windows of a job with a parameter server over time: a JSON object on each line",
	  TEXT(trace_file) },
	{ "trace-us", "N", "microseconds between its lines, at least (default: 1000)",
	  NUMBER(trace_us, 1, 1000000) },
	{ "verbose", NULL, "diagnostics on stderr", FLAG(verbose) },
	{ "progress", NULL, "progress bar on stderr (default: if it is a terminal)",
	  FLAG(progress) },
	{ "no-progress", NULL, "no progress bar", .kind = CLI_CLEAR,
	  CLI_FIELD(struct options, progress) },
	{ "help", NULL, "print this help", .kind = CLI_HELP },
	{ "version", NULL, "print the version of this program", TAKE(version_print) },
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

	/* Prints warnings always, and with --verbose all but libbpf's details. */
	if (level <= (options->verbose ? 2 : 1))
		fprintf(stderr, "fanin-perf: %s\n", line);
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
	/* The default size is rounded down to whole elements, which may have 12 bytes. */
	if (!bytes_given)
		options->bytes -= options->bytes % size;
	if (options->bytes % size != 0)
		usage_error("--bytes is %" PRIu64 ", not a multiple of %s's %zu bytes",
			    options->bytes, options->dtype_name, size);
	if (!perf_collective_has_parts(options->collective) ||
	    options->bytes % (size * options->join.size) == 0)
		return;
	/* The default size is also rounded down for any number of ranks. */
	if (bytes_given)
		usage_error("--bytes is %" PRIu64
			    ", not a multiple of the %zu bytes that %u ranks have "
			    "at least with %s",
			    options->bytes, size * options->join.size, options->join.size,
			    collective);
	options->bytes -= options->bytes % (size * options->join.size);
}

/* Checks the other options against --sparse and --maybe-sparse. */
static void
sparse_check(const struct options *options, const struct cli_given *given)
{
	static const char *const of_sparse[] = { "density", "pattern" };
	const char *name = options->sparse ? "sparse" : "maybe-sparse";

	if (options->sparse && options->maybe_sparse)
		usage_error("--sparse and --maybe-sparse are given, expected one of them");
	for (size_t i = 0; i < sizeof(of_sparse) / sizeof(of_sparse[0]); i++) {
		if (cli_given(given, of_sparse[i]) && !options_has_zeros(options))
			usage_error("--%s needs --sparse or --maybe-sparse", of_sparse[i]);
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

/*
 * Reads the file of --pattern, if one is given. It sets the vector's length and the density unless
 * they are given.
 */
static void
pattern_load(struct options *options, const struct cli_given *given)
{
	const size_t size = fanin_dtype_size_of(options->dtype);

	if (options->pattern_file == NULL)
		return;
	if (options->bytes == 0)
		usage_error("--bytes is 0, expected one element or more with --pattern %s",
			    options->pattern_file);
	load_pattern(&options->places, options->pattern_file, options->join.size,
		     options->bytes / size, cli_given(given, "bytes"));
	if (options->places.n > (uint64_t)INT64_MAX / size)
		usage_error("--pattern %s: found n %" PRIu64 ", too many elements of %zu bytes",
			    options->pattern_file, options->places.n, size);
	options->bytes = options->places.n * size;
	if (!cli_given(given, "density"))
		options->density = perf_places_density(&options->places);
}

/* Checks that the job is given either on a switch or by name at the manager. */
static void
check_join_options(const struct cli_given *given, bool key_is_there)
{
	static const char *const on_switch[] = { "switch", "job", "key", "key-file" };
	static const char *const at_manager[] = { "manager", "handler", "reproducible",
						  "accumulate", "no-fallback" };
	const bool by_name = cli_given(given, "job-name");

	if (!cli_given(given, "size"))
		usage_error("--size is missing");
	for (size_t i = 0; i < sizeof(on_switch) / sizeof(on_switch[0]); i++) {
		const bool is_given = cli_given(given, on_switch[i]);

		if (by_name && is_given)
			usage_error("--job-name and --%s are two ways to a job, expected one",
				    on_switch[i]);
		if (!by_name && !is_given && strncmp(on_switch[i], "key", 3) != 0)
			usage_error("--%s is missing, or --job-name", on_switch[i]);
	}
	if (cli_given(given, "key") && cli_given(given, "key-file"))
		usage_error("--key and --key-file are two ways to say the key, expected one");
	if (!by_name && !key_is_there)
		usage_error("--key-file is missing, or %s in the environment, or --job-name",
			    JOB_KEY_VARIABLE);
	for (size_t i = 0; i < sizeof(at_manager) / sizeof(at_manager[0]); i++) {
		if (!by_name && cli_given(given, at_manager[i]))
			usage_error("--%s needs --job-name", at_manager[i]);
	}
	if ((!by_name || cli_given(given, "hosts")) && !cli_given(given, "rank"))
		usage_error("--rank is missing");
}

static void __attribute__((noreturn))
refuse(const char *name, const char *found, const char *expected)
{
	usage_error("--%s is '%s', expected %s", name, found, expected);
}

void
options_parse(struct options *options, int argc, char **argv)
{
	static const struct cli_program program = {
		.fields = fields,
		.about = usage_text,
		.number = "",
		.usage = cli_usage,
		.refuse = refuse,
	};
	struct cli_given given;
	bool key_is_there;
	int n;

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
	n = cli_fields_parse(&program, options, argc, argv, &given);
	if (n < argc)
		usage_error("'%s' is not an option", argv[n]);
	options->join.fixed_rank = cli_given(&given, "rank");
	options->finds_multicast = cli_given(&given, "multicast") &&
				   options->join.multicast == FANIN_MULTICAST_AUTO;
	options->check = options->check || options->check_ends;
	options->init.print = on_print;
	options->init.print_arg = options;
	key_is_there = cli_given(&given, "key") || cli_given(&given, "key-file") ||
		       (!cli_given(&given, "job-name") && key_from_environment(options));
	check_join_options(&given, key_is_there);
	if (options->join.rank >= options->join.size)
		usage_error("--rank is %u, expected 0 to %u (--size %u)", options->join.rank,
			    options->join.size - 1, options->join.size);
	if (cli_given(&given, "hosts") && options->n_placed != options->join.size)
		usage_error("--hosts has %" PRIu64 " numbers, expected %u (--size %u)",
			    options->n_placed, options->join.size, options->join.size);
	if (cli_given(&given, "memif") && !cli_given(&given, "address"))
		usage_error("--memif needs --address");
	if (cli_given(&given, "address") && !cli_given(&given, "memif") &&
	    !cli_given(&given, "job-name"))
		usage_error("--address goes with --memif or --job-name");
	operation_resolve(options);
	if (options->random_data && !perf_random_supports(options->dtype, options->op))
		usage_error(
			"--data is random with --dtype %s --op %s, expected the sum of f16, bf16, f32 or f64",
			options->dtype_name, options->op_name);
	collective_check(options, cli_given(&given, "bytes"));
	sparse_check(options, &given);
	pattern_load(options, &given);
	if (cli_given(&given, "trace-us") && !cli_given(&given, "trace"))
		usage_error("--trace-us needs --trace");
}
