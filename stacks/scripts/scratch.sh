#!/bin/bash
# Create the scratch directory on the striped NVMe disks of the instance store, or on the root volume if there are none.
#
# The boot script calls it as root at first boot, and provides the functions `need` and `log`. The data on these disks
# are lost with the instance. A second run does not change what is already correct.
set -euo pipefail
umask 022

root=${DEEPCDK_ROOT:-}
scratch=$root$DEEPCDK_SCRATCH
device=
disks=()

mkdir -p "$scratch"
if mountpoint -q "$scratch"; then exit 0; fi
# AWS's Deep Learning images already stripe these disks at boot.
if [[ -d $root/run/systemd/system ]]; then systemctl start dlami-nvme.service 2>/dev/null || true; fi
if mountpoint -q "$root/opt/dlami/nvme"; then
  mount --bind -o nosuid,nodev "$root/opt/dlami/nvme" "$scratch"
  entry="/opt/dlami/nvme $DEEPCDK_SCRATCH none bind,nosuid,nodev,nofail 0 0"
else
  while read -r disk model; do
    if [[ $model == *'Instance Storage'* ]]; then disks+=("$disk"); fi
  done < <(lsblk --nodeps --noheadings --paths --output NAME,MODEL 2>/dev/null)
  case ${#disks[@]} in
    0) log "no instance store: $DEEPCDK_SCRATCH is on the root volume" ;;
    1) device=${disks[0]} ;;
    *)
      need mdadm mdadm mdadm
      device=/dev/md/scratch
      mdadm --create "$device" --run --force --level=0 --raid-devices="${#disks[@]}" "${disks[@]}"
      ;;
  esac
  if [[ -n $device ]]; then
    need mkfs.xfs xfsprogs xfsprogs
    mkfs.xfs -q -f "$device"
    mount -o noatime,nosuid,nodev "$device" "$scratch"
    log "$DEEPCDK_SCRATCH is on ${#disks[@]} disks of the instance store"
    entry="UUID=$(blkid -s UUID -o value "$device") $DEEPCDK_SCRATCH xfs noatime,nosuid,nodev,nofail 0 0"
  fi
fi
if [[ -n ${entry:-} ]]; then printf '%s\n' "$entry" >>"$root/etc/fstab"; fi
chown "$1" "$scratch"
# The login user stages data there, and ranks write data that may be lost with the node.
chmod 1777 "$scratch"
