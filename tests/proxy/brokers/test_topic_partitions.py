"""Asking how many partitions topics have: whose turn it is, what is kept, what comes of a broker that does not say."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from protocol.fields import NO_ID
from protocol.mutations import Topic
from proxy.brokers import topic_partitions
from proxy.brokers.topic_partitions import KEPT_MS, MOST_KEPT, TopicPartitions
from proxy.runtime.faults import counts
from tests.harness.asked_broker import AskedBroker
from tests.harness.clock import Clock
from tests.harness.polling import until

pytestmark = pytest.mark.asyncio
COUNTER, ANOTHER = object(), object()


def named(name: str) -> Topic:
    return name.encode(), NO_ID


class Asking:
    def __init__(self) -> None:
        self.cluster = AskedBroker({3: self._metadata})
        self.present: dict[str, int] = {}
        self.clock = Clock()
        self.partitions = TopicPartitions(lambda: [self.cluster], self.clock.ms)

    def _metadata(self) -> dict[str, Any]:
        topics = [
            {"name": name, "topic_id": name.encode() * 16, "partitions": [{}] * partitions}
            for name, partitions in self.present.items()
        ]
        return {"topics": [*topics, {"name": "forbidden", "error_code": 29}]}

    @property
    def questions(self) -> list[int]:
        """The versions that were asked."""
        return [request.version for _, request in self.cluster.asked]

    async def look(self, *topics: Topic, whose: object = COUNTER) -> Mapping[Topic, int]:
        answered: asyncio.Future[Mapping[Topic, int]] = asyncio.get_running_loop().create_future()
        assert self.partitions.look_up(whose, topics, answered.set_result) is not None
        assert not answered.done(), "never at once"
        async with asyncio.timeout(5):
            return await answered


async def test_names_and_ids_are_asked_about_and_what_is_not_there_is_left_out() -> None:
    asking = Asking()
    asking.present = {"a": 3, "b": 5}
    by_id = (b"", b"b" * 16)
    found = await asking.look(named("a"), by_id, named("gone"), named("forbidden"))
    assert (found[named("a")], found[by_id]) == (3, 5)
    assert named("gone") not in found
    assert named("forbidden") not in found
    assert asking.questions == [4, 12]


async def test_partition_counts_are_cached_until_expiry_or_change() -> None:
    asking = Asking()
    asking.present = {"a": 3}
    await asking.look(named("a"))
    assert asking.partitions.known([named("a"), named("b")]) == {named("a"): 3}
    assert await asking.look(named("a")) == {named("a"): 3}
    assert asking.questions == [4]
    asking.clock.now_s += KEPT_MS / 1000
    assert asking.partitions.known([named("a")]) == {}
    await asking.look(named("a"))
    asking.partitions.forget([named("a"), named("never")])
    assert asking.partitions.known([named("a")]) == {}


async def test_controller_answer_during_lookup_overrides_metadata_answer() -> None:
    asking = Asking()
    asking.present = {"a": 3, "b": 2}
    asking.cluster.go_on.clear()
    looking = asyncio.create_task(asking.look(named("a"), named("b")))
    await until(lambda: asking.questions)
    asking.partitions.remember(named("a"), 6)
    asking.cluster.go_on.set()
    assert await looking == {named("a"): 6, named("b"): 2}
    assert asking.partitions.known([named("a")]) == {named("a"): 6}
    asking.clock.now_s += KEPT_MS / 1000
    assert (await asking.look(named("a")))[named("a")] == 3, "by then the brokers say what there is"


async def test_no_more_is_kept_than_there_is_room_for() -> None:
    asking = Asking()
    asking.present = {f"{number}": 1 for number in range(30)}
    asking.partitions._keep({named(f"t{number}"): 1 for number in range(MOST_KEPT - 1)})
    await asking.look(named("1"))
    assert 0 < len(asking.partitions._known) <= MOST_KEPT


async def test_names_that_no_topic_has_are_not_asked_about() -> None:
    asking = Asking()
    await asking.look(named("x" * 250), named(""))
    assert asking.questions == []


async def test_lookups_of_one_counter_are_serialized_and_abandoned_ones_skipped() -> None:
    asking = Asking()
    asking.cluster.go_on.clear()
    told: list[str] = []
    first = asking.partitions.look_up(COUNTER, [named("a")], lambda _: told.append("first"))
    second = asking.partitions.look_up(COUNTER, [named("b")], lambda _: told.append("second"))
    asking.partitions.look_up(COUNTER, [named("c")], lambda _: told.append("third"))
    asking.partitions.look_up(ANOTHER, [named("d")], lambda _: told.append("another"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(asking.questions) == 2
    assert first is not None
    assert second is not None
    first.wanted = second.wanted = False
    asking.cluster.go_on.set()
    await asking.look(named("e"))
    assert sorted(told) == ["another", "third"]
    assert len(asking.questions) == 4, "nothing was asked for the second"


@pytest.mark.parametrize("error", [ConnectionError("away"), TimeoutError()], ids=repr)
async def test_failed_partition_lookup_is_logged_once_and_retried(error: Exception) -> None:
    asking = Asking()
    asking.cluster.error = error
    with capture_logs() as logs:
        assert await asking.look(named("a")) == {}
        assert await asking.look(named("a")) == {}
    assert [each["event"] for each in logs] == ["partitions of topics unknown: each changed topic is charged as one"]
    asking.cluster.error = None
    asking.present = {"a": 1}
    assert await asking.look(named("a")) == {named("a"): 1}
    assert asking.partitions.error is None


async def test_partition_lookup_without_answer_ends_at_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_partitions, "WITHIN_S", 0.01)
    asking = Asking()
    asking.cluster.go_on.clear()
    with capture_logs():
        assert await asking.look(named("a")) == {}


async def test_partition_lookup_without_brokers_is_not_started() -> None:
    partitions = TopicPartitions(list, Clock().ms)
    assert partitions.look_up(COUNTER, [named("a")], lambda _: None) is None


async def test_a_question_that_fails_is_answered_with_nothing() -> None:
    asking = Asking()
    asking.cluster.error = KeyError("ours")
    before = counts["ask how many partitions topics have"]
    with capture_logs():
        assert await asking.look(named("a")) == {}
    assert counts["ask how many partitions topics have"] == before + 1


async def test_failing_lookup_callback_leaves_other_lookups_answered() -> None:
    asking = Asking()

    def fail(_: object) -> None:
        raise KeyError

    before = counts["tell how many partitions topics have"]
    with capture_logs():
        asking.partitions.look_up(COUNTER, [named("a")], fail)
        assert await asking.look(named("b")) == {}
    assert counts["tell how many partitions topics have"] == before + 1
