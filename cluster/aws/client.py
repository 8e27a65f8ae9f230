"""Clients of the AWS API, and its failures in the project's own words.

boto3 is imported on first use, so that `fab --list` does not pay for it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

from cluster.errors import AwsError, DeepcdkError

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
    """Make clients of one session, each once; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, bool], Any] = {}

    def client(self, service: str, *, impatient: bool = False) -> Any:
        """Return the client of a service; an impatient one gives up after one attempt of 3 s."""
        with self._lock:
            if (service, impatient) not in self._clients:
                with _uncollected():
                    self._clients[service, impatient] = self._make(service, impatient)
            return self._clients[service, impatient]

    def _make(self, service: str, impatient: bool) -> Any:
        from botocore.config import Config

        patience = (
            Config(connect_timeout=3, read_timeout=3, retries={"total_max_attempts": 1})
            if impatient
            else Config(connect_timeout=10, read_timeout=60, retries={"mode": "standard", "total_max_attempts": 4})
        )
        # The price list answers in few regions; us-east-1 knows the prices of all.
        region = "us-east-1" if service == "pricing" else None
        return self._boto3().client(service, config=patience, region_name=region)

    def _boto3(self) -> Any:
        if self._session is None:
            import boto3

            # The CDK and all other SDKs take AWS_REGION; boto3 alone knows only AWS_DEFAULT_REGION.
            self._session = boto3.session.Session(region_name=os.environ.get("AWS_REGION") or None)
        return self._session

    @property
    def region(self) -> str:
        """Return the region in use, or "" where none is set."""
        with self._lock:
            return str(self._boto3().region_name or "")

    @property
    def endpoint(self) -> str:
        """Return the API's address where it is not AWS's own, else ""."""
        return os.environ.get("AWS_ENDPOINT_URL", "")


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector off: a service's model is 100,000 containers and more, and none of them garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn the failures of boto3 inside into AwsError; `doing` says what was being done."""
    import botocore.exceptions as boto

    try:
        yield
    except DeepcdkError:
        raise
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError) as error:
        raise AwsError(
            f"no AWS credentials: {error}",
            where=doing,
            remedy="run `aws configure` or `aws sso login`, or set AWS_PROFILE; "
            "without an account: `python -m localcloud start`",
        ) from None
    except boto.NoRegionError:
        raise AwsError(
            "no AWS region is set", where=doing, remedy="set AWS_REGION, or a region in your profile"
        ) from None
    except boto.ProfileNotFound as error:
        raise AwsError(
            str(error), where=doing, remedy="set AWS_PROFILE to one that `aws configure list-profiles` names"
        ) from None
    except (boto.UnauthorizedSSOTokenError, boto.SSOTokenLoadError, boto.TokenRetrievalError) as error:
        raise AwsError(f"the AWS session has expired: {error}", where=doing, remedy=_SIGN_IN) from None
    except boto.ClientError as error:
        raise _refused(error.response.get("Error", {}), str(error), doing) from None
    except (boto.HTTPClientError, boto.EndpointConnectionError) as error:
        raise AwsError(
            f"the AWS API does not answer: {error}",
            where=doing,
            remedy="check the network, AWS_REGION and AWS_ENDPOINT_URL",
        ) from None
    except boto.BotoCoreError as error:
        raise AwsError(str(error), where=doing) from None


def _refused(error: dict[str, str], text: str, doing: str) -> AwsError:
    code = error.get("Code", "")
    if code in _EXPIRED:
        return AwsError(f"the AWS session has expired ({code})", where=doing, remedy=_SIGN_IN)
    if code in _INVALID:
        return AwsError(
            f"AWS does not accept the credentials ({code})",
            where=doing,
            remedy="check AWS_PROFILE and the keys it names",
        )
    if code in _DENIED:
        return AwsError(
            f"AWS denies it: {error.get('Message', text)}",
            where=doing,
            remedy="ask for this permission, or use another profile",
        )
    return AwsError(text, where=doing)
