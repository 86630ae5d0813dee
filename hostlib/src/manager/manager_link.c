/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See manager_link.h. OpenSSL reads from and writes to memory, never to the socket: a write to a
 * connection that has ended would raise SIGPIPE in a process that is not ours.
 */
#include "manager_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_CHUNK 16384
#define LINE_MAX_LEN (1u << 20)

/* Pending bytes, from start to end. */
struct buffer {
	char *data;
	size_t start;
	size_t end;
	size_t size;
};

struct fanin_link {
	const struct fanin_manager_settings *settings;
	int fd;
	bool connected;
	bool heard;       /* some bytes have been received */
	bool closed;      /* by the manager */
	SSL_CTX *context; /* NULL: no TLS */
	SSL *ssl;         /* owns the two BIOs below */
	BIO *ssl_in;
	BIO *ssl_out;
	struct buffer in;    /* received lines */
	struct buffer plain; /* TLS: lines that wait for the handshake to finish */
	struct buffer out;   /* to be sent by the socket */
};

static bool
buffer_add(struct buffer *buffer, const void *bytes, size_t len)
{
	size_t used = buffer->end - buffer->start;

	if (buffer->size - buffer->end < len) {
		size_t size = used + len + 4096;
		char *data = malloc(size);

		if (data == NULL)
			return false;
		if (used != 0)
			memcpy(data, buffer->data + buffer->start, used);
		free(buffer->data);
		*buffer = (struct buffer){ .data = data, .end = used, .size = size };
	}
	memcpy(buffer->data + buffer->end, bytes, len);
	buffer->end += len;
	return true;
}

static void
buffer_take(struct buffer *buffer, size_t len)
{
	buffer->start += len;
	if (buffer->start == buffer->end)
		buffer->start = buffer->end = 0;
}

static int
out_of_memory(struct fanin_error *error)
{
	return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
}

/* ------------------------------------------------------------------- TLS */

/* Fails with OpenSSL's text about its last error. */
static int
tls_fail(const struct fanin_link *link, const char *what, struct fanin_error *error)
{
	long verified = link->ssl != NULL ? SSL_get_verify_result(link->ssl) : X509_V_OK;
	unsigned long code = ERR_get_error();
	const char *reason = ERR_reason_error_string(code);

	/* OpenSSL reports this error for plain text. */
	if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
		reason = "the manager does not speak TLS (wrong version number)";
	if (verified != X509_V_OK)
		reason = X509_verify_cert_error_string(verified);
	ERR_clear_error();
	return fanin_error_set(error, FANIN_ERR_MANAGER, "TLS with the manager %s: %s: %s",
			       link->settings->address, what,
			       reason != NULL ? reason : "no reason given");
}

static int
tls_open(struct fanin_link *link, struct fanin_error *error)
{
	const struct fanin_manager_settings *settings = link->settings;
	struct in_addr ip;
	int named;

	link->context = SSL_CTX_new(TLS_client_method());
	if (link->context == NULL)
		return tls_fail(link, "cannot be set up", error);
	SSL_CTX_set_min_proto_version(link->context, TLS1_2_VERSION);
	SSL_CTX_set_verify(link->context, SSL_VERIFY_PEER, NULL);
	if (settings->ca[0] == '\0'
		    ? SSL_CTX_set_default_verify_paths(link->context) != 1
		    : SSL_CTX_load_verify_locations(link->context, settings->ca, NULL) != 1)
		return tls_fail(link,
				settings->ca[0] == '\0' ? "no trusted certificates" : settings->ca,
				error);
	link->ssl = SSL_new(link->context);
	link->ssl_in = BIO_new(BIO_s_mem());
	link->ssl_out = BIO_new(BIO_s_mem());
	if (link->ssl == NULL || link->ssl_in == NULL || link->ssl_out == NULL) {
		BIO_free(link->ssl_in);
		BIO_free(link->ssl_out);
		return out_of_memory(error);
	}
	/* Reading from an empty buffer must not end the stream. */
	BIO_set_mem_eof_return(link->ssl_in, -1);
	SSL_set_bio(link->ssl, link->ssl_in, link->ssl_out);
	SSL_set_connect_state(link->ssl);
	if (inet_pton(AF_INET, settings->host, &ip) == 1)
		named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(link->ssl), settings->host);
	else
		named = SSL_set1_host(link->ssl, settings->host) == 1 &&
			SSL_set_tlsext_host_name(link->ssl, settings->host) == 1;
	return named == 1 ? FANIN_OK : tls_fail(link, "the address can't be checked", error);
}

/* Moves OpenSSL's output to the socket's buffer. */
static bool
tls_collect(struct fanin_link *link)
{
	char chunk[READ_CHUNK];
	int len;

	while ((len = BIO_read(link->ssl_out, chunk, sizeof(chunk))) > 0) {
		if (!buffer_add(&link->out, chunk, (size_t)len))
			return false;
	}
	return true;
}

/* Runs the handshake of TLS, decryption and encryption. */
static int
tls_work(struct fanin_link *link, struct fanin_error *error)
{
	char chunk[READ_CHUNK];
	int status = FANIN_OK;
	int ret = 1;

	if (!SSL_is_init_finished(link->ssl))
		ret = SSL_do_handshake(link->ssl);
	while (ret > 0 && link->plain.end > link->plain.start) {
		ret = SSL_write(link->ssl, link->plain.data + link->plain.start,
				(int)(link->plain.end - link->plain.start));
		if (ret > 0)
			buffer_take(&link->plain, (size_t)ret);
	}
	while (ret > 0 && (ret = SSL_read(link->ssl, chunk, sizeof(chunk))) > 0) {
		if (!buffer_add(&link->in, chunk, (size_t)ret))
			return out_of_memory(error);
	}
	ret = SSL_get_error(link->ssl, ret);
	if (ret == SSL_ERROR_ZERO_RETURN)
		status = fanin_error_set(error, FANIN_ERR_MANAGER,
					 "the manager %s closed the connection",
					 link->settings->address);
	else if (ret == SSL_ERROR_SSL || ret == SSL_ERROR_SYSCALL)
		status = tls_fail(link, "failed", error);
	/* The collected output includes the alert that tells the manager the reason. */
	if (!tls_collect(link))
		return out_of_memory(error);
	return status;
}

/* ------------------------------------------------------------ connection */

int
fanin_link_open(const struct fanin_manager_settings *settings, struct fanin_link **link,
		struct fanin_error *error)
{
	struct fanin_link *created = calloc(1, sizeof(*created));
	const int on = 1;
	int status;

	if (created == NULL)
		return out_of_memory(error);
	created->settings = settings;
	created->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (created->fd < 0 || (connect(created->fd, (const struct sockaddr *)&settings->socket,
					sizeof(settings->socket)) < 0 &&
				errno != EINPROGRESS)) {
		status = fanin_error_set(error, FANIN_ERR_MANAGER,
					 "cannot connect to the manager %s: %s", settings->address,
					 strerror(errno));
		goto close_link;
	}
	setsockopt(created->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(created->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (settings->tls) {
		status = tls_open(created, error);
		if (status != FANIN_OK)
			goto close_link;
	}
	*link = created;
	return FANIN_OK;
close_link:
	fanin_link_close(created);
	return status;
}

void
fanin_link_close(struct fanin_link *link)
{
	if (link == NULL)
		return;
	SSL_free(link->ssl);
	SSL_CTX_free(link->context);
	if (link->fd >= 0)
		close(link->fd);
	free(link->in.data);
	free(link->plain.data);
	free(link->out.data);
	free(link);
}

/* Finishes connecting. Returns false while the kernel is still connecting, and after a failure. */
static bool
is_connected(struct fanin_link *link, int *status, struct fanin_error *error)
{
	struct pollfd ready = { .fd = link->fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int errnum = 0;

	if (link->connected)
		return true;
	if (poll(&ready, 1, 0) <= 0)
		return false;
	getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
	if (errnum != 0)
		*status = fanin_error_set(error, FANIN_ERR_MANAGER,
					  "cannot connect to the manager %s: %s",
					  link->settings->address, strerror(errnum));
	link->connected = errnum == 0;
	return link->connected;
}

static int
socket_receive(struct fanin_link *link, struct fanin_error *error)
{
	const char *hint = link->ssl == NULL && !link->heard
				   ? ": does it expect TLS (tls = yes in fanin.conf)?"
				   : "";
	char chunk[READ_CHUNK];
	ssize_t got;

	while ((got = recv(link->fd, chunk, sizeof(chunk), MSG_DONTWAIT)) > 0) {
		link->heard = true;
		hint = "";
		if (link->ssl != NULL ? BIO_write(link->ssl_in, chunk, (int)got) != got
				      : !buffer_add(&link->in, chunk, (size_t)got))
			return out_of_memory(error);
		if (link->in.end - link->in.start > LINE_MAX_LEN)
			return fanin_error_set(error, FANIN_ERR_MANAGER,
					       "the manager %s sent more than %u bytes at once",
					       link->settings->address, LINE_MAX_LEN);
	}
	link->closed = got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE));
	if (got == 0)
		return fanin_error_set(error, FANIN_ERR_MANAGER,
				       "the manager %s closed the connection%s",
				       link->settings->address, hint);
	if (errno != EAGAIN && errno != EINTR)
		return fanin_error_set(error, FANIN_ERR_MANAGER,
				       "the connection to the manager %s failed: %s%s",
				       link->settings->address, strerror(errno),
				       errno == ECONNRESET ? hint : "");
	return FANIN_OK;
}

static void
socket_send(struct fanin_link *link)
{
	while (link->out.end > link->out.start) {
		ssize_t sent = send(link->fd, link->out.data + link->out.start,
				    link->out.end - link->out.start, MSG_NOSIGNAL | MSG_DONTWAIT);

		/* Receiving reports the reason of a failure. */
		if (sent <= 0)
			return;
		buffer_take(&link->out, (size_t)sent);
	}
}

int
fanin_link_poll(struct fanin_link *link, struct fanin_error *error)
{
	struct fanin_error tls_error;
	int tls_status = FANIN_OK;
	int status = FANIN_OK;

	if (!is_connected(link, &status, error))
		return status;
	status = socket_receive(link, error);
	if (link->ssl != NULL)
		tls_status = tls_work(link, &tls_error);
	socket_send(link);
	/* If TLS has closed the connection, its reason is the more precise one. */
	if (tls_status != FANIN_OK) {
		*error = tls_error;
		return tls_status;
	}
	if (status == FANIN_ERR_MANAGER && link->ssl != NULL && !SSL_is_init_finished(link->ssl))
		return fanin_error_set(error, status,
				       "TLS with the manager %s: the connection ended during the "
				       "handshake: is the manager configured for TLS?",
				       link->settings->address);
	return status;
}

const char *
fanin_link_line(struct fanin_link *link)
{
	const struct buffer *in = &link->in;
	char *line = in->data + in->start;
	char *end;

	if (in->end == in->start)
		return NULL;
	end = memchr(line, '\n', in->end - in->start);
	if (end == NULL)
		return NULL;
	*end = '\0';
	/* The bytes stay where they are until more is received. */
	buffer_take(&link->in, (size_t)(end + 1 - line));
	return line;
}

int
fanin_link_send(struct fanin_link *link, const char *line)
{
	struct buffer *buffer = link->ssl != NULL ? &link->plain : &link->out;

	if (!buffer_add(buffer, line, strlen(line)) || !buffer_add(buffer, "\n", 1))
		return FANIN_ERR_NO_MEMORY;
	return FANIN_OK;
}

bool
fanin_link_flushed(const struct fanin_link *link)
{
	return link->plain.end == link->plain.start && link->out.end == link->out.start;
}

bool
fanin_link_was_closed(const struct fanin_link *link)
{
	return link->closed;
}

struct pollfd
fanin_link_pollfd(const struct fanin_link *link)
{
	bool writes = !link->connected || link->out.end > link->out.start;

	return (struct pollfd){
		.fd = link->fd,
		.events = (short)((link->connected ? POLLIN : 0) | (writes ? POLLOUT : 0)),
	};
}
