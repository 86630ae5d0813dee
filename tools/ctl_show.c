/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl's commands that show one thing: version, ports, drops, mac; and check, which needs no
 * switch.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "switch/config/config.h"
#include "control/text.h"
#include "tools/ctl.h"
#include "tools/ctl_table.h"

const struct cli_option ctl_drops_options[] = {
	{ "all", NULL, 'a', "also the reasons that never occurred" },
	{ 0 },
};

int
ctl_show(struct ctl *ctl, int argc, char **argv, const char *command,
	 void (*print)(const struct ctl *, const json_t *))
{
	json_t *result;

	if (ctl_operands(ctl, argc, argv, 0, 0) != CTL_OK)
		return CTL_USAGE;
	result = ctl_call(ctl, command, NULL);
	if (result == NULL)
		return CTL_FAILED;
	if (ctl->json)
		ctl_print_json(result);
	else
		print(ctl, result);
	json_decref(result);
	return CTL_OK;
}

/* Prints a line for each type. The switch lists "TYPE OPERATOR" in the order of types. */
static void
print_operations(const json_t *operations)
{
	const char *last = NULL;
	size_t last_len = 0;
	const json_t *item;
	size_t i;

	json_array_foreach(operations, i, item) {
		const char *name = json_string_value(item);
		const char *op = name == NULL ? NULL : strchr(name, ' ');
		size_t len = op == NULL ? 0 : (size_t)(op - name);

		if (op == NULL)
			continue;
		if (last == NULL || len != last_len || strncmp(name, last, len) != 0)
			printf("%s%-10s  %-5.*s", last == NULL ? "" : "\n",
			       last == NULL ? "operations" : "", (int)len, name);
		printf("%s", op);
		last = name;
		last_len = len;
	}
	putchar('\n');
}

static void
print_version(const struct ctl *ctl, const json_t *result)
{
	const json_t *item, *parameter, *packet;
	char uptime[CTL_NUMBER_LEN];
	size_t i, k;

	/* A parameter server reports its kind; it has an instance instead of DPDK. */
	printf("%-10s  %s\n",
	       json_object_get(result, "kind") != NULL ? ctl_string(result, "kind") : "switch",
	       ctl_string(client_greeting(ctl->client), "name"));
	printf("version     %s, protocol %" PRId64 " (faninctl %s)\n",
	       ctl_string(result, "version"), ctl_integer(result, "protocol"), FANIN_VERSION);
	printf("running     for %s, process %" PRId64 "\n",
	       ctl_duration(ctl_real(result, "uptime_s"), uptime), ctl_integer(result, "pid"));
	if (json_object_get(result, "dpdk") != NULL)
		printf("dpdk        %s; built with %s\n", ctl_string(result, "dpdk"),
		       ctl_string(result, "dpdk_built"));
	if (json_object_get(result, "libfanin") != NULL)
		printf("libfanin    %s; built with %s\n", ctl_string(result, "libfanin"),
		       ctl_string(result, "libfanin_built"));
	if (json_object_get(result, "instance") != NULL)
		printf("address     %s, UDP port %" PRId64 " on %s, instance %s\n",
		       ctl_string(result, "ip"), ctl_integer(result, "udp_port"),
		       ctl_string(result, "port"), ctl_string(result, "instance"));
	printf("kernels     %s\n", ctl_string(result, "isa"));
	json_array_foreach(json_object_get(result, "handlers"), i, item) {
		printf("%-10s  %s: %s\n", i == 0 ? "handlers" : "", ctl_string(item, "name"),
		       ctl_string(item, "description"));
		json_array_foreach(json_object_get(item, "parameters"), k, parameter)
			printf("%-10s    %s=%" PRId64 ": %s, %" PRId64 " to %" PRId64 "\n", "",
			       ctl_string(parameter, "name"), ctl_integer(parameter, "default"),
			       ctl_string(parameter, "description"),
			       ctl_integer(parameter, "least"), ctl_integer(parameter, "most"));
		json_array_foreach(json_object_get(item, "packets"), k, packet)
			printf("%-10s    packet %" PRId64 " %s (%s): %s\n", "",
			       ctl_integer(packet, "code"), ctl_string(packet, "name"),
			       ctl_string(packet, "direction"), ctl_string(packet, "description"));
	}
	print_operations(json_object_get(result, "operations"));
}

int
ctl_version(struct ctl *ctl, int argc, char **argv)
{
	return ctl_show(ctl, argc, argv, "version", print_version);
}

/* Prints a port's present and past troubles, one line each. */
static void
print_troubles(const json_t *port)
{
	const json_t *trouble;
	size_t i;

	json_array_foreach(json_object_get(port, "troubles"), i, trouble) {
		if (ctl_integer(trouble, "count") == 0)
			continue;
		printf("%s: %s%s: %s\n", ctl_string(port, "name"), ctl_string(trouble, "name"),
		       ctl_is_true(trouble, "now") ? "" : ", no longer",
		       ctl_string(trouble, "text"));
	}
}

static void
print_ports(const struct ctl *ctl, const json_t *result)
{
	static const char *const headers[] = { "PORT",       "LINK",           ">MTU",
					       ">RX FRAMES", ">RX BYTES",      ">MISSED",
					       ">RX ERRORS", ">TX FRAMES",     ">TX BYTES",
					       ">DELAYED",   ">BACKLOG",       ">MARKED",
					       ">DROPPED",   ">LINK RX DROPS", ">LINK TX DROPS",
					       "MAC",        "DRIVER",         "DEVICE",
					       NULL };
	const json_t *port, *egress;
	struct ctl_table table;
	char bytes[CTL_NUMBER_LEN];
	size_t i;

	(void)ctl;
	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(result, "ports"), i, port) {
		egress = json_object_get(port, "egress");
		ctl_table_cell(&table, "%s", ctl_string(port, "name"));
		ctl_table_cell(&table, "%s", ctl_is_true(port, "link") ? "up" : "down");
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "mtu"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "rx_frames"));
		ctl_table_cell(&table, "%s", ctl_bytes(ctl_real(port, "rx_bytes"), bytes));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "rx_missed"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "rx_errors"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "tx_frames"));
		ctl_table_cell(&table, "%s", ctl_bytes(ctl_real(port, "tx_bytes"), bytes));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "tx_delayed"));
		ctl_table_cell(&table, "%s", ctl_bytes(ctl_real(egress, "backlog_bytes"), bytes));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(egress, "ecn_marked"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "tx_dropped"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "link_rx_dropped"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(port, "link_tx_dropped"));
		ctl_table_cell(&table, "%s", ctl_string(port, "mac"));
		ctl_table_cell(&table, "%s", ctl_string(port, "driver"));
		ctl_table_cell(&table, "%s", ctl_string(port, "device"));
	}
	ctl_table_print(&table, "");
	json_array_foreach(json_object_get(result, "ports"), i, port)
		print_troubles(port);
}

int
ctl_ports(struct ctl *ctl, int argc, char **argv)
{
	return ctl_show(ctl, argc, argv, "ports.list", print_ports);
}

static void
print_mac(const struct ctl *ctl, const json_t *result)
{
	static const char *const headers[] = { "MAC", ">VLAN", "PORT", ">AGE", NULL };
	struct ctl_table table;
	const json_t *entry;
	char age[CTL_NUMBER_LEN];
	size_t i;

	(void)ctl;
	if (json_array_size(json_object_get(result, "entries")) == 0) {
		printf("no address has been learned\n");
		return;
	}
	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(result, "entries"), i, entry) {
		ctl_table_cell(&table, "%s", ctl_string(entry, "mac"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(entry, "vlan"));
		ctl_table_cell(&table, "%s", ctl_string(entry, "port"));
		ctl_table_cell(&table, "%s", ctl_duration(ctl_real(entry, "age_s"), age));
	}
	ctl_table_print(&table, "");
}

int
ctl_mac(struct ctl *ctl, int argc, char **argv)
{
	return ctl_show(ctl, argc, argv, "mac.list", print_mac);
}

static const json_t *
find_drop(const json_t *drops, const char *name, struct text_guess *guess)
{
	const json_t *drop;
	size_t i;

	json_array_foreach(drops, i, drop) {
		if (strcmp(ctl_string(drop, "name"), name) == 0)
			return drop;
		text_guess_offer(guess, ctl_string(drop, "name"));
	}
	return NULL;
}

/* Returns the requested drops, a new reference; NULL if a name is unknown, after reporting it. */
static json_t *
select_drops(const json_t *drops, bool all, int n_names, char **names)
{
	json_t *selected = json_array();
	json_t *drop;
	size_t i;

	for (int n = 0; n < n_names; n++) {
		struct text_guess guess = { .word = names[n] };
		const json_t *found = find_drop(drops, names[n], &guess);

		if (found == NULL) {
			fprintf(stderr, "faninctl: no reason is named \"%.40s\"%s%s%s\n", names[n],
				guess.best == NULL ? "; see faninctl drops --all"
						   : " (did you mean \"",
				guess.best == NULL ? "" : guess.best,
				guess.best == NULL ? "" : "\"?)");
			json_decref(selected);
			return NULL;
		}
		json_array_append(selected, (json_t *)(uintptr_t)found);
	}
	json_array_foreach(drops, i, drop) {
		if (n_names == 0 && (all || ctl_integer(drop, "count") != 0))
			json_array_append(selected, drop);
	}
	return selected;
}

static void
print_drops_elsewhere(const json_t *elsewhere)
{
	static const char *const headers[] = { "PORT", "COUNTER", ">FRAMES", "WHICH MEANS", NULL };
	struct ctl_table table;
	const json_t *drop;
	size_t i;

	ctl_table_start(&table, headers);
	json_array_foreach(elsewhere, i, drop) {
		ctl_table_cell(&table, "%s",
			       json_object_get(drop, "port") == NULL ? "-"
								     : ctl_string(drop, "port"));
		ctl_table_cell(&table, "%s", ctl_string(drop, "name"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(drop, "count"));
		ctl_table_cell(&table, "%s", ctl_string(drop, "text"));
	}
	ctl_table_print(&table, "");
}

/* elsewhere: drops before and after the workers. Either may be empty. */
static void
print_drops(const json_t *drops, const json_t *elsewhere)
{
	static const char *const headers[] = { "REASON", ">PACKETS", "WHICH MEANS", NULL };
	struct ctl_table table;
	const json_t *drop;
	size_t i;

	if (json_array_size(drops) == 0)
		printf("the switch has dropped no packet\n");
	if (json_array_size(elsewhere) != 0) {
		print_drops_elsewhere(elsewhere);
		printf("\n");
	}
	if (json_array_size(drops) == 0)
		return;
	ctl_table_start(&table, headers);
	json_array_foreach(drops, i, drop) {
		ctl_table_cell(&table, "%s", ctl_string(drop, "name"));
		ctl_table_cell(&table, "%" PRId64, ctl_integer(drop, "count"));
		ctl_table_cell(&table, "%s", ctl_string(drop, "text"));
	}
	ctl_table_print(&table, "");
}

int
ctl_drops(struct ctl *ctl, int argc, char **argv)
{
	bool all = false;
	json_t *result, *selected, *elsewhere;
	int option;

	while ((option = ctl_next_option(ctl, argc, argv)) != -1) {
		if (option == '?')
			return CTL_USAGE;
		all = true;
	}
	result = ctl_call(ctl, "drops", NULL);
	if (result == NULL)
		return CTL_FAILED;
	all = all || (ctl->json && optind == argc);
	selected = select_drops(json_object_get(result, "drops"), all, argc - optind,
				argv + optind);
	elsewhere = optind == argc
			    ? select_drops(json_object_get(result, "elsewhere"), all, 0, NULL)
			    : json_array();
	if (selected != NULL && ctl->json) {
		json_object_set(result, "drops", selected);
		json_object_set(result, "elsewhere", elsewhere);
		ctl_print_json(result);
	} else if (selected != NULL) {
		print_drops(selected, elsewhere);
	}
	json_decref(result);
	json_decref(elsewhere);
	if (selected == NULL)
		return CTL_FAILED;
	json_decref(selected);
	return CTL_OK;
}

int
ctl_check(struct ctl *ctl, int argc, char **argv)
{
	char error[CONFIG_ERROR_LEN];
	struct config config;
	const char *path;
	json_t *verdict;
	int ret;

	if (ctl_operands(ctl, argc, argv, 1, 1) != CTL_OK)
		return CTL_USAGE;
	path = argv[optind];
	ret = config_load(path, &config, error);
	if (ret == 0)
		ret = config_check_machine(&config, path, error);
	if (ctl->json) {
		verdict = json_pack("{s:s, s:b, s:s*}", "file", path, "ok", ret == 0, "error",
				    ret == 0 ? NULL : error);
		ctl_print_json(verdict);
		json_decref(verdict);
	} else if (ret == 0) {
		printf("%s: ok\n", path);
	} else {
		fprintf(stderr, "faninctl: %s\n", error);
	}
	return ret == 0 ? CTL_OK : CTL_FAILED;
}
