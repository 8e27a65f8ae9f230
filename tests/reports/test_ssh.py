"""Public reports about SSH: a cluster can be reached whenever plain `ssh` can reach it.

The server and the agent are OpenSSH's own. The server has the default limit of six attempts.
"""

from __future__ import annotations

import errno
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from paramiko import SSHException

from cluster.cli import PROJECT
from cluster.cli.program import make_program
from cluster.deploy import key_pair
from cluster.errors import ConnectionFailedError
from cluster.ssh import connect, ssh_config_file, user_keys, user_settings
from cluster.ssh.master import Master, SilenceError
from cluster.ssh.user_keys import UserKey
from cluster.ssh.user_settings import UserSettings
from cluster.tasks import ssh
from cluster.terminal import status_line
from tests.cluster.ssh.ssh_server import SSHD, SshServer, make_key
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(not SSHD or not shutil.which("ssh-agent"), reason="needs OpenSSH's server and agent")


class Laptop:
    """A home directory with keys, an agent, and a server on this machine that accepts one of the keys."""

    def __init__(self, home: Path, server: SshServer) -> None:
        self.home, self.server, self.port, self.host_keys = home, server, server.port, (server.host_key,)

    def authorize(self, key: Path) -> None:
        self.server.authorized.write_text(
            subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True).stdout
        )

    def configure(self, text: str | bytes) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        (self.home / ".ssh" / "config").write_bytes(data)

    @property
    def settings(self) -> UserSettings:
        return user_settings.read("127.0.0.1", getpass.getuser(), port=self.port, home=self.home)

    def keys(self, key: str = "") -> tuple[UserKey, ...]:
        return user_keys.find(self.settings, self.home, key)

    def connect(self, keys: Sequence[UserKey], **options: Any) -> Master:
        user = getpass.getuser()
        return connect.open_connection("127.0.0.1", user, self.host_keys, keys, port=self.port, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    started = SshServer(tmp_path_factory.mktemp("sshd"))
    yield started
    started.close()


@pytest.fixture
def laptop(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return a laptop with an empty config and no agent."""
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").touch(mode=0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Laptop(tmp_path, server)


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Path]]:
    """Start an agent; yield a function that adds keys to it and returns its socket."""
    path = tmp_path_factory.mktemp("agent") / "s"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)

    def add(*keys: Path) -> Path:
        for key in keys:
            environment = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True)
        return path

    eventually(path.exists)
    yield add
    process.terminate()
    process.wait()


def described(key: Path, **changes: str) -> dict[str, str]:
    public = subprocess.run(["ssh-keygen", "-y", "-f", str(key)], capture_output=True, text=True, check=True).stdout
    return {"KeyName": "deepcdk", "PublicKey": public, **changes}


def ordered(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, pair: dict[str, str], key: str = ""
) -> tuple[UserKey, ...]:
    monkeypatch.setattr(key_pair, "describe", lambda *_: pair)
    return connect.order(None, "deepcdk", laptop.keys(key))  # type: ignore[arg-type]  # EC2 is not asked


CONFIGS = {
    "match final": "Match final all\n  ForwardAgent yes\n",
    "latin-1": b"# caf\xe9\nHost example.com\n  User example\n",
    "forward agent": "Host *\n  ForwardAgent true\n",
    "jump none": "Host *\n  ProxyJump none\n",
    "identity none": "Host *\n  IdentityAgent none\n  CertificateFile none\n",
    "quoted": 'Host *\n  IdentityFile="~/.ssh/b c"\n',
    "exec": 'Match exec "test x%h = x127.0.0.1"\n  IdentitiesOnly yes\n',
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_any_config_that_openssh_accepts_connects(laptop: Laptop, config: str | bytes) -> None:
    """Source: paramiko #2361, #2522, #2339, #2285, fabric PR 2371."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    laptop.configure(config)
    assert not laptop.settings.proxy
    with laptop.connect(laptop.keys()) as master:
        assert master.run(["echo", "hello"]).text == "hello\n"


def test_task_without_connection_reads_no_ssh_config(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: paramiko #2361: `fab recipes` ended with a traceback."""
    laptop.configure("Match final all\n  Bogus yes\n")
    for project in (PROJECT, laptop.home):  # The project of a wheel has no fabric.yaml.
        monkeypatch.setattr("cluster.cli.program.PROJECT", project)
        for words in (["fab", "recipes"], ["fab", "--list"]):
            make_program().run(words, exit=False)
    done = subprocess.run(
        [sys.executable, "-m", "fabric", "--list"],
        cwd=PROJECT, capture_output=True, text=True, env={**os.environ, "HOME": str(laptop.home)}, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr + capsys.readouterr().err
    assert done.returncode == 0


def test_config_rejected_by_openssh_is_reported_with_its_message(laptop: Laptop) -> None:
    """Source: paramiko #2361."""
    laptop.configure("Host *\n  IdentityFil ~/.ssh/x\n")
    with pytest.raises(ConnectionFailedError, match=r"line 2: Bad configuration option: identityfil"):
        _ = laptop.settings


def test_user_unknown_to_openssh_has_its_default_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container runs as a user number without a passwd entry."""
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'No user exists for uid 12345' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    config.touch()
    found = user_settings.read("h", home=tmp_path)
    assert tmp_path / ".ssh" / "id_ed25519" in found.identity_files
    assert f"{config} is not used, because the OpenSSH client needs an entry" in capsys.readouterr().err


def test_shell_needs_no_openssh(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a user without a passwd entry, `fab ssh` failed with OpenSSH's error message."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    (laptop.home / "typed").write_text("echo hello\nexit 5\n")
    with (laptop.home / "typed").open() as typed, laptop.connect(laptop.keys()) as master:
        monkeypatch.setattr("sys.stdin", typed)
        assert master.shell(["sh"]) == 5
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
        assert not user_settings.openssh_knows_user()
    assert capsys.readouterr().out == "hello\n"


def test_shell_reports_lost_connection(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fab ssh` ended with status -1 and no message, or with a traceback from Paramiko."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    (laptop.home / "typed").touch()
    with (laptop.home / "typed").open() as typed, laptop.connect(laptop.keys()) as master:
        monkeypatch.setattr("sys.stdin", typed)
        with monkeypatch.context() as patched, pytest.raises(SilenceError, match="broke: Timeout opening channel"):
            patched.setattr(
                "paramiko.Transport.open_session", mock.Mock(side_effect=SSHException("Timeout opening channel."))
            )
            master.shell(["sh"])
        with pytest.raises(SilenceError, match="the connection to the master broke"):
            master.shell(["sh", "-c", "kill -9 $PPID; sleep 9"])


def test_links_and_paths_accepted_by_openssh_work(laptop: Laptop) -> None:
    """~/.ssh was from a repository of dotfiles, the config was a link or missing, or a directory was in its place."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    (laptop.home / ".ssh").rename(laptop.home / "dotfiles")
    (laptop.home / ".ssh").symlink_to("dotfiles")
    config = laptop.home / ".ssh" / "config"
    (laptop.home / "linked").write_text(f"Include {laptop.home}/more*\nInclude ~/missing\n")
    (laptop.home / "more").write_text("Host *\n  ForwardAgent true\n")

    def connects() -> bool:
        with laptop.connect(laptop.keys()) as master:
            return master.run(["true"]).status == 0

    config.unlink()
    assert connects()
    config.symlink_to(laptop.home / "linked")
    assert connects()
    config.unlink()
    config.symlink_to(laptop.home / "gone")
    assert connects()


def test_unreadable_directories_and_config_are_reported() -> None:
    """If ~/.ssh belonged to another user, as after `sudo` or `su`, tasks ended with a PermissionError."""
    program = "\n".join(
        [
            "import pathlib, sys",
            "from cluster.ssh import user_keys, user_settings",
            "home = pathlib.Path(sys.argv[1])",
            "print(user_keys.find(user_settings.read('127.0.0.1', 'me', home=home), home))",
        ]
    )
    number = ["setpriv", "--reuid", "65534", "--clear-groups"] if os.geteuid() == 0 else []

    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # pytest's own directories are closed to other users.
        home = Path(name)
        (home / ".ssh").mkdir()
        (home / ".ssh" / "config").touch(mode=0)
        command = [*number, sys.executable, "-c", program, name]

        def reported(home_mode: int, folder_mode: int) -> str:
            (home / ".ssh").chmod(folder_mode)
            home.chmod(home_mode)
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
            home.chmod(0o755)
            (home / ".ssh").chmod(0o755)
            assert (done.stdout, done.returncode) == ("()\n", 0), done.stderr
            return done.stderr

        assert "config cannot be read, and is not used" in reported(0o755, 0o755)
        assert ".ssh cannot be read: Permission denied; its keys are not used" in reported(0o755, 0)
        assert ".ssh cannot be read: Permission denied; its keys are not used" in reported(0, 0o755)


@pytest.mark.parametrize("config", ["directory", "link to a directory", "unreadable", "loop"])
def test_ssh_config_writes_its_files_if_user_config_is_unreadable(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fab ssh-config` failed, although the other tasks only printed a warning."""

    def denied() -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".ssh" / "config"
    own.parent.mkdir()
    if config == "directory":
        own.mkdir()
    elif config == "unreadable":
        own.touch(mode=0)
        if os.geteuid() == 0:  # root may read everything
            access, read = os.access, Path.read_bytes
            monkeypatch.setattr(os, "access", lambda path, mode: path != own and access(path, mode))
            monkeypatch.setattr(Path, "read_bytes", lambda path: denied() if path == own else read(path))
    else:
        own.symlink_to(own if config == "loop" else tmp_path)
    files = ssh_config_file.Files.below(own.parent, "deepcdk")
    entry = ssh_config_file.Entry(
        alias="deepcdk-master", address="198.18.0.1", instance_id="i-0123456789abcdef0", keys=()
    )

    def write(*_: object) -> tuple[ssh_config_file.Files, tuple[ssh_config_file.Entry, ...]]:
        user_settings.read("deepcdk-master", home=tmp_path)  # like connecting and writing
        return files, (entry,)

    monkeypatch.setattr(ssh, "Session", mock.MagicMock())
    monkeypatch.setattr(ssh, "_write_ssh_config", write)

    def run(*flags: str) -> tuple[object, str, str]:
        status_line.warn.cache_clear()
        monkeypatch.setattr(sys, "argv", ["fab", "ssh-config", *flags])
        code: object = 0
        try:
            make_program().run()
        except SystemExit as ended:
            code = ended.code
        shown = capsys.readouterr()
        return code, " ".join(shown.out.split()), " ".join(shown.err.split())

    status, out, err = run()
    assert status == 0, err
    assert f"add this line at the top of a readable {own}" in out
    assert f"ssh -F {files.config} deepcdk-master" in out
    assert err.count("warning: ") == (config != "loop"), err
    status, _, err = run("--install", "--yes")
    assert (status, f"{own} cannot be read: " in err) == (1, True)


def test_none_disables_proxy_in_every_version_of_openssh(tmp_path: Path) -> None:
    """Source: paramiko #2285. Some versions print `none` for a proxy that is turned off."""
    text = "hostname h\nproxyjump none\nproxycommand None\n"
    found = user_settings.parse(text, "h", "u", port=22, home=tmp_path, environ={})
    assert (found.proxy, found.proxy_source) == ("", "")


@pytest.mark.parametrize("text", ["Usage: ssh\n", "user me\n", "", "user me\nhostname h\n\tport 22\n"])
def test_ssh_other_than_openssh_is_reported(tmp_path: Path, text: str) -> None:
    """Source: paramiko #2361: the output of `ssh -G` is parsed strictly."""
    with pytest.raises(ConnectionFailedError, match="printed") as caught:
        user_settings.parse(text, "h", "u", port=22, home=tmp_path, environ={})
    assert "OpenSSH" in caught.value.remedy


@pytest.mark.parametrize("place", ["file", "pem", "no .pub", "agent", "encrypted, in the agent", "identity agent"])
def test_key_pair_is_offered_first_with_seven_other_keys_in_agent(
    laptop: Laptop, agent: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Source: paramiko #1390, pycloudlib #423, pyinfra PR 1491: sshd disconnects after six attempts."""
    folder = laptop.home / "elsewhere"
    folder.mkdir()
    others = [make_key(folder / f"other{number}") for number in range(7)]
    in_ssh = place in ("file", "pem", "no .pub")
    kind = ("rsa", "", "-m", "PEM") if place == "pem" else ()
    right = make_key((laptop.home / ".ssh" if in_ssh else folder) / "deepcdk.pem", *kind)
    laptop.authorize(right)
    pair = described(right)
    path = agent(*others, *([] if in_ssh else [right]))
    if place in ("pem", "no .pub"):
        Path(f"{right}.pub").unlink()
    elif place == "encrypted, in the agent":
        subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(right)], check=True, stdout=-3)
        laptop.configure(f"IdentityFile {right}\n")
    if place == "identity agent":
        laptop.configure(f"Host 127.*\n  IdentityAgent {path}\n")
    else:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    with laptop.connect(ordered(laptop, monkeypatch, pair)) as master:
        assert master.user_key is not None
        assert master.user_key.public_text.split() == pair["PublicKey"].split()[:2]
    with laptop.connect(laptop.keys(str(right)) if right.exists() else laptop.keys()) as master:
        assert master.user_key is not None


def test_agent_without_right_key_is_reported_with_offered_keys(
    laptop: Laptop, agent: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: paramiko #1390: the message blamed the network and ssh_cidr."""
    others = [make_key(laptop.home / f"other{number}") for number in range(7)]
    laptop.authorize(make_key(laptop.home / "right"))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent(*others)))
    make_key(laptop.home / ".ssh" / "id_rsa", "rsa", "secret")
    with pytest.raises(connect.RefusedKeysError) as caught:
        laptop.connect(laptop.keys(), key_name="deepcdk")
    assert len(caught.value.offered) >= 5
    assert caught.value.offered[0] == "agent (other0)"
    assert "MaxAuthTries" in caught.value.what
    assert "EC2 key pair deepcdk" in caught.value.remedy
    assert "ssh_cidr" not in str(caught.value)


def test_dead_agent_is_reported_and_key_files_are_used(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Source: paramiko #23."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(laptop.home / "gone"))
    with laptop.connect(laptop.keys()):
        pass
    assert "does not answer" in capsys.readouterr().err


def test_passphrase_is_requested_once_and_only_on_a_terminal(laptop: Laptop, monkeypatch: pytest.MonkeyPatch) -> None:
    """guardian/ssm-scala #79: an encrypted key that is not in an agent."""
    locked = make_key(laptop.home / ".ssh" / "id_ed25519", passphrase="secret")
    laptop.server.authorized.write_text(Path(f"{locked}.pub").read_text())
    with pytest.raises(ConnectionFailedError, match=r"not offered: .*passphrase, and there is no terminal"):
        laptop.connect(laptop.keys())
    answers = ["wrong", "secret"]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop(0))
    keys = laptop.keys()
    for _ in range(2):
        laptop.connect(keys).close()
    assert answers == []


@pytest.mark.parametrize("kind", [("rsa",), ("ecdsa", "secret")])
def test_key_in_openssl_format_is_used(laptop: Laptop, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, ...]) -> None:
    """Plain `ssh` connects with a key in PKCS #8, for which Paramiko says `not a valid RSA private key file`."""
    algorithm, passphrase = (*kind, "")[:2]
    key = make_key(laptop.home / "k", algorithm, passphrase, "-m", "PKCS8")
    laptop.server.authorized.write_text(Path(f"{key}.pub").read_text())
    answers = ["wrong", passphrase]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop(0))
    with laptop.connect(laptop.keys(str(key))) as master:
        assert master.run(["true"]).status == 0


def test_public_key_file_selects_the_key(laptop: Laptop) -> None:
    """`--key k.pub` said that there was no private key next to it."""
    laptop.authorize(make_key(laptop.home / "k"))
    with laptop.connect(laptop.keys(str(laptop.home / "k.pub"))) as master:
        assert master.run(["true"]).status == 0


@pytest.mark.parametrize("proxy", ["ProxyJump {user}@localhost:{port}", "ProxyCommand {relay} %h %p"])
def test_proxy_of_user_is_used(laptop: Laptop, proxy: str) -> None:
    """elpy1/ssh-over-ssm #14."""
    laptop.authorize(make_key(laptop.home / ".ssh" / "id_ed25519"))
    relay = laptop.home / "relay"
    relay.write_text(
        f"#!{sys.executable}\nimport os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n    while b := os.read(0, 4096): s.sendall(b)\n    s.shutdown(socket.SHUT_RDWR)\n"
        "threading.Thread(target=up, daemon=True).start()\nwhile b := s.recv(4096): os.write(1, b)\n"
    )
    relay.chmod(0o755)
    line = proxy.format(user=getpass.getuser(), port=laptop.port, relay=relay)
    laptop.configure(
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        f'IdentityFile {laptop.home}/.ssh/id_ed25519\nMatch exec "test ! -e {laptop.home}/jumping"\n  {line}\n'
    )
    settings_read = laptop.settings
    (laptop.home / "jumping").touch()  # The jump connects directly: there is only one server.
    with connect.open_proxied(lambda through: laptop.connect(laptop.keys(), through=through), settings_read) as master:
        assert master.run(["echo", "hello"]).text == "hello\n"


def test_failed_proxy_is_reported_with_its_message(laptop: Laptop) -> None:
    """Source: paramiko #2285: the message did not name the jump host."""
    laptop.configure('ProxyCommand sh -c "echo bastion is closed >&2; exit 3"\n')
    settings = laptop.settings
    with pytest.raises(ConnectionFailedError, match="bastion is closed") as caught:
        connect.open_proxied(lambda through: laptop.connect(laptop.keys(), through=through), settings)
    assert caught.value.where.startswith("ProxyCommand sh -c")


@pytest.mark.parametrize(
    ("error", "said", "advice"),
    [
        (socket.gaierror(-3, "Temporary failure in name resolution"), "name 198.18.1.2 cannot be resolved", "DNS"),
        (OSError(101, "Network is unreachable"), "no route to the master: Network is unreachable", "VPN"),
        (OSError(113, "No route to host"), "no route to the master: No route to host", "firewall"),
        (ConnectionRefusedError(111, "Connection refused"), "connection was refused", "booting"),
        (TimeoutError("timed out"), "no answer within 10 s", "ssh_cidr"),
    ],
)
def test_failed_step_is_reported(monkeypatch: pytest.MonkeyPatch, error: OSError, said: str, advice: str) -> None:
    """Source: paramiko #1390."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("socket.create_connection", fail)
    with pytest.raises(ConnectionFailedError, match=said) as caught:
        connect.open_connection("198.18.1.2", "admin", (), ())
    assert advice in caught.value.remedy


@pytest.mark.parametrize("stored", ["pem", "openssh", "encrypted", "agent"])
def test_private_key_without_public_file_is_imported(
    laptop: Laptop, agent: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    """Keychain #64: `fab up --key deepcdk.pem` reported that there was no key."""
    kind = ("rsa", "", "-m", "PEM") if stored == "pem" else ("ed25519", "secret" if stored == "encrypted" else "")
    path = make_key(laptop.home / "k", *kind)
    public = Path(f"{path}.pub").read_text().split()[:2]
    if stored == "agent":
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent(path)))
        path.unlink()
    Path(f"{path}.pub").unlink()
    found = key_pair.find_importable(key_pair.own_keys(laptop.home, "" if stored == "agent" else str(path)))
    assert found.public_text.split() == public


@pytest.mark.parametrize("is_in_agent", [True, False])
def test_plain_ssh_connects_with_config_file_of_fab(
    laptop: Laptop, agent: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, is_in_agent: bool
) -> None:
    """Source: paramiko #1390: plain ssh failed with `Too many authentication failures`."""
    others = [make_key(laptop.home / f"other{number}") for number in range(7)]
    right = make_key(laptop.home / ("right" if is_in_agent else ".ssh/right"))
    laptop.authorize(right)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent(*others, *[right] * is_in_agent)))
    with laptop.connect(ordered(laptop, monkeypatch, described(right))) as master:
        files = ssh_config_file.Files.below(laptop.home / ".ssh", "deepcdk")
        identity = ssh_config_file.write_identity(files, master.user_key)
    entry = ssh_config_file.Entry(alias="deepcdk-master", address="127.0.0.1", instance_id="i-1", keys=laptop.host_keys)
    user_settings_text = ssh_config_file.config_text("deepcdk", getpass.getuser(), [entry], files, identity)
    files.config.parent.mkdir(exist_ok=True)
    files.known_hosts.write_text(ssh_config_file.known_hosts_text([entry]))
    files.config.write_text(user_settings_text)
    command = ["ssh", "-F", str(files.config), "-p", str(laptop.port)]
    done = subprocess.run([*command, "deepcdk-master", "echo", "hello"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("hello\n", 0), done.stderr
