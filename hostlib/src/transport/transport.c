/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses the transport by the rule of control/interface/interface.h, and tries others if it is
 * refused; the report tells the reason. A transport that the user named is never replaced by
 * another one.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

#include "control/interface/interface.h"
#include "memif.h"
#include "wire/wire.h"

/* shared: several jobs of a process can use it on one interface. */
static const struct {
	const char *name;
	bool shared;
	int (*open)(const struct fanin_transport_config *config, struct fanin_transport **transport,
		    struct fanin_error *error);
} transports[] = {
	{ "af_xdp", false, fanin_af_xdp_open },
	{ "udp", true, fanin_udp_open },
	{ "af_packet", true, fanin_af_packet_open },
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
	char why[INTERFACE_WHY_LEN] = "";
	struct fanin_error found = { 0 };
	int status = FANIN_ERR_INVALID;
	bool xdp;

	if (config->frame_len > FANIN_ETH_LEN + config->mtu)
		return fanin_error_set(
			error, FANIN_ERR_TRANSPORT,
			"the job's packets need an MTU of %u, but that of %s is %u: raise it or create "
			"the job with fewer payload bytes",
			config->frame_len - FANIN_ETH_LEN, config->interface, config->mtu);

	xdp = !automatic || interface_wants_xdp(config->interface, config->mtu, why);
	for (size_t i = 0; i < N_TRANSPORTS; i++) {
		if (automatic ? !xdp && !transports[i].shared
			      : strcmp(name, transports[i].name) != 0)
			continue;
		if (config->shares_interface && !transports[i].shared) {
			refusal_append(refusals, sizeof(refusals), transports[i].name,
				       "it serves one tree of a host, this job has several");
			continue;
		}
		status = transports[i].open(config, transport, &found);
		if (status == FANIN_OK) {
			char *reason = (*transport)->reason;
			size_t used = strlen(reason);

			if (refusals[0] != '\0' || why[0] != '\0')
				snprintf(reason + used, FANIN_TEXT_LEN - used, "; %s",
					 refusals[0] != '\0' ? refusals : why);
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
