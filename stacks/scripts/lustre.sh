# Mount the Lustre file system. boot.sh sources this file if the cluster has one, and provides functions and settings.
# shellcheck shell=bash disable=SC2154,SC2034 # root, login_uid, login_gid and step are boot.sh's
step="mounting the Lustre file system $DEEPCDK_LUSTRE"
need mount.lustre lustre-client lustre-client-modules-aws
lustre=$root$DEEPCDK_LUSTRE_MOUNT
mount_shared "$DEEPCDK_LUSTRE" "$DEEPCDK_LUSTRE_MOUNT" lustre relatime,flock,nosuid,nodev
# The top directory of a new file system belongs to root. As in /tmp, ranks can add files, and change only their own.
if [[ $DEEPCDK_ROLE == master ]]; then chown "$login_uid:$login_gid" "$lustre" && chmod 1777 "$lustre"; fi
mkdir -p "$root/etc/profile.d"
printf 'export FSX_MOUNT=%q\n' "$DEEPCDK_LUSTRE_MOUNT" >"$root/etc/profile.d/deeplearning-fsx.sh"
