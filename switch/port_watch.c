/* SPDX-License-Identifier: BSD-3-Clause */
/* See port_watch.h. */
#include "switch/port_watch.h"

#include <inttypes.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "control/clock.h"
#include "switch/log.h"
#include "switch/ports_packet.h"

#define ANNOUNCEMENTS 2 /* as in RFC 5227: one may be lost */

/*
 * A program that is detached again and again is attached at intervals that double between these,
 * until it has stayed for the longest interval.
 */
#define ATTACH_MIN_MS 1000u
#define ATTACH_MAX_MS 16000u

/* Time after which a kernel that does not answer is logged. */
#define SILENCE_MS 5000u

/* Time without a frame that is too long, after which this trouble is over. */
#define FRAMES_QUIET_MS 5000u

const char *
port_trouble_name(enum port_trouble_kind kind)
{
	static const char *const names[] = {
#define PORT_TROUBLE_NAME(kind, name, text) name,
		PORT_TROUBLES(PORT_TROUBLE_NAME)
#undef PORT_TROUBLE_NAME
	};

	return names[kind];
}

/*
 * Notes a trouble. Returns true if it is new or its text has changed, so that it has to be logged.
 */
static bool __attribute__((format(printf, 3, 4)))
begins(struct port_watch_entry *entry, enum port_trouble_kind kind, const char *format, ...)
{
	struct port_trouble *trouble = &entry->troubles[kind];
	char text[PORT_TROUBLE_TEXT_LEN];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (trouble->now && strcmp(trouble->text, text) == 0)
		return false;
	trouble->count += !trouble->now;
	trouble->now = true;
	memcpy(trouble->text, text, sizeof(text));
	return true;
}

/* Ends a trouble. Returns true if there was one. */
static bool
ends(struct port_watch_entry *entry, enum port_trouble_kind kind)
{
	const bool was = entry->troubles[kind].now;

	entry->troubles[kind].now = false;
	return was;
}

/* ------------------------------------------------- the interface and its socket */

/*
 * Describes what became of the interface that a port was opened on. now: number of the interface
 * that has the name now; 0: there is none.
 */
static void
fate_format(const char *interface, unsigned int opened, unsigned int now, char *text, size_t len)
{
	char name[IF_NAMESIZE];

	if (if_indextoname(opened, name) != NULL)
		snprintf(text, len, "the interface \"%s\" is gone: it is called \"%s\" now",
			 interface, name);
	else if (now != 0)
		snprintf(text, len, "the interface \"%s\" is gone: it was removed and made anew",
			 interface);
	else
		snprintf(
			text, len,
			"the interface \"%s\" is gone: it was removed, or moved to another network namespace",
			interface);
}

static void
note_lost(struct port_watch *watch, uint16_t index, unsigned int now)
{
	const struct config_port *port = &watch->config->ports[index];
	struct port_watch_entry *entry = &watch->each[index];
	char fate[PORT_TROUBLE_TEXT_LEN];

	entry->lost = true;
	entry->told = false;
	/* Workers leave the driver, and no worker enters it again. */
	pipeline_port_set_down(watch->pipeline, index, true);
	if (now == watch->pipeline->ports[index].ifindex) {
		snprintf(
			fate, sizeof(fate),
			"its socket is not on the interface any more, which was away for a moment");
		begins(entry, PORT_TROUBLE_SOCKET, "%s", fate);
	} else {
		fate_format(watch->ports->interfaces[index], watch->pipeline->ports[index].ifindex,
			    now, fate, sizeof(fate));
		begins(entry, PORT_TROUBLE_INTERFACE, "%s", fate);
	}
	if (ports_can_reopen(port))
		log_warning(
			"port \"%s\": %s: the port is down until there is one of this name again",
			port->name, fate);
	else
		log_error(
			"port \"%s\": %s, and a port of this driver cannot be opened again while the switch runs: restart the switch "
			"when the interface is there",
			port->name, fate);
}

static void
found_again(struct port_watch *watch, uint16_t index)
{
	watch->each[index].lost = false;
	ends(&watch->each[index], PORT_TROUBLE_INTERFACE);
	ends(&watch->each[index], PORT_TROUBLE_SOCKET);
	pipeline_port_set_down(watch->pipeline, index, false);
}

static void
reopen(struct port_watch *watch, uint16_t index)
{
	const struct config_port *port = &watch->config->ports[index];
	char error[CONFIG_ERROR_LEN] = "";

	if (ports_reopen(watch->config, watch->ports, index, error) != 0) {
		/* The attempt is repeated at each check, and logged once. */
		if (!watch->each[index].told)
			log_error("port \"%s\": cannot be opened anew yet: %s", port->name, error);
		watch->each[index].told = true;
		return;
	}
	watch->pipeline->ports[index].ifindex = watch->ports->ports[index].ifindex;
	found_again(watch, index);
	log_info("port \"%s\": opened anew on the interface that has the name now", port->name);
}

/* Returns true if the port has its interface, and its socket is there. */
static bool
has_interface(struct port_watch *watch, uint16_t index)
{
	const struct config_port *port = &watch->config->ports[index];
	struct port_watch_entry *entry = &watch->each[index];
	const unsigned int opened = watch->pipeline->ports[index].ifindex;
	const unsigned int now = ports_interface_index(watch->ports, index);
	const bool is_bound = now == opened && ports_socket_is_bound(watch->ports, index);

	if (!entry->lost && !is_bound)
		note_lost(watch, index, now);
	if (entry->lost && is_bound) {
		/* The interface had another name for a while. */
		found_again(watch, index);
		log_info("port \"%s\": the interface has its name again", port->name);
	} else if (entry->lost && now != 0 && ports_can_reopen(port)) {
		reopen(watch, index);
	}
	return !entry->lost;
}

/* ------------------------------------------------------------ the XDP program */

/* Handles the result of an attempt to attach the program. */
static void
note_attach(struct port_watch *watch, uint16_t index, const struct port_answer *answer)
{
	const char *name = watch->config->ports[index].name;
	struct port_watch_entry *entry = &watch->each[index];

	entry->attach_wait_ms = entry->attach_wait_ms == 0 ? ATTACH_MIN_MS
							   : 2 * entry->attach_wait_ms;
	if (entry->attach_wait_ms > ATTACH_MAX_MS)
		entry->attach_wait_ms = ATTACH_MAX_MS;
	entry->attach_ms = clock_ms() + entry->attach_wait_ms;
	if (answer->attach_ret != 0) {
		if (begins(entry, PORT_TROUBLE_PROGRAM, "%s: %s", answer->found, answer->why_not))
			log_error("port \"%s\": %s", name,
				  entry->troubles[PORT_TROUBLE_PROGRAM].text);
		return;
	}
	watch->ports->program_is_off[index] = false;
	ends(entry, PORT_TROUBLE_PROGRAM);
	log_info("port \"%s\": the XDP program is attached again, the link is up", name);
}

static void
look_at_program(struct port_watch *watch, uint16_t index, const struct port_answer *answer)
{
	const char *name = watch->config->ports[index].name;
	struct port_watch_entry *entry = &watch->each[index];

	if (!answer->has_program)
		return;
	watch->ports->program_is_off[index] = answer->program != PORT_PROGRAM_ATTACHED;
	if (answer->program == PORT_PROGRAM_ATTACHED) {
		if (ends(entry, PORT_TROUBLE_PROGRAM))
			log_info(
				"port \"%s\": its XDP program is at the interface again, the link is up",
				name);
		if (clock_ms() >= entry->attach_ms + ATTACH_MAX_MS)
			entry->attach_wait_ms = 0;
		return;
	}
	/*
	 * Not logged again if the text has only been extended: that the kernel refuses the program.
	 */
	if (!entry->troubles[PORT_TROUBLE_PROGRAM].now ||
	    strncmp(entry->troubles[PORT_TROUBLE_PROGRAM].text, answer->found,
		    strlen(answer->found)) != 0) {
		begins(entry, PORT_TROUBLE_PROGRAM, "%s", answer->found);
		log_warning("port \"%s\": %s: no frame reaches the switch, the link is down%s",
			    name, answer->found,
			    answer->program == PORT_PROGRAM_FOREIGN
				    ? "; it is attached again when the other one is taken off"
				    : "");
	}
	if (answer->attach_tried)
		note_attach(watch, index, answer);
}

/* ------------------------------------------------------------ other troubles */

/* Logs a trouble when it begins and when it ends. */
static void __attribute__((format(printf, 5, 6)))
set(struct port_watch *watch, uint16_t index, enum port_trouble_kind kind, bool is_there,
    const char *format, ...)
{
	const char *name = watch->config->ports[index].name;
	struct port_watch_entry *entry = &watch->each[index];
	char text[PORT_TROUBLE_TEXT_LEN];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (is_there && begins(entry, kind, "%s", text))
		log_warning("port \"%s\": %s", name, text);
	else if (!is_there && ends(entry, kind))
		log_info("port \"%s\": no longer: %s", name, entry->troubles[kind].text);
}

static void
look_at_mtu(struct port_watch *watch, uint16_t index, const struct kernel_link *link)
{
	const unsigned int mtu = watch->config->ports[index].mtu;

	set(watch, index, PORT_TROUBLE_MTU, link->mtu < mtu,
	    "the interface \"%s\" has MTU %u, expected at least %u: longer frames are lost in both directions",
	    link->name, link->mtu, mtu);
}

static void
look_at_master(struct port_watch *watch, uint16_t index, const struct kernel_link *link)
{
	char master[IF_NAMESIZE] = "?";

	if (link->master != 0)
		if_indextoname(link->master, master);
	set(watch, index, PORT_TROUBLE_MASTER, link->master != 0,
	    "the interface \"%s\" belongs to \"%s\", expected none: it may take frames, or forward them once more",
	    link->name, master);
}

static void
look_at_queues(struct port_watch *watch, uint16_t index, const struct port_answer *answer)
{
	const unsigned int served = watch->pipeline->ports[index].n_queues;
	const char *interface = answer->link.name;

	set(watch, index, PORT_TROUBLE_QUEUES, answer->queues > served,
	    "interface \"%s\" has %u receive queues and %u are served: frames of the others bypass the switch (ethtool -L %s rx %u, or "
	    "%s in ports[%u])",
	    interface, answer->queues, served, interface, served,
	    watch->config->ports[index].by_rule
		    ? "restart the switch, which chooses anew, \"interface\""
		    : "queue_count= of the vdev",
	    index);
}

static void
look_at_promiscuous(struct port_watch *watch, uint16_t index, const struct port_answer *answer)
{
	if (!answer->promiscuous_set)
		return;
	set(watch, index, PORT_TROUBLE_PROMISCUOUS, true,
	    "promiscuous mode of \"%s\" was taken off: it is set again", answer->link.name);
	ends(&watch->each[index], PORT_TROUBLE_PROMISCUOUS);
}

static void
look_at_frames(struct port_watch *watch, uint16_t index)
{
	struct port_watch_entry *entry = &watch->each[index];
	const uint64_t now_ms = clock_ms();
	struct port_driver_stats stats;

	ports_stats(watch->ports, index, &stats);
	if (stats.rx_errors > entry->rx_errors)
		entry->rx_errors_ms = now_ms;
	entry->rx_errors = stats.rx_errors;
	set(watch, index, PORT_TROUBLE_FRAMES,
	    entry->rx_errors_ms != 0 && now_ms - entry->rx_errors_ms < FRAMES_QUIET_MS,
	    "frames come in that are damaged or longer than the port's MTU of %u: the link's other end may have a greater one, or offloads (ethtool -K)",
	    watch->config->ports[index].mtu);
}

static void
look_at_link(struct port_watch *watch, uint16_t index, const struct kernel_link *link)
{
	const bool is_set_up = (link->flags & IFF_UP) != 0;

	/* announce() logs the link. */
	if (kernel_link_is_up(link))
		ends(&watch->each[index], PORT_TROUBLE_LINK);
	else
		begins(&watch->each[index], PORT_TROUBLE_LINK, "the interface \"%s\" %s",
		       link->name,
		       is_set_up ? "has no carrier: its other end is down"
				 : "is set down (ip link)");
}

/* answer: of the kernel; NULL: none yet. */
static void
look_at(struct port_watch *watch, uint16_t index, const struct port_answer *answer)
{
	const unsigned int ifindex = watch->pipeline->ports[index].ifindex;

	look_at_frames(watch, index);
	if (ifindex == 0 || !has_interface(watch, index))
		return;
	/* The port may have been opened again since the question. */
	if (answer == NULL || answer->ifindex != watch->pipeline->ports[index].ifindex ||
	    answer->ret != 0)
		return;
	look_at_link(watch, index, &answer->link);
	look_at_mtu(watch, index, &answer->link);
	look_at_master(watch, index, &answer->link);
	if (config_port_is_packet(&watch->config->ports[index]))
		ports_set_super_frames(&watch->config->ports[index], &watch->ports->ports[index],
				       answer->takes_super_frames);
	if (!config_port_is_af_xdp(&watch->config->ports[index]))
		return;
	look_at_program(watch, index, answer);
	look_at_queues(watch, index, answer);
	look_at_promiscuous(watch, index, answer);
}

/* -------------------------------------------------------------------- the link */

static void
announce(struct port_watch *watch, uint16_t index)
{
	struct port_watch_entry *entry = &watch->each[index];
	const struct port_trouble *link = &entry->troubles[PORT_TROUBLE_LINK];
	const bool up = ports_link_is_up(watch->ports, &watch->config->ports[index],
					 &watch->pipeline->ports[index], index);

	/* A link that is up at the start is not logged. The gate logs memif's hosts. */
	if ((watch->looked ? up != entry->up : !up) && !watch->config->ports[index].memif)
		log_info("port \"%s\": the link is %s%s%s", watch->config->ports[index].name,
			 up ? "up" : "down", !up && link->now ? ": " : "",
			 !up && link->now ? link->text : "");
	if (up && !entry->up)
		entry->announcements = ANNOUNCEMENTS;
	entry->up = up;
	if (!up || entry->announcements == 0)
		return;
	entry->announcements--;
	pipeline_announce(watch->pipeline, index);
}

int
port_watch_open(struct port_watch *watch, const struct config *config, struct ports *ports,
		struct pipeline *pipeline)
{
	*watch = (struct port_watch){ .config = config, .ports = ports, .pipeline = pipeline };
	return port_query_open(ports, &watch->query);
}

void
port_watch_close(struct port_watch *watch)
{
	port_query_close(watch->query);
	watch->query = NULL;
}

int
port_watch_fd(const struct port_watch *watch)
{
	return port_query_fd(watch->query);
}

static void
look_at_all(struct port_watch *watch, const struct port_answer *answers)
{
	for (uint16_t i = 0; i < watch->pipeline->n_ports; i++) {
		look_at(watch, i, answers == NULL ? NULL : &answers[i]);
		announce(watch, i);
	}
	watch->looked = true;
}

static void
ask(struct port_watch *watch, uint64_t now_ms)
{
	struct port_question questions[CONFIG_MAX_PORTS] = { 0 };

	for (uint16_t i = 0; i < watch->pipeline->n_ports; i++)
		questions[i] = (struct port_question){
			.ifindex = watch->each[i].lost ? 0 : watch->pipeline->ports[i].ifindex,
			.is_af_xdp = config_port_is_af_xdp(&watch->config->ports[i]),
			.is_packet = config_port_is_packet(&watch->config->ports[i]),
			.may_attach = now_ms >= watch->each[i].attach_ms,
		};
	port_query_ask(watch->query, questions);
	watch->asked_ms = now_ms;
}

void
port_watch_serve(struct port_watch *watch)
{
	const uint64_t now_ms = clock_ms();

	if (port_query_take(watch->query, watch->answers)) {
		if (watch->silence_told)
			log_info("the kernel tells of interfaces again, after %" PRIu64 " s",
				 (now_ms - watch->asked_ms) / 1000);
		watch->asked_ms = 0;
		watch->silence_told = false;
		look_at_all(watch, watch->answers);
	}
	if (now_ms < watch->next_ms)
		return;
	watch->next_ms = now_ms + PORT_WATCH_MS;
	if (watch->asked_ms == 0) {
		ask(watch, now_ms);
		return;
	}
	look_at_all(watch, NULL);
	if (now_ms - watch->asked_ms < SILENCE_MS || watch->silence_told)
		return;
	watch->silence_told = true;
	log_warning(
		"the kernel has told nothing of interfaces for %u s, because something holds its lock: what becomes of ports is told late",
		SILENCE_MS / 1000);
}
