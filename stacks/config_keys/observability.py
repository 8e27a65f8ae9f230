"""Keys of logs, metrics, dashboard and alarms."""

from __future__ import annotations

import dataclasses
from typing import Final

from stacks.config_keys.value_checks import EMAIL, ConfigError, require_match, require_range

# Retention times in days that CloudWatch Logs supports (PutRetentionPolicy, retentionInDays).
RETENTIONS: Final = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
# A stack can have 500 resources. All others of a cluster are about 110.
MAX_EMAILS: Final = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObservabilityKeys:
    """Keys of logs, metrics, dashboard and alarms. All are off by default, because AWS bills most of it."""

    node_logs: bool = False
    """Send the nodes' boot logs and the runs' logs to CloudWatch Logs, through the CloudWatch agent."""
    log_retention_days: int = 30
    """Days to keep events in the log groups."""
    node_metrics: bool = False
    """Collect CPU, GPU, memory, disk, network and EFA metrics on the nodes, through the CloudWatch agent."""
    metrics_interval_s: int = 60
    """Seconds between two samples. Below 60, AWS stores them as high-resolution metrics."""
    dashboard: bool = False
    """Create a CloudWatch dashboard for the cluster."""
    alarms: bool = False
    """Create CloudWatch alarms: missing or unhealthy nodes, full disks, the shared file system's limits, NAT ports."""
    alarm_emails: tuple[str, ...] = ()
    """With `alarms`: e-mail addresses to notify, after they have confirmed a message from SNS."""
    alarm_topic: str = ""
    """With `alarms`: ARN of an existing SNS topic to notify."""

    def check_observability(self) -> None:
        """Raise ConfigError for the first invalid value of these keys. Booleans have no rule here."""
        if self.log_retention_days not in RETENTIONS:
            days = ", ".join(map(str, RETENTIONS))
            raise ConfigError("log_retention_days", self.log_retention_days, f"must be one of {days}")
        require_range(self, "metrics_interval_s", 1, 3600)
        require_match(self, "alarm_emails", EMAIL, "an e-mail address")
        if len(self.alarm_emails) > MAX_EMAILS:
            rule = f"must be at most {MAX_EMAILS}: each address is a resource of the stack; use a mailing list"
            raise ConfigError("alarm_emails", f"{len(self.alarm_emails)} addresses", rule)
        require_match(
            self,
            "alarm_topic",
            r"(?:arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256})?",
            "the ARN of a standard SNS topic, or empty",
        )

    @property
    def has_agent(self) -> bool:
        """Return whether the nodes run the CloudWatch agent."""
        return self.node_logs or self.node_metrics
