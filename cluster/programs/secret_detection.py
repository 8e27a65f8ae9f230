"""Find files that may contain private keys or passwords, and mask passwords in texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from agent.files.safe_read import read_regular

_SECRET_NAME: Final = re.compile(
    r"\.env(rc)?|\.env\.(?!(example|sample|template|dist|defaults?)$).*|[._]netrc|\.pgpass|\.git-credentials|\.pypirc"
    r"|(?!(.*[._-])?(example|sample|template|dist|defaults?)\.env$).+\.env|\.(boto|s3cfg|databrickscfg|vault-token)"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|kaggle\.json|.*\.(p12|pfx|jks|keystore|kdbx|ppk)",
    re.IGNORECASE,
)
_SECRET_PATH: Final = re.compile(
    r"(.*/)?(\.aws/credentials|\.docker/config\.json|\.kube/config|\.streamlit/secrets\.toml)"
)
_SECRET_TEXT: Final = re.compile(
    rb"^-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----"
    rb'|"private_key"\s*:\s*"-----BEGIN'
    rb'|"refresh_token"\s*:\s*"[^"]+"'
    rb"|^([^#\n]*[\s\"'])?(?i:aws_secret_access_key)[\"']?[ \t]*[=:][ \t]*[\"']?[^\s\"'$`%<{(]"
    rb'|"auths"\s*:\s*\{[\s\S]{0,4000}?"(auth|identitytoken|password)"\s*:\s*"[^"$]'
    rb"|^(\S*[:/])?\S*_authToken\s*=\s*[^\s$]"
    rb"|^AGE-SECRET-KEY-1",
    re.MULTILINE,
)
_TEXT_SUFFIXES: Final = frozenset((".py", ".pyi", ".ipynb", ".md", ".rst"))
"""Programs and texts are uploaded, because they may quote a key's first line."""
MAX_SECRET_BYTES: Final = 1 << 16
_AFTER_USER: Final = (
    r"(?:(?!\d{1,5}[/?#])[^\s/?#@]*[/?#](?:(?!://)\S)*@"
    r"|[^\s/?#]+@(?:[^\s/?#@.:]+[/?#](?:(?!://)\S)*@(?=[a-z])|(?:(?!://)\S)+@(?=[\w.-]+\.[a-z]{2,}(?![\w.-])))?)"
)
"""The password after `USER:` in a URL. Unlike a port, it may contain `/`, `?`, `#` and `@`.

In `USER:a@b/c@d`, `b/c` is a part of the password if `b` cannot be a host's full name, or `d` can.
"""
_SECRET_PARAMETER: Final = re.compile(
    r"([?&](?:[\w-]*(?:token|signature|password|passwd|pwd|secret|credential)|(?:[\w-]*[_-])?(?:sig|auth|jwt)"
    r"|(?:(?:access|api|auth|secret|private|subscription)[_-]?)?key)=)[^\s&#)`'\"]+",
    re.IGNORECASE,
)


def is_secret(path: Path, name: str, size: int) -> bool:
    """Return whether a file's name or content suggests a private key or passwords.

    `name` is its relative path, `size` its number of bytes. The contents of source files, documents and files above
    MAX_SECRET_BYTES are not read. Raises PermissionError for an unreadable file. For another error, such as a file that
    has disappeared, only the name counts.
    """
    if has_secret_name(name):
        return True
    if path.suffix in _TEXT_SUFFIXES or size > MAX_SECRET_BYTES:
        return False
    try:
        return has_secret_text(read_regular(path, 2 * MAX_SECRET_BYTES), name)
    except PermissionError:
        raise
    except OSError:  # the file is changing; packing it reports the error
        return False


def has_secret_text(content: bytes, name: str) -> bool:
    """Return whether `content` contains a private key or a password; False if `name` is that of a source file or
    document.
    """
    return Path(name).suffix not in _TEXT_SUFFIXES and _SECRET_TEXT.search(content) is not None


def has_secret_name(name: str) -> bool:
    """Return whether a file's relative path is typical of passwords and private keys, such as `.env` or `id_rsa`."""
    last = name.rpartition("/")[2]
    return bool(_SECRET_NAME.fullmatch(last) or _SECRET_PATH.fullmatch(name))


def masked(words: str) -> str:
    """Return a text with **** for passwords and tokens in its URLs. Passwords outside of URLs are not masked.

    A user without a password counts as a token, except with SSH.
    """
    words = re.sub(
        rf"(https?://)(?:(?!\[)[^\s/?#:@]*:{_AFTER_USER}|[^\s/?#]+@)", r"\1****@", words, flags=re.IGNORECASE
    )
    words = re.sub(rf"(\w://(?!\[)[^\s/?#@:]*):{_AFTER_USER}", r"\1:****@", words, flags=re.IGNORECASE)
    return _SECRET_PARAMETER.sub(r"\1****", words)
