/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-check [--all | --list [MARK] | SUITE...]: runs the tests that say whether everything works,
 * with --all those too that search for unforeseen cases, or those of the named suites; --list
 * prints the names of all suites, or of those with a mark (tests/meson.build). Check's variables
 * hold: CK_FORK=no for a debugger, CK_VERBOSITY=verbose for a line per test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/*
 * A test without a limit of its own fails after so long: on a busy machine it waits for its core,
 * too.
 */
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

static bool
is_wanted(size_t suite, bool all, char **wanted, int n_wanted)
{
	for (int i = 0; i < n_wanted; i++) {
		if (strcmp(wanted[i], suites[suite].name) == 0)
			return true;
	}
	return n_wanted == 0 && (all || !has_mark(suite, "thorough"));
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

int
main(int argc, char **argv)
{
	const bool all = argc == 2 && strcmp(argv[1], "--all") == 0;
	SRunner *runner;
	int failed;

	if ((argc == 2 || argc == 3) && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < N_SUITES; i++) {
			if (argc == 2 || has_mark(i, argv[2]))
				puts(suites[i].name);
		}
		return EXIT_SUCCESS;
	}
	runner = srunner_create(NULL);
	setenv("CK_DEFAULT_TIMEOUT", DEFAULT_TIMEOUT, 0);
	if (all) {
		setenv(NET_CASES_ALL, "1", 1);
		argc = 1;
	}
	for (int i = 1; i < argc; i++) {
		if (is_known(argv[i]))
			continue;
		fprintf(stderr, "fanin-check: no suite \"%s\"; there are:", argv[i]);
		for (size_t j = 0; j < N_SUITES; j++)
			fprintf(stderr, " %s", suites[j].name);
		fprintf(stderr, "\n");
		srunner_free(runner);
		return 2;
	}

	for (size_t i = 0; i < N_SUITES; i++) {
		if (!is_wanted(i, all, argv + 1, argc - 1))
			continue;
		srunner_add_suite(runner, suites[i].make());
		/* Net tests wait most of the time: they run beside the others. */
		if (strcmp(suites[i].name, "net") == 0)
			net_cases_start();
	}
#ifndef __SANITIZE_THREAD__ /* it allows no threads behind a fork of a process with threads */
	/* Once for all tests: it takes longer than most of them. */
	if (ring_switch_eal_start() != 0) {
		fprintf(stderr, "fanin-check: cannot start the EAL\n");
		srunner_free(runner);
		return 2;
	}
#endif
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
