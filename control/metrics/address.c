/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the address that a metrics server listens on. No state; any thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "control/args.h"
#include "control/listener.h"
#include "control/settings.h"
#include "control/metrics/metrics.h"

int
metrics_address(const char *text, struct address *address)
{
	char error[ADDRESS_ERROR_LEN];
	struct address parsed;

	/* Port 0 is refused: no client would know the port that the kernel chooses. */
	if (address_parse(text, 0, false, &parsed, error) != 0 || address_port(&parsed) == 0)
		return -EINVAL;
	*address = parsed;
	return 0;
}

int
metrics_listen_read(const json_t *root, const char *port, const char **listen,
		    struct control_error *error)
{
	static const char *const known[] = { "listen", NULL };
	const json_t *metrics;
	struct address address;
	bool present;

	if (settings_object("metrics", root, "metrics", known, &metrics, error) != 0)
		return -EINVAL;
	if (metrics == NULL)
		return 0;
	if (args_string_at("metrics", metrics, "listen", 63, listen, &present, error) != 0)
		return -EINVAL;
	if (!present || metrics_address(*listen, &address) == 0)
		return 0;
	control_fail(
		error, "invalid",
		"metrics.listen: found \"%s\", expected an IP address and a TCP port like \"127.0.0.1:%s\" or \"[::1]:%s\"",
		*listen, port, port);
	return -EINVAL;
}

int
metrics_check_machine(const char *listen, char *error)
{
	struct address address;

	if (listen == NULL || listen[0] == '\0')
		return 0;
	if (metrics_address(listen, &address) != 0) {
		snprintf(error, METRICS_ERROR_LEN, "found %.64s, expected an address and a port",
			 listen);
		return -EINVAL;
	}
	return listener_check_tcp("metrics address", listen, &address, error);
}
