/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One instruction set's kernels, as kernels.c makes them and select.c looks them up. Internal to
 * handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_TABLE_H
#define FANIN_HANDLERS_KERNELS_TABLE_H

#include "handlers/kernels/kernels.h"
#include "wire/types.h"

/* By wire codes; NULL where there is nothing. */
struct fanin_kernel_table {
	fanin_kernel_fn combine[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	fanin_finish_fn finish[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	const struct fanin_wide_kernels *wide[FANIN_WIRE_DTYPE_COUNT];
};

extern const struct fanin_kernel_table fanin_kernels_portable;
extern const struct fanin_kernel_table fanin_kernels_avx2;
extern const struct fanin_kernel_table fanin_kernels_avx512;
extern const struct fanin_kernel_table fanin_kernels_avx512fp16;

#endif
