/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See older_caller.h. Compiled with tests/abi/older/fanin/fanin.h, which is as it was before its
 * structs ended with reserved bytes; of headers before that, whose structs had the padding that
 * later fields were put into, there are the structs.
 */
#include "tests/abi/older_caller.h"

#include <assert.h>
#include <fanin/fanin.h>
#include <string.h>

/* clang-format off */
#define JOIN_FIELDS(X) \
	X(sz) X(switch_address) X(interface) X(key) X(job) X(rank) X(size) X(udp_port) X(window) \
	X(join_timeout_ms) X(timeout_ms) X(no_stagger) X(memif_socket) X(address) X(memif_id) \
	X(recover) X(job_name) X(manager) X(token) X(handler) X(fixed_rank) X(reproducible) \
	X(accumulate_f32) X(no_fallback) X(trees) X(wait_limit_ms) X(authenticate)

#define REPORT_FIELDS(X) \
	X(sz) X(transport) X(transport_reason) X(handler) X(interface) X(in_network) X(window) \
	X(payload_bytes) X(blocks) X(bytes_reduced) X(frames_sent) X(frames_received) \
	X(retransmits) X(duplicates) X(invalid) X(accumulates_f32) X(spurious) X(ring_drops) \
	X(resumed) X(rank) X(size) X(mode) X(mode_reason) X(manager) X(job_name) \
	X(manager_problem) X(manager_reconnects) X(trees) X(trees_asked) X(trees_reason) \
	X(queries) X(late) X(authenticated)
/* clang-format on */

#define JOIN_FIELD(name)                                                                           \
	{ #name, offsetof(struct fanin_join_opts, name),                                           \
	  sizeof(((struct fanin_join_opts *)NULL)->name) },
const struct older_field older_join_fields[] = { JOIN_FIELDS(JOIN_FIELD){ NULL, 0, 0 } };

#define REPORT_FIELD(name)                                                                         \
	{ #name, offsetof(struct fanin_report, name), sizeof(((struct fanin_report *)NULL)->name) },
const struct older_field older_report_fields[] = { REPORT_FIELDS(REPORT_FIELD){ NULL, 0, 0 } };
const size_t older_report_size = sizeof(struct fanin_report);

struct join_opts_without_recover {
	size_t sz;
	const char *switch_address;
	const char *interface;
	uint64_t key;
	uint32_t job;
	uint16_t rank;
	uint16_t size;
	uint16_t udp_port;
	uint16_t window;
	uint32_t join_timeout_ms;
	uint32_t timeout_ms;
	bool no_stagger;
	const char *memif_socket;
	const char *address;
	uint32_t memif_id;
};

struct join_opts_without_trees {
	size_t sz;
	const char *switch_address;
	const char *interface;
	uint64_t key;
	uint32_t job;
	uint16_t rank;
	uint16_t size;
	uint16_t udp_port;
	uint16_t window;
	uint32_t join_timeout_ms;
	uint32_t timeout_ms;
	bool no_stagger;
	const char *memif_socket;
	const char *address;
	uint32_t memif_id;
	bool recover;
	const char *job_name;
	const char *manager;
	const char *token;
	const char *handler;
	bool fixed_rank;
	bool reproducible;
	bool accumulate_f32;
	bool no_fallback;
};

static_assert(sizeof(struct join_opts_without_recover) == 80, "as it was on 64 bits");
static_assert(sizeof(struct join_opts_without_trees) == 120, "as it was on 64 bits");
static_assert(sizeof(struct fanin_join_opts) == 136, "as it was on 64 bits");

int
older_join(fanin_ctx *ctx)
{
	struct fanin_join_opts options;
	fanin_comm *comm = NULL;

	memset(&options, 0xff, sizeof(options));
	options.sz = sizeof(options);
	options.switch_address = NULL;
	options.interface = NULL;
	options.key = 1;
	options.job = 1;
	options.rank = 0;
	options.size = 2;
	options.udp_port = 0;
	options.window = 0;
	options.join_timeout_ms = 0;
	options.timeout_ms = 0;
	options.no_stagger = false;
	options.memif_socket = NULL;
	options.address = NULL;
	options.memif_id = 0;
	options.recover = false;
	options.job_name = NULL;
	options.manager = NULL;
	options.token = NULL;
	options.handler = NULL;
	options.fixed_rank = false;
	options.reproducible = false;
	options.accumulate_f32 = false;
	options.no_fallback = false;
	options.trees = 0;
	options.wait_limit_ms = 0;
	options.authenticate = false;
	return fanin_join(ctx, &options, &comm);
}

int
older_join_without_trees(fanin_ctx *ctx)
{
	struct join_opts_without_trees options;
	fanin_comm *comm = NULL;

	memset(&options, 0xff, sizeof(options));
	options.sz = sizeof(options);
	options.switch_address = NULL;
	options.interface = NULL;
	options.key = 1;
	options.job = 1;
	options.rank = 0;
	options.size = 2;
	options.udp_port = 0;
	options.window = 0;
	options.join_timeout_ms = 0;
	options.timeout_ms = 0;
	options.no_stagger = false;
	options.memif_socket = NULL;
	options.address = NULL;
	options.memif_id = 0;
	options.recover = false;
	options.job_name = NULL;
	options.manager = NULL;
	options.token = NULL;
	options.handler = NULL;
	options.fixed_rank = false;
	options.reproducible = false;
	options.accumulate_f32 = false;
	options.no_fallback = false;
	return fanin_join(ctx, (const void *)&options, &comm);
}

int
older_join_without_recover(fanin_ctx *ctx)
{
	struct join_opts_without_recover options;
	fanin_comm *comm = NULL;

	memset(&options, 0xff, sizeof(options));
	options.sz = sizeof(options);
	options.switch_address = "10.0.0.1";
	options.interface = NULL;
	options.key = 1;
	options.job = 1;
	options.rank = 0;
	options.size = 2;
	options.udp_port = 0;
	options.window = 0;
	options.join_timeout_ms = 0;
	options.timeout_ms = 0;
	options.no_stagger = false;
	options.memif_socket = "/nonexistent/memif.sock";
	options.address = NULL;
	options.memif_id = 0;
	return fanin_join(ctx, (const void *)&options, &comm);
}
