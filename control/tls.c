/* SPDX-License-Identifier: BSD-3-Clause */
/* See tls.h and stream.h: all code that uses OpenSSL. */
#include "control/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "control/stream.h"
#include "control/text.h"

struct tls {
	SSL_CTX *context;
};

static int
fail(const char *what, const char *path, char *error)
{
	unsigned long code = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(code);

	/* The system call's error is more useful than the library's. */
	if (ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_SYS)
		reason = ERR_reason_error_string(ERR_peek_error());
	snprintf(error, TLS_ERROR_LEN, "cannot use the %s %s: %s", what, path,
		 reason == NULL ? "unknown reason" : reason);
	text_make_printable(error);
	ERR_clear_error();
	return -EINVAL;
}

/*
 * Checks the mode of a key's file, like that of any file with a secret. If the file can't be
 * examined, OpenSSL reports why.
 */
static int
check_key_mode(const char *path, char *error)
{
	struct stat status;

	if (stat(path, &status) != 0 || (status.st_mode & S_IRWXO) == 0)
		return 0;
	snprintf(error, TLS_ERROR_LEN,
		 "TLS key %s: found the mode %04o, expected no access for others: chmod o= %s",
		 path, status.st_mode & 07777u, path);
	text_make_printable(error);
	return -EACCES;
}

static int
load(SSL_CTX *context, const struct tls_files *files, char *error)
{
	if (files->key != NULL && check_key_mode(files->key, error) != 0)
		return -EACCES;
	ERR_clear_error();
	if (files->certificate != NULL &&
	    SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
		return fail("certificate", files->certificate, error);
	if (files->key != NULL &&
	    SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1)
		return fail("key", files->key, error);
	if (files->ca != NULL && SSL_CTX_load_verify_file(context, files->ca) != 1)
		return fail("CA", files->ca, error);
	return 0;
}

static int
create(const SSL_METHOD *method, const struct tls_files *files, int verify, struct tls **tls,
       char *error)
{
	struct tls *created = calloc(1, sizeof(*created));
	SSL_CTX *context = SSL_CTX_new(method);
	int ret = -ENOMEM;

	if (created == NULL || context == NULL) {
		snprintf(error, TLS_ERROR_LEN, "out of memory");
		goto free_context;
	}
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	/*
	 * An end without close_notify is accepted: lines have their own end, and a truncated answer
	 * is never used.
	 */
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
	/* An idle connection needs no buffers: this frees most of its 34 KiB. */
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	ret = load(context, files, error);
	if (ret != 0)
		goto free_context;
	SSL_CTX_set_verify(context, verify, NULL);
	created->context = context;
	*tls = created;
	return 0;

free_context:
	SSL_CTX_free(context);
	free(created);
	return ret;
}

int
tls_server_create(const struct tls_files *files, struct tls **tls, char *error)
{
	return create(TLS_server_method(), files,
		      files->ca == NULL ? SSL_VERIFY_NONE
					: SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
		      tls, error);
}

int
tls_client_create(const struct tls_files *files, struct tls **tls, char *error)
{
	return create(TLS_client_method(), files, SSL_VERIFY_PEER, tls, error);
}

void
tls_free(struct tls *tls)
{
	if (tls == NULL)
		return;
	SSL_CTX_free(tls->context);
	free(tls);
}

static int
start(struct stream *stream, int fd, struct tls *tls)
{
	SSL *ssl = NULL;

	if (tls != NULL) {
		ssl = SSL_new(tls->context);
		if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
			SSL_free(ssl);
			return -ENOMEM;
		}
	}
	*stream = (struct stream){
		.fd = fd, .ssl = ssl, .receive_events = POLLIN, .send_events = POLLOUT
	};
	return 0;
}

int
stream_accept(struct stream *stream, int fd, struct tls *tls)
{
	int ret = start(stream, fd, tls);

	if (ret == 0 && stream->ssl != NULL)
		SSL_set_accept_state(stream->ssl);
	return ret;
}

int
stream_connect(struct stream *stream, int fd, struct tls *tls, const char *host)
{
	int ret = start(stream, fd, tls);
	unsigned char number[sizeof(struct in6_addr)];
	int right;

	if (ret != 0 || stream->ssl == NULL)
		return ret;
	SSL_set_connect_state(stream->ssl);
	if (inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1)
		right = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(stream->ssl), host);
	else
		right = SSL_set1_host(stream->ssl, host) == 1 &&
			SSL_set_tlsext_host_name(stream->ssl, host) == 1;
	if (right == 1)
		return 0;
	SSL_free(stream->ssl);
	return -ENOMEM;
}

/* Interprets a failed OpenSSL call. events: set to the events to wait for before it is repeated. */
static ssize_t
tls_result(struct stream *stream, int result, short *events)
{
	switch (SSL_get_error(stream->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		*events = POLLIN;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		*events = POLLOUT;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_SYSCALL:
		return errno != 0 ? -errno : -ECONNRESET;
	default:
		return -EPROTO;
	}
}

ssize_t
stream_receive(struct stream *stream, void *data, size_t size)
{
	ssize_t got;

	if (stream->ssl != NULL) {
		stream->receive_events = POLLIN;
		ERR_clear_error();
		got = SSL_read(stream->ssl, data, size > INT_MAX ? INT_MAX : (int)size);
		return got > 0 ? got : tls_result(stream, (int)got, &stream->receive_events);
	}
	got = recv(stream->fd, data, size, MSG_DONTWAIT);
	return got >= 0 ? got : errno == EINTR ? -EAGAIN : -errno;
}

ssize_t
stream_send(struct stream *stream, const void *data, size_t size)
{
	ssize_t sent;

	if (stream->ssl != NULL) {
		stream->send_events = POLLOUT;
		ERR_clear_error();
		sent = SSL_write(stream->ssl, data, size > INT_MAX ? INT_MAX : (int)size);
		if (sent > 0)
			return sent;
		sent = tls_result(stream, (int)sent, &stream->send_events);
		return sent == 0 ? -EPIPE : sent;
	}
	do {
		sent = send(stream->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent >= 0 ? sent : -errno;
}

bool
stream_has_pending(const struct stream *stream)
{
	return stream->ssl != NULL && SSL_pending(stream->ssl) > 0;
}

const char *
stream_tls_error(const struct stream *stream)
{
	static char line[256];
	long verified = SSL_get_verify_result(stream->ssl);
	const unsigned long code = ERR_peek_last_error();
	const char *reason = ERR_reason_error_string(code);

	/* The error that OpenSSL reports for plain text. */
	if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
		reason = "the other side does not speak TLS (wrong version number)";
	snprintf(line, sizeof(line), "%s",
		 verified != X509_V_OK ? X509_verify_cert_error_string(verified)
		 : reason != NULL      ? reason
				       : "the other side does not speak TLS");
	return line;
}

void
stream_stop(struct stream *stream)
{
	if (stream->ssl != NULL) {
		ERR_clear_error();
		SSL_shutdown(stream->ssl);
		SSL_free(stream->ssl);
	}
	close(stream->fd);
	*stream = (struct stream){ .fd = -1 };
}
