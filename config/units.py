"""Parsers of sizes, durations, addresses and numbers.

Every function takes the text and returns the value, or raises InvalidValue with the fix.
"""

import contextlib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Final

from config import cgroup
from config.nodes import Scalar
from config.problems import InvalidValue, InvalidValues

BYTE_UNITS: Final = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
DURATION_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

MAX_PORT: Final = 65535
MAX_WORKERS: Final = 64
EVERY_INTERFACE: Final = frozenset(("", "0.0.0.0", "::"))  # noqa: S104  compared only, never bound here

# Without leading zeros, signs and underscores: YAML 1.1 reads 010 as 8, and no quota must depend on that.
_QUANTITY: Final = re.compile(r"(0|[1-9][0-9]{0,18})(\.[0-9]{1,9})? ?([A-Za-z]*)", re.ASCII)
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
MAX_HOST_LENGTH: Final = 253
# PLAINTEXT://host:9092/, as in a broker's `listeners`, or a URL.
_PROTOCOL: Final = re.compile(r"([A-Za-z][\w+.-]*)://([^/]*)")


INSTANCE: Final = "{instance}"
"""In advertised host names: the name of the instance (``owners.instance``)."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A listening address. An empty host means every interface, and is valid for binding only."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def without_brackets(address: str) -> str:
    """Return ``host:port`` without the brackets of an IPv6 address, which people leave out."""
    return address.replace("[", "").replace("]", "")


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """An advertised address; the default port is that of ``bind``."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        return self.host if self.port is None else str(Address(self.host, self.port))


def parse_whole(text: str) -> int:
    """Return a whole number, not negative."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] or match[3]:
        raise InvalidValue(f"{text!r} is not a whole number", "write digits only, without a leading zero")
    return int(match[1])


def parse_workers(text: str) -> int:
    """Return the number of workers; ``auto``: as many as the process may use cores, less one for the supervisor, for
    which a part of a core is enough.
    """
    if text == "auto":
        return min(max(ceil(cgroup.cpus()) - 1, 1), MAX_WORKERS)
    try:
        number = parse_whole(text)
    except InvalidValue:
        raise InvalidValue(f"{text!r} is not a number of workers", "write a whole number, or auto") from None
    if number > MAX_WORKERS:
        raise InvalidValue(f"{text} is too large", f"at most {MAX_WORKERS} workers can run")
    return number


def parse_number(text: str) -> float:
    """Return a decimal number, not negative."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[3]:
        raise InvalidValue(f"{text!r} is not a number", "write it like 200 or 12.5")
    return float(text)


def parse_bytes(text: str) -> int:
    """Return bytes: ``1048576``, ``1MiB`` (2^20), ``1MB`` (10^6)."""
    return _quantity(text, BYTE_UNITS, "a size", "a whole number of bytes", "10MiB, 10MB or 10485760")


def parse_buffer(text: str) -> int:
    """Return the size of a socket buffer, or -1 if the kernel chooses, as in a broker."""
    size = -1 if text == "-1" else parse_bytes(text)
    if size == 0:
        raise InvalidValue("0 is too small", "write a size, or -1 to let the kernel choose")
    return size


def parse_duration_ms(text: str) -> int:
    """Return milliseconds: ``500ms``, ``1s``, ``2m``, ``1h``. A bare number is refused: seconds or ms?"""
    return _quantity(text, DURATION_UNITS_MS, "a duration", "a whole number of milliseconds", "500ms, 30s or 2m")


def parse_duration_s(text: str) -> float:
    """Return seconds, from the same texts as ``parse_duration_ms``."""
    return parse_duration_ms(text) / 1000


def parse_address(text: str) -> Address:
    """``host:port``, ``[::1]:9092`` or ``:9092`` for every interface; the port from 1 to 65535."""
    if "," in text or ";" in text:
        raise InvalidValue(f"{text!r} is more than one address", "write one; each listener has an address of its own")
    host, port = _host_and_port(text, 'write ":{port}" for every interface')
    if host == "*":
        fix = f'write ":{port}" or "0.0.0.0:{port}" for every interface'
        raise InvalidValue(f"{text!r}: the host of an address has no wildcard", fix)
    return Address(_host_of(text, host), port)


def parse_reachable(text: str) -> Address:
    """Return an address that can be connected to: as ``parse_address``, with a host."""
    if "," in text or ";" in text:
        listed = ", ".join(f'"{part}"' for part in re.split(r"[,;\s]+", text) if part)
        raise InvalidValue(f"{text!r} is more than one address", f"write it as a list: [{listed}]")
    host, port = _host_and_port(text, "write host:{port}")
    if host.strip("[]") in EVERY_INTERFACE or host == "*":
        raise InvalidValue(f"{text!r} has no host that can be connected to", f"write host:{port}")
    return Address(_host_of(text, host), port)


def _host_and_port(text: str, with_host: str) -> tuple[str, int]:
    """Return host and port; ``with_host`` is the fix if there is only a port."""
    if "@" in text:  # not quoted: it may contain a password
        raise InvalidValue("has a user or a password in front of the host", "leave it out: logins have a section, sasl")
    if text.strip() not in ("", text):
        raise InvalidValue(f"{text!r} begins or ends with whitespace", f"write {text.strip()}")
    if (protocol := _PROTOCOL.match(text)) is not None:
        spoken = "" if protocol[1].upper() == "PLAINTEXT" else " (the sections tls and sasl choose the protocol)"
        fix = f"leave {protocol[1]}:// out: write {protocol[2].lstrip('*') or 'host:9092'}{spoken}"
        raise InvalidValue(f"{text!r} begins with a protocol", fix)
    if text.isdecimal():
        raise InvalidValue(f"{text!r} is a port without a host", with_host.format(port=text))
    host, colon, port = text.rpartition(":")
    if not colon or not port or text.endswith("]"):
        raise InvalidValue(f"{text!r} has no port", "write host:port, as in 127.0.0.1:9092")
    try:
        return host, parse_port(port)
    except InvalidValue:
        wrong = f"{text!r} ends in {port!r}, which is not a port"
        raise InvalidValue(wrong, f"ports go from 1 to {MAX_PORT}") from None


def _host_of(text: str, host: str) -> str:
    """Return the host of the address ``text`` without brackets."""
    if host.startswith("[") and host.endswith("]"):
        _require_ipv6(host[1:-1])
        return host[1:-1]
    if ":" in host:
        raise InvalidValue(f"{text!r} is ambiguous", "put an IPv6 address into brackets: [::1]:9092")
    return parse_host(host) if host else ""


def parse_host(text: str) -> str:
    """Return a host name or an IP address, an IPv6 address without brackets."""
    if text.count(":") > 1 and "/" not in text and "[" not in text:
        _require_ipv6(text)
    elif not _is_host_name(text):
        raise InvalidValue(f"{text!r} is not a host name or an IP address", _host_fix(text))
    return text


def _is_host_name(text: str) -> bool:
    return len(text) <= MAX_HOST_LENGTH and _HOST.fullmatch(text) is not None


def _host_fix(text: str) -> str:
    """Return the fix for an invalid host."""
    protocol = _PROTOCOL.match(text.strip())
    bare = re.sub(r"(?<=[^:]):\d*$", "", text.strip() if protocol is None else protocol[2]).strip("[]")
    if not bare.isascii() and bare.replace(".", "").replace("-", "").isalnum():
        with contextlib.suppress(UnicodeError):
            bare = bare.encode("idna").decode()  # as DNS has it
    if _is_host_name(bare) or ":" in bare:
        return f"write {bare}"
    if "{node_id}" in bare:
        return "use broker_host for a host per broker"
    if any(character in bare for character in "*?,; "):
        return "write a single host"
    return "write labels of up to 63 letters, digits, - and _ with dots between them"


def parse_host_template(text: str) -> str:
    """Return a host name with ``{node_id}`` in it, and perhaps ``{instance}``."""
    host = text.replace("{node_id}", "2147483647").replace(INSTANCE, "i")
    name, _, port = text.rpartition(":")
    if name.count("{node_id}") == 1 and port.isdecimal():
        raise InvalidValue(
            f"{text!r} has a port", f"write {name}, and the port behind the host of advertise: HOST:{port}"
        )
    if text.count("{node_id}") != 1 or ":" in text:
        raise InvalidValue(f"{text!r} does not name one host for each broker", "write it like b{node_id}.example.com")
    if text.endswith("."):
        raise InvalidValue(f"{text!r} ends with a dot, which clients leave out in TLS (SNI)", "write it without")
    if host.rpartition(".")[2].isdecimal():
        raise InvalidValue(f"{text!r} is an IP address, and TLS names none (SNI)", "write a host name")
    parse_host(host)
    return text


def parse_network(text: str) -> Network:
    """``10.0.0.0/8``, or a single address."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise InvalidValue(f"{text!r} is not an IP network", "write it like 10.0.0.0/8, fd00::/8 or 10.0.0.1") from None
    address = text.partition("/")[0]
    if ipaddress.ip_address(address) != network.network_address:
        raise InvalidValue(f"{text!r} is an address in a network", f"write {network}, or {address} for it alone")
    if getattr(network.network_address, "ipv4_mapped", None) is not None:
        raise InvalidValue(f"{text!r} holds IPv4 addresses in IPv6 form", "write the IPv4 network")
    return network


def parse_ip_numbers(written: Mapping[str, object]) -> dict[str, int]:
    """Parse ``{"10.0.0.5": 100}``; raise InvalidValues with every wrong pair."""
    numbers: dict[str, int] = {}
    wrong = InvalidValues()
    for key, value in written.items():
        with wrong.at(key):
            ip = _parse_ip(key)
            if not isinstance(value, str):
                raise InvalidValue("must be a whole number")
            if ip in numbers:
                raise InvalidValue(f"{key} occurs twice, in different spellings", "write each address once")
            numbers[ip] = parse_whole(value)
    wrong.raise_if_any()
    return numbers


def parse_path(text: str) -> Path:
    """Return a path, unresolved."""
    if not text or "\0" in text:
        raise InvalidValue(f"{text!r} is not a path", "write a path, from the folder of this file or absolute")
    return Path(text)


def parse_advertised(text: str) -> AdvertisedAddress:
    """Parse an address that clients can connect to: ``host``, ``host:port``, ``[::1]:443``, or ``::1`` without
    a port. The host may contain ``{instance}``.
    """
    if INSTANCE in text:
        port_of = parse_advertised(text.replace(INSTANCE, "i")).port
        return AdvertisedAddress(text if port_of is None else text.rpartition(":")[0], port_of)
    if text.strip("[]") in EVERY_INTERFACE:
        raise InvalidValue(f"clients cannot connect to {text!r}", "write the host that leads to this proxy")
    if (port := text.removeprefix(":")).isdecimal():
        fix = f"write the host that leads to this proxy in front of it, as in kafka.example.com:{port}"
        raise InvalidValue(f"{text!r} is a port without a host", fix)
    if text.startswith("[") and text.endswith("]"):
        return AdvertisedAddress(_host_of(text, text))
    if text.count(":") > 1 and not set(text) & set("[/,;"):
        return AdvertisedAddress(_bare_ipv6(text))
    if ":" not in text:
        return AdvertisedAddress(parse_host(text))
    address = parse_reachable(text)
    return AdvertisedAddress(address.host, address.port)


def _bare_ipv6(text: str) -> str:
    """Return an IPv6 address without brackets, which has no port."""
    try:
        return parse_host(text)
    except InvalidValue as invalid:
        host, _, port = text.rpartition(":")
        with contextlib.suppress(ipaddress.AddressValueError):
            invalid.hint = f"put it into brackets in front of a port: [{ipaddress.IPv6Address(host)}]:{port}"
        raise


def parse_name(text: Scalar) -> str:
    """Return a name. One that other YAML readers may not read as text must be quoted."""
    if text.ambiguous:
        raise InvalidValue(f"{text} without quotes is not a text to every reader of YAML", f'write "{text}"')
    if not text:
        raise InvalidValue("is empty", "write a name")
    return str(text)


def parse_flag(text: str) -> bool:
    """``true`` or ``false``."""
    if text not in ("true", "false"):
        raise InvalidValue(f"{text!r} is neither true nor false")
    return text == "true"


def parse_port(text: str) -> int:
    """Return a port from 1 to 65535."""
    port = parse_whole(text)
    if not 1 <= port <= MAX_PORT:
        raise InvalidValue(f"{port} is not a port", f"ports go from 1 to {MAX_PORT}")
    return port


def parse_range(text: str) -> range:
    """``0-9`` (both ends belong to it) or a single number."""
    first, dash, last = text.partition("-")
    low = parse_whole(first)
    high = parse_whole(last) if dash else low
    if high < low:
        raise InvalidValue(f"{text!r} runs backwards", f"write {high}-{low}")
    return range(low, high + 1)


def _quantity(text: str, units: dict[str, int], what: str, whole: str, examples: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InvalidValue(f"{text!r} is not {what}", f"write it like {examples}")
    number, fraction, unit = match.groups()
    if unit not in units:
        problem = f"has the unknown unit {unit!r}" if unit else "has no unit"
        meant = next((known for known in units if known.lower() == unit.lower()), None)
        raise InvalidValue(
            f"{text!r} {problem}",
            f"did you mean {number}{fraction or ''}{meant}?" if meant else f"write it like {examples}",
        )
    if not fraction:
        return int(number) * units[unit]
    value = Fraction(number + fraction) * units[unit]
    if value.denominator != 1:
        raise InvalidValue(f"{text!r} is not {whole}", "use a smaller unit")
    return value.numerator


def _parse_ip(text: str) -> str:
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidValue(f"{text!r} is not an IP address", "host names are not looked up here") from None
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _require_ipv6(text: str) -> None:
    try:
        ipaddress.IPv6Address(text)
    except ipaddress.AddressValueError as error:
        raise InvalidValue(f"{text!r} is not an IPv6 address", str(error)) from None
