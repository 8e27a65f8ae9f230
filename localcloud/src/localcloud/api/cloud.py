"""The AWS API of one account and region, in this process."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from moto.backends import get_backend
from moto.core.base_backend import BackendDict
from moto.moto_server.werkzeug_app import MotoRequestHandler
from werkzeug.serving import make_server

from localcloud import snapshot
from localcloud.api import (
    failed_calls,
    fsx,
    iam,
    monkeypatch,
    parameter_checks,
    service_quotas,
    service_rules,
    snapshot_reader,
)
from localcloud.api.autoscaling import group_rules, instance_choice, instance_lifecycle
from localcloud.api.autoscaling import groups as autoscaling_groups
from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.actions.describe import Application as Formation
from localcloud.api.cloudwatch import alarms, metrics, scaling
from localcloud.api.cloudwatch.metrics import Recorder
from localcloud.api.cloudwatch.watcher import Watcher
from localcloud.api.ec2 import (
    addresses,
    call_rules,
    endpoints,
    instances,
    placement_groups,
    public_images,
    security_groups,
    spot_interruption,
)
from localcloud.api.error_replies import Outage, Reply
from localcloud.api.loopback import Loopback
from localcloud.api.permissions.evaluator import Evaluator
from localcloud.api.permissions.gate import Gate
from localcloud.api.server import Application
from localcloud.api.session_manager import Application as Sessions
from localcloud.api_faults.faults import ApiFaults
from localcloud.laptop import ACCESS_KEY_ID
from localcloud.sessions.service import SessionService
from localcloud.snapshot import HostLoad, Snapshot

log = logging.getLogger("localcloud.api")

ACCOUNT: Final = snapshot.ACCOUNT
REGION: Final = snapshot.REGION
ADMINISTRATOR: Final = "administrator"
"""User of the laptop's access key. It is not the root user, because the root user cannot assume a role."""
CORRECTIONS: Final = (
    *(parameter_checks, fsx, iam, service_quotas, service_rules, group_rules, autoscaling_groups, instance_lifecycle),
    *(alarms, metrics, scaling),
    *(addresses, call_rules, endpoints, instances, placement_groups, security_groups),
)
"""The modules that declare corrections of moto."""
_EVERYWHERE: Final = ("budgets", "iam", "s3", "sts")
"""Services whose state moto stores globally instead of by region."""


class Cloud:
    """The state of the embedded cloud and the server of its API. Only one can exist in a process.

    A new Cloud patches and empties moto, and starts the IAM evaluator, which `close` terminates. `metrics_speed`:
    factor that shortens all alarm periods. `fault_seed`: seed of the API faults; None for no faults. `vcpus`: see
    `service_quotas.apply`. Raises WrongMotoError for another version of moto, or EvaluatorError if the IAM evaluator is
    not installed.
    """

    def __init__(self, metrics_speed: float = 1.0, *, fault_seed: int | None = None, vcpus: int | None = None) -> None:
        self._metrics_speed = metrics_speed
        monkeypatch.apply()

        _reset_moto()
        service_quotas.apply(self._backend("service-quotas"), vcpus)
        self._faults = None if fault_seed is None else ApiFaults(fault_seed, self._backend)
        self.lock = threading.RLock()
        self._changes = threading.Condition()
        self._version = 0
        self._seen = 0
        self.evaluator = Evaluator()
        self.evaluator.start()
        self.gate = Gate(self._backend, lambda name: self.formation.id_of(name), self.lock, self.evaluator)
        self._outage = Outage()
        self._application = Application(self.lock, self.announce, self._mark, self.gate.refusal, self._fault_reply)
        self.loopback = Loopback(self._application)
        self.formation = Account(self.loopback, self.gate.assumed_by_cloudformation, self._is_stable)
        self._application.own["cloudformation"] = Formation(self.formation)
        self._application.elsewhere = Formation(Account(self.loopback))
        find: Any = get_backend  # overloaded for a literal name each
        self._application.regions = find("ec2")[ACCOUNT].regions
        self._server: Any = None
        self._create_administrator()

    def _fault_reply(self, environ: dict[str, Any], service: str, action: str) -> Reply | None:
        """Return the error reply if an outage or throttling affects a client's call, otherwise None."""
        found = self._outage.refusal(environ, service, action)
        if found is None and self._faults:
            return self._faults.throttle.refusal(environ, service, action)
        return found

    def _create_administrator(self) -> None:
        """Create the laptop's user with all permissions, and with the access key that the laptop uses."""
        iam = self.loopback.client("iam")
        iam.create_user(UserName=ADMINISTRATOR)
        iam.attach_user_policy(UserName=ADMINISTRATOR, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
        iam.create_access_key(UserName=ADMINISTRATOR)
        (key,) = self._backend("iam").users[ADMINISTRATOR].access_keys
        key.access_key_id = ACCESS_KEY_ID

    def serve(self, listener: socket.socket) -> threading.Thread:
        """Serve the API on a listening socket in the background, with a thread per connection.

        Return the (daemon) thread that accepts connections. The socket may belong to another network namespace.
        `close()` stops the server.
        """

        class QuietHandler(MotoRequestHandler):
            """Request handler that keeps connections open and leaves logging to the application."""

            protocol_version = "HTTP/1.1"

            def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
                del code, size

        host, port = listener.getsockname()[:2]
        self._server = make_server(
            host, port, self._application, threaded=True, request_handler=QuietHandler, fd=listener.fileno()
        )
        # Open connections must not prevent the process from exiting.
        self._server.daemon_threads = True
        thread = threading.Thread(target=self._server.serve_forever, name="aws-api", daemon=True)
        thread.start()
        return thread

    def serve_sessions(self, service: SessionService) -> None:
        """Answer Session Manager's requests with `service` from now on. Before this call, they fail."""
        self._application.own["ssm"] = Sessions(self._application.moto, self.lock, service)

    def close(self) -> None:
        """Stop the server and the policy evaluator. Calls that need a new policy decision are denied from then on."""
        self.evaluator.close()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def announce(self) -> None:
        """Record that the cloud has changed, and wake `wait_for_change`."""
        with self._changes:
            self._version += 1
            self._changes.notify_all()

    def wait_for_change(self, timeout_s: float) -> bool:
        """Wait until the cloud has changed since the last call; return False after `timeout_s` without a change.

        Before it returns, it applies what is due: Auto Scaling groups replace instances, interrupted spot instances are
        terminated, and delayed states change. These changes count too.
        """
        deadline = time.monotonic() + timeout_s
        with self._changes:
            while self._version == self._seen:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changes.wait(left)
            changed = self._version != self._seen
            self._seen = self._version
        with self.lock:
            settled = self._settle()
            ended = spot_interruption.terminate_due(self._backend("ec2"))
            return autoscaling_groups.maintain(self._backend("autoscaling")) or bool(ended) or settled or changed

    def _is_stable(self, resource_type: str, physical_id: str) -> bool:
        """Return whether the next resources of a stack can use a new resource already. True without API faults.

        With API faults, first applies those that are due.
        """
        if self._faults is None:
            return True
        with self.lock:
            if self._faults.settle():
                self.announce()
            return self._faults.is_stable(resource_type, physical_id)

    def _settle(self) -> bool:
        """Apply the API faults that are due (see `ApiFaults.settle`); return whether there were any."""
        return self._faults.settle() if self._faults else False

    def publish_image(self, name: str, *, owner: str, root_device: str, parameter: str) -> str:
        """Add a public image and the public SSM parameter with its id; return the image's id.

        `owner`: account id of the publisher. `root_device`: such as /dev/xvda. `parameter`: name of the SSM parameter.
        """
        with self.lock:
            return public_images.publish(
                self._backend("ec2"),
                self._backend("ssm"),
                name=name,
                owner=owner,
                root_device=root_device,
                parameter=parameter,
            )

    def interrupt(self, instance_id: str, notice_s: float) -> None:
        """Give a spot instance an interruption notice, without waiting. A second notice changes nothing.

        `wait_for_change` terminates the instance after `notice_s` seconds. Raises NotInterruptibleError for an
        on-demand instance, or one that is not pending or running.
        """
        with self.lock:
            spot_interruption.give_notice(self._backend("ec2"), instance_id, notice_s)
        self.announce()

    def recommend(self, instance_id: str) -> None:
        """Send a rebalance recommendation to a spot instance.

        Raises NotInterruptibleError for an on-demand instance, or one that is not pending or running.
        """
        with self.lock:
            spot_interruption.recommend(self._backend("ec2"), instance_id)
        self.announce()

    def fail(self, share: float, seconds: float) -> None:
        """Make a share (0 to 1) of the clients' API calls fail with status 503, for this number of seconds from now.

        It replaces the share and time of the previous call. A share of 0 ends the failures.
        """
        self._outage.begin(share, seconds)

    def limit(self, instance_type: str, count: int | None) -> None:
        """Limit the capacity of a type to this number of instances, including running ones. None removes the limit."""
        with self.lock:
            limits = instance_choice.limits(self._backend("ec2"))
            if count is None:
                limits.pop(instance_type, None)
            else:
                limits[instance_type] = count
        self.announce()

    def snapshot(self) -> Snapshot:
        """Return all networks, running instances and file systems that should exist now, as `observe` does.

        API faults that are due are applied first.
        """
        with self.lock:
            self._settle()
            return snapshot_reader.observe(
                ec2=self._backend("ec2"), efs=self._backend("efs"), fsx=self._backend("fsx"), iam=self._backend("iam")
            )

    def set_console_output(self, instance_id: str, text: str) -> None:
        """Set the text that GetConsoleOutput returns for an instance, with API faults only after a delay."""
        with self.lock:
            late_s = self._faults.delays.console_delay_s(instance_id) if self._faults else 0.0
            instances.CONSOLE.write(instance_id, text, late_s)

    def role_credentials(self, role_name: str, session_name: str) -> dict[str, Any]:
        """Return new credentials of a role for an instance, valid for 6 h.

        The keys are AccessKeyId, SecretAccessKey, Token and Expiration (ISO 8601, UTC). `session_name` is the
        instance's id, as on AWS. Raises botocore's ClientError for an unknown role (NoSuchEntity), or a role that does
        not trust EC2 (AccessDenied).
        """
        arn = self.loopback.client("iam").get_role(RoleName=role_name)["Role"]["Arn"]
        given = self.loopback.client("sts").assume_role(
            RoleArn=arn, RoleSessionName=session_name, DurationSeconds=21600
        )
        credentials = given["Credentials"]
        return {
            "AccessKeyId": credentials["AccessKeyId"],
            "SecretAccessKey": credentials["SecretAccessKey"],
            "Token": credentials["SessionToken"],
            "Expiration": credentials["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def instance_failed(self, instance_id: str, reason: str, *, has_run: bool = False) -> None:
        """Report that an instance's host could not be started or has died. The instance is terminated.

        Its group replaces it. After three consecutive hosts that could not be started, the group launches no more. With
        `has_run`, the host failed after its boot and does not count.
        """
        with self.lock:
            ec2 = self._backend("ec2")
            instance = ec2.get_instance(instance_id)
            log.warning("host of %s failed: %s", instance_id, reason)
            autoscaling_groups.count_failure(instance, has_run=has_run)
            ec2.terminate_instances([instance_id])
            instance.state_reason.code = "Server.InternalError"
            instance.state_reason.message = f"Server.InternalError: {reason}"
        self.announce()

    def record(self, loads: Iterable[HostLoad]) -> None:
        """Record the metrics of hosts, groups and queues for the last minute, and evaluate all alarms.

        Call it once a minute, or `metrics_speed` times as often. Alarm periods are shorter by the same factor.
        """
        with self.lock:
            recorder = Recorder(self._backend("cloudwatch"))
            recorder.hosts(loads)
            recorder.groups(self._backend("autoscaling"))
            recorder.queues(self._backend("sqs"))
            watcher = Watcher(self._backend, self._metrics_speed)
            if watcher.evaluate():
                self.announce()

    def _mark(self) -> Callable[[], None]:
        """Return a function that undoes what a call has created since `_mark` (see `failed_calls.mark`)."""
        return failed_calls.mark(self._backend("ec2"), self._backend("efs"))

    def _backend(self, service: str) -> Any:
        """Return moto's backend of a service, for the account and region."""
        find: Any = get_backend  # overloaded for a literal name each
        return find(service)[ACCOUNT]["aws" if service in _EVERYWHERE else REGION]


def _reset_moto() -> None:
    """Empty moto's backends, which belong to the process and not to a Cloud."""
    registry: Any = BackendDict
    for services in list(registry._instances):
        for regions in list(services.values()):
            regions.reset()
