# A worker's part in the registry: take a free name, copy the master's list, admit the master. Read by registry.sh.
# shellcheck shell=bash disable=SC2154 # its functions and variables are those of registry.sh

# Whether nobody has looked for nodes that are gone as long as it takes to be gone, by the clock that wrote the file $1.
is_sweep_due() {
  local now last
  { read -r now && read -r last; } < <(stat -c %Y -- "$1" "$registry/lock" 2>/dev/null) || last=0
  ((now - last > stale_s))
}

# Find the lowest number above $1 of a name that no node has, into `free`.
find_free() {
  local path taken=/
  for path in "$registry"/nodes/*; do
    if is_file "$path"; then taken+=${path##*/}/; fi
  done
  free=$(($1 + 1))
  while [[ $taken == */deeplearning-worker$free/* ]]; do free=$((free + 1)); done
}

# List the entries of the nodes of lower ids that are about to take a name as this one is, into `others`.
list_others() {
  local path
  others=()
  for path in "$registry"/new-worker/*; do
    if fits instance-id "${path##*/}" && [[ ${path##*/} < $instance_id ]]; then others+=("$path"); fi
  done
}

# Take the name that this node had before, or else the lowest that is free, with the entry $1.
choose_name() {
  local before='' id='' free=0 pause pause_ms=0 deadline=$((SECONDS + 60)) each
  local -a others
  # The master sees to that once it is there. Whoever holds the lock may have died, so it is not waited for without end.
  for each in {1..20}; do
    if ! is_sweep_due "$1" || sweep "$1"; then break; fi
    sleep 0.5
  done
  read -r id before 2>/dev/null <"$root/opt/deepcdk/name" || true
  if [[ $id == "$instance_id" ]] && fits name "$before" && take "$before" "$1"; then return; fi
  while :; do
    # Hundreds that try the same name at once would be slow: those of the lowest ids go first, at some 25 ms each.
    list_others
    if ((${#others[@]} < 4)); then
      find_free "$free"
      if take "deeplearning-worker$free" "$1"; then return; fi
      # One that has waited long may take this node for dead.
      if ! is_file "$1"; then write "$1" "$own"$'\n'; fi
    elif ((SECONDS >= deadline)); then
      rm -rf "${others[@]}"
    else
      pause_ms=$((pause_ms * 3 / 2 + ${#others[@]} * 25))
      printf -v pause '%d.%03d' $((pause_ms / 1000)) $((pause_ms % 1000))
      sleep "$pause"
    fi
  done
}

# List the names of the registry's own files into `there`, each between slashes, until those that are read are there.
look() {
  local path
  if [[ $there == */list/* && $there == */master.pub/* ]]; then return; fi
  there=/
  for path in "$registry"/*; do there+=${path##*/}/; done
}

# Let the master's login user log in, by the key that it has shared, and no other master's.
admit_master() {
  local shared=$registry/master.pub
  if [[ $there != */master.pub/* ]]; then return; fi
  read_line "$shared"
  if [[ $text =~ ^(${rule[host_key]})(\ .*)?$ ]]; then
    put_block "$root$login_home/.ssh/authorized_keys" "${BASH_REMATCH[1]} deepcdk-master"$'\n' 600
  elif [[ -e $shared ]]; then
    note "no key in the registry's master.pub" "$text"
  fi
}

# Assemble what names the nodes, from the master's list, and this node, which may not be in it yet.
follow() {
  local line node shared=$registry/list
  local -a lines=() order=()
  look
  admit_master
  if [[ $there == */list/* ]] && is_file "$shared"; then
    mapfile -tn 10001 lines 2>/dev/null < <(beginning "$most_bytes" "$shared" | tr -d '\0')
  fi
  if [[ "$own ${lines[*]}" == "$copied" ]]; then return; fi
  copied="$own ${lines[*]}" left_out=
  for line in "${lines[@]}"; do
    node=${line%%,*}
    if [[ $line =~ ^#[a-z0-9\ :_-]+$ ]]; then
      left_out+=$line$'\n'
    elif ! fits name "$node"; then
      note "no node's name in the registry's list" "$line"
    elif [[ $node == deeplearning-master ]]; then
      order[0]=${line#*,}
    elif [[ $line != *",$instance_id,"* ]]; then
      order[${node#deeplearning-worker}]=${line#*,}
    fi
  done
  order[${name#deeplearning-worker}]=$own
  assemble
}

at_boot() { :; }
