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
#
# Every node can write there, so what is read there is foreign: it is compared with a rule before it goes anywhere, and
# before that it stands in no arithmetic and in no subscript, which bash would evaluate.
set -euo pipefail
umask 022
LC_ALL=C # so that [a-z] means ASCII, and %q leaves nothing else as it is

root=${DEEPCDK_ROOT:-}
role='' instance_id='' ip='' zone='' slots='' gpus='' interface='' login_uid='' login_gid='' login_home='' efs_mount=''
# shellcheck source=/dev/null
. "$root/opt/deepcdk/node.conf" # sets all of these
registry=$root$efs_mount/.cluster
stale_s=${DEEPCDK_STALE_S:-60}
begin='# deepcdk: begin' end='# deepcdk: end'
name='' words='' noted=''
# The facts of a node, in the order in which they are written, and before them its name. As in agent/spec/nodes.py.
facts=(ip zone slots gpus interface host_key instance-id)
octet='(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
declare -A age=() fact=() rule=(
  [name]='deeplearning-(master|worker[1-9][0-9]{0,3})'
  [ip]="($octet\.){3}$octet"
  [zone]='[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}([a-z]|(-[a-z0-9]{1,8}){1,4})'
  [slots]='[1-9][0-9]{0,2}|10([01][0-9]|2[0-4])'
  [gpus]='0|[1-9][0-9]{0,2}'
  [interface]='[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}'
  [host_key]='ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}'
  [instance-id]='i-([0-9a-f]{8}|[0-9a-f]{17})'
)

log() { printf 'deepcdk: %s\n' "$*" >&2; }

# Log $1 and the foreign text $2 once, not in each pass; and at some length nothing more.
note() {
  local line
  printf -v line '%s: %q\n' "$1" "${2:0:80}"
  if [[ $noted != *"$line"* && ${#noted} -lt 9999 ]]; then
    noted+=$line
    log "${line%?}"
  fi
}

# Whether the text $2 follows the rule $1.
fits() { [[ $2 =~ ^(${rule[$1]})$ ]]; }

# Whether $1 is a file of its own in a directory of its own: a link may lead anywhere, and a pipe would block.
is_file() { [[ -f $1 && ! -L $1 && ! -L ${1%/*} ]]; }

# Read the first two words of the file $1 into `words`, none from half a line.
read_words() {
  local first second
  words=
  if is_file "$1" && read -rn 999 first second _ 2>/dev/null <"$1"; then words=$first${second:+ $second}; fi
}

# Write the line $2 to the file $1.
write() {
  is_file "$1" || rm -rf "$1"
  printf '%s\n' "$2" >"$1"
}

# Fill `age`: seconds since each node's heartbeat by the file server's clock, which wrote the file $1 just now.
measure_ages() {
  local now='' stamp path stamps files=("$1")
  age=()
  for path in "$registry"/nodes/*; do
    if ! fits name "${path##*/}"; then
      # Not more than half of what is logged: nodes that are left out are to be heard of too.
      if [[ -e $path && ${#noted} -lt 4999 ]]; then note "no node's name in the registry" "${path##*/}"; fi
      continue
    fi
    path+=/heartbeat
    if is_file "$path" && { : <"$path"; } 2>/dev/null; then files+=("$path"); fi
  done
  stamps=$(stat -c '%Y %n' -- "${files[@]}" 2>/dev/null || true)
  while read -r stamp path; do
    if [[ -z $path ]]; then continue; fi
    if [[ -z $now ]]; then now=$stamp; fi
    path=${path%/heartbeat}
    age[${path##*/}]=$((now - stamp))
  done <<<"$stamps"
}

# Whether the name $1 may be taken: nobody's, ours, or that of a node that is gone.
is_free() {
  local seconds=${age[$1]:-1000000}
  read_words "$registry/nodes/$1/instance-id"
  [[ -z $words || $words == "$instance_id" ]] || ((seconds > stale_s))
}

# Choose a name while the lock is held. Return 1 when the master's name still belongs to another live node.
choose_name() {
  local dir index=1
  name=
  if [[ $role == master ]]; then
    if is_free deeplearning-master; then name=deeplearning-master; fi
    [[ -n $name ]]
    return
  fi
  for dir in "$registry"/nodes/deeplearning-worker*; do
    read_words "$dir/instance-id"
    if [[ $words == "$instance_id" ]] && fits name "${dir##*/}"; then name=${dir##*/}; fi
  done
  while [[ -z $name ]]; do
    if is_free "deeplearning-worker$index"; then name=deeplearning-worker$index; fi
    index=$((index + 1))
  done
}

# Write this node's facts under its name; the heartbeat last, since it alone makes them valid.
write_facts() {
  local dir=$registry/nodes/$name host_key each own
  read -r host_key <"$root/etc/ssh/ssh_host_ed25519_key.pub"
  if [[ -L $dir || ! -d $dir ]]; then rm -f "$dir" && mkdir "$dir"; fi
  for each in "${facts[@]}"; do
    own=${each/-/_}
    write "$dir/$each" "${!own}"
  done
  beat
}

beat() { write "$registry/nodes/$name/heartbeat" "$EPOCHSECONDS"; }

claim() {
  local deadline=$((SECONDS + ${DEEPCDK_CLAIM_TIMEOUT_S:-180})) lock=$registry/lock
  mkdir -p "$registry/nodes"
  # Only where it is no file: others may hold it.
  if [[ -L $lock || -e $lock && ! -f $lock ]]; then rm -rf "$lock"; fi
  exec 9>>"$lock"
  while :; do
    flock -w 120 9
    printf '%s\n' "$instance_id" >&9
    measure_ages "$lock"
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

# Read the facts of the node $1 into `fact`. Return 1, with `broken` which one, when one is missing or against its rule.
read_facts() {
  for broken in "${facts[@]}"; do
    read_words "$registry/nodes/$1/$broken"
    if ! fits "$broken" "$words"; then return 1; fi
    fact[$broken]=$words
  done
}

# One pass: see to the name, then write every file that names nodes.
refresh() {
  local node index seconds broken why profile
  local nodes='' workers='' hosts='' known='' left_out='' worker_gpus=0 count=0
  local -a order=()
  # Links in place of the registry's own directories; those of nodes are left out one by one.
  for node in "$registry" "$registry/nodes"; do
    if [[ -L $node ]]; then rm -f "$node"; fi
  done
  words=
  if [[ -n $name ]]; then read_words "$registry/nodes/$name/instance-id"; fi
  if [[ $words == "$instance_id" ]]; then beat; else claim; fi
  measure_ages "$registry/nodes/$name/heartbeat"

  for node in "${!age[@]}"; do
    seconds=${age[$node]}
    if ((seconds > stale_s)); then continue; fi
    case $node in
      deeplearning-master) order[0]=$node ;;
      deeplearning-worker*) order[${node#deeplearning-worker}]=$node ;;
    esac
  done
  for index in "${!order[@]}"; do
    node=${order[index]}
    if ! read_facts "$node"; then
      if [[ -z $words ]]; then continue; fi # not written yet, or written anew just now
      why="$node is left out: its $broken in the registry breaks the rule"
      note "$why" "$words"
      left_out+="# $why"$'\n'
      continue
    fi
    nodes+="$node ${fact[ip]} ${fact[instance-id]} ${fact[slots]} ${fact[interface]} ${fact[zone]}"$'\n'
    hosts+="${fact[ip]} $node"$'\n'
    known+="$node,${fact[ip]} ${fact[host_key]}"$'\n'
    if ((index > 0)); then
      workers+=$node$'\n' count=$((count + 1)) worker_gpus=${fact[gpus]}
    fi
  done

  put_block "$root/etc/hosts" "$hosts"
  put "$root/opt/deeplearning/workers" "$workers"
  printf -v profile 'export %s=%q\n' DEEPLEARNING_WORKERS_COUNT "$count" \
    DEEPLEARNING_WORKERS_PATH /opt/deeplearning/workers DEEPLEARNING_WORKER_GPU_COUNT "$worker_gpus" \
    DEEPLEARNING_NODES_PATH /opt/deeplearning/nodes EFS_MOUNT "$efs_mount"
  put "$root/etc/profile.d/deeplearning.sh" "# Written by deepcdk, which replaces it when nodes come and go.
$profile"
  if [[ $role == master ]]; then
    put_block "$root/etc/ssh/ssh_known_hosts" "$known"
  else
    read_words "$registry/master.pub"
    if fits host_key "$words"; then
      put_block "$root$login_home/.ssh/authorized_keys" "$words deepcdk-master"$'\n' 600
    elif [[ -e $registry/master.pub ]]; then
      note "no key in the registry's master.pub" "$words"
    fi
  fi
  put "$root/opt/deeplearning/nodes" "$nodes$left_out"
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
