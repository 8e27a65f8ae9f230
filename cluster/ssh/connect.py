"""Connect to the master over SSH; an address is trusted only with the host keys of the master's console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.inventory import Instance
from cluster.errors import ConnectionFailedError
from cluster.ssh import session_manager
from cluster.ssh.host_keys import HostKey, KeptHostKeys
from cluster.ssh.master import CONNECT_TIMEOUT_S, Master
from cluster.ssh.session_manager import Tunnel
from cluster.terminal.paths import expanded
from stacks.config import SSH_PORT
from stacks.config_keys.network import SESSION_MANAGER, SSH_PORT_OPEN

if TYPE_CHECKING:
    import paramiko

    from cluster.aws.client import Aws

_USE_AGENT: Final = "add it to an agent, and leave --key out: eval $(ssh-agent); ssh-add FILE"


def connect(
    aws: Aws, master: Instance, user: str, kept: KeptHostKeys, key: str = "", ssh_access: str = SSH_PORT_OPEN
) -> Master:
    """Connect to the master; its host keys must be those that its console shows, or has shown before and are `kept`.

    `key` is a private key file. A connection that breaks is opened again, to a host with the same keys, when the next
    command needs it.
    """
    if ssh_access == SESSION_MANAGER:
        session_manager.check_programs()
    # Console and TCP at once would save a round trip, but no byte is sent before the keys are known.
    keys = kept.identify(aws, master.id)

    def open_one() -> Master:
        if ssh_access != SESSION_MANAGER:
            return open_connection(master.public_ip, user, keys, key=key)
        return session_manager.open_tunnel(
            lambda through: open_connection(master.id, user, keys, key=key, through=through),
            session_manager.command(master.id, aws.region),
        )

    return open_one().reopen_with(open_one)


def open_connection(
    host: str,
    user: str,
    keys: Sequence[HostKey],
    *,
    key: str = "",
    port: int = SSH_PORT,
    through: Tunnel | None = None,
) -> Master:
    """Open the connection, which closes the tunnel `through` at its end. Raises ConnectionFailedError."""
    import logging

    import fabric
    import paramiko

    # Paramiko logs errors of its thread to stderr; here they become errors of the task.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    options: dict[str, Any] = {"pkey": load_key(key), "allow_agent": False, "look_for_keys": False} if key else {}
    options["banner_timeout"] = CONNECT_TIMEOUT_S
    if through:
        options |= {"banner_timeout": session_manager.BANNER_TIMEOUT_S, "sock": through.socket}
    connection = fabric.Connection(
        host,
        user=user,
        port=port,
        connect_timeout=CONNECT_TIMEOUT_S,
        connect_kwargs={"auth_timeout": CONNECT_TIMEOUT_S, **options},
    )
    where = f"{user}@{host}" + (f":{port}" if port != SSH_PORT else "")

    class RefuseUnknownKeys(paramiko.MissingHostKeyPolicy):  # Fabric's own policy trusts any key at first sight.
        def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
            raise paramiko.BadHostKeyException(hostname, key, key)

    connection.client.set_missing_host_key_policy(RefuseUnknownKeys())
    name = host if port == SSH_PORT else f"[{host}]:{port}"
    for host_key in sorted(keys, key=lambda k: k.algorithm != "ssh-ed25519"):
        try:
            parsed = paramiko.PKey.from_type_string(host_key.algorithm, host_key.blob)
        except (paramiko.SSHException, ValueError, paramiko.pkey.UnknownKeyType):
            continue  # Paramiko does not know this algorithm; another of the keys will do.
        connection.client.get_host_keys().add(name, host_key.algorithm, parsed)
    try:
        connection.open()
    except paramiko.BadHostKeyException as error:
        connection.close()
        shown = HostKey(algorithm=error.key.get_name(), blob=error.key.asbytes()).fingerprint
        raise ConnectionFailedError(
            f"the host that answers is not the master: its SSH host key is {shown}, "
            f"and the master's, by its console, {' or '.join(key.fingerprint for key in keys) or 'none'}",
            where=where,
            remedy="do not go on from this network; "
            "compare with the console (`aws ec2 get-console-output`) from another one",
        ) from None
    except Exception as error:  # Paramiko raises many kinds; unknown ones pass.
        connection.close()
        if explained := _explain(error, tunnelled=through is not None):
            what, remedy = explained
            raise ConnectionFailedError(what, where=where, remedy=remedy) from None
        raise
    connection.client.get_transport().set_keepalive(15)
    return Master(connection, where, through.close if through else None)


def load_key(key: str) -> paramiko.PKey:
    """Load a private key from its file. Raises ConnectionFailedError."""
    import paramiko

    try:
        return paramiko.PKey.from_path(expanded(key))
    except FileNotFoundError:
        raise ConnectionFailedError(
            f"no private key at {key}", remedy="give --key FILE, or leave it out to use the agent and ~/.ssh"
        ) from None
    except (paramiko.PasswordRequiredException, TypeError):
        raise ConnectionFailedError(f"{key} has a passphrase", remedy=_USE_AGENT) from None
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError, OSError) as error:
        raise ConnectionFailedError(f"{key} is no private key: {error}", remedy="give --key FILE") from None


def _explain(error: Exception, *, tunnelled: bool) -> tuple[str, str] | None:
    """Return what failed and what to do; None for an error that is not SSH's or the network's."""
    import paramiko

    booting = "the master may still be booting: repeat in a minute"
    if isinstance(error, paramiko.PasswordRequiredException):
        return "the private key has a passphrase", _USE_AGENT
    if isinstance(error, paramiko.AuthenticationException):
        return (
            "the master refuses your SSH key",
            "give the private key of the EC2 key pair that key_name names in cdk.json: --key FILE, or ssh-add it",
        )
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError | ConnectionRefusedError):
        return "the connection is refused: the SSH server is not up", booting
    if not isinstance(error, OSError | paramiko.SSHException | EOFError):
        return None
    if tunnelled:  # ssh_cidr does not matter
        return f"no SSH over Session Manager: {error}", f"{booting}; else look at its console"
    if isinstance(error, TimeoutError):
        return (
            f"no answer within {CONNECT_TIMEOUT_S} s",
            "your address must lie in ssh_cidr of cdk.json: set it to your own address as a /32, then `fab up`",
        )
    return f"no connection: {error}", "check your network and ssh_cidr in cdk.json"
