/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The custom operators of this build, by code. Operators register themselves before main; from then
 * on the table is constant and any thread may read it.
 */
#include "handlers/operator.h"

#include <stdio.h>
#include <stdlib.h>

static const struct fanin_operator *operators[FANIN_WIRE_CUSTOM_LAST - FANIN_WIRE_CUSTOM + 1];

const char *
fanin_operator_problem(const struct fanin_operator *candidate)
{
	if (candidate->name == NULL || candidate->dtype_name == NULL ||
	    candidate->identity == NULL || candidate->combine == NULL)
		return "name, dtype_name, identity or combine is missing";
	if (!fanin_op_is_custom(candidate->op))
		return "the code is not one from 128 to 255";
	if (fanin_dtype_size(candidate->dtype) == 0)
		return "the data type is neither a built-in one nor opaque of 1 to 64 bytes";
	if (operators[candidate->op - FANIN_WIRE_CUSTOM] != NULL)
		return "the code is another operator's";
	return NULL;
}

void
fanin_operator_register(const struct fanin_operator *registered)
{
	const char *problem = fanin_operator_problem(registered);

	if (problem != NULL) {
		fprintf(stderr, "operator %s, code %u: %s\n",
			registered->name == NULL ? "without a name" : registered->name,
			registered->op, problem);
		abort();
	}
	operators[registered->op - FANIN_WIRE_CUSTOM] = registered;
}

const struct fanin_operator *
fanin_operator_find(unsigned int op)
{
	return fanin_op_is_custom(op) ? operators[op - FANIN_WIRE_CUSTOM] : NULL;
}
