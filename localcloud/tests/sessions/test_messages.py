"""Messages of a data channel: their layout is AWS's."""

from __future__ import annotations

import hashlib
import json
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.sessions import messages
from localcloud.sessions.messages import Message, MessageError

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_the_layout_is_the_one_that_awss_agent_and_plugin_read() -> None:
    found = Message(
        type="input_stream_data", sequence=7, payload=b"hello", payload_type=1, id=ID, created_ms=5
    ).encode()
    assert found[0:4] == (116).to_bytes(4, "big")
    assert found[4:36] == b"input_stream_data" + b" " * 15
    assert found[36:40] == (1).to_bytes(4, "big")
    assert found[40:48] == (5).to_bytes(8, "big")
    assert found[48:56] == (7).to_bytes(8, "big")
    assert found[56:64] == bytes(8)
    assert found[64:80].hex() == "8899aabbccddeeff0011223344556677"
    assert found[80:112] == hashlib.sha256(b"hello").digest()
    assert found[112:116] == (1).to_bytes(4, "big")
    assert found[116:120] == (5).to_bytes(4, "big")
    assert found[120:] == b"hello"


@given(
    kind=st.sampled_from([messages.INPUT, messages.OUTPUT, messages.ACKNOWLEDGE, messages.CHANNEL_CLOSED]),
    sequence=st.integers(0, 2**63 - 1),
    payload=st.binary(max_size=2000),
    payload_type=st.integers(0, 12),
    id=st.uuids(),
    created_ms=st.integers(1, 2**63 - 1),
)
def test_what_is_encoded_decodes_to_itself(
    kind: str, sequence: int, payload: bytes, payload_type: int, id: uuid.UUID, created_ms: int
) -> None:
    message = Message(
        type=kind, sequence=sequence, payload=payload, payload_type=payload_type, id=id, created_ms=created_ms
    )
    assert Message.decode(message.encode()) == message


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:100], "100 bytes are not a message: the header alone has 120"),
        (lambda data: data[:-1], "a header of 116 bytes and a payload of 5 do not make 124"),
        (lambda data: data[:-1] + b"!", "the payload does not match its digest"),
    ],
)
def test_a_damaged_message_is_refused(damage: object, said: str) -> None:
    whole = Message(type=messages.OUTPUT, sequence=0, payload=b"hello").encode()
    with pytest.raises(MessageError) as refused:
        Message.decode(damage(whole))  # type: ignore[operator]  # one of the functions above
    assert str(refused.value) == said


@given(data=st.binary(max_size=400))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        Message.decode(data)
    except MessageError:
        return
    assert len(data) >= 120


def test_an_acknowledgement_names_the_message_as_a_whole() -> None:
    told = messages.acknowledgement(Message(type=messages.OUTPUT, sequence=3, payload=b"x", id=ID))
    assert told.type == "acknowledge"
    assert told.document() == {
        "AcknowledgedMessageType": "output_stream_data",
        "AcknowledgedMessageId": str(ID),
        "AcknowledgedMessageSequenceNumber": 3,
        "IsSequentialMessage": True,
    }


def test_a_client_agrees_to_a_stream_and_to_nothing_else() -> None:
    agreed = json.loads(messages.handshake_response(json.loads(messages.handshake_request(22)), "1.2"))
    assert [action["ActionStatus"] for action in agreed["ProcessedClientActions"]] == [1]
    assert agreed["Errors"] is None
    asked = {"RequestedClientActions": [{"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "k"}}]}
    refused = json.loads(messages.handshake_response(asked, "1.2"))
    assert refused["Errors"] == ["Unsupported action KMSEncryption"]


def test_a_header_that_claims_another_size_is_refused() -> None:
    data = Message(type=messages.OUTPUT, sequence=0, payload=b"").encode()
    assert len(data) == 120 and Message.decode(data).payload == b""
    with pytest.raises(MessageError, match="119 bytes are not a message: the header alone has 120"):
        Message.decode(data[:-1])
    with pytest.raises(MessageError, match="a header of 117 bytes and a payload of 0 do not make 120"):
        Message.decode((117).to_bytes(4, "big") + data[4:])


@pytest.mark.parametrize(
    ("payload", "said"),
    [(b"{", "^the payload is not JSON: Expecting property"), (b"[1]", "^the payload is not a JSON object$")],
)
def test_a_payload_that_is_no_document_is_refused(payload: bytes, said: str) -> None:
    with pytest.raises(MessageError, match=said):
        Message(type=messages.OUTPUT, sequence=0, payload=payload).document()


def test_a_message_is_stamped_with_the_time_unless_it_has_one() -> None:
    assert Message(type=messages.OUTPUT, sequence=0, payload=b"").created_ms == 0
    before = time.time() * 1000 - 1
    stamped = Message.decode(Message(type=messages.OUTPUT, sequence=0, payload=b"").encode())
    assert before <= stamped.created_ms <= time.time() * 1000


def test_the_end_of_a_session_names_it_its_target_and_the_reason() -> None:
    told = messages.channel_closed("session-1", "i-1", "the host is gone")
    found = told.document()
    assert (told.type, found["MessageType"]) == ("channel_closed", "channel_closed")
    assert (found["SessionId"], found["DestinationId"], found["Output"]) == ("session-1", "i-1", "the host is gone")
    assert found["SchemaVersion"] == 1
    assert abs(int(found["CreatedDate"]) - time.time() * 1000) < 60_000
    assert uuid.UUID(found["MessageId"]) != uuid.UUID(messages.channel_closed("s", "i", "").document()["MessageId"])
    assert (told.sequence, told.payload_type) == (0, 0)


def test_a_data_channel_is_opened_with_its_token() -> None:
    found = json.loads(messages.open_data_channel("secret", "1.2"))
    assert (found["TokenValue"], found["ClientVersion"], found["MessageSchemaVersion"]) == ("secret", "1.2", "1.0")
    other = json.loads(messages.open_data_channel("secret", "1.2"))
    ids = [uuid.UUID(each[key]) for each in (found, other) for key in ("RequestId", "ClientId")]
    assert len(set(ids)) == 4
    assert set(found) == {"MessageSchemaVersion", "RequestId", "TokenValue", "ClientId", "ClientVersion"}


def test_the_handshake_is_as_aws_has_it() -> None:
    (action,) = json.loads(messages.handshake_request(2049))["RequestedClientActions"]
    assert action == {
        "ActionType": "SessionType",
        "ActionParameters": {"SessionType": "Port", "Properties": {"portNumber": "2049"}},
    }
    assert json.loads(messages.handshake_request(2049))["AgentVersion"] == "3.3.0.0"
    shell = {"ActionType": "SessionType", "ActionParameters": {"SessionType": "Standard_Stream"}}
    answer = json.loads(messages.handshake_response({"RequestedClientActions": [action, shell]}, "1.2"))
    assert answer == {
        "ClientVersion": "1.2",
        "ProcessedClientActions": [
            {"ActionType": "SessionType", "ActionStatus": 1, "ActionResult": None, "Error": ""},
            {
                "ActionType": "SessionType",
                "ActionStatus": 3,
                "ActionResult": None,
                "Error": "Unsupported action SessionType",
            },
        ],
        "Errors": ["Unsupported action SessionType"],
    }
    assert json.loads(messages.handshake_response({}, "1.2"))["ProcessedClientActions"] == []
    assert json.loads(messages.handshake_complete()) == {"HandshakeTimeToComplete": 0, "CustomerMessage": ""}


def test_types_are_numbered_as_aws_numbers_them() -> None:
    assert (messages.DATA, messages.HANDSHAKE_REQUEST, messages.HANDSHAKE_RESPONSE) == (1, 5, 6)
    assert (messages.HANDSHAKE_COMPLETE, messages.FLAG, messages.TERMINATE) == (7, 10, b"\0\0\0\2")
    names = (messages.INPUT, messages.OUTPUT, messages.ACKNOWLEDGE, messages.CHANNEL_CLOSED)
    assert names == ("input_stream_data", "output_stream_data", "acknowledge", "channel_closed")


def test_a_type_may_be_padded_with_zeros_and_one_that_is_not_text_is_no_error() -> None:
    data = Message(type="", sequence=0, payload=b"").encode()
    assert Message.decode(data[:4] + b"acknowledge".ljust(32, b"\0") + data[36:]).type == "acknowledge"
    assert Message.decode(data[:4] + b"\xffa".ljust(32) + data[36:]).type == "\ufffda"


def test_an_acknowledgement_has_no_place_in_the_sequence() -> None:
    told = messages.acknowledgement(Message(type=messages.OUTPUT, sequence=3, payload=b"x", id=ID))
    assert (told.sequence, told.payload_type) == (0, 0)
