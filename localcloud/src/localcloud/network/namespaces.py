"""Network namespaces held by file descriptors, and system calls that Python 3.11 does not wrap.

A namespace that is only held by a descriptor needs no mount and no name under /run. When the daemon exits or crashes,
the kernel removes the namespace, its links and its rules.

`ip -batch` sets links and routes, because pyroute2 is slower: 32 links with their routes took 0.02 to 0.14 s instead of
0.4 to 0.9 s, and pyroute2's import takes a second. `unshare` and `nsenter` start hosts, because Python 3.11 has neither
call.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from localcloud.errors import CommandError

T = TypeVar("T")

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWNET: Final = 0x40000000
MNT_DETACH: Final = 2
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SLAVE: Final = 0x80000
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1
_IFF_RUNNING: Final = 0x40

_SYSCTLS: Final = {
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    "ipv6/conf/default/disable_ipv6": "1",  # the cloud is IPv4 only; address detection of 64 links costs seconds
}
ROUTER_SYSCTLS: Final = {
    "ipv4/ip_forward": "1",
    "ipv4/conf/default/proxy_arp": "1",
    "ipv4/conf/default/send_redirects": "0",
}


def _call(name: str, *arguments: object) -> None:
    """Call a function of libc. Raises OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def set_namespace(fd: int) -> None:
    """Move the calling thread into the namespace of the descriptor `fd`."""
    _call("setns", fd, 0)


def leave_mount_namespace() -> None:
    """Move this process into a separate mount namespace. The machine does not see mounts that it makes from now on."""
    _call("unshare", CLONE_NEWNS)
    _call("mount", b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None)


def mount_tmpfs(path: Path, options: str) -> None:
    """Mount an empty memory file system at `path`. `options` are mount options, such as `mode=755`. Raises OSError."""
    _call("mount", b"localcloud", os.fsencode(path), b"tmpfs", ctypes.c_ulong(0), options.encode())


def unmount(path: Path) -> None:
    """Unmount a file system. Namespaces that have copied the mount keep it."""
    _call("umount2", os.fsencode(path), MNT_DETACH)


def show_file(file: Path, at: Path) -> None:
    """Mount a file over the file `at`. Raises OSError.

    Call `leave_mount_namespace` first, so that only this process and its children see the mount.
    """
    _call("mount", os.fsencode(file), os.fsencode(at), None, ctypes.c_ulong(MS_BIND), None)


def _in_thread(action: Callable[[], T]) -> T:
    """Return the result of `action`, run in a new thread, so that a change of namespace affects no other thread."""
    with ThreadPoolExecutor(1, "namespace") as pool:
        return pool.submit(action).result()


def enter_path(path: str, action: Callable[[], T]) -> T:
    """Run `action` in the network namespace at a path, in a separate thread; return its result."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _enter(fd, action)
    finally:
        os.close(fd)


def _enter(fd: int, action: Callable[[], T]) -> T:
    def inside() -> T:
        set_namespace(fd)
        return action()

    return _in_thread(inside)


def run(command: Sequence[str], text: str = "") -> str:
    """Run a system command with `text` as its input; return its output and errors. Raises CommandError if it fails."""
    done = subprocess.run(command, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout)
    return done.stdout


class NetworkNamespace:
    """Owner of a new network namespace. It exists until `close` is called and the last process in it has exited.

    `sysctls` has the format of `set_sysctls`.
    """

    def __init__(self, sysctls: Mapping[str, str] | None = None) -> None:
        self.fd = _in_thread(lambda: _create({**_SYSCTLS, **(sysctls or {})}))

    @property
    def path(self) -> str:
        """Return a path of the namespace for `ip` and `nsenter`, valid while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @property
    def inode(self) -> int:
        """Return the namespace's inode number, as in `readlink /proc/PID/ns/net`."""
        return os.fstat(self.fd).st_ino

    def enter(self, action: Callable[[], T]) -> T:
        """Run `action` in the namespace, in a separate thread; return its result.

        Sockets and processes that it creates belong to the namespace.
        """
        return _enter(self.fd, action)

    def ip(self, commands: Sequence[str]) -> None:
        """Run a batch of `ip` commands, given without the word `ip`, in the namespace. Raises CommandError."""
        if commands:
            self.enter(lambda: run(["ip", "-batch", "-"], "\n".join(commands) + "\n"))

    def tc(self, commands: Sequence[str]) -> None:
        """Run a batch of `tc` commands, given without the word `tc`, in the namespace. Raises CommandError."""
        if commands:
            self.enter(lambda: run(["tc", "-batch", "-"], "\n".join(commands) + "\n"))

    def nft(self, ruleset: str) -> None:
        """Load an nftables ruleset in the namespace, atomically. Raises CommandError."""
        self.enter(lambda: run(["nft", "-f", "-"], ruleset))

    def set_sysctls(self, settings: Mapping[str, str]) -> None:
        """Set the namespace's network settings, given as paths under /proc/sys/net and values."""
        self.enter(lambda: _set_sysctls(settings))

    def await_link(self, name: str, timeout_s: float = 5.0) -> None:
        """Wait until a link forwards packets, because the kernel drops the first ones. Both ends must be up.

        Returns after `timeout_s` in any case, because senders retransmit lost packets.
        """

        def wait() -> None:
            deadline = time.monotonic() + timeout_s
            while not _flags(name) & _IFF_RUNNING and time.monotonic() < deadline:
                time.sleep(0.002)

        self.enter(wait)

    def listen(self, address: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """Open a bound socket in the namespace. A stream socket also listens. Raises OSError."""
        return self.enter(lambda: _listen(address, port, kind))

    def close(self) -> None:
        """Close the namespace's descriptor."""
        os.close(self.fd)


def _create(sysctls: Mapping[str, str]) -> int:
    """Move the calling thread to a new network namespace with loopback; return its descriptor."""
    _call("unshare", CLONE_NEWNET)
    _set_sysctls(sysctls)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        fcntl.ioctl(control_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _flags("lo") | _IFF_UP))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _flags(name: str) -> int:
    """Return the flags of a network interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control_socket:
        answer = fcntl.ioctl(control_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
    return int(struct.unpack("16sH14x", answer)[1])


def _set_sysctls(settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        path = Path("/proc/sys/net") / key
        if path.exists() or not key.startswith("ipv6/"):  # a kernel without IPv6 needs none of its settings
            path.write_text(value)


def _listen(address: str, port: int, kind: socket.SocketKind) -> socket.socket:
    listener = socket.socket(socket.AF_INET, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        if kind == socket.SOCK_STREAM:
            listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
