"""What the launcher of an elastic run and its ranks tell each other. Pure.

The launcher has a small HTTP server on the master. A rank asks it for its place before it joins the others, again after
each loss, and gets it once all that are left have asked:

    GET /place/MEMBER/DATA a `Place` as JSON; 204 where there is none yet, to ask again; 410 for one that has no place
    PUT /joined/MEMBER     the rank has joined the others
    GET /wanted            1 where the ranks are to form anew between two steps, else 0
    PUT /stepped           rank 0 has made the first step since: a `FirstStep` as JSON

MEMBER is the number with which a rank was started. It stays, and marks the rank's lines in the log; the rank's place
among the others changes where ranks are lost or join. DATA is a digest of what the rank reads, and may be missing: a
host that joins with another one than the first had gets no place.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Final

from agent.spec import json_text

SERVER_VARIABLE: Final = "DEEPCDK_ELASTIC"
"""ADDRESS:PORT of the launcher's server; only ranks of an elastic run have it."""
MEMBER_VARIABLE: Final = "DEEPCDK_MEMBER"
LEAVING_VARIABLE: Final = "DEEPCDK_LEAVING"
"""The file that is there once this rank's node is about to end, and has sent SIGTERM to its ranks."""
NO_CONTENT: Final = 204
GONE: Final = 410
MOST_ANSWER_BYTES: Final = 1 << 20
_NUMBERS: Final = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
"""As Horovod's variables and its own elastic launcher have them, in this order."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """The place of one rank in a round: what holds from one forming of the ranks to the next."""

    round: int
    """From 1."""
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    """Number among the ranks of this local rank, over all hosts."""
    cross_size: int
    address: str
    """Where the ranks of this round meet."""
    port: int
    lost: tuple[str, ...] = ()
    """Hosts of the round before that this one does not have."""
    lost_ranks: tuple[int, ...] = ()
    """Their ranks in the round before."""
    joined: tuple[str, ...] = ()
    """Hosts that the round before did not have."""
    why: str = ""

    @property
    def numbers(self) -> str:
        """Return the place as Horovod's library reads it from an elastic launcher."""
        return ",".join(str(getattr(self, name)) for name in _NUMBERS)

    def variables(self) -> dict[str, str]:
        """Return the variables from which Horovod's library reads where it belongs."""
        return {
            **{f"HOROVOD_{name.upper()}": str(getattr(self, name)) for name in _NUMBERS},
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
        }

    def to_json(self) -> str:
        """Return the place as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Place:
        """Build the place from JSON. Raises ValueError, TypeError or KeyError for anything else."""
        document: dict[str, Any] = json_text.parse(text)
        lists = {name: tuple(document[name]) for name in ("lost", "lost_ranks", "joined")}
        return cls(**{**document, **lists})


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstStep:
    """What rank 0 reports of the first step after the ranks have formed anew."""

    round: int
    step: int
    """Steps completed since the beginning of the run, this one included."""
    steps_lost: int
    """Steps that were begun before, and had to be made again: 0 or 1."""
    seconds: float
    """From the end of the last step before to the end of this one."""

    def __post_init__(self) -> None:
        for name in ("round", "step", "steps_lost"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise ValueError(f"{name} must be a whole number from 0")
        if not isinstance(self.seconds, int | float) or not math.isfinite(self.seconds) or self.seconds < 0:
            raise ValueError("seconds must be a number from 0")

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> FirstStep:
        """Build it from JSON. Raises ValueError or TypeError for anything else: ranks send it."""
        document = json_text.parse(text)
        if not isinstance(document, dict):
            raise TypeError("not an object")
        return cls(**document)
