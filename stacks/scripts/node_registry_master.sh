# The master's part of the registry: assemble and share the list of all nodes. node_registry.sh sources this file.
# shellcheck shell=bash disable=SC2154,SC2034,SC2004 # its functions and variables are those of node_registry.sh

own_keys=$root/opt/deepcdk/host-keys share_s=0 inherit_s=0 booted=0
declare -A own_key=() look_s=() first_s=()

# Take the master's name with the entry $1 as soon as no other live node has it.
choose_name() {
  local deadline=$((SECONDS + ${DEEPCDK_CLAIM_TIMEOUT_S:-180}))
  until take deeplearning-master "$1"; do
    sweep "$1" || true
    if take deeplearning-master "$1"; then return; fi
    if ((SECONDS >= deadline)); then
      rm -f "$1"
      log "the name deeplearning-master on this file system belongs to another live node; each cluster needs its own file system"
      exit 1
    fi
    sleep 2
  done
}

# Give the workers the public key of the login user. Write it to the parameter that only this node's role may write, and
# then to the shared file system, where workers notice it. Return 1 if AWS rejects it.
share_key() {
  local algorithm key _ said shared=$registry/master.pub
  read -r algorithm key _ <"$root$login_home/.ssh/id_ed25519.pub"
  text="$algorithm $key $ip"
  if ! said=$(ask_aws ssm put-parameter --name "$key_parameter" --type String --value "$text" --overwrite 2>&1); then
    log "cannot store the cluster's key: ${said##*$'\n'}"
    return 1
  fi
  write "$shared" "$text"$'\n'
}

# Share the key if this is due, at boot with retries, because permissions of a new role may take a minute. If it still
# fails at boot, the boot fails. Later failures are retried after a minute.
see_to_key() {
  if ((SECONDS < share_s)); then return; fi
  until share_key; do
    share_s=$((SECONDS + 60))
    if ((watching)); then return; fi
    if ((SECONDS >= ${DEEPCDK_SHARE_TIMEOUT_S:-180})); then exit 1; fi
    sleep 5
  done
  share_s=$((SECONDS + ${DEEPCDK_KEYS_S:-3600}))
}

# Print the key of the last complete block of host keys in a console's output. Print nothing if there is no such block.
shown_key() {
  local line key='' found='' inside=0
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line:0:999}
    if [[ $line == *'-----BEGIN SSH HOST KEY KEYS-----'* ]]; then
      inside=1 key=''
    elif [[ $line == *'-----END SSH HOST KEY KEYS-----'* ]]; then
      found=${key:-$found} inside=0
    elif ((inside)) && [[ $line =~ (^|[[:space:]])(${rule[host_key]})([[:space:]]|$) ]]; then
      key=${BASH_REMATCH[2]}
    fi
  done
  printf '%s' "$found"
}

# Read the host keys of new nodes from their consoles. Each node prints its own key there, and no other node can write
# to it. The keys are stored on this disk by instance id. A later key is ignored, because an instance keeps its keys,
# and its console output is lost after a while. A pass reads a limited number of consoles, because AWS limits the calls
# and a pass must end.
learn_keys() {
  local node id path said waited_s asked=()
  mkdir -p "$own_keys"
  for node in "${!entry[@]}"; do
    id=${entry[$node]%%,*}
    if [[ $node == "$name" ]] || ((age[$node] > stale_s)) || ! fits instance-id "$id" || [[ -n ${own_key[$id]:-} ]]; then continue; fi
    path=$own_keys/$id
    if [[ -e $path ]]; then
      read -r text <"$path" || true
      if fits host_key "$text"; then
        own_key[$id]=$text
        continue
      fi
    fi
    if ((${#asked[@]} < 64 && SECONDS >= ${look_s[$id]:-0})); then asked+=("$id"); fi
  done
  if ((${#asked[@]} == 0)); then return; fi
  said=$(timeout "${DEEPCDK_ASK_S:-30}" "$root/opt/deepcdk/bin/python3" -IS "$root/opt/deepcdk/bin/consoles" "$region" "$own_keys" "${asked[@]}" 2>&1) \
    || note 'cannot read the consoles' "status $?: ${said##*$'\n'}"
  for id in "${asked[@]}"; do
    path=$own_keys/$id text=
    if [[ -e $path.console ]]; then text=$(shown_key <"$path.console"); fi
    if [[ -n $text ]]; then
      put "$path" "$text"$'\n'
      own_key[$id]=$text
    else
      if [[ -s $path.errors ]]; then note "cannot read the console of $id" "$(tail -n 1 "$path.errors")"; fi
      first_s[$id]=${first_s[$id]:-$SECONDS}
      waited_s=$((SECONDS - first_s[$id]))
      look_s[$id]=$((SECONDS + 1 + (waited_s < 60 ? waited_s : 60)))
    fi
    rm -f "$path.console" "$path.errors"
  done
}

# Return whether the node in `fact` has the host key from its console. `why` is the reason if not, "" for a new node.
is_identified() {
  local id=${fact[instance-id]} console_s=${DEEPCDK_CONSOLE_S:-60}
  if [[ $node == "$name" || ${own_key[$id]:-} == "${fact[host_key]}" ]]; then return; fi
  if [[ -e $own_keys/$id.xen ]]; then console_s=$((console_s * 10)); fi
  if [[ -n ${own_key[$id]:-} ]]; then
    why='its host key in the registry differs from its console'
  elif ((SECONDS - ${first_s[$id]:-$SECONDS} >= console_s)); then
    why='its console shows no host key'
  fi
  return 1
}

# Assemble the files that name the nodes from all entries, and share the list of nodes.
follow() {
  local node shared=$registry/list
  local -a order=()
  left_out=
  see_to_key
  sweep "$registry/nodes/$name" || true
  learn_keys
  for node in "${!age[@]}"; do
    if ((age[$node] > stale_s)); then continue; fi
    case $node in
      deeplearning-master) order[0]=$own ;;
      *) order[${node#deeplearning-worker}]=${entry[$node]} ;;
    esac
  done
  assemble
  put_block "$root/etc/ssh/ssh_known_hosts" "$known"
  content=
  if is_file "$shared"; then slurp <(beginning "$most_bytes" "$shared"); else rm -rf "$shared"; fi
  if [[ $content == "$list$left_out" && -e $shared ]]; then return; fi
  write "$shared" "$list$left_out"
}

# Run a command as the login user, in its home.
as_login_user() {
  local HOME=$root$login_home
  export HOME
  if ((EUID == login_uid)); then "$@"; else setpriv --reuid "$login_uid" --regid "$login_gid" --init-groups "$@"; fi
}

# Record that this instance has finished the takeover.
settle() {
  sync -f "$root/opt/deepcdk"
  printf '%s\n' "$instance_id" >"$root/opt/deepcdk/inherited"
}

# Take over the agent and the database of runs of the previous master, once. The archive is stored with the runs, where
# root on any node can write. So it is used only if its digest is in the parameter that only a master may write.
inherit() {
  local digest archive home=$root$login_home/.deepcdk marker=$root/opt/deepcdk/inherited
  local left=$home/handover errors=$root/opt/deepcdk/handover.errors
  read_line "$marker"
  if [[ $text == "$instance_id" ]]; then return; fi
  # This disk is a copy of another master's disk.
  if [[ -e $marker ]]; then rm -rf "$marker" "$home"/{at-boot,locks,runs.sqlite*}; fi
  digest=$(ask_aws ssm get-parameter --name "$handover_parameter" --query Parameter.Value 2>"$errors") \
    || digest=$(tail -n 1 "$errors")
  if [[ $digest == none ]]; then
    settle
    return
  fi
  archive=$root$efs_mount/runs/.handover/$digest.tar
  # shellcheck disable=SC2016 # the words are those of the other shell
  if [[ $digest =~ ^[0-9a-f]{64}$ ]] && is_file "$archive" && as_login_user bash -c 'umask 077
rm -rf "$2"; mkdir -p "$2/tree"; timeout 30 head -c 99999999 -- "$1" >"$2/tar"' _ "$archive" "$left" \
    && sha256sum --check --status <<<"$digest  $left/tar" && as_login_user tar -xf "$left/tar" -C "$left/tree" \
    && (cd "$left/tree" && as_login_user "$root/opt/deepcdk/bin/python3" -m agent.supervisor.handover "$root$efs_mount/runs"); then
    log 'took over from the previous master'
    settle
  else
    note 'cannot take over from the previous master' "$digest"
  fi
  rm -rf "$left"
  [[ -e $marker ]]
}

# Run the supervisor's boot hook at each boot: it reports on the live run and continues the queue. The hook is on the
# master's own disk, because every rank can write to the shared file system.
at_boot() {
  local hook=$root$login_home/.deepcdk/at-boot
  if ((booted || SECONDS < inherit_s)); then return; fi
  if ! inherit; then
    inherit_s=$((SECONDS + ${DEEPCDK_INHERIT_S:-10}))
    if ((SECONDS < ${DEEPCDK_INHERIT_LIMIT_S:-600})); then return; fi
    log 'gave up: runs of the previous master do not continue by themselves; continue each with: fab resume ID'
    settle
  fi
  booted=1
  if [[ ! -x $hook ]]; then return; fi
  # Run it in the mount namespace of all other programs.
  HOME=$login_home setsid ${DEEPCDK_NO_LINKS:+nsenter --mount=/proc/1/ns/mnt} \
    setpriv --reuid "$login_uid" --regid "$login_gid" --init-groups "$hook" \
    </dev/null &>/dev/null 8>&- &
}
