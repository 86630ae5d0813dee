/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer target for the configuration's parser: any text is either accepted with values in their
 * ranges, or refused with one line that says why.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "switch/config/config.h"

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_config(const struct config *config)
{
	REQUIRE(memchr(config->name, 0, sizeof(config->name)) != NULL);
	REQUIRE(memchr(config->control_socket, 0, sizeof(config->control_socket)) != NULL);
	REQUIRE(config->n_ports >= 1 && config->n_ports <= CONFIG_MAX_PORTS);
	REQUIRE(config->n_workers >= 1 && config->n_workers <= CONFIG_MAX_WORKERS);
	REQUIRE(config->max_jobs >= 1);
	REQUIRE(config->slots / config->max_jobs >= 1);
	REQUIRE(config->fault_drop >= 0 && config->fault_drop <= 1);
	REQUIRE(config->fault_duplicate >= 0 && config->fault_duplicate <= 1);
	REQUIRE(config->fault_reorder >= 0 && config->fault_reorder <= 1);
	for (uint16_t i = 0; i < config->n_ports; i++) {
		const struct config_port *port = &config->ports[i];

		REQUIRE(memchr(port->name, 0, sizeof(port->name)) != NULL && port->name[0] != 0);
		REQUIRE(memchr(port->device, 0, sizeof(port->device)) != NULL &&
			port->device[0] != 0);
		REQUIRE(port->mtu >= 576 && port->mtu <= CONFIG_MAX_MTU);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct config config, before;
	char error[CONFIG_ERROR_LEN];

	memset(&config, 0x5a, sizeof(config));
	before = config;
	memset(error, 'x', sizeof(error));
	if (config_parse((const char *)data, size, "fuzz.json", &config, error) == 0) {
		check_config(&config);
		return 0;
	}
	REQUIRE(memchr(error, 0, sizeof(error)) != NULL && error[0] != 0);
	REQUIRE(strchr(error, '\n') == NULL);
	/* Nothing is set on failure. */
	REQUIRE(memcmp(&config, &before, sizeof(config)) == 0);
	return 0;
}
