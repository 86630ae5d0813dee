/* SPDX-License-Identifier: BSD-3-Clause */
/* See schedstat.h. */
#include "control/schedstat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

int
schedstat_read(pid_t thread, struct schedstat *stat)
{
	struct schedstat found;
	char path[64];
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "/proc/self/task/%d/schedstat", (int)thread);
	file = fopen(path, "re");
	if (file == NULL)
		return -errno;
	n = fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &found.run_ns, &found.wait_ns,
		   &found.slices);
	fclose(file);
	/* A kernel that does not count reports 0 0 0; a thread that has run has had a slice. */
	if (n != 3 || found.slices == 0)
		return -ENODATA;
	*stat = found;
	return 0;
}
