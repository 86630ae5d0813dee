/* SPDX-License-Identifier: BSD-3-Clause */
/* See machine.h. */
#include <stdio.h>
#include <string.h>

#include "bench/machine.h"

const char *
machine_cpu(void)
{
	static char line[256];
	FILE *file = fopen("/proc/cpuinfo", "r");
	char *name = NULL;

	while (file != NULL && name == NULL && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, "model name", 10) == 0)
			name = strchr(line, ':');
	}
	if (file != NULL)
		fclose(file);
	if (name == NULL)
		return "unknown CPU";
	name[strcspn(name, "\n")] = '\0';
	return name + strspn(name, ": ");
}

unsigned long
machine_free_hugepages(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned long pages = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages;
}
