"""Requests that change topics under controller_mutation_rate: what is charged, refused, held, and settled."""

from collections.abc import Iterable, Mapping, Sequence
from struct import unpack_from
from typing import Any

import pytest

from protocol.headers import request_body_offset
from protocol.mutation_answers import read_outcomes
from protocol.mutations import Topic, read_entries
from protocol.overlay import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from protocol.table import SPECS, key_version
from proxy.session.gates.mutations import MOST_CLAIMED
from proxy.session.partitions import Look, Then
from proxy.session.session import Session
from proxy.usage.accounts import Accounts
from quotas.engine import Engine, Window
from quotas.entities import Entity
from quotas.exemptions import Exemptions
from quotas.kinds import QuotaKind
from quotas.mutations import TokenBound
from quotas.policy import Policy, Terms
from tests.protocol.encode import encode_frame, encode_request
from tests.proxy.playbook import FakeWire, Play, list_offsets, list_offsets_answer, produce, produce_answer

MUTATION = QuotaKind.CONTROLLER_MUTATION_RATE
LIMIT = 2.0
BURST = 22
"""Eleven seconds' worth."""
CREATE, DELETE, GROW = key_version(CREATE_TOPICS, 7), key_version(DELETE_TOPICS, 6), key_version(CREATE_PARTITIONS, 3)
OLD_CREATE, OLD_DELETE = key_version(CREATE_TOPICS, 5), key_version(DELETE_TOPICS, 1)


class Known:
    """Knows the partitions of topics; with ``slow`` when the test says so."""

    def __init__(self, present: Mapping[str, int] | None = None, *, slow: bool = False) -> None:
        self.present = {name.encode(): number for name, number in (present or {}).items()}
        self.default_partitions = 1
        self.slow = slow
        self.asked: list[tuple[Topic, ...]] = []
        self.looks: list[tuple[Look, Sequence[Topic], Then]] = []

    def known(self, topics: Iterable[Topic]) -> dict[Topic, int]:
        return {} if self.slow else {topic: self.present[topic[0]] for topic in topics if topic[0] in self.present}

    def forget(self, topics: Iterable[Topic]) -> None:
        pass

    def look_up(self, whose: object, topics: Sequence[Topic], then: Then) -> Look | None:
        self.asked.append(tuple(topics))
        if not self.slow:
            return None

        class Asked:
            wanted = True

        look = Asked()
        self.looks.append((look, topics, then))
        return look

    def answer(self) -> None:
        look, topics, then = self.looks.pop(0)
        if look.wanted:
            then({topic: self.present[topic[0]] for topic in topics if topic[0] in self.present})


def play_with(limit: float | None = LIMIT, partitions: Known | None = None, **options: Any) -> Play:
    play = Play({MUTATION: limit} if limit is not None else None, **options)
    play.rules.partitions = partitions or Known()
    return play


def bucket(play: Play) -> TokenBound:
    bound = play.engine.resolve("ANONYMOUS", "app", MUTATION, 1)
    assert isinstance(bound, TokenBound)
    return bound


def tokens(play: Play) -> float:
    return bucket(play).tokens(play.loop.now_ms)


def create(number: int, *topics: tuple[str, int], version: int = CREATE, client_id: str = "app", **more: Any) -> bytes:
    values = [{"name": name, "num_partitions": partitions, "replication_factor": 1} for name, partitions in topics]
    return encode_request(SPECS[version], {"topics": values, "timeout_ms": 30_000, **more}, number, client_id)


def delete(number: int, *names: str, version: int = DELETE) -> bytes:
    if version == DELETE:
        return encode_request(SPECS[version], {"topics": [{"name": name} for name in names]}, number)
    return encode_request(SPECS[version], {"topic_names": list(names)}, number)


def grow(number: int, *topics: tuple[str, int], version: int = GROW) -> bytes:
    return encode_request(SPECS[version], {"topics": [{"name": n, "count": count} for n, count in topics]}, number)


def answer(version: int, number: int, *topics: tuple[str, int], throttle_ms: int = 0, **of_each: Any) -> bytes:
    """What a broker says: of each topic its error."""
    key = version >> 16
    name = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}[key]
    listed = [{"name": topic, "error_code": error, "num_partitions": -1, **of_each} for topic, error in topics]
    return encode_frame(SPECS[version], {"throttle_time_ms": throttle_ms, name: listed}, number)


def said(version: int, frame: bytes) -> dict[str, int]:
    return {each.topic[0].decode(): each.error_code for each in read_outcomes(SPECS[version], frame)}


def names(version: int, frame: bytes) -> list[str]:
    spec = SPECS[version]
    entries = read_entries(spec, frame, request_body_offset(spec, frame, 0, len(frame)))
    return [entry.topic[0].decode() for entry in entries.topics]


def told_ms(frame: bytes) -> int:
    """throttle_time_ms of a flexible answer."""
    return int(unpack_from(">i", frame, 9)[0])


class Another:
    """One more connection of the same client."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.client, self.broker = FakeWire(), FakeWire()
        self.session = Session(
            play.rules,
            self.client,
            lambda _: {},
            lambda _: None,
            sasl=play.sasl_rules,
            accounts=Accounts(play.meters, play.engine, "PLAIN"),
            peer="10.0.0.2:6",
            user="ANONYMOUS",
            authenticated=True,
        )
        self.session.connected(self.broker, 2)

    def send(self, data: bytes) -> bytes:
        self.session.requests.feed(data, self.play.loop.now_ms)
        return self.broker.take()


class TestStrict:
    def test_what_the_bucket_has_goes_as_it_came_and_the_answer_too(self) -> None:
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

    def test_of_a_request_some_topics_are_refused_in_order_and_added_to_the_answer(self) -> None:
        play = play_with()
        to_broker = play.from_client(create(1, ("a", 20), ("b", 6), ("c", 1), ("d", 1)))
        assert names(CREATE, to_broker) == ["a", "b"]
        assert to_broker == create(1, ("a", 20), ("b", 6))
        got = play.from_broker(answer(CREATE, 1, ("b", 0), ("a", 0), throttle_ms=40))
        assert said(CREATE, got) == {"a": 0, "b": 0, "c": 89, "d": 89}
        assert told_ms(got) == 2000
        assert play.client.paused

    def test_of_two_throttle_times_the_longer_one_is_told(self) -> None:
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


class TestWhatIsCharged:
    def test_assignments_and_the_default_which_the_answer_tells(self) -> None:
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

    def test_what_the_broker_refuses_is_given_back(self) -> None:
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

    def test_what_cannot_be_known_is_one(self) -> None:
        play = play_with()
        play.from_client(delete(1, "a", "b"))
        assert tokens(play) == BURST - 2

    def test_a_topic_by_its_id(self) -> None:
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

    def test_who_does_not_wait_for_the_answer_has_paid(self) -> None:
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
        use = play.session.gates.sender.account.meter.use_of(MUTATION)
        assert (use.used, use.requests) == (30, 1)


class TestPermissive:
    def test_it_is_never_refused_but_told_muted_and_the_next_one_of_any_connection_held(self) -> None:
        play = play_with()
        other = Another(play)
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

    def test_what_waits_goes_one_after_the_other(self) -> None:
        play = play_with()
        others = [Another(play) for _ in range(3)]
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

    def test_those_who_wait_go_one_after_the_other_though_each_has_to_ask(self) -> None:
        known = Known({"a": 10}, slow=True)
        play = play_with(partitions=known)
        others = [Another(play) for _ in range(4)]
        bucket(play).record(BURST + 2, play.loop.now_ms)
        for other in others:
            assert other.send(delete(1, "a", version=OLD_DELETE)) == b""
        for _ in range(200):
            play.loop.advance(50)
            while known.looks:
                known.answer()
            assert tokens(play) > -11, "no two at once"
        assert sum(bool(other.broker.sent) for other in others) == 2

    def test_those_who_wait_with_a_part_of_a_request_do_not_go_together_either(self) -> None:
        play = play_with()
        others = [Another(play) for _ in range(4)]
        bucket(play).record(BURST + 2, play.loop.now_ms)
        sent = create(1, ("a", 10), version=OLD_CREATE)
        for other in others:
            assert other.send(sent[:30]) == b""
        play.loop.advance(1500)
        assert sum(other.send(sent[30:]) == sent for other in others) == 1
        assert tokens(play) == 1 - 10


class TestEvasion:
    def test_new_connections_are_refused_too(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2)))
        for number in range(20):
            another = Another(play)
            assert another.send(create(number, ("b", 1))) == b""
            assert said(CREATE, another.client.take()) == {"b": 89}
        assert tokens(play) == -2

    def test_an_older_version_does_not_get_past_the_debt(self) -> None:
        play = play_with()
        play.from_client(create(1, ("a", BURST + 2)))
        another = Another(play)
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

    def test_one_that_is_too_long_is_refused_with_what_to_do(self) -> None:
        play = play_with()
        play.from_client(create(1, *((f"topic-{number}" * 5, 1) for number in range(10_000)))[:200])
        ((side, error),) = play.rejected
        assert (side, error.cause.value) == ("client", "frame_too_large")
        assert "limits.mutations is 262144: name fewer topics" in str(error)

    def test_nobody_is_charged_before_he_is_known(self) -> None:
        play = play_with(authenticated=False)
        sent = create(1, ("a", BURST + 2))
        assert play.from_client(sent + create(2, ("b", 1))) == sent
        assert tokens(play) == BURST
        assert play.client.paused, "what follows waits for the proof"

    def test_group_traffic_does_not_lift_it(self) -> None:
        play = play_with()
        play.session.gates.coordinates = True
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

    def test_in_debt_nothing_is_asked_and_else_no_more_than_could_be_accepted(self) -> None:
        known = Known(slow=True)
        play = play_with(0.5, known)
        play.from_client(delete(1, *(f"t{number}" for number in range(100))))
        assert [len(asked) for asked in known.asked] == [6]
        known.answer()
        assert names(DELETE, play.broker.take()) == [f"t{number}" for number in range(6)]
        play.from_broker(answer(DELETE, 1, *((f"t{number}", 0) for number in range(6))))
        Another(play).send(delete(1, "t7"))
        assert len(known.asked) == 1

    def test_what_may_go_only_because_asking_took_a_while_is_asked_about_too(self) -> None:
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

    def test_in_shadow_all_is_asked_about_and_counted(self) -> None:
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

    def test_others_that_spend_meanwhile_are_seen(self) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        Another(play).send(create(1, ("b", BURST + 2)))
        known.answer()
        assert play.broker.take() == b""
        assert said(DELETE, play.client.take()) == {"a": 89}

    @pytest.mark.parametrize("end", ["close", "abort", "broker_lost", "drain"])
    def test_a_session_that_ends_meanwhile_hears_nothing_of_it(self, end: str) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        getattr(play.session, end)()
        play.session.end_lost()
        known.answer()
        assert play.broker.take() == b""

    def test_a_quota_that_goes_meanwhile_lets_it_go(self) -> None:
        known = Known({"a": 1}, slow=True)
        play = play_with(partitions=known)
        play.from_client(delete(1, "a"))
        play.engine.apply(Policy({}), play.loop.now_ms)
        known.answer()
        assert play.broker.take() == delete(1, "a")


class TestModes:
    def test_shadow_counts_and_changes_nothing(self) -> None:
        play = play_with(mode="shadow")
        sent = [create(1, ("a", BURST + 2)), create(2, ("b", 3), ("c", 1)), create(3, ("d", 5), version=OLD_CREATE)]
        assert play.from_client(b"".join(sent)) == b"".join(sent)
        assert not play.client.paused
        backs = [answer(CREATE, 1, ("a", 0)), answer(CREATE, 2, ("b", 0), ("c", 36)), answer(OLD_CREATE, 3, ("d", 0))]
        assert play.from_broker(b"".join(backs)) == b"".join(backs)
        state = bucket(play).usage(play.loop.now_ms)
        assert state is not None
        assert (state.tokens, state.charged_total, state.throttled_total) == (-2, BURST + 2 + 3 + 5, 2)
        assert play.session.gates.sender.account.meter.use_of(MUTATION).used == BURST + 2 + 3 + 5

    @pytest.mark.parametrize("mode", ["shadow", "off"])
    def test_what_cannot_be_read_passes_where_nothing_is_enforced(self, mode: str) -> None:
        play = play_with(mode=mode)
        long = create(1, *((f"topic-{number}" * 5, 1) for number in range(10_000)))
        assert play.from_client(long) == long
        broken = encode_request(SPECS[CREATE], {"topics": []}, 2)[:-7]
        broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
        assert play.from_client(broken) == broken
        assert not play.rejected

    def test_off_does_nothing(self) -> None:
        play = play_with(mode="off")
        sent = create(1, ("a", BURST + 2)) + create(2, ("b", 3))
        assert play.from_client(sent) == sent
        assert tokens(play) == BURST

    def test_without_a_quota_for_the_client_nothing_is_gathered(self) -> None:
        play = play_with(policy=Policy({Entity(client_id="someone"): {MUTATION: 1}}))
        sent = create(1, *((f"topic-{number}" * 5, 1) for number in range(10_000)))
        assert b"".join(play.from_client(sent[at : at + 1000]) for at in range(0, len(sent), 1000)) == sent
        assert play.from_client(create(2, ("a", 1))[:20]) == create(2, ("a", 1))[:20]

    def test_delay_holds_the_refusal_back(self) -> None:
        play = play_with(response="delay")
        play.from_client(create(1, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        assert play.from_client(create(2, ("b", 1)) + list_offsets(3)) == b""
        assert play.client.take() == b""
        play.loop.advance(1000)
        assert said(CREATE, play.client.take()) == {"b": 89}
        assert play.broker.take() == list_offsets(3)

    def test_a_refusal_that_is_held_back_goes_when_nothing_is_enforced_any_more(self) -> None:
        play = play_with(response="delay")
        play.from_client(create(1, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        play.from_client(create(2, ("b", 1)) + list_offsets(3))
        play.engine.rejudge(play.loop.now_ms)
        play.throttling.set_mode("shadow", play.loop.now_ms)
        assert said(CREATE, play.client.take()) == {"b": 89}
        assert play.broker.take() == list_offsets(3)

    def test_delay_that_outlives_the_client(self) -> None:
        play = play_with(response="delay")
        play.from_client(create(1, ("a", BURST + 2)))
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        play.from_client(create(2, ("b", 1)))
        play.session.close()
        play.session.end_lost()
        play.loop.advance(5000)
        assert play.client.take() == b""


class TestOrder:
    def test_a_refusal_waits_for_the_answers_before_it(self) -> None:
        play = play_with()
        bucket(play).record(BURST + 2, play.loop.now_ms)
        assert play.from_client(produce(1, 10) + create(2, ("a", 1)) + list_offsets(3)) == produce(1, 10)
        assert play.client.take() == b""
        got = play.from_broker(produce_answer(1))
        assert got.startswith(produce_answer(1))
        assert said(CREATE, got[len(produce_answer(1)) :]) == {"a": 89}
        play.loop.advance(1000)
        assert play.broker.take() == list_offsets(3)
        assert play.from_broker(list_offsets_answer(3)) == list_offsets_answer(3)

    @pytest.mark.parametrize("end", ["client_finished", "drain"])
    def test_a_session_that_is_to_end_after_a_refusal_ends(self, end: str) -> None:
        play = play_with()
        bucket(play).record(BURST + 2, play.loop.now_ms)
        play.from_client(create(1, ("a", 1)))
        getattr(play.session, end)()
        play.loop.advance(1000)
        assert play.closed
        assert said(CREATE, play.client.take()) == {"a": 89}

    def test_a_new_limit_lets_who_waits_ask_again(self) -> None:
        play = play_with()
        bucket(play).record(BURST + 20, play.loop.now_ms)
        sent = create(1, ("a", 1), version=OLD_CREATE)
        assert play.from_client(sent) == b""
        play.engine.apply(Policy({Entity(client_id="app"): {MUTATION: 1000.0}}), play.loop.now_ms)
        play.loop.advance(30)
        play.throttling.reconsider(play.loop.now_ms)
        assert play.broker.take() == sent


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
        for another in [Another(play) for _ in range(20)]:
            serve(another)
            another.session.close()
        play.loop.advance(250)
    assert created <= limit * (11 + seconds) + 2
    assert created >= limit * (11 + seconds - 1) - 2


class TestTerms:
    """What a rule says beside its limit."""

    ENTITY = Entity(client_id="app")

    def play(self, terms: Terms, limit: float = LIMIT, **options: Any) -> Play:
        return play_with(policy=Policy({self.ENTITY: {MUTATION: limit}}, {self.ENTITY: terms}), **options)

    @pytest.mark.parametrize("mode", ["enforce", "shadow"])
    def test_a_rule_in_shadow_measures_and_holds_nobody(self, mode: str) -> None:
        play = self.play(Terms(shadow=True), mode=mode)
        sent = [create(1, ("a", BURST + 2)), create(2, ("b", 3)), create(3, ("c", 5), version=OLD_CREATE)]
        assert play.from_client(b"".join(sent)) == b"".join(sent)
        assert not play.client.paused
        play.from_broker(answer(CREATE, 1, ("a", 0)) + answer(CREATE, 2, ("b", 36)) + answer(OLD_CREATE, 3, ("c", 0)))
        state = bucket(play).usage(play.loop.now_ms)
        assert state is not None
        assert (state.limit, state.tokens, state.shadow_limit) == (None, None, LIMIT)
        assert (state.throttled_total, state.shadow_throttled_total) == (0, 2)
        assert state.shadow_throttle_ms_total == 2000
        assert state.charged_total == BURST + 2 + 5
        long = create(4, *((f"topic-{number}" * 5, 1) for number in range(10_000)))
        assert play.from_client(long) == long, "nothing is refused for its size either"

    def test_a_proposed_limit_is_measured_beside_the_one_in_force(self) -> None:
        play = self.play(Terms(proposed={MUTATION: 0.5}))
        sent = create(1, ("a", 6))
        assert play.from_client(sent) == sent
        play.from_broker(answer(CREATE, 1, ("a", 0)))
        again = create(2, ("b", 1), ("c", 1))
        assert play.from_client(again) == again
        play.from_broker(answer(CREATE, 2, ("b", 0), ("c", 0)))
        state = bucket(play).usage(play.loop.now_ms)
        assert state is not None
        assert (state.throttled_total, state.shadow_throttled_total) == (0, 1)
        assert state.tokens == BURST - 8

    def test_what_the_broker_refuses_is_given_back_there_too(self) -> None:
        play = self.play(Terms(proposed={MUTATION: 0.5}))
        play.from_client(create(1, ("a", 20)))
        play.from_broker(answer(CREATE, 1, ("a", 36)))
        shadow = bucket(play).shadow()
        assert shadow is not None
        assert shadow.tokens(play.loop.now_ms) == 5.5

    def test_a_ceiling_of_the_rule_bounds_what_is_told(self) -> None:
        play = self.play(Terms(max_delay_ms=200))
        play.from_client(create(1, ("a", BURST + 20), ("b", 1)))
        assert told_ms(play.from_broker(answer(CREATE, 1, ("a", 0)))) == 200

    def test_who_is_exempt_is_not_looked_at(self) -> None:
        play = self.play(Terms())
        play.listener.exemptions = Exemptions(client_ids=frozenset(("app",)))
        sent = create(1, ("a", BURST + 2)) + create(2, ("b", 1))
        assert play.from_client(sent) == sent
        assert not play.engine.usage(play.loop.now_ms)

    def test_a_mode_that_changes_on_the_way(self) -> None:
        play = self.play(Terms())
        play.from_client(create(1, ("a", BURST + 2), ("b", 1)))
        other = Another(play)
        late = create(1, ("c", 1), version=OLD_CREATE)
        assert other.send(late) == b""
        play.engine.rejudge(play.loop.now_ms)
        play.throttling.set_mode("shadow", play.loop.now_ms)
        assert other.broker.take() == late
        assert said(CREATE, play.from_broker(answer(CREATE, 1, ("a", 0)))) == {"a": 0, "b": 89}
        sent = create(2, ("d", 1))
        assert play.from_client(sent) == sent
