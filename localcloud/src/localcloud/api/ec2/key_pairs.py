"""What EC2 refuses of key pairs: names with blanks at their ends or unknown ones, and keys of other kinds than two."""

from __future__ import annotations

from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses.key_pairs import KeyPairs

from localcloud.api.monkeypatch import check_first

_KINDS: Final = ("ssh-rsa", "ssh-ed25519")


def apply() -> None:
    """Correct moto."""
    check_first(KeyPairs, "create_key_pair", _check_name)
    check_first(KeyPairs, "import_key_pair", _check_import)
    check_first(KeyPairs, "describe_key_pairs", _check_known)


def _check_known(responses: Any) -> None:
    """Refuse the first unknown name, in EC2's words (hashicorp/vault-guides issue 260); moto names all."""
    for name in responses._get_param("KeyNames", []):
        if name not in responses.ec2_backend.key_pairs:
            raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")


def _check_name(responses: Any) -> None:
    name = str(responses._get_param("KeyName"))
    if name != name.strip():
        raise EC2ClientError("InvalidParameterValue", f"Invalid value '{name}' for keyName. It should be trimmed")


def _check_import(responses: Any) -> None:
    """Refuse another kind of key with the code that EC2's list of error codes has; moto has another one."""
    _check_name(responses)
    kind = bytes(responses._get_param("PublicKeyMaterial") or b"").split(maxsplit=1)
    if not kind or kind[0].decode("ascii", "replace") not in _KINDS:
        raise EC2ClientError("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
