"""The instance metadata service, version 2: its answers as a pure function, and its HTTP server."""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from localcloud.hosts.host import DOMAIN, hostname
from localcloud.network.addressing import mac
from localcloud.snapshot import ACCOUNT, REGION, Instance, identity_signature

MAX_TOKEN_TTL_S: Final = 21600
Credentials = Callable[[str, str], dict[str, Any]]
"""Takes a role's name and an instance's id; returns AccessKeyId, SecretAccessKey, Token and Expiration."""

# AWS has several signatures of the document; only one is provided here.
_DYNAMIC: Final = {"dynamic": "instance-identity/", "dynamic/instance-identity": "document\nsignature"}


def answer(instance: Instance, path: str, credentials: Credentials) -> bytes | None:
    """Return an instance's answer for `path`, such as `meta-data/instance-id`, or None if the path does not exist.

    Without user data, the path `user-data` does not exist.
    """
    path = path.strip("/")
    if path == "user-data":
        return instance.user_data or None
    if path in _DYNAMIC:
        return _DYNAMIC[path].encode()
    if path.startswith("dynamic/instance-identity/"):
        document = json.dumps(_identity(instance), indent=2).encode()
        return {"document": document, "signature": identity_signature(document).encode()}.get(path.split("/", 2)[2])
    if not (path == "meta-data" or path.startswith("meta-data/")):
        return None
    key = path.removeprefix("meta-data").strip("/")
    if instance.role_name and key == f"iam/security-credentials/{instance.role_name}":
        return json.dumps(_credentials(credentials(instance.role_name, instance.id)), indent=2).encode()
    tree = _tree(instance)
    if key in tree:
        return tree[key].encode()
    return _listing(tree, key, instance)


def _tree(instance: Instance) -> dict[str, str]:
    """Return an instance's metadata by path, except its credentials."""
    name = f"{hostname(instance.private_ip)}.{DOMAIN}"
    tree = {
        "ami-id": instance.image_id,
        "hostname": name,
        "instance-id": instance.id,
        "instance-life-cycle": "spot" if instance.spot else "on-demand",
        "instance-type": instance.instance_type,
        "local-hostname": name,
        "local-ipv4": instance.private_ip,
        "mac": mac(instance.private_ip),
        "placement/availability-zone": instance.zone,
        "placement/region": REGION,
        "security-groups": "\n".join(instance.group_ids),
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }
    card = f"network/interfaces/macs/{tree['mac']}"
    tree |= {
        f"{card}/device-number": "0",
        f"{card}/local-hostname": name,
        f"{card}/local-ipv4s": instance.private_ip,
        f"{card}/mac": tree["mac"],
        f"{card}/security-group-ids": "\n".join(instance.group_ids),
        f"{card}/subnet-id": instance.subnet_id,
        f"{card}/vpc-id": instance.vpc_id,
    }
    if instance.public_ip:
        tree["public-ipv4"] = instance.public_ip
    if instance.public_key:
        tree["public-keys/0/openssh-key"] = instance.public_key.strip()
    if instance.profile_arn:
        info = {"Code": "Success", "LastUpdated": _now(), "InstanceProfileArn": instance.profile_arn}
        tree["iam/info"] = json.dumps(info, indent=2)
    if instance.target_state:
        tree["autoscaling/target-lifecycle-state"] = instance.target_state
    if instance.rebalance_at:
        tree["events/recommendations/rebalance"] = json.dumps({"noticeTime": instance.rebalance_at})
    if instance.ends_at:
        tree["spot/instance-action"] = json.dumps({"action": "terminate", "time": instance.ends_at})
        tree["spot/termination-time"] = instance.ends_at
    for key, value in instance.tags:
        tree[f"tags/instance/{key}"] = value
    return tree


def _listing(tree: dict[str, str], key: str, instance: Instance) -> bytes | None:
    """Return the list of names below a path, or None if there are none."""
    if key == "public-keys" and instance.public_key:
        return f"0={instance.key_name}".encode()
    paths = [*tree, f"iam/security-credentials/{instance.role_name}"] if instance.role_name else list(tree)
    prefix = f"{key}/" if key else ""
    below = [path.removeprefix(prefix) for path in paths if path.startswith(prefix)]
    if not below:
        return None
    names = {name if "/" not in name else name.partition("/")[0] + "/" for name in below}
    return "\n".join(sorted(names)).encode()


def _credentials(given: dict[str, Any]) -> dict[str, str]:
    return {
        "Code": "Success",
        "LastUpdated": _now(),
        "Type": "AWS-HMAC",
        **{key: str(given[key]) for key in ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")},
    }


def _identity(instance: Instance) -> dict[str, str]:
    return {
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": instance.zone,
        "imageId": instance.image_id,
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "privateIp": instance.private_ip,
        "region": REGION,
        "version": "2017-09-30",
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Tokens:
    """Issuer of session tokens, each for one host and a limited time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def issue(self, address: str, ttl_s: int) -> str:
        """Return a new token for the host at the private IP address `address`, valid for `ttl_s` seconds."""
        token = secrets.token_urlsafe(42)
        with self._lock:
            now = self._clock()
            self._ends = {key: end for key, end in self._ends.items() if end > now}
            self._ends[address, token] = now + ttl_s
        return token

    def valid(self, address: str, token: str) -> bool:
        """Return whether the token was issued to this host and has not expired."""
        with self._lock:
            return self._ends.get((address, token), 0.0) > self._clock()


class MetadataServer(ThreadingHTTPServer):
    """Server for the hosts of one VPC. It identifies hosts by address, because the router drops false addresses.

    It starts when it is created. `find` returns the instance with an address, or None.
    """

    daemon_threads = True

    def __init__(
        self,
        listener: socket.socket,
        *,
        find: Callable[[str], Instance | None],
        credentials: Credentials,
    ) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.find, self.credentials = find, credentials
        self.tokens = Tokens()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.2}, name="metadata", daemon=True).start()

    def close(self) -> None:
        """Stop the server and close its listening socket."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "EC2ws"
    timeout = 10
    server: MetadataServer

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because hosts poll."""

    def do_PUT(self) -> None:
        if self.path.rstrip("/") != "/latest/api/token":
            return self._send(404)
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= MAX_TOKEN_TTL_S:
            return self._send(400)
        token = self.server.tokens.issue(self.client_address[0], int(ttl))
        return self._send(200, token.encode(), {"X-aws-ec2-metadata-token-ttl-seconds": ttl})

    def do_GET(self) -> None:
        address = self.client_address[0]
        instance = self.server.find(address)
        if instance is None:
            return self._send(404)
        token = self.headers.get("X-aws-ec2-metadata-token")
        if token is None and instance.metadata_tokens_required:
            return self._send(401)
        if token is not None and not self.server.tokens.valid(address, token):
            return self._send(401)
        version, _, path = self.path.partition("?")[0].lstrip("/").partition("/")
        if version != "latest" and not version[:4].isdigit():
            return self._send(404)
        server = self.server
        body = answer(instance, path, server.credentials)
        return self._send(404) if body is None else self._send(200, body)

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)
