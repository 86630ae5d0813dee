/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the handler `pa-atp` of switches and the host protocol of its jobs share: the positions of
 * the job's parameters in JOIN_ACK and in struct fanin_job_params, and the congestion controls that
 * one of the parameters selects (protocols/pa_atp/README.md).
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_PA_ATP_H
#define FANIN_PROTOCOLS_PA_ATP_PA_ATP_H

/* X(ENUMERATOR, name, least, most, usual, text) */
#define FANIN_PA_ATP_PARAMETERS(X)                                                                           \
	X(CONGESTION, congestion, 0, 5, 5,                                                                   \
	  "congestion control: 0 sync, 1 atp, 2 straw, 3 straw+progress, 4 straw+limit, 5 pa-atp")           \
	X(ETA, eta_percent, 1, 100, 80,                                                                      \
	  "share of aggregators and bdp that may be in use before results tell hosts to hold back, percent") \
	X(BDP, bdp, 0, 65535, 64, "bandwidth-delay product of the way to the server, packets")               \
	X(EXPIRE, expire_us, 100, 60000000, 20000,                                                           \
	  "us that an aggregator waits for contributions; then the server gets what it has")                 \
	X(P_MAX, p_max_percent, 100, 1000, 200,                                                              \
	  "progress, in percent of the job's average, at which a marked window is halved")                   \
	X(FIXED_WINDOW, fixed_window, 0, 4096, 0,                                                            \
	  "window of the congestion control sync, blocks; 0: the job's")

enum fanin_pa_atp_parameter {
#define FANIN_PA_ATP_PARAMETER(name, ...) FANIN_PA_ATP_##name,
	FANIN_PA_ATP_PARAMETERS(FANIN_PA_ATP_PARAMETER)
#undef FANIN_PA_ATP_PARAMETER
};

#endif
