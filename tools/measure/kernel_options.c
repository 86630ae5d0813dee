/* SPDX-License-Identifier: BSD-3-Clause */
/* Names in the options of benchmarks of kernels and handlers, see options.h. */
#include <string.h>

#include "tools/measure/options.h"
#include "handlers/kernels/kernels.h"
#include "wire/types.h"

int
bench_isa_find(const char *name)
{
	for (int isa = 0; isa <= (int)fanin_isa_detect(); isa++) {
		if (strcmp(name, fanin_isa_name((enum fanin_isa)isa)) == 0)
			return isa;
	}
	return -1;
}

int
bench_dtype_find(const char *name)
{
	const unsigned int dtype = fanin_dtype_from_name(name);

	return dtype == FANIN_WIRE_DTYPE_NONE ? -1 : (int)dtype;
}

int
bench_op_find(const char *name)
{
	const unsigned int op = fanin_op_from_name(name);

	return op == FANIN_WIRE_OP_NONE ? -1 : (int)op;
}
