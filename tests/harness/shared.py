"""Servers that all worker processes of a test run use: the first process that asks for one starts it.

A locked file stands for each. Who uses the server holds the lock together with others; who started it waits until
nobody else does before it stops it. What a process that crashed held, the kernel gives back.
"""

import fcntl
import io
import pickle
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificate

LONGEST_PAUSE_S: Final = 0.2

T = TypeVar("T")


@contextmanager
def shared(file: Path, start: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """What ``start`` gives, or a copy of what it gave another process that was called with the same ``file``."""
    with file.open("a+b", buffering=0) as lock, ExitStack() as started:
        server: T | None = None
        while not (copy := _locked(lock, fcntl.LOCK_SH)):
            try:
                is_started = _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another one that looks, or the one who starts it
                time.sleep(random.uniform(0.0, LONGEST_PAUSE_S))
                continue
            if not is_started:
                server = started.enter_context(start())
                started.callback(lock.truncate, 0)
                started.callback(_locked, lock, fcntl.LOCK_EX)
                lock.write(_pickled(server))
        yield server or pickle.loads(copy)  # noqa: S301  what a process of this run wrote


def _locked(file: io.FileIO, how: int) -> bytes:
    """The content of the file, once it is locked."""
    fcntl.flock(file, how)
    file.seek(0)
    return file.read()


def _pickled(server: object) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(server)
    return written.getvalue()


def _private_key(pem: bytes) -> PrivateKeyTypes:
    return load_pem_private_key(pem, None)


def _certificate(pem: bytes) -> Certificate:
    return load_pem_x509_certificate(pem)


class _Pickler(pickle.Pickler):
    """Takes keys and certificates too, as PEM."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, EllipticCurvePrivateKey | RSAPrivateKey):
            pem = value.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            return _private_key, (pem,)
        if isinstance(value, Certificate):
            return _certificate, (value.public_bytes(Encoding.PEM),)
        return NotImplemented
