"""A task's access to the cluster: configuration, AWS, the master, and the supervisor on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent.spec.nodes import Node
from agent.spec.run_limits import Replacements
from cluster.aws import inventory
from cluster.aws.client import Aws
from cluster.aws.prices import Prices, cache_file, total_per_hour
from cluster.aws.stack import DELETING, BeingDestroyedError, Stack, find_stack
from cluster.cli import FOR_NODES
from cluster.errors import UsageError
from cluster.nodes import worker_group
from cluster.programs.large_upload import confirm_upload, is_large
from cluster.ssh.connect import connect
from cluster.ssh.host_keys import KeptHostKeys
from cluster.ssh.master import Master
from cluster.ssh.push import Pushed, Tree, find_pushed, package_tree, push
from cluster.terminal.status_line import doing, warn
from stacks.config import ClusterConfig, ConfigError

if TYPE_CHECKING:
    from cluster.planner.calibration import Calibration
    from cluster.runs.supervisor_client import Supervisor


def parse_overrides(given: Iterable[str]) -> dict[str, str]:
    """Parse --set key=value arguments. The last value of a key counts. Keys and values are not checked.

    Raises UsageError for text without a key or without `=`.
    """
    overrides = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError("--set", text, "must be key=value, with a key of context.cluster in cdk.json")
        overrides[key] = value
    return overrides


def read_config(project: Path, overrides: dict[str, str], *, deploying: bool, region: str = "") -> ClusterConfig:
    """Read cdk.json with the overrides. Raises ConfigError.

    With `deploying`, the configuration is also checked as a whole for the region. It must then allow access to the
    master, because other tasks could not use the cluster otherwise.
    """
    config = ClusterConfig.from_file(project / "cdk.json", overrides)
    if deploying:
        from stacks.cross_key_checks import validate  # import it here: only a deployment needs it

        validate(config, region)
        if not config.is_reachable:
            raise ConfigError(
                "ssh_cidr",
                None,
                "missing; set it to the network from which you connect, in cdk.json or with --set "
                "ssh_cidr=ADDRESS/32. For access without an open port: --set ssh_access=session-manager",
            )
    return config


class Session:
    """Provide what a task needs. Each resource is resolved once, on first use.

    Creating a session reads cdk.json. It raises UsageError for an invalid --set, ConfigError or, with `deploying`,
    AwsError.
    """

    def __init__(self, project: Path, overrides: Iterable[str], *, key: str = "", deploying: bool = False) -> None:
        self.project, self.key = project, key
        self.overrides = parse_overrides(overrides)
        self.aws = Aws()
        region = self.aws.region if deploying else ""
        self.config = read_config(project, self.overrides, deploying=deploying, region=region)
        self.prices = Prices(self.aws, cache_file(Path.home()))
        self.loaded_inventory: inventory.Inventory | None = None
        self._deployed: inventory.DeployedMaster | None = None
        self._there: frozenset[str] = frozenset()
        self._confirmed: set[str] = set()

    def load_inventory(self) -> inventory.Inventory:
        """Return the deployed cluster with its instances, as they were when AWS was first asked. Raises NoStackError or
        AwsError.
        """
        if self.loaded_inventory is None:
            with doing(f"asking AWS for the cluster {self.config.stack_name}"):
                self.loaded_inventory = (
                    inventory.refresh(self.aws, self._deployed.stack)
                    if self._deployed
                    else inventory.find(self.aws, self.config.stack_name)
                )
        return self.loaded_inventory

    def load_master(self) -> inventory.DeployedMaster:
        """Return the deployed stack and its running master. AWS is asked once. This is faster than the inventory.

        Waits for a starting master. Raises NoStackError, AwsError without a master, or BeingDestroyedError for a stack
        that is being deleted, even if its master still answers.
        """
        if self.loaded_inventory is not None and self.loaded_inventory.stack.status == DELETING:
            raise BeingDestroyedError(self.loaded_inventory.stack.name)
        if self.loaded_inventory is not None:
            self.loaded_inventory = inventory.await_master(self.aws, self.loaded_inventory)
            return inventory.DeployedMaster(stack=self.loaded_inventory.stack, master=self.loaded_inventory.master)
        if self._deployed is None:
            with doing(f"asking AWS for the cluster {self.config.stack_name}"):
                self._deployed = inventory.find_master(self.aws, self.config.stack_name)
        return self._deployed

    @property
    def stack(self) -> Stack:
        """Return the deployed stack. Raises the errors of `load_master`."""
        return self.loaded_inventory.stack if self.loaded_inventory else self.load_master().stack

    @property
    def replacements(self) -> Replacements:
        """Return the limit on replacements of lost workers by the master, and the workers' Auto Scaling group."""
        most = self.config.max_replacements_per_hour
        return Replacements(group=self.stack.worker_group, region=self.aws.region, max_per_hour=most)

    def connect(self) -> Master:
        """Open a connection to the master, which the caller must close. Raises ConnectionFailedError, or the errors of
        `load_master`.
        """
        deployed = self.load_master()
        with doing("connecting to the master"):
            return connect(
                self.aws,
                deployed.master,
                deployed.stack.login_user,
                self.kept_host_keys,
                self.key,
                deployed.stack.ssh_access,
            )

    @property
    def kept_host_keys(self) -> KeptHostKeys:
        """Return the host keys that are kept for the deployed cluster's account and region."""
        return KeptHostKeys.in_home(Path.home(), account=self.stack.account, region=self.aws.region)

    @functools.cached_property
    def calibration(self) -> Calibration:
        """Return the calibration from runs that were fetched to ./runs.

        Runs on the embedded cloud are used only if the cluster is on it.
        """
        # Import late: tasks without an estimate do not need these modules.
        from cluster.planner.past_runs import read_calibration
        from cluster.report.run_files import RUNS

        return read_calibration(RUNS, embedded=bool(self.aws.endpoint))

    @functools.cached_property
    def agent_tree(self) -> Tree:
        """Return the packed agent, which every task needs on the master. Raises BrokenPackageError."""
        return package_tree(FOR_NODES / "agent")

    def find_pushed(self, master: Master, trees: Sequence[Tree]) -> bool:
        """Return whether all of these trees are pushed. Those that are pushed are remembered for later calls of `push`.

        One command asks the master for all of them.
        """
        self._there |= find_pushed(master, self.stack.payloads_root, trees)
        return self._there.issuperset(tree.name for tree in trees)

    def push(
        self, master: Master, tree: Tree, tell: Callable[[str], None] | None = None, *, terminal: bool = False
    ) -> Pushed:
        """Push a tree unless it is already pushed. Return its directory and the bytes uploaded. Raises RemoteError.

        The progress of an upload that may take long is passed to `tell`, or shown with a bar if `terminal` is set.
        """
        pushed = push(master, self.stack.payloads_root, tree, tell, terminal=terminal, there=self._there)
        self._there |= {tree.name}
        return pushed

    def confirm_upload(self, master: Master, tree: Tree, tell: Callable[[str], None], *, yes: bool) -> None:
        """Ask before the upload of a large tree that is not pushed yet. `tell` gets its size.

        After a yes, trees of the same folder are not asked about again. With `yes` it does not ask. Raises DeepcdkError
        unless the answer is yes, or without a terminal.
        """
        if is_large(tree) and tree.folder not in self._confirmed and not self.find_pushed(master, [tree]):
            confirm_upload(tree, tell, yes=yes)
            self._confirmed.add(tree.folder)  # the same program may be packed again with another environment

    def push_agent(self, master: Master) -> str:
        """Push the agent if necessary. Return the master's own copy, a directory relative to the login user's home."""
        return self.push(master, self.agent_tree).tree.masters_directory

    @property
    def agent_directory(self) -> str:
        """Return the directory of the agent that the workers run, on the shared file system. `push_agent` fills it."""
        return f"{self.stack.payloads_root}/{self.agent_tree.name}"

    def supervisor(self, master: Master) -> Supervisor:
        """Return a client for the supervisor on the master. The agent is pushed if necessary."""
        from cluster.runs.supervisor_client import Supervisor  # it imports the runs and all recipes

        return Supervisor(master, self.stack, self.push_agent(master))

    @property
    def deployed_stack(self) -> Stack:
        """Return the stack in any state, even without outputs, for example to destroy it. Raises NoStackError or
        AwsError.
        """
        with doing(f"asking AWS for the stack {self.config.stack_name}"):
            return find_stack(self.aws, self.config.stack_name)

    def nodes(self, master: Master, tell: Callable[[str], None] = warn) -> tuple[Node, ...]:
        """Read the nodes that the master lists as live, including itself. `tell` gets a sentence for each invalid
        entry, which is skipped. Raises RemoteError.
        """
        return worker_group.read_nodes(master, tell)

    @property
    def instance_types(self) -> list[str]:
        """Return the type of each of the cluster's instances, the master's first. Raises as `load_inventory` does."""
        return [i.type for i in self.load_inventory().instances]

    def usd_per_hour(self, wait_s: float) -> float | None:
        """Return the total on-demand price of the cluster's instances, with the master, USD per hour.

        Spot instances count with the on-demand price too. None if a price is still unknown after `wait_s` seconds.
        """
        kinds = self.instance_types
        return total_per_hour(kinds, self.prices.per_hour(kinds, wait_s))
