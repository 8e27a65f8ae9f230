# Mount the Lustre file system. Read by boot.sh, whose functions and settings it uses, where the cluster has one.
# shellcheck shell=bash disable=SC2154,SC2034 # root, login_uid, login_gid and step are boot.sh's
step="mounting the Lustre file system $DEEPCDK_LUSTRE"
need mount.lustre lustre-client lustre-client-modules-aws
lustre=$root$DEEPCDK_LUSTRE_MOUNT
mount_shared "$DEEPCDK_LUSTRE" "$DEEPCDK_LUSTRE_MOUNT" lustre relatime,flock,nosuid,nodev
# Its top belongs to root when it is new. As in /tmp, ranks add files too, and change their own.
if [[ $DEEPCDK_ROLE == master ]]; then chown "$login_uid:$login_gid" "$lustre" && chmod 1777 "$lustre"; fi
mkdir -p "$root/etc/profile.d"
printf 'export FSX_MOUNT=%q\n' "$DEEPCDK_LUSTRE_MOUNT" >"$root/etc/profile.d/deeplearning-fsx.sh"
