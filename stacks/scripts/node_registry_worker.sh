# A worker's part of the registry: take a free name, copy the master's list, admit the master. node_registry.sh sources this
# file.
# shellcheck shell=bash disable=SC2154,SC2034 # its functions and variables are those of node_registry.sh

admitted='' ask_pause_s=1 ask_s=0 asked_s=0 booted=0
lines=()

# Return whether the last removal of lost nodes is longer ago than `stale_s`, by the file server's clock, which has just
# set the time of the file $1.
is_sweep_due() {
  local now last
  { read -r now && read -r last; } < <(stat -c %Y -- "$1" "$registry/lock" 2>/dev/null) || last=0
  ((now - last > stale_s))
}

# Find the lowest free number of a name above $1, into `free`.
find_free() {
  local path taken=/
  for path in "$registry"/nodes/*; do
    if is_file "$path"; then taken+=${path##*/}/; fi
  done
  free=$(($1 + 1))
  while [[ $taken == */deeplearning-worker$free/* ]]; do free=$((free + 1)); done
}

# List the entries of nodes with lower ids that are about to take a name too, into `others`.
list_others() {
  local path
  others=()
  for path in "$registry"/new-worker/*; do
    if fits instance-id "${path##*/}" && [[ ${path##*/} < $instance_id ]]; then others+=("$path"); fi
  done
}

# Take this node's previous name, or else the lowest free name, with the entry $1.
choose_name() {
  local before='' id='' free=0 pause pause_ms=0 deadline=$((SECONDS + 60)) each
  local -a others
  # The master does that once it has booted. The holder of the lock may have died, so do not wait forever.
  for each in {1..20}; do
    if ! is_sweep_due "$1" || sweep "$1"; then break; fi
    sleep 0.5
  done
  read -r id before 2>/dev/null <"$root/opt/deepcdk/name" || true
  if [[ $id == "$instance_id" ]] && fits name "$before" && take "$before" "$1"; then return; fi
  while :; do
    # Hundreds of nodes that try the same name would be slow. So nodes with the lowest ids go first, at about 25 ms
    # each.
    list_others
    if ((${#others[@]} < 4)); then
      find_free "$free"
      if take "deeplearning-worker$free" "$1"; then return; fi
      # A node that has waited long may have removed this node's entry, and then no name was tried: start from the
      # lowest.
      if ! is_file "$1"; then
        write "$1" "$own"$'\n'
        free=0
      fi
    elif ((SECONDS >= deadline)); then
      # Live nodes write their entries again, so do not repeat this immediately.
      rm -rf "${others[@]}"
      deadline=$((SECONDS + 60))
    else
      pause_ms=$((pause_ms * 3 / 2 + ${#others[@]} * 25))
      printf -v pause '%d.%03d' $((pause_ms / 1000)) $((pause_ms % 1000))
      sleep "$pause"
    fi
  done
}

# List the names of the registry's files into `there`, each between slashes, until the needed files exist.
look() {
  local path
  if [[ $there == */list/* && $there == */master.pub/* ]]; then return; fi
  there=/
  for path in "$registry"/*; do there+=${path##*/}/; done
}

# Let the master log in, only from its address: as the login user, as the user of ranks to run commands, and as root for
# the one command that removes what ranks have left. Processes that it starts as the user of ranks get no new privileges
# and at most a third of the process IDs, and the kernel kills them first if memory is short. The key is in a parameter
# that only the master's role may write. Root on any node can write another key to the shared file system. Such a key
# only makes this node ask AWS: soon at first, then once a minute, because it may be written repeatedly. Otherwise, AWS
# is asked once an hour. A new process does not ask again for a key that was accepted before.
admit_master() {
  local admission hint='' hour_s=${DEEPCDK_KEYS_S:-3600}
  if [[ $there == */master.pub/* ]]; then
    read_line "$registry/master.pub"
    hint=$text
  fi
  if [[ -z $admitted && $hint =~ ^(${rule[host_key]})\ (${rule[ip]})$ ]]; then
    slurp "$root/root/.ssh/authorized_keys"
    if [[ $content == *"from=\"${BASH_REMATCH[2]}\" ${BASH_REMATCH[1]} deepcdk-master"* ]]; then admitted=$hint; fi
  fi
  if [[ $hint == "$admitted" ]]; then ask_pause_s=1; fi
  if ((SECONDS < ask_s)) || { [[ $hint == "$admitted" ]] && ((SECONDS < asked_s + hour_s)); }; then return; fi
  ask_pause_s=$((ask_pause_s < 30 ? ask_pause_s * 2 : 60))
  ask_s=$((SECONDS + ask_pause_s)) asked_s=$SECONDS
  if ! text=$(ask_aws ssm get-parameter --name "$key_parameter" --query Parameter.Value 2>&1); then
    note "cannot read the master's key" "${text##*$'\n'}"
    return
  fi
  if [[ ! $text =~ ^(${rule[host_key]})\ (${rule[ip]})$ ]]; then
    note "no key of a master is in $key_parameter" "$text"
    return
  fi
  admitted=$text
  admission="from=\"${BASH_REMATCH[2]}\" ${BASH_REMATCH[1]} deepcdk-master"$'\n'
  # shellcheck disable=SC2016 # the shell of ranks expands it
  put_block "$root$rank_home/.ssh/authorized_keys" 'restrict,command="ulimit -u $(($(</proc/sys/kernel/pid_max) / 3)) 2>/dev/null; echo 500 >/proc/self/oom_score_adj; exec setpriv --nnp bash -c \"$SSH_ORIGINAL_COMMAND\"",'"$admission"
  put_block "$root$login_home/.ssh/authorized_keys" "restrict,pty,port-forwarding,$admission" 600
  put_block "$root/root/.ssh/authorized_keys" "restrict,command=\"/opt/deepcdk/bin/leftovers\",$admission" 600
  if [[ -n $hint && $hint != "$admitted" ]]; then
    note "ignoring the registry's master.pub: it is not the master's key in AWS" "$hint"
  fi
}

# The list comes from the master. A worker logs in on no other node.
is_identified() { :; }

# Assemble the files that name the nodes from the master's list and this node, which may be missing in the list. If the
# list cannot be read, for example because another node replaced it, the last list is used.
follow() {
  local line node shared=$registry/list
  local -a found=() order=()
  look
  admit_master
  if [[ $there == */list/* ]] && is_file "$shared"; then
    mapfile -tn 10001 found 2>/dev/null < <(beginning "$most_bytes" "$shared" | tr -d '\0')
  fi
  if ((${#found[@]} > 0)); then lines=("${found[@]}"); fi
  if [[ "$own ${lines[*]}" == "$copied" ]]; then return; fi
  copied="$own ${lines[*]}" left_out=
  for line in "${lines[@]}"; do
    node=${line%%,*}
    if [[ $line =~ ^#[a-z0-9\ :_-]+$ ]]; then
      left_out+=$line$'\n'
    elif ! fits name "$node"; then
      note "invalid node name in the registry's list" "$line"
    elif [[ $node == deeplearning-master ]]; then
      order[0]=${line#*,}
    elif [[ $line != *",$instance_id,"* ]]; then
      order[${node#deeplearning-worker}]=${line#*,}
    fi
  done
  order[${name#deeplearning-worker}]=$own
  assemble
}

# Give up a message to a lost node after 13 s instead of 15 minutes, because other ranks would wait for it, with Gloo
# for minutes. Elasticsearch recommends the same for its nodes, for the same reason.
at_boot() {
  if ((booted)); then return; fi
  booted=1
  { echo 5 >"$root/proc/sys/net/ipv4/tcp_retries2"; } 2>/dev/null || log 'cannot set tcp_retries2: ranks notice lost nodes after 15 minutes'
}
