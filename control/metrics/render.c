/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes metrics as text: Prometheus' documentation, "Exposition formats", format 0.0.4. No state;
 * any thread that may read the values.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/metrics/metrics.h"

/* The switch's histograms: 0, 1, 2-3, 4-7, ..., 2048-4095, and more. */
#define BUCKETS 14

/* The state of the walk along a family's path. */
struct walk {
	const struct metrics_family *family;
	FILE *out;
	const json_t *objects[METRICS_MAX_DEPTH + 1];
	unsigned int n_objects;
};

static const char *const type_names[] = {
	[METRICS_COUNTER] = "counter",
	[METRICS_GAUGE] = "gauge",
	[METRICS_HISTOGRAM] = "histogram",
};

static void
print_escaped(FILE *out, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*text == '\\' || *text == '"')
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void
print_label_value(FILE *out, const json_t *value)
{
	if (json_is_string(value))
		print_escaped(out, json_string_value(value));
	else if (json_is_boolean(value))
		fputs(json_is_true(value) ? "true" : "false", out);
	else if (json_is_integer(value))
		fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

/* Prints the name with its suffix and all labels. le: of a histogram's bucket, or NULL. */
static void
print_name(const struct walk *walk, const char *suffix, const char *le)
{
	const struct metrics_label *labels = walk->family->labels;
	const char *separator = "{";

	fprintf(walk->out, "%s%s", walk->family->name, suffix);
	for (unsigned int i = 0; i < METRICS_MAX_LABELS && labels[i].name != NULL; i++) {
		const json_t *object = labels[i].depth < walk->n_objects
					       ? walk->objects[labels[i].depth]
					       : NULL;

		fprintf(walk->out, "%s%s=\"", separator, labels[i].name);
		print_label_value(walk->out, json_object_get(object, labels[i].key));
		fputc('"', walk->out);
		separator = ",";
	}
	if (le != NULL) {
		fprintf(walk->out, "%sle=\"%s\"", separator, le);
		separator = ",";
	}
	fputs(separator[0] == '{' ? " " : "} ", walk->out);
}

static void
print_number(const struct walk *walk, const json_t *value)
{
	double scale = walk->family->scale;

	if (json_is_integer(value) && scale == 0)
		fprintf(walk->out, "%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
	else
		fprintf(walk->out, "%.15g\n", json_number_value(value) * (scale == 0 ? 1 : scale));
}

/* Returns the bucket of a range like "0", "2-3" or "4096-". */
static unsigned int
bucket_of(const char *range)
{
	unsigned long low = strtoul(range, NULL, 10);
	unsigned int bucket = 0;

	while (low >> bucket != 0 && bucket < BUCKETS - 1)
		bucket++;
	return bucket;
}

static void
print_histogram(const struct walk *walk, const json_t *histogram, const json_t *sum)
{
	json_int_t counts[BUCKETS] = { 0 };
	json_int_t total = 0;
	const json_t *count;
	const char *range;

	json_object_foreach((json_t *)(uintptr_t)histogram, range, count)
		counts[bucket_of(range)] += json_integer_value(count);
	for (unsigned int i = 0; i < BUCKETS; i++) {
		char le[24] = "+Inf";

		if (i < BUCKETS - 1)
			snprintf(le, sizeof(le), "%lu", (1ul << i) - 1);
		total += counts[i];
		print_name(walk, "_bucket", le);
		fprintf(walk->out, "%" JSON_INTEGER_FORMAT "\n", total);
	}
	print_name(walk, "_sum", NULL);
	print_number(walk, sum);
	print_name(walk, "_count", NULL);
	fprintf(walk->out, "%" JSON_INTEGER_FORMAT "\n", total);
}

static void
print_sample(struct walk *walk, const json_t *value, const json_t *parent)
{
	const struct metrics_family *family = walk->family;

	if (family->type == METRICS_HISTOGRAM) {
		print_histogram(walk, value, json_object_get(parent, family->sum));
		return;
	}
	if (json_is_object(value))
		walk->objects[walk->n_objects++] = value;
	print_name(walk, "", NULL);
	if (json_is_number(value))
		print_number(walk, value);
	else if (json_is_string(value))
		fprintf(walk->out, "%d\n",
			family->equals != NULL &&
				strcmp(json_string_value(value), family->equals) == 0);
	else
		fprintf(walk->out, "%d\n", json_is_true(value) || json_is_object(value));
	if (json_is_object(value))
		walk->n_objects--;
}

/* Follows the rest of the path from an object of the values. */
static void
follow(struct walk *walk, const json_t *object, const char *path) /* NOLINT(misc-no-recursion) */
{
	size_t len = strcspn(path, ".[");
	const json_t *value = json_object_getn(object, path, len);
	const char *rest = path + len;
	const json_t *entry;
	size_t i;

	if (value == NULL)
		return;
	if (*rest == '\0') {
		print_sample(walk, value, object);
		return;
	}
	if (*rest == '.') {
		follow(walk, value, rest + 1);
		return;
	}
	rest += strlen("[]");
	if (walk->n_objects == METRICS_MAX_DEPTH)
		return;
	json_array_foreach(value, i, entry) {
		walk->objects[walk->n_objects++] = entry;
		if (*rest == '\0')
			print_sample(walk, entry, entry);
		else
			follow(walk, entry, rest + 1);
		walk->n_objects--;
	}
}

char *
metrics_render(const struct metrics_family *families, const json_t *values, size_t *len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, len);
	bool failed;

	if (out == NULL)
		return NULL;
	for (const struct metrics_family *family = families; family->name != NULL; family++) {
		struct walk walk = { .family = family, .out = out };

		fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name, family->help,
			family->name, type_names[family->type]);
		follow(&walk, values, family->path);
	}
	failed = ferror(out) != 0;
	if (fclose(out) == 0 && !failed)
		return text;
	free(text);
	return NULL;
}
