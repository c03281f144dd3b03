"""Stores one over the other: who wins, what is changed where, and what becomes of one that cannot be read."""

from pathlib import Path

import pytest

from quotas.entities import Entity, Group
from quotas.kinds import QuotaKind
from quotas.policy import Terms
from quotas.stores.alteration import Alteration, Altered, Change, Outcome
from quotas.stores.base import ChangedMeanwhileError, Loaded, UnreadableError
from quotas.stores.file_store import FileStore
from quotas.stores.layers import LayeredStore
from tests.quotas.stores.alter_contract import AlterContract
from tests.quotas.stores.contract import StoreContract
from tests.quotas.stores.test_file_store import FileHarness

RATE, CONSUMER = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
TOP = """\
quotas:
  - {entity: {user: alice}, producer_byte_rate: 1, mode: shadow, burst: 2s}
"""
BASE = """\
quotas:
  - {entity: {user: alice}, producer_byte_rate: 10, consumer_byte_rate: 20}
  - {entity: {user: bob}, producer_byte_rate: 30}
"""


class LayeredHarness(FileHarness):
    """A file over the one that is changed; the upper one names nobody that a contract speaks of."""

    def __init__(self, path: Path, top: Path) -> None:
        super().__init__(path)
        self.top = top
        self.top.write_text("quotas: []\n")
        self.store = LayeredStore([FileStore(self.top), self.store])


@pytest.fixture
def store(tmp_path: Path) -> LayeredHarness:
    (tmp_path / "below").mkdir()
    return LayeredHarness(tmp_path / "below" / "quotas.yaml", tmp_path / "top.yaml")


class TestContract(StoreContract):
    def test_each_quota_has_a_place_and_each_content_a_version(self, store: LayeredHarness) -> None:  # type: ignore[override]  # its own harness
        """The place is in one of the stores."""
        store.put({ALICE: {RATE: 1.0}})
        first = store.store.load(0)
        assert first.where(ALICE).startswith(f"{store.path}:")
        assert store.store.load(0).version == first.version
        store.put({ALICE: {RATE: 2.0}})
        assert store.store.load(0).version != first.version


class TestAlter(AlterContract):
    pass


class Two:
    """Two files, and the store of both."""

    def __init__(self, folder: Path, top: str = TOP, base: str = BASE) -> None:
        self.top, self.base = folder / "top.yaml", folder / "base.yaml"
        self.write(self.top, top)
        self.write(self.base, base)
        self.store = LayeredStore([FileStore(self.top), FileStore(self.base)])

    def write(self, path: Path, text: str) -> None:
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(path)

    def load(self) -> Loaded:
        return self.store.load(0)

    def noticed(self) -> bool:
        return any(self.store.changed() for _ in range(3))

    def alter(self, user: str, version: str | None = None, **limits: float | None) -> Outcome:
        change = Change({"user": user}, [*limits.items()])
        [outcome] = self.store.alter(Alteration([change], "User:admin", version=version))
        return outcome


def test_first_layer_with_an_entity_wins_for_each_kind(tmp_path: Path) -> None:
    two = Two(tmp_path)
    loaded = two.load()
    assert loaded.policy.limits == {ALICE: {RATE: 1, CONSUMER: 20}, BOB: {RATE: 30}}
    assert loaded.where(ALICE, RATE) == f"{two.top}:2"
    assert loaded.where(ALICE, CONSUMER) == f"{two.base}:2"
    assert loaded.where(ALICE) == f"{two.top}:2, {two.base}:2"
    assert loaded.where(BOB) == f"{two.base}:3"
    assert loaded.source == f"{two.top} over {two.base}"


def test_terms_of_a_rule_hold_for_its_own_layer_alone(tmp_path: Path) -> None:
    """A quota of Kafka's is not in shadow because Sluice's file has something in shadow for the same user."""
    policy = Two(tmp_path).load().policy
    assert policy.book(RATE).terms == {("alice", None): Terms(shadow=True, burst_ms=2000)}
    assert policy.book(CONSUMER).terms == {}
    below = Two(tmp_path, base="quotas:\n  - {entity: {user: alice}, producer_byte_rate: 2, mode: shadow}\n")
    below.write(below.top, "quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1}\n")
    assert below.load().policy.terms == {}, "what is hidden says nothing"


def test_groups_prefixes_and_caps_come_from_the_files_above(tmp_path: Path) -> None:
    top = (
        "groups: {team: [alice]}\ncaps:\n  - {entity: {user-group: team}, producer_byte_rate: 9}\n"
        "quotas:\n  - {entity: {client-id: {prefix: x-}}, producer_byte_rate: 5, shared: false}\n"
    )
    policy = Two(tmp_path, top).load().policy
    assert policy.groups == {"team": ("alice",)}
    assert policy.limits[Entity(user=Group("team"), cap=True)] == {RATE: 9}
    assert policy.limits[ALICE] == {RATE: 10, CONSUMER: 20}


@pytest.mark.parametrize(
    ("top", "base", "said"),
    [
        (
            "groups: {g: [a]}\nquotas: []\n",
            "groups: {g: [b]}\nquotas: []\n",
            "groups.g: is also a group of a layer above",
        ),
        ("groups: {g: [a]}\nquotas: []\n", "groups: {h: [a]}\nquotas: []\n", "'a' is in the groups 'g' and 'h'"),
        (TOP, BASE.replace("20}", "20, burst: 1s}"), "base.yaml:2: user=alice: also has terms in a layer above"),
    ],
)
def test_conflicting_layers_are_refused_with_a_reason(tmp_path: Path, top: str, base: str, said: str) -> None:
    with pytest.raises(UnreadableError, match=said.replace(".", r"\.")):
        Two(tmp_path, top, base).load()


def test_a_layer_that_cannot_be_read_stays_as_it_was_and_the_others_go_on(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.load()
    two.write(two.base, "quotas: 5\n")
    two.write(two.top, "quotas: []\n")
    assert two.noticed()
    with pytest.raises(UnreadableError, match="must be a list") as caught:
        two.load()
    assert caught.value.rest is not None
    assert caught.value.rest.policy.limits == {ALICE: {RATE: 10, CONSUMER: 20}, BOB: {RATE: 30}}
    assert two.store.staleness_ms(5000) == 5000
    two.write(two.top, TOP)
    assert two.noticed()
    assert two.load().policy.limits[ALICE] == {RATE: 1, CONSUMER: 20}, "the base is not asked, as it has not changed"
    two.write(two.base, BASE.replace("30", "31"))
    assert two.noticed()
    assert two.load().policy.limits[BOB] == {RATE: 31}


def test_first_load_with_an_unreadable_layer_fails(tmp_path: Path) -> None:
    two = Two(tmp_path, base="quotas: 5\n")
    with pytest.raises(UnreadableError) as caught:
        two.load()
    assert caught.value.rest is None
    two.write(two.base, BASE)
    assert two.noticed()
    assert len(two.load().policy.limits) == 2


def test_the_base_alone_is_changed_and_what_a_layer_above_hides_is_refused(tmp_path: Path) -> None:
    two = Two(tmp_path)
    two.load()
    outcome = two.alter("alice", producer_byte_rate=5.0)
    assert str(outcome.refused) == (
        f"producer_byte_rate: is set for user=alice at {two.top}:2, which wins; change it there"
    )
    assert two.alter("alice", consumer_byte_rate=21.0).altered == (Altered(ALICE, CONSUMER, 20.0, 21.0),)
    assert two.alter("alice", producer_byte_rate=None).refused is not None
    assert two.noticed()
    assert two.load().policy.limits[ALICE] == {RATE: 1, CONSUMER: 21}
    assert two.top.read_text() == TOP


def test_alter_of_an_outdated_upper_layer_writes_nothing(tmp_path: Path) -> None:
    two = Two(tmp_path)
    seen = two.load().version
    two.write(two.top, "quotas: []\n")
    assert two.noticed()
    with pytest.raises(ChangedMeanwhileError):
        two.alter("bob", seen, producer_byte_rate=5.0)
    assert two.alter("bob", two.load().version, producer_byte_rate=5.0).refused is None
