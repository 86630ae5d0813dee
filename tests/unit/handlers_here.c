/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/handlers_here.h"

#include <stddef.h>

#include "handlers/handler.h"
#include "tests/unit/suites.h"

int
handlers_here(const char **handlers, int n)
{
	const bool is_whole = sizeof(FANIN_WITHOUT) == 1;
	int kept = 0;

	for (int i = 0; i < n; i++) {
		if (is_whole || fanin_handler_find(handlers[i]) != NULL)
			handlers[kept++] = handlers[i];
	}
	return kept;
}
