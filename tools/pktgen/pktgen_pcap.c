/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes a job's contributions to capture files, one for each host, for generators that replay such
 * files: the same frames that this one would send. See pktgen.h. The files are of the classic pcap
 * format with microseconds.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pktgen/pktgen.h"

#define PCAP_MAGIC 0xa1b2c3d4u
#define PCAP_ETHERNET 1
#define MICROSECONDS 1000000

struct pcap_file {
	uint32_t magic;
	uint16_t major;
	uint16_t minor;
	int32_t zone;
	uint32_t accuracy;
	uint32_t snap_len;
	uint32_t link;
};

struct pcap_frame {
	uint32_t seconds;
	uint32_t microseconds;
	uint32_t captured;
	uint32_t len;
};

static bool
write_host(struct pktgen_member *member, FILE *file, uint8_t *frame, uint64_t blocks)
{
	const struct pcap_file header = { PCAP_MAGIC, 2, 4, 0, 0, UINT16_MAX, PCAP_ETHERNET };
	struct pktgen_job *job = member->job;
	struct fanin_headers headers = member->headers;
	const uint32_t len = FANIN_PAYLOAD_OFFSET + job->payload;

	if (fwrite(&header, sizeof(header), 1, file) != 1)
		return false;
	for (uint64_t block = 0; block < blocks; block++) {
		/* Frames are a microsecond apart: times only give the order. */
		const struct pcap_frame packet = { (uint32_t)(block / MICROSECONDS),
						   (uint32_t)(block % MICROSECONDS), len, len };

		hosts_headers_set_block(&headers, (uint32_t)block);
		memcpy(frame, &headers, sizeof(headers));
		memcpy(frame + sizeof(headers),
		       hosts_contribution(&job->data, member->rank, (uint32_t)block), job->payload);
		if (fwrite(&packet, sizeof(packet), 1, file) != 1 ||
		    fwrite(frame, len, 1, file) != 1)
			return false;
	}
	return true;
}

int
pktgen_pcap_write(struct pktgen *gen, const char *prefix, uint64_t blocks)
{
	uint8_t *frame = malloc(FANIN_PAYLOAD_OFFSET + gen->jobs[0].payload);
	int ret = 0;

	if (frame == NULL)
		return pktgen_fail(gen, -ENOMEM, "no memory for a frame");
	for (uint16_t h = 0; h < gen->options->hosts && ret == 0; h++) {
		char path[512];
		bool written;
		FILE *file;

		snprintf(path, sizeof(path), "%s-h%u.pcap", prefix, h);
		file = fopen(path, "we");
		if (file == NULL) {
			ret = pktgen_fail(gen, -errno, "--pcap: cannot write %s: %s", path,
					  strerror(errno));
			break;
		}
		written = write_host(&gen->members[h], file, frame, blocks);
		if (fclose(file) != 0 || !written)
			ret = pktgen_fail(gen, -EIO, "--pcap: cannot write %s: %s", path,
					  strerror(errno));
	}
	free(frame);
	return ret;
}
