"""What every quota store must do, whatever it keeps quotas in: the definition of ``quotas.stores.base.QuotaStore``.

A store passes by a ``Harness`` of its own, a class that inherits ``StoreContract`` and one that inherits
``AlterContract``, each with a fixture ``store`` that gives a new harness.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import pytest

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.policy import Policy
from quotas.stores.base import QuotaStore, UnreadableError

Limits = Mapping[Entity, Mapping[QuotaKind, float]]

CLIENT_KINDS = [kind for kind in QuotaKind if kind is not QuotaKind.CONNECTION_CREATION_RATE]
RATE = QuotaKind.PRODUCER_BYTE_RATE

NAMES = [
    "alice",
    "<default>",
    "no",
    "010",
    "~",
    "1e3",
    "a: b #c",
    " padded ",
    "per%cent/slash:colon,comma=",
    "quote\"and'apostrophe\\",
    "CN=client,OU=büro 北京 😀",
    "line\nbreak\ttab",
    "\u202ebidi\u2028separator",
]


NO_QUOTAS = [
    ({"user": "a"}, "producer_byte_rate", "-1"),
    ({"user": "a"}, "producer_byte_rate", "many"),
    ({"user": "a"}, "producer_byte_rate", "9223372036854775808"),
    ({"user": "a"}, "connection_creation_rate", "1"),
    ({"ip": "10.0.0.1"}, "producer_byte_rate", "1"),
    ({"ip": "10.0.0.1"}, "connection_creation_rate", "2147483648"),
    ({"ip": "not an address"}, "connection_creation_rate", "1"),
]
"""Entity, name of a quota, value: what Kafka would not take."""


class Harness(ABC):
    """A store to be tested, with a way to put quotas into it that does not go through the store."""

    store: QuotaStore

    @abstractmethod
    def put(self, limits: Limits) -> None:
        """Make these the quotas, in the store's own form."""

    @abstractmethod
    def put_raw(self, entity: Mapping[str, str], name: str, value: str) -> None:
        """Make this the only quota, whether it is a valid one or not."""

    @abstractmethod
    def take_away(self) -> None:
        """Make the store unreachable; ``put`` brings it back."""

    @abstractmethod
    def content(self) -> object:
        """Return all that is kept, to be compared: that nothing was written."""

    @abstractmethod
    def pause(self) -> None:
        """Let the store notice what was put, if that takes time."""

    def load(self) -> Policy:
        """Load what the store holds now."""
        return self.store.load(0).policy

    def noticed(self) -> bool:
        """Whether the store says, within a few looks, that it has changed."""
        for _ in range(10):
            if self.store.changed():
                return True
            self.pause()
        return False


class StoreContract:
    """To be inherited by each store's test, with a fixture ``store`` that gives its harness."""

    def test_no_quotas_are_an_empty_policy(self, store: Harness) -> None:
        store.put({})
        assert store.load().limits == {}

    @pytest.mark.parametrize("kind", CLIENT_KINDS)
    @pytest.mark.parametrize(
        "entity",
        [
            Entity(user="u", client_id="c"),
            Entity(user="u", client_id=Default.DEFAULT),
            Entity(user="u"),
            Entity(user=Default.DEFAULT, client_id="c"),
            Entity(user=Default.DEFAULT, client_id=Default.DEFAULT),
            Entity(user=Default.DEFAULT),
            Entity(client_id="c"),
            Entity(client_id=Default.DEFAULT),
        ],
        ids=Entity.describe,
    )
    def test_each_entity_level_loads_each_quota_kind(self, store: Harness, entity: Entity, kind: QuotaKind) -> None:
        limits = {entity: {kind: 1048576.0}}
        store.put(limits)
        assert store.load().limits == limits

    @pytest.mark.parametrize("ip", ["10.0.0.1", "2001:db8::1", Default.DEFAULT])
    def test_ips_take_a_connection_rate(self, store: Harness, ip: str | Default) -> None:
        limits = {Entity(ip=ip): {QuotaKind.CONNECTION_CREATION_RATE: 7.0}}
        store.put(limits)
        assert store.load().limits == limits

    @pytest.mark.parametrize("name", NAMES, ids=ascii)
    def test_entity_name_of_any_form_is_loaded_as_written(self, store: Harness, name: str) -> None:
        limits = {Entity(user=name, client_id=name): {RATE: 1.0}, Entity(user=Default.DEFAULT): {RATE: 2.0}}
        store.put(limits)
        assert store.load().limits == limits

    def test_entities_with_shared_names_keep_their_own_limits(self, store: Harness) -> None:
        limits: Limits = {
            Entity(user="a"): dict.fromkeys(CLIENT_KINDS, 5.0),
            Entity(client_id="a"): {QuotaKind.REQUEST_PERCENTAGE: 12.5},
            Entity(user="a", client_id="a"): {RATE: float(2**53)},
        }
        store.put(limits)
        assert store.load().limits == limits

    def test_each_load_says_what_is_there_now(self, store: Harness) -> None:
        rounds: tuple[Limits, ...] = ({Entity(user="a"): {RATE: 1.0}}, {Entity(user="b"): {RATE: 2.0}}, {})
        for limits in rounds:
            store.put(limits)
            assert store.load().limits == limits

    @pytest.mark.parametrize(("entity", "name", "value"), NO_QUOTAS)
    def test_invalid_quota_is_refused_on_load(
        self, store: Harness, entity: Mapping[str, str], name: str, value: str
    ) -> None:
        store.put_raw(entity, name, value)
        with pytest.raises(UnreadableError):
            store.load()

    def test_unreachable_store_is_never_read_as_no_quotas(self, store: Harness) -> None:
        store.put({Entity(user="a"): {RATE: 1.0}})
        store.take_away()
        with pytest.raises(UnreadableError):
            store.load()

    def test_each_quota_has_a_place_and_each_content_a_version(self, store: Harness) -> None:
        store.put({Entity(user="a"): {RATE: 1.0}})
        first = store.store.load(0)
        assert first.source in first.where(Entity(user="a"))
        assert store.store.load(0).version == first.version
        store.put({Entity(user="a"): {RATE: 2.0}})
        assert store.store.load(0).version != first.version

    def test_change_is_noticed_until_it_is_loaded(self, store: Harness) -> None:
        store.put({})
        store.load()
        assert not store.noticed()
        for rate in (1.0, 2.0):
            store.put({Entity(user="a"): {RATE: rate}})
            assert store.noticed()
            assert store.load().limits == {Entity(user="a"): {RATE: rate}}
            assert not store.noticed()

    def test_change_that_cannot_be_loaded_is_noticed_once(self, store: Harness) -> None:
        store.put({Entity(user="a"): {RATE: 1.0}})
        store.load()
        store.put_raw({"user": "a"}, "producer_byte_rate", "many")
        assert store.noticed()
        with pytest.raises(UnreadableError):
            store.load()
        assert not store.noticed()
        store.put({Entity(user="a"): {RATE: 3.0}})
        assert store.noticed()

    def test_staleness_grows_from_the_first_load_that_failed_to_the_next_good_one(self, store: Harness) -> None:
        store.put({})
        store.store.load(1000)
        assert store.store.staleness_ms(9000) == 0
        store.take_away()
        for now_ms in (10_000, 12_000):
            with pytest.raises(UnreadableError):
                store.store.load(now_ms)
        assert store.store.staleness_ms(12_500) == 2500
        store.put({})
        store.store.load(13_000)
        assert store.store.staleness_ms(14_000) == 0
