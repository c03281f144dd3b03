"""Who gets a slot, who is refused, and who has to make room."""

import pytest

from protocol.errors import Cause
from proxy.edge.connection_slots import GRACE_S, ConnectionSlots
from proxy.edge.stats import Refused
from tests.harness.work import lines_run


class Guest:
    def __init__(
        self, taken: ConnectionSlots, host: str, now_s: float = 0.0, listener: str = "", broker: int | None = 1
    ) -> None:
        self.why: Cause | None = None
        self.slot = taken.enter(host, broker, now_s, self.make_room, listener)

    def make_room(self, why: Refused) -> None:
        assert why.by_limit
        assert why.error is not None
        self.why = why.error.cause


def slots(
    most: int = 100, most_of_ip: int | None = 100, before_request: int = 100, overrides: dict[str, int] | None = None
) -> ConnectionSlots:
    return ConnectionSlots(
        most=most, most_of_ip=most_of_ip, overrides=overrides or {}, most_before_request=before_request
    )


def enter(taken: ConnectionSlots, *hosts: str, settled: bool = False, now_s: float = 0.0) -> list[Guest]:
    guests = []
    for host in hosts:
        guests.append(Guest(taken, host, now_s))
        if settled:
            taken.settle(guests[-1].slot)
    return guests


def test_address_has_half_of_all_slots_by_default() -> None:
    taken = slots(most=10, most_of_ip=None)
    enter(taken, *["10.0.0.1"] * 5, settled=True)
    with pytest.raises(Refused, match="connections_per_ip") as refused:
        Guest(taken, "10.0.0.1")
    assert refused.value.error is not None
    assert (refused.value.error.cause, refused.value.by_limit) == (Cause.CONNECTIONS_PER_IP, True)
    enter(taken, *["10.0.0.2"] * 4, settled=True)
    with pytest.raises(Refused, match="has 4 connections to all brokers together, and 1 are left"):
        Guest(taken, "10.0.0.2")
    enter(taken, "10.0.0.3", settled=True)
    assert taken.taken == 10


def test_an_address_may_have_a_number_of_its_own() -> None:
    taken = slots(most_of_ip=1, overrides={"10.0.0.1": 3, "10.0.0.9": 0})
    enter(taken, *["10.0.0.1"] * 3)
    for host in ("10.0.0.1", "10.0.0.9"):
        with pytest.raises(Refused):
            Guest(taken, host)


def test_a_place_is_given_back_once() -> None:
    taken = slots(most_of_ip=2)
    first, _ = enter(taken, "10.0.0.1", "10.0.0.1")
    first.slot.descriptor_closed()
    first.slot.descriptor_closed()
    assert taken.taken == taken.before_request == 1
    enter(taken, "10.0.0.1")
    with pytest.raises(Refused):
        Guest(taken, "10.0.0.1")


def test_the_oldest_of_the_address_with_most_of_them_makes_room() -> None:
    taken = slots(before_request=4)
    crowd = enter(taken, "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3")
    newcomers = enter(taken, "10.0.0.4", "10.0.0.4", now_s=GRACE_S)
    assert [guest.why for guest in crowd] == [
        Cause.CONNECTIONS_BEFORE_REQUEST,  # with one each, the oldest
        Cause.CONNECTIONS_BEFORE_REQUEST,  # of the address that had two
        None,
        None,
    ]
    assert [guest.why for guest in newcomers] == [None, None]
    assert taken.taken == taken.before_request == 4


def test_connections_in_grace_stay_and_excess_is_closed_later() -> None:
    taken = slots(before_request=2)
    storm = enter(taken, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", now_s=1.0)
    assert taken.before_request == 4
    enter(taken, "10.0.0.5", now_s=1.0 + GRACE_S)
    assert [guest.why is None for guest in storm] == [False, False, False, True]
    assert taken.before_request == 2


def test_connections_with_a_request_keep_slots_when_full() -> None:
    taken = slots(most=3, before_request=2)
    served = enter(taken, *["10.0.0.1"] * 3, settled=True)
    with pytest.raises(Refused, match="refused_limit"):
        Guest(taken, "10.0.0.2")
    assert [guest.why for guest in served] == [None] * 3


def test_silent_connections_take_no_place_from_others_when_all_are_taken() -> None:
    taken = slots(most=4)
    enter(taken, "10.0.0.1", settled=True)
    silent = enter(taken, *["10.0.0.2"] * 3)
    enter(taken, "10.0.0.3")  # they have just come, and are more than one
    assert [guest.why is None for guest in silent] == [False, True, True]
    with pytest.raises(Refused, match="refused_limit"):  # an address does not push out its own
        Guest(taken, "10.0.0.2", GRACE_S)
    with pytest.raises(Refused, match="refused_limit"):  # nor one that would then have fewer, while that has just come
        Guest(taken, "10.0.0.3", GRACE_S - 0.1)
    enter(taken, "10.0.0.3", now_s=GRACE_S)
    with pytest.raises(Refused, match="refused_limit"):
        Guest(taken, "10.0.0.3", GRACE_S)
    assert taken.taken == 4


def test_behind_a_load_balancer_the_named_address_counts_in_place_of_none() -> None:
    taken = slots(most_of_ip=1)
    first, second = enter(taken, "", "")
    first.slot.descriptor_closed()
    (named,) = enter(taken, "10.0.0.1")
    second.slot.descriptor_closed()
    with pytest.raises(Refused):
        Guest(taken, "10.0.0.1")
    assert (taken.taken, taken.before_request) == (1, 1)
    named.slot.descriptor_closed()
    enter(taken, "10.0.0.1")


def test_a_listener_has_its_own_number_beside_that_of_all() -> None:
    taken = ConnectionSlots(most=4, most_of_ip=100, overrides={}, most_before_request=100, most_of={"SMALL": 2})
    for guest in [Guest(taken, "10.0.0.1", listener="SMALL") for _ in range(2)]:
        taken.settle(guest.slot)
    with pytest.raises(Refused) as refused:
        Guest(taken, "10.0.0.2", GRACE_S, "SMALL")
    assert refused.value.outcome == "refused_listener_limit"
    first, _ = [Guest(taken, "10.0.0.3", listener="LARGE") for _ in range(2)]
    with pytest.raises(Refused) as refused:
        Guest(taken, "10.0.0.3", listener="LARGE")
    assert refused.value.outcome == "refused_limit"
    first.slot.descriptor_closed()
    Guest(taken, "10.0.0.3", listener="LARGE")


def test_silent_connections_make_room_at_their_own_listener_and_at_no_other() -> None:
    taken = ConnectionSlots(most=100, most_of_ip=100, overrides={}, most_before_request=100, most_of={"SMALL": 3})
    elsewhere = [Guest(taken, "10.0.0.1", listener="LARGE") for _ in range(5)]
    here = [Guest(taken, "10.0.0.1", listener="SMALL") for _ in range(3)]
    Guest(taken, "10.0.0.2", GRACE_S - 0.1, "SMALL")
    assert [guest.why for guest in (*elsewhere, *here)] == [
        *[None] * 5,
        Cause.CONNECTIONS_BEFORE_REQUEST,
        None,
        None,
    ]
    assert (taken.taken, taken.before_request) == (8, 8)


def test_full_listener_and_total_close_one_connection_for_newcomer() -> None:
    taken = ConnectionSlots(most=3, most_of_ip=100, overrides={}, most_before_request=100, most_of={"SMALL": 2})
    other = Guest(taken, "10.0.0.1", listener="LARGE")
    here = [Guest(taken, "10.0.0.1", listener="SMALL") for _ in range(2)]
    Guest(taken, "10.0.0.2", GRACE_S, "SMALL")
    assert [guest.why is None for guest in (other, *here)] == [True, False, True]
    assert taken.taken == 3


def test_address_has_half_of_listener_slots_by_default() -> None:
    taken = ConnectionSlots(
        most=100, most_of_ip=None, overrides={"10.0.0.9": 4}, most_before_request=100, most_of={"SMALL": 4}
    )
    for _ in range(2):
        Guest(taken, "10.0.0.1", listener="SMALL")
    with pytest.raises(Refused, match="2 connections to all"):
        Guest(taken, "10.0.0.1", listener="SMALL")
    Guest(taken, "10.0.0.1", listener="LARGE")
    for _ in range(2):
        Guest(taken, "10.0.0.9", listener="SMALL")
    assert taken.taken == 5


def test_a_newcomer_sends_off_a_few_of_a_storm_and_the_next_ones_the_others() -> None:
    taken = slots(most=10_000, most_of_ip=None, before_request=10)
    storm = enter(taken, *[f"10.0.{number // 250}.{number % 250}" for number in range(1000)], now_s=1.0)
    gone: list[int] = []
    for number in range(400):
        enter(taken, f"10.1.{number // 250}.{number % 250}", now_s=1.0 + GRACE_S)
        gone.append(sum(guest.why is not None for guest in storm) - sum(gone))
    assert max(gone) <= 4
    assert sum(gone) == 1000


@pytest.mark.long
@pytest.mark.parametrize("host", ["10.{}.{}.{}", "2001:db8:{:x}:{:x}::{:x}", "2001:db8:1:1:0:{:x}:{:x}:{:x}"])
def test_cost_of_new_connection_is_independent_of_address_count(host: str) -> None:
    lines = []
    for there in (100, 10_000):
        taken = slots(most=100_000, most_of_ip=100_000, before_request=there)
        hosts = [host.format(number // 62_500, number // 250 % 250, number % 250) for number in range(there)]
        enter(taken, *hosts)
        with lines_run() as run:
            enter(taken, *hosts[:100], now_s=GRACE_S)
        assert taken.before_request == there
        lines.append(run[0])
    assert lines[1] < 1.2 * lines[0]


def test_the_addresses_of_one_ipv6_network_are_one_crowd() -> None:
    taken = slots(most=8, most_of_ip=None, before_request=4)
    crowd = enter(taken, "2001:db8::1", "10.0.0.1", "2001:db8::2", "2001:db8::ffff:0:3")
    enter(taken, "2001:db8:0:1::1", now_s=GRACE_S)
    assert [guest.why is None for guest in crowd] == [False, True, True, True]


def test_the_addresses_of_one_ipv6_network_have_half_of_all_places_together() -> None:
    taken = slots(most=8, most_of_ip=None)
    enter(taken, *[f"2001:db8::{number}" for number in range(4)], settled=True)
    with pytest.raises(Refused, match="has 4 connections"):
        Guest(taken, "2001:db8::4")
    Guest(taken, "2001:db8:0:1::4")


def test_a_number_for_one_address_is_for_that_address_alone() -> None:
    taken = slots(most_of_ip=1)
    enter(taken, "2001:db8::1", "2001:db8::2")
    with pytest.raises(Refused):
        Guest(taken, "2001:db8::1")


def test_an_address_has_its_number_at_each_broker_and_half_of_all_at_most() -> None:
    taken = slots(most=12, most_of_ip=2)
    for broker in (1, 2, None):
        Guest(taken, "10.0.0.1", broker=broker)
        Guest(taken, "10.0.0.1", broker=broker)
        with pytest.raises(Refused, match="2 connections to this broker"):
            Guest(taken, "10.0.0.1", broker=broker)
    with pytest.raises(Refused, match="6 connections to all brokers together"):
        Guest(taken, "10.0.0.1", broker=3)
    Guest(taken, "10.0.0.2", broker=3)


def test_a_place_counts_at_its_broker_once_that_is_known() -> None:
    taken = slots(most_of_ip=1)
    first = Guest(taken, "10.0.0.1", broker=None)
    taken.assign(first.slot, 1)
    second = Guest(taken, "10.0.0.1", broker=None)
    with pytest.raises(Refused, match="to this broker"):
        taken.assign(second.slot, 1)
    taken.assign(second.slot, 2)
    first.slot.descriptor_closed()
    taken.assign(first.slot, 2)  # it is gone
    assert taken.taken == 1
    Guest(taken, "10.0.0.1")
    second.slot.descriptor_closed()
    Guest(taken, "10.0.0.1", broker=2)
