"""Credentials of a boto3 session: the AWS CLI's cache, MFA codes, and slow credential processes."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import AwsError
from cluster.terminal import status_line

if TYPE_CHECKING:
    from botocore.session import Session as BotocoreSession

MFA_DIGITS: Final = 6
PROCESS_NOTE_S: Final = 10.0
"""How long a credential_process may take before a note names it."""


def share_credentials(session: BotocoreSession) -> None:
    """Configure a session's credentials: share the AWS CLI's cache of sessions of roles and SSO, and ask for MFA codes.

    An MFA code is asked for on the terminal when credentials are first needed. If a credential_process is slow, a
    warning is printed.
    """
    from botocore.utils import JSONFileCache

    class Cache(JSONFileCache):
        """The AWS CLI's cache of sessions. If it cannot be written, a warning is printed, and each command signs in."""

        def __setitem__(self, key: str, value: Any) -> None:
            try:
                super().__setitem__(key, value)
            except OSError as error:
                status_line.warn(
                    f"the AWS session could not be stored for later commands: {error.filename or '~/.aws/cli/cache'}: "
                    f"{error.strerror}. Until you make this path writable, each command signs in again"
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
    """Load a role's credentials with `load`. If obtaining them fails once, later attempts raise the same error.

    It fails, for example, if AWS rejects the MFA code. Without this, later errors would be about an expired session,
    because botocore asks for a code only once.
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
            status_line.warn(f"{text}; if it does not exit, run this program by hand to see what it waits for")
            return super().communicate(None, timeout)


def _ask_code(question: str) -> str:
    """Ask for an MFA code on the terminal and return it.

    Raises AwsError without a terminal, or if the answer is not MFA_DIGITS digits.
    """
    remedy = "run `aws sts get-caller-identity` with this profile in a terminal; the session is then cached for an hour"
    if not sys.stdin.isatty():
        raise AwsError(
            f"the role needs an MFA code, but there is no terminal to type it in ({question.strip(' :')})",
            where=f"profile {os.environ.get('AWS_PROFILE', 'default')}",
            remedy=remedy,
        )
    code = status_line.ask_secret(question).strip()
    if not code:
        raise AwsError(
            "no MFA code was given", remedy="repeat the command and type the code that your MFA device shows"
        )
    if not (len(code) == MFA_DIGITS and code.isascii() and code.isdecimal()):
        raise AwsError(
            f"invalid MFA code: an MFA code has {MFA_DIGITS} digits", remedy="repeat the command with all digits"
        )
    return code
