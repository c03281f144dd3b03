from collections.abc import Mapping

import pytest

from config.brokers import PortClaim, find_claimed_twice, node_id_of, parse_broker_ports
from config.problems import InvalidValue, InvalidValues
from config.units import Address


def test_broker_port_ranges_map_each_node_id_to_its_port() -> None:
    brokers = parse_broker_ports({"0-9": "9100-9109", "42": "9142"})
    assert [brokers.bound(node_id) for node_id in (0, 9, 42)] == [9100, 9109, 9142]
    assert [brokers.bound(node_id) for node_id in (-1, 10, 41, 43)] == [None] * 4
    assert [brokers.advertised(node_id) for node_id in (0, 9, 42, 43)] == [9100, 9109, 9142, None]


def test_clients_may_be_told_other_ports() -> None:
    brokers = parse_broker_ports({"0-2": {"bind": "9100-9102", "advertise": "31100-31102"}, "7": "9107"})
    assert [brokers.bound(node_id) for node_id in (0, 2, 7)] == [9100, 9102, 9107]
    assert [brokers.advertised(node_id) for node_id in (0, 2, 7)] == [31100, 31102, 9107]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"0-9": "9100-9108"}, {"0-9": "10 node ids need 10 ports, not 9"}),
        ({"0-9": "0-9"}, {"0-9": "'0-9' is out of range"}),
        ({"2147483648": "9100"}, {"2147483648": "'2147483648' is out of range"}),
        ({"0": "65536"}, {"0": "'65536' is out of range"}),
        ({"x": "9100", "1": "y"}, {"x": "'x' is not a whole number", "1": "'y' is not a whole number"}),
        ({"1": ["9100"]}, {"1": "must be a range of ports"}),
        ({"0-5": "9100-9105", "5": "9200"}, {"5": "node id 5 already belongs to another range"}),
        ({"0-5": "9100-9105", "6": "9100"}, {"6": "port 9100 already belongs to another range"}),
        ({"0": {"bind": "9100"}}, {"0": "advertise is missing"}),
        ({"0": {"advertise": "9100"}}, {"0": "bind is missing"}),
        ({"0": {"bind": "9100", "advertise": "1", "avertise": "2"}}, {"0.avertise": "is unknown here"}),
        ({"0-2": {"bind": "9100-9102", "advertise": "443"}}, {"0-2.advertise": "3 node ids need 3 ports, not 1"}),
        (
            {"0-2": {"bind": "9100-9101", "advertise": "1-2"}},
            {"0-2.bind": "3 node ids need 3 ports, not 2", "0-2.advertise": "3 node ids need 3 ports, not 2"},
        ),
        ({"0": {"bind": "9100", "advertise": "k:31100"}}, {"0.advertise": "'k:31100' is not a range of ports"}),
        ({"0": "[::1]:9100"}, {"0": "'[::1]:9100' is not a range of ports"}),
        (
            {"0": {"bind": "9100", "advertise": "443"}, "1": {"bind": "9101", "advertise": "443"}},
            {"1.advertise": "port 443 already belongs to another advertised range"},
        ),
        (
            {"0": {"bind": "9100", "advertise": "9101"}, "1": "9101"},
            {"1": "port 9101 already belongs to another advertised range"},
        ),
        (
            {"0": {"bind": "9100", "advertise": "1"}, "1": {"bind": "9100", "advertise": "2"}},
            {"1.bind": "port 9100 already belongs to another range"},
        ),
    ],
)
def test_every_wrong_pair_is_named(written: Mapping[str, object], expected: dict[str, str]) -> None:
    with pytest.raises(InvalidValues) as caught:
        parse_broker_ports(written)
    assert {".".join(map(str, steps)): invalid.message for steps, invalid in caught.value.found} == expected


def test_the_fix_for_unequal_ranges_is_the_right_range() -> None:
    with pytest.raises(InvalidValues) as caught:
        parse_broker_ports({"0-9": "9100-9108"})
    assert caught.value.found[0][1].hint == "write 9100-9109"


def test_listener_without_brokers_is_refused() -> None:
    with pytest.raises(InvalidValue, match="names no broker"):
        parse_broker_ports({})


def claim(host: str, port: int) -> PortClaim:
    return PortClaim.of(Address(host, port), f"{host}:{port}", host, port)


@pytest.mark.parametrize(
    ("claims", "met"),
    [
        ([claim("127.0.0.1", 1), claim("127.0.0.2", 1)], []),
        ([claim("127.0.0.1", 1), claim("127.0.0.1", 2)], []),
        ([claim("127.0.0.1", 1), claim("127.0.0.1", 1)], [("127.0.0.1", 1)]),
        ([claim("127.0.0.1", 1), claim("", 1)], [("", 1)]),
        ([claim("0.0.0.0", 1), claim("127.0.0.1", 1), claim("::", 2)], [("127.0.0.1", 1)]),
    ],
)
def test_port_claimed_twice_on_one_interface_is_refused(claims: list[PortClaim], met: list[tuple[str, int]]) -> None:
    wrong = InvalidValues()
    find_claimed_twice(claims, wrong)
    assert [steps for steps, _ in wrong.found] == met


@pytest.mark.parametrize(
    ("host", "node_id"),
    [
        ("b0.kafka.x", 0),
        ("b12.kafka.x", 12),
        ("B12.Kafka.X", 12),
        ("b2147483647.kafka.x", 2**31 - 1),
        ("b2147483648.kafka.x", None),
        ("b99999999999.kafka.x", None),
        ("b01.kafka.x", None),
        ("b+1.kafka.x", None),
        ("b٣.kafka.x", None),
        ("b.kafka.x", None),
        ("b1.kafkaax", None),
        ("ab1.kafka.x", None),
        ("b1.kafka.x.y", None),
        ("b1.kafka.x\n", None),
        ("", None),
    ],
)
def test_broker_host_name_gives_its_node_id(host: str, node_id: int | None) -> None:
    assert node_id_of(host, "b{node_id}.kafka.X") == node_id
