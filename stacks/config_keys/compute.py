"""Keys of the nodes: how many, of which type, from which image, and how they start."""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import Final

from stacks.config_keys.rules import ConfigError, is_mount, matches, one_of, within

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
MOST_IOPS: Final = 80000
MOST_MIB_S: Final = 2000
# Nodes boot, install packages and mount the file system before boot_commands, which are stopped two minutes early.
_MIN_READY_WITH_COMMANDS: Final = 5
_BOOTS_SLOWLY: Final = re.compile(r"p[4-9]|.*\.metal")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeKeys:
    """Keys of the master and the workers."""

    key_name: str = "deepcdk"
    """EC2 key pair for logging in; where it is missing, `fab up` imports the public half of the user's key."""
    workers: int = 2
    """Workers at deployment; `fab train --nodes` grows the group later."""
    max_workers: int = 16
    """Most workers that the group ever has."""
    worker_instance_type: str = "c5.2xlarge"
    """EC2 instance type of the workers."""
    worker_alternatives: tuple[str, ...] = ()
    """Further types for the workers where AWS has no room for the first one, in order of preference."""
    master_instance_type: str = "t3.medium"
    """EC2 instance type of the master, which drives runs and does not train."""
    allow_unknown_instance_types: bool = False
    """Accept types that are not in the table of instance types, without the checks that need the table."""
    placement_group: bool = False
    """Place the workers in one cluster placement group: a faster network between them, but less capacity."""
    spot: bool = False
    """Launch the workers as spot instances, from the pools with most capacity. AWS may take one back at any time."""
    on_demand_workers: int = 0
    """With `spot`: number of workers, the first ones, that are on-demand instances."""
    spot_allocation: str = "capacity-optimized"
    """How AWS chooses spot pools; by default the one least likely to be interrupted, at any price."""
    capacity_rebalance: bool = False
    """With `spot`: AWS launches another worker when it recommends that one be replaced, with the notice of its end at
    the latest, and then ends that one, in place of waiting until it has taken it back."""
    on_demand_allocation: str = "prioritized"
    """How AWS chooses among the types of on-demand workers: `prioritized`, in the order given, or `lowest-price`."""
    capacity_reservation: str = ""
    """Launch workers only in this reservation: `cr-...`, or the ARN of a resource group of reservations."""
    capacity_block: bool = False
    """`capacity_reservation` is a capacity block for machine learning, which is bought in advance by the day."""
    efa: bool = False
    """Give the workers all EFA devices of their type, and one cluster placement group. Not run on AWS yet."""
    worker_image_parameter: str = ""
    """SSM parameter that names the workers' AMI: ids in templates go stale (deepcfn's most frequent complaint).
    Empty: Amazon Linux 2023 for the type's processor, with NVIDIA's driver where the type has GPUs."""
    master_image_parameter: str = ""
    """SSM parameter that names the master's AMI; empty as above."""
    worker_image_id: str = ""
    """The workers' AMI by id (`ami-...`), in place of a parameter; root device and login user must then be given."""
    master_image_id: str = ""
    """The master's AMI by id, in place of a parameter."""
    worker_root_device: str = ""
    """Device of the root volume in the workers' AMI, such as /dev/xvda; empty: the one of the AMI's publisher."""
    master_root_device: str = ""
    """Device of the root volume in the master's AMI; empty as above."""
    login_user: str = ""
    """User of the AMIs who logs in and owns the runs; empty: the one that the AMIs' publisher made."""
    boot_commands: tuple[str, ...] = ()
    """Shell commands that each worker runs as root at its first boot, before it joins, such as `dnf install -y
    mesa-libGL`. A command that fails fails the node. Not for secrets: whoever may read user data sees them."""
    worker_volume_gib: int = 100
    """Root volume of a worker, GiB, gp3."""
    master_volume_gib: int = 50
    """Root volume of the master, GiB, gp3."""
    worker_volume_iops: int = BASE_IOPS
    """IOPS of a worker's root volume; what is above 3,000 costs."""
    worker_volume_mib_s: int = BASE_MIB_S
    """Throughput of a worker's root volume, MiB/s; what is above 125 costs."""
    master_volume_iops: int = BASE_IOPS
    """IOPS of the master's root volume."""
    master_volume_mib_s: int = BASE_MIB_S
    """Throughput of the master's root volume, MiB/s."""
    scratch_mount: str = ""
    """Directory where a worker mounts the NVMe disks of its instance store, striped; empty: as the AMI leaves them."""
    termination_notice_s: int = 0
    """Seconds that a worker has for a last checkpoint when its group ends it (30 to 7,200); 0: none."""
    ready_timeout_min: int = 0
    """Minutes that CloudFormation waits for the nodes to report success; 0: 15, or 30 with types that boot slowly."""
    capacity_policy: str = "all"
    """What happens when AWS cannot launch all workers, at a deployment or before a run: `all` fails, `at-least N` goes
    on with N or more (deepcfn's degraded mode)."""
    update_policy: str = "keep"
    """What a deployment that changes the launch template does with running nodes: `keep` leaves them as they are;
    `rolling` replaces them, `update_batch` at a time."""
    update_batch: int = 4
    """With `rolling`: workers to replace at a time; each batch must report success before the next."""

    def check_compute(self) -> None:
        """Raise ConfigError for the first invalid value."""
        name = r"[!-~](?:[ -~]{0,253}[!-~])?"
        matches(self, "key_name", name, "1 to 255 printable ASCII characters, without blanks at the ends")
        for key in ("worker_instance_type", "master_instance_type", "worker_alternatives"):
            matches(self, key, r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "an EC2 instance type such as c5.2xlarge")
        for key in ("worker_image_parameter", "master_image_parameter"):
            name = r"(?=.{0,1011}$)(?:(?:/[\w.-]+){1,15})?"
            matches(self, key, name, "the name of an SSM parameter, such as /lab/image: / and a name, 15 times at most")
            matches(
                self,
                key.replace("parameter", "id"),
                r"(?:ami-[0-9a-f]{8,17})?",
                "ami- and hexadecimal digits, or empty",
            )
        for role in ("worker", "master"):
            matches(self, f"{role}_root_device", r"(?:/dev/[a-z0-9]{2,16})?", "a device such as /dev/xvda, or empty")
            within(self, f"{role}_volume_gib", 8, LARGEST_GIB)
            within(self, f"{role}_volume_iops", BASE_IOPS, MOST_IOPS)
            within(self, f"{role}_volume_mib_s", BASE_MIB_S, MOST_MIB_S)
        matches(self, "login_user", r"(?:[a-z_][a-z0-9_-]{0,31})?", "a Linux user name, or empty")
        self._check_boot_commands()
        within(self, "max_workers", 1, 1000)
        within(self, "workers", 0, self.max_workers)
        within(self, "on_demand_workers", 0, self.max_workers)
        one_of(self, "spot_allocation", *SPOT_ALLOCATIONS)
        one_of(self, "on_demand_allocation", *ON_DEMAND_ALLOCATIONS)
        matches(
            self,
            "capacity_reservation",
            r"(?:cr-[0-9a-f]{8,17}|arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[\w.-]+)?",
            "cr- and hexadecimal digits, the ARN of a resource group, or empty",
        )
        if self.scratch_mount:
            is_mount(self, "scratch_mount")
        if self.termination_notice_s:
            within(self, "termination_notice_s", 30, 7200)
        within(self, "ready_timeout_min", 0, 720)
        matches(self, "capacity_policy", r"all|at-least [1-9][0-9]{0,3}", "all, or at-least and a number: at-least 12")
        one_of(self, "update_policy", "keep", "rolling")
        within(self, "update_batch", 1, 100)

    def _check_boot_commands(self) -> None:
        for command in self.boot_commands:
            if not command.strip() or not command.isprintable():
                raise ConfigError("boot_commands", command, "must be commands of one printable line each")
            try:
                shlex.split(command, comments=True)
            except ValueError as error:
                raise ConfigError("boot_commands", command, f"is not a shell command: {error}") from None
        if self.boot_commands and 0 < self.ready_timeout_min < _MIN_READY_WITH_COMMANDS:
            raise ConfigError(
                "ready_timeout_min",
                self.ready_timeout_min,
                f"must be {_MIN_READY_WITH_COMMANDS} or more with boot_commands: the boot takes part of this time, and "
                "the commands are stopped two minutes before its end",
            )

    @property
    def clustered(self) -> bool:
        """Return whether the workers are in one cluster placement group, which EFA implies.

        A capacity block does not need one, because AWS places its instances near each other.
        """
        return (self.placement_group or self.efa) and not self.capacity_block

    @property
    def ready_min(self) -> int:
        """Return the time, in minutes, that nodes have to report success.

        ParallelCluster allows 30 for every node (aws/aws-parallelcluster #3753, and 35 since #6768). Bare metal of the
        fifth and sixth generations takes 706 to 820 s to boot (testing-farm/infrastructure !1526). p4, p5 and p6 must
        initialize up to 2 TiB of memory. Console output on Xen is late (stacks/validation/compute.py).
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
