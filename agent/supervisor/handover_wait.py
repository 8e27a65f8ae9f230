"""Wait until this master has taken over its predecessor's data (`agent.supervisor.handover`).

Before that, the predecessor's runs look as if they could not continue, and would be stored as failed. This module
imports little, because the laptop waits for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.hardware.machine import NODE_CONF, read_node_conf
from agent.polling import wait_until

INHERITED: Final = Path("/opt/deepcdk/inherited")
"""File with this instance's id. Root writes it when the master has the data, has found that there are none, or has
given up."""
PATIENCE_S: Final = 60.0
POLL_S: Final = 0.2
UNKNOWN: Final = (
    "this master is new and does not have the data of the previous master yet; repeat the command in a few minutes "
    "(`journalctl -u deepcdk-registry` on the master shows the cause)"
)


def is_settled(conf: Path = NODE_CONF, inherited: Path = INHERITED) -> bool:
    """Return whether there is nothing to wait for: the data are taken over, or this node expects none.

    `conf` is the file with facts about this node, and `inherited` the file in which root reports the end of the
    handover.
    """
    facts = read_node_conf(conf)
    if not facts.get("handover_parameter"):
        return True
    try:
        return inherited.read_text(encoding="ascii", errors="replace").strip() == facts.get("instance_id")
    except FileNotFoundError:
        return False


def wait_until_settled(timeout_s: float = PATIENCE_S) -> bool:
    """Wait until `is_settled`, but at most `timeout_s`; return whether it is."""
    return wait_until(is_settled, timeout_s=timeout_s, poll_s=POLL_S)
