#!/bin/bash
# Load the rules that block ranks' connections to file servers and to the instance's metadata service.
#
#   firewall        ranks must not use the IAM role of their node
#   firewall role   ranks may use the role: data_buckets or checkpoint_buckets names buckets
#
# Runs as root at each boot, before any rank. NFS and Lustre trust the user number that a client sends. The kernel's own
# connections to them belong to no user, so the rules do not match them. A socket keeps the number of the user that
# created it, also in a user namespace. 169.254.0.0/16 and fd00:ec2::/32 contain the metadata service, and the addresses
# that provide credentials in other AWS services. The DNS resolver and the clock in these networks stay reachable. The
# protocols are TCP, UDP, DCCP, SCTP and UDP-Lite. They are given by number, because an image may lack the file with
# their names.
#
# The rules also isolate ranks of different runs. Packets from a rank are marked with a DSCP that nothing else uses. A
# marked packet from another node is accepted only if that node is in the set `mates`, the nodes of the run that uses
# this node (rank_leftovers.sh). IPv6 is not used between nodes. For TCP, only the first packet is checked, so that a
# rank can answer processes that are not ranks.
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
# agent/remote/rank_user.py compares the boot's ID, because /run may survive a reboot.
mkdir -p "$root/run"
cat /proc/sys/kernel/random/boot_id >"$root/run/deepcdk-firewall"
