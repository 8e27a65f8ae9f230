"""The laptop's session-manager-plugin: standard input and output become a stream to a port of a host.

The AWS CLI starts it as it starts AWS's own plugin: the answer of StartSession (or the name of the variable that holds
it), region, operation, profile, parameters, endpoint.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Final
from urllib.parse import urlsplit

from localcloud.errors import LocalCloudError
from localcloud.sessions import messages
from localcloud.sessions.channel import BLOCK, Channel
from localcloud.sessions.websocket import connect

VERSION: Final = "1.2.764.0"
"""The version of AWS's plugin whose command line this one takes."""
_VARIABLE: Final = "AWS_SSM_START_SESSION_RESPONSE"


def main(arguments: list[str]) -> int:
    """Run the plugin; return its exit status."""
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    if len(arguments) < 3 or arguments[2] != "StartSession":
        print("The embedded cloud's session-manager-plugin; `aws ssm start-session` calls it.", file=sys.stderr)
        return 2
    given = os.environ.get(arguments[0], "") if arguments[0].startswith(_VARIABLE) else arguments[0]
    try:
        return _run(json.loads(given))
    except (LocalCloudError, OSError, ValueError, KeyError) as error:
        print(f"Cannot perform start session: {error}", file=sys.stderr)
        return 1


def _run(session: dict[str, str]) -> int:
    url = urlsplit(session["StreamUrl"])
    if url.scheme != "ws":
        raise ValueError(f"{session['StreamUrl']} is not of the embedded cloud; use AWS's own session-manager-plugin")
    connection = socket.create_connection((url.hostname or "", url.port or 80), timeout=10)
    connection.settimeout(None)
    opened = connect(connection, url.netloc, f"{url.path}?{url.query}")
    opened.send(messages.open_data_channel(session["TokenValue"], VERSION))
    channel = Channel(opened, messages.INPUT)
    print(f"\nStarting session with SessionId: {session['SessionId']}", flush=True)
    for message in channel.receive():
        if message.payload_type == messages.HANDSHAKE_REQUEST:
            channel.send(messages.handshake_response(message.document(), VERSION), messages.HANDSHAKE_RESPONSE)
        elif message.payload_type == messages.HANDSHAKE_COMPLETE:
            threading.Thread(target=_copy_input, args=(channel,), daemon=True).start()
        elif message.payload_type == messages.DATA:
            _write(message.payload)
    return 0


def _copy_input(channel: Channel) -> None:
    try:
        while block := os.read(sys.stdin.fileno(), BLOCK):
            channel.send(block)
        channel.send(messages.TERMINATE, messages.FLAG)
    except OSError:
        return  # The channel has ended, and the program with it.


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
