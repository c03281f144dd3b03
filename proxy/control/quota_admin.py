"""Answers DescribeClientQuotas and AlterClientQuotas for quota admins, in place of the brokers (docs/quotas.md).

Parsing and describing take time in proportion to the request, so they run in a thread, one at a time: a second thread
would not be faster, and would only take time from the event loop.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import structlog

from protocol.client_quotas import (
    ANY,
    DEFAULT,
    DESCRIBE,
    EXACT,
    Altering,
    Component,
    Described,
    DescribedAll,
    Describing,
    Named,
    QuotaEntry,
    Result,
    altered_answer,
    described_answer,
    read_altering,
    read_describing,
)
from protocol.errors import ProtocolError
from protocol.frames import REQUEST_HEAD
from protocol.table import SPECS, ApiSpec
from proxy.control.quotas import QuotasInForce
from proxy.runtime.names import label
from quotas.entities import Default, Entity
from quotas.names import configured_as
from quotas.policy import Policy
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import ChangedMeanwhileError, StoreError, UnwritableError
from quotas.stores.filters import Filter, FilterError, Specified, UnknownTypeError, Wanted
from quotas.stores.unlimited import as_described

MOST_WAITING: Final = 16
"""Limit of Alters that wait for the store; further ones are told to retry."""
MOST_ELEMENTS_OF_OTHERS: Final = 128
"""Limit of entities, their parts and quotas in an Alter of a user who is no admin: it is parsed on the event loop, only
to refuse each of its entities by name."""
_ATTEMPTS: Final = 3
"""Attempts at an Alter that finds the store changed between reading and writing."""
_MOST_MESSAGE_BYTES: Final = 1024

UNKNOWN_SERVER_ERROR: Final = -1
REQUEST_TIMED_OUT: Final = 7
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42

_WITHOUT_A_MATCH: Final[Mapping[int, tuple[str, Wanted]]] = {
    DEFAULT: ("MATCH_TYPE_DEFAULT", Default.DEFAULT),
    ANY: ("MATCH_TYPE_SPECIFIED", Specified.ANY),
}
_NOT_AUTHORIZED: Final = (CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_BUSY: Final = (REQUEST_TIMED_OUT, f"{MOST_WAITING} changes of quotas wait already: try again")
_UNKNOWN: Final = (REQUEST_TIMED_OUT, "the store of quotas could not be read yet: try again")
_STOPPING: Final = (REQUEST_TIMED_OUT, "the proxy is stopping: try again")

log = structlog.get_logger("sluice")


class QuotaAdmin:
    """Answers requests of ``admins``, by user name; all other users are refused."""

    def __init__(self, quotas: QuotasInForce, admins: Collection[str]) -> None:
        self._quotas = quotas
        self._admins = frozenset(map(configured_as, admins))
        self._reading = asyncio.Lock()
        self._altering = asyncio.Lock()
        self._waiting = 0
        self._stopping = False

    async def answer(self, frame: bytes, user: str, client_id: str, peer: str) -> bytes:
        """Return the complete answer to a complete request, sizes included. Raises ProtocolError if the request is
        malformed.
        """
        head = REQUEST_HEAD.unpack_from(frame)
        spec, correlation_id = SPECS[head[1]], head[2]
        if user not in self._admins:
            return self._refuse(spec, correlation_id, frame, user, client_id, peer)
        async with self._reading:
            if spec.api_key == DESCRIBE:
                configured = self._quotas.configured if self._quotas.known else None
                return await asyncio.to_thread(_described, spec, correlation_id, frame, configured)
            wanted = await asyncio.to_thread(read_altering, spec, frame)
        results = await self._alter(wanted, user, client_id, peer)
        return await asyncio.to_thread(altered_answer, spec, correlation_id, results)

    def stop(self) -> None:
        """Make no more changes, except the one in progress; waiting requests are told so in turn."""
        self._stopping = True

    def _refuse(self, spec: ApiSpec, correlation_id: int, frame: bytes, user: str, client_id: str, peer: str) -> bytes:
        who = {"who": label(user), "peer": label(peer), "client_id": label(client_id)}
        if spec.api_key == DESCRIBE:
            log.warning("quotas not described: the user is not in quotas.admins", **who)
            return described_answer(spec, correlation_id, DescribedAll((), *_NOT_AUTHORIZED))
        try:
            entries = read_altering(spec, frame, MOST_ELEMENTS_OF_OTHERS).entries
        except ProtocolError as error:
            raise ProtocolError(error.cause, f"{error}; its user is not in quotas.admins") from None
        results = _each(entries, *_NOT_AUTHORIZED)
        self._quotas.changes.count("unauthorized", len(results))
        log.warning("quotas not altered: the user is not in quotas.admins", **who, entities=len(results))
        return altered_answer(spec, correlation_id, results)

    async def _alter(self, wanted: Altering, user: str, client_id: str, peer: str) -> Sequence[Result]:
        if self._waiting >= MOST_WAITING:
            return self._failed(wanted, *_BUSY)
        entities = [dict(entry.entity) for entry in wanted.entries]  # a repeated entity type: the last one counts
        changes = [
            Change({each: Default.DEFAULT if name is None else name for each, name in entity.items()}, entry.ops)
            for entity, entry in zip(entities, wanted.entries, strict=True)
        ]
        alteration = Alteration(changes, user, wanted.validate_only, peer=peer, client_id=client_id)
        self._waiting += 1
        try:
            async with self._altering:
                if self._stopping:
                    return self._failed(wanted, *_STOPPING)
                outcomes = await self._made(alteration)
        except StoreError as error:
            code = UNKNOWN_SERVER_ERROR if isinstance(error, UnwritableError) else REQUEST_TIMED_OUT
            said = label(str(error), _MOST_MESSAGE_BYTES)
            log.error("quotas not altered", **self._quotas.changes.origin(alteration), error=said)
            return self._failed(wanted, code, said)
        finally:
            self._waiting -= 1
        if not wanted.validate_only:
            for outcome in outcomes:
                self._quotas.changes.count(_became(outcome))
        # As in a cluster, an entity has one result; a repeated entity gets the refusal of the second.
        results = {
            frozenset(entity.items()): _result(entity, outcome)
            for entity, outcome in zip(entities, outcomes, strict=True)
        }
        return [*results.values()]

    async def _made(self, alteration: Alteration) -> list[Outcome]:
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._quotas.alter(alteration)
            except ChangedMeanwhileError:
                continue
        return await self._quotas.alter(alteration)

    def _failed(self, wanted: Altering, code: int, message: str) -> list[Result]:
        if not wanted.validate_only:
            self._quotas.changes.count("failed", len(wanted.entries))
        return _each(wanted.entries, code, message)


def _each(entries: Sequence[QuotaEntry], code: int, message: str) -> list[Result]:
    """Return the same result for each entity."""
    once = {frozenset(entity.items()): entity for entity in (dict(entry.entity) for entry in entries)}
    return [Result(tuple(entity.items()), code, message) for entity in once.values()]


def _result(entity: Mapping[str, str | None], outcome: Outcome) -> Result:
    refused = outcome.refused
    named = tuple(sorted(entity.items()))
    return Result(named) if refused is None else Result(named, INVALID_REQUEST, refused.kafka or str(refused))


def _became(outcome: Outcome) -> str:
    if outcome.refused is not None:
        return "refused"
    return "made" if outcome.altered else "unchanged"


# ------------------------------------------------------------------------------------------------------- describing


def _described(spec: ApiSpec, correlation_id: int, frame: bytes, configured: Policy | None) -> bytes:
    asked = read_describing(spec, frame)
    answer = DescribedAll((), *_UNKNOWN) if configured is None else _select(configured, asked)
    return described_answer(spec, correlation_id, answer)


def _select(configured: Policy, asked: Describing) -> DescribedAll:
    try:
        wanted = Filter.of([*_components(asked.components)], strict=asked.strict)
    except FilterError as error:
        code = UNSUPPORTED_VERSION if isinstance(error, UnknownTypeError) else INVALID_REQUEST
        return DescribedAll((), code, str(error))
    found = (
        Described(_named(entity), tuple((kind.value, as_described(kind, limit)) for kind, limit in limits.items()))
        for entity, limits in wanted.select(configured)
    )
    return DescribedAll(tuple(found))


def _components(components: Sequence[Component]) -> Iterator[tuple[str, Wanted]]:
    for entity_type, match_type, match in components:
        if match_type == EXACT:
            if match is None:
                raise FilterError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            yield entity_type, match
        elif match_type in _WITHOUT_A_MATCH:
            name, wanted = _WITHOUT_A_MATCH[match_type]
            if match is not None:
                raise FilterError(f"Request specified {name}, but also specified a match string.")
            yield entity_type, wanted
        else:
            raise FilterError(f"Unknown match type {match_type}")


def _named(entity: Entity) -> tuple[Named, ...]:
    names = (("client-id", entity.client_id), ("ip", entity.ip), ("user", entity.user))
    return tuple((each, name if isinstance(name, str) else None) for each, name in names if name is not None)
