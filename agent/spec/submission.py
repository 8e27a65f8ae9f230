"""Provenance of a run: facts that only the laptop knows when it launches the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from agent.errors import SpecError, malformed
from agent.spec import untrusted_json
from agent.spec.run import RunSpec

DIFF_LIMIT: Final = 1 << 20
"""Maximum bytes of a stored diff: enough for source code, too few for a data set under version control."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Facts about a run that only the laptop knows. Empty values are unknown."""

    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The cluster's configuration, from cdk.json and --set."""
    template_sha256: str = ""
    """Hash of the deployed template, as JSON with sorted keys."""
    stack: str = ""
    region: str = ""
    endpoint: str = ""
    """Address of the API that created the nodes; empty for AWS itself. An embedded cloud's nodes have no AWS type."""
    bucket: str = ""
    """The bucket that the run's record is copied to."""
    instance_types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Instance type of each instance, by instance ID, including the master."""
    master: str = ""
    """Instance ID of the master."""
    worker_types: tuple[str, ...] = ()
    """All instance types that a worker of the group may have."""
    usd_per_hour: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """On-demand price of each instance type; None if unknown."""
    prices_of: str = ""
    """The day of those prices, if it differs from the day of the run."""
    spot: tuple[str, ...] = ()
    """Instance IDs of the spot instances."""
    spot_usd_per_hour: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Spot price of each instance type, if the laptop knew it."""
    spot_prices_of: str = ""
    """The day of the spot prices."""
    started_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """`user` and `host` that started the run, the ARN of the AWS `identity`, and the id of the `laptop`."""
    estimate: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The laptop's estimate: `seconds` and `usd`, each with `low`, `value` and `high`, and `bottleneck`."""
    diff: str = ""
    """Differences from the commit, as `git diff` prints them, without untracked files."""
    diff_is_cut: bool = False
    """Whether the diff was longer than DIFF_LIMIT."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """The request from the laptop to start or resume a run."""

    spec: RunSpec
    origin: Origin = dataclasses.field(default_factory=Origin)

    def to_json(self) -> str:
        """Return the submission as JSON, which `from_json` reads back unchanged."""
        return json.dumps({"spec": json.loads(self.spec.to_json()), "origin": dataclasses.asdict(self.origin)})

    @classmethod
    def from_json(cls, text: str) -> Submission:
        """Build the submission from JSON. Raises SpecError if it is invalid.

        A spec alone becomes a submission of unknown origin.
        """
        try:
            document = untrusted_json.parse(text)
            if not isinstance(document, dict) or "spec" not in document:
                return cls(spec=RunSpec.from_json(text))
            origin = document.get("origin", {})
            if not isinstance(origin, dict):
                raise ValueError(f"origin is {origin!r:.40}, but must be an object")
            lists = {name: tuple(map(str, origin.get(name, ()))) for name in ("worker_types", "spot")}
            spec = RunSpec.from_json(json.dumps(document["spec"]))
            return cls(spec=spec, origin=Origin(**{**origin, **lists}))
        except SpecError:
            raise
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"the laptop sent an invalid submission of a run: {malformed(error)}; repeat the command"
            ) from None
