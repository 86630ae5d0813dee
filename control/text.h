/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text functions for JSON that a person wrote, shared by the configuration, the control socket and
 * the commands: showing a value in a message, guessing a misspelt word, reading an address. No
 * state; any thread may call.
 */
#ifndef FANIN_CONTROL_TEXT_H
#define FANIN_CONTROL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* Room for text_describe and text_key: enough to recognise a value. */
#define TEXT_VALUE_LEN 64

/* Characters of the names of switches, ports and jobs. */
#define TEXT_NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/*
 * Finds the known word closest to a misspelt one. Start with {.word = ...} and offer candidates;
 * `best` is then the closest, or NULL.
 */
struct text_guess {
	const char *word;
	const char *best;
	size_t distance;
};

/*
 * Offers one candidate, which becomes the best if it is close to the word and closer than the best
 * so far.
 */
void text_guess_offer(struct text_guess *guess, const char *candidate);

/*
 * Writes a value for a message: 70000, "many", true, an object. Long strings are cut; all is
 * printable ASCII.
 *
 * buffer: TEXT_VALUE_LEN bytes. Returns buffer.
 */
const char *text_describe(const json_t *value, char *buffer);

/*
 * Writes a key as part of a path: unchanged if it looks like a name, else quoted and cut like a
 * string value.
 *
 * buffer: TEXT_VALUE_LEN bytes. Returns buffer.
 */
const char *text_key(const char *key, char *buffer);

/* Replaces characters that would break a one-line message or a terminal by '?'. */
void text_make_printable(char *text);

/*
 * Reads a dotted IPv4 address that a host or a switch can have: not 0/8, 127/8, multicast or
 * broadcast.
 *
 * ip_be: set on success only, network order. Returns 0 or -EINVAL.
 */
int text_unicast_ipv4(const char *text, uint32_t *ip_be);

#endif
