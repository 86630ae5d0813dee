/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The suites of fanin-check. A new one is a line here, a line in tests/meson.build and a file test_NAME.c that defines
 * `Suite *suite_NAME(void)`.
 */
#ifndef FANIN_TESTS_UNIT_SUITES_H
#define FANIN_TESTS_UNIT_SUITES_H

#include <check.h>

#define FANIN_SUITES(X)                                                                            \
	X(wire)                                                                                    \
	X(abi)                                                                                     \
	X(tag)                                                                                     \
	X(kernels)                                                                                 \
	X(halves)                                                                                  \
	X(operators)                                                                               \
	X(wide)                                                                                    \
	X(custom)                                                                                  \
	X(complex)                                                                                 \
	X(perf_data)                                                                               \
	X(perf_options)                                                                            \
	X(handler)                                                                                 \
	X(faults)                                                                                  \
	X(concurrent)                                                                              \
	X(tree)                                                                                    \
	X(peek)                                                                                    \
	X(cc)                                                                                      \
	X(answers)                                                                                 \
	X(empty)                                                                                   \
	X(pipeline)                                                                                \
	X(packet_port)                                                                             \
	X(neighbors)                                                                               \
	X(routing)                                                                                 \
	X(sources)                                                                                 \
	X(tagged_jobs)                                                                             \
	X(jobs)                                                                                    \
	X(levels)                                                                                  \
	X(probe)                                                                                   \
	X(probe_levels)                                                                            \
	X(isolation)                                                                               \
	X(pktgen)                                                                                  \
	X(core_batches)                                                                            \
	X(config)                                                                                  \
	X(control)                                                                                 \
	X(metrics)                                                                                 \
	X(control_tcp)                                                                             \
	X(manager_tree)                                                                            \
	X(manager_peer)                                                                            \
	X(manager_store)                                                                           \
	X(manager_waits)                                                                           \
	X(manager_discovery)                                                                       \
	X(manager_jobs)                                                                            \
	X(manager_room)                                                                            \
	X(manager_tags)                                                                            \
	X(manager_chance)                                                                          \
	X(join)                                                                                    \
	X(engine)                                                                                  \
	X(pauses)                                                                                  \
	X(engine_tags)                                                                             \
	X(recovery)                                                                                \
	X(split)                                                                                   \
	X(memif)                                                                                   \
	X(memif_protocol)                                                                          \
	X(ring)                                                                                    \
	X(ring_failures)                                                                           \
	X(by_name)                                                                                 \
	X(sweep)                                                                                   \
	X(collectives)                                                                             \
	X(model)                                                                                   \
	X(net)

#define SUITE_DECLARATION(name) Suite *suite_##name(void);
FANIN_SUITES(SUITE_DECLARATION)
#undef SUITE_DECLARATION

#endif
