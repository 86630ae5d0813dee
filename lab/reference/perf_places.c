/* SPDX-License-Identifier: BSD-3-Clause */
/* See perf_places.h. */
#include "lab/reference/perf_places.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLANKS " \t\r\n"
#define WORD_SHOWN 24 /* maximum of a word's bytes in messages */

struct reader {
	struct perf_places *places;
	const char *path;
	char *error;
	uint64_t line;   /* from 1 */
	uint16_t rank;   /* whose indices are on the next line */
	uint64_t room;   /* for this rank's indices */
	bool n_is_fixed; /* given by the caller */
	bool n_is_read;
};

/* A word of a line, which is not terminated. */
struct word {
	const char *text;
	size_t len;
};

/* Writes the message, with file and line. Returns -EINVAL. */
static int __attribute__((format(printf, 2, 3)))
wrong(const struct reader *reader, const char *format, ...)
{
	const int len = snprintf(reader->error, PERF_PLACES_ERROR_LEN, "%s:%" PRIu64 ": ",
				 reader->path, reader->line);
	va_list arguments;

	if (len < 0 || len >= PERF_PLACES_ERROR_LEN)
		return -EINVAL;
	va_start(arguments, format);
	vsnprintf(reader->error + len, (size_t)(PERF_PLACES_ERROR_LEN - len), format, arguments);
	va_end(arguments);
	return -EINVAL;
}

/*
 * Writes a word for messages: cut if it is long, and without characters that do not print. Returns
 * shown.
 */
static const char *
word_show(const struct word *word, char shown[WORD_SHOWN + 4])
{
	const size_t len = word->len <= WORD_SHOWN ? word->len : WORD_SHOWN;

	for (size_t i = 0; i < len; i++)
		shown[i] = isprint((unsigned char)word->text[i]) ? word->text[i] : '?';
	memcpy(shown + len, word->len <= WORD_SHOWN ? "" : "...", word->len <= WORD_SHOWN ? 1 : 4);
	return shown;
}

/* Cuts the next word off the text. Returns false if there is none. */
static bool
word_next(struct word *text, struct word *word)
{
	size_t start = 0, end;

	while (start < text->len && memchr(BLANKS, text->text[start], sizeof(BLANKS) - 1) != NULL)
		start++;
	for (end = start; end < text->len; end++) {
		if (memchr(BLANKS, text->text[end], sizeof(BLANKS) - 1) != NULL)
			break;
	}
	*word = (struct word){ .text = text->text + start, .len = end - start };
	*text = (struct word){ .text = text->text + end, .len = text->len - end };
	return word->len != 0;
}

/* Parses a decimal number. Returns -EINVAL if it is not one, -ERANGE if it does not fit. */
static int
word_number(const struct word *word, uint64_t *number)
{
	uint64_t value = 0;
	int ret = 0;

	for (size_t i = 0; i < word->len; i++) {
		if (!isdigit((unsigned char)word->text[i]))
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(word->text[i] - '0'), &value))
			ret = -ERANGE;
	}
	*number = value;
	return ret;
}

/* Reads the rest of a line that begins with "n". */
static int
read_n(struct reader *reader, struct word *text)
{
	struct perf_places *places = reader->places;
	char shown[WORD_SHOWN + 4];
	struct word word, more;
	uint64_t n;

	if (reader->n_is_read || reader->rank != 0)
		return wrong(reader,
			     "found 'n', expected it once, before the first line of indices");
	if (!word_next(text, &word))
		return wrong(reader,
			     "found 'n' alone, expected the length of the vector behind it");
	if (word_number(&word, &n) != 0 || n == 0)
		return wrong(reader,
			     "found 'n %s', expected a length of 1 or more, in decimal digits",
			     word_show(&word, shown));
	if (word_next(text, &more))
		return wrong(reader,
			     "found '%s' behind 'n %" PRIu64 "', expected the end of the line",
			     word_show(&more, shown), n);
	if (reader->n_is_fixed && n != places->n)
		return wrong(reader,
			     "found n %" PRIu64 ", expected %" PRIu64 ", the vector's length", n,
			     places->n);
	places->n = n;
	reader->n_is_read = true;
	return 0;
}

static int
index_add(struct reader *reader, const struct word *word)
{
	struct perf_places *places = reader->places;
	uint64_t **indices = &places->indices[reader->rank];
	uint64_t *count = &places->counts[reader->rank];
	char shown[WORD_SHOWN + 4];
	uint64_t index;
	const int ret = word_number(word, &index);

	if (ret == -EINVAL)
		return wrong(reader, "found '%s', expected an index in decimal digits%s",
			     word_show(word, shown),
			     *count == 0 ? ", or '-' for a rank without any" : "");
	if (ret != 0 || index >= places->n)
		return wrong(reader,
			     "found the index %s, expected 0 to %" PRIu64
			     " in a vector of %" PRIu64,
			     word_show(word, shown), places->n - 1, places->n);
	if (*count != 0 && index <= (*indices)[*count - 1])
		return wrong(reader,
			     "found %" PRIu64 " after %" PRIu64
			     ", expected indices in ascending order, each once",
			     index, (*indices)[*count - 1]);
	if (*count == reader->room) {
		const uint64_t room = reader->room == 0 ? 64 : 2 * reader->room;
		uint64_t *more = realloc(*indices, room * sizeof(*more));

		if (more == NULL) {
			wrong(reader, "no memory for %" PRIu64 " indices", room);
			return -ENOMEM;
		}
		*indices = more;
		reader->room = room;
	}
	(*indices)[(*count)++] = index;
	return 0;
}

/* Reads a line without its comment. */
static int
read_line(struct reader *reader, struct word *text)
{
	char shown[WORD_SHOWN + 4];
	struct word word;
	int ret = 0;

	if (!word_next(text, &word))
		return 0;
	if (word.len == 1 && word.text[0] == 'n')
		return read_n(reader, text);
	if (word.len == 1 && word.text[0] == '-') {
		if (word_next(text, &word))
			return wrong(reader, "found '%s' behind '-', expected the end of the line",
				     word_show(&word, shown));
	} else {
		reader->room = 0;
		do {
			ret = index_add(reader, &word);
		} while (ret == 0 && word_next(text, &word));
	}
	reader->rank++;
	return ret;
}

static int
read_file(struct reader *reader, FILE *file)
{
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	int ret = 0;

	while (ret == 0 && reader->rank < reader->places->n_ranks) {
		struct word text;
		const char *comment;

		errno = 0;
		len = getline(&line, &size, file);
		if (len < 0)
			break;
		comment = memchr(line, '#', (size_t)len);
		text = (struct word){ .text = line,
				      .len = comment != NULL ? (size_t)(comment - line)
							     : (size_t)len };
		reader->line++;
		ret = read_line(reader, &text);
	}
	if (ret == 0 && reader->rank < reader->places->n_ranks) {
		ret = errno != 0 ? -errno : -EINVAL;
		if (errno != 0)
			snprintf(reader->error, PERF_PLACES_ERROR_LEN, "%s: cannot read: %s",
				 reader->path, strerror(errno));
		else
			snprintf(reader->error, PERF_PLACES_ERROR_LEN,
				 "%s: found %u lines of indices, expected %u, one for each rank",
				 reader->path, reader->rank, reader->places->n_ranks);
	}
	free(line);
	return ret;
}

int
perf_places_load(struct perf_places *places, const char *path, uint16_t n_ranks, uint64_t n,
		 bool n_is_fixed, char *error)
{
	struct perf_places found = { .n = n, .n_ranks = n_ranks };
	struct reader reader = {
		.places = &found, .path = path, .error = error, .n_is_fixed = n_is_fixed
	};
	FILE *file = fopen(path, "re");
	int ret;

	if (file == NULL) {
		ret = -errno;
		snprintf(error, PERF_PLACES_ERROR_LEN, "%s: cannot open: %s", path, strerror(-ret));
		return ret;
	}
	found.counts = calloc(n_ranks, sizeof(*found.counts));
	found.indices = calloc(n_ranks, sizeof(*found.indices));
	if (found.counts == NULL || found.indices == NULL) {
		ret = -ENOMEM;
		snprintf(error, PERF_PLACES_ERROR_LEN, "%s: no memory for %u ranks", path, n_ranks);
	} else {
		ret = read_file(&reader, file);
	}
	fclose(file);
	if (ret != 0)
		perf_places_free(&found);
	else
		*places = found;
	return ret;
}

void
perf_places_free(struct perf_places *places)
{
	for (uint16_t rank = 0; places->indices != NULL && rank < places->n_ranks; rank++)
		free(places->indices[rank]);
	free(places->indices);
	free(places->counts);
	*places = (struct perf_places){ 0 };
}

double
perf_places_density(const struct perf_places *places)
{
	uint64_t most = 0;

	for (uint16_t rank = 0; rank < places->n_ranks; rank++)
		most = places->counts[rank] > most ? places->counts[rank] : most;
	return (double)most / (double)places->n;
}

uint64_t
perf_places_find(const struct perf_places *places, uint16_t rank, uint64_t index)
{
	uint64_t low = 0, high = places->counts[rank];

	while (low < high) {
		const uint64_t middle = low + (high - low) / 2;

		if (places->indices[rank][middle] < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
