/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TLS contexts for control connections, of version 1.2 or newer. Made once at start, then constant;
 * one thread.
 */
#ifndef FANIN_CONTROL_TLS_H
#define FANIN_CONTROL_TLS_H

#define TLS_ERROR_LEN 512

struct tls;

/* Paths of PEM files; NULL: none. */
struct tls_files {
	const char *certificate; /* own certificate chain */
	const char *key;         /* of the certificate */
	const char *ca;          /* CA of the other side's certificate */
};

/*
 * Creates a server's context. With a CA, clients must have a certificate of it.
 *
 * error: TLS_ERROR_LEN bytes, names the file. Returns 0 with *tls set, or -errno.
 */
int tls_server_create(const struct tls_files *files, struct tls **tls, char *error);

/*
 * Creates a client's context: the server's certificate must be signed by the CA, which is required,
 * and match the host.
 */
int tls_client_create(const struct tls_files *files, struct tls **tls, char *error);

/* Frees a context. tls may be NULL. Streams that use it stay valid. */
void tls_free(struct tls *tls);

#endif
