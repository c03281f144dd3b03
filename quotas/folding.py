"""Clients can make up names, so what is kept by name is bounded: all further ones are folded into one."""

from collections.abc import Mapping
from typing import Final, TypeVar

FOLDED: Final = "other"
"""The name of all that are folded into one."""

Key = TypeVar("Key")


def fold(key: Key, kept: Mapping[Key, object], most: int, rest: Key) -> Key:
    """Return the key to keep something under: ``key`` while there are fewer than ``most``, else ``rest``."""
    return key if key in kept or len(kept) < most else rest
