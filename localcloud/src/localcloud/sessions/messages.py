"""Messages of a Session Manager data channel, as the open sources of AWS's agent and plugin lay them out.

| header length (all before the payload length), 4 | type, 32 | schema, 4 | created, 8 | sequence, 8 | flags, 8 |
| id, 16, its second half first | SHA-256 of the payload, 32 | payload type, 4 | payload length, 4 | payload |

All numbers are big-endian.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from localcloud.errors import LocalCloudError

# Types of messages.
INPUT: Final = "input_stream_data"
OUTPUT: Final = "output_stream_data"
ACKNOWLEDGE: Final = "acknowledge"
CHANNEL_CLOSED: Final = "channel_closed"

# Types of payloads.
DATA: Final = 1
HANDSHAKE_REQUEST: Final = 5
HANDSHAKE_RESPONSE: Final = 6
HANDSHAKE_COMPLETE: Final = 7
FLAG: Final = 10

# The flag by which a client ends its session.
TERMINATE: Final = (2).to_bytes(4, "big")

_HEADER: Final = struct.Struct(">I32sIQqQ16s32sI")
_LENGTH: Final = struct.Struct(">I")


class MessageError(LocalCloudError, ValueError):
    """Report bytes that are not a message of a data channel."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """One message."""

    type: str
    sequence: int
    payload: bytes
    payload_type: int = 0
    id: uuid.UUID = dataclasses.field(default_factory=uuid.uuid4)
    created_ms: int = 0
    """Milliseconds since 1970."""

    def encode(self) -> bytes:
        """Return the message as it is sent."""
        id = self.id.bytes[8:] + self.id.bytes[:8]
        header = _HEADER.pack(
            _HEADER.size,
            self.type.encode().ljust(32),
            1,
            self.created_ms or int(time.time() * 1000),
            self.sequence,
            0,
            id,
            hashlib.sha256(self.payload).digest(),
            self.payload_type,
        )
        return header + _LENGTH.pack(len(self.payload)) + self.payload

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """Parse a message. Raises MessageError."""
        start = _HEADER.size + _LENGTH.size
        if len(data) < start:
            raise MessageError(f"{len(data)} bytes are not a message: the header alone has {start}")
        size, kind, _, created_ms, sequence, _, id, digest, payload_type = _HEADER.unpack_from(data)
        (length,) = _LENGTH.unpack_from(data, _HEADER.size)
        payload = data[start:]
        if size != _HEADER.size or length != len(payload):
            raise MessageError(f"a header of {size} bytes and a payload of {length} do not make {len(data)}")
        if payload and hashlib.sha256(payload).digest() != digest:
            raise MessageError("the payload does not match its digest")
        return cls(
            type=kind.decode("utf-8", "replace").strip("\0 "),
            sequence=sequence,
            payload=payload,
            payload_type=payload_type,
            id=uuid.UUID(bytes=id[8:] + id[:8]),
            created_ms=created_ms,
        )

    def document(self) -> dict[str, Any]:
        """Return the payload's JSON object. Raises MessageError."""
        try:
            found = json.loads(self.payload)
        except ValueError as error:
            raise MessageError(f"the payload is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise MessageError("the payload is not a JSON object")
        return found


def acknowledgement(of: Message) -> Message:
    """Return the acknowledgement of a message."""
    content = {
        "AcknowledgedMessageType": of.type,
        "AcknowledgedMessageId": str(of.id),
        "AcknowledgedMessageSequenceNumber": of.sequence,
        "IsSequentialMessage": True,
    }
    return Message(type=ACKNOWLEDGE, sequence=0, payload=_json(content))


def handshake_request(port: int) -> bytes:
    """Return the payload with which an agent starts the handshake for a stream to a port of its host."""
    action = {
        "ActionType": "SessionType",
        "ActionParameters": {"SessionType": "Port", "Properties": {"portNumber": str(port)}},
    }
    return _json({"AgentVersion": "3.3.0.0", "RequestedClientActions": [action]})


def handshake_response(request: Mapping[str, Any], version: str) -> bytes:
    """Return the payload with which a client accepts a stream, and rejects any other action."""
    done = []
    for action in request.get("RequestedClientActions", []):
        fits = action["ActionType"] == "SessionType" and action["ActionParameters"].get("SessionType") == "Port"
        error = "" if fits else f"Unsupported action {action['ActionType']}"
        done.append(
            {"ActionType": action["ActionType"], "ActionStatus": 1 if fits else 3, "ActionResult": None, "Error": error}
        )
    errors = [each["Error"] for each in done if each["Error"]]
    return _json({"ClientVersion": version, "ProcessedClientActions": done, "Errors": errors or None})


def handshake_complete() -> bytes:
    """Return the payload with which an agent ends the handshake."""
    return _json({"HandshakeTimeToComplete": 0, "CustomerMessage": ""})


def channel_closed(session_id: str, target: str, reason: str) -> Message:
    """Return the message with which an agent ends a session."""
    content = {
        "MessageId": str(uuid.uuid4()),
        "CreatedDate": str(int(time.time() * 1000)),
        "DestinationId": target,
        "SessionId": session_id,
        "MessageType": CHANNEL_CLOSED,
        "SchemaVersion": 1,
        "Output": reason,
    }
    return Message(type=CHANNEL_CLOSED, sequence=0, payload=_json(content))


def open_data_channel(token: str, version: str) -> str:
    """Return the text with which either end opens its data channel."""
    content = {
        "MessageSchemaVersion": "1.0",
        "RequestId": str(uuid.uuid4()),
        "TokenValue": token,
        "ClientId": str(uuid.uuid4()),
        "ClientVersion": version,
    }
    return json.dumps(content)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()
