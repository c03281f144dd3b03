"""The format of ``quotas.json``: cases of several kinds, each documented in the file's own ``kinds``."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from quotas.connections import KIND as CONNECTIONS
from quotas.connections import ConnectionRates, counted_as
from quotas.engine import Bound, Engine, Window
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.names import sanitise
from quotas.networks import canonical_ip
from quotas.policy import Policy
from quotas.rate import Rate
from quotas.stores.alteration import Change, Refusal, check
from quotas.throttle import clamp_ms, throttle_ms
from quotas.token_bucket import TokenBucket
from tests.conformance import broker_kinds
from tests.conformance.broker_kinds import ops_of
from tests.conformance.cases import (
    EXACT,
    TOLERANCES,
    Answers,
    Case,
    UnknownMemberError,
    difference,
    entity_of,
    name_of,
    window_of,
)
from tests.conformance.model import Failure, Outcome, Skipped, attempt
from tests.reference import client_quotas


def rate(case: Case) -> Answers:
    inputs = case["inputs"]
    sampled = Rate(Window(inputs["samples"], inputs["window_ms"]))
    measures: list[object] = []
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                sampled.record(value, t)
            case {"t": t, "measure": True}:
                sampled.purge(t)
                observed, window_ms = sampled.observe(t)
                measures.append({"t": t, "rate": observed, "window_ms": window_ms})
            case _:
                raise UnknownMemberError(f"event {event}")
    yield measures


def throttle(case: Case) -> Answers:
    inputs = case["inputs"]
    yield {"throttle_ms": [charged for charged, _ in _throttled(inputs)]}
    # Beyond int32 Kafka wraps; Sluice must then be at its clamp, and the 64-bit time must be Kafka's.
    both = list(_throttled(inputs))
    if all(charged == clamp_ms(raw) for charged, raw in both):
        yield {"throttle_ms": [client_quotas.wrap_ms(raw) for _, raw in both]}


def _throttled(inputs: Case) -> Iterator[tuple[int, int]]:
    """Yield per record event the throttle time that the hot path gives, and the 64-bit one that Kafka would have."""
    charged, plain = (Rate(window_of(inputs), inputs["quota"], inputs.get("cap_ms")) for _ in range(2))
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                plain.record(value, t)
                yield charged.charge(value, t), plain.excess_ms(t)
            case {"t": t, "record_no_throttle": value}:
                charged.record(value, t)
                plain.record(value, t)
            case {"t": t, "unrecord": value}:
                charged.record(-value, t)
                plain.record(-value, t)
            case {"set_quota": limit}:
                charged.set_limit(limit)
                plain.set_limit(limit)
            case _:
                raise UnknownMemberError(f"event {event}")


def formula(case: Case) -> Answers:
    yield [
        throttle_ms(float(row["observed"]), float(row["quota"]), row["window_ms"], row.get("cap_ms"))
        for row in case["inputs"]
    ]


class ProduceQuotas:
    """An engine whose produce quotas are set one by one, as kafka-configs.sh does."""

    def __init__(self, window: Window) -> None:
        self._engine = Engine(Policy(), window)
        self._limits: dict[Entity, float] = {}

    def set(self, row: Case) -> None:
        """Set the limit of ``row``'s entity, or remove it; a removal puts the level in use, even of nothing."""
        entity = entity_of(row)
        if row["limit"] is None:
            self._apply({**self._limits, entity: 1.0})
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = row["limit"]
        self._apply(self._limits)

    def resolve(self, client: Case) -> Bound:
        user, client_id = client.get("user") or "", client.get("client") or ""
        return self._engine.resolve(user, client_id, QuotaKind.PRODUCER_BYTE_RATE, 0)

    def _apply(self, limits: Mapping[Entity, float]) -> None:
        kind = QuotaKind.PRODUCER_BYTE_RATE
        self._engine.apply(Policy({entity: {kind: limit} for entity, limit in limits.items()}), 0)


def precedence(case: Case) -> Answers:
    inputs = case["inputs"]
    quotas = ProduceQuotas(Window())
    for row in inputs["quotas"]:
        quotas.set(row)
    answers: list[object] = []
    for query in inputs["queries"]:
        bound = quotas.resolve(query)
        # With no level in use nothing is counted and the engine has no tags; Kafka shows these.
        user_tag, client_tag = (
            (bound.key.user, bound.key.client_id) if inputs["quotas"] else ("", query.get("client") or "")
        )
        answers.append({"user_tag": sanitise(user_tag), "client_tag": client_tag, "limit": bound.limit})
    yield answers


def precedence_timeline(case: Case) -> Answers:
    inputs = case["inputs"]
    quotas = ProduceQuotas(window_of(inputs))
    uses: list[object] = []
    for step in inputs["steps"]:
        match step:
            case {"set": row}:
                quotas.set(row)
            case {"use": use}:
                bound = quotas.resolve(use)
                delay_ms = bound.charge(use["bytes"], 0)
                uses.append({"limit": bound.limit, "throttled": delay_ms > 0, "throttle_ms": delay_ms})
            case _:
                raise UnknownMemberError(f"step {step}")
    yield uses


def token_bucket(case: Case) -> Answers:
    inputs = case["inputs"]
    bucket = TokenBucket(window_of(inputs), inputs["quota"])
    tokens: list[object] = []
    for event in inputs["events"]:
        match event:
            case {"t": t, "record": value}:
                bucket.record(value, t)
            case {"t": t, "measure": True}:
                tokens.append(bucket.tokens(t))
            case {"set_quota": limit}:
                bucket.set_limit(limit)
            case _:
                raise UnknownMemberError(f"event {event}")
    yield tokens


class Accepting:
    """Rates of connections whose limits are set one by one."""

    def __init__(self, config: Case) -> None:
        listeners, inter_broker = config["listeners"], config.get("inter_broker")
        limits = config.get("listener_rates") or {}
        self.rates = ConnectionRates(
            window_of(config),
            config.get("broker_rate"),
            {name: limits.get(name) for name in listeners},
            [inter_broker] if inter_broker is not None and len(listeners) > 1 else [],
        )
        self._limits: dict[Entity, float] = {}

    def set_ip(self, ip: str | None, limit: float | None) -> None:
        entity = Entity(ip=Default.DEFAULT if ip is None else canonical_ip(ip))
        self._limits.pop(entity, None)
        if limit is not None:
            self._limits[entity] = limit
        self.rates.apply(Policy({entity: {CONNECTIONS: limit} for entity, limit in self._limits.items()}))

    def accept(self, listener: str, ip: str, now_ms: int) -> object:
        wait_ms = self.rates.arrive(listener, now_ms)
        at = now_ms + wait_ms
        throttle_ms = self.rates.admit(listener, counted_as(ip), 1, at)
        answer: dict[str, object] = {"result": "accepted", "wait_ms": wait_ms, "at": at}
        if throttle_ms > 0:
            answer |= {"result": "ip_throttled", "ip_throttle_ms": throttle_ms, "close_at": at + throttle_ms}
        return answer

    def rate(self, name: str, now_ms: int) -> float:
        named = {each.listener or "broker": each.rate for each in self.rates.usage(now_ms)}
        of_ips = {each.ip: each.rate for each in self.rates.usage_of_addresses(now_ms)}
        return {**of_ips, **named}.get(name, 0.0)


def connection(case: Case) -> Answers:
    accepting = Accepting(case["inputs"]["config"])
    answers: list[object] = []
    for event in case["inputs"]["events"]:
        match event:
            case {"t": t, "accept": [listener, ip]}:
                answers.append(accepting.accept(listener, ip, t))
            case {"t": t, "measure": name}:
                answers.append({"rate": accepting.rate(name, t)})
            case {"set_ip": ip, "rate": limit}:
                accepting.set_ip(ip, limit)
            case {"set_broker_rate": limit}:
                accepting.rates.set_limit(None, limit)
            case {"set_listener_rate": [listener, limit]}:
                accepting.rates.set_limit(listener, limit)
            case _:
                raise UnknownMemberError(f"event {event}")
    yield answers


def alter_validation(case: Case) -> Answers:
    """What Sluice takes, whatever its store; what only brokers in ZooKeeper mode take is the reference model's."""
    mode, rows = case["inputs"]["mode"], case["inputs"]["rows"]
    if mode == "zk":
        yield from broker_kinds.alter_in_zookeeper_mode(rows)
        return
    if mode != "kraft":
        raise UnknownMemberError(f"mode {mode}")
    checked = [_checked(row) for row in rows]
    yield ["INVALID_REQUEST" if isinstance(each, Refusal) else "NONE" for each in checked]
    # Of what Sluice refuses and a controller does not, it has no words of a controller's: NaN, and host names.
    yield [
        "INVALID_REQUEST" if isinstance(each, Refusal) and (each.kafka or not _may_differ(row)) else "NONE"
        for row, each in zip(rows, checked, strict=True)
    ]


def _checked(row: Case) -> object:
    entity = {each: Default.DEFAULT if (name := name_of(of)) is None else name for each, of in row["entity"].items()}
    return check(Change({each: name for each, name in entity.items() if isinstance(name, str | Default)}, ops_of(row)))


def _may_differ(row: Case) -> bool:
    not_a_number = any(limit is not None and math.isnan(limit) for _, limit in ops_of(row))
    return not_a_number or ("ip" in row["entity"] and row.get("resolves", True))


KINDS: dict[str, Callable[[Case], Answers]] = {
    "rate": rate,
    "throttle": throttle,
    "formula": formula,
    "combined": broker_kinds.combined,
    "fetch_cap": broker_kinds.fetch_cap,
    "precedence": precedence,
    "precedence_timeline": precedence_timeline,
    "token_bucket": token_bucket,
    "mutation": broker_kinds.mutation,
    "connection": connection,
    "sanitise": broker_kinds.sanitised_names,
    "zk": broker_kinds.zk,
    "alter_validation": alter_validation,
    "wire": broker_kinds.on_the_wire,
    "mute": broker_kinds.mute,
    "number_format": broker_kinds.number_format,
}


def run(document: dict[str, Any]) -> Iterator[tuple[str, Outcome]]:
    """Yield title and outcome of every case."""
    for case in document["cases"]:
        case_id = str(case.get("id"))
        title = f"{case_id} {case.get('kind')}: {case.get('name', '')}"
        yield title, attempt(case_id, case.get("expected"), partial(run_case, case_id, case))


def run_case(case_id: str, case: Case) -> Outcome:
    """Run one case; it fails if no answer of the code is among the answers that the file accepts."""
    kind = KINDS.get(case["kind"])
    if kind is None:
        return Failure(case_id, f"one of the kinds {', '.join(KINDS)}", case["kind"], "unknown case kind")
    inputs = case["inputs"]
    algorithm = inputs.get("algo", "3.8") if isinstance(inputs, dict) else "3.8"
    if algorithm == "3.7":
        return Skipped(case_id, "the sample ring of Kafka 3.7 and earlier; Sluice has that of 3.8")
    if algorithm != "3.8":
        raise UnknownMemberError(f"algo {algorithm}")
    accepted = case.get("accept_any_of", [case["expected"]])
    failure = None
    for got in kind(case):
        for expected in accepted:
            where = difference(expected, got, TOLERANCES.get(case["kind"], EXACT))
            if where is None:
                return None
            failure = failure or Failure(case_id, expected, got, where)
    return failure
