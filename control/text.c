/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shows JSON values in messages, guesses misspelt words, reads addresses. Called by the
 * configuration, the control socket and the commands; any thread.
 */
#include "control/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_WORD 48

static size_t
least(size_t a, size_t b, size_t c)
{
	size_t ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Returns Levenshtein's distance: the insertions, deletions and replacements between two words. */
static size_t
edit_distance(const char *a, const char *b)
{
	size_t row[LONGEST_WORD + 1];
	size_t len_a = strlen(a);
	size_t len_b = strlen(b);

	if (len_a > LONGEST_WORD || len_b > LONGEST_WORD)
		return LONGEST_WORD;
	for (size_t j = 0; j <= len_b; j++)
		row[j] = j;
	for (size_t i = 1; i <= len_a; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= len_b; j++) {
			size_t above = row[j];
			size_t replaced = diagonal + (a[i - 1] != b[j - 1]);

			row[j] = least(above + 1, row[j - 1] + 1, replaced);
			diagonal = above;
		}
	}
	return row[len_b];
}

void
text_guess_offer(struct text_guess *guess, const char *candidate)
{
	size_t distance = edit_distance(guess->word, candidate);
	size_t tolerated = strlen(candidate) / 3 + 1;

	if (distance > tolerated || (guess->best != NULL && distance >= guess->distance))
		return;
	guess->best = candidate;
	guess->distance = distance;
}

const char *
text_describe(const json_t *value, char *buffer)
{
	char *dump;

	if (value == NULL) {
		snprintf(buffer, TEXT_VALUE_LEN, "nothing");
	} else if (json_is_object(value)) {
		snprintf(buffer, TEXT_VALUE_LEN, "an object");
	} else if (json_is_array(value)) {
		snprintf(buffer, TEXT_VALUE_LEN,
			 json_array_size(value) == 0 ? "an empty array" : "an array");
	} else {
		dump = json_dumps(value,
				  JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
		if (dump == NULL)
			snprintf(buffer, TEXT_VALUE_LEN, "a value");
		else if (strlen(dump) < TEXT_VALUE_LEN)
			snprintf(buffer, TEXT_VALUE_LEN, "%s", dump);
		else
			snprintf(buffer, TEXT_VALUE_LEN, "%.*s...\"", TEXT_VALUE_LEN - 5, dump);
		free(dump);
	}
	text_make_printable(buffer);
	return buffer;
}

const char *
text_key(const char *key, char *buffer)
{
	size_t len = strlen(key);
	size_t plain = strspn(key,
			      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
	json_t *string;

	if (plain == len && len > 0 && len < TEXT_VALUE_LEN) {
		memcpy(buffer, key, len + 1);
		return buffer;
	}
	string = json_string(key);
	text_describe(string, buffer);
	json_decref(string);
	return buffer;
}

void
text_make_printable(char *text)
{
	for (; *text != '\0'; text++) {
		if (!isprint((unsigned char)*text))
			*text = '?';
	}
}

int
text_unicast_ipv4(const char *text, uint32_t *ip_be)
{
	struct in_addr address;
	uint32_t first;

	if (inet_pton(AF_INET, text, &address) != 1)
		return -EINVAL;
	first = ntohl(address.s_addr) >> 24;
	if (first == 0 || first == 127 || first >= 224)
		return -EINVAL;
	*ip_be = address.s_addr;
	return 0;
}
