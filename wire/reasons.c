/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and texts of the drop reasons, generated from the table in reasons.h. Thread-safe. */
#include "wire/reasons.h"

static const char *const reason_names[FANIN_REASON_COUNT] = {
#define REASON_NAME(name, counter, text) [FANIN_REASON_##name] = (counter),
	FANIN_REASONS(REASON_NAME)
#undef REASON_NAME
};

static const char *const reason_texts[FANIN_REASON_COUNT] = {
#define REASON_TEXT(name, counter, text) [FANIN_REASON_##name] = (text),
	FANIN_REASONS(REASON_TEXT)
#undef REASON_TEXT
};

const char *
fanin_reason_name(unsigned int reason)
{
	return reason < FANIN_REASON_COUNT ? reason_names[reason] : "unknown";
}

const char *
fanin_reason_text(unsigned int reason)
{
	return reason < FANIN_REASON_COUNT ? reason_texts[reason] : "unknown";
}
