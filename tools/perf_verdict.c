/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of fanin-perf --profile for its verdicts; fanin-perf(1) documents them. See
 * perf_profile.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/perf_profile.h"

/* Least shares of the time for a verdict. */
#define MUCH_RUN_QUEUE 0.2
#define MUCH_ASLEEP 0.5
#define MUCH_COMPUTING 0.7

/* Least number of packets for a verdict about super-frames. */
#define MANY_PACKETS 64
/* Least share of the packets for a verdict. */
#define MUCH_SENT_AGAIN 0.01
#define MAJORITY 0.5
/* Payload above which not even two packets fit into a super-frame. */
#define LONG_PAYLOAD 32000

struct judgement {
	const struct profile *profile;
	const struct fanin_report *report;
	struct profile_shares shares;
	struct profile_verdict *verdicts;
	size_t n;
};

static void __attribute__((format(printf, 3, 4)))
say(struct judgement *judgement, const char *name, const char *format, ...)
{
	struct profile_verdict *verdict = &judgement->verdicts[judgement->n++];
	va_list arguments;

	verdict->name = name;
	va_start(arguments, format);
	vsnprintf(verdict->text, sizeof(verdict->text), format, arguments);
	va_end(arguments);
}

/* True if super-frames were possible, but most packets were in none. */
static bool
lacks_super_frames(const struct judgement *judgement, double packets, double in_super_frames)
{
	return packets >= MANY_PACKETS && in_super_frames < MAJORITY * packets &&
	       judgement->report->payload_bytes < LONG_PAYLOAD;
}

static void
judge_sent(struct judgement *judgement)
{
	static const char alone[] = "packets leave one by one: ";
	const struct profile_values *values = &judgement->profile->values;
	const struct fanin_report *report = judgement->report;
	const char *reason = strstr(report->transport_reason, alone);

	if (!lacks_super_frames(judgement, values->frames_sent, values->super_frame_packets_sent))
		return;
	if (strcmp(report->transport, "af_packet") == 0)
		say(judgement, "sent_one_by_one", "%saf_packet sends no super-frames, udp does",
		    alone);
	else if (strcmp(report->transport, "udp") == 0)
		say(judgement, "sent_one_by_one", "%s%s", alone,
		    reason != NULL ? reason + strlen(alone)
				   : "few were alike and ready at the same time");
}

static void
judge_received(struct judgement *judgement)
{
	const struct profile_values *values = &judgement->profile->values;
	const char *transport = judgement->report->transport;

	if ((strcmp(transport, "udp") == 0 || strcmp(transport, "af_packet") == 0) &&
	    lacks_super_frames(judgement, values->frames_received,
			       values->super_frame_packets_received))
		say(judgement, "received_one_by_one",
		    "packets come in one by one: the switch's port makes no super-frames (faninctl ports), or a link on the way passes none");
}

static void
judge_losses(struct judgement *judgement)
{
	const struct profile_values *values = &judgement->profile->values;
	const double part = values->frames_sent == 0 ? 0
						     : values->retransmits / values->frames_sent;
	const char *why = values->ring_drops > 0 ? "receive buffers overflow (net.core.rmem_max)"
			  : values->spurious >= MAJORITY * values->retransmits
				  ? "most were not lost, their results were late"
				  : "they were lost on the way or at the switch (faninctl drops)";

	if (part >= MUCH_SENT_AGAIN)
		say(judgement, "sent_again", "%.1f %% of the packets were sent again: %s",
		    100 * part, why);
	else if (values->ring_drops > 0)
		say(judgement, "dropped",
		    "%.0f packets found no room to be received: receive buffers overflow (net.core.rmem_max)",
		    values->ring_drops);
}

static void
judge_time(struct judgement *judgement)
{
	const struct profile_values *values = &judgement->profile->values;
	const struct profile_shares *shares = &judgement->shares;
	const double mib = judgement->profile->mib;

	if (shares->run_queue >= MUCH_RUN_QUEUE)
		say(judgement, "run_queue",
		    "the rank waited for a core for %.0f %% of the time: more threads want to run than there are cores",
		    100 * shares->run_queue);
	if (shares->asleep >= MUCH_ASLEEP)
		say(judgement, "asleep",
		    "asleep for %.0f %% of the time: it waits for the slowest rank or for the switch (faninctl stats)",
		    100 * shares->asleep);
	if (shares->computing >= MUCH_COMPUTING)
		say(judgement, "computing",
		    "computing for %.0f %% of the time: its own core is the limit; %.0f system calls and %.2f MiB copied for each MiB",
		    100 * shares->computing, mib == 0 ? 0 : values->system_calls / mib,
		    mib == 0 ? 0
			     : (values->bytes_copied_out + values->bytes_copied_in) / (1 << 20) /
				       mib);
}

size_t
profile_judge(const struct profile *profile, const struct fanin_report *report,
	      struct profile_verdict *verdicts)
{
	struct judgement judgement = {
		.profile = profile,
		.report = report,
		.shares = profile_shares(profile),
		.verdicts = verdicts,
	};

	judge_sent(&judgement);
	judge_received(&judgement);
	judge_losses(&judgement);
	judge_time(&judgement);
	if (judgement.n == 0)
		say(&judgement, "nothing", "nothing stands out");
	return judgement.n;
}
