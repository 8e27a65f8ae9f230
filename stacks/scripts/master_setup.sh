# Create the master's directories on the shared file system, and its key pair for logins on the workers. node_registry.sh
# shares the public key. boot.sh sources this file and provides functions and settings.
# shellcheck shell=bash disable=SC2154,SC2034 # efs, root, login_uid, login_gid, login_home and step are boot.sh's
for work in payloads runs data; do
  if [[ ! -d $efs/$work ]]; then mkdir "$efs/$work" && chown -h "$login_uid:$login_gid" "$efs/$work"; fi
done

need sg shadow-utils passwd
# A group for each live run (agent/spec/nodes.py). The login user gives directories to them, and ranks' files are
# removed here in the name of their user.
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
# The master also logs in on itself, to remove leftovers of ranks.
printf 'restrict %s\n' "$line" >"$root$rank_home/.ssh/authorized_keys"
