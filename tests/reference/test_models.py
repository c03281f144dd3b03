"""Corners of the reference model that the vectors do not reach."""

import math

import pytest

from quotas.numbers import java_double
from quotas.rate import Window
from tests.reference import alter, display
from tests.reference.client_quotas import fetch_sizes, wrap_ms
from tests.reference.connections import Accepted, ConnectionQuotas, IpThrottled, canonical
from tests.reference.wire import throttle_field


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (-1e7, "-1.0E7"),
        (5e-324, "4.9E-324"),
        (1e23, "1.0E23"),
        (-0.0, "-0.0"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_double_is_printed_as_in_java(value: float, text: str) -> None:
    assert java_double(value) == text


def test_jmx_name_quotes_line_feeds_and_specials() -> None:
    assert display.jmx('a\n"*\\') == r'"a\n\"\*\\"'


@pytest.mark.parametrize(("raw", "wrapped"), [(2**63 - 1, -1), (2**31, -(2**31)), (-1, -1), (2**32 + 5, 5)])
def test_throttle_time_wraps_to_int32_as_in_java(raw: int, wrapped: int) -> None:
    assert wrap_ms(raw) == wrapped


@pytest.mark.parametrize(
    ("key", "value", "kraft", "zk"),
    [
        ("producer_byte_rate", 5.0000005, True, True),
        ("producer_byte_rate", 5.9999999, False, True),
        ("producer_byte_rate", 5.5, False, False),
        ("producer_byte_rate", -5.0, False, False),
        ("producer_byte_rate", 0.0, False, True),
        ("producer_byte_rate", 1e19, False, False),
        ("producer_byte_rate", math.inf, False, False),
        ("producer_byte_rate", math.nan, True, True),
        ("request_percentage", -1.0, False, True),
        ("request_percentage", math.inf, True, True),
        ("no_such_key", 1.0, False, False),
        ("no_such_key", None, True, True),
    ],
)
def test_alter_refuses_values_as_kraft_and_zookeeper_do(key: str, value: float | None, kraft: bool, zk: bool) -> None:
    for mode, passes in (("kraft", kraft), ("zk", zk)):
        refused = alter.refusal(mode, {"user": "u"}, [(key, value)], resolves=True)
        assert (refused is None) is passes


def test_alter_of_an_ip_is_refused_as_kafka_does() -> None:
    operations = [("connection_creation_rate", 5.0)]
    assert alter.refusal("kraft", {"ip": "::1"}, operations, resolves=False) is None
    assert alter.refusal("zk", {"ip": "::1"}, operations, resolves=True) is not None
    assert alter.refusal("zk", {"ip": "host"}, operations, resolves=True) is None
    assert alter.refusal("kraft", {"ip": None}, operations, resolves=False) is None
    assert alter.refusal("kraft", {"ip": "::1"}, operations * 2, resolves=True) == "a key twice for one entity"


def test_ip_is_canonical_in_every_spelling() -> None:
    assert canonical("::ffff:10.0.0.1") == canonical("10.0.0.1") == "10.0.0.1"
    assert canonical("0:0:0:0:0:0:0:1") == canonical("::1")


def test_a_default_ip_limit_reaches_sensors_that_exist() -> None:
    quotas = ConnectionQuotas(Window(2, 1000), ["A"], None, None, {})
    quotas.set_ip_rate("10.0.0.1", 1)
    assert isinstance(quotas.accept("A", "10.0.0.1", 0), Accepted)
    quotas.set_ip_rate("10.0.0.1", None)
    quotas.set_ip_rate(None, 1)
    assert quotas.accept("A", "::ffff:10.0.0.1", 0) == IpThrottled(0, 0, 1000, 1000)
    assert quotas.rate("10.0.0.1", 0) == 1
    assert quotas.rate("10.0.0.2", 0) == 0


def test_a_fetch_without_quota_is_held_to_the_brokers_maximum() -> None:
    sizes = fetch_sizes(Window(), None, 2**31 - 1, 1, broker_max=1000)
    assert (sizes.max_value_in_window, sizes.max_bytes, sizes.min_bytes) == (None, 1000, 1)


def test_broker_only_apis_have_throttle_fields_to_obey() -> None:
    assert throttle_field("BrokerHeartbeat", 0).client_obeys
    assert throttle_field("ListClientMetricsResources", 0).position == "first"
    assert not throttle_field("SaslHandshake", 1).client_obeys
