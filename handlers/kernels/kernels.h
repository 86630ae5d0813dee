/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loops that combine two vectors element by element: one for each data type and operator, each
 * compiled for several instruction sets from the same source. The best instruction set of the CPU
 * is chosen once at start. docs/operators.md has the full semantics; every instruction set gives
 * the same bits, except for the payload of a NaN from a sum, a product or an average.
 */
#ifndef FANIN_HANDLERS_KERNELS_H
#define FANIN_HANDLERS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/*
 * acc[i] = acc[i] op in[i] for i < count.
 *
 * acc, in: count elements of the kernel's type; any alignment, 64 bytes is fastest. They must not
 * overlap. Thread-safe for distinct acc.
 */
typedef void (*fanin_kernel_fn)(void *acc, const void *in, size_t count);

/*
 * Turns the combination of all contributions into the result, once per block.
 *
 * acc: as above. contributions: number of contributions in acc, at least 1.
 */
typedef void (*fanin_finish_fn)(void *acc, uint32_t contributions, size_t count);

/*
 * Kernels that sum 16-bit floating-point contributions in f32, rounded only once. acc holds count
 * f32; all vectors may be at any address, as above. For widen and narrow, both vectors may be at
 * the same address; otherwise no two vectors may overlap.
 */
struct fanin_wide_kernels {
	/* acc[i] = in[i], which is exact */
	void (*widen)(void *acc, const void *in, size_t count);
	/* acc[i] += in[i] */
	fanin_kernel_fn accumulate;
	/* out[i] = acc[i], rounded to nearest even */
	void (*narrow)(void *out, const void *acc, size_t count);
};

/* Instruction sets in rising order of preference. */
enum fanin_isa {
	FANIN_ISA_PORTABLE,
	FANIN_ISA_AVX2,       /* with F16C */
	FANIN_ISA_AVX512,     /* F, BW, DQ and VL */
	FANIN_ISA_AVX512FP16, /* with arithmetic on f16 */
	FANIN_ISA_COUNT
};

/* Returns the best instruction set of this CPU for which this build has kernels. */
enum fanin_isa fanin_isa_detect(void);

/* Returns "portable", "avx2", "avx512", "avx512fp16", or "unknown" for other values. */
const char *fanin_isa_name(enum fanin_isa isa);

/*
 * Returns the kernel for a data type and an operator (wire codes) in one instruction set, which the
 * CPU must have; NULL if the pair is not supported. Thread-safe, as are the two functions below.
 */
fanin_kernel_fn fanin_kernel(enum fanin_isa isa, unsigned int dtype, unsigned int op);

/*
 * Returns the kernel to run when the last contribution is in, the division of an average; NULL for
 * all other operators.
 */
fanin_finish_fn fanin_kernel_finish(enum fanin_isa isa, unsigned int dtype, unsigned int op);

/* Returns the kernels that sum a data type in f32; NULL for all types but f16 and bf16. */
const struct fanin_wide_kernels *fanin_kernel_wide(enum fanin_isa isa, unsigned int dtype);

#endif
