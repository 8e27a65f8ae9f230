"""Clients of the AWS API, and its errors converted to errors of the tasks. boto3 is imported on first use (0.2 s)."""

from __future__ import annotations

import contextlib
import email.utils
import functools
import gc
import os
import random
import re
import shlex
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.cli import REINSTALL
from cluster.errors import AwsError, NoAnswerError
from cluster.terminal import status_line

if TYPE_CHECKING:
    from boto3.session import Session
    from botocore.exceptions import ClientError
    from botocore.session import Session as BotocoreSession

PRICED_REGION: Final = "us-east-1"
"""Region for prices if no region is set on the laptop."""

THROTTLED: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
     "RequestThrottledException", "TooManyRequestsException", "SlowDown"}
)  # fmt: skip
"""Error codes of a throttled call ("Retry behavior", AWS SDKs reference guide)."""
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

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_INVALID = {
    "InvalidClientTokenId",
    "AuthFailure",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "InvalidAccessKeyId",
}
_SKEWED = {"RequestTimeTooSkewed", "InvalidSignatureException", "RequestExpired", "SignatureDoesNotMatch", *_INVALID}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
_SIGN_IN = "sign in again (`aws login`, `aws sso login`, or fresh keys), then repeat"
MAX_SKEW_S: Final = 240.0
"""Maximum clock difference before it is reported. AWS accepts signatures for five minutes."""
_EMPTY_IS_UNSET: Final = (
    "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE",
    "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
)  # fmt: skip
"""Variables that count as unset if they are empty, as in the CDK CLI. botocore would use the empty value."""
MFA_DIGITS: Final = 6
SHOWN_ANSWER: Final = 300
"""Number of characters of an unreadable answer in its message."""
_REFRESHED_BY_ALL: Final = (
    *("iam-role", "container-role", "sso", "custom-process", "assume-role", "assume-role-with-web-identity"),
)
"""Kinds of credentials that other programs obtain in the same way, and can refresh."""


PROCESS_NOTE_S: Final = 10.0
"""How long a credential_process may take before a note names it."""


class Aws:
    """Create the clients of one boto3 session, each once. It can be shared between threads."""

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
                with _without_gc(), aws_errors(f"calling {service}"):
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
            core.register("before-parse", _reject_foreign_answer)
            _share_credentials(core)
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

        The program then does not ask for an MFA code and uses the same account. Credentials that the program can find
        and refresh itself are not added. Raises AwsError without credentials.
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
        """Return whether other programs would ask for an MFA code, or may not support `aws login`."""
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
        """Return the region for prices: the one in use, or PRICED_REGION if none is set."""
        return self.region or PRICED_REGION

    @property
    def endpoint(self) -> str:
        """Return the URL of the API; "" for AWS's own."""
        return os.environ.get("AWS_ENDPOINT_URL", "")


def _share_credentials(session: BotocoreSession) -> None:
    """Configure a session's credentials: cache roles as the AWS CLI does, and ask for MFA codes on the terminal.

    If a credential_process is slow, a note is printed.
    """
    from botocore.utils import JSONFileCache

    class Cache(JSONFileCache):
        """The AWS CLI's cache. If it cannot be written, each command asks for the code again."""

        def __setitem__(self, key: str, value: Any) -> None:
            try:
                super().__setitem__(key, value)
            except OSError as error:
                status_line.warn(
                    f"the AWS session could not be stored for later commands: {error}; each command will sign in again"
                )

    cache = Cache(str(Path.home() / ".aws" / "cli" / "cache"))
    chain = session.get_component("credential_provider")
    for name in ("assume-role", "assume-role-with-web-identity", "sso"):
        chain.get_provider(name).cache = cache
    role = chain.get_provider("assume-role")
    role._prompter = _ask_code
    role.load = functools.partial(_load_role, role.load)
    chain.get_provider("custom-process")._popen = _CredentialProcess


def _load_role(load: Callable[[], Any]) -> Any:
    """Load a role's credentials. If a code was rejected or could not be asked for, later calls raise the same error.

    botocore asks for a code once, and then reports an expired session.
    """
    from botocore.exceptions import RefreshWithMFAUnsupportedError

    credentials, failures = load(), list[Exception]()
    if (refresh := getattr(credentials, "_refresh_using", None)) is None:
        return credentials

    def refresh_once() -> Any:
        try:
            return refresh()
        except RefreshWithMFAUnsupportedError as error:
            raise failures[0] if failures else error from None
        except Exception as error:
            failures.append(error)
            raise

    credentials._refresh_using = refresh_once
    return credentials


class _CredentialProcess(subprocess.Popen[bytes]):
    """A credential_process. botocore waits for it without a time limit, because it may ask a person."""

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return standard output and error, after a note if the process takes longer than PROCESS_NOTE_S. The note
        leaves out the arguments, which may be secret.
        """
        try:
            return super().communicate(input, PROCESS_NOTE_S)
        except subprocess.TimeoutExpired:
            name = shlex.join(map(str, self.args[:1] if isinstance(self.args, Sequence) else ()))
            text = f"still waiting for the credential_process {name} of your AWS profile"
            status_line.warn(f"{text}; if it does not exit, run it by hand")
            return super().communicate(None, timeout)


def _ask_code(question: str) -> str:
    """Ask for an MFA code on the terminal and return it.

    Raises AwsError without a terminal, or if the answer is no code.
    """
    remedy = "run `aws sts get-caller-identity` with this profile in a terminal; the session is then cached for an hour"
    if not sys.stdin.isatty():
        raise AwsError(
            f"the role needs an MFA code, and there is no terminal to ask on ({question.strip(' :')})",
            where=f"profile {os.environ.get('AWS_PROFILE', 'default')}",
            remedy=remedy,
        )
    code = status_line.ask_secret(question).strip()
    if not code:
        raise AwsError(
            "no MFA code was given", remedy="repeat the command and type the code that your MFA device shows"
        )
    if not (len(code) == MFA_DIGITS and code.isascii() and code.isdecimal()):
        raise AwsError(f"an MFA code has {MFA_DIGITS} digits", remedy="repeat the command and type all digits")
    return code


def pause_s(
    *, response: tuple[Any, Mapping[str, Any]] | None, attempts: int, most: int = THROTTLED_ATTEMPTS, **_event: Any
) -> float | None:
    """Return the seconds until the next attempt of a throttled call; None for other calls, or after `most` attempts.

    `attempts` is the number of attempts so far. None leaves the decision to botocore's own handler, which runs first.
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


def _reject_foreign_answer(**event: Any) -> None:
    """Raise NoAnswerError if a proxy or another server answered instead of AWS: with status 407, or with a web page.

    botocore calls this function before it parses an answer. It would read some pages as an empty answer. It repeats
    failures with 5xx itself.
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
            f"a web page with HTTP status {status} came instead of an answer of AWS", where=where, remedy=_FOREIGN
        )


def entries(client: Any, operation: str, key: str, **given: Any) -> list[Mapping[str, Any]]:
    """Return the entries under `key` in all pages of an operation's answer. `given` are the operation's parameters."""
    return [each for page in client.get_paginator(operation).paginate(**given) for each in page[key]]


class IgnoredCodes:
    """Ignore AWS errors with these codes in a block."""

    def __init__(self, *codes: str) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        response = getattr(error, "response", None)  # it is None for a timeout
        return isinstance(response, Mapping) and response.get("Error", {}).get("Code") in self._codes


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Disable the garbage collector in a block that loads a service model: more than 100,000 containers
    and no garbage.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
        "run the credential_process of your profile by hand, or choose another profile with AWS_PROFILE",
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
        "this account may not use the service ({code}): {message}",
        "accept the terms at the address in the message, if it has one; otherwise complete the account's "
        "registration (payment, telephone) in the AWS console, or ask AWS Support",
    ),
    (_EXPIRED, "the AWS session has expired ({code})", _SIGN_IN),
    (_INVALID, "AWS does not accept the credentials ({code})", "check AWS_PROFILE and its keys"),
    (_DENIED, "AWS denied the request: {message}", "request this permission, or use another profile"),
    (
        THROTTLED,
        "AWS throttles {operation} ({code}): the account makes too many calls. Retries for most of a minute failed",
        "wait a minute and repeat the command; nothing is lost. Other programs of the account may cause the calls",
    ),
)
"""Message and remedy, by AWS's error codes."""


@contextlib.contextmanager
def aws_errors(action: str) -> Iterator[None]:
    """Convert errors of boto3 in the block to AwsError. `action` describes what was attempted; it becomes the error's
    `where`.
    """
    try:
        yield
    except Exception as error:
        if (explained := explain(error, action)) is None:
            raise
        raise explained from None


def explain(error: Exception, action: str = "") -> AwsError | None:
    """Convert an error of botocore, or a plain error that was raised in it, to an AwsError with a remedy; None for
    other errors.

    `action` describes what was attempted.
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
        text = _unreadable() or "; ".join([*getattr(error, "__notes__", ()), str(error)])
        for names, what, remedy in _FAILURES:
            if isinstance(error, tuple(getattr(exceptions, name) for name in names)):
                silent = isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError)
                kind = NoAnswerError if silent else AwsError
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
            return f"{path} cannot be read: permission denied"
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
    """Convert a ClientError to an AwsError, with a remedy for its code."""
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
    return AwsError(text, where=action)
