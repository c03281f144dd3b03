"""Runs the demo, and prints in plain words what happens."""

import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from textwrap import indent
from time import sleep
from typing import Final

import click

from proxy.demo.running import DemoError, Producer, Proxy, proxy_before
from proxy.demo.stand_in import HOST, stand_in
from proxy.runtime.clock import monotonic_s
from quotas.texts import duration, rate

MIB: Final = 2**20
QUOTAS: Final = "quotas:\n  - {entity: {client-id: greedy}, producer_byte_rate: 1MiB}\n"
EXIT_FAILED: Final = 1


def run(seconds: int, *, keep: bool) -> int:
    """Run the demo for that time, with ``keep`` until it is interrupted; return 0 if a throttle was seen, else 1."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # its log has a line for every throttle
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(EXIT_FAILED))
    try:
        with ExitStack() as stack:
            port = stack.enter_context(stand_in())
            click.echo(f"A stand-in for a broker is at {HOST}:{port}: it drops what producers send. It is not Kafka.")
            proxy = stack.enter_context(proxy_before(port, QUOTAS))
            click.echo(
                f"Sluice is at {proxy.bootstrap}, in front of it, with this quota file:\n{indent(QUOTAS, '    ')}"
            )
            click.echo("Two producers (kafka-python) send through Sluice: greedy as fast as it can, modest 256 KiB/s.")
            producers = [Producer(proxy.bootstrap, "greedy", None), Producer(proxy.bootstrap, "modest", MIB / 4)]
            for each in producers:
                stack.callback(each.stop)
            seen = _watch(proxy, producers, seconds)
            if keep:
                click.echo(f"All goes on until Ctrl-C. Change {proxy.folder}/quotas.yaml, or ask who is throttled now:")
                click.echo(f"  sluice throttled --admin {proxy.admin_url}    (also sluice clients, sluice top)")
                click.echo(f"  {proxy.admin_url}/ shows it in a browser")
                signal.pause()
    except DemoError as error:
        click.echo(error, err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        seen = True
    click.echo("Everything is stopped." if seen else "No throttle was seen.")
    return 0 if seen else EXIT_FAILED


def _watch(proxy: Proxy, producers: Sequence[Producer], seconds: int) -> bool:
    """Print what happens each second; return whether a throttle was seen."""
    at_s, before = monotonic_s(), [(0, 0.0) for _ in producers]
    seen = False
    for second in range(1, seconds + 1):
        sleep(1.0)
        was_at_s, at_s = at_s, monotonic_s()
        now = [(each.sent_bytes, proxy.throttled_s(each.client_id)) for each in producers]
        if not seen and now[0][1] > 0:
            seen = True
            click.echo(
                "The first throttle: greedy is over its quota. Sluice's answer has Kafka's throttle_time_ms, and"
            )
            click.echo("Sluice reads nothing from greedy for that time. modest has no quota, and is not delayed.")
        said = f"{second:3} s"
        for producer, (sent, throttled_s), (sent_before, throttled_before_s) in zip(
            producers, now, before, strict=True
        ):
            if producer.error is not None:
                raise DemoError(f"the producer {producer.client_id} has failed: {producer.error!r}")
            sends, throttled = rate((sent - sent_before) / (at_s - was_at_s)), throttled_s - throttled_before_s
            said += f"   {producer.client_id} {sends}, throttled {duration(throttled)}"
        click.echo(said)
        before = now
    return seen
