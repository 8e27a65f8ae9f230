"""Error replies use the protocol of the request's service."""

from __future__ import annotations

import json

import pytest

from localcloud.api import error_replies


def _environ(service: str, **more: str) -> dict[str, str]:
    scope = f"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host"
    return {"HTTP_AUTHORIZATION": scope, **more}


def test_service_and_region_come_from_the_signature() -> None:
    assert error_replies.service_of(_environ("autoscaling")) == ("autoscaling", "us-east-1")
    assert error_replies.service_of({}) == ("", "")


@pytest.mark.parametrize(
    ("service", "start"),
    [("ec2", "<Response><Errors>"), ("s3", "<Error>"), ("cloudformation", "<ErrorResponse>")],
)
def test_xml_services_get_xml(service: str, start: str) -> None:
    status, headers, body = error_replies.reply(_environ(service), "Broken", "a < b")
    assert (status, headers) == (400, [("Content-Type", "text/xml")])
    assert start in body.decode()
    assert "<Code>Broken</Code><Message>a &lt; b</Message>" in body.decode()


def test_json_services_get_json() -> None:
    target = _environ("ssm", HTTP_X_AMZ_TARGET="AmazonSSM.GetParameter")
    for environ in (target, _environ("elasticfilesystem")):
        _, headers, body = error_replies.reply(environ, "Broken", "why")
        assert json.loads(body)["__type"] == "Broken"
        assert ("x-amzn-ErrorType", "Broken") in headers
