#!/bin/bash
# Start the CloudWatch agent with the configuration in the parameter DEEPCDK_AGENT; install it first where it is missing.
#
# On a node only where the cluster has an agent; boot.sh runs it, and lends its function `install_package`.
set -euo pipefail

root=${DEEPCDK_ROOT:-}
ctl=$root/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
# Not in /tmp, which Debian 13 has in memory.
package=$root/var/tmp/amazon-cloudwatch-agent.deb
ID=

if [[ ! -x $ctl ]]; then
  if command -v dnf >/dev/null; then
    install_package amazon-cloudwatch-agent ''
  else
    # Debian and Ubuntu have no such package; AWS keeps one for each in a bucket of the region.
    # shellcheck source=/dev/null
    . "$root/etc/os-release"
    bucket=amazoncloudwatch-agent-$DEEPCDK_REGION.s3.$DEEPCDK_REGION.${DEEPCDK_FILE_SYSTEM##*."$DEEPCDK_REGION".}
    trap 'rm -f "$package"' EXIT
    curl -fsS --retry 3 --max-time 120 -o "$package" \
      "https://$bucket/$ID/$(dpkg --print-architecture)/latest/amazon-cloudwatch-agent.deb"
    dpkg -i "$package"
  fi
fi
"$ctl" -a fetch-config -m ec2 -s -c "ssm:$DEEPCDK_AGENT"
