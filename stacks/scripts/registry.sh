#!/bin/bash
# Keep this node's name in the cluster's registry, and the files that name all nodes.
#
#   registry refresh   take a name (or keep it), then bring every file up to date, once
#   registry watch     the same, again and again until stopped
#   registry keys      print the host keys on the console, as `watch` does at each boot
#
# The registry lies on the shared file system: .cluster/nodes/NAME/ holds one fact a file. Names are given out under a
# lock, so any number of nodes may boot at once. A node whose heartbeat is older than `stale_s` is gone: it leaves the
# files, and its name is free. Directories stay in place when a name changes hands, because an NFS client may still know
# the old ones. Reading a file (close-to-open consistency) makes such a client ask the server again.
set -euo pipefail
umask 022

root=${DEEPCDK_ROOT:-}
role='' instance_id='' ip='' zone='' slots='' gpus='' interface='' login_uid='' login_gid='' login_home='' efs_mount=''
# shellcheck source=/dev/null
. "$root/opt/deepcdk/node.conf" # sets all of these
registry=$root$efs_mount/.cluster
stale_s=${DEEPCDK_STALE_S:-60}
begin='# deepcdk: begin' end='# deepcdk: end'
name=
declare -A age=()

log() { printf 'deepcdk: %s\n' "$*" >&2; }

# Fill `age`: seconds since each node's heartbeat by the file server's clock, which wrote the file $1 just now.
measure_ages() {
  local now='' stamp path file stamps
  age=()
  for file in "$registry"/nodes/*/heartbeat; do { : <"$file"; } 2>/dev/null || true; done
  stamps=$(stat -c '%Y %n' -- "$1" "$registry"/nodes/*/heartbeat 2>/dev/null || true)
  while read -r stamp path; do
    if [[ -z $now ]]; then now=$stamp; fi
    path=${path%/heartbeat}
    age[${path##*/}]=$((now - stamp))
  done <<<"$stamps"
}

# Whether the name $1 may be taken: nobody's, ours, or that of a node that is gone.
is_free() {
  local owner=''
  read -r owner 2>/dev/null <"$registry/nodes/$1/instance-id" || return 0
  [[ $owner == "$instance_id" ]] || ((${age[$1]:-1000000} > stale_s))
}

# Choose a name while the lock is held. Return 1 when the master's name still belongs to another live node.
choose_name() {
  local dir owner index=1
  name=
  if [[ $role == master ]]; then
    if is_free deeplearning-master; then name=deeplearning-master; fi
    [[ -n $name ]]
    return
  fi
  for dir in "$registry"/nodes/deeplearning-worker*; do
    owner=
    read -r owner 2>/dev/null <"$dir/instance-id" || true
    if [[ $owner == "$instance_id" ]]; then name=${dir##*/}; fi
  done
  while [[ -z $name ]]; do
    if is_free "deeplearning-worker$index"; then name=deeplearning-worker$index; fi
    index=$((index + 1))
  done
}

# Write this node's facts under its name; the heartbeat last, since it alone makes them valid.
write_facts() {
  local dir=$registry/nodes/$name key
  read -r key <"$root/etc/ssh/ssh_host_ed25519_key.pub"
  if [[ ! -d $dir ]]; then mkdir "$dir"; fi
  printf '%s\n' "$ip" >"$dir/ip"
  printf '%s\n' "$zone" >"$dir/zone"
  printf '%s\n' "$slots" >"$dir/slots"
  printf '%s\n' "$gpus" >"$dir/gpus"
  printf '%s\n' "$interface" >"$dir/interface"
  printf '%s\n' "$key" >"$dir/host_key"
  printf '%s\n' "$instance_id" >"$dir/instance-id"
  beat
}

beat() { printf '%s\n' "$EPOCHSECONDS" >"$registry/nodes/$name/heartbeat"; }

claim() {
  local deadline=$((SECONDS + ${DEEPCDK_CLAIM_TIMEOUT_S:-180}))
  mkdir -p "$registry/nodes"
  exec 9>>"$registry/lock"
  while :; do
    flock -w 120 9
    printf '%s\n' "$instance_id" >&9
    measure_ages "$registry/lock"
    if choose_name; then break; fi
    flock -u 9
    if ((SECONDS >= deadline)); then
      log "the name deeplearning-master on this file system belongs to another live node; is it in use by another cluster?"
      exit 1
    fi
    sleep 2
  done
  write_facts
  exec 9>&- # lets the lock go
}

# Read all of a file into `content`, trailing newlines included; an absent file is empty.
slurp() {
  content=
  IFS= read -r -d '' content 2>/dev/null <"$1" || true
}

# Replace the file $1 by the text $2 at once, unless it holds it already; $3: its mode.
put() {
  slurp "$1"
  if [[ $content == "$2" && -e $1 ]]; then return; fi
  printf '%s' "$2" >"$1.deepcdk"
  chmod "${3:-644}" "$1.deepcdk"
  if [[ $1 == "$root$login_home"/* ]]; then chown "$login_uid:$login_gid" "$1.deepcdk"; fi
  mv -f "$1.deepcdk" "$1"
}

# Put the lines $2 between our two marks in the file $1, and leave all others as they are.
put_block() {
  local before after=
  slurp "$1"
  before=${content%%"$begin"*}
  if [[ $content == *"$end"$'\n'* ]]; then after=${content#*"$end"$'\n'}; fi
  if [[ -n $before && $before != *$'\n' ]]; then before+=$'\n'; fi
  put "$1" "$before$begin"$'\n'"$2$end"$'\n'"$after" "${3:-644}"
}

# One pass: see to the name, then write every file that names nodes.
refresh() {
  local owner='' dir node index id node_ip node_zone node_slots node_gpus node_interface key
  local nodes='' workers='' hosts='' known='' worker_gpus=0 count=0
  local -a order=()
  if [[ -n $name ]]; then read -r owner 2>/dev/null <"$registry/nodes/$name/instance-id" || true; fi
  if [[ $owner == "$instance_id" ]]; then beat; else claim; fi
  measure_ages "$registry/nodes/$name/heartbeat"

  for node in "${!age[@]}"; do
    if ((age[$node] > stale_s)); then continue; fi
    case $node in
      deeplearning-master) order[0]=$node ;;
      deeplearning-worker*) order[${node#deeplearning-worker}]=$node ;;
    esac
  done
  for index in "${!order[@]}"; do
    node=${order[index]} dir=$registry/nodes/${order[index]}
    { read -r id <"$dir/instance-id" && read -r node_ip <"$dir/ip" && read -r node_zone <"$dir/zone" &&
      read -r node_slots <"$dir/slots" && read -r node_gpus <"$dir/gpus" &&
      read -r node_interface <"$dir/interface" && read -r key <"$dir/host_key"; } 2>/dev/null || continue
    nodes+="$node $node_ip $id $node_slots $node_interface $node_zone"$'\n'
    hosts+="$node_ip $node"$'\n'
    known+="$node,$node_ip ${key% *@*}"$'\n'
    if ((index > 0)); then
      workers+=$node$'\n' count=$((count + 1)) worker_gpus=$node_gpus
    fi
  done

  put_block "$root/etc/hosts" "$hosts"
  put "$root/opt/deeplearning/workers" "$workers"
  put "$root/etc/profile.d/deeplearning.sh" "# Written by deepcdk, which replaces it when nodes come and go.
export DEEPLEARNING_WORKERS_COUNT=$count
export DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers
export DEEPLEARNING_WORKER_GPU_COUNT=$worker_gpus
export DEEPLEARNING_NODES_PATH=/opt/deeplearning/nodes
export EFS_MOUNT=$efs_mount
"
  if [[ $role == master ]]; then
    put_block "$root/etc/ssh/ssh_known_hosts" "$known"
  else
    slurp "$registry/master.pub"
    if [[ -n $content ]]; then put_block "$root$login_home/.ssh/authorized_keys" "$content" 600; fi
  fi
  put "$root/opt/deeplearning/nodes" "$nodes"
}

# Say at once that this node is gone, instead of letting its heartbeat run out.
leave() {
  if [[ -n $name ]]; then rm -f "$registry/nodes/$name/heartbeat"; fi
  exit 0
}

# The console's output is how others learn these keys without trusting the network, as with cloud-init, which prints them
# at the first boot alone: a reboot may empty the console.
keys() {
  local file line keys=
  for file in "$root"/etc/ssh/ssh_host_*_key.pub; do
    read -r line <"$file"
    keys+=$line$'\n'
  done
  { printf -- '-----BEGIN SSH HOST KEY KEYS-----\n%s-----END SSH HOST KEY KEYS-----\n' "$keys" \
    >>"$root/dev/console"; } 2>/dev/null || log 'no console to print the host keys to'
}

# Have the master do at each boot what the runs left for it: to tell what became of the live one, to keep the queue.
at_boot() {
  local hook=$root$efs_mount/runs/.at-boot
  if [[ $role != master || ! -x $hook ]]; then return; fi
  HOME=$login_home setsid setpriv --reuid "$login_uid" --regid "$login_gid" --init-groups "$hook" \
    </dev/null &>/dev/null 8>&- &
}

watch() {
  local passes=0 pause_s
  exec 8>"$root/opt/deepcdk/watch.lock"
  if ! flock -n 8; then exit 0; fi # another one is at it
  trap leave TERM INT
  keys
  refresh
  at_boot
  while :; do
    if [[ -x $root/opt/deepcdk/bin/notice ]] && "$root/opt/deepcdk/bin/notice"; then
      rm -f "$registry/nodes/$name/heartbeat" # it ends soon: no new run may count on it
    else
      refresh
    fi
    passes=$((passes + 1))
    # The master sees newcomers soon, since runs wait for that; a worker only while the cluster forms.
    pause_s=10
    if [[ $role == master || ! -s $registry/master.pub ]] || ((passes < 30)); then pause_s=2; fi
    sleep "${DEEPCDK_PAUSE_S:-$pause_s}" 8>&- &
    wait $!
  done
}

case ${1:-} in
  refresh | watch | keys) "$1" ;;
  *) log "usage: registry refresh|watch|keys" && exit 2 ;;
esac
