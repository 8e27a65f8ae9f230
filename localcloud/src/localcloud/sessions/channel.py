"""One end of a data channel: a stream of messages, in order and acknowledged."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Final

from localcloud.sessions.messages import ACKNOWLEDGE, CHANNEL_CLOSED, DATA, Message, acknowledgement
from localcloud.sessions.websocket import WebSocket

BLOCK: Final = 1 << 14
"""Bytes of one message. AWS's own programs send 1 KiB, and take any size."""
_IN_FLIGHT: Final = 64


class Channel:
    """Send and receive the messages of a stream over a WebSocket that keeps their order.

    A receiver must never wait for the peer to receive, or both would wait forever: a thread of its own sends, and only
    senders of data wait for room in its queue.
    """

    def __init__(self, socket: WebSocket, message_type: str) -> None:
        self._socket, self._type = socket, message_type
        self._sequence = 0
        self._expected = 0
        self._early: dict[int, Message] = {}
        self._room = threading.BoundedSemaphore(_IN_FLIGHT)
        self._queue: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._broken = threading.Event()
        self._sender = threading.Thread(target=self._send_all, name="data-channel", daemon=True)
        self._sender.start()

    def send(self, payload: bytes, payload_type: int = DATA) -> None:
        """Send the next message of the stream. Raises BrokenPipeError where the channel has ended."""
        while not self._room.acquire(timeout=1.0) and not self._broken.is_set():
            pass
        if self._broken.is_set():
            raise BrokenPipeError("the data channel has ended")
        message = Message(type=self._type, sequence=self._sequence, payload=payload, payload_type=payload_type)
        self._sequence += 1
        self._queue.put((message.encode(), True))

    def send_control(self, message: Message) -> None:
        """Send a message that is not part of the stream."""
        self._queue.put((message.encode(), False))

    def receive(self) -> Iterator[Message]:
        """Yield the peer's stream in order, each message once, until the channel ends. Raises MessageError, OSError."""
        while (got := self._socket.receive()) is not None:
            if isinstance(got, str):
                continue
            message = Message.decode(got)
            if message.type == CHANNEL_CLOSED:
                return
            if message.type == ACKNOWLEDGE or message.type.endswith("_publication"):
                continue
            self.send_control(acknowledgement(message))
            if message.sequence >= self._expected:
                self._early[message.sequence] = message
            while self._expected in self._early:
                yield self._early.pop(self._expected)
                self._expected += 1

    def close(self) -> None:
        """End the channel once everything is sent."""
        self._queue.put(None)
        self._sender.join(timeout=5.0)
        self._socket.close()

    def _send_all(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                data, took_room = item
                self._socket.send(data)
                if took_room:
                    self._room.release()
        except OSError:
            self._broken.set()
