/* SPDX-License-Identifier: BSD-3-Clause */
/* See process.h. */
#include "control/process.h"

#include <stdio.h>
#include <sys/prctl.h>

uint64_t
process_status_bytes(const char *format)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long kilobytes = 0;
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, format, &kilobytes) == 1)
			break;
	}
	if (file != NULL)
		fclose(file);
	return (uint64_t)kilobytes * 1024;
}

void
process_hide_memory(void)
{
	/* Fails only for values that the kernel does not know. */
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
