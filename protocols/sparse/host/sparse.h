/* SPDX-License-Identifier: BSD-3-Clause */
/* The host protocol of the handlers that take sparse blocks. */
#ifndef FANIN_PROTOCOLS_SPARSE_HOST_SPARSE_H
#define FANIN_PROTOCOLS_SPARSE_HOST_SPARSE_H

#include "hostlib/src/protocol/protocol.h"

extern struct fanin_protocol fanin_protocol_sparse;

#endif
