"""The process of one cloud: API, networks, hosts. Only the supervisor starts it."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from localcloud import host_kinds
from localcloud.cloud_paths import Layout
from localcloud.control_socket import ControlServer
from localcloud.errors import LocalCloudError, UnknownInstanceError, error_text
from localcloud.host_kinds import ENDPOINT
from localcloud.hosts import debian_image, package_index
from localcloud.hosts.debian_image import Distribution
from localcloud.hosts.host import hostname
from localcloud.hosts.metering import Meter
from localcloud.hosts.package_index import PackageIndex
from localcloud.laptop import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from localcloud.network import namespaces
from localcloud.network.addressing import LAPTOP_ADDRESS, OUTSIDE_ADDRESS
from localcloud.network.internet import Internet
from localcloud.reconciler import Reconciler
from localcloud.sessions.service import SESSIONS_PORT, Relay, SessionService
from localcloud.snapshot import ACCOUNT, REGION
from localcloud.start_options import Options

log = logging.getLogger("localcloud.daemon")

_TICK_S: Final = 0.2


class Daemon:
    """Owner of all parts of one cloud. Creating it mounts, creates the networks and starts to serve the API.

    Its process is then in a separate mount namespace.
    """

    def __init__(self, options: Options) -> None:
        from localcloud.api.cloud import Cloud

        self.options = options
        self.layout = Layout(name=options.name)
        self._stopping = False
        self._error = ""
        self._mount_layers()
        self.cloud = Cloud(options.metrics_speed, fault_seed=options.api_faults, vcpus=options.vcpus)
        self.meter = Meter(options.metrics_speed, cpus=options.cpus)
        self.internet = Internet()
        self._packages = self._package_index()
        kind, archive = host_kinds.choose(options, layout=self.layout, packages=self._packages, publish=self._publish)
        reached = {*options.reach, *archive, *self._packages.servers}
        self._outside = self.internet.forward(reached, self._packages.ports)
        self.reconciler = Reconciler(
            cloud=self.cloud,
            layout=self.layout,
            internet=self.internet,
            kind=kind,
            outside=self._outside,
            link_mbit=options.link_mbit,
        )
        relay = Relay(self.internet.listen(SESSIONS_PORT))
        self.cloud.serve_sessions(
            SessionService(relay=relay, hosts=self.reconciler.hosts, denied=self.cloud.gate.denied_actions)
        )
        self.cloud.serve(self.internet.listen())
        self._control = ControlServer(self.layout.control, self._act, self.cloud.announce)

    def run(self) -> None:
        """Write the state file, and serve until `stop` is called. Then remove the hosts and networks.

        Errors of hosts, groups and alarms do not stop the cloud. They are logged, shown in `status`, and retried.
        """
        self._write_state()
        again = True
        while not self._stopping:
            changed = self._wait_for_change()
            again = self._control.answer_all() or again
            if changed or again or self.reconciler.has_dead_host:
                again = not self._reconcile()
            self.reconciler.consoles.publish()
            if self.meter.due:
                self._measure()
        self._control.close()
        self.reconciler.close()
        self.internet.close()
        # The API's threads stop with the process. Waiting for open connections would only take time.

    def stop(self, *_: object) -> None:
        """Make `run` return soon. It is a signal handler that a second signal may interrupt, so it takes no lock."""
        self._stopping = True

    def _wait_for_change(self) -> bool:
        try:
            return self.cloud.wait_for_change(_TICK_S)
        except Exception as error:  # A failing Auto Scaling group must not stop the cloud.
            self._report("cannot replace instances of Auto Scaling groups; trying again", error)
            time.sleep(_TICK_S)
            return True

    def _reconcile(self) -> bool:
        try:
            self.reconciler.reconcile()
        except Exception as error:  # Shown by `status` and retried. The API continues to serve.
            self._report("cannot update hosts and networks to the state of the API; trying again", error)
            return False
        self._error = ""
        return True

    def _measure(self) -> None:
        try:
            hosts = [(host.instance, host.init_pid) for host in self.reconciler.hosts.values()]
            self.cloud.record(self.meter.measure(hosts))
        except Exception as error:  # A failing alarm must not stop the cloud.
            self._report("cannot record metrics or evaluate alarms; trying again in the next period", error)

    def _report(self, what: str, error: Exception) -> None:
        """Show an error in `status`, and log it unless it is the same as the last one. `what` states the failure."""
        text = f"{what}: {error_text(error)}"
        if self._error != text:
            log.exception(what)
        self._error = text

    def _mount_layers(self) -> None:
        """In a separate mount namespace, mount a file system for the hosts' layers.

        With `--efs-size`, also mount a file system of this size for the shared file systems.
        """
        namespaces.leave_mount_namespace()
        layout = self.layout
        layout.layers.mkdir(parents=True)
        layout.efs.mkdir(parents=True)
        namespaces.mount_tmpfs(layout.layers, "mode=755")
        if self.options.efs_size:
            namespaces.mount_tmpfs(layout.efs, f"mode=755,size={self.options.efs_size}")

    def _package_index(self) -> PackageIndex:
        if not self.options.packages:
            return PackageIndex()
        return package_index.resolve(package_index.read_settings(os.environ))

    def _publish(self, distribution: Distribution) -> str:
        """Publish a distribution's image under its publisher's SSM parameter; return the id of its AMI."""
        return self.cloud.publish_image(
            distribution.ami_name,
            owner=debian_image.OWNER,
            root_device=debian_image.ROOT_DEVICE,
            parameter=distribution.parameter,
        )

    def _write_state(self) -> None:
        spaces = {"laptop": self.internet.laptop, "outside": self.internet.namespace}
        document = {
            "name": self.options.name,
            "pid": os.getpid(),
            "supervisor_pid": os.getppid(),
            "endpoint": ENDPOINT,
            "region": REGION,
            "started": time.time(),
            "api_faults": self.options.api_faults,
            "unlimited_volumes": self.reconciler.kind.why_unlimited,
            "packages": {name: self._outside[name] for name in sorted(self._packages.servers)},
            "namespaces": {name: {"path": space.path, "inode": space.inode} for name, space in spaces.items()},
        }
        temporary = self.layout.state.with_suffix(".new")
        temporary.write_text(json.dumps(document, indent=2), encoding="utf-8")
        temporary.rename(self.layout.state)

    def describe(self) -> dict[str, Any]:
        """Return the values that `status --json` prints."""
        hosts = [self._describe_host(id) for id in sorted(self.reconciler.hosts)]
        return {
            "name": self.options.name,
            "pid": os.getpid(),
            "endpoint": ENDPOINT,
            "region": REGION,
            "account": ACCOUNT,
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
            "laptop_address": LAPTOP_ADDRESS,
            "laptop_namespace": self.internet.laptop.path,
            "outside_address": OUTSIDE_ADDRESS,
            "log": str(self.layout.log),
            "state_directory": str(self.layout.run),
            "laptop_home": str(self.layout.laptop),
            "file_systems": str(self.layout.efs),
            "error": self._error,
            "api_faults": self.options.api_faults,
            "unlimited_volumes": self.reconciler.kind.why_unlimited,
            "vpcs": sorted(self.reconciler.routers),
            "hosts": hosts,
        }

    def _describe_host(self, instance_id: str) -> dict[str, Any]:
        host = self.reconciler.hosts[instance_id]
        instance = host.instance
        code = self.reconciler.consoles.result(instance_id) if instance.user_data else 0
        return {
            "instance_id": instance_id,
            "name": dict(instance.tags).get("Name", ""),
            "hostname": hostname(instance.private_ip),
            "private_ip": instance.private_ip,
            "public_ip": instance.public_ip,
            "zone": instance.zone,
            "type": instance.instance_type,
            "spot": instance.spot,
            "pid": host.init_pid,
            "agent": host.agent,
            "network": "cut" if instance_id in self.reconciler.cut else "up",
            "user_data": "running" if code is None else "done" if code == 0 else f"failed ({code})",
            "console": str(self.layout.console(instance_id)),
        }

    def _act(self, request: dict[str, str]) -> dict[str, Any]:
        """Execute a request of the control socket; return the cloud's status. An unknown request only returns it.

        Raises UnknownInstanceError, or LocalCloudError if the request is not possible.
        """
        if request.get("do") in ("cut", "mend"):
            self.reconciler.set_cut(request.get("instance", ""), request["do"] == "cut")
            self._reconcile()
        elif request.get("do") == "interrupt":
            notice_s = float(request.get("notice_s", "120"))
            self._announce(request.get("instance", ""), lambda id: self.cloud.interrupt(id, notice_s))
        elif request.get("do") == "recommend":
            self._announce(request.get("instance", ""), self.cloud.recommend)
        elif request.get("do") == "fail":
            self.cloud.fail(float(request.get("share", "0")), float(request.get("seconds", "0")))
        elif request.get("do") == "limit":
            count = request.get("count", "")
            self.cloud.limit(request.get("type", ""), int(count) if count else None)
        return self.describe()

    def _announce(self, instance_id: str, announce: Callable[[str], None]) -> None:
        """Call `announce`, which gives a spot instance a notice or a recommendation, and update its metadata.

        Raises UnknownInstanceError, or LocalCloudError if the instance cannot be interrupted.
        """
        if instance_id not in self.reconciler.hosts:
            raise UnknownInstanceError(instance_id, sorted(self.reconciler.hosts))
        try:
            announce(instance_id)
        except ValueError as error:
            raise LocalCloudError(str(error)) from None
        self._reconcile()


def main(options: Options) -> None:
    """Run the daemon in this process until SIGTERM, with its log on standard error."""
    os.umask(0o022)
    level = logging.INFO
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    gc.disable()  # moto's modules, 0.8 s instead of 1.3 s, create many objects and no garbage
    daemon = Daemon(options)
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGTERM, daemon.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    daemon.run()
