"""The agent's end of a session: a stream to a port of the host, as AWS-StartSSHSession asks for."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable

from localcloud.sessions import messages
from localcloud.sessions.channel import BLOCK, Channel
from localcloud.sessions.websocket import WebSocket

log = logging.getLogger("localcloud.sessions")


def serve(
    data_channel: WebSocket, *, session_id: str, target: str, port: int, dial: Callable[[], socket.socket]
) -> None:
    """Do the handshake for a stream, connect it to what `dial` opens, and copy bytes until either end closes."""
    channel = Channel(data_channel, messages.OUTPUT)
    try:
        channel.send(messages.handshake_request(port), messages.HANDSHAKE_REQUEST)
        stream = channel.receive()
        for message in stream:
            if message.payload_type == messages.HANDSHAKE_RESPONSE:
                break
        else:
            return
        channel.send(messages.handshake_complete(), messages.HANDSHAKE_COMPLETE)
        try:
            connection = dial()
        except OSError as error:
            channel.send_control(
                messages.channel_closed(session_id, target, f"Connection to destination port failed: {error}")
            )
            return
        with connection:
            threading.Thread(target=_copy_output, args=(connection, channel, session_id, target), daemon=True).start()
            for message in stream:
                if message.payload_type == messages.FLAG and message.payload == messages.TERMINATE:
                    break
                if message.payload_type == messages.DATA:
                    connection.sendall(message.payload)
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
    except (OSError, messages.MessageError) as error:
        log.info("session %s ended: %s", session_id, error)
    finally:
        channel.close()


def _copy_output(connection: socket.socket, channel: Channel, session_id: str, target: str) -> None:
    with contextlib.suppress(OSError):
        while block := connection.recv(BLOCK):
            channel.send(block)
    channel.send_control(messages.channel_closed(session_id, target, ""))
    channel.close()
