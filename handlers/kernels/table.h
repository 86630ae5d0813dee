/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables of one instruction set's kernels: kernels.c and sparse.c define them, select.c looks them
 * up. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_TABLE_H
#define FANIN_HANDLERS_KERNELS_TABLE_H

#include "handlers/kernels/kernels.h"
#include "handlers/kernels/sparse.h"
#include "wire/types.h"

/*
 * Data types of this instruction set's tables. Arithmetic on f16 makes a difference for f16 alone:
 * select.c takes all other kernels from AVX-512's tables.
 */
#ifdef __AVX512FP16__
#define KERNELS_OF_F16_ONLY
#define KERNELS_DTYPES(X) X(F16, f16, 9, 2, FLOAT)
#else
#define KERNELS_DTYPES FANIN_WIRE_DTYPES
#endif

/* Indexed by wire codes; NULL: no such kernel. */
struct fanin_kernel_table {
	fanin_kernel_fn combine[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	fanin_finish_fn finish[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	const struct fanin_wide_kernels *wide[FANIN_WIRE_DTYPE_COUNT];
};

/*
 * The tables of sparse.c. `take` is indexed by the binary logarithm of an element's size in bytes.
 */
struct fanin_kernel_sparse_tables {
	const struct fanin_kernel_sparse_combine
		*combine[FANIN_WIRE_DTYPE_COUNT][FANIN_WIRE_OP_COUNT];
	struct fanin_kernel_sparse_take take[4];
	struct fanin_kernel_sparse_table table;
};

extern const struct fanin_kernel_sparse_tables fanin_kernel_sparse_portable;
extern const struct fanin_kernel_sparse_tables fanin_kernel_sparse_avx2;
extern const struct fanin_kernel_sparse_tables fanin_kernel_sparse_avx512;
extern const struct fanin_kernel_sparse_tables fanin_kernel_sparse_avx512fp16;

extern const struct fanin_kernel_table fanin_kernels_portable;
extern const struct fanin_kernel_table fanin_kernels_avx2;
extern const struct fanin_kernel_table fanin_kernels_avx512;
extern const struct fanin_kernel_table fanin_kernels_avx512fp16;

#endif
