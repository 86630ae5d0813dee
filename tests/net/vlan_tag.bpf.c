/* SPDX-License-Identifier: BSD-3-Clause */
/* For tc(8): makes a MACVLAN an interface of a VLAN, also where the kernel has none of these. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN 5

/*
 * At what leaves: the tag stands beside the packet, as with an interface of a VLAN, and the
 * interface below puts it in if it has to.
 */
SEC("tag")
int
push_tag(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), VLAN) == 0 ? TC_ACT_OK : TC_ACT_SHOT;
}

/* At what comes in: without that VLAN's tag it is not for this interface. */
SEC("untag")
int
pop_tag(struct __sk_buff *skb)
{
	if (!skb->vlan_present || (skb->vlan_tci & 0xfff) != VLAN)
		return TC_ACT_SHOT;
	return bpf_skb_vlan_pop(skb) == 0 ? TC_ACT_OK : TC_ACT_SHOT;
}

char vlan_tag_license[] SEC("license") = "Dual BSD/GPL";
