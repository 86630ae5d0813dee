/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that need no context: names, sizes, the version, and which operators are supported. The
 * public codes are those of the wire; assertions check this.
 */
#include <assert.h>

#include "fanin/fanin.h"
#include "wire/types.h"

static_assert((int)FANIN_I8 == FANIN_WIRE_I8 && (int)FANIN_F64 == FANIN_WIRE_F64,
	      "data type codes");
static_assert((int)FANIN_F64 + 1 == FANIN_WIRE_DTYPE_COUNT, "data types in fanin.h");
static_assert((int)FANIN_SUM == FANIN_WIRE_SUM && (int)FANIN_AVG == FANIN_WIRE_AVG,
	      "operator codes");
static_assert((int)FANIN_AVG + 1 == FANIN_WIRE_OP_COUNT, "operators in fanin.h");

static_assert((int)FANIN_OPAQUE_BASE == FANIN_WIRE_OPAQUE, "opaque data types");
static_assert((int)FANIN_CUSTOM_FIRST == FANIN_WIRE_CUSTOM &&
		      (int)FANIN_CUSTOM_LAST == FANIN_WIRE_CUSTOM_LAST,
	      "custom operators");

/* Switches of this version have a kernel for every defined pair. */
bool
fanin_supports(enum fanin_dtype dtype, enum fanin_op op)
{
	return fanin_operation_defined((unsigned int)dtype, (unsigned int)op);
}

const char *
fanin_dtype_name_of(enum fanin_dtype dtype)
{
	return fanin_dtype_name((unsigned int)dtype);
}

const char *
fanin_op_name_of(enum fanin_op op)
{
	return fanin_op_name((unsigned int)op);
}

size_t
fanin_dtype_size_of(enum fanin_dtype dtype)
{
	return fanin_dtype_size((unsigned int)dtype);
}

const char *
fanin_version(void)
{
	return FANIN_VERSION;
}
