"""What a client is told to do, in words that every client program understands.

Payloads follow from their index alone, so that a consumer knows what it must have received.
"""

import struct
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

INDEX_BYTES: Final = 8
PATTERNS: Final = 251
SECURITY: Final = "security."


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a client logs in. Files are paths of PEM files; beside each, as `.p12`, stands what Java reads."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    """Of PLAIN and SCRAM; the subject of an unsecured token; the id of a delegation token."""
    password: str = ""
    is_delegation_token: bool = False
    token: str = ""
    """Of OAUTHBEARER: without one, the client makes an unsecured token for the username."""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    keytab: str = ""
    """Of GSSAPI: the key of the username, a principal."""
    krb5_conf: str = ""

    def over_tls(self, ca: str) -> "Security":
        """The same login within TLS."""
        return replace(self, protocol="SASL_SSL", ca=ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    bootstrap: str
    client_id: str
    topic: str = ""
    security: Security = Security()


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce(Task):
    """Produce until `records` are sent or `duration_s` is over, as fast as possible without a rate.

    With a `transactional_id`, every `transaction_records` records are one transaction, and every third one is aborted.
    """

    partition: int = 0
    partitions: int = 1
    """Of Java: that one and those behind it, in turn."""
    records: int = 0
    duration_s: float = 0.0
    record_bytes: int = 1000
    rate_bytes_per_s: int = 0
    acks: int = 1
    idempotent: bool = False
    transactional_id: str = ""
    transaction_records: int = 50
    batch_bytes: int = 16_384
    first_index: int = 0
    niceness: int = 0
    """Of kafka-python, whose sender polls without a pause as long as it has a batch for a connection that may not send,
    as while throttled: a whole core, which it may be given only when nobody else on the machine wants it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume(Task):
    """Consume from the beginning until `records` have come, `duration_s` is over, or the standard input ends.

    Without a group, partitions 0 … `partitions` - 1 are assigned.
    """

    partitions: int = 1
    records: int = 0
    duration_s: float = 60.0
    group: str = ""
    protocol: Literal["classic", "consumer"] = "classic"
    partition_fetch_bytes: int = 1 << 20
    fetch_wait_ms: int = 500
    """How long a broker may wait for records; with 0 a consumer that has everything asks without a pause."""
    committed_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Task):
    """So many consumers in one program, in one group, or each with the partition of its own number where there is none.

    Reported are bytes of records of each member, and of the wire over all of them, once a second.
    """

    members: int
    duration_s: float
    group: str = ""
    protocol: Literal["classic", "consumer"] = "classic"
    fetch_wait_ms: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Administer(Task):
    """Describe the cluster, create `topic`, and list the topics."""


def arguments(task: Task) -> list[str]:
    """`operation=produce key=value … security.key=value …`, the form that Client.java reads too."""
    given = {name: getattr(task, name) for name in _names(type(task)) if name != "security"}
    given |= {f"{SECURITY}{name}": getattr(task.security, name) for name in _names(Security)}
    operation = type(task).__name__.lower()
    return [f"operation={operation}", *(f"{name}={_written(value)}" for name, value in given.items())]


def parse(words: list[str]) -> Task:
    """The task that `arguments` wrote."""
    given = dict(word.split("=", 1) for word in words)
    task_type: type[Task] = _TYPES[given.pop("operation")]
    security = {name.removeprefix(SECURITY): given.pop(name) for name in list(given) if name.startswith(SECURITY)}
    return task_type(**_values(task_type, given), security=Security(**_values(Security, security)))


def payload(index: int, size: int) -> bytes:
    """The index, then bytes that depend on it: no record looks like its neighbour."""
    start = index % PATTERNS
    return struct.pack(">q", index) + _pattern(PATTERNS + size)[start : start + size - INDEX_BYTES]


def index_of(value: bytes) -> int | None:
    """The index of a payload, None for anything else, whatever its size."""
    if len(value) < INDEX_BYTES:
        return None
    index: int = struct.unpack_from(">q", value)[0]
    return index if index >= 0 and payload(index, len(value)) == value else None


_patterns: dict[int, bytes] = {}


def _pattern(size: int) -> bytes:
    if size not in _patterns:
        _patterns[size] = bytes((position * 131 + (position >> 8)) & 0xFF for position in range(size))
    return _patterns[size]


_TYPES: Final[dict[str, type[Task]]] = {kind.__name__.lower(): kind for kind in (Produce, Consume, Group, Administer)}


def _names(kind: type[Task | Security]) -> list[str]:
    return [field.name for field in fields(kind)]


def _values(kind: type[Task | Security], given: dict[str, str]) -> dict[str, Any]:
    return {field.name: _read(given[field.name], field.type) for field in fields(kind) if field.name in given}


def _read(text: str, kind: object) -> Any:
    if kind is bool:
        return text == "true"
    if kind is int or kind is float:
        return kind(text)
    return text


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
