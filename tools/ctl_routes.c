/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl's commands about IPv4 routing: routes and neighbors.
 */
#include <stdio.h>

#include "tools/ctl.h"
#include "tools/ctl_table.h"

/* Returns a text, or "-" for null: the switch doesn't know it. */
static const char *
text_or_dash(const json_t *object, const char *key)
{
	const char *text = ctl_string(object, key);

	return text[0] == '\0' ? "-" : text;
}

/*
 * Prints how often the next hop was lost, and how long it has been in its state; older switches do
 * not report this.
 */
static void
print_watched(struct ctl_table *table, const json_t *next_hops, const json_t *hop)
{
	const json_t *watched;
	char since[32];
	size_t i;

	json_array_foreach(next_hops, i, watched) {
		if (!json_equal(json_object_get(watched, "ip"), json_object_get(hop, "ip")) ||
		    !json_equal(json_object_get(watched, "port"), json_object_get(hop, "port")))
			continue;
		ctl_table_cell(table, "%.0f", ctl_real(watched, "lost"));
		ctl_table_cell(table, "%s",
			       json_is_null(json_object_get(watched, "since_s"))
				       ? "-"
				       : ctl_duration(ctl_real(watched, "since_s"), since));
		return;
	}
	ctl_table_cell(table, "-");
	ctl_table_cell(table, "-");
}

static void
print_routes(const struct ctl *ctl, const json_t *result)
{
	static const char *const headers[] = { "PREFIX", "PORT",  "NEXT HOP", "MAC",
					       "STATE",  ">LOST", ">SINCE",   NULL };
	struct ctl_table table;
	const json_t *route, *hop;
	size_t i, k;

	(void)ctl;
	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(result, "routes"), i, route) {
		const char *prefix = ctl_string(route, "prefix");

		if (ctl_is_true(route, "hosts")) {
			ctl_table_cell(&table, "%s", prefix);
			ctl_table_cell(&table, "-");
			ctl_table_cell(&table, "hosts");
			for (k = 0; k < 4; k++)
				ctl_table_cell(&table, "-");
		}
		json_array_foreach(json_object_get(route, "via"), k, hop) {
			ctl_table_cell(&table, "%s", k == 0 ? prefix : "");
			ctl_table_cell(&table, "%s", ctl_string(hop, "port"));
			ctl_table_cell(&table, "%s", ctl_string(hop, "ip"));
			ctl_table_cell(&table, "%s", text_or_dash(hop, "mac"));
			ctl_table_cell(&table, "%s", ctl_string(hop, "state"));
			print_watched(&table, json_object_get(result, "next_hops"), hop);
		}
	}
	ctl_table_print(&table, "");
}

int
ctl_routes(struct ctl *ctl, int argc, char **argv)
{
	return ctl_show(ctl, argc, argv, "routes.list", print_routes);
}

static void
print_neighbors(const struct ctl *ctl, const json_t *result)
{
	static const char *const headers[] = { "ADDRESS", "PORT",   "MAC", "KIND",
					       "STATE",   ">HEARD", NULL };
	struct ctl_table table;
	const json_t *neighbor;
	char age[CTL_NUMBER_LEN];
	size_t i;

	(void)ctl;
	if (json_array_size(json_object_get(result, "neighbors")) == 0) {
		printf("no neighbor is known\n");
		return;
	}
	ctl_table_start(&table, headers);
	json_array_foreach(json_object_get(result, "neighbors"), i, neighbor) {
		ctl_table_cell(&table, "%s", ctl_string(neighbor, "ip"));
		ctl_table_cell(&table, "%s", text_or_dash(neighbor, "port"));
		ctl_table_cell(&table, "%s", text_or_dash(neighbor, "mac"));
		ctl_table_cell(&table, "%s",
			       ctl_is_true(neighbor, "next_hop") ? "next hop" : "host");
		ctl_table_cell(&table, "%s", ctl_string(neighbor, "state"));
		ctl_table_cell(&table, "%s",
			       json_is_null(json_object_get(neighbor, "age_s"))
				       ? "-"
				       : ctl_duration(ctl_real(neighbor, "age_s"), age));
	}
	ctl_table_print(&table, "");
}

int
ctl_neighbors(struct ctl *ctl, int argc, char **argv)
{
	return ctl_show(ctl, argc, argv, "neighbors.list", print_neighbors);
}
