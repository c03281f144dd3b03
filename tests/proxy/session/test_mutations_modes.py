"""Topics under controller_mutation_rate: modes, terms of rules, and the order of answers."""

from typing import Any

import pytest

from protocol.table import SPECS
from quotas.entities import Entity
from quotas.exemptions import Exemptions
from quotas.policy import Policy, Terms
from tests.protocol.encode import encode_request
from tests.proxy.playbook import Play, list_offsets, list_offsets_answer, produce, produce_answer
from tests.proxy.session.another import Another
from tests.proxy.session.mutating import (
    BURST,
    CREATE,
    LIMIT,
    MUTATION,
    OLD_CREATE,
    answer,
    bucket,
    create,
    play_with,
    said,
    tokens,
    told_ms,
)


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
        assert play.session.identity.account.meter.use_of(MUTATION).used == BURST + 2 + 3 + 5

    @pytest.mark.parametrize("mode", ["shadow", "off"])
    def test_unparsable_create_topics_passes_in_shadow_and_off(self, mode: str) -> None:
        play = play_with(mode=mode)
        long = create(1, *((f"topic-{number}" * 5, 1) for number in range(10_000)))
        assert play.from_client(long) == long
        broken = encode_request(SPECS[CREATE], {"topics": []}, 2)[:-7]
        broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
        assert play.from_client(broken) == broken
        assert not play.rejected

    def test_mode_off_passes_mutations_uncharged(self) -> None:
        play = play_with(mode="off")
        sent = create(1, ("a", BURST + 2)) + create(2, ("b", 3))
        assert play.from_client(sent) == sent
        assert tokens(play) == BURST
        play.from_broker(answer(CREATE, 1, ("a", 0)) + answer(CREATE, 2, ("b", 0)))
        play.engine.rejudge(play.loop.now_ms)
        play.throttling.set_mode("enforce", play.loop.now_ms)
        later = create(3, ("c", BURST + 2))
        assert play.from_client(later) == later
        assert tokens(play) == -2, "charged from then on"

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

    def test_delayed_refusal_for_closed_client_is_discarded(self) -> None:
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
        play.throttling.reconsider()
        assert play.broker.take() == sent


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

    def test_proposed_limit_gets_tokens_back_for_refused_topics(self) -> None:
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

    def test_mutations_of_exempt_client_are_not_charged(self) -> None:
        play = self.play(Terms())
        play.listener.exemptions = Exemptions(client_ids=frozenset(("app",)))
        sent = create(1, ("a", BURST + 2)) + create(2, ("b", 1))
        assert play.from_client(sent) == sent
        assert not play.engine.usage(play.loop.now_ms)

    def test_shadow_releases_waiting_mutation_and_keeps_earlier_refusal(self) -> None:
        play = self.play(Terms())
        play.from_client(create(1, ("a", BURST + 2), ("b", 1)))
        other = Another(play, broker=2)
        late = create(1, ("c", 1), version=OLD_CREATE)
        assert other.send(late) == b""
        play.engine.rejudge(play.loop.now_ms)
        play.throttling.set_mode("shadow", play.loop.now_ms)
        assert other.broker.take() == late
        assert said(CREATE, play.from_broker(answer(CREATE, 1, ("a", 0)))) == {"a": 0, "b": 89}
        sent = create(2, ("d", 1))
        assert play.from_client(sent) == sent
