/* SPDX-License-Identifier: BSD-3-Clause */
/* See cc.h. */
#include "cc.h"

#include <string.h>

static void
fixed_init(struct fanin_cc *cc)
{
	(void)cc;
}

static void
fixed_on_delay(struct fanin_cc *cc, const struct fanin_cc_sample *sample)
{
	(void)cc;
	(void)sample;
}

static void
fixed_on_loss(struct fanin_cc *cc, uint64_t now_ns)
{
	(void)cc;
	(void)now_ns;
}

const struct fanin_cc_type fanin_cc_fixed = {
	.name = "fixed",
	.description = "always the job's window",
	.init = fixed_init,
	.on_delay = fixed_on_delay,
	.on_loss = fixed_on_loss,
};

const struct fanin_cc_type *const fanin_cc_types[] = { &fanin_cc_delay, &fanin_cc_fixed, NULL };

const struct fanin_cc_type *
fanin_cc_find(const char *name)
{
	for (const struct fanin_cc_type *const *type = fanin_cc_types; *type != NULL; type++) {
		if (strcmp((*type)->name, name) == 0)
			return *type;
	}
	return NULL;
}
