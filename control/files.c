/* SPDX-License-Identifier: BSD-3-Clause */
/* See files.h. */
#include "control/files.h"

#include <sys/resource.h>

unsigned int
files_allow(unsigned int wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return wanted;
	if (limit.rlim_cur < wanted) {
		struct rlimit raised = limit;

		raised.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
		if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
			limit = raised;
	}
	return limit.rlim_cur < wanted ? (unsigned int)limit.rlim_cur : wanted;
}
