/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-check [--times] [--long | --all | SUITE...] or --list [MARK]: runs the tests that show
 * whether everything works. With --long it runs only the suites and net cases that take too long
 * for that; with --all these, too, and the tests that search for unforeseen cases; with names, the
 * suites of these names. A line on standard error reports each suite that has ended; --times adds a
 * list of all suites and net cases, the longest first. --list prints the names of all suites, or of
 * those with a mark (tests/meson.build). Check's variables apply: CK_FORK=no for a debugger,
 * CK_VERBOSITY=verbose for a line per test.
 */
#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/net_cases.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

static const struct {
	const char *name;
	const char *marks; /* words with blanks between them */
	Suite *(*make)(void);
} suites[] = {
#define SUITE_ENTRY(name, marks) { #name, marks, suite_##name },
	FANIN_SUITES(SUITE_ENTRY)
#undef SUITE_ENTRY
};

#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

/* Default timeout of a test: on a busy machine a test also waits for its core. */
#define DEFAULT_TIMEOUT "60"

static bool
has_mark(size_t suite, const char *mark)
{
	const size_t len = strlen(mark);

	for (const char *word = suites[suite].marks; *word != '\0'; word += strspn(word, " ")) {
		const size_t word_len = strcspn(word, " ");

		if (word_len == len && memcmp(word, mark, len) == 0)
			return true;
		word += word_len;
	}
	return false;
}

/* The tests that are run if no suites are named. */
enum which {
	WHICH_DEFAULT,
	WHICH_LONG,
	WHICH_ALL,
};

static bool
is_wanted(size_t suite, enum which which, char **wanted, int n_wanted)
{
	const bool is_net = strcmp(suites[suite].name, "net") == 0;

	for (int i = 0; i < n_wanted; i++) {
		if (strcmp(wanted[i], suites[suite].name) == 0)
			return true;
	}
	if (n_wanted != 0)
		return false;
	switch (which) {
	case WHICH_ALL:
		return true;
	case WHICH_LONG:
		return is_net || has_mark(suite, "long");
	default:
		return !has_mark(suite, "long") && !has_mark(suite, "thorough");
	}
}

static bool
is_known(const char *name)
{
	for (size_t i = 0; i < N_SUITES; i++) {
		if (strcmp(suites[i].name, name) == 0)
			return true;
	}
	return false;
}

struct total {
	int checks, failures, errors;
};

static double
now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/*
 * Runs a suite with a runner of its own, so that its time and failures are printed when it ends.
 * Returns the runner if a test has failed, NULL otherwise.
 */
static SRunner *
run_suite(size_t number, struct total *total)
{
	SRunner *runner = srunner_create(suites[number].make());
	TestResult **failures;
	int failed;

	srunner_run_all(runner, getenv("CK_VERBOSITY") == NULL ? CK_SILENT : CK_ENV);
	failed = srunner_ntests_failed(runner);
	failures = srunner_failures(runner);
	for (int i = 0; i < failed; i++) {
		if (tr_rtype(failures[i]) == CK_ERROR)
			total->errors++;
		else
			total->failures++;
	}
	free(failures);
	total->checks += srunner_ntests_run(runner);
	if (failed != 0)
		return runner;
	srunner_free(runner);
	return NULL;
}

struct run {
	size_t suite;
	double seconds;
};

/*
 * Runs the suites one after the other and notes how long each takes. failed: receives the runner of
 * each suite with a failed test, NULL for the others; the caller frees them.
 */
static void
run_suites(struct run *runs, size_t n, SRunner **failed, struct total *total)
{
	for (size_t i = 0; i < n; i++) {
		const int checks = total->checks;
		const double begin = now();

		failed[i] = run_suite(runs[i].suite, total);
		runs[i].seconds = now() - begin;
		fprintf(stderr, "[%zu/%zu] %s: %d checks, %.1f s%s\n", i + 1, n,
			suites[runs[i].suite].name, total->checks - checks, runs[i].seconds,
			failed[i] == NULL ? "" : ", FAILED");
		if (failed[i] != NULL)
			srunner_print(failed[i], CK_NORMAL);
		fflush(stdout);
	}
}

static int
compare_seconds(const void *a, const void *b)
{
	const struct run *first = a, *second = b;

	return (first->seconds < second->seconds) - (first->seconds > second->seconds);
}

/* Sorts the runs, the longest first. */
static void
print_times(struct run *runs, size_t n)
{
	qsort(runs, n, sizeof(*runs), compare_seconds);
	for (size_t i = 0; i < n; i++)
		printf("%8.1f s  %s\n", runs[i].seconds, suites[runs[i].suite].name);
}

/*
 * Prints the failures once more, and how many checks there were: at the end, where people look and
 * where logs are cut off last.
 */
static void
print_summary(SRunner *const *failed, size_t n, const struct total *total)
{
	const int passed = total->checks - total->failures - total->errors;

	for (size_t i = 0; i < n; i++) {
		if (failed[i] != NULL)
			srunner_print(failed[i], CK_NORMAL);
	}
	printf("%d%%: Checks: %d, Failures: %d, Errors: %d\n",
	       total->checks == 0 ? 0 : 100 * passed / total->checks, total->checks,
	       total->failures, total->errors);
}

static int
list_suites(const char *mark)
{
	for (size_t i = 0; i < N_SUITES; i++) {
		if (mark == NULL || has_mark(i, mark))
			puts(suites[i].name);
	}
	return EXIT_SUCCESS;
}

static int
refuse_name(const char *name)
{
	fprintf(stderr, "fanin-check: no suite \"%s\"; there are:", name);
	for (size_t i = 0; i < N_SUITES; i++)
		fprintf(stderr, " %s", suites[i].name);
	fprintf(stderr, "\n");
	return 2;
}

int
main(int argc, char **argv)
{
	struct run runs[N_SUITES];
	SRunner *failed[N_SUITES] = { NULL };
	size_t n = 0;
	struct total total = { 0 };
	enum which which = WHICH_DEFAULT;
	bool times;

	if ((argc == 2 || argc == 3) && strcmp(argv[1], "--list") == 0)
		return list_suites(argv[2]);
	times = argc > 1 && strcmp(argv[1], "--times") == 0;
	argc -= times;
	argv += times;
	setenv("CK_DEFAULT_TIMEOUT", DEFAULT_TIMEOUT, 0);
	if (argc == 2 && strcmp(argv[1], "--all") == 0) {
		which = WHICH_ALL;
		setenv(NET_CASES_LISTED, "--all", 1);
		argc = 1;
	} else if (argc == 2 && strcmp(argv[1], "--long") == 0) {
		which = WHICH_LONG;
		setenv(NET_CASES_LISTED, "long", 1);
		argc = 1;
	}
	for (int i = 1; i < argc; i++) {
		if (!is_known(argv[i]))
			return refuse_name(argv[i]);
	}
	for (size_t i = 0; i < N_SUITES; i++) {
		if (!is_wanted(i, which, argv + 1, argc - 1))
			continue;
		runs[n++].suite = i;
		/* Net tests wait most of the time: they run at the same time as the others. */
		if (strcmp(suites[i].name, "net") == 0)
			net_cases_start();
	}
#ifndef __SANITIZE_THREAD__ /* it allows no threads after a fork of a process with threads */
	/* The EAL is started once for all tests: this takes longer than most of them. */
	if (ring_switch_eal_start() != 0) {
		fprintf(stderr, "fanin-check: cannot start the EAL\n");
		return 2;
	}
#endif
	run_suites(runs, n, failed, &total);
	if (times) {
		net_cases_print_times();
		print_times(runs, n);
	}
	print_summary(failed, n, &total);
	for (size_t i = 0; i < n; i++) {
		if (failed[i] != NULL)
			srunner_free(failed[i]);
	}
	return total.failures + total.errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
