"""The display: a live table on a terminal, and a line every two seconds elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.demo.readings import Reading
from deploy.demo.scenario import AVERAGED_S
from quotas.texts import duration, rate

LINE_EVERY_S: Final = 2.0


class Display(Protocol):
    """Shows readings and events."""

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None: ...

    def note(self, elapsed_s: float, text: str) -> None: ...


@contextmanager
def display(console: Console, total_s: float) -> Iterator[Display]:
    """Choose the display for the console."""
    if not console.is_terminal:
        yield PlainDisplay(console)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield LiveTable(live, total_s)


class LiveTable:
    """A table that is updated in place; notes are printed above it."""

    def __init__(self, live: Live, total_s: float) -> None:
        self._live = live
        self._total_s = total_s

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        table = Table(title=f"{elapsed_s:.0f} s of {self._total_s:.0f} s", title_justify="left")
        table.add_column("client", no_wrap=True)
        table.add_column("what it does")
        for name in ("quota", f"last {AVERAGED_S:.1f} s", "throttled"):
            table.add_column(name, justify="right", no_wrap=True)
        for reading in readings:
            table.add_row(
                reading.participant.client_id,
                reading.participant.does,
                quota(reading.quota_bytes_per_s),
                rate(reading.rate_bytes_per_s),
                duration(reading.throttle_s),
                style="bold yellow" if reading.participant.is_greedy else "green",
            )
        self._live.update(table)

    def note(self, elapsed_s: float, text: str) -> None:
        self._live.console.print(f"{elapsed_s:3.0f} s  {text}", highlight=False)


class PlainDisplay:
    """PlainDisplay of text, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = LINE_EVERY_S

    def show(self, elapsed_s: float, readings: Sequence[Reading]) -> None:
        if elapsed_s < self._next_s:
            return
        self._next_s += LINE_EVERY_S
        rates = " | ".join(
            f"{one.participant.client_id} {rate(one.rate_bytes_per_s)} of {quota(one.quota_bytes_per_s)}"
            for one in readings
        )
        throttled = ", ".join(duration(reading.throttle_s) for reading in readings)
        self.note(elapsed_s, f"{rates}; throttled {throttled}")

    def note(self, elapsed_s: float, text: str) -> None:
        self._console.print(f"{elapsed_s:3.0f} s  {text}", highlight=False, soft_wrap=True)


def quota(bytes_per_s: float) -> str:
    """Return e.g. ``1 MiB/s``; "-" for a client that has not been seen yet."""
    return rate(bytes_per_s) if bytes_per_s else "-"
