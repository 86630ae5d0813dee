/* SPDX-License-Identifier: BSD-3-Clause */
/* The generator's command line. See pktgen.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_version.h>

#include "tools/measure/options.h"
#include "tools/pktgen/pktgen.h"
#include "control/job_key.h"
#include "wire/types.h"

#define DEFAULT_SECONDS 5
#define DEFAULT_PCAP_BLOCKS 256

static const char usage_text[] =
	"Usage: fanin-pktgen --port DEVICE... (--control SOCKET | --job ID...) [option...]\n"
	"Plays the hosts of jobs against a fanin-switch on DPDK devices, and checks every result.\n"
	"\n";

static void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...)
{
	va_list args;

	fputs("fanin-pktgen: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\nfanin-pktgen --help lists the options.\n", stderr);
	exit(2);
}

static uint32_t
parse_address(const char *name, const char *text)
{
	struct in_addr address;

	if (inet_pton(AF_INET, text, &address) != 1)
		usage_error("--%s is '%s', expected an IPv4 address", name, text);
	return address.s_addr;
}

static void
switch_take(void *all, char *text)
{
	((struct pktgen_options *)all)->switch_ip_be = parse_address("switch", text);
}

static void
address_take(void *all, char *text)
{
	((struct pktgen_options *)all)->first_ip_be = parse_address("address", text);
}

/* text: in argv; the key in it is overwritten. */
static void
job_take(void *all, char *text)
{
	struct pktgen_options *options = all;
	const uint16_t n = options->n_jobs;
	char *key = strchr(text, ':');
	char *end;
	unsigned long id;

	if (n == PKTGEN_MAX_JOBS)
		usage_error("--job is given more than %d times", PKTGEN_MAX_JOBS);
	errno = 0;
	id = strtoul(text, &end, 10);
	if (end == text || (*end != '\0' && end != key) || text[0] == '-' || id == 0 ||
	    id > FANIN_WIRE_MAX_JOB)
		usage_error("--job is '%s', expected ID or ID:KEY like 1:0x1234abcd", text);
	if (key != NULL) {
		options->jobs[n].key = strtoull(key + 1, &end, 16);
		if (errno != 0 || end == key + 1 || *end != '\0' || key[1] == '-')
			usage_error("--job is '%s', expected a hexadecimal KEY after ID:", text);
		job_key_hide(key + 1);
	}
	options->jobs[n].has_key = key != NULL;
	options->jobs[n].id = (uint32_t)id;
	options->n_jobs++;
}

static void
key_load(void *all, char *path)
{
	struct pktgen_options *options = all;
	char error[JOB_KEY_ERROR_LEN];

	if (options->n_jobs == 0 || options->jobs[options->n_jobs - 1].id == 0 ||
	    options->jobs[options->n_jobs - 1].has_key)
		usage_error("--key-file is '%s', expected a --job ID without a key before it",
			    path);
	if (job_key_load(path, &options->jobs[options->n_jobs - 1].key, error) != 0)
		usage_error("--key-file %s", error);
	options->jobs[options->n_jobs - 1].has_key = true;
}

/* Reads the keys of existing jobs that have none on the command line. */
static void
keys_from_environment(struct pktgen_options *options)
{
	char error[JOB_KEY_ERROR_LEN];

	for (uint16_t i = 0; i < options->n_jobs; i++) {
		int ret;

		if (options->jobs[i].has_key)
			continue;
		ret = job_key_from_environment(&options->jobs[i].key, error);
		if (ret < 0)
			usage_error("%s", error);
		if (ret == 0)
			usage_error(
				"--key-file is missing after --job %u, or %s in the environment",
				options->jobs[i].id, JOB_KEY_VARIABLE);
	}
}

/* Appends a name to a list. */
static void
name_add(const char *option, const char **names, uint16_t *n, const char *name)
{
	if (*n == HOSTS_MAX)
		usage_error("--%s is given more than %d times", option, HOSTS_MAX);
	names[(*n)++] = name;
}

static void
port_take(void *all, char *name)
{
	struct pktgen_options *options = all;

	name_add("port", options->ports, &options->n_ports, name);
}

static void
switch_port_take(void *all, char *name)
{
	struct pktgen_options *options = all;

	name_add("switch-port", options->switch_ports, &options->n_switch_ports, name);
}

static void
window_take(void *all, char *text)
{
	uint64_t window;

	if (!cli_number(text, 10, 1, FANIN_WIRE_MAX_WINDOW, &window))
		usage_error("--window is '%s', expected 1 to %d", text, FANIN_WIRE_MAX_WINDOW);
	if ((window & (window - 1)) != 0)
		usage_error("--window is '%s', expected a power of two", text);
	((struct pktgen_options *)all)->window = (uint16_t)window;
}

static void __attribute__((noreturn)) version_print(void *all, char *text)
{
	(void)all;
	(void)text;
	printf("fanin-pktgen " FANIN_VERSION " (%s; built with %s)\n", rte_version(),
	       DPDK_BUILT_WITH);
	exit(0);
}

static const char *const interarrivals[] = { "fixed", "exponential" };

#define TEXT(member) .kind = CLI_TEXT, CLI_FIELD(struct pktgen_options, member)
#define FLAG(member) CLI_FLAG(struct pktgen_options, member)
#define CLEAR(member) .kind = CLI_CLEAR, CLI_FIELD(struct pktgen_options, member)
#define NUMBER(member, low, high) CLI_NUMBER(struct pktgen_options, member, low, high)
#define REAL(member, low, high) CLI_DOUBLE(struct pktgen_options, member, low, high)
#define FIND(member, function)                                                                     \
	.kind = CLI_FIND, CLI_FIELD(struct pktgen_options, member), .find = (function)
#define TAKE(function) .kind = CLI_TAKE, .take = (function)

static const struct cli_field fields[] = {
	{ "port", "DEVICE",
	  "a DPDK vdev with its arguments, or a PCI address; once for each link to the switch",
	  TAKE(port_take) },
	{ "hosts", "P", "hosts, spread over the ports in turn (default: one for each port)",
	  NUMBER(hosts, 1, HOSTS_MAX) },
	{ "switch", "IP", "the switch's address (default: 10.77.0.254)", TAKE(switch_take) },
	{ "address", "IP", "host 0's address, the others' follow (default: 10.77.0.1)",
	  TAKE(address_take) },
	{ "udp-port", "N", "Fanin's UDP port (default: 21930)", NUMBER(udp_port, 1024, 65535) },
	{ "mtu", "N", "of the links, 576 to 9702 bytes (default: 1500)", NUMBER(mtu, 576, 9702) },
	{ "control", "SOCKET", "make jobs there, and destroy them at the end", TEXT(control) },
	{ "switch-port", "NAME",
	  "the switch's port behind a --port, in the same order (default: the switch's ports in their order)",
	  TAKE(switch_port_take) },
	{ "handler", "NAME", "of jobs that are made (default: single)", TEXT(handler) },
	{ "jobs", "J", "jobs that are made (default: 1)", NUMBER(n_jobs, 1, PKTGEN_MAX_JOBS) },
	{ "job", "ID",
	  "a job that exists; once for each. ID:KEY says the key on the command line, which other users can see until it is read",
	  TAKE(job_take) },
	{ "key-file", "FILE",
	  "has the key of the --job before it, as 0x...; - is standard input (default: the key is in FANIN_KEY)",
	  TAKE(key_load) },
	{ "dtype", "TYPE", "of the elements (default: f32)", FIND(dtype, bench_dtype_find),
	  .expected = "i8 to u64, f16, bf16, f32 or f64" },
	{ "op", "OP", "that combines them (default: sum)", FIND(op, bench_op_find),
	  .expected = "an operator such as sum or max" },
	{ "payload", "N", "bytes of each contribution (default: as many as the job takes)",
	  NUMBER(payload, 1, 9600) },
	{ "window", "N", "most blocks in flight per host, a power of two (default: the job's)",
	  TAKE(window_take) },
	{ "stagger", NULL, "rotate the order of blocks by host (default)", FLAG(stagger) },
	{ "no-stagger", NULL, "every host begins with the first block", CLEAR(stagger) },
	{ "rate", "PPS",
	  "contributions per second of all hosts; 0: as the window lets (default: 0)",
	  REAL(rate, 0, 1e10) },
	{ "interarrival", "KIND",
	  "fixed or exponential gaps between contributions (default: fixed)", .kind = CLI_CHOICE,
	  CLI_FIELD(struct pktgen_options, exponential), CLI_NAMES(interarrivals),
	  .expected = "fixed or exponential" },
	{ "seconds", "S", "length of the run, or of each trial (default: 5)",
	  REAL(seconds, 0.001, 1e6) },
	{ "blocks", "N", "instead: blocks of each job", NUMBER(blocks, 1, UINT32_MAX) },
	{ "search", NULL, "look for the highest rate without loss, to within 1 %", FLAG(search) },
	{ "timeout-ms", "N", "a result that takes longer is lost (default: 200)",
	  REAL(timeout_s, 1, 1e6), .divisor = 1e3 },
	{ "stall-ms", "N", "without any result for so long, give up (default: 5000)",
	  REAL(stall_s, 1, 1e6), .divisor = 1e3 },
	{ "join-only", NULL,
	  "join, print what the switch said, hold the membership until SIGTERM or SIGINT, leave",
	  FLAG(join_only) },
	{ "keep", NULL, "with --join-only: exit at once and do not leave", FLAG(keep) },
	{ "pcap", "PREFIX",
	  "with --join-only: write PREFIX-hN.pcap, the contributions of each host to the first --blocks blocks (default: 256)",
	  TEXT(pcap) },
	{ "cpu", "N", "CPU to run on (default: any)", NUMBER(cpu, 0, 1023) },
	{ "no-huge", NULL, "no hugepages (default: if enough are free)", CLEAR(huge) },
	{ "eal", "\"WORDS\"", "more options for DPDK's environment", TEXT(eal) },
	{ "json", NULL, "print one JSON object", FLAG(json) },
	{ "help", NULL, "print this help", .kind = CLI_HELP },
	{ "version", NULL, "print the version of this program", TAKE(version_print) },
	{ 0 },
};

/* Checks options that depend on each other. */
static void
options_check(struct pktgen_options *options, const struct cli_given *given)
{
	if (options->n_ports == 0)
		usage_error("--port is missing");
	if (options->hosts == 0)
		options->hosts = options->n_ports;
	if (options->hosts < options->n_ports)
		usage_error("--hosts is %u, expected at least one for each of the %u ports",
			    options->hosts, options->n_ports);
	if (options->n_switch_ports != 0 && options->n_switch_ports != options->n_ports)
		usage_error("found %u times --switch-port, expected as many as --port (%u)",
			    options->n_switch_ports, options->n_ports);
	if (cli_given(given, "control") == cli_given(given, "job"))
		usage_error("expected either --control or --job");
	if (cli_given(given, "jobs") && cli_given(given, "job"))
		usage_error("--jobs goes with --control only: every --job is one");
	if (cli_given(given, "job"))
		keys_from_environment(options);
	if (options->n_jobs == 0)
		options->n_jobs = 1;
	if (!fanin_operation_defined(options->dtype, options->op))
		usage_error("--op %s is not defined on %s", fanin_op_name(options->op),
			    fanin_dtype_name(options->dtype));
	if (options->payload % fanin_dtype_size(options->dtype) != 0)
		usage_error("--payload is %u, expected whole elements of %u bytes",
			    options->payload, fanin_dtype_size(options->dtype));
	if (options->search && (options->blocks != 0 || cli_given(given, "rate")))
		usage_error(
			"--search goes with neither --blocks nor --rate: --seconds is a trial's length");
	if (!options->join_only && (options->keep || options->pcap != NULL))
		usage_error("--keep and --pcap go with --join-only");
	if (options->pcap != NULL && options->n_jobs != 1)
		usage_error("--pcap is of one job, found %u", options->n_jobs);
	if (options->pcap != NULL && options->blocks == 0)
		options->blocks = DEFAULT_PCAP_BLOCKS;
}

static void __attribute__((noreturn))
refuse(const char *name, const char *found, const char *expected)
{
	usage_error("--%s is '%s', expected %s", name, found, expected);
}

void
pktgen_options_parse(struct pktgen_options *options, int argc, char **argv)
{
	static const struct cli_program program = {
		.fields = fields,
		.about = usage_text,
		.base = 10,
		.number = "",
		.usage = cli_usage,
		.refuse = refuse,
	};
	struct cli_given given;
	int n;

	*options = (struct pktgen_options){
		.cpu = -1,
		.huge = true,
		.mtu = 1500,
		.switch_ip_be = inet_addr("10.77.0.254"),
		.first_ip_be = inet_addr("10.77.0.1"),
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.handler = "single",
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.stagger = true,
		.seconds = DEFAULT_SECONDS,
		.timeout_s = 0.2,
		.stall_s = 5,
	};
	n = cli_fields_parse(&program, options, argc, argv, &given);
	if (n < argc)
		usage_error("'%s' is not an option", argv[n]);
	options_check(options, &given);
}
