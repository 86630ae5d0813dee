/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch in DPDK's telemetry, as dpdk-telemetry.py shows it: the commands /fanin/ports, jobs,
 * drops, stats and workers. Telemetry runs a thread for each of its clients, which may not look at
 * jobs themselves: jobs are freed once no worker can see them. So these threads ask the main
 * thread, which answers from what the control commands answer.
 */
#ifndef FANIN_SWITCH_TELEMETRY_H
#define FANIN_SWITCH_TELEMETRY_H

/*
 * Offers the commands. Main thread, after DPDK has started.
 *
 * Returns a descriptor that is readable when telemetry_serve has something to do, or -errno; then
 * there are no commands.
 */
int telemetry_open(void);

/* Answers who waits. Main thread; daemon: as commands get it. */
void telemetry_serve(void *daemon);

/*
 * From now on nobody is answered; who waits is told so. Main thread, while the pipeline is still
 * there.
 */
void telemetry_close(void);

#endif
