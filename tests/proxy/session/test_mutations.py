"""Requests that change topics under controller_mutation_rate: what is charged, refused and held."""

from struct import unpack_from

import pytest

from protocol.overlay import CREATE_TOPICS
from protocol.table import SPECS, key_version
from proxy.session.policies.topics import MOST_CLAIMED
from tests.protocol.encode import encode_frame, encode_request
from tests.proxy.playbook import list_offsets
from tests.proxy.session.another import Another
from tests.proxy.session.mutating import (
    BURST,
    CREATE,
    DELETE,
    GROW,
    MUTATION,
    OLD_CREATE,
    OLD_DELETE,
    Known,
    Lagging,
    answer,
    bucket,
    create,
    delete,
    grow,
    names,
    play_with,
    said,
    tokens,
    told_ms,
)


class TestStrict:
    def test_create_topics_within_tokens_passes_unchanged(self) -> None:
        play = play_with()
        sent = create(1, ("a", 3), ("b", 4))
        assert play.from_client(sent) == sent
        assert tokens(play) == BURST - 7
        back = answer(CREATE, 1, ("a", 0), ("b", 0))
        assert play.from_broker(back) == back
        assert tokens(play) == BURST - 7

    @pytest.mark.parametrize("step", [1, 7, 10**6])
    def test_an_overdraft_is_accepted_and_the_next_request_refused_by_the_proxy(self, step: int) -> None:
        play = play_with()
        first, second = create(1, ("a", BURST + 6)), create(2, ("b", 1), ("c", 1))
        sent = first + second
        assert b"".join(play.from_client(sent[at : at + step]) for at in range(0, len(sent), step)) == first
        back = answer(CREATE, 1, ("a", 0))
        got = play.from_broker(back)
        assert got.startswith(back)
        refused = got[len(back) :]
        assert said(CREATE, refused) == {"b": 89, "c": 89}
        assert unpack_from(">i", refused, 4) == (2,)
        assert told_ms(refused) == 3000
        assert play.broker.take() == b""
        assert play.client.paused, "muted for what it was told"
        assert bucket(play).usage(play.loop.now_ms).throttled_total == 1  # type: ignore[union-attr]  # it has a limit
        play.loop.advance(2999)
        assert play.client.paused
        play.loop.advance(1)
        assert not play.client.paused
        again = create(3, ("b", 1))
        assert play.from_client(again) == again

    def test_topics_beyond_tokens_are_refused_with_error_89_in_answer(self) -> None:
        play = play_with()
        to_broker = play.from_client(create(1, ("a", 20), ("b", 6), ("c", 1), ("d", 1)))
        assert names(CREATE, to_broker) == ["a", "b"]
        assert to_broker == create(1, ("a", 20), ("b", 6))
        got = play.from_broker(answer(CREATE, 1, ("b", 0), ("a", 0), throttle_ms=40))
        assert said(CREATE, got) == {"a": 0, "b": 0, "c": 89, "d": 89}
        assert told_ms(got) == 2000
        assert play.client.paused

    @pytest.mark.parametrize("said_by_broker", [("a", "b"), ("b", "a")])
    def test_the_answer_names_topics_in_the_order_of_the_request(self, said_by_broker: tuple[str, str]) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 20), ("b", 6), ("c", 1), ("d", 1)))
        got = play.from_broker(answer(CREATE, 1, *((name, 0) for name in said_by_broker)))
        assert list(said(CREATE, got).items()) == [("a", 0), ("b", 0), ("c", 89), ("d", 89)]

    def test_longer_throttle_time_of_broker_is_kept(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 26), ("b", 1)))
        assert told_ms(play.from_broker(answer(CREATE, 1, ("a", 0), throttle_ms=9000))) == 9000

    @pytest.mark.parametrize("version", [CREATE, key_version(CREATE_TOPICS, 6)])
    def test_a_request_behind_a_cut_one_goes_as_it_came(self, version: int) -> None:
        play = play_with(max_delay_ms=1)
        sent = create(1, ("a", 26), ("b", 1), version=version) + list_offsets(2)
        to_broker = play.from_client(sent)
        play.loop.advance(5)
        play.from_broker(answer(version, 1, ("a", 0)))
        assert to_broker + play.broker.take() == create(1, ("a", 26), version=version) + list_offsets(2)

    def test_a_topic_that_is_named_twice_is_one(self) -> None:
        play = play_with()
        sent = create(1, ("a", 3), ("a", 3))
        assert play.from_client(sent) == sent
        assert tokens(play) == BURST - 3
        play.from_broker(answer(CREATE, 1, ("a", 42)))
        play.from_client(create(2, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 2, ("a", 0)))
        assert said(CREATE, (play.from_client(create(3, ("b", 1), ("b", 1))), play.client.take())[1]) == {"b": 89}

    def test_validation_alone_is_free_and_never_refused(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        before = tokens(play)
        sent = create(2, ("b", 100), validate_only=True)
        assert play.from_client(sent) == sent
        assert tokens(play) == before < 0


class TestMutationCharge:
    def test_assigned_and_default_partitions_are_charged_by_the_answer(self) -> None:
        play = play_with()
        assigned = [{"partition_index": number, "broker_ids": [1]} for number in range(3)]
        topics = [{"name": "a", "num_partitions": -1, "assignments": assigned}, {"name": "b", "num_partitions": -1}]
        play.from_client(encode_request(SPECS[CREATE], {"topics": topics}, 1))
        assert tokens(play) == BURST - 3 - 1
        told = [{"name": "a", "num_partitions": 3}, {"name": "b", "num_partitions": 6}]
        play.from_broker(encode_frame(SPECS[CREATE], {"topics": told}, 1))
        assert tokens(play) == BURST - 3 - 6
        play.from_client(create(2, ("c", -1)))
        assert tokens(play) == BURST - 9 - 6, "as many as the broker made last"

    def test_tokens_of_topics_refused_by_broker_are_refunded(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 5), ("b", 5), ("c", 5)))
        play.from_broker(answer(CREATE, 1, ("a", 36), ("b", 0), ("c", 7)))
        assert tokens(play) == BURST - 10, "the one that timed out may have been made"

    def test_deleted_and_added_partitions_are_those_that_are_there(self) -> None:
        play = play_with(partitions=Known({"a": 4, "b": 3}))
        sent = delete(1, "a")
        assert play.from_client(sent) == sent
        assert tokens(play) == BURST - 4
        play.from_broker(answer(DELETE, 1, ("a", 0)))
        play.from_client(grow(2, ("b", 8)))
        assert tokens(play) == BURST - 4 - 5

    def test_partitions_added_in_quick_succession_are_charged_once_though_metadata_lags(self) -> None:
        play = play_with(limit=10.0, partitions=(known := Lagging({"a": 1})))
        for number, count in enumerate((2, 5, 6), 1):
            play.from_client(grow(number, ("a", count)))
            play.from_broker(answer(GROW, number, ("a", 0)))
        assert tokens(play) == 110 - 5
        play.from_client(delete(9, "a"))
        assert tokens(play) == 110 - 5 - 6
        play.from_broker(answer(DELETE, 9, ("a", 0)))
        assert known.noted == {}, "nothing is believed of a topic that is gone"

    @pytest.mark.parametrize("first", [0, 1])
    def test_two_connections_that_grow_a_topic_pay_for_what_was_added(self, first: int) -> None:
        """Whichever answer comes first."""
        play = play_with(partitions=Lagging({"a": 1}))
        other = Another(play, broker=2)
        play.from_client(grow(1, ("a", 4)))
        other.send(grow(1, ("a", 9)))
        assert tokens(play) == BURST - 3 - 8
        back = answer(GROW, 1, ("a", 0))
        sides = [play.session.answers, other.session.answers]
        sides[first].feed(back, play.loop.now_ms)
        sides[1 - first].feed(back, play.loop.now_ms)
        assert tokens(play) == BURST - 8

    def test_a_topic_deleted_right_after_it_was_made_is_charged_for_its_partitions(self) -> None:
        play = play_with(partitions=Lagging())
        play.from_client(create(1, ("a", 5), ("b", -1)))
        told = [{"name": "a", "num_partitions": -1}, {"name": "b", "num_partitions": 4}]
        play.from_broker(encode_frame(SPECS[CREATE], {"topics": told}, 1))
        play.from_client(delete(2, "a", "b"))
        assert tokens(play) == BURST - 9 - 9

    def test_a_topic_deleted_by_its_id_is_charged_for_what_its_name_was_given(self) -> None:
        play = play_with(partitions=Lagging())
        play.from_client(create(1, ("a", 5)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        play.from_client(encode_request(SPECS[DELETE], {"topics": [{"name": None, "topic_id": b"i" * 16}]}, 2))
        listed = [{"name": "a", "topic_id": b"i" * 16}]
        play.from_broker(encode_frame(SPECS[DELETE], {"responses": listed}, 2))
        assert tokens(play) == BURST - 5 - 5

    def test_deleted_topic_of_unknown_size_is_charged_one_token(self) -> None:
        play = play_with()
        play.from_client(delete(1, "a", "b"))
        assert tokens(play) == BURST - 2

    def test_topic_deleted_by_id_is_charged_and_refunded_on_error(self) -> None:
        play = play_with(partitions=Known())
        asked = encode_request(SPECS[DELETE], {"topics": [{"name": None, "topic_id": b"i" * 16}]}, 1)
        assert play.from_client(asked) == asked
        assert tokens(play) == BURST - 1
        listed = [{"name": "a", "topic_id": b"i" * 16, "error_code": 29}]
        play.from_broker(encode_frame(SPECS[DELETE], {"responses": listed}, 1))
        assert tokens(play) == BURST

    def test_a_claim_beyond_what_any_broker_makes_keeps_others_out_for_no_longer_than_a_true_one(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 2**31 - 1)))
        assert tokens(play) == BURST - MOST_CLAIMED
        play.from_broker(answer(CREATE, 1, ("a", 37)))
        assert tokens(play) == BURST

    def test_client_leaving_before_answer_stays_charged(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 10)))
        play.session.close()
        assert tokens(play) == BURST - 10
        account = play.listener.hold(1, "ANONYMOUS", "app")
        assert account.meter.use_of(MUTATION).used == 10

    def test_a_long_answer_is_passed_on_and_what_was_asked_for_stays_charged(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 30), ("b", 1)))
        configs = [{"name": f"{number}" * 20, "value": "x" * 100} for number in range(4000)]
        whole = answer(CREATE, 1, ("a", 0), configs=configs)
        assert len(whole) > 256 * 1024
        got = b"".join(play.from_broker(whole[at : at + 60_000]) for at in range(0, len(whole), 60_000))
        assert said(CREATE, got) == {"a": 0, "b": 89}
        assert tokens(play) == BURST - 30

    def test_usage_records_count_what_was_carried_out(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", 20), ("b", 30), ("c", 1)))
        play.from_broker(answer(CREATE, 1, ("a", 36), ("b", 0)))
        use = play.session.identity.account.meter.use_of(MUTATION)
        assert (use.used, use.requests) == (30, 1)


class TestPermissive:
    def test_old_create_topics_is_throttled_and_next_one_held(self) -> None:
        play = play_with()
        other = Another(play, broker=2)
        sent = create(1, ("a", BURST + 6), version=OLD_CREATE)
        assert play.from_client(sent) == sent
        assert told_ms(play.from_broker(answer(OLD_CREATE, 1, ("a", 0)))) == 3000
        assert play.client.paused
        late = create(1, ("b", 1), version=OLD_CREATE)
        assert other.send(late) == b""
        assert other.client.paused
        assert play.throttling.queue_sizes()[MUTATION] == 2
        play.loop.advance(2999)
        assert other.broker.take() == b""
        play.loop.advance(1)
        assert other.broker.take() == late
        assert not play.client.paused

    def test_waiting_mutations_go_one_after_the_other(self) -> None:
        play = play_with()
        others = [Another(play, broker=2) for _ in range(3)]
        play.from_client(delete(1, "a", version=OLD_DELETE))
        play.from_client(b"")
        bucket(play).record(BURST, play.loop.now_ms)  # 0.5 s of debt
        for other in others:
            assert other.send(create(1, ("b", 4), version=OLD_CREATE)) == b""
        went = []
        for _ in range(60):
            play.loop.advance(100)
            went.append(sum(bool(other.broker.sent) for other in others))
        assert went[4:6] == [1, 1]
        assert went.index(2) - went.index(1) == pytest.approx(20, abs=2), "two seconds for four"
        assert max(went) == 3

    def test_versions_without_a_throttle_time_are_muted_alone(self) -> None:
        version = key_version(CREATE_TOPICS, 1)
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2), version=version))
        back = answer(version, 1, ("a", 0))
        assert play.from_broker(back) == back
        assert play.client.paused

    def test_waiting_deletes_that_look_up_partitions_go_singly(self) -> None:
        known = Known({"a": 10}, slow=True)
        play = play_with(partitions=known)
        others = [Another(play, broker=2) for _ in range(4)]
        bucket(play).record(BURST + 2, play.loop.now_ms)
        for other in others:
            assert other.send(delete(1, "a", version=OLD_DELETE)) == b""
        for _ in range(200):
            play.loop.advance(50)
            while known.looks:
                known.answer()
            assert tokens(play) > -11, "no two at once"
        assert sum(bool(other.broker.sent) for other in others) == 2

    def test_waiting_partial_mutations_go_one_after_the_other(self) -> None:
        play = play_with()
        others = [Another(play, broker=2) for _ in range(4)]
        bucket(play).record(BURST + 2, play.loop.now_ms)
        sent = create(1, ("a", 10), version=OLD_CREATE)
        for other in others:
            assert other.send(sent[:30]) == b""
        play.loop.advance(1500)
        assert sum(other.send(sent[30:]) == sent for other in others) == 1
        assert tokens(play) == 1 - 10
