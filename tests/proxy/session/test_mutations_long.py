"""Long requests that create or delete topics: read, judged and settled while others have turns, to the same end."""

from collections.abc import Callable

import pytest

from protocol import mutation_answers, mutations
from protocol.compile import SLICE_BYTES
from proxy.session.policies import topics
from quotas.policy import Policy
from tests.proxy.playbook import Play, list_offsets
from tests.proxy.session.mutating import (
    BURST,
    CREATE,
    DELETE,
    OLD_CREATE,
    Known,
    answer,
    create,
    delete,
    play_with,
    tokens,
)

TOPICS = 600


def many(number: int = 1, version: int = CREATE, partitions: int = 1) -> bytes:
    return create(number, *[(f"topic-{each}", partitions) for each in range(TOPICS)], version=version)


def turns(play: Play) -> int:
    """Let everything happen that is due now; return in how many turns of the loop."""
    number = 0
    while [call for call in play.loop._calls if call[0] <= play.loop.now_ms]:
        play.loop.turn()
        number += 1
    return number


def test_a_long_request_takes_turns_and_its_client_is_not_read_meanwhile() -> None:
    play = play_with()
    assert play.from_client(many() + list_offsets(2)) == b""
    assert play.client.paused
    assert turns(play) >= 2
    assert b"topic-0" in play.broker.take()
    assert not play.rejected


def test_long_create_topics_answer_is_settled_in_turns() -> None:
    play = play_with(limit=1e6)
    play.from_client(many())
    turns(play)
    play.broker.take()
    said = answer(CREATE, 1, *[(f"topic-{each}", 0) for each in range(TOPICS)])
    assert len(said) > SLICE_BYTES
    assert play.from_broker(said) == b""
    assert turns(play) >= 3
    assert play.client.take() == said
    assert tokens(play) == 11e6 - TOPICS


@pytest.mark.uncompiled("sizes are set inside")
@pytest.mark.parametrize(
    "ask",
    [
        many,
        lambda: many(version=OLD_CREATE),
        lambda: delete(1, *[f"topic-{each % 30}" for each in range(60)]),
        lambda: delete(1, *[f"topic-{each}" for each in range(60)], version=DELETE),
    ],
    ids=["created", "created by an old client", "deleted, some twice", "deleted"],
)
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_sliced_mutation_request_has_same_result_as_whole(
    ask: Callable[[], bytes], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def course() -> tuple[bytes, bytes, float]:
        play = play_with(partitions=Known({f"topic-{each}": 1 for each in range(0, 60, 2)}), mode=mode)
        asked = play.from_client(ask())
        turns(play)
        return asked + play.broker.take(), play.client.take(), tokens(play)

    whole = course()
    for module, name, size in (
        (mutations, "SLICE_BYTES", 40),
        (mutation_answers, "SLICE_BYTES", 40),
        (topics, "_CHARGED_AT_ONCE", 3),
        (topics, "_SETTLED_AT_ONCE", 3),
    ):
        monkeypatch.setattr(module, name, size)
    assert course() == whole


@pytest.mark.uncompiled("sizes are set inside")
def test_client_leaving_during_long_request_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_CHARGED_AT_ONCE", 3)
    play = play_with()
    play.from_client(many())
    while tokens(play) == BURST:
        play.loop.turn()
    play.session.close()
    assert tokens(play) == BURST
    assert turns(play) == 1


@pytest.mark.uncompiled("sizes are set inside")
def test_a_quota_that_goes_midway_lets_the_request_go_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_CHARGED_AT_ONCE", 3)
    play = play_with()
    play.from_client(many())
    while tokens(play) == BURST:
        play.loop.turn()
    play.engine.apply(Policy(), play.loop.now_ms)
    turns(play)
    assert play.broker.take() == many()
