"""The demo's judgement and display, and the demo itself: what it shows, and that nothing of it stays behind."""

import io
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from rich.console import Console

from deploy.demo.__main__ import main
from deploy.demo.display import PlainDisplay, display
from deploy.demo.readings import Meter, Reading
from deploy.demo.scenario import (
    AFTER,
    AVERAGED_S,
    BEFORE,
    GREEDY_CONSUMER,
    GREEDY_PRODUCER,
    MIB,
    PARTICIPANTS,
    SETTLING_S,
    SHORTEST_S,
    STEADY_PRODUCER,
    Participant,
    Plan,
    Quotas,
)
from deploy.demo.summary import Finding, Span, findings, print_summary
from quotas.kinds import QuotaKind
from quotas.stores.file import load
from tests.harness.clients.process import ClientProcess
from tests.harness.sluice import Metrics

REPOSITORY = Path(__file__).parents[2]


class Reporting:
    """A client that has reported a steady rate, four times a second."""

    def __init__(self, bytes_per_s: float, seconds: float) -> None:
        moments_s = [step / 4 for step in range(int(seconds * 4) + 1)]
        self.events: list[dict[str, Any]] = [{"event": "assigned", "at_s": 0.0}]
        self.events += [
            {"event": "progress", "at_s": at_s, "records": 1, "bytes": at_s * bytes_per_s} for at_s in moments_s
        ]


def meter(participant: Participant, bytes_per_s: float, seconds: float = 40.0) -> Meter:
    return Meter(participant, cast("ClientProcess", Reporting(bytes_per_s, seconds)))


def metrics(participant: Participant, limit: float, throttle_s: float) -> Metrics:
    labels = f'{{kind="{participant.quota_kind}",user="",client_id="{participant.client_id}",broker="1"}}'
    return Metrics(
        f"sluice_quota_limit_bytes_per_second{labels} {limit}\n"
        f"sluice_quota_throttle_seconds_total{labels} {throttle_s}\n"
    )


def finding(participant: Participant, bytes_per_s: float, throttle_s: float = 0.0) -> Finding:
    return Finding(participant, BEFORE.bytes_per_s(participant), bytes_per_s, throttle_s)


def recording(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=80, legacy_windows=False)


def written(console: Console) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", cast("io.StringIO", console.file).getvalue())


@pytest.mark.parametrize("quotas", [BEFORE, AFTER])
def test_the_quota_file_says_what_the_summary_expects(tmp_path: Path, quotas: Quotas) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(quotas.text(), encoding="utf-8")
    limits = {entity.client_id: limit for entity, limit in load(path).policy.limits.items()}
    for participant in (GREEDY_PRODUCER, GREEDY_CONSUMER):
        assert limits.pop(participant.client_id) == {QuotaKind(participant.quota_kind): quotas.bytes_per_s(participant)}
    ((_, of_others),) = limits.items()
    assert set(of_others.values()) == {quotas.bytes_per_s(STEADY_PRODUCER)}


def test_demo_changes_the_quota_of_one_client() -> None:
    changed = [one for one in PARTICIPANTS if BEFORE.bytes_per_s(one) != AFTER.bytes_per_s(one)]
    assert changed == [GREEDY_PRODUCER]


def test_each_client_has_a_name_of_its_own() -> None:
    assert len({participant.client_id for participant in PARTICIPANTS}) == len(PARTICIPANTS)


def test_a_plan_is_long_enough_to_measure() -> None:
    assert Plan.lasting(SHORTEST_S).before_s >= SETTLING_S + AVERAGED_S
    with pytest.raises(ValueError, match="too short"):
        Plan.lasting(SHORTEST_S - 1)


@pytest.mark.parametrize("words", [["--seconds", "1"], ["--seconds", "x"], ["--sekonds", "30"]])
def test_wrong_options_are_refused_before_anything_starts(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_reading_is_the_clients_rate_and_what_sluice_says() -> None:
    reading = meter(GREEDY_PRODUCER, 500.0).read(20.0, metrics(GREEDY_PRODUCER, 1000.0, 2.5))
    assert (reading.participant, reading.quota_bytes_per_s, reading.throttle_s) == (GREEDY_PRODUCER, 1000.0, 2.5)
    assert reading.rate_bytes_per_s == pytest.approx(500.0, rel=0.1), "as precisely as it is reported"


def test_reading_of_an_unknown_client_has_quota_zero() -> None:
    assert meter(GREEDY_PRODUCER, 0.0).read(1.0, Metrics("")).quota_bytes_per_s == 0.0


def test_throttle_time_is_that_of_a_span() -> None:
    one = meter(GREEDY_PRODUCER, 0.0)
    for at_s, throttle_s in ((1.0, 0.5), (2.0, 1.0), (3.0, 4.0), (4.0, 9.0)):
        one.read(at_s, metrics(GREEDY_PRODUCER, 1.0, throttle_s))
    assert one.throttle_s(2.0, 3.5) == 3.0
    assert one.throttle_s(5.0, 6.0) == 0.0


def test_the_mean_does_not_depend_on_where_a_burst_falls() -> None:
    """Bursts 3.3 s apart: a plain mean over 10 s would be 1.2 or 0.9 of the rate."""
    for offset_s in (0.0, 0.7, 1.9, 2.6):
        client = Reporting(0.0, 0.0)
        client.events = [
            {"event": "progress", "at_s": offset_s + AVERAGED_S * burst, "bytes": 3000.0 * (burst + 1)}
            for burst in range(12)
        ]
        mean = Meter(GREEDY_PRODUCER, cast("ClientProcess", client)).mean_rate(8.0, 18.0)
        assert mean == pytest.approx(3000.0 / AVERAGED_S)


@pytest.mark.parametrize(
    ("one", "is_good", "verdict"),
    [
        (finding(GREEDY_PRODUCER, 0.91 * MIB), True, "held"),
        (finding(GREEDY_PRODUCER, 1.09 * MIB, 30.0), True, "held"),
        (finding(GREEDY_PRODUCER, 0.89 * MIB), False, "NOT HELD"),
        (finding(GREEDY_PRODUCER, 1.11 * MIB), False, "NOT HELD"),
        (finding(STEADY_PRODUCER, 0.48 * MIB), True, "untouched"),
        (finding(STEADY_PRODUCER, 0.47 * MIB), False, "SLOWED"),
        (finding(STEADY_PRODUCER, 0.50 * MIB, 0.001), False, "SLOWED"),
    ],
)
def test_finding_is_judged_by_rate_and_throttle(one: Finding, *, is_good: bool, verdict: str) -> None:
    assert (one.is_good, one.verdict) == (is_good, verdict)


def test_a_client_whose_quota_changed_is_judged_twice() -> None:
    meters = [meter(GREEDY_PRODUCER, 1.0 * MIB), meter(STEADY_PRODUCER, 0.5 * MIB)]
    before, after = Span(BEFORE, 0.0, 16.0), Span(AFTER, 16.0, 32.0)
    found = list(findings(meters, before, after))
    assert [(one.participant.client_id, one.quota_bytes_per_s // MIB, one.is_good) for one in found] == [
        ("greedy-producer", 1, True),
        ("greedy-producer", 3, False),
        ("steady-producer", 8, True),
    ]


def test_the_summary_fits_a_narrow_terminal_and_shows_every_finding() -> None:
    console = recording(terminal=False)
    print_summary(console, [finding(participant, 0.5 * MIB) for participant in PARTICIPANTS])
    text = written(console)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for words in (("greedy-producer", "1 MiB/s", "512 KiB/s", "-50.0%", "NOT HELD"), ("steady-consumer", "untouched")):
        assert any(all(word in line for word in words) for line in text.splitlines())


def readings() -> Sequence[Reading]:
    return [Reading(participant, 2.0 * MIB, 1.5 * MIB, 4.2) for participant in PARTICIPANTS]


def test_display_without_a_terminal_prints_every_two_seconds() -> None:
    console = recording(terminal=False)
    with display(console, 30.0) as shown:
        assert isinstance(shown, PlainDisplay)
        for quarter in range(4 * 5):
            shown.show(quarter / 4, readings())
        shown.note(5.0, "changed")
    lines = written(console).splitlines()
    assert [line[:5] for line in lines] == ["  2 s", "  4 s", "  5 s"]
    assert lines[0].endswith("steady-consumer 1.5 MiB/s of 2 MiB/s; throttled 4.2 s, 4.2 s, 4.2 s, 4.2 s")
    assert lines[2] == "  5 s  changed"


def test_display_on_a_terminal_is_a_table() -> None:
    console = recording(terminal=True)
    with display(console, 30.0) as shown:
        shown.show(7.0, readings())
        shown.note(8.0, "changed")
    text = written(console)
    assert "7 s of 30 s" in text
    assert "  8 s  changed" in text
    assert re.search(r"│ greedy-producer │ writes, greedily\s+│ 2 MiB/s │\s+1.5 MiB/s │\s+4.2 s │", text)


# ------------------------------------------------------------------------------------------------- the demo itself


class Demo:
    """The demo as a process, with all its temporary files in one folder of the test's."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self._output = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deploy.demo", *words],
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def read_until(self, text: str) -> str:
        """Return all that was written up to the line that has ``text``."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._output += line
            if text in line:
                return self._output
        raise AssertionError(f"ended without {text!r}:\n{self._output}")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> tuple[int, str]:
        """Return the exit status, and all that was written."""
        rest, _ = self._process.communicate(timeout=60)
        return self._process.returncode, self._output + rest

    def processes(self) -> list[psutil.Process]:
        """Every process that has the folder for its temporary files."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def close(self) -> None:
        for process in self.processes():
            process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("TMPDIR") == str(self.folder)
        except psutil.Error:
            return False


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Demo]:
    demo = Demo(folder, *words)
    try:
        yield demo
    finally:
        demo.close()


def assert_nothing_is_left(demo: Demo) -> None:
    assert demo.processes() == []
    # The JVM's own hsperfdata files are removed by the JVM, unless it is killed.
    assert [path.name for path in demo.folder.iterdir() if not path.name.startswith("hsperfdata")] == []


@pytest.mark.slow  # Spark, and `make demo` of continuous integration beside it
@pytest.mark.timeout(600)
@pytest.mark.integration
def test_demo_with_keep_holds_quotas_and_stays_running(tmp_path: Path) -> None:
    with running(tmp_path, "--keep", "--seconds", f"{SHORTEST_S:g}") as demo:
        output = demo.read_until("stop     Ctrl-C")
        assert re.search(r"greedy-producer 0?\.?\d", output)
        assert "greedy-producer may now write 3 MiB/s" in output
        url = re.search(r"metrics  (http://\S+)", output)
        assert url is not None
        with urllib.request.urlopen(url[1], timeout=10) as answer:  # noqa: S310  the demo's own address
            assert b"sluice_quota_limit_bytes_per_second" in answer.read()
        page = re.search(r"page     (http://\S+/)", output)
        assert page is not None
        with urllib.request.urlopen(page[1], timeout=10) as answer:  # noqa: S310  likewise
            assert b"<!doctype html>" in answer.read()
        demo.signal(signal.SIGTERM)
        status, output = demo.ended()
        assert status == 0, output
        assert output.count("held") == 3
        assert output.count("untouched") == 2
        said = re.search(
            r"sluice analyze report says:\n2 of 4 clients were throttled, for .* in all\.\n(/\S+)\n", output
        )
        assert said is not None, output
        assert Path(said[1]).is_file()
        assert_nothing_is_left(demo)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("moment", ["starting a Kafka cluster", "  2 s  "])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    with running(tmp_path) as demo:
        demo.read_until(moment)
        time.sleep(1)  # into the middle of what it is doing
        demo.signal(signal.SIGINT)
        status, output = demo.ended()
        assert status == 130, output
        assert "Traceback" not in output
        assert_nothing_is_left(demo)
