/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the transport: the fastest first; the report tells why a faster one was not taken. A
 * transport that the user named is never replaced by another one.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

#include "memif.h"
#include "wire/wire.h"

static const struct {
	const char *name;
	int (*open)(const struct fanin_transport_config *config, struct fanin_transport **transport,
		    struct fanin_error *error);
} transports[] = {
	{ "af_xdp", fanin_af_xdp_open },
	{ "af_packet", fanin_af_packet_open },
};

#define N_TRANSPORTS (sizeof(transports) / sizeof(transports[0]))

bool
fanin_transport_known(const char *name)
{
	if (strcmp(name, "auto") == 0 || strcmp(name, fanin_memif_ops.name) == 0)
		return true;
	for (size_t i = 0; i < N_TRANSPORTS; i++) {
		if (strcmp(name, transports[i].name) == 0)
			return true;
	}
	return false;
}

/* Appends "name refused: text" to the texts of earlier transports. */
static void
refusal_append(char *refusals, size_t len, const char *name, const char *text)
{
	size_t used = strlen(refusals);

	snprintf(refusals + used, len - used, "%s%.20s refused: %s", used == 0 ? "" : "; ", name,
		 text);
}

int
fanin_transport_open(const struct fanin_transport_config *config, const char *name,
		     struct fanin_transport **transport, struct fanin_error *error)
{
	bool automatic = strcmp(name, "auto") == 0;
	char refusals[N_TRANSPORTS * (FANIN_TEXT_LEN + 32)] = "";
	struct fanin_error found = { 0 };
	int status = FANIN_ERR_INVALID;

	if (config->frame_len > FANIN_ETH_LEN + config->mtu)
		return fanin_error_set(
			error, FANIN_ERR_TRANSPORT,
			"the job's packets need an MTU of %u, but that of %s is %u: raise it or create "
			"the job with fewer payload bytes",
			config->frame_len - FANIN_ETH_LEN, config->interface, config->mtu);

	for (size_t i = 0; i < N_TRANSPORTS; i++) {
		if (!automatic && strcmp(name, transports[i].name) != 0)
			continue;
		status = transports[i].open(config, transport, &found);
		if (status == FANIN_OK) {
			char *reason = (*transport)->reason;
			size_t used = strlen(reason);

			if (refusals[0] != '\0')
				snprintf(reason + used, FANIN_TEXT_LEN - used, "; %s", refusals);
			fanin_log_line(config->log, FANIN_LOG_INFO, "transport: %s", reason);
			return FANIN_OK;
		}
		fanin_log_line(config->log, FANIN_LOG_INFO, "transport %s refused: %s",
			       transports[i].name, found.text);
		refusal_append(refusals, sizeof(refusals), transports[i].name, found.text);
	}
	return fanin_error_set(error, status, "%s",
			       refusals[0] == '\0' ? "unknown transport" : refusals);
}
