/* SPDX-License-Identifier: BSD-3-Clause */
/* The generator's command line. See pktgen.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/pktgen.h"
#include "control/cli.h"
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

enum option_code {
	OPT_PORT = 256 /* no letters */,
	OPT_HOSTS,
	OPT_SWITCH,
	OPT_ADDRESS,
	OPT_UDP_PORT,
	OPT_MTU,
	OPT_CONTROL,
	OPT_SWITCH_PORT,
	OPT_HANDLER,
	OPT_JOBS,
	OPT_JOB,
	OPT_KEY_FILE,
	OPT_DTYPE,
	OPT_OP,
	OPT_PAYLOAD,
	OPT_WINDOW,
	OPT_STAGGER,
	OPT_NO_STAGGER,
	OPT_RATE,
	OPT_INTERARRIVAL,
	OPT_SECONDS,
	OPT_BLOCKS,
	OPT_SEARCH,
	OPT_TIMEOUT,
	OPT_STALL,
	OPT_JOIN_ONLY,
	OPT_KEEP,
	OPT_PCAP,
	OPT_CPU,
	OPT_NO_HUGE,
	OPT_EAL,
	OPT_JSON,
	OPT_HELP,
	OPT_VERSION,
	OPT_END
};

static const struct cli_option known_options[] = {
	{ "port", "DEVICE", OPT_PORT,
	  "a DPDK vdev with its arguments, or a PCI address; once for each link to the switch" },
	{ "hosts", "P", OPT_HOSTS,
	  "hosts, spread over the ports in turn (default: one for each port)" },
	{ "switch", "IP", OPT_SWITCH, "the switch's address (default: 10.77.0.254)" },
	{ "address", "IP", OPT_ADDRESS, "host 0's address, the others' follow (default: 10.77.0.1)" },
	{ "udp-port", "N", OPT_UDP_PORT, "Fanin's UDP port (default: 21930)" },
	{ "mtu", "N", OPT_MTU, "of the links, 576 to 9702 bytes (default: 1500)" },
	{ "control", "SOCKET", OPT_CONTROL, "make jobs there, and destroy them at the end" },
	{ "switch-port", "NAME", OPT_SWITCH_PORT,
	  "the switch's port behind a --port, in the same order (default: the switch's ports in their order)" },
	{ "handler", "NAME", OPT_HANDLER, "of jobs that are made (default: single)" },
	{ "jobs", "J", OPT_JOBS, "jobs that are made (default: 1)" },
	{ "job", "ID", OPT_JOB,
	  "a job that exists; once for each. ID:KEY says the key on the command line, which other users can see until it is read" },
	{ "key-file", "FILE", OPT_KEY_FILE,
	  "has the key of the --job before it, as 0x...; - is standard input (default: the key is in FANIN_KEY)" },
	{ "dtype", "TYPE", OPT_DTYPE, "of the elements (default: f32)" },
	{ "op", "OP", OPT_OP, "that combines them (default: sum)" },
	{ "payload", "N", OPT_PAYLOAD,
	  "bytes of each contribution (default: as many as the job takes)" },
	{ "window", "N", OPT_WINDOW,
	  "most blocks in flight per host, a power of two (default: the job's)" },
	{ "stagger", NULL, OPT_STAGGER, "rotate the order of blocks by host (default)" },
	{ "no-stagger", NULL, OPT_NO_STAGGER, "every host begins with the first block" },
	{ "rate", "PPS", OPT_RATE,
	  "contributions per second of all hosts; 0: as the window lets (default: 0)" },
	{ "interarrival", "KIND", OPT_INTERARRIVAL,
	  "fixed or exponential gaps between contributions (default: fixed)" },
	{ "seconds", "S", OPT_SECONDS, "length of the run, or of each trial (default: 5)" },
	{ "blocks", "N", OPT_BLOCKS, "instead: blocks of each job" },
	{ "search", NULL, OPT_SEARCH, "look for the highest rate without loss, to within 1 %" },
	{ "timeout-ms", "N", OPT_TIMEOUT, "a result that takes longer is lost (default: 200)" },
	{ "stall-ms", "N", OPT_STALL, "without any result for so long, give up (default: 5000)" },
	{ "join-only", NULL, OPT_JOIN_ONLY,
	  "join, print what the switch said, hold the membership until SIGTERM or SIGINT, leave" },
	{ "keep", NULL, OPT_KEEP, "with --join-only: exit at once and do not leave" },
	{ "pcap", "PREFIX", OPT_PCAP,
	  "with --join-only: write PREFIX-hN.pcap, the contributions of each host to the first --blocks blocks (default: 256)" },
	{ "cpu", "N", OPT_CPU, "CPU to run on (default: any)" },
	{ "no-huge", NULL, OPT_NO_HUGE, "no hugepages (default: if enough are free)" },
	{ "eal", "\"WORDS\"", OPT_EAL, "more options for DPDK's environment" },
	{ "json", NULL, OPT_JSON, "print one JSON object" },
	{ "help", NULL, OPT_HELP, "print this help" },
	{ "version", NULL, OPT_VERSION, "print the version of this program" },
	{ 0 },
};

static uint64_t
parse_integer(const char *name, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < least ||
	    value > most)
		usage_error("--%s is '%s', expected %" PRIu64 " to %" PRIu64, name, text, least,
			    most);
	return value;
}

static double
parse_number(const char *name, const char *text, double least, double most)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno != 0 || end == text || *end != '\0' || !(value >= least && value <= most))
		usage_error("--%s is '%s', expected a number from %g to %g", name, text, least, most);
	return value;
}

static uint32_t
parse_address(const char *name, const char *text)
{
	struct in_addr address;

	if (inet_pton(AF_INET, text, &address) != 1)
		usage_error("--%s is '%s', expected an IPv4 address", name, text);
	return address.s_addr;
}

/* text: in argv; its key is overwritten. */
static void
parse_job(struct pktgen_options *options, char *text)
{
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
load_key(struct pktgen_options *options, const char *path)
{
	char error[JOB_KEY_ERROR_LEN];

	if (options->n_jobs == 0 || options->jobs[options->n_jobs - 1].id == 0 ||
	    options->jobs[options->n_jobs - 1].has_key)
		usage_error("--key-file is '%s', expected a --job ID without a key before it", path);
	if (job_key_load(path, &options->jobs[options->n_jobs - 1].key, error) != 0)
		usage_error("--key-file %s", error);
	options->jobs[options->n_jobs - 1].has_key = true;
}

/* Of jobs that exist and whose key was not said. */
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
			usage_error("--key-file is missing after --job %u, or %s in the environment",
				    options->jobs[i].id, JOB_KEY_VARIABLE);
	}
}

/* Appends one of a list of names. */
static void
name_add(const char *option, const char **names, uint16_t *n, const char *name)
{
	if (*n == HOSTS_MAX)
		usage_error("--%s is given more than %d times", option, HOSTS_MAX);
	names[(*n)++] = name;
}

static uint16_t
parse_window(const char *text)
{
	const uint16_t window = (uint16_t)parse_integer("window", text, 1, FANIN_WIRE_MAX_WINDOW);

	if ((window & (window - 1)) != 0)
		usage_error("--window is '%s', expected a power of two", text);
	return window;
}

static void
option_of_network(struct pktgen_options *options, int code, const char *name, const char *value)
{
	switch (code) {
	case OPT_PORT:
		name_add(name, options->ports, &options->n_ports, value);
		break;
	case OPT_SWITCH_PORT:
		name_add(name, options->switch_ports, &options->n_switch_ports, value);
		break;
	case OPT_HOSTS:
		options->hosts = (uint16_t)parse_integer(name, value, 1, HOSTS_MAX);
		break;
	case OPT_SWITCH:
		options->switch_ip_be = parse_address(name, value);
		break;
	case OPT_ADDRESS:
		options->first_ip_be = parse_address(name, value);
		break;
	case OPT_UDP_PORT:
		options->udp_port = (uint16_t)parse_integer(name, value, 1024, 65535);
		break;
	case OPT_MTU:
		options->mtu = (uint32_t)parse_integer(name, value, 576, 9702);
		break;
	case OPT_CPU:
		options->cpu = (int)parse_integer(name, value, 0, 1023);
		break;
	case OPT_NO_HUGE:
		options->huge = false;
		break;
	case OPT_EAL:
		options->eal = value;
		break;
	default:
		exit(2);
	}
}

static void
option_of_jobs(struct pktgen_options *options, int code, const char *name, char *value)
{
	switch (code) {
	case OPT_CONTROL:
		options->control = value;
		break;
	case OPT_HANDLER:
		options->handler = value;
		break;
	case OPT_JOBS:
		options->n_jobs = (uint16_t)parse_integer(name, value, 1, PKTGEN_MAX_JOBS);
		break;
	case OPT_JOB:
		parse_job(options, value);
		break;
	case OPT_KEY_FILE:
		load_key(options, value);
		break;
	case OPT_DTYPE:
		options->dtype = (uint8_t)fanin_dtype_from_name(value);
		if (options->dtype == FANIN_WIRE_DTYPE_NONE)
			usage_error("--dtype is '%s', expected i8 to u64, f16, bf16, f32 or f64",
				    value);
		break;
	case OPT_OP:
		options->op = (uint8_t)fanin_op_from_name(value);
		if (options->op == FANIN_WIRE_OP_NONE)
			usage_error("--op is '%s', expected an operator such as sum or max", value);
		break;
	case OPT_PAYLOAD:
		options->payload = (uint32_t)parse_integer(name, value, 1, 9600);
		break;
	case OPT_WINDOW:
		options->window = parse_window(value);
		break;
	case OPT_PCAP:
		options->pcap = value;
		break;
	default:
		option_of_network(options, code, name, value);
		break;
	}
}

static void
option_take(struct pktgen_options *options, int code, const char *name, char *value)
{
	switch (code) {
	case OPT_STAGGER:
	case OPT_NO_STAGGER:
		options->stagger = code == OPT_STAGGER;
		break;
	case OPT_RATE:
		options->rate = parse_number(name, value, 0, 1e10);
		break;
	case OPT_INTERARRIVAL:
		options->exponential = strcmp(value, "exponential") == 0;
		if (!options->exponential && strcmp(value, "fixed") != 0)
			usage_error("--interarrival is '%s', expected fixed or exponential", value);
		break;
	case OPT_SECONDS:
		options->seconds = parse_number(name, value, 0.001, 1e6);
		break;
	case OPT_BLOCKS:
		options->blocks = parse_integer(name, value, 1, UINT32_MAX);
		break;
	case OPT_SEARCH:
		options->search = true;
		break;
	case OPT_TIMEOUT:
		options->timeout_s = parse_number(name, value, 1, 1e6) / 1e3;
		break;
	case OPT_STALL:
		options->stall_s = parse_number(name, value, 1, 1e6) / 1e3;
		break;
	case OPT_JOIN_ONLY:
		options->join_only = true;
		break;
	case OPT_KEEP:
		options->keep = true;
		break;
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_HELP:
		fputs(usage_text, stdout);
		cli_print_options(stdout, known_options);
		exit(0);
	case OPT_VERSION:
		puts("fanin-pktgen " FANIN_VERSION);
		exit(0);
	default:
		option_of_jobs(options, code, name, value);
		break;
	}
}

/* What single options can't tell. */
static void
options_check(struct pktgen_options *options, const bool *given)
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
	if (given[OPT_CONTROL] == given[OPT_JOB])
		usage_error("expected either --control or --job");
	if (given[OPT_JOBS] && given[OPT_JOB])
		usage_error("--jobs goes with --control only: every --job is one");
	if (given[OPT_JOB])
		keys_from_environment(options);
	if (options->n_jobs == 0)
		options->n_jobs = 1;
	if (!fanin_operation_defined(options->dtype, options->op))
		usage_error("--op %s is not defined on %s", fanin_op_name(options->op),
			    fanin_dtype_name(options->dtype));
	if (options->payload % fanin_dtype_size(options->dtype) != 0)
		usage_error("--payload is %u, expected whole elements of %u bytes",
			    options->payload, fanin_dtype_size(options->dtype));
	if (options->search && (options->blocks != 0 || given[OPT_RATE]))
		usage_error(
			"--search goes with neither --blocks nor --rate: --seconds is a trial's length");
	if (!options->join_only && (options->keep || options->pcap != NULL))
		usage_error("--keep and --pcap go with --join-only");
	if (options->pcap != NULL && options->n_jobs != 1)
		usage_error("--pcap is of one job, found %u", options->n_jobs);
	if (options->pcap != NULL && options->blocks == 0)
		options->blocks = DEFAULT_PCAP_BLOCKS;
}

void
pktgen_options_parse(struct pktgen_options *options, int argc, char **argv)
{
	bool given[OPT_END] = { false };
	struct cli cli;
	int index = 0;
	int code;

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
	cli_prepare(&cli, known_options, NULL, 0);
	while ((code = getopt_long(argc, argv, cli.letters, cli.long_options, &index)) != -1) {
		if (code == '?') {
			fputs("fanin-pktgen --help lists the options.\n", stderr);
			exit(2);
		}
		option_take(options, code, known_options[index].name, optarg);
		given[code] = true;
	}
	if (optind < argc)
		usage_error("'%s' is not an option", argv[optind]);
	options_check(options, given);
}
