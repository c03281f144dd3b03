"""Every setting of ``sluice.yaml``: the field is the name in the program, its alias the key in the file.

docs/configuration.md is generated from the descriptions and defaults here. Large sections have modules of their own:
``config.cluster``, ``config.listener``, ``config.quotas``, ``config.usage``.
"""

from math import ceil
from typing import Final, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from config import cgroup
from config.admin import Admin, AdminAccess
from config.brokers import PortClaim, find_claimed_twice
from config.cluster import BrokerSasl, BrokerTls, Cluster, Route
from config.forms import (
    BufferBytes,
    Bytes,
    Count,
    CountOrZero,
    Flag,
    Given,
    NumbersByIp,
    Seconds,
    SecondsOrZero,
    Section,
    WorkerCount,
)
from config.listener import ClientTls, Kerberos, Listener, ListenerLimits, ProxyProtocol
from config.owners import Owners
from config.problems import InvalidValue, InvalidValues
from config.quotas import Exempt, Mode, Quotas, RequestCosts, Window
from config.stores import FileStore
from config.usage import Usage, UsageFiles

__all__ = [
    "Admin",
    "AdminAccess",
    "BrokerSasl",
    "BrokerTls",
    "ClientTls",
    "Cluster",
    "Exempt",
    "FileStore",
    "Kerberos",
    "Listener",
    "Mode",
    "ProxyProtocol",
    "Quotas",
    "RequestCosts",
    "Route",
    "Settings",
    "UsageFiles",
    "Window",
]


_OF_GROUP: Final = 0.8
"""The part of the cgroup's memory that is the ceiling: the kernel's buffers of sockets count there, too."""
_LEAST_MIB: Final = 96
"""The least ceiling of a process: without clients it takes some 70 MiB, and from 85 % on it refuses all."""


class Limits(Section):
    """Limits per connection, and for all connections together."""

    request_bytes: Bytes = Field(
        100 * 2**20, alias="request", description="The largest request: `socket.request.max.bytes`."
    )
    request_before_authentication_bytes: Bytes = Field(
        512 * 2**10,
        alias="request_before_authentication",
        description="The largest request before authentication, on listeners with `authentication: sasl`.",
    )
    authentication_timeout_s: Seconds = Field(
        30.0,
        alias="authentication_timeout",
        description="How long a new connection may take until its first request, login included.",
    )
    response_bytes: Bytes = Field(256 * 2**20, alias="response", description="The largest response from a broker.")
    gathered_bytes: Bytes = Field(
        8 * 2**20,
        alias="gathered",
        description="The largest response that is buffered whole because it may name brokers. 8 MiB is enough for "
        "some 100,000 coordinators, or 200,000 partitions in one Produce.",
    )
    find_coordinator_bytes: Bytes = Field(
        2**20,
        alias="find_coordinator",
        description="The largest FindCoordinator request. 1 MiB is enough for some 20,000 groups at once.",
    )
    connection_rate: Count | None = Field(
        None,
        description="The most connections accepted a second: `max.connection.creation.rate`. Beyond it, accepting "
        "waits. Default: no limit.",
    )
    mutations_bytes: Bytes = Field(
        256 * 2**10,
        alias="mutations",
        description="The largest CreateTopics, CreatePartitions or DeleteTopics request of a client that has a "
        "`controller_mutation_rate`. 256 KiB is enough for some 5,000 topics.",
    )
    memory_bytes: Bytes | None = Field(
        None,
        alias="memory",
        description="The most memory (resident set) of all processes together; each worker has an equal part, and the "
        "supervisor of several one more. See [operations.md](operations.md#memory). Default: 0.8 of the limit of the "
        "container or unit (cgroup), none without one.",
    )
    connections: Count | None = Field(
        None,
        description="The most client connections at once: `max.connections`. Each takes two descriptors. Default: "
        "as many as the limit of open files allows.",
    )
    connections_per_ip: CountOrZero | None = Field(
        None,
        description="The most connections at once from one IP address to one broker: `max.connections.per.ip`. In "
        "any case one address, or IPv6 /64, has at most half of `limits.connections`.",
    )
    connections_per_ip_overrides: NumbersByIp = Field(
        {},
        description='IP addresses with a different limit, as in `{"10.0.0.5": 100}`: '
        "`max.connections.per.ip.overrides`. Host names are not resolved.",
    )
    connections_before_request: Count = Field(
        1000,
        description="The most connections at once that have not sent a request yet. Beyond that, those older than "
        "five seconds are closed.",
    )
    idle_s: Seconds = Field(
        600.0,
        alias="idle",
        description="How long a connection may be idle before it is closed: `connections.max.idle.ms`. A "
        "throttled one is not idle.",
    )
    unread_s: Seconds = Field(
        30.0,
        alias="unread",
        description="How long a client may leave responses unread before it is disconnected.",
    )
    socket_receive_buffer_bytes: BufferBytes = Field(
        100 * 2**10,
        alias="socket_receive_buffer",
        description="SO_RCVBUF of a client's connection from its first throttle on: "
        "`socket.receive.buffer.bytes`. -1: the kernel chooses.",
    )
    socket_send_buffer_bytes: BufferBytes = Field(
        -1,
        alias="socket_send_buffer",
        description="SO_SNDBUF of clients' connections: `socket.send.buffer.bytes`. -1: the kernel chooses.",
    )


LimitsT = TypeVar("LimitsT", Limits, ListenerLimits)


class KafkaCompat(Section):
    """API versions offered to clients."""

    fetch_max_version: CountOrZero | None = Field(
        None,
        description="The highest version of Fetch that clients are offered; by default the newest that Sluice knows. "
        "For a client that has trouble with a new one.",
    )


class Metrics(Section):
    """The series of `/metrics`."""

    max_series: Count = Field(
        20_000,
        description="The maximum number of series, however many clients and brokers there are. Series of quotas and "
        'latencies that do not fit are summed over brokers (`broker="sum"`), those of clients that still do not are '
        "summed as `other`. Below 10,000, the rest may take more. See [metrics.md](metrics.md#how-many-series).",
    )


class Drain(Section):
    """Stopping: `/readyz` changes first, then requests in flight are finished."""

    delay_s: SecondsOrZero = Field(
        3.0,
        alias="delay",
        description="How long Sluice keeps serving after SIGTERM while `/readyz` answers 503. SIGINT (Ctrl-C) "
        "skips it.",
    )
    timeout_s: SecondsOrZero = Field(
        30.0,
        alias="timeout",
        description="How long to wait after that for requests in flight before connections are cut.",
    )


class Log(Section):
    """Log output on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="The lowest level that is written.")
    format: Literal["auto", "json", "console"] = Field(
        "auto", description="`auto` writes readable lines on a terminal, and one JSON object a line elsewhere."
    )
    throttles: Flag = Field(
        False,
        description="Whether to log `throttle started` and `throttle ended`, with client, rule and limit. See "
        "[who-is-throttled.md](who-is-throttled.md#in-the-log).",
    )


class Settings(Section):
    """All settings in ``sluice.yaml``."""

    cluster: Cluster
    listeners: tuple[Listener, ...]
    workers: WorkerCount = Field(
        1,
        description="The number of processes that move bytes, each with brokers of its own; `auto`: one for each core "
        "but one, of those that the limit of the container or unit (cgroup) allows. "
        "See [scaling.md](scaling.md#several-workers).",
    )
    owners: Given[Owners] = None
    quotas: Quotas
    request_costs: RequestCosts = RequestCosts()
    limits: Limits = Limits()
    kafka: KafkaCompat = KafkaCompat()
    admin: Admin = Field(Admin(), validate_default=True)
    metrics: Metrics = Metrics()
    drain: Drain = Drain()
    log: Log = Log()
    usage: Given[Usage] = None

    @property
    def memory_ceiling_bytes(self) -> int | None:
        """The most memory of each process: all have equal parts. None in a cgroup with too little to hold any."""
        if self.limits.memory_bytes is not None:
            return self.limits.memory_bytes // _processes(self.workers)
        part = int((cgroup.memory_bytes() or 0) * _OF_GROUP) // _processes(self.workers)
        return part if part >= _LEAST_MIB * 2**20 else None

    def of_one_worker(self) -> "Settings":
        """Return the settings of one of several workers: limits of connections and accept rates are divided."""

        def part(limits: LimitsT) -> LimitsT:
            divided = {name: getattr(limits, name) for name in ("connections", "connection_rate")}
            return limits.model_copy(
                update={name: ceil(each / self.workers) for name, each in divided.items() if each is not None}
            )

        listeners = tuple(each.model_copy(update={"limits": part(each.limits)}) for each in self.listeners)
        return self.model_copy(update={"limits": part(self.limits), "listeners": listeners})

    @field_validator("listeners")
    @classmethod
    def _apart(cls, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
        if not listeners:
            raise InvalidValue("is empty", "write at least one listener")
        wrong = InvalidValues()
        names: dict[str, int] = {}
        for index, listener in enumerate(listeners):
            with wrong.at(index, "name"):
                if names.setdefault(listener.name, index) != index:
                    raise InvalidValue(f"{listener.name!r} is the name of another listener", "give each its own")
        if all(listener.limits.exempt_from_connection_rate for listener in listeners):
            said = "exempts every listener from limits.connection_rate"
            wrong.add((0, "limits", "exempt_from_connection_rate"), said, "remove it from at least one listener")
        find_claimed_twice(_port_claims(listeners), wrong)
        wrong.raise_if_any()
        return listeners

    @field_validator("limits")
    @classmethod
    def _enough_to_start(cls, limits: Limits, info: ValidationInfo) -> Limits:
        least_mib = _LEAST_MIB * _processes(info.data.get("workers", 1))
        if limits.memory_bytes is not None and limits.memory_bytes < least_mib * 2**20:
            wrong = InvalidValues()
            said = "is less than the processes take without clients: all would be refused"
            wrong.add(("memory",), said, f"write at least {least_mib}MiB, {_LEAST_MIB}MiB for each process")
            wrong.raise_if_any()
        return limits

    @field_validator("admin")
    @classmethod
    def _beside_the_listeners(cls, admin: Admin, info: ValidationInfo) -> Admin:
        claim = PortClaim.of(admin.bind, "the admin port", "bind")
        wrong = InvalidValues()
        find_claimed_twice([*_port_claims(info.data.get("listeners", ())), claim], wrong)
        wrong.raise_if_any()
        return admin


def _processes(workers: int) -> int:
    """Return the number of processes: several workers have a supervisor."""
    return 1 if workers == 1 else workers + 1


def _port_claims(listeners: tuple[Listener, ...]) -> list[PortClaim]:
    return [claim for index, listener in enumerate(listeners) for claim in listener.port_claims(index)]
