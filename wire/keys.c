/* SPDX-License-Identifier: BSD-3-Clause */
/* See keys.h. Not part of the wire library, which has no dependencies and never allocates. */
#include <errno.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "wire/keys.h"

static int
derive(uint64_t secret, const char *label, uint64_t *key)
{
	unsigned char digest[EVP_MAX_MD_SIZE];

	if (HMAC(EVP_sha256(), &secret, sizeof(secret), (const unsigned char *)label, strlen(label),
		 digest, NULL) == NULL)
		return -ENOMEM;
	memcpy(key, digest, sizeof(*key));
	return 0;
}

int
fanin_keys_derive(uint64_t secret, struct fanin_keys *keys)
{
	struct fanin_keys derived;
	int ret = derive(secret, "fanin up", &derived.up);

	if (ret == 0)
		ret = derive(secret, "fanin down", &derived.down);
	if (ret == 0)
		ret = derive(secret, "fanin ring", &derived.ring);
	if (ret == 0)
		*keys = derived;
	return ret;
}
