"""Whether this master has what the one before it left (`agent.supervisor.handover`); each command asks first.

It imports little: the laptop waits for it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

from agent.deadline import wait_until
from agent.hardware.node_conf import NODE_CONF, read_node_conf

INHERITED: Final = Path("/opt/deepcdk/inherited")
"""Made by root once the master has what the one before it left, or knows that there is nothing."""
PATIENCE_S: Final = 60.0
"""Of a master's first minute, in which it asks; later on nobody waits for it any more."""


def wait_until_taken_over(
    conf: Path = NODE_CONF, inherited: Path = INHERITED, *, patience_s: float = PATIENCE_S
) -> None:
    """Wait until a booting master has what the one before it left: until then its runs look lost for good."""
    if inherited.exists() or not read_node_conf(conf).get("handover_parameter"):
        return
    left_s = conf.stat().st_mtime + patience_s - time.time()
    if not wait_until(inherited.exists, timeout_s=min(patience_s, max(0.0, left_s)), poll_s=0.2):
        print(
            "warning: this master could not learn yet what the one before it left: runs of that one do not go on by "
            "themselves (`journalctl -u deepcdk-registry` on the master says why)",
            file=sys.stderr,
        )
