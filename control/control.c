/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control sockets: listens, and serves the clients in one poll loop that no client can block.
 * Runs on the main thread; control/control_request.c handles the lines.
 */
#include "control/control.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/control_client.h"
#include "control/listener.h"
#include "control/tls.h"

#define LINES_PER_ROUND 64   /* of one client in a round */
#define GREEDY_NS 1000000u   /* recent time that makes a client greedy */
#define TURN_NS 2000000u     /* turn of a greedy client */
#define ROUND_NS 20000000u   /* for all greedy clients in a round: the others wait */
#define IDLE_MS 2000         /* time without a request after which a client may have to make room */
#define UNREAD_MS 500        /* the same for a client that does not read its answers */
#define ACCEPTS_PER_ROUND 32 /* so that a flood of connections delays no client */
#define ACCEPT_PAUSE_MS 100  /* after running out of file descriptors */
#define HELLO_MIN_MS 40 /* least time for a handshake, however many others wait for its place */
/* Within this many seconds, a TCP client whose machine is gone is detected. */
#define KEEPALIVE_IDLE_S 2
#define KEEPALIVE_PROBES 3

/* All functions that open a listener write to the same buffer. */
static_assert(CONTROL_MESSAGE_LEN >= LISTENER_ERROR_LEN, "buffers");
static_assert(CONTROL_MESSAGE_LEN >= SECRET_ERROR_LEN, "buffers");
static_assert(CONTROL_MESSAGE_LEN >= TLS_ERROR_LEN, "buffers");
static_assert(CONTROL_MESSAGE_LEN >= ADDRESS_ERROR_LEN, "buffers");

enum {
	UNIX,
	TCP,
	N_LISTENERS
};

struct control {
	struct control_service service;
	struct listener listeners[N_LISTENERS]; /* fd -1: unused */
	struct tls *tls;                        /* TLS of the TCP listener; NULL: plain */
	uint64_t accept_after_ms[N_LISTENERS];
	uint64_t halved_ms;             /* when the clients' spent_ns were last halved */
	unsigned int first;             /* greedy client that is served first */
	struct control_client *clients; /* max_clients of them */
	struct pollfd *fds;             /* one for each client, each listener and wake_fd */
};

static unsigned int
count_held(const struct control_service *service, const struct guard_source *source)
{
	const struct control *control =
		(const void *)((const char *)service - offsetof(struct control, service));
	unsigned int n = 0;

	for (unsigned int i = 0; i < service->options.max_clients; i++) {
		const struct control_client *client = &control->clients[i];

		n += client->stream.fd >= 0 && client->refuse_ms != 0 &&
		     memcmp(&client->source, source, sizeof(*source)) == 0;
	}
	return n;
}

static bool
is_set(const char *text)
{
	return text != NULL && text[0] != '\0';
}

static int
open_tcp(struct control *control, const struct control_tcp *tcp, char *error)
{
	const struct tls_files files = { .certificate = tcp->certificate,
					 .key = tcp->key,
					 .ca = is_set(tcp->ca) ? tcp->ca : NULL };
	struct address address;
	int ret = control_tcp_check(tcp, error);

	if (ret != 0 || !is_set(tcp->listen))
		return ret;
	if (is_set(tcp->token_file))
		ret = secret_load(tcp->token_file, control->service.token, error);
	if (ret == 0 && is_set(tcp->certificate))
		ret = tls_server_create(&files, &control->tls, error);
	if (ret == 0)
		ret = address_parse(tcp->listen, 0, false, &address, error);
	if (ret != 0)
		return ret;
	return listener_open_tcp(&control->listeners[TCP], "control address", tcp->listen, &address,
				 SOMAXCONN, error);
}

int
control_open(const struct control_options *options, struct control **control, char *error)
{
	struct control *opened = calloc(1, sizeof(*opened));
	struct control_options *kept;
	int ret;

	if (opened == NULL)
		goto out_of_memory;
	kept = &opened->service.options;
	*kept = *options;
	if (kept->max_clients == 0)
		kept->max_clients = CONTROL_MAX_CLIENTS;
	if (kept->line_max == 0)
		kept->line_max = CONTROL_LINE_MAX;
	for (unsigned int i = 0; i < N_LISTENERS; i++)
		opened->listeners[i].fd = -1;
	opened->service.count_held = count_held;
	opened->clients = calloc(kept->max_clients, sizeof(*opened->clients));
	opened->fds = calloc(kept->max_clients + N_LISTENERS + 1, sizeof(*opened->fds));
	if (opened->clients == NULL || opened->fds == NULL)
		goto out_of_memory;
	for (unsigned int i = 0; i < kept->max_clients; i++)
		opened->clients[i].stream.fd = -1;
	ret = open_tcp(opened, &kept->tcp, error);
	if (ret == 0 && kept->path != NULL)
		ret = listener_open(&opened->listeners[UNIX], "control socket", kept->path,
				    SOCK_STREAM, (int)kept->max_clients, error);
	if (ret != 0) {
		control_close(opened);
		return ret;
	}
	*control = opened;
	return 0;

out_of_memory:
	snprintf(error, CONTROL_MESSAGE_LEN, "control socket: out of memory");
	if (opened != NULL)
		free(opened->clients);
	free(opened);
	return -ENOMEM;
}

uint16_t
control_tcp_port(const struct control *control)
{
	struct address address = { .len = sizeof(address.socket) };

	if (control->listeners[TCP].fd < 0 ||
	    getsockname(control->listeners[TCP].fd, (struct sockaddr *)&address.socket,
			&address.len) != 0)
		return 0;
	return address_port(&address);
}

/* A connection that has no place yet. */
struct guest {
	int fd;
	bool tcp;
	uid_t uid;                  /* of a Unix client */
	struct guard_source source; /* of a TCP client */
};

/*
 * Sends a new connection the error that there is no room for it, without waiting until it is read.
 * whose: "" or which user's the n clients are.
 */
static void
refuse_client(struct control *control, int fd, struct tls *tls, unsigned int n, const char *whose)
{
	struct control_client guest;
	struct control_error error;
	struct stream stream;
	json_t *answer;

	control->service.counters.too_many++;
	if (stream_accept(&stream, fd, tls) != 0) {
		close(fd);
		return;
	}
	control_client_start(&guest, &control->service, &stream, 0);
	control_fail(&error, "no_room",
		     "found %u clients%s connected already, expected fewer: try again later", n,
		     whose);
	answer = control_error_answer(NULL, &error);
	control_client_send(&guest, answer);
	json_decref(answer);
	control_client_stop(&guest);
}

static void
welcome_client(struct control *control, struct control_client *client, const struct guest *guest)
{
	const int fd = guest->fd;
	const bool tcp = guest->tcp;
	const int on = 1, idle_s = KEEPALIVE_IDLE_S, interval_s = 1, probes = KEEPALIVE_PROBES;
	const unsigned int unheard_ms = (KEEPALIVE_IDLE_S + KEEPALIVE_PROBES) * 1000;
	struct control_service *service = &control->service;
	uint64_t now = clock_ms();
	struct stream stream;
	json_t *greeting;

	if (stream_accept(&stream, fd, tcp ? control->tls : NULL) != 0) {
		close(fd);
		return;
	}
	control_client_start(client, service, &stream, now);
	client->tcp = tcp;
	client->uid = guest->uid;
	client->source = guest->source;
	client->number = ++service->counters.connections;
	if (tcp) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
		setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
		/* Keepalive does not work while data is unacknowledged. */
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unheard_ms, sizeof(unheard_ms));
	}
	if (service->options.answers_hello)
		return;
	greeting = control_greeting(service);
	if (control_client_send(client, greeting) != 0)
		control_client_stop(client);
	json_decref(greeting);
}

/*
 * Places for a new client: a free place or NULL, and the oldest client of its listener without a
 * handshake, which it may replace, or NULL.
 */
struct room {
	struct control_client *unused;
	struct control_client *oldest;
};

static struct room
look_for_room(struct control *control, bool tcp)
{
	const struct control_options *options = &control->service.options;
	struct room room = { 0 };
	unsigned int half_open = 0;

	for (unsigned int i = 0; i < options->max_clients; i++) {
		struct control_client *client = &control->clients[i];

		if (client->stream.fd < 0) {
			room.unused = client;
		} else if (client->tcp == tcp && !client->greeted) {
			half_open++;
			if (room.oldest == NULL || client->number < room.oldest->number)
				room.oldest = client;
		}
	}
	if (room.unused != NULL && half_open < options->max_clients / 2)
		room.oldest = NULL;
	return room;
}

/*
 * True if all clients that a new one could replace have only just connected: they need a moment for
 * the handshake, or no client would get in while connections pour in. New connections wait in the
 * kernel's queue.
 */
static bool
must_wait(struct control *control, const struct room *room, unsigned int listener)
{
	uint64_t until_ms;

	if (room->oldest == NULL)
		return false;
	until_ms = room->oldest->since_ms + HELLO_MIN_MS;
	if (clock_ms() >= until_ms)
		return false;
	control->accept_after_ms[listener] = until_ms;
	return true;
}

static bool
is_privileged(uid_t uid)
{
	return uid == 0 || uid == geteuid();
}

/*
 * Returns the number of a user's Unix clients if the user may have no more: half of all places, or
 * three quarters together with all other users. Otherwise returns 0.
 */
static unsigned int
share_used(const struct control *control, uid_t uid)
{
	const unsigned int most = control->service.options.max_clients;
	unsigned int own = 0, all = 0;

	for (unsigned int i = 0; i < most && !is_privileged(uid); i++) {
		const struct control_client *client = &control->clients[i];

		if (client->stream.fd < 0 || client->tcp || is_privileged(client->uid))
			continue;
		all++;
		own += client->uid == uid;
	}
	return own >= most / 2 || all >= most - most / 4 ? own : 0;
}

/*
 * Returns the number of Unix clients if there may be no more: one place of eight is for TCP, which
 * the manager uses. Otherwise returns 0.
 */
static unsigned int
unix_used(const struct control *control)
{
	const unsigned int most = control->service.options.max_clients;
	unsigned int n = 0;

	for (unsigned int i = 0; i < most; i++)
		n += control->clients[i].stream.fd >= 0 && !control->clients[i].tcp;
	return control->listeners[TCP].fd >= 0 && n >= most - most / 8 ? n : 0;
}

/*
 * Returns since when a client has been idle, if that is long enough to make room for another one,
 * otherwise UINT64_MAX.
 */
static uint64_t
idle_since(const struct control_client *client, uint64_t now)
{
	const bool unread = control_client_has_output(client) && client->deadline_ms != 0;
	const uint64_t since_ms = unread ? client->deadline_ms - CONTROL_STALL_MS
					 : client->heard_ms;

	return now >= since_ms + (unread ? UNREAD_MS : IDLE_MS) ? since_ms : UINT64_MAX;
}

/*
 * Returns the Unix client that has been idle the longest, and long enough to make room; NULL: none.
 * uid: NULL: any user's.
 */
static struct control_client *
find_idlest(struct control *control, const uid_t *uid)
{
	const uint64_t now = clock_ms();
	struct control_client *idlest = NULL;
	uint64_t min_ms = UINT64_MAX;

	for (unsigned int i = 0; i < control->service.options.max_clients; i++) {
		struct control_client *client = &control->clients[i];
		uint64_t since_ms;

		if (client->stream.fd < 0 || client->tcp || !client->greeted ||
		    client->data != NULL || client->n_later > 0 ||
		    (uid != NULL && client->uid != *uid))
			continue;
		since_ms = idle_since(client, now);
		if (since_ms >= min_ms)
			continue;
		min_ms = since_ms;
		idlest = client;
	}
	return idlest;
}

/* Gives a new connection its place, or refuses it. */
static void
place_guest(struct control *control, const struct guest *guest, struct room room)
{
	const unsigned int used = guest->tcp ? 0 : share_used(control, guest->uid);
	const unsigned int crowd = guest->tcp ? 0 : unix_used(control);
	struct control_client *idlest = NULL;
	char whose[32] = "";

	if (room.oldest != NULL) {
		control->service.counters.half_open_dropped++;
		control_client_stop(room.oldest);
		room.unused = room.oldest;
	} else if (used > 0 || room.unused == NULL || crowd > 0) {
		room.unused = NULL;
		idlest = find_idlest(control, used > 0 ? &guest->uid : NULL);
	}
	if (idlest != NULL) {
		control->service.counters.idle_dropped++;
		control_client_stop(idlest);
		room.unused = idlest;
	} else if (used > 0) {
		snprintf(whose, sizeof(whose), " of user %u", guest->uid);
	}
	if (room.unused == NULL)
		refuse_client(control, guest->fd, guest->tcp ? control->tls : NULL,
			      used > 0    ? used
			      : crowd > 0 ? crowd
					  : control->service.options.max_clients,
			      whose);
	else
		welcome_client(control, room.unused, guest);
}

static void
accept_clients(struct control *control, bool tcp)
{
	const unsigned int listener = tcp ? TCP : UNIX;

	for (unsigned int n = 0; n < ACCEPTS_PER_ROUND; n++) {
		struct room room = look_for_room(control, tcp);
		struct sockaddr_storage from = { 0 };
		socklen_t from_len = sizeof(from);
		struct ucred peer = { .uid = (uid_t)-1 };
		socklen_t peer_len = sizeof(peer);
		struct guest guest = { .tcp = tcp };

		if (must_wait(control, &room, listener))
			return;
		guest.fd = accept4(control->listeners[listener].fd, (struct sockaddr *)&from,
				   &from_len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (guest.fd < 0) {
			if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
				control->accept_after_ms[listener] = clock_ms() + ACCEPT_PAUSE_MS;
			return;
		}
		if (tcp)
			guest.source = guard_source_of(&from);
		else if (getsockopt(guest.fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_len) == 0)
			guest.uid = peer.uid;
		place_guest(control, &guest, room);
	}
}

/* A line that is too long can't be skipped safely: sends an error and closes. */
static int
end_long_line(struct control_client *client)
{
	struct control_error error;
	json_t *answer;
	int ret;

	client->service->counters.line_long++;
	client->closing = true;
	control_fail(&error, "invalid",
		     "found a line of more than %zu bytes, expected a newline before",
		     control_client_line_max(client));
	answer = control_error_answer(NULL, &error);
	ret = control_client_send(client, answer);
	json_decref(answer);
	return ret;
}

/*
 * Runs the received lines, as far as the client's turn lasts. Returns 0, or -errno if the
 * connection is lost.
 */
static int
run_lines(struct control_client *client, uint64_t now)
{
	const uint64_t max_ns = client->spent_ns < GREEDY_NS ? GREEDY_NS
							     : client->spent_ns + TURN_NS;
	const char *line;
	size_t len;
	int ret;

	for (unsigned int n = 0; n < LINES_PER_ROUND && control_client_wants_input(client); n++) {
		const uint64_t start_ns = clock_ns();

		line = control_client_line(client, &len);
		if (line == NULL)
			return 0;
		if (len > control_client_line_max(client))
			return end_long_line(client);
		ret = control_request(client, line, len, now);
		if (ret != 0)
			return ret;
		client->spent_ns += clock_ns() - start_ns;
		if (client->spent_ns >= max_ns)
			return 0;
	}
	return 0;
}

static void
serve_client(struct control_client *client, short events, uint64_t now)
{
	int ret = client->lost ? client->ended_by : 0;

	if (ret == 0 && client->refuse_ms != 0 && now >= client->refuse_ms)
		ret = control_refuse_token(client, now);
	if (ret == 0 && control_client_has_output(client))
		ret = control_client_flush(client);
	if (ret == 0 && (events != 0 || stream_has_pending(&client->stream)) &&
	    control_client_wants_input(client) && !client->ended &&
	    !control_client_has_line(client)) {
		ret = control_client_receive(client);
		if (ret == -EMSGSIZE)
			ret = end_long_line(client);
	}
	if (ret == 0)
		ret = run_lines(client, now);
	control_client_rest(client);
	if (ret == 0 && !control_client_has_output(client) &&
	    (client->closing || (client->ended && !control_client_has_line(client))))
		ret = -ECONNRESET;
	if (ret == 0 && client->deadline_ms != 0 && now >= client->deadline_ms) {
		if (client->greeted)
			client->service->counters.stalled++;
		else
			client->service->counters.hello_late++;
		ret = -ETIMEDOUT;
	}
	if (ret != 0) {
		client->ended_by = ret;
		control_client_stop(client);
	}
}

/*
 * Returns the events to poll for on a client's connection; lowers *wake_ms to when it must be
 * checked without an event.
 */
static short
client_events(struct control_client *client, uint64_t now, uint64_t *wake_ms)
{
	bool wants_input = control_client_wants_input(client);
	short events = 0;

	if (client->deadline_ms != 0 && client->deadline_ms < *wake_ms)
		*wake_ms = client->deadline_ms;
	if (client->refuse_ms != 0 && client->refuse_ms < *wake_ms)
		*wake_ms = client->refuse_ms;
	if (control_client_has_output(client))
		events |= client->stream.send_events;
	if (client->lost || (wants_input && (control_client_has_line(client) ||
					     stream_has_pending(&client->stream))))
		*wake_ms = now;
	else if (wants_input && !client->ended)
		events |= client->stream.receive_events;
	return events;
}

static bool
is_greedy(const struct control_client *client)
{
	return client->spent_ns >= GREEDY_NS;
}

/*
 * Serves Unix clients, or greedy clients of both kinds, in turns, as long as the round has time for
 * them.
 */
static void
serve_in_turns(struct control *control, bool greedy, uint64_t start_ns, uint64_t now)
{
	const unsigned int n = control->service.options.max_clients;
	const unsigned int first = control->first;

	for (unsigned int k = 0; k < n; k++) {
		const unsigned int i = (first + k) % n;
		struct control_client *client = &control->clients[i];

		if (client->stream.fd < 0 || client->served || is_greedy(client) != greedy)
			continue;
		if (clock_ns() - start_ns >= ROUND_NS) {
			control->first = i;
			return;
		}
		client->served = true;
		serve_client(client, control->fds[i].revents, now);
	}
}

/*
 * Serves TCP clients first, such as the manager and its hosts, then the other clients whose
 * requests take little time, then the greedy ones: a client that keeps the daemon busy delays
 * itself.
 */
static void
serve_clients(struct control *control, uint64_t now)
{
	const uint64_t start_ns = clock_ns();
	const bool halve = now >= control->halved_ms + CONTROL_SPENT_MS;

	if (halve)
		control->halved_ms = now;
	for (unsigned int i = 0; i < control->service.options.max_clients; i++) {
		struct control_client *client = &control->clients[i];

		if (halve)
			client->spent_ns /= 2;
		client->served = client->tcp && !is_greedy(client);
		if (client->stream.fd >= 0 && client->served)
			serve_client(client, control->fds[i].revents, now);
	}
	serve_in_turns(control, false, start_ns, now);
	serve_in_turns(control, true, start_ns, now);
}

/*
 * Polls once and handles the events. Returns 1 if wake_fd is readable, 0 if not, -errno on failure.
 */
static int
serve_round(struct control *control, int wake_fd, uint64_t wake_ms)
{
	const unsigned int n_clients = control->service.options.max_clients;
	struct pollfd *listening = &control->fds[n_clients];
	struct pollfd *wake = &listening[N_LISTENERS];
	uint64_t now = clock_ms();
	int timeout_ms;

	for (unsigned int i = 0; i < n_clients; i++) {
		struct control_client *client = &control->clients[i];

		/*
		 * A client whose refusal is delayed keeps its place until then, whatever happens to
		 * its connection.
		 */
		control->fds[i] = (struct pollfd){ .fd = client->refuse_ms != 0 && !client->lost
								 ? -1
								 : client->stream.fd };
		if (client->stream.fd >= 0)
			control->fds[i].events = client_events(client, now, &wake_ms);
	}
	for (unsigned int i = 0; i < N_LISTENERS; i++) {
		const uint64_t after_ms = control->accept_after_ms[i];

		listening[i] = (struct pollfd){ .fd = control->listeners[i].fd, .events = POLLIN };
		if (after_ms <= now)
			continue;
		listening[i].fd = -1;
		if (after_ms < wake_ms)
			wake_ms = after_ms;
	}
	*wake = (struct pollfd){ .fd = wake_fd, .events = POLLIN };

	timeout_ms = wake_ms == UINT64_MAX ? -1 : wake_ms <= now ? 0 : (int)(wake_ms - now);
	if (poll(control->fds, n_clients + N_LISTENERS + 1, timeout_ms) < 0)
		return errno == EINTR ? 0 : -errno;
	now = clock_ms();
	serve_clients(control, now);
	for (unsigned int i = 0; i < N_LISTENERS; i++) {
		if (listening[i].revents != 0)
			accept_clients(control, i == TCP);
	}
	if ((wake->revents & POLLNVAL) != 0)
		return -EBADF;
	return wake->revents != 0;
}

int
control_serve(struct control *control, int wake_fd, int timeout_ms)
{
	uint64_t end_ms = timeout_ms < 0 ? UINT64_MAX : clock_ms() + (uint64_t)timeout_ms;
	int ret;

	do {
		ret = serve_round(control, wake_fd, end_ms);
	} while (ret == 0 && clock_ms() < end_ms);
	return ret;
}

const struct control_counters *
control_counters(const struct control *control)
{
	return &control->service.counters;
}

json_t *
control_counters_json(const struct control *control)
{
	const struct control_counters *counters = &control->service.counters;
	json_t *object = json_object();

#define SET_COUNTER(name, text)                                                                    \
	json_object_set_new(object, #name, json_integer((json_int_t)counters->name));
	CONTROL_COUNTERS(SET_COUNTER)
#undef SET_COUNTER
	return object;
}

void
control_close(struct control *control)
{
	if (control == NULL)
		return;
	for (unsigned int i = 0; i < control->service.options.max_clients; i++) {
		if (control->clients[i].stream.fd >= 0)
			control_client_stop(&control->clients[i]);
	}
	for (unsigned int i = 0; i < N_LISTENERS; i++) {
		if (control->listeners[i].fd >= 0)
			listener_close(&control->listeners[i]);
	}
	tls_free(control->tls);
	free(control->clients);
	free(control->fds);
	free(control);
}
