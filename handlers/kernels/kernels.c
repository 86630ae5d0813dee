/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All kernels of one instruction set. This file is compiled once for each instruction set, and then
 * defines the table that FANIN_KERNEL_TABLE names. Only select.c refers to the tables.
 *
 * The table is made from the lists in wire/types.h: for each operator OP that is defined on a type
 * T, kernel_T_COMBINE must exist, and finish_T_avg for each type.
 */
#include "handlers/kernels/table.h"

#ifdef KERNELS_OF_F16_ONLY
/* f16.h brings more than the kernels of f16. */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#include "handlers/kernels/bf16.h"
#include "handlers/kernels/f16.h"
#include "handlers/kernels/float.h"
#include "handlers/kernels/integer.h"

#define KERNEL(OP, combine, dtype) [FANIN_WIRE_##OP] = kernel_##dtype##_##combine,
#define NO_KERNEL(OP, combine, dtype)

/* Operators on KINDS of types, and a type of one KIND. */
#define ANY_ON_INTEGER KERNEL
#define ANY_ON_FLOAT KERNEL
#define INTEGER_ON_INTEGER KERNEL
#define INTEGER_ON_FLOAT NO_KERNEL

#define OPERATOR(OP, op, code, KINDS, combine, dtype, KIND) KINDS##_ON_##KIND(OP, combine, dtype)
#define COMBINE(DTYPE, dtype, code, size, KIND)                                                    \
	[FANIN_WIRE_##DTYPE] = { FANIN_WIRE_OPS(OPERATOR, dtype, KIND) },
#define FINISH(DTYPE, dtype, code, size, KIND)                                                     \
	[FANIN_WIRE_##DTYPE] = { [FANIN_WIRE_AVG] = finish_##dtype##_avg },

static const struct fanin_wide_kernels wide_f16 = {
	.widen = wide_f16_widen,
	.accumulate = wide_f16_accumulate,
	.narrow = wide_f16_narrow,
};

#ifndef KERNELS_OF_F16_ONLY
static const struct fanin_wide_kernels wide_bf16 = {
	.widen = wide_bf16_widen,
	.accumulate = wide_bf16_accumulate,
	.narrow = wide_bf16_narrow,
};
#endif

const struct fanin_kernel_table FANIN_KERNEL_TABLE = {
	.combine = { KERNELS_DTYPES(COMBINE) },
	.finish = { KERNELS_DTYPES(FINISH) },
	.wide = {
		[FANIN_WIRE_F16] = &wide_f16,
#ifndef KERNELS_OF_F16_ONLY
		[FANIN_WIRE_BF16] = &wide_bf16,
#endif
	},
};
