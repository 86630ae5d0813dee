/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all element types' kernels are made of. A loop stands for the vectoriser: what it does to an
 * element must be free of branches. Say `objdump -d` and look for vector registers after adding
 * one. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_LOOP_H
#define FANIN_HANDLERS_KERNELS_LOOP_H

#include <stddef.h>
#include <stdint.h>

/* Elements at any address: payloads in foreign buffers need not be aligned. */
#define ANY_ADDRESS __attribute__((aligned(1), may_alias))

/*
 * kernel_NAME: acc[i] = x op y, where the expression names the elements x and y. It is a function
 * first, because GCC finds minima and the like only as long as a condition stands alone.
 */
#define COMBINE_LOOP(name, type, expression)                                                       \
	static inline type combine_##name(type x, type y)                                          \
	{                                                                                          \
		return (type)(expression);                                                         \
	}                                                                                          \
	static void kernel_##name(void *restrict acc, const void *restrict in, size_t count)       \
	{                                                                                          \
		typedef type element ANY_ADDRESS;                                                  \
		element *a = acc;                                                                  \
		const element *b = in;                                                             \
                                                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = combine_##name(a[i], b[i]);                                         \
	}

/*
 * finish_NAME: acc[i] = quotient, where the expression names the element x and n, the contributions
 * as n_type.
 */
#define FINISH_LOOP(name, type, n_type, expression)                                                \
	static void finish_##name(void *acc, uint32_t contributions, size_t count)                 \
	{                                                                                          \
		typedef type element ANY_ADDRESS;                                                  \
		element *a = acc;                                                                  \
		n_type n = (n_type)contributions;                                                  \
                                                                                                   \
		for (size_t i = 0; i < count; i++) {                                               \
			type x = a[i];                                                             \
                                                                                                   \
			a[i] = (type)(expression);                                                 \
		}                                                                                  \
	}

#endif
