"""Metrics of connection rates: of the proxy, its listeners, and addresses with a limit."""

from collections.abc import Iterator, Sequence
from heapq import nlargest

from prometheus_client.core import Metric

from proxy.admin.exposition import counter, gauge, number
from proxy.edge.stats import ThrottleTotals
from proxy.snapshot import Snapshot
from quotas.connections import AcceptRate, IpRate
from quotas.entities import Default


def connection_rates(snapshot: Snapshot, max_ips: int) -> Iterator[Metric]:
    """Yield the families. At most ``max_ips`` addresses are shown: those with a quota by name, then the busiest."""
    of_proxy = [((), each) for each in snapshot.accept_rates if not each.listener]
    said = "Connections accepted per second, over the enforcement window, without exempt listeners."
    yield from _rates("accept", said, "limits.connection_rate.", (), of_proxy)
    of_listeners = [((each.listener,), each) for each in snapshot.accept_rates if each.listener]
    said = "Connections accepted per second by a listener, over the enforcement window."
    yield from _rates("listener_accept", said, "connection_rate of a listener.", ("listener",), of_listeners)
    yield from _throttles(snapshot)
    yield from _addresses(snapshot.ip_rates, max_ips)


def _rates(
    name: str, said: str, limit: str, labels: Sequence[str], rates: Sequence[tuple[tuple[str, ...], AcceptRate]]
) -> Iterator[Metric]:
    yield gauge(f"sluice_{name}_rate", said, labels, ((values, each.rate) for values, each in rates))
    limits = ((values, each.limit) for values, each in rates if each.limit is not None)
    yield gauge(f"sluice_{name}_rate_limit", limit, labels, limits)


def _throttles(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the throttles of all listeners: a counter has to be seen at zero to grow."""
    listeners = [each.listener for each in snapshot.accept_rates if each.listener]
    for name, what, throttles in (
        ("accept", "Accept waits, for the rate of the listener or the proxy", snapshot.accept_throttles),
        ("ip_accept", "Connections refused for the rate of their address", snapshot.ip_throttles),
    ):
        counted = [((listener,), throttles.get(listener, ThrottleTotals())) for listener in listeners]
        said = f"{what}; in shadow, those that would have happened."
        numbers = ((labels, each.number) for labels, each in counted)
        yield counter(f"sluice_{name}_throttles", said, ("listener",), numbers)
        seconds = ((labels, each.ms / 1000) for labels, each in counted)
        yield counter(f"sluice_{name}_throttle_seconds", "Their throttle time.", ("listener",), seconds)


def _addresses(rates: list[IpRate], max_ips: int) -> Iterator[Metric]:
    """Yield the busiest counters; those of several workers without a known broker are one series."""
    merged = dict[tuple[str, int | None], IpRate]()
    for each in rates:
        key = each.ip, each.broker
        merged[key] = each._replace(rate=each.rate + merged[key].rate) if key in merged else each
    rates = list(merged.values())
    shown = nlargest(max_ips, rates, key=lambda each: (each.entity.ip is not Default.DEFAULT, each.rate))
    said = "Connections to a broker accepted per second from an address with a connection_creation_rate."
    in_use = (((each.ip, "" if each.broker is None else str(each.broker)), each.rate) for each in shown)
    yield gauge("sluice_ip_accept_rate", said, ("ip", "broker"), in_use)
    limits = {(each.ip, each.entity.describe()): each.limit for each in shown}
    said = "connection_creation_rate in force, and its rule."
    yield gauge("sluice_ip_accept_rate_limit", said, ("ip", "rule"), limits.items())
    said = "Rates of addresses at brokers that are not shown."
    yield number("sluice_ip_accept_rates_left_out", said, len(rates) - len(shown))
