/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops that combine two vectors element by element: one for each data type and operator, each
 * compiled for several instruction sets from the same source. The best that the CPU has is chosen
 * once at start.
 *
 * Semantics: integer sums wrap modulo 2^n. f32 min and max follow IEEE 754-2019 minimum and
 * maximum: a NaN in either operand gives the canonical quiet NaN (0x7fc00000) and -0 is below +0,
 * so that the result does not depend on the order of arrival.
 */
#ifndef FANIN_HANDLERS_KERNELS_H
#define FANIN_HANDLERS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/*
 * acc[i] = acc[i] op in[i] for i < count.
 *
 * acc, in: count elements of the kernel's type; any alignment, 64 bytes is fastest. They don't
 * overlap. Thread-safe for distinct acc.
 */
typedef void (*fanin_kernel_fn)(void *acc, const void *in, size_t count);

/* Instruction sets in rising order of preference. */
enum fanin_isa {
	FANIN_ISA_PORTABLE,
	FANIN_ISA_AVX2,
	FANIN_ISA_AVX512,
	FANIN_ISA_COUNT
};

/* The best instruction set of this CPU that this build has kernels for. */
enum fanin_isa fanin_isa_detect(void);

/* "portable", "avx2", "avx512"; "unknown" otherwise. */
const char *fanin_isa_name(enum fanin_isa isa);

/*
 * The kernel for a data type and an operator (wire codes) in one instruction set. isa must be one
 * that the CPU has. Returns NULL if there is no such kernel: the pair is not supported.
 */
fanin_kernel_fn fanin_kernel(enum fanin_isa isa, unsigned int dtype, unsigned int op);

#endif
