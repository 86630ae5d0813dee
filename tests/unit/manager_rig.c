/* SPDX-License-Identifier: BSD-3-Clause */
/* See manager_rig.h. */
#include "tests/unit/manager_rig.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <check.h>
#include <sqlite3.h>

#include "control/log.h"
#include "manager/move.h"
#include "manager/reconcile.h"
#include "wire/wire.h"

#define MTU 9000

static const char topology[] =
	"{\"switches\":[{\"name\":\"leaf0\",\"control\":\"/none\"},{\"name\":\"leaf1\",\"control\":\"/none\"},"
	"{\"name\":\"spine0\",\"control\":\"/none\"},{\"name\":\"spine1\",\"control\":\"/none\"},"
	"{\"name\":\"spine2\",\"control\":\"/none\"},{\"name\":\"leaf2\",\"control\":\"/none\"}],"
	"\"links\":[{\"a\":\"leaf0:u0\",\"b\":\"spine0:p0\"},{\"a\":\"leaf0:u1\",\"b\":\"spine1:p0\"},"
	"{\"a\":\"leaf0:u2\",\"b\":\"spine2:p0\"},{\"a\":\"leaf1:u0\",\"b\":\"spine0:p1\"},"
	"{\"a\":\"leaf1:u1\",\"b\":\"spine1:p1\"},{\"a\":\"leaf1:u2\",\"b\":\"spine2:p1\"},"
	"{\"a\":\"leaf2:u0\",\"b\":\"spine0:p2\"},{\"a\":\"leaf2:u1\",\"b\":\"spine1:p2\"},"
	"{\"a\":\"leaf2:u2\",\"b\":\"spine2:p2\"}],"
	"\"hosts\":[{\"links\":[{\"ip\":\"10.0.0.1\",\"switch\":\"leaf0\",\"port\":\"h0\"},"
	"{\"ip\":\"10.0.2.1\",\"switch\":\"leaf2\",\"port\":\"h0\"}]},"
	"{\"ip\":\"10.0.1.1\",\"switch\":\"leaf1\",\"port\":\"h0\"}]}";

/* The parameter servers. */
static const char servers_listed[] =
	"[{\"name\":\"server0\",\"control\":\"/none\",\"switch\":\"spine0\",\"port\":\"s0\"},"
	"{\"name\":\"server1\",\"control\":\"/none\",\"switch\":\"spine1\",\"port\":\"s0\"}]";

/* The test's end of a connection. */
struct end {
	FILE *stream; /* NULL: there is none */
};

struct manager_rig manager_rig;

static char directory[] = "/tmp/fanin-jobs-XXXXXX";
static struct end switches[MANAGER_RIG_PEERS];
static struct end hosts[MANAGER_RIG_HOSTS];
static struct control_service service; /* of the hosts' connections */
static const char *const port_names[MANAGER_RIG_PORTS] = { "u0", "u1", "u2", "p0",
							   "p1", "p2", "h0", "s0" };

static bool
is_server(uint16_t index)
{
	return index >= MANAGER_RIG_SWITCHES;
}

/* Makes a connection; one end is put into *stream, the other one is returned. */
static struct end
make_end(struct stream *stream)
{
	struct end end;
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	ck_assert_int_eq(stream_accept(stream, fds[0], NULL), 0);
	end.stream = fdopen(fds[1], "r+");
	ck_assert_ptr_nonnull(end.stream);
	return end;
}

static void
close_end(struct end *end)
{
	if (end->stream != NULL)
		fclose(end->stream);
	end->stream = NULL;
}

/* Returns the next line that was sent to this end; NULL: there is none. */
static json_t *
receive(struct end *end)
{
	static char line[1 << 16];

	if (end->stream == NULL)
		return NULL;
	clearerr(end->stream);
	return fgets(line, sizeof(line), end->stream) == NULL ? NULL : json_loads(line, 0, NULL);
}

/* Returns a switch's jobs, as jobs.list does. */
static json_t *
list_jobs(uint16_t index)
{
	json_t *list = json_array();
	const char *number;
	json_t *value;

	json_object_foreach(manager_rig.jobs[index], number, value)
		json_array_append_new(list,
				      json_pack("{s:i, s:O}", "id", atoi(number), "owner", value));
	return json_pack("{s:o, s:{s:I, s:i}}", "jobs", list, "limits", "max_jobs",
			 (json_int_t)manager_rig.max_jobs, "slots_per_job", 64);
}

/*
 * The handlers in a switch's `version`: a usual one; one for reproducible jobs, whose slots hold
 * more and whose shape is missing, as in former releases; one of multicast; one of parameter
 * servers; one whose hosts lead blocks; and one of a shape that no manager knows.
 */
static const char handlers[] =
	"[{\"name\":\"usual\",\"default\":true,\"in_order\":false,\"shape\":\"tree\",\"slot_mbufs\":{\"fixed\":1}},"
	"{\"name\":\"ordered\",\"default\":false,\"in_order\":true,\"order\":\"ranks\",\"slot_mbufs\":{\"per_pair\":1}},"
	"{\"name\":\"casting\",\"default\":false,\"in_order\":false,\"shape\":\"multicast\",\"slot_mbufs\":{}},"
	"{\"name\":\"serving\",\"default\":false,\"in_order\":false,\"shape\":\"server\",\"slot_mbufs\":{\"fixed\":1}},"
	"{\"name\":\"leading\",\"default\":false,\"in_order\":false,\"shape\":\"leaders\",\"slot_mbufs\":{\"fixed\":1},"
	"\"parameters\":[{\"name\":\"timeout_us\"},{\"name\":\"hold_us\"}]},"
	"{\"name\":\"strange\",\"default\":false,\"in_order\":false,\"shape\":\"moebius\",\"slot_mbufs\":{}}]";

/* The handlers of another build. */
static const char other_handlers[] =
	"[{\"name\":\"another\",\"default\":true,\"in_order\":true,\"order\":\"ranks\",\"slot_mbufs\":{\"fixed\":1}},"
	"{\"name\":\"usual\",\"default\":false,\"in_order\":false,\"slot_mbufs\":{\"fixed\":1}},"
	"{\"name\":\"casting\",\"default\":false,\"in_order\":false,\"shape\":\"tree\",\"slot_mbufs\":{\"fixed\":1}}]";

static const char server_handlers[] =
	"[{\"name\":\"serving\",\"default\":true,\"in_order\":false,\"shape\":\"server\",\"slot_mbufs\":{\"fixed\":1}}]";

/* Changes handlers to those of a switch that combines in another order than that of ranks. */
static json_t *
without_order(json_t *list)
{
	json_t *handler;
	size_t i;

	json_array_foreach(list, i, handler)
		json_object_del(handler, "order");
	return list;
}

static json_t *
list_handlers(uint16_t index)
{
	json_t *list;

	/* The format of former releases. */
	if (manager_rig.has_old_handlers[index])
		return json_pack("[{s:s}]", "name", "usual");
	if (is_server(index))
		return json_loads(server_handlers, 0, NULL);
	list = json_loads(manager_rig.has_other_handlers[index] ? other_handlers : handlers, 0,
			  NULL);
	return manager_rig.has_other_order[index] ? without_order(list) : list;
}

/* A server has only the last port. */
static size_t
first_port(uint16_t index)
{
	return is_server(index) ? MANAGER_RIG_PORTS - 1 : 0;
}

static json_t *
list_ports(uint16_t index)
{
	json_t *list = json_array();

	for (size_t i = first_port(index); i < MANAGER_RIG_PORTS; i++)
		json_array_append_new(list,
				      json_pack("{s:s, s:i, s:b}", "name", port_names[i], "mtu",
						MTU, "link", !manager_rig.port_is_down[index][i]));
	return json_pack("{s:o}", "ports", list);
}

/* Returns the answer to a ping. */
static json_t *
list_ports_down(uint16_t index)
{
	json_t *list = json_array();

	for (size_t i = first_port(index); i < MANAGER_RIG_PORTS; i++) {
		if (manager_rig.port_is_down[index][i])
			json_array_append_new(list, json_string(port_names[i]));
	}
	return json_pack("{s:i, s:o}", "jobs", (int)json_object_size(manager_rig.jobs[index]),
			 "ports_down", list);
}

/*
 * Checks arguments that real ones would refuse: a server has one member, with all ranks, and a
 * switch at most one parent.
 */
static void
check_create(uint16_t index, const json_t *args)
{
	const json_t *members = json_object_get(args, "members");
	const json_t *parent = json_object_get(args, "parent");
	const bool serving = strcmp(json_string_value(json_object_get(args, "handler")),
				    "serving") == 0;

	ck_assert(serving || (!is_server(index) && json_object_get(parent, "server") == NULL));
	ck_assert(!serving || is_server(index) || parent != NULL);
	if (!is_server(index))
		return;
	ck_assert_uint_eq(json_array_size(members), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(members, 0), "ranks")),
			  (size_t)json_integer_value(json_object_get(args, "size")));
	ck_assert_ptr_null(parent);
	ck_assert_ptr_nonnull(json_object_get(args, "slots"));
}

static json_t *
create_or_destroy(uint16_t index, const char *command, const json_t *args, const char **code)
{
	char number[16];

	snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
		 json_integer_value(json_object_get(args, "id")));
	if (strcmp(command, "jobs.create") == 0) {
		const bool full = manager_rig.full[index] ||
				  json_object_size(manager_rig.jobs[index]) >= manager_rig.max_jobs;

		check_create(index, args);
		*code = full ? "no_room" : "exists";
		if (full || json_object_get(manager_rig.jobs[index], number) != NULL)
			return NULL;
		json_object_set(manager_rig.jobs[index], number, json_object_get(args, "owner"));
		json_decref(manager_rig.created[index]);
		manager_rig.created[index] = json_deep_copy(args);
		return json_pack("{s:i, s:i, s:i, s:{s:i, s:i}}", "window", 32, "pool_slots",
				 128 + index, "sharing", 1, "parameters", "hold_us", 70,
				 "timeout_us", 5);
	}
	ck_assert_str_eq(command, "jobs.destroy");
	*code = "not_found";
	if (!json_equal(json_object_get(manager_rig.jobs[index], number),
			json_object_get(args, "owner")))
		return NULL;
	return json_object_del(manager_rig.jobs[index], number) == 0 ? json_object() : NULL;
}

/* Returns a switch's answer about addresses. */
static json_t *
find_hosts(uint16_t index, const json_t *args)
{
	static const unsigned int subnets[MANAGER_RIG_SWITCHES] = {
		[LEAF0] = 0, [LEAF1] = 1, [LEAF2] = 2, [SPINE0] = 10, [SPINE1] = 11, [SPINE2] = 12
	};
	json_t *list = json_array();
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(args, "hosts"), i, entry) {
		const char *ip = json_string_value(json_object_get(entry, "ip"));
		unsigned int subnet, host;
		const char *port = NULL;

		ck_assert_int_eq(sscanf(ip, "10.0.%u.%u", &subnet, &host), 2);
		if (subnet == subnets[index] && host == 1 && !manager_rig.is_silent[index])
			port = "h0";
		else if (manager_rig.sees_others[index])
			port = index == LEAF0 || index == LEAF1 || index == LEAF2 ? "u0" : "p0";
		json_array_append_new(list,
				      json_pack("{s:s, s:s?, s:b}", "ip", ip, "port", port, "asked",
						port == NULL && subnet == subnets[index]));
	}
	return json_pack("{s:o}", "hosts", list);
}

/* Carries out a request. Returns the result, a new reference, or NULL with the code of an error. */
static json_t *
obey(uint16_t index, const json_t *asked, const char **code)
{
	const char *command = json_string_value(json_object_get(asked, "cmd"));
	char ip[16];

	snprintf(ip, sizeof(ip), "10.1.0.%u", index);
	if (strcmp(command, "version") == 0)
		return json_pack("{s:s, s:s, s:i, s:I, s:o, s:s*}", "ip", ip, "mac",
				 "02:fa:00:00:00:01", "udp_port", 21930, "packet_version",
				 (json_int_t)(manager_rig.is_before[index] ? 2
									   : FANIN_WIRE_VERSION),
				 "handlers", list_handlers(index), "kind",
				 is_server(index) != manager_rig.is_other_kind[index] ? "server"
										      : NULL);
	if (strcmp(command, "ports.list") == 0)
		return list_ports(index);
	if (strcmp(command, "routes.list") == 0)
		return json_pack("{s:[]}", "routes");
	if (strcmp(command, "ping") == 0)
		return list_ports_down(index);
	if (strcmp(command, "jobs.list") == 0)
		return list_jobs(index);
	if (strcmp(command, "hosts.find") == 0)
		return manager_rig.is_old[index]
			       ? NULL
			       : find_hosts(index, json_object_get(asked, "args"));
	return create_or_destroy(index, command, json_object_get(asked, "args"), code);
}

bool
manager_rig_serve_one(uint16_t index)
{
	json_t *asked = receive(&switches[index]);
	struct peer *peer = &manager_rig.manager->peers[index];
	struct peer_request *request = TAILQ_FIRST(&peer->requests);
	const char *code = "";
	json_t *result;

	if (asked == NULL)
		return false;
	ck_assert_ptr_nonnull(request);
	result = obey(index, asked, &code);
	TAILQ_REMOVE(&peer->requests, request, entry);
	request->answer(request->user, request->which, peer, result, code, "so the test says");
	free(request);
	json_decref(result);
	json_decref(asked);
	return true;
}

unsigned int
manager_rig_serve_switch(uint16_t index)
{
	unsigned int n = 0;

	while (manager_rig_serve_one(index))
		n++;
	return n;
}

/* Makes the connection; the first requests are sent. */
static void
open_line(uint16_t index)
{
	struct peer *peer = &manager_rig.manager->peers[index];
	struct stream stream;

	switches[index] = make_end(&stream);
	control_client_start(&peer->line, &peer->service, &stream, 0);
	peer->state = PEER_LEARNING;
	reconcile_ready(manager_rig.manager, peer);
}

void
manager_rig_try(uint16_t index)
{
	open_line(index);
	ck_assert(manager_rig_serve_one(index));
	if (manager_rig.manager->peers[index].state == PEER_DOWN)
		close_end(&switches[index]);
}

void
manager_rig_raise(uint16_t index)
{
	struct peer *peer = &manager_rig.manager->peers[index];

	open_line(index);
	/* The requests are for its version, its ports, its routes and its jobs. */
	for (unsigned int i = 0; i < 4; i++)
		ck_assert(manager_rig_serve_one(index));
	ck_assert_int_eq(peer->state, PEER_UP);
}

void
manager_rig_lose(uint16_t index)
{
	close_end(&switches[index]);
	peer_lose(&manager_rig.manager->peers[index], "the test has killed it");
}

void
manager_rig_look_at(uint16_t index)
{
	reconcile_tick(manager_rig.manager, &manager_rig.manager->peers[index], UINT64_MAX / 2);
}

void
manager_rig_serve_all(void)
{
	unsigned int n;

	do {
		n = 0;
		/* As at the end of each turn. */
		moves_end_jobs(manager_rig.manager);
		for (uint16_t i = 0; i < manager_rig.n_peers; i++)
			n += manager_rig_serve_switch(i);
	} while (n > 0);
}

static void
start_manager(void)
{
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(manager_open(&manager_rig.config, &manager_rig.manager, error) == 0, "%s",
		      error);
	for (uint16_t i = 0; i < manager_rig.n_peers; i++)
		manager_rig_raise(i);
}

static void
close_manager(void)
{
	manager_close(manager_rig.manager);
	manager_rig.manager = NULL;
	for (uint16_t i = 0; i < manager_rig.n_peers; i++)
		close_end(&switches[i]);
}

void
manager_rig_restart(void)
{
	close_manager();
	start_manager();
}

void
manager_rig_restart_after(const char *sql)
{
	sqlite3 *database;

	close_manager();
	ck_assert_int_eq(sqlite3_open(manager_rig.config.database, &database), SQLITE_OK);
	ck_assert_msg(sqlite3_exec(database, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql,
		      sqlite3_errmsg(database));
	ck_assert_int_gt(sqlite3_changes(database), 0);
	sqlite3_close(database);
	start_manager();
}

/* root: of the topology; taken over. */
static void
begin(json_t *root)
{
	struct control_error error;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	log_init("manager-jobs", LOG_LEVEL_ERROR);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	ck_assert_int_eq(topology_read(root, "topology", &manager_rig.config.topology, &error), 0);
	json_decref(root);
	manager_rig.config.name = "m0";
	snprintf(manager_rig.config.database, sizeof(manager_rig.config.database), "%s/db",
		 directory);
	manager_rig.config.max_connections = 8;
	manager_rig.config.max_jobs = 8;
	manager_rig.config.grace_ms = 60000;
	manager_rig.config.trees = 1;
	manager_rig.max_jobs = 8;
	manager_rig.n_peers = topology_n_peers(&manager_rig.config.topology);
	for (unsigned int i = 0; i < MANAGER_RIG_PEERS; i++)
		manager_rig.jobs[i] = json_object();
	start_manager();
	service.options.line_max = 1 << 16;
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		struct stream stream;

		hosts[i] = make_end(&stream);
		control_client_start(&manager_rig.clients[i], &service, &stream, 0);
		manager_rig.clients[i].packet_version = FANIN_WIRE_VERSION;
	}
}

void
manager_rig_begin(void)
{
	begin(json_loads(topology, 0, NULL));
}

void
manager_rig_begin_servers(void)
{
	json_t *root = json_loads(topology, 0, NULL);

	json_object_set_new(root, "servers", json_loads(servers_listed, 0, NULL));
	begin(root);
}

void
manager_rig_begin_unlisted(void)
{
	json_t *root = json_loads(topology, 0, NULL);

	json_object_del(root, "hosts");
	begin(root);
}

void
manager_rig_end(void)
{
	char name[PATH_MAX + 8];

	close_manager();
	for (unsigned int i = 0; i < MANAGER_RIG_HOSTS; i++) {
		control_client_stop(&manager_rig.clients[i]);
		close_end(&hosts[i]);
	}
	for (unsigned int i = 0; i < MANAGER_RIG_PEERS; i++) {
		json_decref(manager_rig.jobs[i]);
		json_decref(manager_rig.created[i]);
		manager_rig.created[i] = NULL;
	}
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s%s", manager_rig.config.database,
			 i == 0   ? ""
			 : i == 1 ? "-wal"
				  : "-shm");
		unlink(name);
	}
	ck_assert_int_eq(rmdir(directory), 0);
	manager_config_free(&manager_rig.config);
}
void
manager_rig_do_unheard(uint16_t index)
{
	json_t *asked = receive(&switches[index]);
	const char *code;

	if (asked != NULL)
		json_decref(obey(index, asked, &code));
	json_decref(asked);
	manager_rig_lose(index);
}

bool
manager_rig_is_up(uint16_t index)
{
	return switches[index].stream != NULL;
}

json_t *
manager_rig_hear(unsigned int rank)
{
	return receive(&hosts[rank]);
}
