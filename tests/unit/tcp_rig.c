/* SPDX-License-Identifier: BSD-3-Clause */
/* See tcp_rig.h. */
#include "tests/unit/tcp_rig.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

struct tcp_rig tcp_rig;

static char directory[] = "/tmp/fanin-tcp-XXXXXX";
static pthread_t server;
static int wake_fd;

/* A request that the next one answers, or that is never answered. */
static struct control_client *waiting;
static json_t *waiting_id;
static int n_gone;

static json_t *
run_wait(void *user, struct control_client *client, json_t *id, const json_t *args,
	 struct control_error *error)
{
	(void)user;
	(void)args;
	waiting = client;
	waiting_id = json_incref(id);
	control_client_set_data(client, &waiting);
	return control_later(error);
}

static json_t *
run_release(void *user, const json_t *args, struct control_error *error)
{
	struct control_error late;

	(void)user;
	(void)error;
	if (waiting != NULL && json_object_get(args, "refuse") != NULL) {
		control_fail(&late, "no_room", "too late");
		control_refuse(waiting, waiting_id, &late);
	} else if (waiting != NULL) {
		control_notify(waiting, json_pack("{s:s}", "event", "soon"));
		control_answer(waiting, waiting_id, json_pack("{s:i}", "seven", 7));
	}
	return json_pack("{s:b, s:i}", "was_waiting", waiting != NULL, "gone", n_gone);
}

static void
client_gone(void *user, struct control_client *client, void *data)
{
	(void)user;
	ck_assert_ptr_eq(client, waiting);
	ck_assert_ptr_eq(data, &waiting);
	waiting = NULL;
	n_gone++;
}

static const struct control_command commands[] = {
	{ .name = "wait", .run_for = run_wait },
	{ .name = "release", .run = run_release },
	{ 0 },
};

void
tcp_rig_write(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

void
tcp_rig_certificate(const char *certificate_path, const char *key_path)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	X509_NAME *name = X509_get_subject_name(certificate);
	X509_EXTENSION *alternative;
	FILE *file;

	X509_set_version(certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"test", -1, -1,
				   0);
	X509_set_issuer_name(certificate, name);
	X509_set_pubkey(certificate, key);
	alternative = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "IP:127.0.0.1");
	X509_add_ext(certificate, alternative, -1);
	ck_assert_int_gt(X509_sign(certificate, key, EVP_sha256()), 0);
	file = fopen(certificate_path, "w");
	ck_assert(file != NULL && PEM_write_X509(file, certificate) == 1);
	fclose(file);
	file = fopen(key_path, "w");
	ck_assert(file != NULL && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
	fclose(file);
	ck_assert_int_eq(chmod(key_path, 0600), 0);
	X509_EXTENSION_free(alternative);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

void
tcp_rig_begin(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(tcp_rig.token_file, sizeof(tcp_rig.token_file), "%s/token", directory);
	snprintf(tcp_rig.certificate_file, sizeof(tcp_rig.certificate_file), "%s/certificate.pem",
		 directory);
	snprintf(tcp_rig.key_file, sizeof(tcp_rig.key_file), "%s/key.pem", directory);
	snprintf(tcp_rig.other_file, sizeof(tcp_rig.other_file), "%s/other", directory);
	tcp_rig_write(tcp_rig.token_file, TOKEN "\n", 0600);
	signal(SIGPIPE, SIG_IGN);
	unsetenv("FANIN_TOKEN");
}

void
tcp_rig_end(void)
{
	unlink(tcp_rig.token_file);
	unlink(tcp_rig.certificate_file);
	unlink(tcp_rig.key_file);
	unlink(tcp_rig.other_file);
	ck_assert_int_eq(rmdir(directory), 0);
}

static void *
serve(void *arg)
{
	(void)arg;
	ck_assert_int_eq(control_serve(tcp_rig.control, wake_fd, -1), 1);
	return NULL;
}

void
tcp_rig_start(const struct control_tcp *tcp, bool answers_hello, unsigned int max_clients)
{
	const struct control_options options = { .service = "manager",
						 .name = "m0",
						 .commands = commands,
						 .closed = client_gone,
						 .tcp = *tcp,
						 .answers_hello = answers_hello,
						 .max_clients = max_clients,
						 .line_max = 10000 };
	char error[CONTROL_MESSAGE_LEN] = "";

	ck_assert_msg(control_open(&options, &tcp_rig.control, error) == 0, "%s", error);
	snprintf(tcp_rig.at, sizeof(tcp_rig.at), "127.0.0.1:%u", control_tcp_port(tcp_rig.control));
	wake_fd = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(wake_fd, 0);
	ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
}

void
tcp_rig_stop_serving(void)
{
	ck_assert_int_eq(eventfd_write(wake_fd, 1), 0);
	ck_assert_int_eq(pthread_join(server, NULL), 0);
	close(wake_fd);
}

void
tcp_rig_stop(void)
{
	tcp_rig_stop_serving();
	control_close(tcp_rig.control);
	json_decref(waiting_id);
	waiting_id = NULL;
}
