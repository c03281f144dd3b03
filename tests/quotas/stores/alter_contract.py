"""What ``alter`` must do in every quota store; the second half of tests/quotas/stores/contract.py."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration, Altered, Change, Outcome
from quotas.stores.base import ChangedMeanwhileError, UnreadableError
from tests.quotas.stores.contract import CLIENT_KINDS, NAMES, RATE, Harness, Limits

CONSUMER, PERCENTAGE = QuotaKind.CONSUMER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE
ALICE = Entity(user="alice")
WHO = "User:admin from 10.0.0.1:5"


def change(entity: Entity, limits: Mapping[QuotaKind, float | None]) -> Change:
    names = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return Change(
        {dimension: name for dimension, name in names.items() if isinstance(name, str | Default)},
        [(kind.value, limit) for kind, limit in limits.items()],
    )


def alter(store: Harness, *changes: Change, validate_only: bool = False, version: str | None = None) -> list[Outcome]:
    return store.store.alter(Alteration(changes, WHO, validate_only, version))


_names = st.one_of(st.sampled_from(NAMES), st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
_parts = st.one_of(st.none(), st.just(Default.DEFAULT), _names)
_clients = st.builds(lambda user, client: (user, client), _parts, _parts).filter(lambda pair: pair != (None, None))
_ips = st.one_of(st.just(Default.DEFAULT), st.ip_addresses(v=4).map(str))
_entities = st.one_of(_clients.map(lambda pair: Entity(*pair)), _ips.map(lambda ip: Entity(ip=ip)))
_whole = st.integers(1, 2**31 - 1).map(float)


@st.composite
def _changes(draw: st.DrawFn) -> tuple[Entity, dict[QuotaKind, float | None]]:
    entity = draw(_entities)
    kinds = CLIENT_KINDS if entity.ip is None else [QuotaKind.CONNECTION_CREATION_RATE]
    picked = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
    return entity, {kind: draw(st.one_of(st.none(), _whole)) for kind in picked}


class AlterContract:
    """To be inherited by each store's test, with a fixture ``store`` that gives its harness."""

    def test_alter_changes_the_quota_given_and_no_other(self, store: Harness) -> None:
        before: Limits = {ALICE: {RATE: 1.0, CONSUMER: 2.0}, Entity(client_id="app"): {RATE: 3.0}}
        store.put(before)
        [outcome] = alter(store, change(ALICE, {RATE: 5.0}))
        assert outcome == Outcome(None, (Altered(ALICE, RATE, 1.0, 5.0),))
        assert store.load().limits == {**before, ALICE: {RATE: 5.0, CONSUMER: 2.0}}

    @pytest.mark.parametrize("name", NAMES, ids=ascii)
    def test_alter_of_new_entity_creates_its_quotas(self, store: Harness, name: str) -> None:
        for quotas in ({}, {Entity(user="other"): {RATE: 1.0}}):
            store.put(quotas)
            for entity in (
                Entity(user=name),
                Entity(client_id=name),
                Entity(name, name),
                Entity(name, Default.DEFAULT),
            ):
                [outcome] = alter(store, change(entity, {RATE: 5.0, PERCENTAGE: 12.5}))
                assert [(each.old, each.new) for each in outcome.altered] == [(None, 5.0), (None, 12.5)]
                assert store.load().limits[entity] == {RATE: 5.0, PERCENTAGE: 12.5}

    def test_alter_sets_quotas_of_defaults_and_ips(self, store: Harness) -> None:
        store.put({})
        rate = QuotaKind.CONNECTION_CREATION_RATE
        wanted: Limits = {
            Entity(user=Default.DEFAULT): {RATE: 1.0},
            Entity(Default.DEFAULT, Default.DEFAULT): {RATE: 2.0},
            Entity(ip=Default.DEFAULT): {rate: 3.0},
            Entity(ip="10.0.0.1"): {rate: 4.0},
            Entity(ip="2001:db8::1"): {rate: 5.0},
        }
        outcomes = alter(store, *(change(entity, limits) for entity, limits in wanted.items()))
        assert all(outcome.refused is None for outcome in outcomes)
        assert store.load().limits == wanted
        alter(store, Change({"ip": "2001:DB8:0::1"}, [(rate.value, 6.0)]))
        assert store.load().limits == {**wanted, Entity(ip="2001:db8::1"): {rate: 6.0}}

    def test_an_entity_goes_with_its_last_quota(self, store: Harness) -> None:
        others: Limits = {Entity(user="a"): {RATE: 1.0}, Entity(user="z"): {RATE: 2.0}}
        store.put({Entity(user="a"): {RATE: 1.0}, ALICE: {RATE: 5.0, CONSUMER: 6.0}, Entity(user="z"): {RATE: 2.0}})
        alter(store, change(ALICE, {CONSUMER: None}))
        assert store.load().limits == {**others, ALICE: {RATE: 5.0}}
        [outcome] = alter(store, change(ALICE, {RATE: None, CONSUMER: None}))
        assert outcome.altered == (Altered(ALICE, RATE, 5.0, None),)
        assert store.load().limits == others
        alter(store, *(change(entity, {RATE: None}) for entity in others))
        assert store.load().limits == {}
        alter(store, change(ALICE, {RATE: 7.0}))
        assert store.load().limits == {ALICE: {RATE: 7.0}}

    def test_alter_without_a_difference_writes_nothing(self, store: Harness) -> None:
        store.put({ALICE: {RATE: 5.0}})
        before = store.content()
        nothing = alter(
            store,
            change(ALICE, {RATE: 5.0, CONSUMER: None}),
            change(Entity(user="nobody"), {RATE: None}),
            Change({"user": "b"}, [("no_such_quota", None)]),
            Change({"user": "c"}, []),
        )
        assert nothing == [Outcome()] * 4
        assert store.content() == before

    @pytest.mark.parametrize(
        ("entity", "ops", "field"),
        [
            ({}, [("producer_byte_rate", 1.0)], "entity"),
            ({"topic": "t"}, [("producer_byte_rate", 1.0)], "topic"),
            ({"": "t"}, [("producer_byte_rate", 1.0)], "entity"),
            ({"user": ""}, [("producer_byte_rate", 1.0)], "entity"),
            ({"client-id": ""}, [("producer_byte_rate", None)], "entity"),
            ({"ip": ""}, [("connection_creation_rate", 1.0)], "entity"),
            ({"user": "u", "ip": "1.2.3.4"}, [("producer_byte_rate", 1.0)], "entity"),
            ({"ip": "not an address"}, [("connection_creation_rate", 1.0)], "ip"),
            ({"user": "\ud800"}, [("producer_byte_rate", 1.0)], "user"),
            ({"user": "u"}, [("connection_creation_rate", 1.0)], "connection_creation_rate"),
            ({"ip": "1.2.3.4"}, [("producer_byte_rate", 1.0)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rat", 1.0)], "producer_byte_rat"),
            ({"user": "u"}, [("producer_byte_rate", 0.0)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rate", 4e-7)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rate", -1.0)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rate", 1.5)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rate", 5.9999999)], "producer_byte_rate"),
            ({"user": "u"}, [("producer_byte_rate", 1e19)], "producer_byte_rate"),
            ({"user": "u"}, [("request_percentage", -0.5)], "request_percentage"),
            ({"user": "u"}, [("request_percentage", math.nan)], "request_percentage"),
            ({"ip": "1.2.3.4"}, [("connection_creation_rate", 2.0**31)], "connection_creation_rate"),
            ({"user": "u"}, [("producer_byte_rate", 1.0), ("producer_byte_rate", None)], "producer_byte_rate"),
            ({"user": "u"}, [("consumer_byte_rate", 1.0), ("producer_byte_rate", 0.0)], "producer_byte_rate"),
        ],
    )
    def test_alter_that_kafka_refuses_names_the_field_and_writes_nothing(
        self, store: Harness, entity: Mapping[str, str], ops: list[tuple[str, float | None]], field: str
    ) -> None:
        store.put({Entity(user="u"): {RATE: 7.0}})
        before = store.content()
        [outcome] = alter(store, Change(entity, ops))
        assert outcome.refused is not None
        assert (outcome.refused.field, outcome.altered) == (field, ())
        assert store.content() == before

    @pytest.mark.parametrize(
        ("kind", "limit", "kept"),
        [
            (RATE, 5.0000005, 5.0),
            (RATE, 2.0**63, 2.0**63),
            (RATE, 2.0**53, 2.0**53),
            (PERCENTAGE, 0.5, 0.5),
            (PERCENTAGE, 99.99, 99.99),
            (PERCENTAGE, 0.000000001, 0.000000001),
        ],
    )
    def test_alter_keeps_limits_as_kafka_does(self, store: Harness, kind: QuotaKind, limit: float, kept: float) -> None:
        store.put({})
        alter(store, change(ALICE, {kind: limit}))
        assert float(store.load().limits[ALICE][kind]) == kept
        assert alter(store, change(ALICE, {kind: limit})) == [Outcome()]

    def test_refused_change_leaves_the_other_changes_in_force(self, store: Harness) -> None:
        store.put({})
        first, bad, again, other = alter(
            store,
            change(ALICE, {RATE: 1.0}),
            change(Entity(user="bob"), {RATE: 0.0}),
            change(ALICE, {RATE: 2.0}),
            change(Entity(user="carol"), {RATE: 3.0}),
        )
        assert (first.refused, other.refused) == (None, None)
        assert bad.refused is not None
        assert again.refused is not None
        assert "twice" in str(again.refused)
        assert store.load().limits == {ALICE: {RATE: 1.0}, Entity(user="carol"): {RATE: 3.0}}

    def test_validate_only_answers_the_same_and_writes_nothing(self, store: Harness) -> None:
        store.put({ALICE: {RATE: 5.0}})
        before = store.content()
        changes = (
            change(ALICE, {RATE: 6.0}),
            change(Entity(user="b"), {RATE: 0.0}),
            change(Entity(user="c"), {RATE: 1.0}),
        )
        dry = alter(store, *changes, validate_only=True)
        assert store.content() == before
        assert alter(store, *changes) == dry
        assert store.content() != before

    def test_alter_of_an_outdated_version_writes_nothing(self, store: Harness) -> None:
        store.put({ALICE: {RATE: 5.0}})
        seen = store.store.load(0).version
        store.put({ALICE: {RATE: 6.0}})
        before = store.content()
        with pytest.raises(ChangedMeanwhileError):
            alter(store, change(ALICE, {CONSUMER: 1.0}), version=seen)
        assert store.content() == before
        alter(store, change(ALICE, {CONSUMER: 1.0}), version=store.store.load(0).version)
        assert store.load().limits == {ALICE: {RATE: 6.0, CONSUMER: 1.0}}

    def test_altered_quota_counts_as_changed_until_loaded(self, store: Harness) -> None:
        store.put({})
        store.load()
        alter(store, change(ALICE, {RATE: 1.0}))
        assert store.noticed()
        store.load()
        assert not store.noticed()

    def test_a_store_that_cannot_be_read_is_not_written(self, store: Harness) -> None:
        store.put_raw({"user": "a"}, "producer_byte_rate", "many")
        before = store.content()
        with pytest.raises(UnreadableError):
            alter(store, change(ALICE, {RATE: 1.0}))
        assert store.content() == before

    # Several stores take this test over, each with its own harness, which begins anew with each example.
    @pytest.mark.long
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors])
    @given(st.lists(st.lists(_changes(), min_size=1, max_size=5), min_size=1, max_size=4))
    def test_altered_quotas_are_loaded_as_written(
        self, store: Harness, rounds: list[list[tuple[Entity, dict[QuotaKind, float | None]]]]
    ) -> None:
        store.put({})
        wanted: dict[Entity, dict[QuotaKind, float]] = {}
        for changes in rounds:
            asked: dict[Entity, dict[QuotaKind, float | None]] = {}
            for entity, limits in changes:
                asked.setdefault(entity, limits)
            outcomes = alter(store, *(change(entity, limits) for entity, limits in asked.items()))
            for (entity, limits), outcome in zip(asked.items(), outcomes, strict=True):
                assert outcome.refused is None
                merged = {k: v for k, v in {**wanted.pop(entity, {}), **limits}.items() if v is not None}
                if merged:
                    wanted[entity] = merged
            assert store.load().limits == wanted
