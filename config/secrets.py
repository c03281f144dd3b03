"""Secrets in files of their own."""

from pathlib import Path
from typing import Final

from config.files import read_file
from config.problems import InvalidValue

_SHORTEST: Final = 16


def read_secret(path: Path) -> bytes:
    """Return the secret in a file, without spaces around it. Raises InvalidValue."""
    try:
        secret = read_file(path).strip()
    except OSError as error:
        raise InvalidValue(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if len(secret) < _SHORTEST:
        said = f"{path} has {len(secret)} bytes, and can be guessed" if secret else f"{path} is empty"
        raise InvalidValue(said, "write one into it: openssl rand -hex 32")
    return secret
