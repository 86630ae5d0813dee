/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Custom operators (Flare's F1): code that a user compiles into the switch to reduce data types of
 * their own. Each is a file in handlers/operators/ that ends with FANIN_OPERATOR_REGISTER;
 * docs/custom-operators.md explains one. All dense handlers run them; a block's operator is looked
 * up when the block begins.
 */
#ifndef FANIN_HANDLERS_OPERATOR_H
#define FANIN_HANDLERS_OPERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/kernels/kernels.h"
#include "wire/types.h"

struct fanin_operator {
	const char *name;       /* shown by faninctl; without blanks */
	const char *dtype_name; /* likewise; for a built-in type its own name */

	uint8_t dtype; /* FANIN_WIRE_OPAQUE + size of an element, or a built-in type's code */
	uint8_t op;    /* FANIN_WIRE_CUSTOM to FANIN_WIRE_CUSTOM_LAST; unique */

	/*
	 * True if the order of operands matters, as in a product of matrices. Such an operator runs
	 * only with handlers that combine in the order of the ranks. All operators must be
	 * associative.
	 */
	bool ordered;

	/*
	 * The identity element: combined with any x from either side, it gives x. It stands for an
	 * absent element.
	 */
	const void *identity;

	/*
	 * As in kernels.h. Any thread may call it, on elements at any address and with any content.
	 */
	fanin_kernel_fn combine;
};

/*
 * Returns the reason why an operator can't be registered, such as a code that is taken, as a static
 * string; or NULL if it can. Thread-safe after start-up.
 */
const char *fanin_operator_problem(const struct fanin_operator *candidate);

/*
 * Adds an operator to the registry. Called by FANIN_OPERATOR_REGISTER before main, single-threaded.
 * If there is a problem, prints it and ends the process.
 */
void fanin_operator_register(const struct fanin_operator *registered);

/*
 * Returns the operator with a code, or NULL. Packets that name it must have its dtype, too.
 * Thread-safe after start-up.
 */
const struct fanin_operator *fanin_operator_find(unsigned int op);

#define FANIN_OPERATOR_REGISTER(custom)                                                            \
	static void __attribute__((constructor)) register_##custom(void)                           \
	{                                                                                          \
		fanin_operator_register(&(custom));                                                \
	}

#endif
