"""Binding: all addresses of a host or none, and an error that names the listener."""

import socket

import pytest

from config.brokers import parse_broker_ports
from config.settings import Listener
from config.units import Address, AdvertisedAddress
from proxy.edge import listening
from proxy.edge.listening import bind, bind_bootstrap
from tests.harness.ports import free_port


def addresses(*hosts: str) -> object:
    return lambda _, port, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


def test_every_address_of_a_host_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(socket, "getaddrinfo", addresses("127.0.0.1", "127.0.0.2"))
    bound = bind("two.example", port)
    assert [each.getsockname() for each in bound] == [("127.0.0.1", port), ("127.0.0.2", port)]
    bound[0].close()
    with pytest.raises(OSError, match="in use"):
        bind("two.example", port)  # the first of them was free, and is free again
    socket.create_server(("127.0.0.1", port)).close()
    bound[1].close()


def test_an_address_that_this_machine_does_not_have_is_left_out_if_there_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    monkeypatch.setattr(socket, "getaddrinfo", addresses("192.0.2.1", "127.0.0.1"))
    (bound,) = bind("two.example", port)
    bound.close()
    monkeypatch.setattr(socket, "getaddrinfo", addresses("192.0.2.1"))
    with pytest.raises(OSError, match=r"[Cc]annot assign"):
        bind("one.example", port)


def test_the_error_names_the_listener() -> None:
    (taken,) = listening.bind("127.0.0.1", free_port())
    at = Address(*taken.getsockname())
    brokers = parse_broker_ports({"1": str(at.port + 1)})
    listener = Listener.model_validate(
        {"name": "PLAIN", "bind": at, "advertise": AdvertisedAddress("h"), "brokers": brokers}
    )
    with pytest.raises(OSError, match=rf"listener PLAIN: cannot bind 127\.0\.0\.1:{at.port}: .*in use"):
        bind_bootstrap(listener, bind)
    taken.close()


def given_at(host: str, port: int, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    return socket.create_server((host, port), family=family, backlog=1)


def test_a_given_socket_is_listened_at_and_stays_open() -> None:
    port = free_port()
    with given_at("127.0.0.1", port) as given, given_at("127.0.0.2", port) as other:
        (taken,) = bind("127.0.0.1", port, given=[other, given])
        assert (taken.getsockname(), taken.fileno() != given.fileno()) == (("127.0.0.1", port), True)
        assert not taken.getblocking()
        taken.close()
        with socket.create_connection(("127.0.0.1", port)):
            pass  # the manager's descriptor is open, and connections wait there
        (again,) = bind("127.0.0.1", port, given=[other, given])
        again.close()


def test_a_port_that_is_not_given_is_bound() -> None:
    with given_at("127.0.0.1", free_port()) as given:
        (bound,) = bind("127.0.0.1", port := free_port(), given=[given])
        assert bound.getsockname() == ("127.0.0.1", port)
        bound.close()


def test_every_interface_is_one_socket_for_each_family() -> None:
    port = free_port()
    with given_at("0.0.0.0", port) as four, given_at("::", port, socket.AF_INET6) as six:
        for taken in bind("", port, given=[four, six]):
            taken.close()
    both = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    with both, pytest.raises(OSError, match="write BindIPv6Only=ipv6-only"):
        bind("", port, given=[both])


def test_a_given_socket_of_no_listener_is_told() -> None:
    port = free_port()
    brokers = parse_broker_ports({"1-2": f"{port + 1}-{port + 2}"})
    listener = Listener.model_validate(
        {"name": "PLAIN", "bind": Address("127.0.0.1", port), "advertise": AdvertisedAddress("h"), "brokers": brokers}
    )
    with given_at("127.0.0.1", port) as used, given_at("127.0.0.2", port) as other:
        assert list(listening.unused([used, other], [listener])) == [f"127.0.0.2:{port}"]
