/* SPDX-License-Identifier: BSD-3-Clause */
/* See tag.h. With libcrypto, as keys.c. */
#include "wire/tag.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#define AES_BLOCK 16
#define AES_KEY_LEN 16
#define POLY_R_LEN 16

static_assert(FANIN_TAG_LEN == FANIN_TAG_NONCE_LEN + FANIN_TAG_CODE_LEN, "a nonce and a code");

/* A nonce as it is sent. A counter alone would restart with each process. */
struct nonce {
	uint64_t tagger; /* random */
	uint64_t number;
};

struct direction_key {
	EVP_CIPHER_CTX *aes;
	uint8_t r[POLY_R_LEN];
};

struct fanin_tagger {
	struct direction_key keys[FANIN_TAG_DIRECTIONS];
	EVP_MAC_CTX *poly;
	struct nonce next;
};

static_assert(sizeof(struct nonce) == FANIN_TAG_NONCE_LEN && FANIN_TAG_NONCE_LEN == AES_BLOCK,
	      "a nonce is one block");

/*
 * Derives the AES key and r, the two halves of HMAC-SHA256 (RFC 2104) over the label. Returns 0,
 * -ENOMEM or -EIO.
 */
static int
key_derive(uint64_t secret, const char *label, struct direction_key *key)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	int ret = -EIO;

	key->aes = EVP_CIPHER_CTX_new();
	if (key->aes == NULL)
		return -ENOMEM;
	if (HMAC(EVP_sha256(), &secret, sizeof(secret), (const unsigned char *)label, strlen(label),
		 digest, NULL) == NULL)
		return -EIO;
	if (EVP_EncryptInit_ex(key->aes, EVP_aes_128_ecb(), NULL, digest, NULL) == 1 &&
	    EVP_CIPHER_CTX_set_padding(key->aes, 0) == 1)
		ret = 0;
	memcpy(key->r, digest + AES_KEY_LEN, sizeof(key->r));
	OPENSSL_cleanse(digest, sizeof(digest));
	return ret;
}

int
fanin_tagger_create(uint64_t secret, struct fanin_tagger **tagger)
{
	struct fanin_tagger *created = calloc(1, sizeof(*created));
	EVP_MAC *poly = EVP_MAC_fetch(NULL, "POLY1305", NULL);
	int ret = poly == NULL ? -EIO : -ENOMEM;

	if (created != NULL && poly != NULL)
		created->poly = EVP_MAC_CTX_new(poly);
	EVP_MAC_free(poly);
	if (created != NULL && created->poly != NULL) {
		ret = key_derive(secret, "fanin tag up", &created->keys[FANIN_TAG_UP]);
		if (ret == 0)
			ret = key_derive(secret, "fanin tag down", &created->keys[FANIN_TAG_DOWN]);
		if (ret == 0 && getrandom(&created->next.tagger, sizeof(created->next.tagger), 0) !=
					sizeof(created->next.tagger))
			ret = -EIO;
	}
	if (ret != 0) {
		fanin_tagger_destroy(created);
		return ret;
	}
	*tagger = created;
	return 0;
}

void
fanin_tagger_destroy(struct fanin_tagger *tagger)
{
	if (tagger == NULL)
		return;
	for (size_t i = 0; i < FANIN_TAG_DIRECTIONS; i++)
		EVP_CIPHER_CTX_free(tagger->keys[i].aes);
	EVP_MAC_CTX_free(tagger->poly);
	OPENSSL_cleanse(tagger, sizeof(*tagger));
	free(tagger);
}

bool
fanin_tag_has_instance(uint8_t type)
{
	const enum fanin_packet_class class = fanin_type_class(type);

	return class != FANIN_CLASS_MEMBERSHIP && class != FANIN_CLASS_PARENT;
}

/* Computes Poly1305 with the nonce's pad, over the instance, the header and the payload. */
static bool
code_compute(struct fanin_tagger *tagger, enum fanin_tag_direction direction, uint64_t instance,
	     const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len,
	     const uint8_t *nonce, uint8_t *code)
{
	const struct direction_key *direction_key = &tagger->keys[direction];
	struct {
		uint64_t instance;
		struct fanin_hdr hdr;
	} __attribute__((packed)) head = {
		.instance = fanin_tag_has_instance(hdr->type) ? instance : 0,
		.hdr = *hdr,
	};
	uint8_t key[POLY_R_LEN + AES_BLOCK];
	int pad_len = 0;
	size_t code_len = 0;

	memcpy(key, direction_key->r, POLY_R_LEN);
	return EVP_EncryptUpdate(direction_key->aes, key + POLY_R_LEN, &pad_len, nonce,
				 FANIN_TAG_NONCE_LEN) == 1 &&
	       pad_len == AES_BLOCK && EVP_MAC_init(tagger->poly, key, sizeof(key), NULL) == 1 &&
	       EVP_MAC_update(tagger->poly, (const unsigned char *)&head, sizeof(head)) == 1 &&
	       (payload_len == 0 || EVP_MAC_update(tagger->poly, payload, payload_len) == 1) &&
	       EVP_MAC_final(tagger->poly, code, &code_len, FANIN_TAG_CODE_LEN) == 1 &&
	       code_len == FANIN_TAG_CODE_LEN;
}

bool
fanin_tagger_seal(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		  uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		  uint32_t payload_len, uint8_t *tag)
{
	memcpy(tag, &tagger->next, FANIN_TAG_NONCE_LEN);
	tagger->next.number++;
	hdr->flags |= FANIN_FLAG_TAGGED;
	return code_compute(tagger, direction, instance, hdr, payload, payload_len, tag,
			    tag + FANIN_TAG_NONCE_LEN);
}

bool
fanin_tagger_open(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
		  uint64_t instance, struct fanin_hdr *hdr, const void *payload,
		  uint32_t payload_len, const uint8_t *tag)
{
	uint8_t code[FANIN_TAG_CODE_LEN];

	if ((hdr->flags & FANIN_FLAG_TAGGED) == 0 ||
	    !code_compute(tagger, direction, instance, hdr, payload, payload_len, tag, code) ||
	    CRYPTO_memcmp(code, tag + FANIN_TAG_NONCE_LEN, sizeof(code)) != 0)
		return false;
	hdr->flags &= (uint16_t)~FANIN_FLAG_TAGGED;
	return true;
}

bool
fanin_tagger_seal_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			uint64_t instance, struct fanin_headers *headers)
{
	const uint32_t payload_len = fanin_wire_payload_len(headers);
	uint8_t *payload = (uint8_t *)(headers + 1);

	if (!fanin_tagger_seal(tagger, direction, instance, &headers->fanin, payload, payload_len,
			       payload + payload_len))
		return false;
	fanin_wire_set_payload_len(headers, payload_len + FANIN_TAG_LEN);
	return true;
}

bool
fanin_tagger_open_frame(struct fanin_tagger *tagger, enum fanin_tag_direction direction,
			uint64_t instance, struct fanin_headers *headers)
{
	const uint32_t len = fanin_wire_payload_len(headers);
	const uint8_t *payload = (const uint8_t *)(headers + 1);

	/* A UDP length below the headers' length makes a huge `len`. */
	if (len < FANIN_TAG_LEN || len > UINT16_MAX ||
	    !fanin_tagger_open(tagger, direction, instance, &headers->fanin, payload,
			       len - FANIN_TAG_LEN, payload + len - FANIN_TAG_LEN))
		return false;
	fanin_wire_set_payload_len(headers, len - FANIN_TAG_LEN);
	return true;
}
