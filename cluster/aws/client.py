"""Clients of the AWS API. boto3 is imported on first use (0.2 s)."""

from __future__ import annotations

import functools
import os
import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.credentials import share_credentials
from cluster.aws.errors import THROTTLED, aws_errors, reject_foreign_answer

if TYPE_CHECKING:
    from boto3.session import Session

PRICED_REGION: Final = "us-east-1"
"""Region for prices if no region is set on the laptop."""

THROTTLED_ATTEMPTS: Final = 10
"""Maximum attempts of a throttled call. The pauses between them add up to 47 s on average. For other failures,
botocore's 4 attempts are enough.
"""
IMPATIENT_ATTEMPTS: Final = 3
"""The same for an impatient client: 2.3 s. It makes 2 attempts after other failures, because one packet may be lost."""
MAX_PAUSE_S: Final = 10.0
READ_TIMEOUT_S: Final = 25.0
"""Maximum wait for the first and for each further byte of an answer."""
SILENT_ATTEMPTS: Final = 2
"""Maximum attempts of a call without any answer. The second uses a new connection, because the first may be stale."""

_EMPTY_IS_UNSET: Final = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE",
    "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip
"""Variables that count as unset if they are empty, as in the CDK CLI. botocore would use the empty value."""
_REFRESHED_BY_ALL: Final = (
    *("iam-role", "container-role", "sso", "custom-process", "assume-role", "assume-role-with-web-identity"),
)
"""Kinds of credentials that other programs obtain in the same way, and can refresh."""


class Aws:
    """Create the clients of one boto3 session, each once. It can be shared between threads.

    `client(SERVICE)` returns a client. `impatient(SERVICE)` returns a client with fewer attempts and shorter timeouts.

    Creating an Aws removes empty AWS variables (_EMPTY_IS_UNSET) from this process's environment.
    """

    def __init__(self) -> None:
        for name in _EMPTY_IS_UNSET:  # for this process and the programs that it starts
            if os.environ.get(name) == "":
                del os.environ[name]
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._clients: dict[tuple[str, bool], Any] = {}
        if TYPE_CHECKING:  # the stubs know the type of each service's client
            self.client, self.impatient = Session().client, Session().client
        else:
            self.client = functools.partial(self._client, impatient=False)
            self.impatient = functools.partial(self._client, impatient=True)

    def _client(self, service: str, *, impatient: bool) -> Any:
        """Return the client of a service, created on first use. Raises AwsError.

        An impatient client makes fewer attempts and connects within 3 s.
        """
        with self._lock:
            if (service, impatient) not in self._clients:
                with aws_errors(f"calling {service}"):
                    self._clients[service, impatient] = self._make(service, impatient)
            return self._clients[service, impatient]

    def _make(self, service: str, impatient: bool) -> Any:
        """Create the client of a service. The client of `pricing` uses us-east-1.

        An impatient client makes fewer attempts and connects within 3 s.
        """
        from botocore.config import Config

        config = (
            Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})
            if impatient
            else None  # the session's default
        )
        # Few regions have the price list, which covers all regions.
        region = "us-east-1" if service == "pricing" else None
        make: Callable[..., Any] = self._boto3().client  # the stubs accept only literal names
        client = make(service, config=config, region_name=region)
        most = IMPATIENT_ATTEMPTS if impatient else THROTTLED_ATTEMPTS
        client.meta.events.register_last("needs-retry", functools.partial(pause_s, most=most))
        return client

    def _boto3(self) -> Session:
        """Return the boto3 session, created on first use."""
        if self._session is None:
            import boto3
            from botocore.config import Config
            from botocore.session import Session as BotocoreSession

            core = BotocoreSession()
            retries = {"mode": "standard", "total_max_attempts": 4}
            # Also for the clients that botocore creates to obtain credentials.
            core.set_default_client_config(
                Config(connect_timeout=10, read_timeout=READ_TIMEOUT_S, retries=retries)  # type: ignore[arg-type]
            )
            core.register("needs-retry", _give_up_on_silence)
            core.register("before-parse", reject_foreign_answer)
            share_credentials(core)
            # The CDK and other SDKs read AWS_REGION. boto3 reads only AWS_DEFAULT_REGION.
            region = os.environ.get("AWS_REGION") or None
            self._session = boto3.session.Session(botocore_session=core, region_name=region)
        return self._session

    @property
    def region(self) -> str:
        """Return the region in use; "" if none is set. Raises AwsError for invalid settings."""
        with self._lock, aws_errors("reading your AWS settings"):
            return str(self._boto3().region_name or "")

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a program that calls AWS for this task, with the task's credentials and
        region.

        The program then uses the same account. It does not ask for an MFA code: if one is needed, it is asked for here.
        Credentials that the program can find and refresh itself are not added. Raises AwsError without credentials.
        """
        region, environment = self.region, dict(os.environ)
        with self._lock, aws_errors("reading your AWS credentials"):
            credentials = self._boto3().get_credentials()
            if credentials is None:
                from botocore.exceptions import NoCredentialsError

                raise NoCredentialsError
            frozen = credentials.get_frozen_credentials()
        if credentials.method not in _REFRESHED_BY_ALL or self._needs_person():
            names = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN")  # a profile would take precedence
            environment = {name: value for name, value in environment.items() if name not in names}
            environment |= {
                "AWS_ACCESS_KEY_ID": str(frozen.access_key),
                "AWS_SECRET_ACCESS_KEY": str(frozen.secret_key),
            }
            environment |= {"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {}
        # Version 1 of the AWS CLI reads only AWS_DEFAULT_REGION.
        return {**environment, **({"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {})}

    def _needs_person(self) -> bool:
        """Return whether the profile in use, or a profile that it refers to, requires an MFA code or `aws login`.

        Other programs would ask for the code, or may not support `aws login`.
        """
        session = self._boto3()
        profiles, name = dict(session._session.full_config.get("profiles", {})), session.profile_name
        while name in profiles:
            profile = profiles.pop(name)
            if {"mfa_serial", "login_session"} & profile.keys():
                return True
            name = profile.get("source_profile", "")
        return False

    @property
    def price_region(self) -> str:
        """Return the region for prices: the region in use, or PRICED_REGION if none is set. Raises AwsError."""
        return self.region or PRICED_REGION

    @property
    def endpoint(self) -> str:
        """Return the API's URL from the variable AWS_ENDPOINT_URL; "" for AWS's own API.

        A URL in ~/.aws/config, which the clients use too, is not returned.
        """
        return os.environ.get("AWS_ENDPOINT_URL", "")


def pause_s(
    *, response: tuple[Any, Mapping[str, Any]] | None, attempts: int, most: int = THROTTLED_ATTEMPTS, **_event: Any
) -> float | None:
    """Return the seconds until the next attempt of a throttled call; None for other calls, or after `most` attempts.

    The pause doubles with each attempt up to MAX_PAUSE_S, and up to half of it is cut at random. `attempts` is the
    number of attempts so far. None leaves the decision to botocore's own handler, which runs first.
    """
    if response is None or attempts >= most or response[1].get("Error", {}).get("Code") not in THROTTLED:
        return None
    return min(MAX_PAUSE_S, 2.0 ** (attempts - 1)) * random.uniform(0.5, 1.0)  # noqa: S311  # a pause


def _give_up_on_silence(**event: Any) -> None:
    """Raise the exception of a call if SILENT_ATTEMPTS timed out, with a note that names the service and the call.

    botocore calls this function after each attempt.
    """
    from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

    error, operation = event["caught_exception"], event["operation"]
    if isinstance(error, ConnectTimeoutError | ReadTimeoutError) and event["attempts"] >= SILENT_ATTEMPTS:
        error.add_note(f"{operation.service_model.service_id} did not answer {operation.name}")
        raise error


def entries(client: Any, operation: str, key: str, **given: Any) -> list[Mapping[str, Any]]:
    """Return the entries under `key` in all pages of an operation's answer. `given` are the operation's parameters.

    Raises botocore's own errors, so call it within `aws_errors`.
    """
    return [each for page in client.get_paginator(operation).paginate(**given) for each in page[key]]


class IgnoredCodes:
    """Context manager that suppresses botocore's ClientError with one of these AWS error codes.

    The rest of its block is skipped then. Use it inside of `aws_errors`, which would convert the error before.
    """

    def __init__(self, *codes: str) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        response = getattr(error, "response", None)  # it is None for a timeout
        return isinstance(response, Mapping) and response.get("Error", {}).get("Code") in self._codes
