/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-pktgen: plays the hosts of jobs against a fanin-switch, on any DPDK device. Exit status: 0
 * success, 1 wrong results or a failure, 2 wrong usage, 130 or 143 after SIGINT or SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/pktgen/pktgen.h"

/*
 * Goals of the search: the share of the requested rate that has to be sent, and how close to the
 * true rate it ends.
 */
#define RATE_HELD 0.995
#define SEARCH_RESOLUTION 0.01

struct search {
	struct pktgen *gen;
	struct pktgen_trial best;
	unsigned int trials;
};

static void
on_signal(int number)
{
	pktgen_signal = number;
}

static void
signals_catch(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int
search_try(void *argument, double rate)
{
	struct search *search = argument;
	struct pktgen_trial trial;
	double sent;
	int ret = pktgen_trial(search->gen, rate, &trial);

	if (ret != 0)
		return ret;
	sent = (double)trial.contributions / trial.seconds;
	search->trials++;
	ret = trial.stats.lost == 0 && trial.stats.wrong == 0 && sent >= RATE_HELD * rate;
	fprintf(stderr, "trial %u: %.0f contributions/s asked for, %.0f sent, %lu lost: %s\n",
		search->trials, rate, sent, (unsigned long)trial.stats.lost,
		ret == 1 ? "held" : "not held");
	if (ret == 1 || trial.stats.wrong != 0)
		search->best = trial;
	return trial.stats.wrong != 0 ? -EBADMSG : ret;
}

/* Searches downwards from the rate that the window allows. */
static int
search_run(struct search *search)
{
	struct pktgen *gen = search->gen;
	double most, best = 0;
	int ret = pktgen_trial(gen, 0, &search->best);

	if (ret != 0)
		return ret;
	most = (double)search->best.contributions / search->best.seconds;
	ret = pktgen_search(most, SEARCH_RESOLUTION, search_try, search, &best);
	if (ret == 0 && best == 0)
		return pktgen_fail(gen, -ERANGE,
				   "no rate down to %.0f contributions/s was held without loss",
				   most * SEARCH_RESOLUTION);
	return ret == -EBADMSG ? 0 : ret;
}

static int
run(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	struct search search = { .gen = gen };
	int ret = options->search ? search_run(&search)
				  : pktgen_trial(gen, options->rate, &search.best);

	if (ret != 0)
		return ret;
	pktgen_report(gen, &search.best, search.trials);
	if (search.best.stats.wrong != 0)
		return pktgen_fail(gen, -EBADMSG, "%lu results are wrong",
				   (unsigned long)search.best.stats.wrong);
	return 0;
}

static int
join_only(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	int ret = 0;

	if (options->pcap != NULL)
		ret = pktgen_pcap_write(gen, options->pcap, options->blocks);
	if (ret != 0)
		return ret;
	pktgen_report_joined(gen);
	if (!options->keep)
		pktgen_hold(gen);
	return 0;
}

static int
members_run(struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	int ret = pktgen_join(gen);
	int left = 0;

	if (ret == 0)
		ret = options->join_only ? join_only(gen) : run(gen);
	if (!options->keep)
		left = pktgen_leave(gen);
	return ret != 0 ? ret : left;
}

static void
arguments_free(char **copy)
{
	for (char **argument = copy; *argument != NULL; argument++)
		free(*argument);
	free(copy);
}

/*
 * Copies the command line, which is read with its keys overwritten afterwards: a program that
 * starts again needs them. Returns NULL without memory.
 */
static char **
arguments_copy(int argc, char *const *argv)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	for (int i = 0; copy != NULL && i < argc; i++) {
		copy[i] = strdup(argv[i]);
		if (copy[i] == NULL) {
			arguments_free(copy);
			return NULL;
		}
	}
	return copy;
}

int
main(int argc, char **argv)
{
	struct pktgen_options options;
	static struct pktgen gen;
	int ret, closed;

	gen.argv = arguments_copy(argc, argv);
	if (gen.argv == NULL) {
		fprintf(stderr, "fanin-pktgen: no memory\n");
		return 1;
	}
	pktgen_options_parse(&options, argc, argv);
	gen.options = &options;
	signals_catch();
	ret = pktgen_ports_open(&gen);
	if (ret == 0) {
		ret = pktgen_jobs_open(&gen);
		if (ret == 0)
			ret = members_run(&gen);
		closed = pktgen_jobs_close(&gen);
		ret = ret != 0 ? ret : closed;
	}
	pktgen_ports_close(&gen);
	arguments_free(gen.argv);
	/* With --join-only, the signal that ends the run is no interruption. */
	if (pktgen_signal != 0 && !(options.join_only && ret == 0)) {
		fprintf(stderr, "fanin-pktgen: interrupted\n");
		return 128 + pktgen_signal;
	}
	if (ret != 0)
		fprintf(stderr, "fanin-pktgen: %s\n", gen.error);
	return ret == 0 ? 0 : 1;
}
