"""Errors of the AWS API and of boto3, converted to errors of the tasks."""

from __future__ import annotations

import contextlib
import email.utils
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.cli import REINSTALL
from cluster.errors import AwsError, NoAnswerError

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

THROTTLED: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
     "RequestThrottledException", "TooManyRequestsException", "SlowDown"}
)  # fmt: skip
"""Error codes of a throttled call ("Retry behavior", AWS SDKs reference guide)."""
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_INVALID = {
    "InvalidClientTokenId",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
}
_SKEWED = {"RequestTimeTooSkewed", "InvalidSignatureException", "RequestExpired", "SignatureDoesNotMatch", *_INVALID}
_DENIED = {"AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "403"}
_SIGN_IN = "sign in again (`aws login`, `aws sso login`, or fresh keys), then repeat"
MAX_SKEW_S: Final = 240.0
"""Maximum clock difference before it is reported. AWS accepts signatures for five minutes."""
SHOWN_ANSWER: Final = 300
"""Number of characters of an unreadable answer in its message."""
_SIGN_IN_TO_PROXY: Final = "set HTTPS_PROXY and HTTP_PROXY to http://USER:PASSWORD@HOST:PORT"
_FOREIGN: Final = (
    "a proxy or the login page of your network may have sent it; sign in to the network, check HTTPS_PROXY, NO_PROXY "
    "and AWS_ENDPOINT_URL, then repeat"
)
_WEB_PAGE: Final = re.compile(rb"\s*<(!doctype\s+)?html\b", re.IGNORECASE)
_REFUSED_BY_PROXY: Final = re.compile(r"Tunnel connection failed: (?P<answer>(?P<status>\d{3})[^')\"]*)")
"""A proxy's answer in urllib3's error."""
_PROFILES: Final = "`aws configure list-profiles` lists the profiles; then set AWS_PROFILE"
_VARIABLES: Final = "check AWS_ENDPOINT_URL, AWS_MAX_ATTEMPTS, AWS_CA_BUNDLE and ~/.aws/config"
_NEW_CODE: Final = "repeat the command with the next code of your MFA device; AWS accepts each code once"
_CORRECT: Final = "correct ~/.aws/config; `aws configure list` shows the settings in use"
_FAILURES: Final = (
    (
        ("NoCredentialsError", "NoAuthTokenError"),
        "no AWS credentials: {}",
        "run `aws login`, `aws configure` or `aws sso login`, or set AWS_PROFILE; "
        "without an account: `python -m localcloud start`",
    ),
    (
        ("PartialCredentialsError",),
        "incomplete AWS credentials: {}",
        "set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither; the same applies in a profile",
    ),
    (("NoRegionError",), "no AWS region is set", "set AWS_REGION, or a region in your profile"),
    (
        ("InvalidRegionError", "UnknownRegionError", "UnknownEndpointError", "EndpointVariantError"),
        "invalid AWS region: {}",
        "set AWS_REGION to the name of a region, such as us-east-1",
    ),
    (("ProfileNotFound",), "{}", _PROFILES),
    (("ConfigParseError", "ConfigNotFound"), "{}", _CORRECT),
    (
        ("InfiniteLoopConfigError", "InvalidConfigError", "UnknownCredentialError", "InvalidDefaultsMode",
         "InvalidRetryConfigurationError", "InvalidSTSRegionalEndpointsConfigError", "InvalidProxiesConfigError",
         "InvalidS3AddressingStyleError", "InvalidChecksumConfigError", "InvalidIMDSEndpointError",
         "InvalidIMDSEndpointModeError", "InvalidEndpointConfigurationError", "UnknownTokenProviderError"),
        "invalid AWS settings: {}",
        f"{_CORRECT}; environment variables (AWS_...) take precedence over the file",
    ),
    (
        ("UnauthorizedSSOTokenError", "SSOTokenLoadError", "TokenRetrievalError", "SSOError"),
        "the AWS session has expired or does not exist: {}",
        "run `aws sso login{profile}`, then repeat",
    ),
    (("LoginInsufficientPermissions",), "{}", "request this permission, or sign in as another user"),
    (
        ("LoginError",),
        "the AWS session has expired or does not exist: {}",
        "run `aws login{profile}`, then repeat",
    ),
    (("MissingDependencyException",), "{}", "{reinstall}, which installs botocore[crt]"),
    (("RefreshWithMFAUnsupportedError",), "the session of the role with MFA has expired", "repeat the command"),
    (
        ("CredentialRetrievalError", "MetadataRetrievalError"),
        "no AWS credentials: {}",
        "if your profile has a credential_process, run it by hand; otherwise choose another profile with AWS_PROFILE",
    ),
    (
        ("SSLError",),
        "the certificate of the AWS API is not accepted: {}",
        "if a proxy inspects TLS, set AWS_CA_BUNDLE to the file with the proxy's certificates",
    ),
    (("ProxyConnectionError",), "the HTTP proxy does not answer: {}", "check HTTPS_PROXY and NO_PROXY"),
    (
        ("HTTPClientError", "ConnectionError"),
        "the AWS API does not answer: {}",
        "check the network, proxies and firewalls, AWS_REGION{region}, AWS_ENDPOINT_URL and AWS_CA_BUNDLE, then repeat",
    ),
    (("BotoCoreError",), "{}", "check `aws configure list`, AWS_PROFILE and AWS_REGION"),
)  # fmt: skip
"""Message and remedy, by names of botocore's exceptions. The first match is used."""
_ALWAYS_ENABLED: Final = frozenset(
    {"us-east-1", "us-east-2", "us-west-1", "us-west-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3",
     "ap-south-1", "ap-southeast-1", "ap-southeast-2", "ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1",
     "eu-west-2", "eu-west-3", "sa-east-1", "cn-north-1", "cn-northwest-1"}
)  # fmt: skip
"""Regions that are enabled in every account ("AWS Regions", Account Management Reference). Newer ones are opt-in."""
_REFUSALS: Final = (
    (
        {"PendingVerification"},
        "AWS has not verified this account yet: {message}",
        "wait for the e-mail from AWS, which can take some hours, then repeat; if no e-mail arrives, ask AWS Support",
    ),
    (
        {"OptInRequired", "SubscriptionRequiredException", "Blocked", "AccountProblem", "NotSignedUp"},
        "this account may not use this AWS service ({code}): {message}",
        "accept the terms at the address in the message, if it has one; otherwise complete the account's "
        "registration (payment, telephone) in the AWS console, or ask AWS Support",
    ),
    (_EXPIRED, "the AWS session has expired ({code})", _SIGN_IN),
    (
        _INVALID,
        "AWS does not accept the credentials ({code})",
        "check the keys of AWS_PROFILE or in AWS_ACCESS_KEY_ID; `aws configure list` shows which are in use",
    ),
    (_DENIED, "AWS denied the request: {message}", "request this permission, or use another profile"),
    (
        THROTTLED,
        "AWS throttles {operation} ({code}): the account makes too many calls. Retries for most of a minute failed",
        "wait a minute and repeat the command; nothing is lost. Other programs of the account may cause the calls",
    ),
)
"""Message and remedy, by AWS's error codes."""


def reject_foreign_answer(**event: Any) -> None:
    """Raise NoAnswerError if a proxy or another server answered instead of AWS: with status 407, or with a web page.

    botocore calls this function before it parses an answer, because it would parse some pages as an empty answer. Web
    pages with status 5xx are ignored here, because botocore itself repeats such calls.
    """
    from urllib.request import getproxies

    from botocore.httpsession import mask_proxy_url

    operation, answer = event["operation_model"], event["response_dict"]
    status, body = answer["status_code"], answer["body"]  # the body of an object is not read yet
    where = f"{operation.service_model.service_id} {operation.name}"
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:  # of a call without TLS; otherwise see _REFUSED_BY_PROXY
        proxy = mask_proxy_url(getproxies().get("http", ""))
        raise NoAnswerError(f"the HTTP proxy {proxy} asks for a password (407)", where=where, remedy=_SIGN_IN_TO_PROXY)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and isinstance(body, bytes) and _WEB_PAGE.match(body):
        raise NoAnswerError(
            f"received a web page (HTTP status {status}) instead of an answer from AWS", where=where, remedy=_FOREIGN
        )


@contextlib.contextmanager
def aws_errors(action: str) -> Iterator[None]:
    """Convert errors of boto3 in the block to AwsError. Other errors are raised unchanged.

    `action` describes what was attempted. It becomes the error's `where`.
    """
    try:
        yield
    except Exception as error:
        if (explained := explain(error, action)) is None:
            raise
        raise explained from None


def explain(error: Exception, action: str = "") -> AwsError | None:
    """Convert an error of botocore, or a plain error that was raised in it, to an AwsError; None for other errors.

    The result is a NoAnswerError if AWS did not answer. `action` describes what was attempted.
    """
    if "botocore" not in sys.modules:
        return None
    from botocore import exceptions, parsers

    if isinstance(error, exceptions.ClientError):
        return _refused(error, action)
    if isinstance(error, parsers.ResponseParserError):
        what = f"the answer is not from AWS: {' '.join(str(error).split())[:SHOWN_ANSWER]}"
        return NoAnswerError(what, where=action, remedy=_FOREIGN)
    if isinstance(error, exceptions.ProxyConnectionError) and (
        refused := _REFUSED_BY_PROXY.search(str(error.kwargs["error"]))
    ):
        proxy = f"the HTTP proxy {error.kwargs['proxy_url']}"
        if int(refused["status"]) == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            return NoAnswerError(f"{proxy} asks for a password (407)", where=action, remedy=_SIGN_IN_TO_PROXY)
        remedy = "ask its administrators to allow the hosts of AWS, or name them in NO_PROXY"
        return NoAnswerError(
            f"{proxy} rejects the connection: {refused['answer'].strip()}", where=action, remedy=remedy
        )
    if isinstance(error, exceptions.BotoCoreError):
        profile = os.environ.get("AWS_PROFILE", "")
        words = {
            "reinstall": REINSTALL,
            "profile": f" --profile {profile}" if profile else "",
            "region": f" ({os.environ['AWS_REGION']})" if os.environ.get("AWS_REGION") else "",
        }
        cause = error.kwargs.get("error") if isinstance(error, exceptions.HTTPClientError) else None
        if isinstance(cause, ValueError) and "header" in str(cause):
            return AwsError(  # the text of this error contains the signature
                "the AWS credentials contain a line break or another character that is not allowed",
                where=action,
                remedy="check AWS_ACCESS_KEY_ID, AWS_SESSION_TOKEN and ~/.aws/credentials",
            )
        if isinstance(cause, ValueError):  # other addresses were parsed before; the text may have a password
            return AwsError(
                "the address of the HTTP proxy is invalid",
                where=action,
                remedy="set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to an address such as http://proxy.example:3128",
            )
        is_silent = isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError)
        if not is_silent and (unreadable := _unreadable()):
            return AwsError(unreadable, where=action, remedy="make this file readable for your user, then repeat")
        text = "; ".join([*getattr(error, "__notes__", ()), str(error)])
        for names, what, remedy in _FAILURES:
            if isinstance(error, tuple(getattr(exceptions, name) for name in names)):
                kind = NoAnswerError if is_silent else AwsError
                return kind(what.format(text), where=action, remedy=remedy.format(**words))
    # botocore reports some invalid settings with plain errors, such as an endpoint without http:// or an invalid number
    # of attempts.
    if isinstance(error, ValueError | OSError) and not isinstance(error, AwsError) and _raised_by_botocore(error):
        return AwsError(f"invalid AWS settings: {error}", where=action, remedy=_VARIABLES)
    return None


def _raised_by_botocore(error: Exception) -> bool:
    """Return whether an error comes from botocore, or from a module that reads credentials for botocore."""
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(names) and (names[-1].startswith(("botocore", "boto3")) or "botocore.credentials" in names)


def _unreadable() -> str:
    """Describe an AWS settings file that exists but cannot be read; "" if there is none. botocore treats such a file as
    missing.
    """
    for name, usual in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        path = Path(os.environ.get(name) or Path.home() / ".aws" / usual).expanduser()
        if path.exists() and not os.access(path, os.R_OK):
            return f"your AWS settings cannot be read: {path}: permission denied"
    return ""


def _skew_s(refusal: ClientError) -> float:
    """Return how many seconds AWS's clock is ahead of this one, from the answer's Date header; 0 if it is missing."""
    headers = refusal.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        there = email.utils.parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError):
        return 0.0
    return there.timestamp() - time.time()


def _region_to_enable() -> str:
    """Return the region in use if an account must enable it first, or ""."""
    from botocore.session import Session

    region = str(os.environ.get("AWS_REGION") or Session().get_config_variable("region") or "")
    return "" if region in _ALWAYS_ENABLED or "-gov-" in region else region


def _refused(refusal: ClientError, action: str) -> AwsError:
    """Convert a ClientError to an AwsError. For an unknown code, the remedy has the request ID. `action` describes what
    was attempted.
    """
    error: Mapping[str, Any] = refusal.response.get("Error", {})
    code, text = error.get("Code", ""), str(refusal)
    if "scoped to a valid region" in text:
        return AwsError(
            f"unknown AWS region: {text}", where=action, remedy="check AWS_REGION and your profile's region"
        )
    if code in _SKEWED and abs(skew := _skew_s(refusal)) > MAX_SKEW_S:
        way = "behind" if skew > 0 else "ahead of"
        return AwsError(
            f"this computer's clock is {abs(skew) / 60:.0f} minutes {way} AWS's, so AWS rejects its signatures",
            where=action,
            remedy="set the clock (`sudo timedatectl set-ntp true`; WSL: `sudo hwclock -s`), then repeat",
        )
    if "MultiFactorAuthentication failed" in text:
        return AwsError(f"AWS rejects the MFA code: {error.get('Message')}", where=action, remedy=_NEW_CODE)
    for codes, what, remedy in _REFUSALS:
        if code in codes:
            what = what.format(code=code, message=error.get("Message", text), operation=refusal.operation_name)
            if codes is _DENIED and "service control policy" in text:
                remedy = "ask the administrators of your AWS organization for an exception, or use another region"
            if codes is _INVALID and (region := _region_to_enable()):
                remedy += f"; or enable {region} in this account: `aws account enable-region --region-name {region}`"
            return AwsError(what, where=action, remedy=remedy)
    answer: Mapping[str, Any] = refusal.response.get("ResponseMetadata", {})
    remedy = "fix the cause that AWS names, then repeat the command"
    if answer.get("HTTPStatusCode", 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        remedy = "AWS failed, not your command: repeat it in a few minutes"
    if request := answer.get("RequestId"):
        remedy += f". CloudTrail and AWS Support find the call by its request ID {request}"
    return AwsError(text, where=action, remedy=remedy)
