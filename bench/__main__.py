"""``python -m bench``: measure, print a table with the aims beside the figures, and keep every sample as JSON."""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.build import build
from bench.errors import BenchError
from bench.machine import describe_machine, describe_versions
from bench.measure import FIGURES, Duration, Sample
from bench.profile import profile
from bench.programs import HAPROXY_BUFSIZE, HAPROXY_TLS_BUFSIZE, PROXIES
from bench.report import HEADINGS, line, lines_of, load_lines, verdict
from bench.rows import ROWS, Row, choose
from bench.run import Plan, Run
from bench.targets import Cores, Fleet
from tests.harness.jars import NEWEST_BROKER
from tests.harness.process import ProcessError

RESULTS: Final = Path(__file__).parent / "results"
ROUNDS, SECONDS, WARMUP_S = 5, 2.0, 0.5
QUICK_ROUNDS, QUICK_SECONDS = 1, 0.5
DESCRIPTORS: Final = 8192
TLS: Final = "TLSv1.3, TLS_AES_256_GCM_SHA384, X25519, a certificate of ECDSA P-256"
"""The TLS parameters of native/tls.c and Fleet.identity."""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    if options.list:
        print("\n".join(f"{row.name:<16} {row.about}" for row in ROWS))
        return 0
    _raise_descriptor_limit()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the proxies would outlive us
    try:
        build()
        cores = Cores.plan(sorted(os.sched_getaffinity(0)))
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
            if options.profile:
                print(profile(options.profile, Path(folder), cores, options.seconds or SECONDS))
            else:
                _run(options, Path(folder), cores)
    except (BenchError, ProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; no figures were saved", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace, folder: Path, cores: Cores) -> None:
    rows = choose(options.only or ())
    targets = tuple(name for name in PROXIES if name in options.targets.split(","))
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    plan = Plan(targets, rounds, Duration(WARMUP_S, seconds))
    begun = datetime.now(UTC)
    any_real = any(row.load.is_real for row in rows)
    document: dict[str, object] = {
        "format": 1,
        "begun": begun.isoformat(timespec="seconds"),
        "machine": describe_machine(cores),
        "versions": describe_versions(list(targets)) | ({"kafka": NEWEST_BROKER} if any_real else {}),
        "settings": {"rounds": rounds, "seconds": seconds, "warmup_s": WARMUP_S, "targets": targets, "tls": TLS},
    }
    print(_preface(document))
    print(line(HEADINGS), flush=True)
    results: list[tuple[Row, dict[str, list[Sample]]]] = []
    with Fleet(folder, cores) as fleet:
        run = Run(fleet, plan)
        for row in rows:
            results.append((row, run.row(row)))
            print("\n".join(lines_of(*results[-1])), flush=True)
    print("\nThe load, and how busy each process was:")
    print("\n".join(text for row, samples in results for text in load_lines(row, samples)))
    document["rows"] = [_as_json(row, samples) for row, samples in results]
    if not options.no_save:
        _save(document, begun)


def _preface(document: dict[str, object]) -> str:
    versions, machine, settings = document["versions"], document["machine"], document["settings"]
    return (
        f"{versions}\n{machine}\n{settings}\n"
        f"median (least..most) of the rounds; x is against HAProxy (tune.bufsize {HAPROXY_BUFSIZE}, with TLS\n"
        f"{HAPROXY_TLS_BUFSIZE}, option splice-auto, one thread), round by round. CPU is user and system time of the\n"
        "proxy's processes. In Sluice every client-id that sends has quotas for both directions, high enough never to\n"
        "throttle.\n"
    )


def _as_json(row: Row, samples: dict[str, list[Sample]]) -> dict[str, object]:
    _, met = verdict(row, FIGURES[row.measure][0], samples)
    return {
        "row": row.name,
        "about": row.about,
        "measure": row.measure.value,
        "entities": row.entities,
        "kinds": row.kinds,
        "client": row.load.client.value,
        "load": row.load.words(),
        "aim": None if row.aim is None else {"limit": row.aim.limit, "ratio_to_haproxy": row.aim.is_ratio},
        "met": met,
        "samples": samples,
    }


def _save(document: dict[str, object], begun: datetime) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{begun:%Y-%m-%d-%H%M}-{os.cpu_count()}-cores.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\nevery sample: {path.relative_to(RESULTS.parent.parent)}")


def _raise_descriptor_limit() -> None:
    """Raise the limit: 1,000 connections take 2,000 descriptors in a proxy; a login shell allows 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW", action="append", help="a row, or a pattern of rows; may be repeated")
    parser.add_argument("--rounds", type=int, help=f"how often each target is measured (default {ROUNDS})")
    parser.add_argument("--seconds", type=float, help=f"how long one sample takes (default {SECONDS:g})")
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works, not to quote")
    parser.add_argument("--targets", default=",".join(PROXIES), help="proxies to measure (default %(default)s)")
    parser.add_argument("--no-save", action="store_true", help="keep no file of the samples")
    parser.add_argument("--list", action="store_true", help="the rows")
    parser.add_argument("--profile", metavar="ROW", help="one row through Sluice under cProfile")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
