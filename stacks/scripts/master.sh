# The master's part in the registry: assemble the list of all nodes, and share it. Read by registry.sh.
# shellcheck shell=bash disable=SC2154 # its functions and variables are those of registry.sh

# Take the master's name with the entry $1, once no other live node has it.
choose_name() {
  local deadline=$((SECONDS + ${DEEPCDK_CLAIM_TIMEOUT_S:-180}))
  until take deeplearning-master "$1"; do
    sweep "$1" || true
    if take deeplearning-master "$1"; then return; fi
    if ((SECONDS >= deadline)); then
      rm -f "$1"
      log "the name deeplearning-master on this file system belongs to another live node; is it in use by another cluster?"
      exit 1
    fi
    sleep 2
  done
}

# Assemble what names the nodes, from all their entries, and share the list of them.
follow() {
  local node shared=$registry/list
  local -a order=()
  left_out=
  sweep "$registry/nodes/$name" || true
  for node in "${!age[@]}"; do
    if ((age[$node] > stale_s)); then continue; fi
    case $node in
      deeplearning-master) order[0]=${entry[$node]} ;;
      *) order[${node#deeplearning-worker}]=${entry[$node]} ;;
    esac
  done
  assemble
  put_block "$root/etc/ssh/ssh_known_hosts" "$known"
  content=
  if is_file "$shared"; then slurp <(beginning "$most_bytes" "$shared"); else rm -rf "$shared"; fi
  if [[ $content == "$list$left_out" && -e $shared ]]; then return; fi
  write "$shared.$instance_id" "$list$left_out"
  mv -fT "$shared.$instance_id" "$shared"
}

# Do at each boot what the runs left for it: to tell what became of the live one, to keep the queue.
at_boot() {
  local hook=$root$efs_mount/runs/.at-boot
  if [[ ! -x $hook ]]; then return; fi
  HOME=$login_home setsid setpriv --reuid "$login_uid" --regid "$login_gid" --init-groups "$hook" \
    </dev/null &>/dev/null 8>&- &
}
