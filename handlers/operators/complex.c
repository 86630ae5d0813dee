/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The product of complex numbers, each of two f32: real, imaginary. An example of a custom
 * operator, see docs/custom-operators.md. Every operation of the formula is rounded; infinities get
 * no special treatment, as with -fcx-limited-range.
 */
#include "handlers/operator.h"

/* Packed, as in payloads, which may be at any address. */
struct complex_f32 {
	float re;
	float im;
} __attribute__((packed, may_alias));

static void
combine(void *restrict acc, const void *restrict in, size_t count)
{
	struct complex_f32 *a = acc;
	const struct complex_f32 *b = in;

	for (size_t i = 0; i < count; i++) {
		struct complex_f32 x = a[i];
		struct complex_f32 y = b[i];

		a[i].re = x.re * y.re - x.im * y.im;
		a[i].im = x.re * y.im + x.im * y.re;
	}
}

static const struct complex_f32 one = { .re = 1, .im = 0 };

static const struct fanin_operator complex_prod = {
	.name = "prod",
	.dtype_name = "complex-f32",
	.dtype = FANIN_WIRE_OPAQUE + sizeof(struct complex_f32),
	.op = 128,
	.identity = &one,
	.combine = combine,
};

FANIN_OPERATOR_REGISTER(complex_prod)
