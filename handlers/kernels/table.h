/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels that exist: one line is one loop, for every instruction set. Internal to handlers/kernels.
 *
 * X(DTYPE, OP, element type, combine): combine(a, b) is a function or macro of kernels.c that must be free of branches, or
 * the compiler doesn't vectorise the loop. Say `objdump -d` and look for zmm registers after adding one.
 */
#ifndef FANIN_HANDLERS_KERNELS_TABLE_H
#define FANIN_HANDLERS_KERNELS_TABLE_H

#include "handlers/kernels/kernels.h"
#include "wire/types.h"

#define FANIN_KERNELS(X)                                                                           \
	X(I32, SUM, int32_t, i32_sum)                                                              \
	X(I32, MIN, int32_t, i32_min)                                                              \
	X(I32, MAX, int32_t, i32_max)                                                              \
	X(F32, SUM, float, f32_sum)                                                                \
	X(F32, MIN, float, f32_min)                                                                \
	X(F32, MAX, float, f32_max)

struct fanin_kernel_table {
	fanin_kernel_fn kernels[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
};

extern const struct fanin_kernel_table fanin_kernels_portable;
#ifdef FANIN_KERNELS_X86
extern const struct fanin_kernel_table fanin_kernels_avx2;
extern const struct fanin_kernel_table fanin_kernels_avx512;
#endif

#endif
