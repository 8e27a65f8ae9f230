#!/bin/bash
# Ask once whether EC2 or the group will terminate this instance soon. If so, make its ranks save a checkpoint.
#
# The registry's watcher calls it before each pass. Exit status 0: the instance terminates soon and has no ranks left,
# so the node may leave the cluster. Exit status 1: nothing changes. Ranks get SIGTERM only once, because a second
# SIGTERM would stop them immediately. If one rank is asked to stop, the trainer saves a checkpoint and stops on all
# nodes. If EC2 interrupts the instance, its ranks continue until a minute is left, or until its group terminates it for
# a replacement.
set -uo pipefail
umask 022

root=${DEEPCDK_ROOT:-}
instance_id='' efs_mount=''
# shellcheck source=/dev/null
. "$root/opt/deepcdk/node.conf"
metadata=${DEEPCDK_METADATA:-http://169.254.169.254}/latest
mark=$root/opt/deepcdk/leaving asked=$root/opt/deepcdk/asked-to-stop
saving_s=60 # for a step, a checkpoint and the end of all ranks

log() {
  printf 'deepcdk: %s\n' "$*" >&2
  { printf 'deepcdk: %s\n' "$*" >>"$root/dev/console"; } 2>/dev/null || true
}

# Print the process IDs of the parents of this node's ranks (agent/launch/rank_parent.py). A parent forwards the signal
# to its rank, and exits after all processes of the rank. Parents are found by user and command line, which programs
# cannot set.
ranks() {
  local status words
  for status in "$root"/proc/[0-9]*/status; do
    if ! grep -qsP '^Uid:\t60900\t' "$status"; then continue; fi
    mapfile -d '' -tn 3 words 2>/dev/null <"${status%status}cmdline" || continue
    if [[ ${words[*]:1} == '-m agent.launch.rank_parent' ]]; then basename "${status%/status}"; fi
  done
}

token=''
ask() { curl -fs --max-time 3 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1"; }

if [[ ! -e $asked ]]; then
  token=$(curl -fs --max-time 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$metadata/api/token") || token=''
  left_s=0
  if [[ $(ask autoscaling/target-lifecycle-state) == Terminated ]]; then
    reason='its group terminates this instance'
  elif action=$(ask spot/instance-action); then
    reason="EC2 interrupts this spot instance: $action"
    # {"action": "terminate", "time": "2017-09-18T08:22:00Z"}
    if [[ $action =~ \"time\":\ *\"([^\"]+)\" ]] && ends=$(date --date "${BASH_REMATCH[1]}" +%s); then
      left_s=$((ends - $(date +%s)))
    fi
  elif [[ -e $mark ]]; then
    left_s=$((saving_s + 1)) # The metadata does not answer; the notice stands.
  else
    exit 1
  fi
  if [[ ! -e $mark ]]; then
    printf '%s\n' "$reason" >"$mark"
    # Files that other nodes put there are not opened. The registry's watcher prevents this script from following links.
    read -r new </proc/sys/kernel/random/uuid
    leaving=$root$efs_mount/.cluster/leaving new=$leaving/.$new
    mkdir -p "$leaving"
    (set -C && printf '%s\n' "$reason" >"$new")
    rm -rf "${leaving:?}/$instance_id"
    mv -fT "$new" "$leaving/$instance_id"
    log "$reason"
    if ((left_s > saving_s)) && [[ -n $(ranks) ]]; then log "its ranks continue for $((left_s - saving_s)) s"; fi
  fi
  if ((left_s <= saving_s)); then
    touch "$asked"
    for pid in $(ranks); do
      log "asking rank process $pid to stop with a checkpoint"
      kill -TERM "$pid" || true
    done
  fi
fi
[[ -z $(ranks) ]]
