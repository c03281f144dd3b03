"""Topics under controller_mutation_rate: ways around the quota, and brokers that are asked for partitions."""

import pytest

from quotas.engine import Engine, Window
from quotas.entities import Entity
from quotas.policy import Policy
from tests.proxy.playbook import QUESTION, list_offsets, serves
from tests.proxy.session.another import Another
from tests.proxy.session.mutating import (
    BURST,
    CREATE,
    DELETE,
    LIMIT,
    MUTATION,
    OLD_CREATE,
    Known,
    answer,
    bucket,
    create,
    delete,
    names,
    play_with,
    said,
    tokens,
)


class TestEvasion:
    def test_new_connections_are_refused_too(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2)))
        for number in range(20):
            another = Another(play, broker=2)
            assert another.send(create(number, ("b", 1))) == b""
            assert said(CREATE, another.client.take()) == {"b": 89}
        assert tokens(play) == -2

    def test_an_older_version_does_not_get_past_the_debt(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2)))
        another = Another(play, broker=2)
        assert another.send(create(1, ("b", 1), version=OLD_CREATE)) == b""
        assert another.client.take() == b""

    def test_pipelined_requests_are_judged_one_after_the_other(self) -> None:
        play = play_with()
        sent = [create(number, (f"t{number}", BURST)) for number in range(4)]
        assert play.from_client(b"".join(sent)) == sent[0]
        play.from_broker(answer(CREATE, 0, ("t0", 0)))
        assert play.broker.take() == sent[1]
        got = play.from_broker(answer(CREATE, 1, ("t1", 0)))
        assert said(CREATE, got[len(answer(CREATE, 1, ("t1", 0))) :]) == {"t2": 89}
        assert play.broker.take() == b""

    def test_every_broker_and_every_client_id_of_a_user_is_one_counter(self) -> None:
        policy = Policy({Entity(user="ANONYMOUS"): {MUTATION: LIMIT}})
        play = play_with(policy=policy)
        play.from_client(create(1, ("a", BURST + 2)))
        play.session.broker_known(7)
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        play.from_client(create(2, ("b", 1), client_id="another"))
        assert said(CREATE, play.client.take()) == {"b": 89}
        assert len(play.engine.usage(play.loop.now_ms)) == 1

    def test_oversized_create_topics_is_refused_with_limits_mutations_hint(self) -> None:
        play = play_with()
        play.from_client(create(1, *((f"topic-{number}" * 5, 1) for number in range(10_000)))[:200])
        ((side, error),) = play.rejected
        assert (side, error.cause.value) == ("client", "frame_too_large")
        assert "limits.mutations is 262144: name fewer topics" in str(error)

    def test_create_topics_is_not_charged_before_authentication_is_proved(self) -> None:
        play = play_with(authenticated=False)
        sent = create(1, ("a", BURST + 2))
        assert play.from_client(sent + create(2, ("b", 1))) == QUESTION
        assert tokens(play) == BURST
        assert play.client.paused, "all waits for the proof"
        assert serves(play)
        assert tokens(play) < BURST

    def test_mutation_throttle_applies_to_group_coordinating_connection(self) -> None:
        play = play_with()
        play.session.identity.coordinates = True
        play.from_client(create(1, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        play.from_client(create(2, ("b", 1)))
        assert said(CREATE, play.client.take()) == {"b": 89}
        assert play.from_client(create(3, ("b", 1), version=OLD_CREATE)) == b""


class TestAsking:
    def test_a_request_waits_until_partitions_are_known_and_what_is_behind_it_too(self) -> None:
        known = Known({"a": 4}, slow=True)
        play = play_with(partitions=known)
        sent = delete(1, "a") + list_offsets(2)
        assert play.from_client(sent) == b""
        assert play.client.paused
        assert play.session.held
        known.answer()
        assert play.broker.take() == delete(1, "a") + list_offsets(2)
        assert tokens(play) == BURST - 4
        assert not play.client.paused

    def test_partition_lookups_are_limited_to_affordable_topics(self) -> None:
        known = Known(slow=True)
        play = play_with(0.5, known)
        play.from_client(delete(1, *(f"t{number}" for number in range(100))))
        assert [len(asked) for asked in known.asked] == [6]
        known.answer()
        assert names(DELETE, play.broker.take()) == [f"t{number}" for number in range(6)]
        play.from_broker(answer(DELETE, 1, *((f"t{number}", 0) for number in range(6))))
        Another(play, broker=2).send(delete(1, "t7"))
        assert len(known.asked) == 1

    def test_topics_affordable_after_slow_lookup_are_looked_up_too(self) -> None:
        known = Known({"a": 1, "b": 100, "c": 1}, slow=True)
        play = play_with(partitions=known)
        bucket(play).record(BURST, play.loop.now_ms)
        sent = delete(1, "a", "a", "b", "c")
        play.from_client(sent)
        play.loop.advance(3000)
        known.answer()
        assert play.broker.take() == b""
        known.answer()
        assert [[topic[0] for topic in asked] for asked in known.asked] == [[b"a"], [b"b", b"c"]]
        assert names(DELETE, play.broker.take()) == ["a", "a", "b"]
        assert tokens(play) == 6 - 101

    def test_shadow_looks_up_and_counts_all_deleted_partitions(self) -> None:
        known = Known({"a": 30, "b": 5}, slow=True)
        play = play_with(partitions=known, mode="shadow")
        for number, name in enumerate(("a", "b")):
            assert play.from_client(delete(number, name)) == b""
            known.answer()
            assert play.broker.take() == delete(number, name)
            play.from_broker(answer(DELETE, number, (name, 0)))
        state = bucket(play).usage(play.loop.now_ms)
        assert state is not None
        assert (state.charged_total, state.throttled_total, state.tokens) == (35, 1, BURST - 30)

    def test_tokens_spent_during_lookup_refuse_the_waiting_delete(self) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        Another(play, broker=2).send(create(1, ("b", BURST + 2)))
        known.answer()
        assert play.broker.take() == b""
        assert said(DELETE, play.client.take()) == {"a": 89}

    @pytest.mark.parametrize("end", ["close", "abort", "broker_lost", "drain"])
    def test_lookup_result_for_ended_session_is_dropped(self, end: str) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        getattr(play.session, end)()
        play.session.end_lost()
        known.answer()
        assert play.broker.take() == b""

    def test_delete_waiting_for_lookup_passes_when_quota_is_removed(self) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        play.engine.apply(Policy({}), play.loop.now_ms)
        known.answer()
        assert play.broker.take() == delete(1, "a")


@pytest.mark.long
@pytest.mark.parametrize("limit", [0.1, 5.0, 100.0])
@pytest.mark.parametrize("version", [CREATE, OLD_CREATE])
def test_twenty_greedy_connections_get_no_more_than_the_quota(limit: float, version: int) -> None:
    """They ask as soon as they may, each for two partitions, and forget throttles by connecting anew."""
    engine = Engine(Policy({Entity(client_id="app"): {MUTATION: limit}}), Window())
    play = play_with(engine=engine)
    created, seconds = 0, 60

    def serve(another: Another) -> None:
        nonlocal created
        for number in range(50):
            if (to_broker := another.send(create(number, ("t", 2), version=version))) == b"":
                return
            created += 2 * len(names(version, to_broker))
            another.session.answers.feed(answer(version, number, ("t", 0)), play.loop.now_ms)

    for _ in range(seconds * 4):
        for another in [Another(play, broker=2) for _ in range(20)]:
            serve(another)
            another.session.close()
        play.loop.advance(250)
    assert created <= limit * (11 + seconds) + 2
    assert created >= limit * (11 + seconds - 1) - 2
