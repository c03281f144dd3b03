"""The cluster store where brokers are away, refuse, or say what is no quota. Its contract: test_cluster_contract.py."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from config.units import Address
from protocol.client_quotas import Described, Result
from proxy.brokers.persistent_connection import Access
from proxy.control import cluster_store
from proxy.control.cluster_store import ClusterStore
from proxy.runtime import faults, tasks
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import Loaded, UnreadableError, UnwritableError
from tests.harness.polling import until
from tests.harness.quota_broker import QuotaBroker, quota_broker
from tests.proxy.front import TIMEOUT_S
from tests.proxy.sabotage import Sabotage

pytestmark = pytest.mark.asyncio

RATE, REQUEST = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE
CONNECTIONS = QuotaKind.CONNECTION_CREATION_RATE
ALICE = Entity(user="alice")
OF_ALICE = Described((("user", "alice"),), (("producer_byte_rate", 5.0),))
FIVE_FOR_ALICE = {ALICE: {RATE: 5.0}}


@asynccontextmanager
async def store_of(*brokers: QuotaBroker, poll_ms: int = 3_600_000, port: int = 0) -> AsyncIterator[ClusterStore]:
    """A store that asks these brokers; ``port`` is one more, in front of them."""
    ports = [*([port] if port else []), *(broker.port for broker in brokers)]
    store = ClusterStore(Access(tuple(Address("127.0.0.1", each) for each in ports)), poll_ms=poll_ms)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.close)


async def load(store: ClusterStore, now_ms: int = 0) -> Loaded:
    async with asyncio.timeout(TIMEOUT_S):
        return await asyncio.to_thread(store.load, now_ms)


async def failure(store: ClusterStore) -> str:
    with pytest.raises(UnreadableError) as caught:
        await load(store)
    return str(caught.value)


async def alter(store: ClusterStore, user: str, limit: float | None) -> Outcome:
    change = Change({"user": user}, [("producer_byte_rate", limit)])
    [outcome] = await asyncio.to_thread(store.alter, Alteration([change], "User:admin"))
    return outcome


# ------------------------------------------------------------------------------------------------- who is asked


async def test_cluster_store_reuses_connection_and_reconnects_when_closed() -> None:
    async with quota_broker() as broker, store_of(broker) as store:
        broker.quotas = [OF_ALICE]
        for _ in range(3):
            assert (await load(store)).policy.limits == FIVE_FOR_ALICE
        assert broker.taken == 1
        broker.drop()
        assert (await load(store)).policy.limits == FIVE_FOR_ALICE
        assert broker.taken == 2


async def test_store_moves_to_next_broker_when_first_fails() -> None:
    async with quota_broker() as one, quota_broker() as other, store_of(one, other) as store:
        await load(store)
        assert (one.taken, other.taken) == (1, 0)
        one.apis.clear()
        one.drop()
        assert "does not know DescribeClientQuotas v0: Kafka does from 2.6 on" in await failure(store)
    async with quota_broker() as other, store_of(other, port=1) as store:
        for _ in range(3):
            await load(store)
        assert other.taken == 1


async def test_brokers_that_others_have_named_are_asked_too() -> None:
    async with quota_broker() as other, AsyncExitStack() as ends:
        other.quotas = [OF_ALICE]
        async with quota_broker() as one:
            store = await ends.enter_async_context(store_of(one))
            one.brokers = {1: ("127.0.0.1", one.port), 2: ("127.0.0.1", other.port)}
            await load(store)
        assert (await load(store)).policy.limits == FIVE_FOR_ALICE
        assert other.taken == 1


async def test_unreachable_brokers_are_reported_with_same_error_each_time() -> None:
    async with store_of(port=1) as store:
        first = await failure(store)
        assert first == "kafka://127.0.0.1:1: 127.0.0.1:1: [Errno 111] Connection refused"
        assert await failure(store) == first


async def test_unauthorized_describe_fails_and_counts_staleness() -> None:
    async with quota_broker() as broker, store_of(broker) as store:
        broker.quotas = [OF_ALICE]
        await load(store, 1000)
        broker.error = 31
        said = await failure(store)
        assert "may not be read (CLUSTER_AUTHORIZATION_FAILED)" in said
        assert said.endswith("kafka-acls --add --cluster --operation DescribeConfigs")
        assert store.staleness_ms(500) == 500
        broker.error = 7
        assert "answers DescribeClientQuotas with error 7: as asked for" in await failure(store)
        broker.error = 0
        await load(store, 2000)
        assert store.staleness_ms(9000) == 0


async def test_closing_does_not_wait_for_a_broker_that_is_silent() -> None:
    async with quota_broker() as broker, store_of(broker) as store:
        await load(store)
        broker.silent = True
        waiting = asyncio.create_task(failure(store))
        before = broker.described
        await until(lambda: broker.described > before)
        await asyncio.to_thread(store.close)
        assert "was closed" in await waiting


# ---------------------------------------------------------------------------------------------- what is no quota


async def test_unsupported_described_quotas_are_skipped_with_warning() -> None:
    def user(name: str | None, **limits: float) -> Described:
        return Described((("user", name),), tuple(limits.items()))

    async with quota_broker() as broker, store_of(broker) as store:
        broker.quotas = [
            user("nan", request_percentage=math.nan, producer_byte_rate=1.0),
            user("negative", consumer_byte_rate=-1.0),
            user("zero", producer_byte_rate=0.0, request_percentage=0.0),
            user("newer", some_rate=1.0),
            user(None, producer_byte_rate=9.0),
            user("<default>", producer_byte_rate=8.0),
            Described((("tenant", "a"),), (("producer_byte_rate", 1.0),)),
            Described((("ip", "localhost"),), (("connection_creation_rate", 1.0),)),
            Described((("ip", "2001:DB8:0::1"),), (("connection_creation_rate", 2.0),)),
            Described((("ip", "2001:db8::1"),), (("connection_creation_rate", 3.0),)),
        ]
        loaded = await load(store)
        assert loaded.policy.limits == {
            Entity(user="nan"): {RATE: 1.0},
            Entity(user="zero"): {RATE: math.inf, REQUEST: 0.0},
            Entity(user=Default.DEFAULT): {RATE: 9.0},
            Entity(user="<default>"): {RATE: 8.0},
            Entity(ip="2001:db8::1"): {CONNECTIONS: 2.0},
        }
        assert {(warning.path, warning.message) for warning in loaded.warnings} == {
            ("user=nan", "request_percentage: nan is no limit; it is skipped"),
            ("user=negative", "consumer_byte_rate: -1.0 is no limit; it is skipped"),
            ("user=newer", "some_rate is not a quota in Sluice; it is skipped"),
            ("tenant=a", "is no entity in Sluice: tenant is no kind of entity; it is skipped"),
            (
                "ip=localhost",
                "is no entity in Sluice: 'localhost' does not appear to be an IPv4 or IPv6 address; it is skipped",
            ),
            ("ip=2001:db8::1", "has the same entity as another one; it is skipped"),
        }


async def test_names_are_told_to_brokers_as_they_know_them() -> None:
    name, new = "n" * 300, "m" * 300
    async with quota_broker() as broker, store_of(broker) as store:
        broker.quotas = [
            Described((("user", name),), (("producer_byte_rate", 5.0),)),
            Described((("ip", "2001:DB8:0::1"),), (("connection_creation_rate", 2.0),)),
        ]
        for user in (name, new):
            await alter(store, user, 7.0)
        change = Change({"ip": "2001:db8::1"}, [("connection_creation_rate", 3.0)])
        await asyncio.to_thread(store.alter, Alteration([change], "User:admin"))
        assert {each.entity: each.limits[0][1] for each in broker.quotas} == {
            (("user", name),): 7.0,
            (("user", new),): 7.0,
            (("ip", "2001:DB8:0::1"),): 3.0,
        }


# ------------------------------------------------------------------------------------------------------- changes


async def test_a_change_is_refused_in_the_broker_s_words_or_not_allowed_at_all() -> None:
    async with quota_broker() as broker, store_of(broker) as store:
        broker.altering = lambda asked: [Result(entry.entity, 42, "not today") for entry in asked.entries]
        outcome = await alter(store, "alice", 5.0)
        assert str(outcome.refused) == "user=alice: the broker refuses it: not today (error 42)"
        broker.altering = lambda asked: [Result(entry.entity, 31, None) for entry in asked.entries]
        with pytest.raises(UnwritableError, match="kafka-acls --add --cluster --operation AlterConfigs"):
            await alter(store, "alice", 5.0)


@pytest.mark.parametrize("answer", [None, []])
async def test_a_change_that_may_have_been_made_is_not_asked_for_twice(answer: list[Result] | None) -> None:
    asked = []
    async with quota_broker() as broker, store_of(broker) as store:
        broker.altering = lambda altering: asked.append(altering) or answer  # type: ignore[func-returns-value]  # as said
        with pytest.raises(UnreadableError, match="look before trying again"):
            await alter(store, "alice", 5.0)
        assert len(asked) == 1


async def test_alter_of_1001_changes_is_refused_without_asking_brokers() -> None:
    changes = [Change({"user": f"u{number}"}, [("producer_byte_rate", 1.0)]) for number in range(1001)]
    async with quota_broker() as broker, store_of(broker) as store:
        with pytest.raises(UnwritableError, match="ask for 1000 at most"):
            await asyncio.to_thread(store.alter, Alteration(changes, "User:admin"))
        assert broker.taken == 0


# ------------------------------------------------------------------------------------------------------ watching


async def test_a_change_an_outage_and_its_end_are_noticed_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_store, "_RETRY_S", 0.02)
    async with quota_broker() as broker, store_of(broker, poll_ms=20) as store:
        await load(store)
        assert not store.changed()
        seen = broker.described
        await until(lambda: broker.described > seen + 3)
        assert not store.changed(), "there is nothing new"
        broker.quotas = [OF_ALICE, Described((("user", "bob"),), (("producer_byte_rate", 1.0),))]
        await until(store.changed)
        assert len((await load(store)).policy.limits) == 2
        broker.quotas.reverse()
        seen = broker.described
        await until(lambda: broker.described > seen + 3)
        assert not store.changed(), "another order is nothing new"
        broker.error = 31
        await until(store.changed)
        await failure(store)
        assert not store.changed(), "it is said once"
        broker.error = 0
        await until(store.changed)
        assert len((await load(store)).policy.limits) == 2


async def test_forwarded_alter_makes_store_look_for_changes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_store, "_SOON_S", (0.01, 0.02, 0.03))
    async with quota_broker() as broker, store_of(broker) as store:
        await load(store)
        assert not store.changed()
        broker.quotas = [OF_ALICE]
        store.nudge()
        await until(store.changed)
        assert (await load(store)).policy.limits == FIVE_FOR_ALICE


async def test_many_alters_cause_bounded_number_of_describes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_store, "_SOON_S", (0.0, 0.0, 0.0))
    async with quota_broker() as broker, store_of(broker) as store:
        await load(store)
        before = broker.described
        for _ in range(1000):
            store.nudge()
        await until(lambda: broker.described > before and not store._soon)
        assert broker.described - before <= 30


async def test_failing_look_for_quota_changes_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "AFTER_FAULT_S", 0.01)
    monkeypatch.setattr(cluster_store, "_SOON_S", (0.01, 0.02))
    watch, soon = "watch the quotas of the cluster", "look for a passing change"
    sabotage = Sabotage(monkeypatch, watch, soon)
    async with quota_broker() as broker, store_of(broker, poll_ms=20) as store:
        await load(store)
        assert not store.changed()
        store.nudge()
        await until(lambda: sabotage.came_to_an_end >= {watch, soon})
        assert {where: sabotage.counted(where) for where in (watch, soon)} == {watch: 1, soon: 1}
        assert faults.counts[watch] >= 1
        broker.quotas = [OF_ALICE]
        await until(store.changed)
