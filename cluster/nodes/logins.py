"""Check which nodes accept the master's logins, as the login user and as the ranks' user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from agent.spec.nodes import MASTER_NAME, RANK_USER, Node

if TYPE_CHECKING:
    from cluster.ssh.master import Master

AT_ONCE: Final = 16
TIMEOUT_S: Final = 20
"""Timeout of a login. A login to a busy worker may take seconds."""
# A login without -l is the login user's, as on the master. For each node one line: its name, then SSH's last message if
# a login failed.
_SCRIPT: Final = f"""\
for user in '' {RANK_USER}; do
said=$(timeout {TIMEOUT_S} agent/bin/ssh -n ${{user:+-l $user}} "$1" true 2>&1) || {{
status=$? said=$(printf %s "$said" | tail -n 1)
[ $status != 124 ] || said='no answer within {TIMEOUT_S} s'
printf '%s %s\\n' "$1" "${{said:-status $status}}"; exit; }}
done
printf '%s\\n' "$1"
"""


def login_command() -> list[str]:
    """Build the command that logs in to nodes and logs out again, for `parse_logins`. It runs in the agent's tree.

    Its standard input is the names of the nodes, one per line.
    """
    return ["xargs", "-r", "-n1", f"-P{AT_ONCE}", "sh", "-c", _SCRIPT, "sh"]


def parse_logins(text: str, names: Iterable[str]) -> dict[str, str]:
    """Parse the output of `login_command`: return by node name why a login failed, or "" if both logins succeeded.

    The result has all of `names`. The reason for a node without a line is "no answer". Lines about other names are
    ignored.
    """
    found = dict.fromkeys(names, "no answer")
    for line in text.splitlines():
        name, _, reason = line.partition(" ")
        if name in found:
            found[name] = reason
    return found


class Logins:
    """The workers that have accepted the master's logins, by instance. Each is asked until it accepts them."""

    def __init__(self, directory: str) -> None:
        """Use the agent in `directory` on the master, below the login user's home."""
        self._directory = directory
        self._accepted: set[str] = set()
        self.refused: dict[str, str] = {}
        """Why the logins of the last check failed, by node name."""

    def ready(self, master: Master, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """Log in from the master to the workers among `nodes`. Return the master and those that accept it.

        Workers that accepted the logins in an earlier call are not asked again. `refused` is updated. Waits for the
        slowest worker, up to TIMEOUT_S seconds per login. Raises RemoteError if the check itself fails.
        """
        new = [node for node in nodes if node.name != MASTER_NAME and node.instance_id not in self._accepted]
        self.refused = {}
        if new:
            names = [node.name for node in new]
            done = master.check(
                login_command(),
                directory=self._directory,
                stdin="".join(f"{name}\n" for name in names).encode(),
                doing="logging in to the nodes",
            )
            self.refused = {name: why for name, why in parse_logins(done.text, names).items() if why}
            self._accepted |= {node.instance_id for node in new if node.name not in self.refused}
        return tuple(node for node in nodes if node.name not in self.refused)
