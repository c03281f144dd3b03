"""DescribeClientQuotas and AlterClientQuotas v0 by hand: what a broker says of its quotas, and quotas of any value.

Entities are the proxy's own (quotas.entities), so that what both say can be compared.
"""

import struct
from collections.abc import Mapping
from typing import Final

from quotas.entities import Default, Entity, Name
from quotas.kinds import QuotaKind
from tests.harness.admin import AdminError
from tests.harness.wire import Address, Connection, frame

TIMEOUT_S: Final = 30.0
DESCRIBE: Final = 48
ALTER: Final = 49
_CLIENT_ID: Final = "harness-quotas"

Described = dict[Entity, dict[QuotaKind, float]]


def describe_client_quotas(broker: Address) -> Described:
    """All quotas that the broker knows."""
    with Connection(broker, TIMEOUT_S) as connection:
        every = struct.pack(">i?", 0, False)  # no component, not strict
        answer = _Reader(connection.exchange(frame(DESCRIBE, 0, 1, _CLIENT_ID, every)), 12)
    code, message = answer.number(">h"), answer.text()
    if code:
        raise AdminError(f"DescribeClientQuotas was answered with error {code}: {message}")
    found: Described = {}
    for _ in range(int(answer.number(">i"))):
        names = {answer.text(): answer.text() for _ in range(int(answer.number(">i")))}
        values = {QuotaKind(answer.text() or ""): answer.number(">d") for _ in range(int(answer.number(">i")))}
        whole = {kind: Default.DEFAULT if name is None else name for kind, name in names.items()}
        found[Entity(whole.get("user"), whole.get("client-id"), whole.get("ip"))] = values
    return found


def alter_client_quotas(broker: Address, entity: Entity, limits: Mapping[QuotaKind, float | None]) -> None:
    """Set (None: remove) quotas of one entity, whatever their values; AdminError where the broker refuses."""
    parts = [("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip)]
    given = [(kind, name) for kind, name in parts if name is not None]
    body = struct.pack(">ii", 1, len(given)) + b"".join(_text(kind) + _name(name) for kind, name in given)
    body += struct.pack(">i", len(limits))
    for kind, limit in limits.items():
        body += _text(kind.value) + struct.pack(">d?", limit or 0.0, limit is None)
    with Connection(broker, TIMEOUT_S) as connection:
        answer = _Reader(connection.exchange(frame(ALTER, 0, 1, _CLIENT_ID, body + b"\0")), 16)
    code, message = answer.number(">h"), answer.text()
    if code:
        raise AdminError(f"AlterClientQuotas of {entity.describe()} was answered with error {code}: {message}")


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def number(self, form: str) -> float:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return float(value)

    def text(self) -> str | None:
        """A nullable string."""
        size = int(self.number(">h"))
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at].decode()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _name(name: Name) -> bytes:
    return _text(name) if isinstance(name, str) else struct.pack(">h", -1)
