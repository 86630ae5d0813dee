/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names that newer releases of DPDK have, for the older ones that Fanin builds with. The code uses
 * the new names: the old ones are deprecated where both are there.
 */
#ifndef FANIN_PIPELINE_DPDK_NAMES_H
#define FANIN_PIPELINE_DPDK_NAMES_H

#include <rte_icmp.h>
#include <rte_version.h>

/* Functions, which the preprocessor does not see, since 23.03. */
#if RTE_VERSION < RTE_VERSION_NUM(23, 3, 0, 0)
#define RTE_TEL_UINT_VAL RTE_TEL_U64_VAL
#define rte_tel_data_add_array_uint rte_tel_data_add_array_u64
#define rte_tel_data_add_dict_uint rte_tel_data_add_dict_u64
#endif

#ifndef RTE_ICMP_TYPE_ECHO_REPLY
#define RTE_ICMP_TYPE_ECHO_REPLY RTE_IP_ICMP_ECHO_REPLY
#define RTE_ICMP_TYPE_ECHO_REQUEST RTE_IP_ICMP_ECHO_REQUEST
#endif

#endif
