import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent

import pytest
import structlog
from click.testing import CliRunner, Result

from config.loader import load_settings
from proxy.cli import cli
from tests.proxy.checks import secure

CONFIG = dedent(
    """\
    cluster: {name: demo, bootstrap: ["127.0.0.1:19092"]}
    listeners:
      - {name: PLAIN, bind: "127.0.0.1:9092", advertise: 127.0.0.1, brokers: {"0-9": "9100-9109"}}
    quotas: {store: {path: quotas.yaml}}
    """
)
QUOTAS = "quotas:\n  - {entity: {client-id: app}, producer_byte_rate: 1MiB}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIG)
    return file


def sluice(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_the_version_is_answered_without_loading_anything() -> None:
    code = "import sys; sys.argv = ['sluice', '--version']\nfrom proxy.__main__ import main; main()\n"
    code += "assert not {'click', 'pydantic', 'structlog', 'asyncio'} & set(sys.modules), 'loaded too much'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "sluice 0.1.0\n"


def test_the_installed_command_runs(config: Path) -> None:
    command = Path(sys.executable).parent / "sluice"
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [command, "check", "-c", config], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{config}: ok (1 quota, 1 listener)\n", "", 0)


def test_check_prints_every_problem_of_both_files(config: Path) -> None:
    config.write_text(CONFIG.replace("demo", "no") + "logs: {}\n")
    quotas = config.parent / "quotas.yaml"
    quotas.write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: -1}\n")
    done = sluice("check", "-c", config)
    assert done.exit_code == 2
    assert [line.split(": ")[:2] for line in done.output.splitlines()] == [
        [f"{config}:1:17", "cluster.name"],
        [f"{config}:5:1", "logs"],
        [f"{quotas}:2:49", "quotas[0].producer_byte_rate"],
    ]


def test_check_warns_of_what_has_no_effect(config: Path) -> None:
    (config.parent / "quotas.yaml").write_text("quotas:\n  - {entity: {client-id: app}, request_percentage: 5}\n")
    done = sluice("check", "-c", config)
    assert done.exit_code == 0
    warning, ok = done.output.splitlines()
    assert warning.startswith("warning: ")
    assert warning.endswith("request_percentage is not enforced by this version")
    assert ok == f"{config}: ok (1 quota, 1 listener)"


def test_check_misses_no_missing_file(config: Path) -> None:
    (config.parent / "quotas.yaml").unlink()
    assert sluice("check", "-c", config).output == f"{config.parent / 'quotas.yaml'}: no such file\n"
    assert sluice("check", "-c", "missing.yaml").output == "missing.yaml: no such file\n"


def test_run_refuses_a_wrong_configuration_as_check_does(config: Path) -> None:
    config.write_text(CONFIG.replace("9100-9109", "9100-9108"))
    run, check = sluice("run", "-c", config), sluice("check", "-c", config)
    assert (run.exit_code, run.stderr) == (check.exit_code, check.stdout)
    assert run.exit_code == 2


def write_expired(folder: Path) -> Path:
    """Write a configuration with a certificate that others refuse, and a password that others can read."""
    file = secure.write(folder)
    since, until = datetime(2000, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, tzinfo=UTC)
    hosts = ("kafka.example.com", "*.kafka.example.com")
    secure.show(folder, "chain", secure.AUTHORITY.issue_cert(*hosts, not_before=since, not_after=until))
    (folder / "password").chmod(0o644)
    return file


def test_check_looks_at_what_is_named(tmp_path: Path) -> None:
    file = secure.write(tmp_path)
    assert sluice("check", "-c", file).output == f"{file}: ok (1 quota, 1 listener)\n"
    done = sluice("check", "-c", write_expired(tmp_path))
    warning, problem = done.output.splitlines()
    assert done.exit_code == 2
    assert warning.startswith(
        f"warning: {file}:11:20: cluster.sasl.password_file: every user of this machine can read "
    )
    assert problem.startswith(f"{file}:19:20: listeners[0].tls.certificate: ")
    assert problem.endswith("expired on 2001-01-01; renew it")


def test_run_refuses_what_it_could_not_run_with(tmp_path: Path) -> None:
    file = write_expired(tmp_path)
    (tmp_path / "chain.key").unlink()
    done = sluice("run", "-c", file)
    assert done.exit_code == 2
    assert done.stderr == (
        f"{file}:20:12: listeners[0].tls.key: {tmp_path}/chain.key cannot be read: no such file or directory\n"
    )


def test_run_reports_what_others_will_refuse_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.app.run", lambda *_: 3)
    monkeypatch.setattr("proxy.logs.configure", lambda *_: None)
    with structlog.testing.capture_logs() as logged:
        assert sluice("run", "-c", write_expired(tmp_path)).exit_code == 3
    assert [(entry["log_level"], "expired" in entry["problem"]) for entry in logged] == [
        ("warning", False),
        ("error", True),
    ]


def test_run_hands_over_to_the_program(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def run(*given: object) -> int:
        calls.append(given)
        return 3

    monkeypatch.setattr("proxy.app.run", run)
    monkeypatch.setattr("proxy.logs.configure", lambda *setting: calls.append(setting))
    assert sluice("run", "-c", config).exit_code == 3
    assert calls[0] == ("info", "auto")
    assert calls[1] == (load_settings(config), config)


def test_a_wrong_command_line_is_told_so() -> None:
    assert "Did you mean 'check'?" in sluice("chek").stderr
    assert sluice("check").exit_code == 2
    assert sluice("run", "--config").exit_code == 2


class Admin(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]] = {}  # noqa: RUF012  replaced by each test

    def do_GET(self) -> None:
        status, body = self.answers[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        pass


@pytest.fixture
def admin() -> Iterator[str]:
    Admin.answers = {"/readyz": (503, b"cluster demo: no broker answers\n"), "/livez": (200, b"ok\n")}
    with HTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_health_says_why_not(admin: str) -> None:
    done = sluice("health", "--url", admin)
    assert (done.exit_code, done.output) == (1, "cluster demo: no broker answers\n")


@pytest.mark.parametrize("arguments", [["--live"], []])
def test_health_says_yes(admin: str, arguments: list[str]) -> None:
    Admin.answers["/readyz"] = (200, b"ok\n")
    done = sluice("health", "--url", admin, *arguments)
    assert (done.exit_code, done.output) == (0, "ok\n")


def test_health_takes_the_address_from_the_configuration(admin: str, config: Path) -> None:
    config.write_text(CONFIG + f'admin: {{bind: ":{admin.rpartition(":")[2]}"}}\n')
    done = sluice("health", "-c", config)
    assert (done.exit_code, done.output) == (1, "cluster demo: no broker answers\n")


def test_health_of_nobody(config: Path) -> None:
    done = sluice("health", "--url", "http://127.0.0.1:1")
    assert (done.exit_code, "does not answer" in done.output) == (1, True)
    config.write_text("wrong: 1\n")
    assert sluice("health", "-c", config).exit_code == 1  # 2 has no meaning to a container engine
    for arguments in ([], ["--url", "ftp://x"], ["--url", "x", "-c", str(config)]):
        assert sluice("health", *arguments).exit_code == 2
