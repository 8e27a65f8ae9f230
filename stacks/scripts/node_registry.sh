#!/bin/bash
# Maintain this node's name in the cluster's registry, and the files that name all nodes.
#
#   registry refresh   take or keep a name, then update all files, once
#   registry watch     the same, repeatedly until stopped
#   registry keys      print the host keys on the console, as `watch` does at each boot and once an hour
#
# The registry is the directory .cluster of the shared file system:
#
#   nodes/NAME   the facts of the node with this name; the file's modification time is the node's heartbeat
#   new-ROLE/ID  the entry of a node that is about to take a name
#   list         the facts of all live nodes, by name; only the master writes it, the others copy it
#   lock         held while entries of lost nodes are removed; its modification time is the time of the last removal
#   master.pub   the master's public key, only as a hint: workers read the key from the parameter of the master's role
#
# A node takes a name by linking a complete entry to it. Only one node can succeed, also over NFS. So any number of nodes
# may boot simultaneously, and no node waits for another. A node with a heartbeat older than `stale_s` is lost: it is
# not in the list, and its name is free. Only the holder of the lock removes entries of others. Nodes do not wait for
# the lock forever. When an NFS client reads a file or a directory, it asks the server (close-to-open consistency). But
# it may report a file as missing for a minute after it did not find it once. So files of other nodes are looked up in
# the listing of their directory, and not by name.
#
# Every node can write there, so the content is untrusted. It is checked against a rule before any use. Unchecked text
# is never used in arithmetic or in a subscript, because bash would evaluate it.
# Some variables are used only by the role's part, which is sourced at the end.
# shellcheck disable=SC2034
set -euo pipefail
umask 022
# With this locale, [a-z] matches only ASCII, and %q quotes all other characters.
LC_ALL=C

root=${DEEPCDK_ROOT:-}
role='' instance_id='' ip='' zone='' slots='' gpus='' kind='' interface='' login_uid='' login_gid='' login_home='' rank_home='' efs_mount='' fsx_mount=''
region='' key_parameter='' handover_parameter=''
# It sets all of these.
# shellcheck source=/dev/null
. "$root/opt/deepcdk/node.conf"

# Mount file systems of /etc/fstab that could not be mounted at boot. If this fails, the script fails and is started
# again, because a node needs its file systems.
for mount in $efs_mount $fsx_mount; do
  mountpoint -q "$root$mount" || timeout -k 9 99 mount "$root$mount"
done

# Prevent the kernel from following links on the shared file system, because root on any node can create links at any
# time. This applies to this process and its child processes, which have a separate mount namespace.
if [[ -z $root && -z ${DEEPCDK_NO_LINKS:-} ]]; then
  export DEEPCDK_NO_LINKS=1
  # MS_REMOUNT, MS_BIND, MS_NOSYMFOLLOW, MS_NOEXEC, MS_NODEV and MS_NOSUID: an older mount command lacks the third.
  exec unshare --mount /opt/deepcdk/bin/python3 -IS -c 'import ctypes, os, sys
failed = ctypes.CDLL(None, use_errno=True).mount(None, os.fsencode(sys.argv[1]), None, 0x112E, None)
if failed: sys.exit(f"deepcdk: cannot mount {sys.argv[1]} without links: {os.strerror(ctypes.get_errno())}")
os.execv(sys.argv[2], sys.argv[2:])' "$efs_mount" "$0" "$@"
fi

registry=$root$efs_mount/.cluster
stale_s=${DEEPCDK_STALE_S:-60}
# Size limit for the list, enough for 9999 nodes.
most_bytes=4000000
begin='# deepcdk: begin' end='# deepcdk: end'
name='' noted='' mark='' text='' there='' own='' copied='' nodes='' workers='' hosts='' known='' list='' left_out=''
count=0 worker_gpus=0 watching=0
# The facts of a node, in the order of the file, separated by commas. The same as in agent/spec/nodes.py.
facts=(instance-id ip slots interface zone gpus kind host_key)
octet='(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])'
declare -A age=() entry=() fact=() rule=(
  [name]='deeplearning-(master|worker[1-9][0-9]{0,3})'
  [ip]="($octet\.){3}$octet"
  [zone]='[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}([a-z]|(-[a-z0-9]{1,8}){1,4})'
  [slots]='[1-9][0-9]{0,2}|10([01][0-9]|2[0-4])'
  [gpus]='0|[1-9][0-9]{0,2}'
  [kind]='(x86_64|aarch64)(-gpu|-sm[1-9][0-9]{1,2})?(-py3[.][1-9][0-9]?)?'
  [interface]='[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}'
  [host_key]='ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}'
  [instance-id]='i-([0-9a-f]{8}|[0-9a-f]{17})'
)

log() { printf 'deepcdk: %s\n' "$*" >&2; }

# Log $1 and the untrusted text $2 once, not in each pass, until the log's size limit is reached.
note() {
  local line
  printf -v line '%s: %q\n' "$1" "${2:0:80}"
  if [[ $noted != *"$line"* && ${#noted} -lt 9999 ]]; then
    noted+=$line
    log "${line%?}"
  fi
}

# Return whether the text $2 follows the rule $1.
fits() { [[ $2 =~ ^(${rule[$1]})$ ]]; }

# Return whether $1 is a regular file in a real directory. A link may point anywhere, and a pipe would block.
is_file() { [[ -f $1 && ! -L $1 && ! -L ${1%/*} ]]; }

# Print the first $1 bytes of each of the files in the other arguments. bash would read a line of any length and skip
# any number of NULs. Another node may also have replaced the file by a pipe since `is_file`.
beginning() { timeout 10 head -qc "$1" -- "${@:2}" 2>/dev/null || true; }

# Read the first line of the file $1 into `text`. An incomplete line gives an empty text.
read_line() {
  text=
  if is_file "$1"; then IFS= read -r text 2>/dev/null < <(beginning 999 "$1") || text=; fi
}

# Read the first lines of the files of the names $@ into `entry`, with one command.
read_entries() {
  local each line own_mark=$root/opt/deepcdk/mark marked=()
  if (($# == 0)); then return; fi
  # The mark between two files is unknown to other nodes.
  if [[ -z $mark ]] && ! read -r mark 2>/dev/null <"$own_mark"; then
    read -r mark </proc/sys/kernel/random/uuid
    (umask 077 && printf '%s\n' "$mark" >"$own_mark")
  fi
  for each; do marked+=("$registry/nodes/$each" "$own_mark") entry[$each]=''; done
  text=
  while IFS= read -r line; do
    if [[ $line != *"$mark" ]]; then
      if [[ -z $text ]]; then text=$line; fi
      continue
    fi
    # Text before the mark in its line is an incomplete line, unless it was truncated.
    line=${line%"$mark"}
    if ((${#line} >= 999)); then text=${text:-$line}; fi
    entry[$1]=$text text=
    shift
  done < <(beginning 999 "${marked[@]}" | tr -d '\0')
}

# Remove $1 if it exists and is not a file.
clear_way() {
  if [[ -L $1 || -e $1 && ! -f $1 ]]; then rm -rf "$1"; fi
}

# Replace $1 by a file with the text $2, or return 1 and keep the file, as on a full disk. The temporary name is
# unpredictable for other nodes.
write() {
  local new
  read -r new </proc/sys/kernel/random/uuid
  new=${1%/*}/.$new
  (set -C; printf %s "$2" >"$new") || { rm -f "$new" && return 1; }
  clear_way "$1"
  mv -fT "$new" "$1"
}

# Read the entries of all names into `entry`, and the seconds since each one's heartbeat into `age`, by the file
# server's clock, which touched the file $1 just now.
scan() {
  local now='' stamp path stamps names=() files=("$1")
  age=() entry=()
  for path in "$registry"/nodes/*; do
    if ! fits name "${path##*/}"; then
      # At most half of the log, because skipped nodes must be logged too.
      if [[ -e $path && ${#noted} -lt 4999 ]]; then note "invalid node name in the registry" "${path##*/}"; fi
      continue
    fi
    if ! is_file "$path"; then continue; fi
    names+=("${path##*/}")
    files+=("$path")
  done
  read_entries "${names[@]}"
  stamps=$(stat -c '%Y %n' -- "${files[@]}" 2>/dev/null || true)
  while read -r stamp path; do
    if [[ -z $path ]]; then continue; fi
    if [[ -n $now ]]; then age[${path##*/}]=$((now - stamp)); elif [[ $path == "$1" ]]; then now=$stamp; fi
  done <<<"$stamps"
}

# Scan, and remove the entries of lost nodes, so that their names are free. If another node is doing this, return 1
# without removing an entry: no name may change its node between the scan and the removal.
sweep() {
  local node lock=$registry/lock
  clear_way "$lock"
  exec 9<>"$lock" # A pipe would keep a process waiting that opens it for writing alone.
  touch -ch "$1"
  if ! flock -n 9; then
    scan "$1"
    return 1
  fi
  scan "$1"
  for node in "${!age[@]}"; do
    if ((age[$node] > stale_s)); then rm -f "$registry/nodes/$node"; fi
  done
  touch -ch "$lock"
  exec 9>&-
}

# Take the name $1 with the entry $2, unless another node has it.
take() {
  local path=$registry/nodes/$1
  clear_way "$path"
  # Check the current owner, because the network may lose the answer.
  ln -T "$2" "$path" 2>/dev/null || true
  read_line "$path"
  if [[ $text != "$instance_id,"* ]]; then return 1; fi
  if [[ $2 -ef $path ]]; then rm -f "$2"; else mv -fT "$2" "$path"; fi
  name=$1
  write "$root/opt/deepcdk/name" "$instance_id $name"$'\n' || true
}

# Write this node's entry to a temporary file, and take a name with it.
claim() {
  local new=$registry/new-$role/$instance_id algorithm key each fact
  read -r algorithm key _ <"$root/etc/ssh/ssh_host_ed25519_key.pub"
  local host_key="$algorithm $key"
  own='' name=''
  for each in "${facts[@]}"; do
    fact=${each/-/_}
    own+=${own:+,}${!fact}
  done
  mkdir -p "$registry/nodes" "${new%/*}"
  write "$new" "$own"$'\n'
  choose_name "$new"
}

# Remove this node's entry. Then the node leaves immediately, and not only when its heartbeat is stale.
withdraw() {
  if [[ -z $name ]]; then return; fi
  read_line "$registry/nodes/$name"
  if [[ $text == "$instance_id,"* ]]; then rm -f "$registry/nodes/$name"; fi
}

# Read a file into `content`, including trailing newlines. A missing file counts as empty.
slurp() {
  content=
  IFS= read -r -d '' content 2>/dev/null <"$1" || true
}

# Replace the file $1 atomically by the text $2, unless it has this text already. $3: its mode; default: 644.
put() {
  slurp "$1"
  if [[ $content == "$2" && -e $1 ]]; then return; fi
  printf %s "$2" >"$1.deepcdk" || return
  if [[ -n ${3:-} ]]; then chmod "$3" "$1.deepcdk"; fi
  if [[ $1 == "$root$login_home"/* ]]; then chown "$login_uid:$login_gid" "$1.deepcdk"; fi
  mv -f "$1.deepcdk" "$1"
}

# Put the lines $2 between the two marks in the file $1, and keep all other lines.
put_block() {
  local before after=
  slurp "$1"
  before=${content%%"$begin"*}
  if [[ $content == *"$end"$'\n'* ]]; then after=${content#*"$end"$'\n'}; fi
  if [[ -n $before && $before != *$'\n' ]]; then before+=$'\n'; fi
  put "$1" "$before$begin"$'\n'"$2$end"$'\n'"$after" "${3:-}"
}

# Read the facts of a node from its entry $1 into `fact`. Return 1 if a fact is invalid, with the name in `broken` and the
# text in `value`.
read_facts() {
  local rest=$1,
  for broken in "${facts[@]}"; do
    value=${rest%%,*}
    rest=${rest#*,}
    # After the last fact, the line must end.
    if [[ $broken == host_key ]]; then value+=${rest:+,$rest}; fi
    if ! fits "$broken" "$value"; then return 1; fi
    fact[$broken]=$value
  done
}

# Call AWS as this node's role, and print the answer as text. Return 124 after a timeout.
ask_aws() {
  # Call it outside of this mount namespace, because a snap cannot start in it.
  timeout "${DEEPCDK_ASK_S:-30}" ${DEEPCDK_NO_LINKS:+nsenter --mount=/proc/1/ns/mnt} env LC_ALL=C.UTF-8 PYTHONUTF8=1 AWS_PAGER='' aws "$@" --region "$region" --output text \
    --cli-connect-timeout 5 --cli-read-timeout 20
}

# Write the content of the files that name nodes to variables, from the entries in `order`. The master is number 0.
assemble() {
  local index node why broken value
  nodes='' workers='' hosts='' known='' list='' count=0 worker_gpus=0
  for index in "${!order[@]}"; do
    node=deeplearning-worker$index
    if ((index == 0)); then node=deeplearning-master; fi
    # The entry is incomplete.
    if [[ -z ${order[index]} ]]; then continue; fi
    why=
    if ! read_facts "${order[index]}"; then
      why="its $broken in the registry is invalid"
    elif ! is_identified; then
      value=${fact[host_key]}
      # It has just taken its name.
      if [[ -z $why ]]; then continue; fi
    fi
    if [[ -n $why ]]; then
      note "$node is left out: $why" "$value"
      left_out+="# $node is left out: $why"$'\n'
      continue
    fi
    nodes+="$node ${fact[ip]} ${fact[instance-id]} ${fact[slots]} ${fact[interface]} ${fact[zone]} ${fact[kind]}"$'\n'
    hosts+="${fact[ip]} $node"$'\n'
    known+="$node,${fact[ip]} ${fact[host_key]}"$'\n'
    list+="$node,${order[index]}"$'\n'
    if ((index > 0)); then
      workers+=$node$'\n' count=$((count + 1)) worker_gpus=${fact[gpus]}
    fi
  done
}

# Do one pass: take or keep the name, then write all files that name nodes.
refresh() {
  local path profile
  # Remove links in place of the registry's directories. Links of nodes are skipped one by one.
  for path in "$registry" "$registry/nodes" "$registry/new-$role"; do
    if [[ -L $path ]]; then rm -f "$path"; fi
  done
  text=
  if [[ -n $name ]]; then read_line "$registry/nodes/$name"; fi
  if [[ $text == "$instance_id,"* ]]; then touch -ch "$registry/nodes/$name"; else claim; fi
  follow

  # Gloo asks for the address of this host's own name (Horovod 0.28.1, GlooContext::InitializeForProcessSet), and
  # nss-myhostname first answers with an IPv6 link-local address, which other nodes cannot reach.
  local own_host=
  { read -r own_host <"$root/proc/sys/kernel/hostname"; } 2>/dev/null || true
  if [[ $own_host =~ ^[A-Za-z0-9][A-Za-z0-9.-]*$ ]]; then
    hosts+="$ip $own_host"
    if [[ $own_host == *.* ]]; then hosts+=" ${own_host%%.*}"; fi
    hosts+=$'\n'
  fi
  put_block "$root/etc/hosts" "$hosts"
  put "$root/opt/deeplearning/workers" "$workers"
  printf -v profile 'export %s=%q\n' DEEPLEARNING_WORKERS_COUNT "$count" \
    DEEPLEARNING_WORKERS_PATH /opt/deeplearning/workers DEEPLEARNING_WORKER_GPU_COUNT "$worker_gpus" \
    DEEPLEARNING_NODES_PATH /opt/deeplearning/nodes EFS_MOUNT "$efs_mount"
  put "$root/etc/profile.d/deeplearning.sh" "# Written by deepcdk, which replaces it when nodes join or leave.
$profile"
  put "$root/opt/deeplearning/nodes" "$nodes$left_out"
}

leave() {
  withdraw
  exit 0
}

# Others read these keys from the console output, and do not need to trust the network. cloud-init prints them too, but
# only at the first boot. A reboot may clear the console, and EC2 keeps only its last 64 KB.
keys() {
  local file line keys=
  for file in "$root"/etc/ssh/ssh_host_*_key.pub; do
    read -r line <"$file"
    keys+=$line$'\n'
  done
  { printf -- '-----BEGIN SSH HOST KEY KEYS-----\n%s-----END SSH HOST KEY KEYS-----\n' "$keys" \
    >>"$root/dev/console"; } 2>/dev/null || log 'cannot print the host keys'
}

watch() {
  local passes=0 pause_s next_s=$((SECONDS + ${DEEPCDK_KEYS_S:-3600}))
  exec 8>"$root/opt/deepcdk/watch.lock"
  # Another process of this node is already watching.
  if ! flock -n 8; then exit 0; fi
  trap leave TERM INT
  watching=1
  keys
  # Since Linux 5.4 an NFS client reads 128 KiB ahead, and EFS wants 15 MiB. Amazon Linux sets as much
  # (amazon-ec2-utils, 60-nfs.rules), Debian and Ubuntu do not.
  { echo 15360 >"$root/sys/class/bdi/$(mountpoint -d "$root$efs_mount")/read_ahead_kb"; } 2>/dev/null || true
  refresh
  while :; do
    at_boot
    if [[ -x $root/opt/deepcdk/bin/notice ]] && "$root/opt/deepcdk/bin/notice"; then
      # It terminates soon, so no new run may use it.
      withdraw
    else
      refresh
    fi
    passes=$((passes + 1))
    if ((SECONDS >= next_s)); then
      keys
      next_s=$((SECONDS + ${DEEPCDK_KEYS_S:-3600}))
    fi
    # The master checks for new nodes often, because runs wait for them; a worker only while the cluster forms.
    pause_s=10
    if [[ $role == master || $there != */master.pub/* ]] || ((passes < 30)); then pause_s=2; fi
    sleep "${DEEPCDK_PAUSE_S:-$pause_s}" 8>&- &
    wait $!
  done
}

# The functions that differ between master and workers: choose_name, is_identified, follow, at_boot.
# shellcheck source=/dev/null
. "$root/opt/deepcdk/bin/$role"

case ${1:-} in
  refresh | watch | keys) "$1" ;;
  *) log "usage: registry refresh|watch|keys" && exit 2 ;;
esac
