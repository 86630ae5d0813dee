/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the two halves of the host state machine: membership (pktgen_host.c) and windows
 * (pktgen_window.c).
 */
#ifndef FANIN_TOOLS_PKTGEN_PKTGEN_INTERNAL_H
#define FANIN_TOOLS_PKTGEN_PKTGEN_INTERNAL_H

#include "tools/pktgen/pktgen_host.h"

/* Saves why the job has failed; the first reason stays. */
void __attribute__((format(printf, 2, 3)))
pktgen_job_fail(struct pktgen_job *job, const char *format, ...);

/* Fills the addresses and ports from a member to the switch. */
void pktgen_member_flow(const struct pktgen_member *member, struct fanin_flow *flow);

#endif
