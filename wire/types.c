/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of data types and operators, generated from the tables in types.h. Thread-safe. */
#include "wire/types.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static_assert((unsigned int)FANIN_WIRE_DTYPE_COUNT <= FANIN_WIRE_OPAQUE &&
		      (unsigned int)FANIN_WIRE_OP_COUNT <= FANIN_WIRE_COPY,
	      "codes of copies and of custom operators");

/* Indexed by wire code; NONE has no name. */
static const char *const dtype_names[FANIN_WIRE_DTYPE_COUNT] = {
#define DTYPE_NAME(name, text, code, size, kind) [code] = #text,
	FANIN_WIRE_DTYPES(DTYPE_NAME)
#undef DTYPE_NAME
};

static const char *const op_names[FANIN_WIRE_OP_COUNT] = {
#define OP_NAME(name, text, code, kind, combine) [code] = #text,
	FANIN_WIRE_OPS(OP_NAME)
#undef OP_NAME
};

static const char *
name_of(const char *const *names, unsigned int n_names, unsigned int code)
{
	return code < n_names && names[code] != NULL ? names[code] : "unknown";
}

static unsigned int
code_of(const char *const *names, unsigned int n_names, const char *name)
{
	for (unsigned int code = 0; code < n_names; code++) {
		if (names[code] != NULL && strcmp(names[code], name) == 0)
			return code;
	}
	return 0;
}

const char *
fanin_dtype_name(unsigned int dtype)
{
	if (fanin_dtype_is_opaque(dtype))
		return "opaque";
	return name_of(dtype_names, FANIN_WIRE_DTYPE_COUNT, dtype);
}

const char *
fanin_op_name(unsigned int op)
{
	if (fanin_op_is_custom(op))
		return "custom";
	if (fanin_op_is_copy(op))
		return "copy";
	return name_of(op_names, FANIN_WIRE_OP_COUNT, op);
}

unsigned int
fanin_dtype_from_name(const char *name)
{
	return code_of(dtype_names, FANIN_WIRE_DTYPE_COUNT, name);
}

unsigned int
fanin_op_from_name(const char *name)
{
	return code_of(op_names, FANIN_WIRE_OP_COUNT, name);
}
