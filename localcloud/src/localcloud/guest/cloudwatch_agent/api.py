"""The agent's API calls, with the credentials of the instance's role.

The embedded cloud does not verify signatures, so none is computed. The access key identifies the caller.
"""

from __future__ import annotations

import dataclasses
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ApiError(RuntimeError):
    """An error response. Carries `code`, AWS's error code."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclasses.dataclass(frozen=True, kw_only=True)
class Datum:
    """Values of one metric."""

    name: str
    dimensions: Mapping[str, str]
    values: Sequence[float]
    unit: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """Temporary credentials of a role. The secret is not needed, because nothing is signed."""

    access_key: str
    token: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Api:
    """Client of the embedded cloud's API. All methods raise ApiError, and the errors of `credentials`."""

    endpoint: str
    region: str
    credentials: Callable[[], Credentials]
    """Returns the current credentials."""
    timeout_s: float = 10.0

    def parameter(self, name: str) -> str:
        """Return the value of an SSM parameter."""
        found = self._json("ssm", "AmazonSSM.GetParameter", {"Name": name})
        return str(found["Parameter"]["Value"])

    def create_stream(self, group: str, stream: str) -> None:
        """Create a log stream if it does not exist."""
        try:
            self._json("logs", "Logs_20140328.CreateLogStream", {"logGroupName": group, "logStreamName": stream})
        except ApiError as error:
            if error.code != "ResourceAlreadyExistsException":
                raise

    def put_events(self, group: str, stream: str, lines: Sequence[str]) -> None:
        """Append lines to an existing log stream, with the present time."""
        now_ms = int(time.time() * 1000)
        events = [{"timestamp": now_ms, "message": line} for line in lines]
        body = {"logGroupName": group, "logStreamName": stream, "logEvents": events}
        self._json("logs", "Logs_20140328.PutLogEvents", body)

    def put_metrics(self, namespace: str, data: Sequence[Datum]) -> None:
        """Send values of metrics."""
        form = {"Action": "PutMetricData", "Version": "2010-08-01", "Namespace": namespace}
        for number, datum in enumerate(data, start=1):
            prefix = f"MetricData.member.{number}"
            form[f"{prefix}.MetricName"], form[f"{prefix}.Unit"] = datum.name, datum.unit
            for place, value in enumerate(datum.values, start=1):
                form[f"{prefix}.Values.member.{place}"] = repr(float(value))
            for place, (name, value_of) in enumerate(datum.dimensions.items(), start=1):
                form[f"{prefix}.Dimensions.member.{place}.Name"] = name
                form[f"{prefix}.Dimensions.member.{place}.Value"] = value_of
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._send("monitoring", urllib.parse.urlencode(form).encode(), headers)

    def _json(self, service: str, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": target}
        answer = self._send(service, json.dumps(body).encode(), headers)
        found: dict[str, Any] = json.loads(answer or b"{}")
        return found

    def _send(self, service: str, body: bytes, headers: dict[str, str]) -> bytes:
        now = time.gmtime()
        credentials = self.credentials()
        scope = f"{credentials.access_key}/{time.strftime('%Y%m%d', now)}/{self.region}/{service}/aws4_request"
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, Signature=0"
        headers["X-Amz-Security-Token"] = credentials.token
        headers["X-Amz-Date"] = time.strftime("%Y%m%dT%H%M%SZ", now)
        request = urllib.request.Request(f"{self.endpoint}/", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            raise ApiError(_code(text), f"{service} answered {error.code}: {text[:500]}") from None
        except (OSError, urllib.error.URLError) as error:
            cause = getattr(error, "reason", error)
            raise ApiError(
                "Unreachable", f"cannot reach {self.endpoint}: {getattr(cause, 'strerror', None) or cause}"
            ) from None


def _code(text: str) -> str:
    try:
        return str(json.loads(text).get("__type", "")).rpartition("#")[2]
    except (ValueError, AttributeError):
        return ""
