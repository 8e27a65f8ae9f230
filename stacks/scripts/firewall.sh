#!/bin/bash
# Load the rules that keep ranks from file servers and from the instance's metadata service.
#
#   firewall        ranks may not use the role of their node
#   firewall role   ranks may use it: the cluster names buckets for them
#
# Runs as root at each boot, before any rank. NFS and Lustre believe the user number that a client states. The kernel's
# own connections to them belong to no user, so the rules do not match them. A socket keeps the number of the user that
# made it, also in a user namespace. 169.254.0.0/16 and fd00:ec2::/32 hold the metadata service and the addresses that
# hand out credentials elsewhere on AWS; the DNS resolver and the clock there stay reachable. The protocols are TCP, UDP,
# DCCP, SCTP and UDP-Lite by number: an image may lack the file with their names.
#
# The rules also keep ranks of two runs apart. Packets that a rank sends are marked with a DSCP that nothing else uses.
# Such a packet from another node enters only if that node is in the set `mates`: the nodes of the run that has this node
# (rank_leftovers.sh). IPv6 is not used between nodes. Of TCP only the first packet counts, so that a rank can answer those who
# are no ranks.
set -euo pipefail

root=${DEEPCDK_ROOT:-}
metadata='
ip daddr { 169.254.169.123, 169.254.169.253 } accept
ip6 daddr { fd00:ec2::123, fd00:ec2::253 } accept
ip daddr 169.254.0.0/16 reject
ip6 daddr fd00:ec2::/32 reject'
if [[ ${1:-} == role ]]; then metadata=; fi
nft -f - <<RULES
table inet deepcdk
delete table inet deepcdk
table inet deepcdk {
  set mates { type ipv4_addr; }
  chain ranks {
    meta l4proto { 6, 17, 33, 132, 136 } th dport { 988, 2049 } reject$metadata
    ip dscp set 43
    ip6 dscp set 43
  }
  chain input {
    type filter hook input priority 0
    iif lo accept
    tcp flags & (syn | ack) != syn accept
    ip saddr != @mates ip dscp 43 reject
    ip6 dscp 43 reject
  }
  chain output {
    type filter hook output priority 0
    meta skuid 60900 jump ranks
  }
}
RULES
# agent/remote/rank_user.py compares it: /run may outlive a boot.
mkdir -p "$root/run"
cat /proc/sys/kernel/random/boot_id >"$root/run/deepcdk-firewall"
