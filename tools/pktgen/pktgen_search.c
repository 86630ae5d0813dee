/* SPDX-License-Identifier: BSD-3-Clause */
/* The search of RFC 2544, section 26.1, for the highest rate without loss. See pktgen.h. */
#include "tools/pktgen/pktgen.h"

int
pktgen_search(double most, double resolution, int (*try)(void *argument, double rate),
	      void *argument, double *best)
{
	double held = 0;
	double not_held = most;
	int ret = try(argument, most);

	if (ret < 0)
		return ret;
	if (ret == 1)
		held = most;
	while (held < most && not_held - held > resolution * most) {
		const double rate = (held + not_held) / 2;

		ret = try(argument, rate);
		if (ret < 0)
			return ret;
		if (ret == 1)
			held = rate;
		else
			not_held = rate;
	}
	*best = held;
	return 0;
}
