#!/bin/bash
# Remove what ranks have left on this worker: processes, shared memory, timed jobs and files. Or assign it to a run.
#
# Runs as root, from this node's own disk. sshd starts it for the master's key, for any command that the master sends.
# All processes of the ranks' user are killed, also those that the master has started, because a rank can take over any
# process of its user.
set -uo pipefail
shopt -s dotglob nullglob extglob
umask 022

rank=60900 home=/home/deepcdk-rank/files

# With a run's group and the addresses of its hosts: add ranks to this group, and accept packets of these hosts' ranks.
if [[ ${SSH_ORIGINAL_COMMAND:-} =~ ^run\ (609[0-9]{2})\ ([0-9.,]+)$ ]]; then
  sed -i '/^deepcdk-run:/d' /etc/group && echo "deepcdk-run:*:${BASH_REMATCH[1]}:deepcdk-rank" >>/etc/group \
    && nft "flush set inet deepcdk mates; add element inet deepcdk mates { ${BASH_REMATCH[2]} }" \
    && exec echo "$SSH_ORIGINAL_COMMAND"
  exit 1
fi
deadline=$((SECONDS + 10))

# Kill all processes of the ranks' user in one call, during which none of them can fork. The caller has another real
# user ID and keeps root's as the saved one, so that none of them can kill or trace the caller first.
kill_all() {
  /opt/deepcdk/bin/python3 -IS -c 'import os; os.setgroups([]); os.setresuid(60901, 60900, 0); os.kill(-1, 9)'
}

# Write the IDs of the ranks' user's processes with live threads to `left`. A process continues after its first thread.
list_left() {
  left=$(printf '%s\0' /proc/[0-9]*/task/[0-9]*/status | xargs -0 grep -lsE "^Uid:.*\s$rank(\s|\$)" \
    | xargs -r grep -LsE '^State:\s+[ZX]' | cut -d/ -f3 | sort -nu)
}

# Remove what could start a process later.
rm -f /var/lib/systemd/linger/deepcdk-rank
find /var/spool -xdev -uid "$rank" -delete 2>/dev/null

kill_all
until list_left; [[ -z $left ]]; do
  if ((SECONDS >= deadline)); then
    printf 'cannot kill processes of an earlier run: %s\n' "${left//$'\n'/, }" >&2
    exit 1
  fi
  sleep 0.05
  kill_all
done

# Only columns named *uid contain users. Others contain sizes and process IDs.
for kind in m:shm q:msg s:sem; do
  {
    read -ra names
    while read -ra row; do
      for column in "${!names[@]}"; do
        if [[ ${names[column]} == *uid && ${row[column]} == "$rank" ]]; then ipcrm "-${kind%:*}" "${row[1]}" && break; fi
      done
    done
  } <"/proc/sysvipc/${kind#*:}"
done
if ! mountpoint -q /dev/mqueue; then mkdir -p /dev/mqueue && mount -t mqueue mqueue /dev/mqueue; fi 2>/dev/null
find /tmp /var/tmp /dev/shm /dev/mqueue /run/lock /var/crash -xdev -depth -uid "$rank" -delete 2>/dev/null
rm -f /var/lib/systemd/coredump/core.*."$rank".*

# Keep only copies of data and indexes of record files in the ranks' home.
for directory in "$home"/{data,.cache,.cache/deepcdk,.cache/deepcdk/records}; do
  if [[ -L $directory || ! -d $directory ]]; then rm -f "$directory"; fi
done
chmod 755 "$home"
rm -rf --one-file-system "${home:?}"/!(data|.cache) "$home"/.cache/!(deepcdk) "$home"/.cache/deepcdk/!(records)
