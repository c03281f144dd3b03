"""Who gets a place, who is refused, and who has to make room."""

import pytest

from protocol.errors import Cause, ProtocolError
from proxy.places import FullError, Places


class Guest:
    def __init__(self, host: str) -> None:
        self.host = host
        self.why: Cause | None = None

    def make_room(self, error: ProtocolError) -> None:
        self.why = error.cause


def places(
    most: int = 100, most_of_ip: int | None = 100, before_request: int = 100, overrides: dict[str, int] | None = None
) -> Places:
    return Places(most=most, most_of_ip=most_of_ip, overrides=overrides or {}, most_before_request=before_request)


def enter(taken: Places, *hosts: str, settled: bool = False) -> list[Guest]:
    guests = [Guest(host) for host in hosts]
    for guest in guests:
        taken.enter(guest)
        if settled:
            taken.settle(guest)
    return guests


def test_of_one_address_there_are_half_at_most_unless_it_is_said() -> None:
    taken = places(most=10, most_of_ip=None)
    enter(taken, *["10.0.0.1"] * 5, settled=True)
    with pytest.raises(ProtocolError, match="connections_per_ip") as refused:
        taken.enter(Guest("10.0.0.1"))
    assert refused.value.cause is Cause.CONNECTIONS_PER_IP
    enter(taken, *["10.0.0.2"] * 5, settled=True)
    assert len(taken) == 10


def test_an_address_may_have_a_number_of_its_own() -> None:
    taken = places(most_of_ip=1, overrides={"10.0.0.1": 3, "10.0.0.9": 0})
    enter(taken, *["10.0.0.1"] * 3)
    for host in ("10.0.0.1", "10.0.0.9"):
        with pytest.raises(ProtocolError):
            taken.enter(Guest(host))


def test_a_place_is_given_back_once() -> None:
    taken = places(most_of_ip=2)
    first, _ = enter(taken, "10.0.0.1", "10.0.0.1")
    taken.leave(first)
    taken.leave(first)
    assert len(taken) == taken.before_request == 1
    enter(taken, "10.0.0.1")
    with pytest.raises(ProtocolError):
        taken.enter(Guest("10.0.0.1"))


def test_the_oldest_of_the_address_with_most_of_them_makes_room() -> None:
    taken = places(before_request=4)
    crowd = enter(taken, "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3")
    newcomers = enter(taken, "10.0.0.4", "10.0.0.4")
    assert [guest.why for guest in crowd] == [
        Cause.CONNECTIONS_BEFORE_REQUEST,  # with one each, the oldest
        Cause.CONNECTIONS_BEFORE_REQUEST,  # of the address that had two
        None,
        None,
    ]
    assert [guest.why for guest in newcomers] == [None, None]
    assert len(taken) == taken.before_request == 4


def test_who_has_sent_a_request_makes_room_for_nobody() -> None:
    taken = places(most=3, before_request=2)
    served = enter(taken, *["10.0.0.1"] * 3, settled=True)
    with pytest.raises(FullError):
        taken.enter(Guest("10.0.0.2"))
    assert [guest.why for guest in served] == [None] * 3


def test_silent_connections_take_no_place_from_others_when_all_are_taken() -> None:
    taken = places(most=4)
    enter(taken, "10.0.0.1", settled=True)
    silent = enter(taken, *["10.0.0.2"] * 3)
    enter(taken, "10.0.0.3")
    assert [guest.why is None for guest in silent] == [False, True, True]
    with pytest.raises(FullError):  # an address does not push out its own, or another with as few
        taken.enter(Guest("10.0.0.2"))
    assert len(taken) == 4


def test_behind_a_load_balancer_the_named_address_counts() -> None:
    taken = places(most_of_ip=1)
    first, second, third = enter(taken, "", "", "")
    taken.name(first, "10.0.0.1")
    with pytest.raises(ProtocolError):
        taken.name(second, "10.0.0.1")
    taken.leave(second)
    taken.leave(third)
    taken.name(third, "10.0.0.2")  # it had to make room meanwhile
    assert (len(taken), taken.before_request) == (1, 1)
    taken.leave(first)
    enter(taken, "10.0.0.1")
