/* SPDX-License-Identifier: BSD-3-Clause */
/* See guard.h. */
#include "control/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "control/log.h"

#define LEVEL_EACH_MS 1000u
#define LEVEL_MAX_MS (60 * LEVEL_EACH_MS) /* an attack is forgotten a minute after its end */

struct guard_source
guard_source_of(const struct sockaddr_storage *from)
{
	struct guard_source source = { 0 };
	struct sockaddr_in6 six;
	struct sockaddr_in four;

	if (from->ss_family == AF_INET) {
		memcpy(&four, from, sizeof(four));
		memcpy(source.bytes + 4, &four.sin_addr, sizeof(four.sin_addr));
	} else if (from->ss_family == AF_INET6) {
		memcpy(&six, from, sizeof(six));
		if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
			memcpy(source.bytes + 4, &six.sin6_addr.s6_addr[12], 4);
		else
			memcpy(source.bytes, &six.sin6_addr, sizeof(source.bytes));
	}
	return source;
}

/* text: INET6_ADDRSTRLEN bytes; returned. */
static const char *
source_text(const struct guard_source *source, char *text)
{
	static const uint8_t none[4];
	struct in6_addr six = { 0 };

	if (memcmp(source->bytes, none, sizeof(none)) == 0)
		return inet_ntop(AF_INET, source->bytes + 4, text, INET6_ADDRSTRLEN);
	memcpy(&six, source->bytes, sizeof(source->bytes));
	return inet_ntop(AF_INET6, &six, text, INET6_ADDRSTRLEN);
}

/* Returns the entry of a source. A new source replaces the entry with the oldest last token. */
static struct guard_entry *
find(struct guard *guard, const struct guard_source *source)
{
	struct guard_entry *oldest = &guard->entries[0];

	for (unsigned int i = 0; i < GUARD_SOURCES; i++) {
		struct guard_entry *entry = &guard->entries[i];

		if (entry->last_ms != 0 && memcmp(&entry->source, source, sizeof(*source)) == 0)
			return entry;
		if (entry->last_ms < oldest->last_ms)
			oldest = entry;
	}
	*oldest = (struct guard_entry){ .source = *source };
	return oldest;
}

static void
tell(struct guard *guard, struct guard_entry *entry, uint64_t now_ms)
{
	char text[INET6_ADDRSTRLEN];

	if ((entry->told_ms != 0 && now_ms < entry->told_ms + GUARD_TELL_MS) ||
	    (guard->told_ms != 0 && now_ms < guard->told_ms + GUARD_PAUSE_MS))
		return;
	entry->told_ms = now_ms;
	guard->told_ms = now_ms;
	log_warning("many wrong tokens come from %s: each is refused after %u ms from now on",
		    source_text(&entry->source, text), GUARD_DELAY_MS);
}

uint32_t
guard_wrong_token(struct guard *guard, const struct guard_source *source, uint64_t now_ms)
{
	struct guard_entry *entry = find(guard, source);
	const uint64_t passed_ms = now_ms - entry->last_ms;

	entry->level = entry->level > passed_ms ? entry->level - passed_ms : 0;
	entry->level += LEVEL_EACH_MS;
	if (entry->level > LEVEL_MAX_MS)
		entry->level = LEVEL_MAX_MS;
	entry->last_ms = now_ms;
	if (entry->level <= GUARD_FREE * LEVEL_EACH_MS)
		return 0;
	tell(guard, entry, now_ms);
	return GUARD_DELAY_MS;
}
