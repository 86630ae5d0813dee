/* SPDX-License-Identifier: BSD-3-Clause */
/* See sparse_data.h. */
#include "lab/bench/sparse_data.h"

#include <stdlib.h>
#include <string.h>

#include "lab/bench/core_rig.h"
#include "hostlib/src/vector/vector.h"
#include "lab/reference/random.h"

/* Blocks are as long as in a vector of this many elements; it has to be longer than any block. */
#define VECTOR (UINT64_C(1) << 26)
/* Values are whole numbers from 1 to this, with either sign. */
#define LARGEST 8

static void *
allocate(size_t n, size_t size)
{
	void *memory = calloc(n, size);

	if (memory == NULL)
		rig_die("no memory for %zu sparse data of %zu bytes", n, size);
	return memory;
}

/* Makes one host's vector over all patterns, and adds it to their sums. */
static struct fanin_vector *
make_vector(struct sparse_data *data, double density, uint16_t host, uint32_t **indices,
	    float **values)
{
	const uint64_t n = (uint64_t)data->span * SPARSE_PATTERNS;
	const uint64_t limit = (uint64_t)(density * 4294967296.0);
	struct random random = random_seed(host + 1u);
	struct fanin_vector *vector = allocate(1, sizeof(*vector));
	uint64_t nnz = 0;

	*indices = allocate(n, sizeof(**indices));
	*values = allocate(n, sizeof(**values));
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t pattern = i / data->span, index = i % data->span;
		float value;

		if (random_u32(&random) >= limit)
			continue;
		value = (float)(1 + random_below(&random, LARGEST));
		if ((random_u32(&random) & 1) != 0)
			value = -value;
		(*indices)[nnz] = i;
		(*values)[nnz++] = value;
		data->sums[pattern][index] += value;
		data->there[pattern][index / 64] |= UINT64_C(1) << index % 64;
		data->n_values[pattern]++;
	}
	*vector = (struct fanin_vector){
		.n = n,
		.nnz = nnz,
		.indices = (const uint8_t *)*indices,
		.values = (const uint8_t *)*values,
		.index_bytes = sizeof(**indices),
		.dtype = FANIN_WIRE_F32,
		.op = FANIN_WIRE_SUM,
		.element_bytes = sizeof(**values),
		.span = data->span,
		.n_blocks = SPARSE_PATTERNS,
	};
	return vector;
}

/* Appends a host's shards of a block. */
static void
add_shards(struct sparse_data *data, const struct fanin_vector *vector, uint32_t pattern,
	   uint16_t host)
{
	struct fanin_vector_cut cut;

	fanin_vector_cut(vector, pattern, data->payload_bytes, &cut);
	for (unsigned int number = 0; number < cut.n_shards; number++) {
		const uint32_t at = data->n_shards[pattern]++;
		struct sparse_shard *shard = &data->shards[pattern][at];
		struct fanin_hdr hdr = { 0 };

		shard->payload = allocate(1, data->payload_bytes);
		shard->len = fanin_vector_make(vector, pattern, &cut, number, &hdr, shard->payload);
		shard->members = hdr.members;
		shard->count = hdr.count;
		data->hosts[pattern][at] = host;
	}
}

void
sparse_data_make(struct sparse_data *data, double density, uint32_t payload_bytes, uint16_t n_hosts)
{
	*data = (struct sparse_data){
		.span = fanin_vector_span(VECTOR, (uint64_t)(density * (double)VECTOR),
					  sizeof(float), payload_bytes),
		.payload_bytes = payload_bytes,
		.n_hosts = n_hosts,
	};
	if (data->span == 0)
		rig_die("packets of %u bytes are too short for sparse blocks of f32",
			payload_bytes);
	for (uint32_t pattern = 0; pattern < SPARSE_PATTERNS; pattern++) {
		data->sums[pattern] = allocate(data->span, sizeof(float));
		data->there[pattern] = allocate(data->span / 64, sizeof(uint64_t));
		data->shards[pattern] = allocate((size_t)n_hosts * FANIN_SHARDS_MAX,
						 sizeof(struct sparse_shard));
		data->hosts[pattern] = allocate((size_t)n_hosts * FANIN_SHARDS_MAX,
						sizeof(uint16_t));
	}
	for (uint16_t host = 0; host < n_hosts; host++) {
		uint32_t *indices;
		float *values;
		struct fanin_vector *vector = make_vector(data, density, host, &indices, &values);

		for (uint32_t pattern = 0; pattern < SPARSE_PATTERNS; pattern++)
			add_shards(data, vector, pattern, host);
		fanin_vector_free(vector);
		free(indices);
		free(values);
	}
	for (uint32_t pattern = 0; pattern < SPARSE_PATTERNS; pattern++) {
		for (uint32_t i = 0; i < data->span / 64; i++)
			data->n_distinct[pattern] +=
				(uint32_t)__builtin_popcountll(data->there[pattern][i]);
	}
}

void
sparse_data_free(struct sparse_data *data)
{
	for (uint32_t pattern = 0; pattern < SPARSE_PATTERNS; pattern++) {
		for (uint32_t i = 0; i < data->n_shards[pattern]; i++)
			free(data->shards[pattern][i].payload);
		free(data->shards[pattern]);
		free(data->hosts[pattern]);
		free(data->sums[pattern]);
		free(data->there[pattern]);
	}
	*data = (struct sparse_data){ 0 };
}

void
sparse_seen_make(struct sparse_seen *seen, const struct sparse_data *data)
{
	*seen = (struct sparse_seen){
		.sums = allocate(data->span, sizeof(float)),
		.there = allocate(data->span / 64, sizeof(uint64_t)),
	};
}

void
sparse_seen_free(struct sparse_seen *seen)
{
	free(seen->sums);
	free(seen->there);
}

void
sparse_seen_clear(struct sparse_seen *seen, const struct sparse_data *data)
{
	memset(seen->there, 0, data->span / 64 * sizeof(*seen->there));
	seen->in = 0;
	seen->total = 0;
	seen->n_values = 0;
	seen->n_bytes = 0;
}

static void
add_value(struct sparse_seen *seen, uint32_t index, const uint8_t *at)
{
	const uint64_t bit = UINT64_C(1) << index % 64;
	float value;

	memcpy(&value, at, sizeof(value));
	seen->sums[index] = (seen->there[index / 64] & bit) != 0 ? seen->sums[index] + value
								 : value;
	seen->there[index / 64] |= bit;
}

static void
add_list(struct sparse_seen *seen, uint32_t span, uint32_t count, const uint8_t *payload)
{
	const uint32_t index_bytes = fanin_shard_index_bytes(span);
	const uint8_t *indices = payload + count * sizeof(float);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t index = 0;

		memcpy(&index, indices + (size_t)i * index_bytes, index_bytes);
		add_value(seen, index, payload + i * sizeof(float));
	}
}

static void
add_bitmap(struct sparse_seen *seen, uint32_t count, const uint8_t *payload, uint32_t len)
{
	const uint32_t first = fanin_shard_first(payload, len);
	const uint32_t n_words = fanin_shard_words(sizeof(float), count, len);
	const uint8_t *words = payload + count * sizeof(float);

	for (uint32_t i = 0; i < n_words; i++) {
		uint64_t word;

		memcpy(&word, words + i * sizeof(word), sizeof(word));
		for (; word != 0; word &= word - 1, payload += sizeof(float))
			add_value(seen, first + i * 64 + (uint32_t)__builtin_ctzll(word), payload);
	}
}

bool
sparse_seen_add(struct sparse_seen *seen, const struct sparse_data *data,
		const struct fanin_hdr *hdr, const uint8_t *payload, uint32_t len)
{
	const struct fanin_shard shard = fanin_shard_decode(hdr->members);

	if (hdr->dtype != FANIN_WIRE_F32 || !fanin_shard_fits(hdr, len) ||
	    shard.span != data->span || !fanin_shard_check(hdr, payload, len) ||
	    (seen->in >> shard.number & 1) != 0)
		return false;
	seen->in |= UINT64_C(1) << shard.number;
	if (shard.total != 0)
		seen->total = shard.total;
	seen->n_values += hdr->count;
	seen->n_bytes += len;
	if (shard.form == FANIN_SHARD_LIST)
		add_list(seen, shard.span, hdr->count, payload);
	else
		add_bitmap(seen, hdr->count, payload, len);
	return true;
}

bool
sparse_seen_is(const struct sparse_seen *seen, const struct sparse_data *data, uint32_t pattern)
{
	if (seen->total == 0 || seen->in != fanin_shard_numbers(seen->total) ||
	    memcmp(seen->there, data->there[pattern], data->span / 64 * sizeof(*seen->there)) != 0)
		return false;
	for (uint32_t i = 0; i < data->span; i++) {
		if ((seen->there[i / 64] >> i % 64 & 1) != 0 &&
		    seen->sums[i] != data->sums[pattern][i])
			return false;
	}
	return true;
}
