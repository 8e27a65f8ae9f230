#!/bin/bash
# Start the CloudWatch agent with the configuration in the SSM parameter DEEPCDK_AGENT. Install it first if it is missing.
#
# Nodes have this script only if node_logs or node_metrics is set. boot.sh runs it and exports `install_package`.
set -euo pipefail

root=${DEEPCDK_ROOT:-}
ctl=$root/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
# Not in /tmp, which is in memory on Debian 13.
package=$root/var/tmp/amazon-cloudwatch-agent.deb
ID=

if [[ ! -x $ctl ]]; then
  if command -v dnf >/dev/null; then
    install_package amazon-cloudwatch-agent ''
  else
    # Debian and Ubuntu do not have the package. AWS provides it in a bucket of the region.
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
