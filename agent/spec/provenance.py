"""Where a run comes from: what only the laptop knows when it launches the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from agent.errors import SpecError
from agent.spec import json_text
from agent.spec.run import RunSpec

DIFF_LIMIT: Final = 1 << 20
"""Bytes of a diff that are kept: enough for source code, too few for a data set under version control."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """What made a run, as far as only the laptop knows it. Empty values are unknown."""

    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The cluster's configuration, as cdk.json and --set gave it."""
    template_sha256: str = ""
    """Of the deployed template, as JSON with sorted keys."""
    stack: str = ""
    region: str = ""
    endpoint: str = ""
    """Address of the API that made the nodes; empty for AWS's own. Those of an embedded cloud are of no AWS type."""
    bucket: str = ""
    """To which the run's record is copied."""
    instance_types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Type of each instance, by its id, the master included."""
    master: str = ""
    """Id of the master's instance."""
    worker_types: tuple[str, ...] = ()
    """All types that a worker of the group may have."""
    usd_per_hour: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    """On-demand price of each type; null where it was not known."""
    prices_of: str = ""
    """The day of those prices where one is not of the day of the run."""
    spot: tuple[str, ...] = ()
    """Ids of the instances that are spot instances."""
    spot_usd_per_hour: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Spot price of each type of which the laptop knew one."""
    spot_prices_of: str = ""
    """The day of those prices."""
    started_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """`user` and `host` of who started it, the ARN of the AWS `identity`, and the id of the `laptop`."""
    estimate: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the laptop expected: `seconds` and `usd`, each with `low`, `value` and `high`, and `bottleneck`."""
    diff: str = ""
    """What differed from the commit, as `git diff` writes it; new files that git does not know are not in it."""
    diff_is_cut: bool = False
    """Whether it was longer than DIFF_LIMIT."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """What the laptop sends to start a run or to resume one."""

    spec: RunSpec
    origin: Origin = dataclasses.field(default_factory=Origin)

    def to_json(self) -> str:
        """Return the submission as JSON, which `from_json` reads back unchanged."""
        return json.dumps({"spec": json.loads(self.spec.to_json()), "origin": dataclasses.asdict(self.origin)})

    @classmethod
    def from_json(cls, text: str) -> Submission:
        """Build the submission; a spec alone is one of unknown origin. Raises SpecError for anything else."""
        try:
            document = json_text.parse(text)
            if not isinstance(document, dict) or "spec" not in document:
                return cls(spec=RunSpec.from_json(text))
            origin = document.get("origin", {})
            if not isinstance(origin, dict):
                raise TypeError(f"its origin is {origin!r:.40}, and not an object")
            lists = {name: tuple(map(str, origin.get(name, ()))) for name in ("worker_types", "spot")}
            spec = RunSpec.from_json(json.dumps(document["spec"]))
            return cls(spec=spec, origin=Origin(**{**origin, **lists}))
        except SpecError:
            raise
        except (TypeError, ValueError) as error:
            raise SpecError(f"not the submission of a run: {error}") from None
