/* SPDX-License-Identifier: BSD-3-Clause */
/* See inflow.h. */
#include "inflow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Returns the number below a name; 0 if there is none. names, numbers: two lines of words in the
 * same order.
 */
static uint64_t
number_under(char *names, char *numbers, const char *name)
{
	char *more_names, *more_numbers;
	const char *found = strtok_r(names, " \n", &more_names);
	const char *number = strtok_r(numbers, " \n", &more_numbers);

	while (found != NULL && number != NULL) {
		if (strcmp(found, name) == 0)
			return strtoull(number, NULL, 10);
		found = strtok_r(NULL, " \n", &more_names);
		number = strtok_r(NULL, " \n", &more_numbers);
	}
	return 0;
}

void
fanin_inflow_read(struct fanin_inflow *inflow)
{
	FILE *file = fopen("/proc/thread-self/net/netstat", "re");
	char *names = NULL, *numbers = NULL;
	size_t names_size = 0, numbers_size = 0;

	*inflow = (struct fanin_inflow){ 0 };
	if (file == NULL)
		return;
	while (getline(&names, &names_size, file) > 0 &&
	       getline(&numbers, &numbers_size, file) > 0) {
		if (strncmp(names, "TcpExt:", strlen("TcpExt:")) == 0)
			inflow->sources_refused = number_under(names, numbers,
							       "IPReversePathFilter");
		else if (strncmp(names, "IpExt:", strlen("IpExt:")) == 0)
			inflow->multicasts = number_under(names, numbers, "InMcastPkts");
	}
	free(names);
	free(numbers);
	fclose(file);
}
