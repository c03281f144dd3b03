from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import pytest

from config.problems import InvalidValue
from config.units import (
    Address,
    AdvertisedAddress,
    parse_address,
    parse_advertised,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_flag,
    parse_host,
    parse_host_template,
    parse_network,
    parse_number,
    parse_path,
    parse_range,
    parse_reachable,
    parse_whole,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "0", 0),
        (parse_bytes, "1048576", 2**20),
        (parse_bytes, "1MiB", 2**20),
        (parse_bytes, "1 MiB", 2**20),
        (parse_bytes, "1MB", 10**6),
        (parse_bytes, "512KiB", 2**19),
        (parse_bytes, "2.3MB", 2_300_000),  # 2.3 * 10**6 is 2299999.9999999995 in floats
        (parse_bytes, "5000000.0", 5_000_000),
        (parse_bytes, "9223372036854775807", 2**63 - 1),
        (parse_duration_ms, "500ms", 500),
        (parse_duration_ms, "1s", 1000),
        (parse_duration_ms, "1.5s", 1500),
        (parse_duration_ms, "2m", 120_000),
        (parse_duration_ms, "1h", 3_600_000),
        (parse_duration_s, "250ms", 0.25),
        (parse_whole, "42", 42),
        (parse_number, "12.5", 12.5),
        (parse_number, "200", 200.0),
        (parse_flag, "true", True),
        (parse_flag, "false", False),
        (parse_range, "0-9", range(10)),
        (parse_range, "42", range(42, 43)),
        (parse_address, "127.0.0.1:9092", Address("127.0.0.1", 9092)),
        (parse_address, ":9092", Address("", 9092)),
        (parse_address, "[::1]:9092", Address("::1", 9092)),
        (parse_address, "kafka-0.kafka_headless.svc:1", Address("kafka-0.kafka_headless.svc", 1)),
        (parse_host, "fe80::1", "fe80::1"),
        (parse_host, "broker.example.", "broker.example."),
        (parse_host_template, "b{node_id}.kafka.example", "b{node_id}.kafka.example"),
        (parse_host_template, "{node_id}.x", "{node_id}.x"),
        (parse_network, "10.0.0.0/8", IPv4Network("10.0.0.0/8")),
        (parse_network, "10.0.0.1", IPv4Network("10.0.0.1/32")),
        (parse_network, "0.0.0.0/0", IPv4Network("0.0.0.0/0")),
        (parse_network, "fd00::/8", IPv6Network("fd00::/8")),
        (parse_path, "tls/key.pem", Path("tls/key.pem")),
    ],
)
def test_value_with_a_unit_is_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_bytes, "", "is not a size"),
        (parse_bytes, "-1", "is not a size"),
        (parse_bytes, "010", "is not a size"),  # 8 to YAML 1.1
        (parse_bytes, "1_000", "is not a size"),
        (parse_bytes, "0x10", "is not a size"),
        (parse_bytes, "1e6", "is not a size"),
        (parse_bytes, ".inf", "is not a size"),
        (parse_bytes, "٣", "is not a size"),
        (parse_bytes, "9" * 5000, "is not a size"),
        (parse_bytes, "10M", "unknown unit 'M'"),
        (parse_bytes, "10mib", "unknown unit 'mib'"),
        (parse_bytes, "0.5", "is not a whole number of bytes"),
        (parse_duration_ms, "30", "has no unit"),
        (parse_duration_ms, "0.5ms", "is not a whole number of milliseconds"),
        (parse_whole, "1.0", "is not a whole number"),
        (parse_whole, "+1", "is not a whole number"),
        (parse_number, "1%", "is not a number"),
        (parse_number, "nan", "is not a number"),
        (parse_flag, "yes", "is neither true nor false"),
        (parse_range, "9-0", "runs backwards"),
        (parse_host_template, "kafka.example.com", "does not name one host for each broker"),
        (parse_host_template, "b{node_id}-{node_id}", "does not name one host for each broker"),
        (parse_host_template, "b{node_id}:9092", "has a port"),
        (parse_host_template, "b{nodeId}.x", "does not name one host for each broker"),
        (parse_host_template, "b{node_id}..x", "is not a host name"),
        (parse_host_template, "10.0.0.{node_id}", "is an IP address"),
        (parse_host_template, "{node_id}", "is an IP address"),
        (parse_host_template, "b{node_id}.x.", "ends with a dot"),
        (parse_network, "10.0.0.1/8", "is an address in a network"),
        (parse_network, "fd00::1/8", "is an address in a network"),
        (parse_network, "10.0.0.0/33", "is not an IP network"),
        (parse_network, "10/8", "is not an IP network"),
        (parse_network, "1", "is not an IP network"),
        (parse_network, "::ffff:10.0.0.0/104", "IPv6 form"),
        (parse_path, "", "is not a path"),
        (parse_path, "a\0", "is not a path"),
        (parse_range, "-1", "is not a whole number"),
        (parse_range, "1-2-3", "is not a whole number"),
        (parse_address, "127.0.0.1", "has no port"),
        (parse_address, "127.0.0.1:", "has no port"),
        (parse_address, "::1:9092", "is ambiguous"),
        (parse_address, "[::g]:9092", "is not an IPv6 address"),
        (parse_address, "host:0", "is not a port"),
        (parse_address, "host:65536", "is not a port"),
        (parse_address, "ho st:1", "is not a host name"),
        (parse_reachable, ":9092", "has no host"),
        (parse_host, "host:9092", "is not a host name"),
        (parse_host, "-host", "is not a host name"),
        (parse_host, "a" * 64, "is not a host name"),
        (parse_advertised, "0.0.0.0", "clients cannot connect"),
        (parse_advertised, "::", "clients cannot connect"),
    ],
)
def test_value_with_an_invalid_unit_is_refused(parse: Callable[[str], object], text: str, complaint: str) -> None:
    with pytest.raises(InvalidValue, match=complaint):
        parse(text)


SEVERAL = "is more than one address"


@pytest.mark.parametrize(
    ("parse", "text", "found", "fix"),
    [
        (parse_address, "PLAINTEXT://host:9092", "begins with a protocol", "leave PLAINTEXT:// out: write host:9092"),
        (parse_address, "PLAINTEXT://*:9092", "begins with a protocol", "leave PLAINTEXT:// out: write :9092"),
        (parse_address, " ", "has no port", "write host:port, as in 127.0.0.1:9092"),
        (parse_address, "INTERNAL://:9092", "begins with a protocol", "leave INTERNAL:// out: write :9092"),
        (parse_reachable, "SSL://h:9093", "begins with a protocol", "write h:9093 (the sections tls and sasl"),
        (parse_reachable, "sasl_ssl://h:9/", "begins with a protocol", "write h:9 (the sections tls and sasl"),
        (parse_reachable, "https://[::1]:9093/x", "begins with a protocol", "leave https:// out: write [::1]:9093"),
        (parse_address, "*:9702", "has no wildcard", 'write ":9702" or "0.0.0.0:9702" for every interface'),
        (parse_address, "9702", "is a port without a host", 'write ":9702" for every interface'),
        (parse_reachable, "9092", "is a port without a host", "write host:9092"),
        (parse_reachable, "*:9092", "has no host that can be connected to", "write host:9092"),
        (parse_reachable, "0.0.0.0:9092", "has no host that can be connected to", "write host:9092"),
        (parse_reachable, "[::]:9092", "has no host that can be connected to", "write host:9092"),
        (parse_address, "localhost", "has no port", "write host:port, as in 127.0.0.1:9092"),
        (parse_address, "[::1]", "has no port", "write host:port, as in 127.0.0.1:9092"),
        (parse_address, "host:0", "ends in '0', which is not a port", "ports go from 1 to 65535"),
        (parse_address, "host:65536", "ends in '65536', which is not a port", "ports go from 1 to 65535"),
        (parse_address, "host:" + "9" * 30, "9', which is not a port", "ports go from 1 to 65535"),
        (parse_address, "host:kafka", "ends in 'kafka', which is not a port", "ports go from 1 to 65535"),
        (parse_address, "host:9092/", "ends in '9092/', which is not a port", "ports go from 1 to 65535"),
        (parse_address, "host:9092 ", "begins or ends with whitespace", "write host:9092"),
        (parse_address, "\thost:9092", "begins or ends with whitespace", "write host:9092"),
        (parse_reachable, "a:9092,b:9092", SEVERAL, 'write it as a list: ["a:9092", "b:9092"]'),
        (parse_reachable, "a:9092; b:9092", SEVERAL, 'write it as a list: ["a:9092", "b:9092"]'),
        (parse_reachable, "SSL://a:1,SSL://b:2,", SEVERAL, 'write it as a list: ["SSL://a:1", "SSL://b:2"]'),
        (parse_address, ":9092,:9093", SEVERAL, "write one; each listener has an address of its own"),
        (parse_host, "host:9092", "is not a host name or an IP address", "write host"),
        (parse_host, "PLAINTEXT://h:9092", "is not a host name or an IP address", "write h"),
        (parse_host, "SSL://h", "is not a host name or an IP address", "write h"),
        (parse_host, "[::1]", "is not a host name or an IP address", "write ::1"),
        (parse_host, "[::1]:9092", "is not a host name or an IP address", "write ::1"),
        (parse_host, " h", "is not a host name or an IP address", "write h"),
        (parse_host, "b{node_id}.x", "is not a host name or an IP address", "use broker_host"),
        (parse_host, "*", "is not a host name or an IP address", "write a single host"),
        (parse_host, "a,b", "is not a host name or an IP address", "write a single host"),
        (parse_host, "b\u00fccher.example", "is not a host name or an IP address", "write xn--bcher-kva.example"),
        (parse_host, "\u201ch\u201d", "is not a host name or an IP address", "write labels of up to 63 letters"),
        (parse_host, "b\u00fc" * 40, "is not a host name or an IP address", "write labels of up to 63 letters"),
        (parse_advertised, "[::]", "clients cannot connect", "write the host that leads to this proxy"),
        (parse_advertised, ":443", "is a port without a host", "in front of it, as in kafka.example.com:443"),
        (parse_advertised, "443", "is a port without a host", "in front of it, as in kafka.example.com:443"),
        (parse_advertised, "0.0.0.0:443", "has no host that can be connected to", "write host:443"),
        (parse_advertised, "[::]:443", "has no host that can be connected to", "write host:443"),
        (parse_advertised, "k:0", "ends in '0', which is not a port", "ports go from 1 to 65535"),
        (parse_advertised, "k:", "has no port", "write host:port"),
        (parse_advertised, "k:31092-31094", "ends in '31092-31094', which is not a port", "ports go from 1 to 65535"),
        (parse_advertised, "SASL_SSL://k:443", "begins with a protocol", "leave SASL_SSL:// out: write k:443"),
        (parse_advertised, "a:443,b:443", SEVERAL, 'write it as a list: ["a:443", "b:443"]'),
        (parse_advertised, "2001:db8::1:31092", "is not an IPv6 address", "in front of a port: [2001:db8::1]:31092"),
        (parse_advertised, "::g:443", "is not an IPv6 address", ""),
        (parse_advertised, "[::g]:443", "is not an IPv6 address", ""),
        (parse_advertised, "b{node_id}.x:443", "is not a host name", "use broker_host"),
        (parse_host_template, "b{node_id}.x:443", "has a port", "write b{node_id}.x, and the port behind the host of"),
        (parse_host, "a..b", "is not a host name or an IP address", "write labels of up to 63 letters, digits"),
        (parse_bytes, "10mb", "has the unknown unit 'mb'", "did you mean 10MB?"),
        (parse_bytes, "10M", "has the unknown unit 'M'", "write it like 10MiB, 10MB or 10485760"),
        (parse_bytes, "10,000", "is not a size", "write it like 10MiB, 10MB or 10485760"),
        (parse_duration_ms, "30S", "has the unknown unit 'S'", "did you mean 30s?"),
        (parse_duration_ms, "30sec", "has the unknown unit 'sec'", "write it like 500ms, 30s or 2m"),
    ],
)  # fmt: skip
def test_refused_value_is_quoted_with_its_fix(parse: Callable[[str], object], text: str, found: str, fix: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse(text)
    assert found in caught.value.message
    assert fix in caught.value.hint


def test_a_quoted_text_does_not_flood_the_message() -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_bytes("9" * 5000)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("kafka.example.com", "kafka.example.com", None),
        ("kafka.example.com:443", "kafka.example.com", 443),
        ("10.0.0.1:31092", "10.0.0.1", 31092),
        ("::1", "::1", None),
        ("[::1]", "::1", None),
        ("[2001:db8::1]:443", "2001:db8::1", 443),
    ],
)
def test_advertised_address_is_parsed_with_or_without_port(text: str, host: str, port: int | None) -> None:
    assert parse_advertised(text) == AdvertisedAddress(host, port)


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "[::1]:9092", ":9092"])
def test_addresses_are_shown_as_they_are_written(text: str) -> None:
    assert str(parse_address(text)) == text
