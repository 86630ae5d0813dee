/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch in DPDK's telemetry, as dpdk-telemetry.py shows it: the commands /fanin/ports, jobs,
 * drops, stats and workers. Telemetry runs a thread for each client. These threads must not access
 * jobs, which are freed once no worker can see them. So they ask the main thread, which answers
 * with the control commands' answers.
 */
#ifndef FANIN_SWITCH_TELEMETRY_H
#define FANIN_SWITCH_TELEMETRY_H

/*
 * Registers the commands. Main thread, after DPDK has started. Returns a descriptor that is
 * readable when telemetry_serve has work, or -errno; then there are no commands.
 */
int telemetry_open(void);

/* Answers waiting requests. Main thread; daemon: as commands get it. */
void telemetry_serve(void *daemon);

/* Stops answering; waiting requests fail. Main thread, while the pipeline still exists. */
void telemetry_close(void);

#endif
