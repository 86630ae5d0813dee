/* SPDX-License-Identifier: BSD-3-Clause */
/* See port_watch.h. */
#include "switch/port_watch.h"

#include <net/if.h>

#include "control/clock.h"
#include "switch/log.h"

#define WATCH_MS 1000u
#define ANNOUNCEMENTS 2 /* as many as RFC 5227 has: one may be lost */

static void
note_lost(struct port_watch *watch, uint16_t index)
{
	const struct config_port *port = &watch->config->ports[index];
	char interface[IF_NAMESIZE] = "";

	watch->each[index].lost = true;
	watch->each[index].told = false;
	/* Whoever is inside of the driver leaves it, and nobody enters. */
	pipeline_port_set_down(watch->pipeline, index, true);
	config_vdev_interface(port->device, interface, sizeof(interface));
	if (ports_can_reopen(port))
		log_warning("port \"%s\": the interface \"%s\" is gone: the port is down until there is one of this name again",
			    port->name, interface);
	else
		log_error("port \"%s\": the interface \"%s\" is gone, or was made anew, and a port of this driver cannot be opened "
			  "again while the switch runs: restart the switch when the interface is there",
			  port->name, interface);
}

static void
reopen(struct port_watch *watch, uint16_t index)
{
	const struct config_port *port = &watch->config->ports[index];
	char error[CONFIG_ERROR_LEN] = "";

	if (ports_reopen(watch->config, watch->ports, index, error) != 0) {
		/* Tried again each second, and told once. */
		if (!watch->each[index].told)
			log_error("port \"%s\": cannot be opened anew yet: %s", port->name, error);
		watch->each[index].told = true;
		return;
	}
	watch->pipeline->ports[index].ifindex = watch->ports->ports[index].ifindex;
	watch->each[index].lost = false;
	pipeline_port_set_down(watch->pipeline, index, false);
	log_info("port \"%s\": opened anew on the interface that has the name now", port->name);
}

static void
announce(struct port_watch *watch, uint16_t index)
{
	const bool up = ports_link_is_up(&watch->config->ports[index],
					 &watch->pipeline->ports[index]);

	/* The gate tells of memif's hosts. */
	if (up != watch->each[index].up && watch->looked && !watch->config->ports[index].memif)
		log_info("port \"%s\": the link is %s", watch->config->ports[index].name,
			 up ? "up" : "down");
	if (up && !watch->each[index].up)
		watch->each[index].announcements = ANNOUNCEMENTS;
	watch->each[index].up = up;
	if (!up || watch->each[index].announcements == 0)
		return;
	watch->each[index].announcements--;
	pipeline_announce(watch->pipeline, index);
}

static void
look_at(struct port_watch *watch, uint16_t index)
{
	const struct config_port *port = &watch->config->ports[index];
	const unsigned int opened = watch->pipeline->ports[index].ifindex;
	unsigned int now;

	if (opened == 0)
		return;
	now = ports_interface_index(port);
	if (!watch->each[index].lost && now != opened)
		note_lost(watch, index);
	if (watch->each[index].lost && now != 0 && ports_can_reopen(port))
		reopen(watch, index);
}

void
port_watch_serve(struct port_watch *watch)
{
	const uint64_t now_ms = clock_ms();

	if (now_ms < watch->next_ms)
		return;
	watch->next_ms = now_ms + WATCH_MS;
	for (uint16_t i = 0; i < watch->pipeline->n_ports; i++) {
		look_at(watch, i);
		announce(watch, i);
	}
	watch->looked = true;
}
