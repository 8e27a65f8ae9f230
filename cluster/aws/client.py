"""Clients of the AWS API, and its errors as errors of the tasks. boto3 is imported on first use, which takes 0.2 s."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import AwsError

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.exceptions import ClientError

PRICED_REGION: Final = "us-east-1"
"""The region whose prices are shown on a laptop without one."""

THROTTLED: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
     "RequestThrottledException", "TooManyRequestsException", "SlowDown"}
)  # fmt: skip
"""Error codes of a throttled call ("Retry behavior", AWS SDKs reference guide)."""
THROTTLED_ATTEMPTS: Final = 10
"""Attempts of a throttled call; the pauses between them add up to 47 s on average. Of a call that fails otherwise,
botocore's 4 are enough."""
MAX_PAUSE_S: Final = 10.0

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_INVALID = {
    "InvalidClientTokenId",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_SIGN_IN = "sign in again (`aws sso login`, or fresh keys), then repeat"


class Aws:
    """Make the clients of one session, each once; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._clients: dict[tuple[str, bool], Any] = {}
        if TYPE_CHECKING:  # The stubs know the type of each service's client.
            self.client, self.impatient = Session().client, Session().client
        else:
            self.client = functools.partial(self._client, impatient=False)
            self.impatient = functools.partial(self._client, impatient=True)

    def _client(self, service: str, *, impatient: bool) -> Any:
        """Return the client of a service; an impatient one makes one attempt of 3 s."""
        with self._lock:
            if (service, impatient) not in self._clients:
                with _without_gc():
                    self._clients[service, impatient] = self._make(service, impatient)
            return self._clients[service, impatient]

    def _make(self, service: str, impatient: bool) -> Any:
        from botocore.config import Config

        config = (
            Config(connect_timeout=3, read_timeout=3, retries={"total_max_attempts": 1})
            if impatient
            else Config(connect_timeout=10, read_timeout=60, retries={"mode": "standard", "total_max_attempts": 4})
        )
        # Few regions have the price list, which covers all regions.
        region = "us-east-1" if service == "pricing" else None
        make: Callable[..., Any] = self._boto3().client  # The stubs know names written out, not a variable.
        client = make(service, config=config, region_name=region)
        if not impatient:
            client.meta.events.register_last("needs-retry", pause_s)
        return client

    def _boto3(self) -> Session:
        if self._session is None:
            import boto3

            # The CDK and all other SDKs read AWS_REGION; boto3 only AWS_DEFAULT_REGION.
            self._session = boto3.session.Session(region_name=os.environ.get("AWS_REGION") or None)
        return self._session

    @property
    def region(self) -> str:
        """Return the region in use, "" if none is set."""
        with self._lock:
            return str(self._boto3().region_name or "")

    @property
    def price_region(self) -> str:
        """Return the region whose prices are shown: the one in use, PRICED_REGION if none is set."""
        return self.region or PRICED_REGION

    @property
    def endpoint(self) -> str:
        """Return the address of the API, "" if it is AWS's own."""
        return os.environ.get("AWS_ENDPOINT_URL", "")


def pause_s(*, response: tuple[Any, Mapping[str, Any]] | None, attempts: int, **_event: Any) -> float | None:
    """Return the seconds until the next attempt; None leaves the decision to botocore. Its handler comes first."""
    if response is None or attempts >= THROTTLED_ATTEMPTS or response[1].get("Error", {}).get("Code") not in THROTTLED:
        return None
    return min(MAX_PAUSE_S, 2.0 ** (attempts - 1)) * random.uniform(0.5, 1.0)  # noqa: S311  # a pause


def entries(client: Any, operation: str, key: str, **given: Any) -> list[Mapping[str, Any]]:
    """Return the entries under a key in all pages of an operation's answer."""
    return [each for page in client.get_paginator(operation).paginate(**given) for each in page[key]]


class IgnoredCodes:
    """Ignore AWS's errors with these codes in a block."""

    def __init__(self, *codes: str) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        response = getattr(error, "response", None)  # of a time-out it is None
        return isinstance(response, Mapping) and response.get("Error", {}).get("Code") in self._codes


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Switch the garbage collector off: a service model has more than 100,000 containers, and none is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_FAILURES: Final = (
    (
        ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
        "no AWS credentials: {}",
        "run `aws configure` or `aws sso login`, or set AWS_PROFILE; without an account: `python -m localcloud start`",
    ),
    (("NoRegionError",), "no AWS region is set", "set AWS_REGION, or a region in your profile"),
    (("ProfileNotFound",), "{}", "set AWS_PROFILE to one that `aws configure list-profiles` names"),
    (
        ("UnauthorizedSSOTokenError", "SSOTokenLoadError", "TokenRetrievalError"),
        "the AWS session has expired: {}",
        _SIGN_IN,
    ),
    (
        ("HTTPClientError", "EndpointConnectionError"),
        "the AWS API does not answer: {}",
        "check the network, AWS_REGION and AWS_ENDPOINT_URL",
    ),
    (("BotoCoreError",), "{}", ""),
)
"""Message and remedy by the names of botocore's exceptions; the first one that fits counts."""
_REFUSALS: Final = (
    (_EXPIRED, "the AWS session has expired ({code})", _SIGN_IN),
    (_INVALID, "AWS does not accept the credentials ({code})", "check AWS_PROFILE and the keys it names"),
    (_DENIED, "AWS denies it: {message}", "ask for this permission, or use another profile"),
    (
        THROTTLED,
        "AWS throttles {operation} ({code}): this account makes more calls than AWS takes from it, "
        "and repeating the call for most of a minute did not help",
        "wait a minute and repeat the command; nothing is lost, and other programs of the account may be the cause",
    ),
)
"""Message and remedy by the codes of AWS's own errors."""


@contextlib.contextmanager
def aws_errors(action: str) -> Iterator[None]:
    """Turn errors of boto3 in the block into AwsError; `action` is what was attempted."""
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        raise _refused(error, action) from None
    except exceptions.BotoCoreError as error:
        for names, what, remedy in _FAILURES:
            if isinstance(error, tuple(getattr(exceptions, name) for name in names)):
                raise AwsError(what.format(error), where=action, remedy=remedy) from None
        raise


def _refused(refusal: ClientError, action: str) -> AwsError:
    error: Mapping[str, Any] = refusal.response.get("Error", {})
    code, text = error.get("Code", ""), str(refusal)
    if "scoped to a valid region" in text:
        return AwsError(
            f"no such AWS region: {text}", where=action, remedy="check AWS_REGION and your profile's region"
        )
    for codes, what, remedy in _REFUSALS:
        if code in codes:
            what = what.format(code=code, message=error.get("Message", text), operation=refusal.operation_name)
            return AwsError(what, where=action, remedy=remedy)
    return AwsError(text, where=action)
