/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that were compiled with older headers of the host library. Whatever such a header does
 * not name in a struct, this leaves undefined: all bits set, as they may be in a struct on the
 * stack whose fields were assigned one by one.
 */
#ifndef FANIN_TESTS_ABI_OLDER_CALLER_H
#define FANIN_TESTS_ABI_OLDER_CALLER_H

#include <stddef.h>

struct fanin_ctx;

struct older_field {
	const char *name;
	size_t offset;
	size_t size;
};

/* Of the header in tests/abi/older, ended by one without a name. */
extern const struct older_field older_join_fields[];
extern const struct older_field older_report_fields[];
extern const size_t older_report_size;

/* Joins a job without an address of a switch. Returns fanin_join's status. */
int older_join(struct fanin_ctx *ctx);

/*
 * The same compiled with the header before `trees` was in its options, and with that before
 * `recover` was, for memif.
 */
int older_join_without_trees(struct fanin_ctx *ctx);
int older_join_without_recover(struct fanin_ctx *ctx);

#endif
