/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fanin-check [SUITE...]: runs the unit tests, all or those of the named suites. Check's variables hold: CK_FORK=no for a
 * debugger, CK_VERBOSITY=verbose for a line per test.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suites.h"

static const struct {
	const char *name;
	Suite *(*make)(void);
} suites[] = {
#define SUITE_ENTRY(name) { #name, suite_##name },
	FANIN_SUITES(SUITE_ENTRY)
#undef SUITE_ENTRY
};

#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

static bool
is_wanted(const char *name, char **wanted, int n_wanted)
{
	for (int i = 0; i < n_wanted; i++) {
		if (strcmp(wanted[i], name) == 0)
			return true;
	}
	return n_wanted == 0;
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
	SRunner *runner = srunner_create(NULL);
	int failed;

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
		if (is_wanted(suites[i].name, argv + 1, argc - 1))
			srunner_add_suite(runner, suites[i].make());
	}
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
