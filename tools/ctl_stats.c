/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl stats: the counters of the workers, of switching and of the ports, once, or repeatedly
 * with rates. A rate is the difference of two answers over the time between them.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/ctl.h"
#include "tools/ctl_table.h"

#define CLEAR_SCREEN "\033[H\033[2J"
#define MIB 1048576.0

const struct cli_option ctl_stats_options[] = {
	{ "watch", "[SECONDS]", 'w', "again every so many seconds (default: 1), with rates" },
	{ "count", "N", 'n', "stop after N times" },
	{ 0 },
};

/* One reading of the switch's counters. */
struct sample {
	double at_s; /* monotonic clock */
	json_t *stats;
	json_t *ports; /* NULL with --json, which prints the answer to stats unchanged */
};

static volatile sig_atomic_t stopped;

static void
stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
}

static void
sample_free(struct sample *sample)
{
	json_decref(sample->stats);
	json_decref(sample->ports);
	*sample = (struct sample){ 0 };
}

static int
sample_take(struct ctl *ctl, struct sample *sample)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	sample->at_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	sample->ports = NULL;
	sample->stats = ctl_call(ctl, "stats", NULL);
	if (sample->stats == NULL)
		return CTL_FAILED;
	if (ctl->json)
		return CTL_OK;
	sample->ports = ctl_call(ctl, "ports.list", NULL);
	if (sample->ports != NULL)
		return CTL_OK;
	sample_free(sample);
	return CTL_FAILED;
}

/*
 * Returns the entry of an array with the same `key` as item: its counterpart in the earlier sample.
 */
static const json_t *
find_same(const json_t *array, const json_t *item, const char *key)
{
	const json_t *other;
	size_t i;

	json_array_foreach(array, i, other) {
		if (json_equal(json_object_get(other, key), json_object_get(item, key)))
			return other;
	}
	return NULL;
}

/*
 * Returns the rate per second; negative if there is no earlier value, or the counter was reset
 * since then.
 */
static double
rate(const json_t *before, const json_t *now, const char *key, double seconds)
{
	if (before == NULL || seconds <= 0)
		return -1;
	return (ctl_real(now, key) - ctl_real(before, key)) / seconds;
}

/* Prints how many packets waited for a handler, on average over bursts. */
static void
waiting_cell(struct ctl_table *table, const json_t *worker)
{
	const json_t *count;
	const char *range;
	int64_t bursts = 0;

	json_object_foreach(json_object_get(worker, "input_occupancy"), range, count)
		bursts += json_integer_value(count);
	if (bursts > 0)
		ctl_table_cell(table, "%.1f", ctl_real(worker, "input_sum") / (double)bursts);
	else
		ctl_table_cell(table, "-");
}

/* Prints a quotient with one decimal. */
static void
quotient_cell(struct ctl_table *table, double dividend, double divisor)
{
	if (divisor > 0)
		ctl_table_cell(table, "%.1f", dividend / divisor);
	else
		ctl_table_cell(table, "-");
}

/*
 * Prints the growth of a counter of microseconds as a part of the time, since the earlier sample if
 * there is one, else since the start.
 */
static void
share_cell(struct ctl_table *table, const json_t *before, const json_t *now, const char *key,
	   double seconds)
{
	const double grown_us = ctl_real(now, key) - (before == NULL ? 0 : ctl_real(before, key));

	if (json_object_get(now, key) != NULL && seconds > 0)
		ctl_table_cell(table, "%.1f %%", grown_us / seconds / 1e4);
	else
		ctl_table_cell(table, "-");
}

/*
 * Prints how the workers' threads spend their time, and how long frames may have waited for them.
 */
static void
print_threads(const struct sample *before, const struct sample *now, bool rates)
{
	static const char *const headers[] = { ">LCORE",         ">CPU",         ">RUN QUEUE",
					       ">YIELDS",        ">SLEEPS",      ">WOKEN",
					       ">LONGEST ROUND", ">LONG ROUNDS", NULL };
	const double seconds = rates ? now->at_s - before->at_s : ctl_real(now->stats, "uptime_s");
	struct ctl_table table;
	const json_t *worker;
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(now->stats, "workers"), i, worker) {
		const json_t *same = find_same(json_object_get(before->stats, "workers"), worker,
					       "lcore");

		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "lcore"));
		share_cell(&table, same, worker, "cpu_us", seconds);
		share_cell(&table, same, worker, "run_queue_us", seconds);
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "yields"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "sleeps"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "wakes"));
		ctl_table_cell(&table, "%.0f us", ctl_real(worker, "longest_round_us"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "long_rounds"));
	}
	ctl_table_print(&table, "");
}

static void
print_workers(const struct sample *before, const struct sample *now, bool rates)
{
	static const char *const headers[] = { ">LCORE",  ">PACKETS",   ">RATE",
					       ">BURSTS", ">PER BURST", ">EMPTY POLLS",
					       ">BUSY",   ">WAITING",   NULL };
	struct ctl_table table;
	const json_t *worker;
	char text[CTL_NUMBER_LEN];
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(now->stats, "workers"), i, worker) {
		const json_t *same = find_same(json_object_get(before->stats, "workers"), worker,
					       "lcore");

		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "lcore"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "packets"));
		ctl_table_cell(&table, "%s",
			       ctl_rate(rates ? rate(same, worker, "packets",
						     now->at_s - before->at_s)
					      : -1,
					text));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "bursts"));
		quotient_cell(&table, ctl_real(worker, "packets"), ctl_real(worker, "bursts"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(worker, "empty_polls"));
		ctl_table_cell(&table, "%.1f %%", ctl_real(worker, "busy_share") * 100);
		waiting_cell(&table, worker);
	}
	ctl_table_print(&table, "");
}

/* Prints how many frames a super-frame has had on average. way: "rx" or "tx". */
static void
segments_cell(struct ctl_table *table, const json_t *port, const char *way)
{
	const json_t *super_frames = json_object_get(port, "super_frames");
	char key[16];

	snprintf(key, sizeof(key), "%s_segments", way);
	quotient_cell(table, ctl_real(super_frames, key), ctl_real(super_frames, way));
}

static void
print_ports(const struct sample *before, const struct sample *now, bool rates)
{
	static const char *const headers[] = { "PORT",     "LINK",     ">RX FRAMES", ">RX RATE",
					       ">RX BITS", ">RX SEGS", ">MISSED",    ">TX FRAMES",
					       ">TX RATE", ">TX BITS", ">TX SEGS",   ">DROPPED",
					       NULL };
	double seconds = now->at_s - before->at_s;
	struct ctl_table table;
	const json_t *port;
	char text[CTL_NUMBER_LEN];
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(now->ports, "ports"), i, port) {
		const json_t *same = rates ? find_same(json_object_get(before->ports, "ports"),
						       port, "name")
					   : NULL;

		ctl_table_cell(&table, "%s", ctl_string(port, "name"));
		ctl_table_cell(&table, "%s", ctl_is_true(port, "link") ? "up" : "down");
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "rx_frames"));
		ctl_table_cell(&table, "%s",
			       ctl_rate(rate(same, port, "rx_frames", seconds), text));
		ctl_table_cell(&table, "%s",
			       ctl_bit_rate(rate(same, port, "rx_bytes", seconds), text));
		segments_cell(&table, port, "rx");
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "rx_missed"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "tx_frames"));
		ctl_table_cell(&table, "%s",
			       ctl_rate(rate(same, port, "tx_frames", seconds), text));
		ctl_table_cell(&table, "%s",
			       ctl_bit_rate(rate(same, port, "tx_bytes", seconds), text));
		segments_cell(&table, port, "tx");
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "tx_dropped"));
	}
	ctl_table_print(&table, "");
}

/* Prints the counters that are not zero, by name. */
static void
print_counters(const json_t *before, const json_t *now, double seconds, bool rates,
	       const char *title)
{
	const char *const headers[] = { title, ">PACKETS", ">RATE", NULL };
	struct ctl_table table;
	const char *name;
	const json_t *count;
	char text[CTL_NUMBER_LEN];

	ctl_table_start(&table, headers);
	json_object_foreach((json_t *)(uintptr_t)now, name, count) {
		if (json_integer_value(count) == 0)
			continue;
		ctl_table_cell(&table, "%s", name);
		ctl_table_cell(&table, "%" PRId64, (int64_t)json_integer_value(count));
		ctl_table_cell(&table, "%s",
			       ctl_rate(rates ? rate(before, now, name, seconds) : -1, text));
	}
	if (table.n_cells > 0) {
		putchar('\n');
		ctl_table_print(&table, "");
	}
}

/* Prints a switch's memory and workers. */
static void
print_switch(const struct sample *before, const struct sample *now, bool rates)
{
	const json_t *mempool = json_object_get(now->stats, "mempool");
	const json_t *memory = json_object_get(now->stats, "memory");
	char uptime[CTL_NUMBER_LEN];

	printf("up %s, %" PRId64 " of %" PRId64 " packet buffers free, %" PRId64 " MAC addresses\n",
	       ctl_duration(ctl_real(now->stats, "uptime_s"), uptime), ctl_integer(mempool, "free"),
	       ctl_integer(mempool, "size"), ctl_integer(now->stats, "mac_entries"));
	printf("memory: %.1f MiB resident and %.1f MiB of hugepages; packets %.1f MiB, slots %.1f MiB, of %" PRId64
	       " MiB for DPDK\n\n",
	       ctl_real(memory, "rss") / MIB, ctl_real(memory, "hugepages") / MIB,
	       ctl_real(memory, "packets") / MIB, ctl_real(memory, "slots") / MIB,
	       ctl_integer(memory, "limit") / (1 << 20));
	print_workers(before, now, rates);
	putchar('\n');
	print_threads(before, now, rates);
	putchar('\n');
}

/* Prints the counters of a parameter server, which has no workers. */
static void
print_server(const struct sample *now)
{
	const json_t *memory = json_object_get(now->stats, "memory");
	char uptime[CTL_NUMBER_LEN];

	printf("up %s, %" PRId64 " rounds, %" PRId64 " packets, receive buffer %" PRId64 " KiB\n",
	       ctl_duration(ctl_real(now->stats, "uptime_s"), uptime),
	       ctl_integer(now->stats, "rounds"), ctl_integer(now->stats, "packets"),
	       ctl_integer(now->stats, "receive_buffer_bytes") / 1024);
	printf("memory: %.1f MiB resident; jobs %.1f of %.1f MiB\n\n",
	       ctl_real(memory, "rss") / MIB, ctl_real(memory, "jobs") / MIB,
	       ctl_real(memory, "limit") / MIB);
}

static void
print_sample(const struct sample *before, const struct sample *now)
{
	bool rates = before->stats != NULL;
	double seconds = now->at_s - before->at_s;

	if (json_object_get(now->stats, "workers") != NULL)
		print_switch(before, now, rates);
	else
		print_server(now);
	print_ports(before, now, rates);
	print_counters(json_object_get(before->stats, "switching"),
		       json_object_get(now->stats, "switching"), seconds, rates, "SWITCHING");
	print_counters(json_object_get(before->stats, "drops"),
		       json_object_get(now->stats, "drops"), seconds, rates, "DROPPED");
	print_counters(json_object_get(before->stats, "machine"),
		       json_object_get(now->stats, "machine"), seconds, rates, "MACHINE");
	fflush(stdout);
}

/*
 * Sleeps until the interval has passed or a signal has come. Signals are unblocked only here, so
 * that none is lost.
 */
static void
pause_for(int64_t seconds, const sigset_t *signals)
{
	struct timespec interval = { .tv_sec = seconds };

	ppoll(NULL, 0, &interval, signals);
}

static int
watch(struct ctl *ctl, int64_t interval_s, int64_t count)
{
	bool terminal = isatty(STDOUT_FILENO) == 1 && !ctl->json;
	struct sigaction action = { .sa_handler = stop };
	struct sample before = { 0 };
	struct sample now = { 0 };
	sigset_t blocked, previous;
	int code = CTL_OK;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGINT);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, &previous);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	for (int64_t n = 0; !stopped && (count == 0 || n < count); n++) {
		if (n > 0)
			pause_for(interval_s, &previous);
		if (stopped)
			break;
		code = sample_take(ctl, &now);
		if (code != CTL_OK)
			break;
		if (ctl->json) {
			ctl_print_json(now.stats);
		} else {
			fputs(terminal ? CLEAR_SCREEN : n > 0 ? "\n" : "", stdout);
			print_sample(&before, &now);
		}
		sample_free(&before);
		before = now;
		if (ferror(stdout))
			break;
	}
	sample_free(&before);
	return code;
}

/*
 * Parses the number of "--watch=2" or "--watch 2"; getopt takes the 2 of the latter for an operand.
 */
static int
watch_interval(struct ctl *ctl, int argc, char **argv, int64_t *interval_s)
{
	*interval_s = 1;
	if (optarg != NULL)
		return ctl_number(ctl, "--watch", optarg, 1, 86400, interval_s);
	if (optind >= argc || argv[optind][0] < '0' || argv[optind][0] > '9')
		return CTL_OK;
	return ctl_number(ctl, "--watch", argv[optind++], 1, 86400, interval_s);
}

int
ctl_stats(struct ctl *ctl, int argc, char **argv)
{
	struct sample none = { 0 };
	struct sample now;
	int64_t interval_s = 0;
	int64_t count = 0;
	int option;

	while ((option = ctl_next_option(ctl, argc, argv)) != -1) {
		if (option == '?')
			return CTL_USAGE;
		if (option == 'w' && watch_interval(ctl, argc, argv, &interval_s) != CTL_OK)
			return CTL_USAGE;
		if (option == 'n' &&
		    ctl_number(ctl, "--count", optarg, 1, INT32_MAX, &count) != CTL_OK)
			return CTL_USAGE;
	}
	if (optind < argc)
		return ctl_usage_error(ctl, "unexpected argument \"%.40s\"", argv[optind]);
	if (interval_s != 0)
		return watch(ctl, interval_s, count);
	if (count != 0)
		return ctl_usage_error(ctl, "--count: expected --watch with it");
	if (sample_take(ctl, &now) != CTL_OK)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(now.stats);
	else
		print_sample(&none, &now);
	sample_free(&now);
	return CTL_OK;
}
