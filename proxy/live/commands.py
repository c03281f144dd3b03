"""The commands that show what a running proxy does."""

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from proxy.live.options import api_options, list_options

if TYPE_CHECKING:
    from proxy.live.api import Api

_EXIT_CONFIG: Final = 2


@click.command(short_help="List clients, what they use, and their limits.")
@list_options
def clients(api: "Api", output: str, **wanted: Any) -> None:
    """List the clients of a running proxy: what they use, their limits, how often they are throttled.

    By default those nearest to their limits come first. The column 1m is the share of the last minute for which a
    client was throttled. If the output is not a terminal, columns are separated by tabs.

    \b
    sluice clients --sort -in
    sluice clients --filter team-a -o json
    """  # noqa: D301  \b is click's
    from proxy.live import listing
    from proxy.live.tables import CLIENTS

    listing.show(api, CLIENTS, output, wanted)


@click.command(short_help="List the clients that are throttled now.")
@list_options
@click.option("--watch", is_flag=True, help="Print a line whenever a client starts or ends being throttled.")
def throttled(api: "Api", output: str, *, watch: bool, **wanted: Any) -> None:
    """List the clients that are throttled now, by which rule, and until when.

    By default those that wait longest come first. `wanted` is what a client would use without the limit. If the output
    is not a terminal, columns are separated by tabs.

    --watch prints lines until it is interrupted: time, started or ended, then the columns of the list.

    \b
    sluice throttled
    sluice throttled --watch --filter alice
    """  # noqa: D301  \b is click's
    from proxy.live import listing
    from proxy.live.tables import THROTTLED

    if watch:
        listing.watch(api, output, wanted)
    else:
        listing.show(api, THROTTLED, output, wanted)


@click.command(short_help="Show throttled clients, brokers and workers, live.")
@api_options
@click.option("--once", "--plain", "once", is_flag=True, help="Print plain rows once, as when not on a terminal.")
def top(api: "Api", *, once: bool) -> None:
    """Show who is throttled now, clients, brokers and workers; every two seconds, until q is pressed.

    If the output is not a terminal, print them once, with columns separated by tabs.
    """
    from proxy.live import listing

    if once or not listing.is_for_people():
        listing.show_all(api)
        return
    from importlib.util import find_spec

    if find_spec("textual") is None:
        click.echo("top needs Textual, which is not installed: pip install 'kafka-sluice[tui]'", err=True)
        click.echo("`sluice top --once` prints the same as plain rows", err=True)
        sys.exit(_EXIT_CONFIG)
    from proxy.live.top import Top

    Top(api).run()
