"""Keys that limit a cluster's permissions, time and cost."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from stacks.config_keys.value_checks import EMAIL, ConfigError, require_choice, require_match, require_range

# EC2 publishes its metrics every five minutes, unless detailed monitoring is enabled, which costs money.
IDLE_PERIOD_MIN: Final = 5
# CloudWatch evaluates at most a day of five-minute periods, or seven days of one-hour periods.
MAX_IDLE_MIN: Final = 1430
DAY_H: Final = 24
WEEK_H: Final = 168
# AWS permits 50 tags per resource. The stack, the Auto Scaling group and this project need some of them.
MAX_TAGS: Final = 40
# Each of up to 64 resources has all tags, and CloudFormation's limit for a template is 1 MB.
MAX_TAG_CHARACTERS: Final = 8000
# The same limit as for the master's program, agent.spec.run_limits.MAX_REPLACEMENTS.
MAX_REPLACEMENTS: Final = 100
MIN_USD: Final = 0.01
_TAG_TEXT: Final = r"[A-Za-z0-9 _.:/=+@-]"
_RESERVED: Final = ("aws:", "deepcdk:")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitKeys:
    """Keys of the cluster's bounds."""

    permissions_boundary: str = ""
    """ARN of the permissions boundary for all roles of the stack, for accounts that require one; empty: none."""
    termination_protection: bool = False
    """Protect the stack from deletion until this is set to false and deployed."""
    protect_instances: bool = False
    """Protect nodes from termination through EC2. Auto Scaling, and so `fab`, can still terminate them."""
    tags: tuple[str, ...] = ()
    """Tags for all resources, as KEY=VALUE, for example for your organisation's cost allocation."""
    idle_minutes: int = 60
    """Stop all workers after this many minutes without a live run and with all workers idle; a multiple of 5; 0: never.
    The default of an hour limits the cost of a forgotten cluster. `fab train` starts the workers again."""
    idle_cpu_percent: float = 0.0
    """With `idle_minutes`: a worker with less CPU use, in percent of all vCPUs, is idle; 0: half of one vCPU."""
    then_stop: bool = False
    """Stop all workers when a run has ended and no other run is queued. For a single run: `fab train --then-stop`."""
    max_replacements_per_hour: int = 4
    """Replace at most this many lost or faulty workers per hour while runs are live or queued; 0: none."""
    max_hours: float = 0.0
    """Stop all workers, even busy ones, when there have been workers for this many hours without a break; 0: never."""
    budget_usd: float = 0.0
    """Monthly budget, US dollars; 0: none."""
    budget_scope: str = "account"
    """Costs to count: of the `account`, or of the `cluster`. `cluster` needs the tag deepcdk:cluster activated for cost
    allocation; until then AWS counts nothing."""
    budget_emails: tuple[str, ...] = ()
    """E-mail addresses to notify when 80% is spent, when 100% is spent, and when 100% is forecast."""
    budget_stops_workers: bool = True
    """Stop all workers, and any new ones, when the budget is spent, until `fab release`."""

    def check_limits(self) -> None:
        """Raise ConfigError for the first invalid value of these keys. Booleans have no rule here."""
        word = "[A-Za-z0-9+=,.@_-]"
        policy = rf"(?:arn:aws[a-z-]*:iam::(?:[0-9]{{12}}|aws):policy/(?=.{{1,639}}$)(?:{word}+/)*{word}{{1,128}})?"
        require_match(self, "permissions_boundary", policy, "the ARN of an IAM policy, or empty")
        self._check_tags()
        self._check_times()
        require_range(self, "max_replacements_per_hour", 0, MAX_REPLACEMENTS)
        require_range(self, "budget_usd", 0, 10**9)
        if 0 < self.budget_usd < MIN_USD:
            raise ConfigError("budget_usd", self.budget_usd, f"must be 0, or at least {MIN_USD}")
        require_choice(self, "budget_scope", "account", "cluster")
        require_match(self, "budget_emails", EMAIL, "an e-mail address")
        if len(self.budget_emails) > 10:
            raise ConfigError(
                "budget_emails", self.budget_emails, "must be at most 10 addresses, the limit of AWS Budgets"
            )

    def _check_tags(self) -> None:
        rule = "KEY=VALUE, with letters, digits, spaces and _ . : / = + @ -"
        require_match(self, "tags", rf"[^=]+={_TAG_TEXT}+", rule)
        require_match(self, "tags", rf"{_TAG_TEXT}+", rule)
        for text in self.tags:
            key, _, value = text.partition("=")
            if key.lower().startswith(_RESERVED) or key == "Name":
                raise ConfigError("tags", text, "the key must not be Name, and must not begin with aws: or deepcdk:")
            if not 1 <= len(key) <= 127 or not 1 <= len(value) <= 256:  # EC2 accepts an empty value, but not CloudWatch
                raise ConfigError("tags", text, "the key must have 1 to 127 characters, the value 1 to 256")
        if len({key.lower() for key in self.tag_values}) != len(self.tags):
            raise ConfigError(
                "tags", self.tags, "each key must be unique; IAM ignores case, so Team and team are the same key"
            )
        if len(self.tags) > MAX_TAGS:
            raise ConfigError("tags", f"{len(self.tags)} tags", f"must be at most {MAX_TAGS}")
        total = sum(map(len, self.tags))
        if total > MAX_TAG_CHARACTERS:
            rule = f"must be at most {MAX_TAG_CHARACTERS}: every resource has all tags, and a template has 1 MB"
            raise ConfigError("tags", f"{total} characters", rule)

    def _check_times(self) -> None:
        if self.idle_minutes and (self.idle_minutes % IDLE_PERIOD_MIN or not 10 <= self.idle_minutes <= MAX_IDLE_MIN):
            rule = f"must be 0, or a multiple of 5 from 10 to {MAX_IDLE_MIN}: EC2's metrics are 5 minutes apart"
            raise ConfigError("idle_minutes", self.idle_minutes, rule)
        require_range(self, "idle_cpu_percent", 0, 100)
        hours = self.max_hours
        if hours and not 0.5 <= hours <= WEEK_H:
            rule = f"must be 0, or 0.5 to {WEEK_H}: CloudWatch evaluates at most a week"
            raise ConfigError("max_hours", hours, rule)
        if hours > DAY_H and hours != math.floor(hours):
            raise ConfigError("max_hours", hours, f"must be a whole number if it is more than {DAY_H}")
        if hours * 12 != math.floor(hours * 12):
            raise ConfigError("max_hours", hours, "must be a multiple of five minutes, such as 0.5, 0.75 or 1.25")

    @property
    def tag_values(self) -> dict[str, str]:
        """Return the values of the configured tags, by key."""
        return {key: value for key, _, value in (text.partition("=") for text in self.tags)}
