/* SPDX-License-Identifier: BSD-3-Clause */
/* See machine.h. */
#include <stdio.h>
#include <string.h>

#include "tools/measure/machine.h"

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

/* Reads one of the kernel's counters of 2 MiB hugepages; 0 if there is none. */
static unsigned long
hugepages_read(const char *name)
{
	char path[128];
	unsigned long pages = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", name);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages;
}

/* Free pages that are reserved for a process count as taken. */
unsigned long
machine_free_hugepages(void)
{
	const unsigned long free = hugepages_read("free_hugepages");
	const unsigned long promised = hugepages_read("resv_hugepages");

	return free > promised ? free - promised : 0;
}
