import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

import analysis.cli
from analysis.cli import analyze
from analysis.commands.whatif import _scenario
from proxy.cli import cli


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(analyze, arguments)
    return result.exit_code, result.output


def test_analyze_help_lists_its_commands() -> None:
    status, output = run("--help")
    assert status == 0
    assert "ingest" in output


def test_sluice_analyze_runs_the_analysis_command_line() -> None:
    result = CliRunner().invoke(cli, ["analyze", "ingest", "--help"])
    assert result.exit_code == 0
    assert "--accept-loss" in result.output


def test_analyze_without_spark_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.cli.find_spec", lambda _: None)
    result = CliRunner().invoke(cli, ["analyze", "ingest"])
    assert result.exit_code == 2
    assert "pip install 'kafka-sluice[analysis]'" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either --bootstrap, for a topic, or --files"),
        (("--bootstrap", "b:9092", "--files", "d"), "give either --bootstrap, for a topic, or --files"),
        (("--files", "d", "--once", "--every", "1m"), "give either --once or --every"),
        (("--files", "d", "--every", "5"), "'5' is not a time like 10s, 5m, 2h or 90d"),
        (("--files", "d", "--every", "\u00b2s"), "is not a time like 10s"),
        (("--files", "d", "--every", "0s"), "a batch needs some time: 10s, 5m, 1h"),
        (("--files", "d", "--conf", "spark.x"), "'spark.x' is not KEY=VALUE"),
        (("--bootstrap", "b"), "error: --bootstrap: 'b' is not host:port"),
        (("--bootstrap", ","), "error: --bootstrap names no broker"),
        (("--bootstrap", "b:1", "--kafka-config", "/nowhere"), "error: /nowhere: no such file or directory"),
    ],
)
def test_wrong_ingest_command_line_exits_with_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    status, output = run("ingest", "--warehouse", str(tmp_path), *arguments)
    assert status == 2
    assert said in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("expire",), "Missing option '--keep'"),
        (("expire", "--keep", "90"), "'90' is not a time like 10s, 5m, 2h or 90d"),
        (("expire", "--keep", "d"), "'d' is not a time"),
        (("compact", "--older-than", "-2h"), "'-2h' is not a time"),
    ],
)
def test_wrong_maintenance_command_line_exits_with_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    status, output = run(*arguments, "--warehouse", str(tmp_path))
    assert status == 2
    assert said in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("recommend", "--target", "p99 throttle < 1 s", "--headroom", "nan"), "Invalid value for '--headroom'"),
        (("recommend", "--target", "p99 throttle < 1 s", "--headroom", "inf"), "Invalid value for '--headroom'"),
        (("recommend", "--target", "p99 throttle < 1 s", "--headroom", "1e300"), "Invalid value for '--headroom'"),
        (("report", "--from", "2026-03-02", "--to", "2026-03-01"), "ends before it begins"),
        (("whatif", "--quotas", "q", "--from", "2026-03-02", "--to", "2026-03-01"), "ends before it begins"),
        (
            ("recommend", "--target", "p99 throttle < 1 s", "--from", "2026-03-02", "--to", "2026-03-01"),
            "ends before it begins",
        ),
    ],
)
def test_invalid_period_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("analysis.spark.session.start", lambda *_: pytest.fail("Spark was started"))
    status, output = run(*arguments, "--warehouse", str(tmp_path))
    assert status == 2
    assert said in output


def test_a_quota_that_is_not_replayed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "quotas.yaml"
    path.write_text(
        "quotas:\n- {entity: {user: alice}, producer_byte_rate: 1MB, controller_mutation_rate: 5}\n"
        "- {entity: {user: bob}, producer_byte_rate: 1MB, burst: 2s, max_delay: 5s}\n"
        "- {entity: {user: carol}, producer_byte_rate: 1MB, mode: shadow}\n"
        "- {entity: {user: dora}, producer_byte_rate: 1MB, scope: cluster}\n"
    )
    scenario = _scenario(path)
    assert len(scenario.policy.limits) == 4
    assert capsys.readouterr().err == (
        f"warning: {path}:2: controller_mutation_rate of user=alice is not replayed, and left out of the answer\n"
        f"warning: {path}:3: burst and max_delay of user=bob are not replayed, and left out of the answer\n"
        f"warning: {path}:5: scope: cluster of user=dora is not replayed, and left out of the answer\n"
    )


@pytest.mark.parametrize("safe", ["", "1"])
def test_analysis_run_as_a_program_finds_its_packages(tmp_path: Path, safe: str) -> None:
    """By ``PYTHONSAFEPATH`` Python puts no program's folder first in its path: what stands there are libraries."""
    program = Path(analysis.cli.__file__).with_name("__main__.py")
    environment = {"PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONSAFEPATH": safe}
    command = [sys.executable, "-S", str(program), "--help"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("Usage: sluice analyze ")


def test_error_is_one_line_whatever_is_in_names() -> None:
    ran = CliRunner().invoke(analyze, ["report", "--warehouse", "/nowhere/a\nb"])
    assert ran.exit_code == 2
    assert ran.stderr.splitlines() == [
        "error: /nowhere/a b: there are no usage records here: `sluice analyze ingest` stores them"
    ]
