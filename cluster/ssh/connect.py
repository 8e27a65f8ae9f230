"""Connect to the master over SSH. A host is trusted only if it has the host keys from the master's console."""

from __future__ import annotations

import datetime
import functools
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.errors import describe
from cluster.aws.inventory import Instance
from cluster.deploy import key_pair
from cluster.errors import AwsError, ConnectionFailedError
from cluster.ssh import session_manager, user_keys, user_settings
from cluster.ssh.host_keys import HostKey, KeptHostKeys
from cluster.ssh.master import Master
from cluster.ssh.session_manager import Tunnel
from cluster.ssh.user_keys import UserKey
from cluster.ssh.user_settings import UserSettings
from stacks.config import SSH_PORT
from stacks.config_keys.network import SESSION_MANAGER, SSH_PORT_OPEN

if TYPE_CHECKING:
    import paramiko

    from cluster.aws.client import Aws

CONNECT_TIMEOUT_S: Final = 10
AGENT_TIMEOUT_S: Final = 60
_BOOTING: Final = "the master may still be booting: repeat in a minute"


def connect(
    aws: Aws, master: Instance, user: str, kept: KeptHostKeys, key: str = "", ssh_access: str = SSH_PORT_OPEN
) -> Master:
    """Connect to the master over Session Manager, through the user's proxy, or directly. The caller closes the result.

    The master's host keys must be those in its console, or those `kept` from an earlier connection. `key` is a private
    key file; "" for all of the user's keys. `ssh_access` is the cluster's setting. If the connection breaks, the next
    command opens a new one to a host with the same keys. Waits for a console that shows no keys yet, and may ask for a
    key's passphrase on the terminal. Raises ConnectionFailedError or AwsError.
    """
    tunnelled = ssh_access == SESSION_MANAGER
    if tunnelled:
        session_manager.check_programs()
    address = master.id if tunnelled else master.public_ip
    settings = user_settings.read(address, user)
    # Reading the console and connecting in parallel would save a round trip. But no byte is sent before the keys are
    # known.
    host_keys = kept.identify(aws, master.id)
    offered = order(aws, master.key_name, user_keys.find(settings, Path.home(), key))
    open_it = functools.partial(open_connection, address, user, host_keys, offered, key_name=master.key_name)

    def open_one() -> Master:
        """Open a connection over Session Manager, through the user's proxy, or directly."""
        if tunnelled:
            command, environment = session_manager.command(master.id, aws.region), session_manager.environment(aws)
            timeout_s = session_manager.register_timeout_s(master.launched, datetime.datetime.now(datetime.UTC))
            return session_manager.open_tunnel(
                lambda through: open_it(through=through), command, environment, timeout_s=timeout_s
            )
        if settings.proxy:
            return open_proxied(lambda through: open_it(through=through), settings)
        return open_it()

    opened = open_one().reopen_with(open_one)
    opened.settings = settings
    return opened


def order(aws: Aws, key_name: str, keys: Sequence[UserKey]) -> tuple[UserKey, ...]:
    """Return the usable keys, starting with those of the EC2 key pair. A server accepts only six attempts by default.

    Asks EC2 for the key pair if there are several keys. If it is not known or cannot be read, the order stays.
    """
    usable = tuple(key for key in keys if key.is_usable)
    if len(usable) < 2 or not key_name:
        return usable
    try:
        described = key_pair.describe(aws, key_name)
    except AwsError:  # without the permission, keep ssh's order
        return usable
    first = user_keys.matching(usable, described or {})
    return (*first, *(key for key in usable if key not in first))


def open_proxied(connect: Callable[[Tunnel], Master], settings: UserSettings) -> Master:
    """Return the result of `connect` for a stream through the user's ProxyJump or ProxyCommand.

    Raises the ConnectionFailedError of `connect`, or one with the output of the proxy's command if that command failed.
    """
    tunnel = Tunnel(settings.proxy_command(), in_terminal=True)
    try:
        return connect(tunnel)
    except ConnectionFailedError as error:
        output = tunnel.close()
        if not output or not isinstance(error, _HandshakeError):
            raise
        raise ConnectionFailedError(
            f"the proxy of your SSH settings failed: {output}",
            where=settings.proxy_source,
            remedy=f"test the proxy with `ssh -v {settings.tokens['h']}`; ssh_cidr in cdk.json must contain the "
            "proxy's address",
        ) from None
    except BaseException:
        tunnel.close()
        raise


def open_connection(
    host: str,
    user: str,
    host_keys: Sequence[HostKey],
    keys: Sequence[UserKey],
    *,
    port: int = SSH_PORT,
    key_name: str = "",
    through: Tunnel | None = None,
) -> Master:
    """Open a connection to a host that has one of `host_keys`, and log in with the first accepted one of `keys`.

    May ask for a key's passphrase on the terminal. Host keys of an algorithm that Paramiko does not support are
    skipped. `key_name` is the EC2 key pair that the master was launched with; it is only for messages. `through` is a
    tunnel to use, which is closed with the connection. Raises ConnectionFailedError.
    """
    import logging

    import fabric
    import paramiko

    # Paramiko logs errors of its thread to stderr. Here they become errors of the task.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    where = f"{user}@{host}" + (f":{port}" if port != SSH_PORT else "")
    strategy = _Offer(user, keys, key_name, where)
    options: dict[str, Any] = {
        "banner_timeout": session_manager.BANNER_TIMEOUT_S if through else CONNECT_TIMEOUT_S,
        "auth_timeout": _auth_timeout_s(keys),
        "auth_strategy": strategy,
        "sock": through.socket if through else _open_socket(host, port, where),
    }
    # Fabric would read the user's settings with Paramiko's parser. An empty configuration prevents that.
    config = fabric.Config(ssh_config=paramiko.SSHConfig())
    connection = fabric.Connection(
        host, user=user, port=port, config=config, connect_timeout=CONNECT_TIMEOUT_S, connect_kwargs=options
    )

    class RefuseUnknownKeys(paramiko.MissingHostKeyPolicy):  # Fabric's own policy trusts any new key
        def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
            raise paramiko.BadHostKeyException(hostname, key, key)

    connection.client.set_missing_host_key_policy(RefuseUnknownKeys())
    name = host if port == SSH_PORT else f"[{host}]:{port}"
    for host_key in sorted(host_keys, key=lambda k: k.algorithm != "ssh-ed25519"):
        try:
            parsed = paramiko.PKey.from_type_string(host_key.algorithm, host_key.blob)
        except (paramiko.SSHException, ValueError, paramiko.pkey.UnknownKeyType):
            continue  # Paramiko does not support this algorithm, and another key will do
        connection.client.get_host_keys().add(name, host_key.algorithm, parsed)
    try:
        connection.open()
    except ConnectionFailedError:
        connection.close()
        raise
    except paramiko.BadHostKeyException as error:
        connection.close()
        shown = HostKey(algorithm=error.key.get_name(), blob=error.key.asbytes()).fingerprint
        raise ConnectionFailedError(
            f"the host that answers is not the master. Its SSH host key is {shown}, but the master's console shows "
            f"{' or '.join(key.fingerprint for key in host_keys) or 'none'}",
            where=where,
            remedy="do not continue from this network; compare with the console (`aws ec2 get-console-output`) from "
            "another network",
        ) from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        connection.close()
        options["sock"].close()
        raise _HandshakeError(error, where, tunnelled=through is not None) from None
    connection.client.get_transport().set_keepalive(15)
    return Master(connection, where, through.close if through else None, user_key=strategy.accepted)


def _open_socket(host: str, port: int, where: str) -> socket.socket:
    """Open the TCP connection. Raises ConnectionFailedError with the cause: name, route, refusal or timeout.

    `where` names the connection in errors.
    """
    try:
        return socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        what, remedy = f"the name {host} cannot be resolved: {error.strerror}", "check your network and its DNS"
    except ConnectionRefusedError:
        what, remedy = "the connection was refused: the SSH server is not running", _BOOTING
    except TimeoutError:
        what = f"no answer within {CONNECT_TIMEOUT_S} s"
        remedy = (
            "your address must be in ssh_cidr of cdk.json: set ssh_cidr to your address as a /32, then run `fab up`"
        )
    except OSError as error:
        what = f"no route to the master: {error.strerror or error}"
        remedy = "check your network, VPN and local firewall; no packet has reached AWS"
    raise ConnectionFailedError(what, where=where, remedy=remedy) from None


def _auth_timeout_s(keys: Sequence[UserKey]) -> int:
    """Return the timeout for one key, s. It is longer with an agent, which may ask the user first, for example for a
    fingerprint.
    """
    return AGENT_TIMEOUT_S if any(key.agent_key is not None for key in keys) else CONNECT_TIMEOUT_S


class _HandshakeError(ConnectionFailedError):
    """Report a stream that did not become an SSH connection."""

    def __init__(self, error: Exception, where: str, *, tunnelled: bool) -> None:
        what = describe(error) or "the other side closed the connection"
        super().__init__(
            f"the SSH handshake {'through the tunnel' if tunnelled else 'at this port'} failed: {what}",
            where=where,
            remedy=f"{_BOOTING}; otherwise read its console (`aws ec2 get-console-output`)"
            if tunnelled
            else f"{_BOOTING}; otherwise your address may be outside of ssh_cidr, or a firewall may block SSH",
        )


class RefusedKeysError(ConnectionFailedError):
    """Report that the master accepts none of the user's keys.

    `offered` are the locations of the keys that were offered. `skipped` are the reasons why other keys were not.
    """

    def __init__(
        self, offered: Sequence[str], skipped: Sequence[str], *, key_name: str, where: str, disconnected: bool
    ) -> None:
        self.offered, self.skipped = tuple(offered), tuple(skipped)
        refused = f"the master rejects your SSH key{'s'[: len(offered) != 1]}: {', '.join(offered)}"
        what = refused if offered else "no SSH key was found to offer to the master"
        if disconnected:
            what += f". It disconnected after {len(offered)} key{'s'[: len(offered) != 1]} (MaxAuthTries)"
        if skipped:
            what += f"; not offered: {', '.join(skipped)}"
        pair = f"EC2 key pair {key_name}" if key_name else "EC2 key pair that key_name names in cdk.json"
        super().__init__(
            what, where=where, remedy=f"give the private key of the {pair} with --key FILE, or add it with ssh-add"
        )


class _Offer:
    """An authentication strategy of Paramiko that offers `keys` in their order.

    `accepted` is the key that the server has accepted; None before.
    """

    def __init__(self, user: str, keys: Sequence[UserKey], key_name: str, where: str) -> None:
        self._user, self._keys, self._key_name, self._where = user, keys, key_name, where
        self.accepted: UserKey | None = None

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Authenticate with one of the keys. Raises RefusedKeysError if none is accepted.

        Raises ConnectionFailedError if a key gets no answer, or if the connection breaks before a key is rejected. May
        ask for a key's passphrase on the terminal. Keys that cannot be loaded are skipped.
        """
        import paramiko

        offered: dict[str, bytes] = {}
        skipped = []
        for key in self._keys:
            if key.blob and key.blob in offered.values():
                continue  # the same key, from the agent and from a file
            try:
                private = key.load()
            except ConnectionFailedError as error:
                skipped.append(error.what)
                continue
            try:
                transport.auth_publickey(self._user, private)
            except paramiko.AuthenticationException as error:
                if "timeout" in str(error).lower():
                    raise ConnectionFailedError(
                        f"no answer within {_auth_timeout_s(self._keys)} s to the key {key.place}",
                        where=self._where,
                        remedy="repeat, and approve the key if your SSH agent asks (1Password, Secretive, ...)"
                        if key.agent_key is not None
                        else f"{_BOOTING}; otherwise check your network",
                    ) from None
                offered[key.place] = private.asbytes()
            except (paramiko.SSHException, OSError, EOFError) as error:
                if not transport.is_active():
                    break
                skipped.append(f"{key.place} ({error or 'the SSH agent does not sign'})")
            else:
                self.accepted = key
                return
        disconnected = not transport.is_active()
        if disconnected and not offered:
            raise ConnectionFailedError(
                "the connection broke during the login", where=self._where, remedy="repeat the command"
            )
        raise RefusedKeysError(
            tuple(offered), skipped, key_name=self._key_name, where=self._where, disconnected=disconnected
        )
