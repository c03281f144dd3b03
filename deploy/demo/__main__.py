"""The demo's command line and sequence."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Final

from rich.console import Console

from deploy.demo.display import Display, display, quota
from deploy.demo.readings import Meter
from deploy.demo.records import FOLDER, SLUICE, TOPIC, make_report
from deploy.demo.scenario import AFTER, BEFORE, GREEDY_PRODUCER, SAMPLE_S, WINDOW_SAMPLES, Plan
from deploy.demo.stage import Stage, clients_at_work, set_up
from deploy.demo.stopping import EXIT_STATUS, Interrupted, end_what_is_left, ignore_signals, obey_signals
from deploy.demo.summary import Span, findings, print_summary
from tests.harness.clients.process import ClientError
from tests.harness.jars import JarError, classpath
from tests.harness.process import ProcessError

TICK_S: Final = 0.25
STOP_TIMEOUT_S: Final = 20.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the closing summary shows what Sluice promises, 1 if it does not, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    console = Console()
    obey_signals()
    try:
        return _run(console, options.plan, keep=options.keep)
    except Interrupted:
        console.print("\nstopped early; nothing is left running")
        return EXIT_STATUS
    except (ClientError, JarError, ProcessError) as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return 1
    finally:
        end_what_is_left()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo", description="Sluice at work, with real clients.")
    parser.add_argument("--keep", action="store_true", help="leave cluster and Sluice running, until Ctrl-C")
    parser.add_argument(
        "--seconds", type=_plan, default=Plan(), dest="plan", metavar="N", help="how long to watch (default: 28)"
    )
    return parser


def _plan(text: str) -> Plan:
    try:
        return Plan.lasting(float(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(console: Console, plan: Plan, *, keep: bool) -> int:
    with set_up(plan, console.print) as stage:
        try:
            _introduce(console, stage)
            with clients_at_work(stage, plan) as meters:
                with display(console, plan.total_s) as shown:
                    before, after = _watch(stage, meters, plan, shown)
                complaints = _stop(meters)
            found = list(findings(meters, before, after))
            report = make_report(stage.cluster.bootstrap, console.print)
            console.print(f"\nsluice analyze report says:\n{report}", markup=False, highlight=False, soft_wrap=True)
            print_summary(console, found)
            for complaint in complaints:
                console.print(complaint, style="red", markup=False)
            if keep:
                _wait_for_the_end(console, stage)
        finally:
            ignore_signals()
    return 0 if not complaints and all(one.is_good for one in found) else 1


def _introduce(console: Console, stage: Stage) -> None:
    console.print(
        f"""
Sluice listens at {stage.sluice.bootstrap}, in front of brokers {stage.cluster.bootstrap}
  page     http://{stage.sluice.admin}/: who is throttled now, and why
  metrics  {stage.sluice.metrics_url}
  quotas   {stage.sluice.quotas_path}

Four clients connect, each a program of its own that knows nothing of Sluice. Two of them are greedy.
Quotas are measured over {WINDOW_SAMPLES} samples of {SAMPLE_S:g} s, a tenth of Kafka's default. As in Kafka, a
client that was idle may send {WINDOW_SAMPLES - 1} samples' worth at once: a burst at first, and after an increase.
""",
        highlight=False,
        soft_wrap=True,
    )


def _watch(stage: Stage, meters: Sequence[Meter], plan: Plan, shown: Display) -> tuple[Span, Span]:
    """Show the clients at work, and change a quota half way."""
    for meter in meters:
        meter.wait_for_first_bytes()
    start_s = time.monotonic()
    _show(stage, meters, shown, start_s, start_s + plan.before_s)
    stage.sluice.write_quotas(AFTER.text())
    change_s = time.monotonic()
    raised = quota(AFTER.bytes_per_s(GREEDY_PRODUCER))
    shown.note(change_s - start_s, f"the quota file is changed: {GREEDY_PRODUCER.client_id} may now write {raised}")
    _show(stage, meters, shown, start_s, change_s + plan.after_s)
    return Span(BEFORE, start_s, change_s), Span(AFTER, change_s, time.monotonic())


def _show(stage: Stage, meters: Sequence[Meter], shown: Display, start_s: float, end_s: float) -> None:
    while (now_s := time.monotonic()) < end_s:
        metrics = stage.sluice.metrics()
        shown.show(now_s - start_s, [meter.read(now_s, metrics) for meter in meters])
        time.sleep(TICK_S)


def _stop(meters: Sequence[Meter]) -> list[str]:
    """Stop the clients, and return their complaints: errors, and corrupt payloads."""
    for meter in meters:
        meter.client.ask_to_stop()
    complaints = []
    for meter in meters:
        result = meter.client.result(STOP_TIMEOUT_S)
        complaints += [f"{meter.participant.client_id}: {error}" for error in result.errors]
        if result.corrupt:
            complaints.append(f"{meter.participant.client_id}: {result.corrupt} payloads are corrupt")
    return complaints


def _wait_for_the_end(console: Console, stage: Stage) -> None:
    address = stage.sluice.bootstrap
    console.print(
        f"""
Cluster and Sluice are left running.
  clients  bootstrap.servers={address}
  quotas   {stage.sluice.quotas_path}: edits take effect within a second
  page     http://{stage.sluice.admin}/
  metrics  curl -s {stage.sluice.metrics_url} | grep sluice_quota
  try      java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '{classpath(f"kafka-{stage.cluster.version}")}' \\
             org.apache.kafka.tools.ProducerPerformance \\
             --bootstrap-server {address} --command-property client.id={GREEDY_PRODUCER.client_id} \\
             --topic {GREEDY_PRODUCER.topic} --record-size 8192 --num-records 10000 --throughput -1
  usage    {SLUICE} analyze ingest --once --bootstrap {stage.cluster.bootstrap} --topic {TOPIC} \\
             --warehouse {FOLDER / "warehouse"}
  stop     Ctrl-C here, or: kill {os.getpid()}
""",
        highlight=False,
        soft_wrap=True,
    )
    try:
        signal.pause()
    except Interrupted:
        console.print("stopping")


if __name__ == "__main__":
    sys.exit(main())
