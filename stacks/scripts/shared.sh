# Make what the master gives the cluster: directories on the shared file system, and the key with which it logs in on the
# workers, which registry.sh shares. Read by node.sh, whose functions and settings it uses.
# shellcheck shell=bash disable=SC2154,SC2034 # efs, root, login_uid, login_gid, login_home and step are node.sh's
for work in payloads runs data; do
  if [[ ! -d $efs/$work ]]; then mkdir "$efs/$work" && chown -h "$login_uid:$login_gid" "$efs/$work"; fi
done

need sg shadow-utils passwd
# A group for each live run (agent/spec/nodes.py). The login user gives directories to them, and ranks' files are removed
# here in the name of their user.
if ! grep -q '^deepcdk-run1:' "$root/etc/group"; then
  for gid in {60901..60999}; do
    echo "deepcdk-run$((gid - 60900)):*:$gid:$DEEPCDK_LOGIN_USER,deepcdk-rank"
  done >>"$root/etc/group"
fi

step="making the cluster's key"
key=$root$login_home/.ssh/id_ed25519
if [[ ! -e $key ]]; then
  ssh-keygen -q -t ed25519 -N '' -C deepcdk-master -f "$key"
  chown "$login_uid:$login_gid" "$key" "$key.pub"
fi
read -r line <"$key.pub"
# The master logs in on itself too, to remove what ranks have left.
printf 'restrict %s\n' "$line" >"$root$rank_home/.ssh/authorized_keys"
