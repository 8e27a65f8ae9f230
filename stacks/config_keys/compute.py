"""Keys of the nodes: their number, types, images and start."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import Final

from stacks.config_keys.value_checks import (
    ConfigError,
    require_choice,
    require_match,
    require_mount_point,
    require_range,
)

# The strategies for Auto Scaling groups with a list of instance types.
SPOT_ALLOCATIONS: Final = (
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "price-capacity-optimized",
    "lowest-price",
)
ON_DEMAND_ALLOCATIONS: Final = ("prioritized", "lowest-price")

# The IOPS and throughput of every gp3 volume at no extra cost.
BASE_IOPS: Final = 3000
BASE_MIB_S: Final = 125
# gp3's upper limits as of 2026, according to the EC2 API (CreateVolume): size, IOPS, throughput.
LARGEST_GIB: Final = 65536
MAX_IOPS: Final = 80000
MAX_MIB_S: Final = 2000
# Nodes boot, install packages and mount the file system before boot_commands, which are stopped two minutes early.
_MIN_READY_WITH_COMMANDS: Final = 5
_BOOTS_SLOWLY: Final = re.compile(r"p[4-9]|.*\.metal")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeKeys:
    """Keys of the master and the workers."""

    key_name: str = "deepcdk"
    """EC2 key pair for logging in. If it is missing, `fab up` imports the public half of your key."""
    workers: int = 2
    """Number of workers at deployment. `fab train --nodes` adds more later."""
    max_workers: int = 16
    """Maximum number of workers in the group."""
    worker_instance_type: str = "c5.2xlarge"
    """EC2 instance type of the workers."""
    worker_alternatives: tuple[str, ...] = ()
    """More instance types for the workers, in order of preference, if AWS has no capacity for the first type."""
    master_instance_type: str = "t3.medium"
    """EC2 instance type of the master, which controls runs and does not train."""
    allow_unknown_instance_types: bool = False
    """Accept types that are not in the table of instance types, without the checks that need the table."""
    placement_group: bool = False
    """Place the workers in one cluster placement group: a faster network between them, but less capacity."""
    spot: bool = False
    """Launch the workers as spot instances. AWS may reclaim a spot instance at any time."""
    on_demand_workers: int = 0
    """With `spot`: number of workers that are on-demand instances. These are the first workers."""
    spot_allocation: str = "capacity-optimized"
    """How AWS chooses spot pools. By default, it takes the pool least likely to be interrupted, at any price."""
    capacity_rebalance: bool = False
    """With `spot`: when AWS recommends replacing a worker, at the latest with its interruption notice, launch another
    worker and then terminate the first. Otherwise AWS reclaims the worker before it is replaced."""
    on_demand_allocation: str = "prioritized"
    """How AWS chooses among the types of on-demand workers: `prioritized`, in the given order, or `lowest-price`."""
    capacity_reservation: str = ""
    """Launch workers only in this reservation: `cr-...`, or the ARN of a resource group of reservations."""
    capacity_block: bool = False
    """Whether `capacity_reservation` is a capacity block for machine learning, bought in advance by the day."""
    efa: bool = False
    """Attach all EFA devices of the type to each worker, and use one cluster placement group. Not yet run on AWS."""
    worker_image_parameter: str = ""
    """SSM parameter with the workers' AMI. Unlike an AMI id, it does not become outdated (deepcfn's most frequent
    complaint). Empty: Amazon Linux 2023 for the type's processor, with NVIDIA's driver if the type has GPUs."""
    master_image_parameter: str = ""
    """SSM parameter with the master's AMI; empty: as for the workers."""
    worker_image_id: str = ""
    """The workers' AMI by id (`ami-...`) instead of a parameter. It requires a root device and a login user."""
    master_image_id: str = ""
    """The master's AMI by id instead of a parameter. It requires a root device and a login user."""
    worker_root_device: str = ""
    """Device of the root volume in the workers' AMI, such as /dev/xvda; empty: the device that the publisher uses."""
    master_root_device: str = ""
    """Device of the root volume in the master's AMI; empty: the device that the publisher uses."""
    login_user: str = ""
    """User in the AMIs who logs in and owns the runs; empty: the user that the publisher has set up."""
    boot_commands: tuple[str, ...] = ()
    """Shell commands that each worker runs as root at its first boot, before it joins, such as `dnf install -y
    mesa-libGL`. If a command fails, the node fails. Not for secrets: anyone who may read user data sees them."""
    worker_volume_gib: int = 100
    """Root volume of a worker, GiB, gp3."""
    master_volume_gib: int = 50
    """Root volume of the master, GiB, gp3."""
    worker_volume_iops: int = BASE_IOPS
    """IOPS of a worker's root volume. More than 3,000 cost extra."""
    worker_volume_mib_s: int = BASE_MIB_S
    """Throughput of a worker's root volume, MiB/s. More than 125 cost extra."""
    master_volume_iops: int = BASE_IOPS
    """IOPS of the master's root volume."""
    master_volume_mib_s: int = BASE_MIB_S
    """Throughput of the master's root volume, MiB/s."""
    scratch_mount: str = ""
    """Mount point for a worker's instance store (NVMe disks, striped); empty: the disks stay as in the AMI."""
    termination_notice_s: int = 0
    """Seconds for a last checkpoint when the group terminates a worker (30 to 7,200); 0: none."""
    ready_timeout_min: int = 0
    """Minutes that CloudFormation waits for the nodes to report success; 0: 15, or 30 for types that boot slowly."""
    capacity_policy: str = "all"
    """What to do if AWS cannot launch all workers, at a deployment or before a run: `all` fails, `at-least N` continues
    with N or more workers (deepcfn's degraded mode)."""
    update_policy: str = "keep"
    """What to do with running nodes if a deployment changes the launch template: `keep` leaves them unchanged;
    `rolling` replaces them, `update_batch` at a time."""
    update_batch: int = 4
    """With `rolling`: number of workers to replace at a time. Each batch must report success before the next starts."""

    def check_compute(self) -> None:
        """Raise ConfigError for the first invalid value of these keys. Booleans have no rule here."""
        name = r"[!-~](?:[ -~]{0,253}[!-~])?"
        require_match(self, "key_name", name, "1 to 255 printable ASCII characters, without leading or trailing spaces")
        for key in ("worker_instance_type", "master_instance_type", "worker_alternatives"):
            require_match(self, key, r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "an EC2 instance type such as c5.2xlarge")
        for key in ("worker_image_parameter", "master_image_parameter"):
            name = r"(?=.{0,1011}$)(?:(?:/[\w.-]+){1,15})?"
            require_match(self, key, name, "the name of an SSM parameter with at most 15 levels, such as /lab/image")
            require_match(
                self,
                key.replace("parameter", "id"),
                r"(?:ami-[0-9a-f]{8,17})?",
                "ami- and hexadecimal digits, or empty",
            )
        for role in ("worker", "master"):
            require_match(
                self, f"{role}_root_device", r"(?:/dev/[a-z0-9]{2,16})?", "a device such as /dev/xvda, or empty"
            )
            require_range(self, f"{role}_volume_gib", 8, LARGEST_GIB)
            require_range(self, f"{role}_volume_iops", BASE_IOPS, MAX_IOPS)
            require_range(self, f"{role}_volume_mib_s", BASE_MIB_S, MAX_MIB_S)
        require_match(self, "login_user", r"(?:[a-z_][a-z0-9_-]{0,31})?", "a Linux user name, or empty")
        self._check_boot_commands()
        require_range(self, "max_workers", 1, 1000)
        for key in ("workers", "on_demand_workers"):
            require_range(self, key, 0, self.max_workers, why="the value of max_workers")
        require_choice(self, "spot_allocation", *SPOT_ALLOCATIONS)
        require_choice(self, "on_demand_allocation", *ON_DEMAND_ALLOCATIONS)
        require_match(
            self,
            "capacity_reservation",
            r"(?:cr-[0-9a-f]{8,17}|arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[\w.-]+)?",
            "cr- and hexadecimal digits, the ARN of a resource group, or empty",
        )
        if self.scratch_mount:
            require_mount_point(self, "scratch_mount")
        if self.termination_notice_s:
            require_range(self, "termination_notice_s", 30, 7200)
        require_range(self, "ready_timeout_min", 0, 720)
        require_match(
            self, "capacity_policy", r"all|at-least [1-9][0-9]{0,3}", "all, or at-least and a number: at-least 12"
        )
        require_choice(self, "update_policy", "keep", "rolling")
        require_range(self, "update_batch", 1, 100)

    def _check_boot_commands(self) -> None:
        for command in self.boot_commands:
            if not command.strip() or not command.isprintable():
                raise ConfigError("boot_commands", command, "must be one line of printable characters")
            try:
                shlex.split(command, comments=True)
            except ValueError as error:
                raise ConfigError("boot_commands", command, f"is not a valid shell command: {error}") from None
        if self.boot_commands and 0 < self.ready_timeout_min < _MIN_READY_WITH_COMMANDS:
            raise ConfigError(
                "ready_timeout_min",
                self.ready_timeout_min,
                f"must be {_MIN_READY_WITH_COMMANDS} or more with boot_commands: this time includes the boot, and "
                "boot commands are stopped two minutes before it is over",
            )

    @property
    def clustered(self) -> bool:
        """Return whether the workers are in one cluster placement group, which EFA implies.

        False with a capacity block, which needs no group, because AWS places its instances near each other.
        """
        return (self.placement_group or self.efa) and not self.capacity_block

    @property
    def ready_min(self) -> int:
        """Return the minutes that nodes have to report success: as configured, else 30 if a type boots slowly, else 15.

        ParallelCluster allows 30 for every node (aws/aws-parallelcluster #3753, and 35 since #6768). Bare metal of the
        fifth and sixth generations takes 706 to 820 s to boot (testing-farm/infrastructure !1526). p4, p5 and p6 must
        initialize up to 2 TiB of memory. Console output on Xen is late (stacks/cross_key_checks/compute.py).
        """
        from stacks.instance_types import is_xen  # Not at the top: most users of the configuration need no table.

        types = (*self.worker_types, self.master_instance_type)
        slow = any(_BOOTS_SLOWLY.match(name) or is_xen(name) for name in types)
        return self.ready_timeout_min or (30 if slow else 15)

    @property
    def least_workers(self) -> int:
        """Return the minimum number of workers that `capacity_policy` requires; 0: all of them."""
        return 0 if self.capacity_policy == "all" else int(self.capacity_policy.split()[1])

    @property
    def worker_types(self) -> tuple[str, ...]:
        """Return all instance types that a worker may have, in order of preference."""
        return (self.worker_instance_type, *self.worker_alternatives)
