"""The laptop's session-manager-plugin: connects standard input and output to a port of a host.

The AWS CLI starts it with the arguments of AWS's own plugin: the response of StartSession (or the name of the variable
with the response), region, operation, profile, parameters, endpoint.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Final
from urllib.parse import urlsplit

from localcloud.errors import error_text

VERSION: Final = "1.2.764.0"
"""The version of AWS's plugin with the same command line."""
_VARIABLE: Final = "AWS_SSM_START_SESSION_RESPONSE"
_BLOCK_BYTES: Final = 1 << 16


def main(arguments: list[str]) -> int:
    """Connect standard input and output to the session in `arguments` until it ends, or print the version.

    Return the exit status: 1 after an error, which is printed, 2 for wrong arguments, else 0.
    """
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    if len(arguments) < 3 or arguments[2] != "StartSession":
        text = "session-manager-plugin: wrong arguments; `aws ssm start-session` calls this program with the right ones"
        print(text, file=sys.stderr)
        return 2
    given = os.environ.get(arguments[0], "") if arguments[0].startswith(_VARIABLE) else arguments[0]
    try:
        return _run(json.loads(given))
    except json.JSONDecodeError:
        print("Cannot perform start session: the response of StartSession is not JSON", file=sys.stderr)
    except KeyError as error:
        print(f"Cannot perform start session: the response of StartSession has no {error}", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"Cannot perform start session: {error_text(error)}", file=sys.stderr)
    return 1


def _run(session: dict[str, str]) -> int:
    """Connect standard input and output to a session's stream until it is closed; return 0.

    `session` is the response of StartSession. Raises OSError, ValueError or KeyError.
    """
    url = urlsplit(session["StreamUrl"])
    if url.scheme != "tcp":
        raise ValueError(
            f"{session['StreamUrl']} is not an address of the embedded cloud; use AWS's session-manager-plugin"
        )
    with socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as connection:
        connection.settimeout(None)
        connection.sendall(session["TokenValue"].encode())
        print(f"\nStarting session with SessionId: {session['SessionId']}", flush=True)
        threading.Thread(target=_copy_input, args=(connection,), daemon=True).start()
        while block := connection.recv(_BLOCK_BYTES):
            while block:
                block = block[os.write(sys.stdout.fileno(), block) :]
    return 0


def _copy_input(connection: socket.socket) -> None:
    try:
        while block := os.read(sys.stdin.fileno(), _BLOCK_BYTES):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the session has ended, so the program exits too


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
