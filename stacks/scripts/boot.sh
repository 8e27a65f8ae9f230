#!/bin/bash
# Make an instance a node of the cluster: mount the shared file system, take a name, find the other nodes, watch them.
#
# Runs as root at first boot, with the settings DEEPCDK_* in its environment; user data sets them and unpacks this
# script. A second run does not change what is already correct. Every path starts with DEEPCDK_ROOT, which is empty
# except in tests.
set -euo pipefail
umask 022
export PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

root=${DEEPCDK_ROOT:-}
efs=$root$DEEPCDK_EFS_MOUNT
metadata=${DEEPCDK_METADATA:-http://169.254.169.254}/latest
step='start'

log() { printf 'deepcdk: %s\n' "$*" >&2; }

# Ask the instance metadata service for the path $1.
ask() {
  local token
  token=$(curl -fsS --retry 5 --retry-connrefused --max-time 20 -X PUT \
    -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/api/token") \
    && curl -fsS --retry 5 --retry-connrefused --max-time 20 -H "X-aws-ec2-metadata-token: $token" "$metadata/$1"
}

# Call CloudFormation with the identity of this instance, as cfn-signal does (aws-cfn-bootstrap, CFNSigner). This needs
# neither a program nor a permission, but it transmits no reason. `fab up` shows the reason from the console.
signal_by_identity() {
  local domain document signature id=${instance_id:-} status=SUCCESS answer
  if [[ $1 == false ]]; then status=FAILURE; fi
  if ! { domain=$(ask meta-data/services/domain) \
    && document=$(ask dynamic/instance-identity/document | base64 -w 0) \
    && signature=$(ask dynamic/instance-identity/signature | tr -d '\n') \
    && id=${id:-$(ask meta-data/instance-id)}; }; then
    printf 'the instance metadata service does not answer' && return 1
  fi
  answer=$(curl -sS -G --max-time 30 -w ' %{http_code}' \
    -H "Authorization: CFN_V1 $document:$signature" \
    --data-urlencode "StackName=$DEEPCDK_STACK" -d "Action=SignalResource&Version=2010-05-15" \
    -d "LogicalResourceId=$DEEPCDK_GROUP&UniqueId=$id&Status=$status" \
    "${AWS_ENDPOINT_URL:-https://cloudformation.$DEEPCDK_REGION.$domain}/" 2>&1)
  printf %s "$answer"
  [[ $answer == *' 200' ]]
}

# Signal CloudFormation: $1 true or false, $2 the reason. A complete stack rejects signals, which is not an error.
signal() {
  local try answer=
  for try in 1 2 3; do
    if [[ -x $root/opt/aws/bin/cfn-signal ]]; then
      answer=$("$root/opt/aws/bin/cfn-signal" --success "$1" --reason "$2" --stack "$DEEPCDK_STACK" \
        --resource "$DEEPCDK_GROUP" --region "$DEEPCDK_REGION" 2>&1) && return
    fi
    if [[ $answer != *' be signaled'* ]]; then answer=$(signal_by_identity "$1") && return; fi
    if [[ $answer == *' be signaled'* ]]; then log "the stack $DEEPCDK_STACK expects no signal" && return; fi
    sleep "$try"
  done
  log "CloudFormation did not accept the signal ($2): $answer"
}

finish() {
  local status=$?
  trap - EXIT
  if ((status == 0)); then
    signal true "$step"
  else
    log "failed: $step (exit status $status)"
    signal false "$step failed with exit status $status"
  fi
  exit "$status"
}
trap finish EXIT

# Install a package: $1 its name for dnf, $2 for apt. An image's own updates at boot hold apt's locks for minutes, and
# only the second apt command can wait for a lock. On Amazon Linux, the Systems Manager agent updates itself at the same
# time. Then dnf finds its database locked or its downloads deleted (amazonlinux/amazon-linux-2023#397). apt's lists are
# updated once, and again after a change of its sources, or if a source and then the package failed.
install_package() {
  local answer updated=${DEEPCDK_ROOT:-}/run/deepcdk-apt deadline=$((SECONDS + ${DEEPCDK_PACKAGES_TIMEOUT_S:-300}))
  if command -v dnf >/dev/null; then
    until answer=$(dnf install -y -q "$1" 2>&1); do
      log "dnf install $1: $answer"
      if [[ $answer == *'Unable to find a match'* ]] || ((SECONDS >= deadline)); then return 1; fi
      sleep 5
    done
  elif command -v apt-get >/dev/null; then
    while true; do
      if [[ ! -e $updated || -n $(find "${DEEPCDK_ROOT:-}/etc/apt" -newer "$updated") ]]; then
        mkdir -p "${updated%/*}"
        touch "$updated" "$updated-incomplete"
        # Without this option, apt succeeds even if it could not fetch a source.
        if apt-get update -q -o APT::Update::Error-Mode=any; then rm "$updated-incomplete"; fi
      fi
      # The failed source may not be the source of the package.
      if DEBIAN_FRONTEND=noninteractive apt-get install -y -q -o DPkg::Lock::Timeout=300 "$2"; then return; fi
      if [[ ! -e $updated-incomplete ]] || ((SECONDS >= deadline)); then return 1; fi
      rm "$updated"
      sleep 5
    done
  else
    log "the package $1 is missing, and so are dnf and apt-get" && return 1
  fi
}

# Install the package of a command that is missing: $1 command, $2 dnf package, $3 apt package.
need() {
  if ! command -v "$1" >/dev/null; then install_package "$2" "$3"; fi
}
export -f need install_package log

step='installing missing commands'
need curl curl curl
need flock util-linux util-linux
need setpriv util-linux util-linux
need ssh-keygen openssh openssh-client
need mount.nfs4 nfs-utils nfs-common
# Ubuntu 24.04 has it only as a snap, signed and published by AWS (AWS CLI user guide, "Snap package").
if ! need aws awscli-2 awscli; then
  if ! command -v snap >/dev/null; then log 'cannot install the AWS CLI; use an image that contains it' && exit 1; fi
  snap install --classic aws-cli
  ln -sf /snap/bin/aws /usr/local/bin/aws
fi

# Start it as early as possible, so that failed boots are reported too. Its own failure is ignored.
if [[ -n ${DEEPCDK_AGENT:-} ]]; then
  step='starting the CloudWatch agent'
  "$root/opt/deepcdk/bin/agent" || log "the CloudWatch agent did not start: this node's logs and metrics are not shipped"
fi

step='finding the login user'
login_home='' rank_uid=''
while IFS=: read -r user _ uid gid _ home _; do
  case $user in
    "$DEEPCDK_LOGIN_USER") login_uid=$uid login_gid=$gid login_home=$home ;;
    deepcdk-rank) rank_uid=$uid ;;
  esac
done <"$root/etc/passwd"
if [[ -z $login_home ]]; then log "this image has no user $DEEPCDK_LOGIN_USER (login_user in cdk.json)" && exit 1; fi

# Ranks run as a separate user without a password. Its number is the same on all nodes, because the shared file system
# identifies users by number. Root owns its home, so that ranks can change neither authorized keys nor shell start-up
# files. Ranks own `files`.
step='making the user of the ranks'
rank_home=/home/deepcdk-rank
if [[ -z $rank_uid ]]; then
  need useradd shadow-utils passwd
  groupadd --system --gid 60900 deepcdk-rank
  useradd --system --uid 60900 --gid 60900 --no-create-home --home-dir "$rank_home" --shell /bin/bash --password '*' \
    deepcdk-rank
elif [[ $rank_uid != 60900 ]]; then
  log "this image has a user deepcdk-rank with the ID $rank_uid, but ranks need 60900" && exit 1
fi
# If systemd runs, all processes of ranks together leave some memory and process ids to other processes.
read -r _ memory _ </proc/meminfo
mkdir -p "$root/etc/systemd/system/user-60900.slice.d"
printf '[Slice]\nMemoryMax=%sK\nTasksMax=33%%\n' $((memory * 63 / 64 - 65536)) \
  >"$root/etc/systemd/system/user-60900.slice.d/deepcdk.conf"
# The user has no service manager, because its programs would evade the limits of ranks and continue after the logins.
# It has no timed jobs either. If at has no such file, only root may use it.
mkdir -p "$root/etc/systemd/system"
ln -sfn /dev/null "$root/etc/systemd/system/user@60900.service"
for deny in "$root"/etc/{cron,at}.deny; do
  if [[ $deny == *cron.deny || -e $deny ]] && ! grep -qsx deepcdk-rank "$deny"; then echo deepcdk-rank >>"$deny"; fi
done

# GPUs and EFA lock memory for their transfers.
mkdir -p "$root/etc/security/limits.d"
echo 'deepcdk-rank - memlock unlimited' >"$root/etc/security/limits.d/deepcdk.conf"

# A second user number for this user would bypass the rules.
step='loading the firewall of the ranks'
need nft nftables nftables
sed -i -E '/^(deepcdk-rank|60900):/d' "$root"/etc/sub[ug]id 2>/dev/null || true
firewall="$root/opt/deepcdk/bin/firewall ${DEEPCDK_FIREWALL:-}"
$firewall
per_boot=$root/var/lib/cloud/scripts/per-boot/deepcdk
if [[ -d $root/run/systemd/system ]]; then
  # Start after the image's own rules, which may flush all others.
  cat >"$root/etc/systemd/system/deepcdk-firewall.service" <<UNIT
[Unit]
DefaultDependencies=no
After=local-fs.target nftables.service
Before=network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
ExecStart=$firewall

[Install]
WantedBy=multi-user.target
UNIT
  systemctl enable deepcdk-firewall.service
else
  mkdir -p "${per_boot%/*}"
  printf '#!/bin/bash\nexec %s\n' "$firewall" >"$per_boot-firewall"
  chmod 755 "$per_boot-firewall"
fi

step='asking the instance metadata service'
instance_id=$(ask meta-data/instance-id)
ip=$(ask meta-data/local-ipv4)
zone=$(ask meta-data/placement/availability-zone)

step="mounting the shared file system $DEEPCDK_FILE_SYSTEM"
# Mount a file system now and at each boot: $1 its name, $2 directory, $3 type, $4 options.
mount_shared() {
  local entry="$1 $2 $3 $4,_netdev 0 0" deadline=$((SECONDS + ${DEEPCDK_MOUNT_TIMEOUT_S:-300}))
  mkdir -p "$root$2"
  # The name of a new mount target takes up to two minutes to resolve.
  until mountpoint -q "$root$2" || mount -t "$3" -o "$4" "$1" "$root$2"; do
    if ((SECONDS >= deadline)); then exit 1; fi
    sleep 2
  done
  if ! grep -qsxF "$entry" "$root/etc/fstab"; then echo "$entry" >>"$root/etc/fstab"; fi
}
mount_shared "$DEEPCDK_FILE_SYSTEM:/" "$DEEPCDK_EFS_MOUNT" nfs4 \
  nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,nosuid,nodev

if [[ -n ${DEEPCDK_LUSTRE:-} ]]; then
  # shellcheck source=lustre.sh
  . "$root/opt/deepcdk/bin/lustre"
fi

step='finding a Python'
runtime=$root/opt/deepcdk/runtime
find_python() {
  local made version
  # A runtime in the image needs the Python that created it.
  for made in "$runtime"/*/bin/python; do
    if [[ -x $made ]] && python=$(readlink -f "$made"); then return; fi
  done
  for version in 3.13 3.12 3.11; do
    if python=$(command -v "python$version"); then return; fi
  done
  return 1
}
if ! find_python; then
  step='installing Python 3.12, since this image has none of 3.11 to 3.13'
  need python3.12 python3.12 python3.12-venv
  find_python
fi
mkdir -p "$root/opt/deepcdk/bin" "$root/opt/deeplearning" "$root/etc/profile.d"
ln -sfn "$python" "$root/opt/deepcdk/bin/python3"

step='making directories'
if [[ ! -d $runtime ]]; then
  mkdir "$runtime"
  chown "$login_uid:$login_gid" "$runtime"
fi
# An image with the runtime also contains the tools that created it.
if [[ -z $(compgen -G "$runtime/*") ]]; then
  # Workers build Horovod, and programs may have C extensions. The master's environment has only wheels.
  if [[ $DEEPCDK_ROLE == worker ]]; then
    need g++ gcc-c++ g++
    # Debian 13's compiler, GCC 14, does not compile Horovod's source. So an older one is installed too.
    version=$(g++ -dumpversion)
    if ((${version%%.*} >= 14)); then need g++-13 gcc13-c++ g++-13; fi
    need make make make
    if ! "$python" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null; then
      install_package "${python##*/}-devel" "${python##*/}-dev"
    fi
  fi
  # Debian has a separate package for virtual environments.
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    install_package "${python##*/}" "${python##*/}-venv"
  fi
fi
if [[ ! -d $root$login_home/.ssh ]]; then install -d -m 700 -o "$login_uid" -g "$login_gid" "$root$login_home/.ssh"; fi
install -d -m 755 "$root$rank_home" "$root$rank_home/.ssh"
install -d -m 755 "$root$rank_home/files"
chown 60900:60900 "$root$rank_home/files"

if [[ -n ${DEEPCDK_SCRATCH:-} ]]; then
  step="making the scratch directory $DEEPCDK_SCRATCH"
  "$root/opt/deepcdk/bin/scratch" "$login_uid:$login_gid"
fi

step='making host keys'
if [[ ! -e $root/etc/ssh/ssh_host_ed25519_key.pub ]]; then ssh-keygen -q -A ${root:+-f "$root"}; fi

if [[ $DEEPCDK_ROLE == master ]]; then
  # shellcheck source=master_setup.sh
  . "$root/opt/deepcdk/bin/shared"
else
  install -d -m 700 "$root/root/.ssh"
fi

step='counting what ranks can use'
gpus=0
if [[ $DEEPCDK_GPUS == true ]]; then
  # It creates the device files.
  if command -v nvidia-smi >/dev/null; then nvidia-smi -L >/dev/null || true; fi
  for file in "$root"/dev/nvidia[0-9]*; do
    if [[ -e $file ]]; then gpus=$((gpus + 1)); fi
  done
fi
kind=$(uname -m)
if ((gpus > 0)); then
  # One line per GPU, for example 9.0. If a driver cannot print it, the instance type determines it.
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sort -u) || capability=
  capability=${capability/./}
  if [[ ! $capability =~ ^[1-9][0-9]{1,2}$ ]]; then capability=${DEEPCDK_COMPUTE_CAPABILITY:-}; fi
  kind+=-${capability:+sm}${capability:-gpu}
fi
version=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")') || version=
if [[ $version =~ ^3[.][1-9][0-9]?$ ]]; then kind+=-py$version; fi
interface=eth0
while read -r device destination _; do
  if [[ $destination == 00000000 ]]; then interface=$device && break; fi
done <"$root/proc/net/route"

# A command that hangs is stopped while CloudFormation still waits for the signal.
while IFS= read -r command; do
  step="boot_commands: ${command:0:300}"
  if [[ -z $command ]]; then continue; fi
  start=$SECONDS left=$((DEEPCDK_COMMANDS_S - SECONDS))
  timeout -k 9 "$((left > 1 ? left : 1))" bash -c "$command" </dev/null || {
    status=$?
    if ((SECONDS >= DEEPCDK_COMMANDS_S)); then
      step+=", stopped for ready_timeout_min (boot and earlier commands took $start s of $DEEPCDK_COMMANDS_S s),"
    fi
    exit "$status"
  }
done <<<"${DEEPCDK_COMMANDS:-}"

step='taking a name among the nodes'
printf '%s=%q\n' role "$DEEPCDK_ROLE" instance_id "$instance_id" ip "$ip" zone "$zone" \
  slots "$((gpus > 0 ? gpus : 1))" gpus "$gpus" kind "$kind" interface "$interface" login_uid "$login_uid" login_gid "$login_gid" \
  login_home "$login_home" rank_home "$rank_home" efs_mount "$DEEPCDK_EFS_MOUNT" fsx_mount "${DEEPCDK_LUSTRE_MOUNT:-}" region "$DEEPCDK_REGION" key_parameter "$DEEPCDK_KEY_PARAMETER" \
  handover_parameter "${DEEPCDK_HANDOVER_PARAMETER:-}" >"$root/opt/deepcdk/node.conf"
"$root/opt/deepcdk/bin/registry" keys
"$root/opt/deepcdk/bin/registry" refresh

step='starting the watcher'
if [[ -d $root/run/systemd/system ]]; then
  cat >"$root/etc/systemd/system/deepcdk-registry.service" <<UNIT
[Unit]
Description=Registry of the deepcdk cluster's nodes
After=network-online.target remote-fs.target

[Service]
ExecStart=/opt/deepcdk/bin/registry watch
Restart=always
RestartSec=5
KillMode=process

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable --now deepcdk-registry.service
else
  # Without systemd it is cloud-init that runs this at each boot.
  cat >"$per_boot-registry" <<PER_BOOT
#!/bin/bash
setsid bash -c 'until "\$0" watch; do sleep 5; done' "$root/opt/deepcdk/bin/registry" \\
  </dev/null >>"$root/var/log/deepcdk-registry.log" 2>&1 &
PER_BOOT
  chmod 755 "$per_boot-registry"
  "$per_boot-registry"
fi
step='ready'
