import json
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
from proxy import __version__
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
    said, fix = done.stdout.splitlines()
    assert said == f"sluice {__version__} (pure Python)"  # of the sources, whatever else is tested
    assert "where a C compiler is" in fix


@pytest.mark.long
def test_a_proxy_without_tls_login_and_topic_loads_no_libraries_for_them() -> None:
    """They are 9 MB and more of each idle proxy."""
    code = "import sys; from proxy import app; from proxy.checks import configuration; from proxy.runtime import logs\n"
    code += "assert not {'cryptography', 'kafka', 'aiokafka', 'pyspark', 'numpy'} & set(sys.modules), 'loaded too much'"
    subprocess.run([sys.executable, "-c", code], check=True)


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


def test_check_warns_of_likely_mistakes(config: Path) -> None:
    (config.parent / "quotas.yaml").write_text('quotas:\n  - {entity: {user: "User:app"}, request_percentage: 5}\n')
    done = sluice("check", "-c", config)
    assert done.exit_code == 0
    warning, *_, ok = done.output.splitlines()
    assert warning.startswith("warning: ")
    assert warning.endswith("begins with the type of a principal, which quotas leave out; write 'app'")
    assert ok == f"{config}: ok (1 quota, 1 listener)"


def test_check_misses_no_missing_file(config: Path) -> None:
    (config.parent / "quotas.yaml").unlink()
    quotas = config.parent / "quotas.yaml"
    assert sluice("check", "-c", config).output == (
        f"{config}:4:24: quotas.store.path: {quotas}: no such file; write it, with `quotas: []` for no quotas\n"
    )
    quotas.mkdir()
    assert sluice("check", "-c", config).output == (
        f"{config}:4:24: quotas.store.path: {quotas}: is a directory; name the file in it\n"
    )
    assert sluice("check", "-c", "missing.yaml").output == "missing.yaml: no such file\n"


def test_check_of_single_quota_file_reports_problems_and_count(config: Path) -> None:
    quotas = config.parent / "quotas.yaml"
    done = sluice("check", quotas)
    assert (done.exit_code, done.output) == (0, f"{quotas}: ok (1 quota)\n")
    quotas.write_text("quotas: []\n")
    assert sluice("check", quotas).output == f"{quotas}: ok (0 quotas)\n"
    quotas.write_text("quotas:\n  - {entity: {user: team-*}, producer_byte_rate: 1MB}\n")
    done = sluice("check", quotas)
    assert done.exit_code == 0
    assert done.output.startswith(f"warning: {quotas}:2:21: quotas[0].entity.user: 'team-*' is a name as it stands")
    quotas.write_text("")
    done = sluice("check", quotas)
    assert (done.exit_code, done.output) == (
        2,
        f"{quotas}:1:1: is empty; write `quotas:` and a list below it, or `quotas: []` for no quotas\n",
    )
    assert sluice("check", config.parent / "missing").output == f"{config.parent / 'missing'}: no such file\n"
    done = sluice("check", config)
    assert (done.exit_code, done.output) == (
        2,
        f"{config}:1:1: is a configuration, not a quota file; pass it as --config\n",
    )


def test_check_of_proposed_quota_file_ignores_the_configured_one(config: Path) -> None:
    (config.parent / "quotas.yaml").write_text("broken")
    proposed = config.parent / "proposed.yaml"
    proposed.write_text("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1MB}\n")
    done = sluice("check", "-c", config, proposed)
    assert done.exit_code == 0
    warning, ok = done.output.splitlines()
    assert warning.startswith(f"warning: {proposed}:2:1: quotas: a quota of a user, but no listener authenticates")
    assert ok == f"{config} with {proposed}: ok (1 quota, 1 listener)"
    proposed.unlink()
    assert sluice("check", "-c", config, proposed).output == f"{proposed}: no such file\n"


def test_check_as_json_lists_findings_with_fix(config: Path) -> None:
    quotas = config.parent / "quotas.yaml"
    done = sluice("check", "-c", config, "--json")
    assert (done.exit_code, json.loads(done.output)) == (0, {"ok": True, "findings": []})
    quotas.write_text(
        "quotas:\n  - {entity: {user: team-*}, producer_byte_rate: 0}\n  - {entity: {user: b}, kind: 1}\n"
    )
    config.write_text(CONFIG + "logs: {}\n")
    done = sluice("check", "-c", config, "--json")
    assert done.exit_code == 2
    told = json.loads(done.output)
    assert told["ok"] is False
    assert [(each["severity"], each["file"], each["line"], each["column"]) for each in told["findings"]] == [
        ("error", str(quotas), 2, 50),
        ("error", str(quotas), 3, 25),
        ("error", str(config), 5, 1),
    ]
    assert told["findings"][2] == {
        "severity": "error",
        "file": str(config),
        "line": 5,
        "column": 1,
        "setting": "logs",
        "message": "unknown setting",
        "fix": "did you mean log?",
    }


def test_check_for_programs_warns_and_tells_whole_files(config: Path) -> None:
    quotas = config.parent / "quotas.yaml"
    quotas.write_text("quotas:\n  - {entity: {user: default}, producer_byte_rate: 1MB}\n")
    done = sluice("check", quotas, "--json")
    (finding,) = json.loads(done.output)["findings"]
    assert (done.exit_code, finding["severity"], finding["line"], finding["column"]) == (0, "warning", 2, 21)
    assert finding["message"] == "'default' is a name, and not the default"
    assert finding["fix"].startswith("write {default: true}")
    done = sluice("check", "--json", "missing.yaml")
    assert done.exit_code == 2
    assert json.loads(done.output)["findings"] == [
        {
            "severity": "error",
            "file": "missing.yaml",
            "line": None,
            "column": None,
            "setting": "",
            "message": "no such file",
            "fix": "",
        }
    ]


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
    said, *mapped = sluice("check", "-c", file).output.splitlines()
    assert said == f"{file}: ok (1 quota, 1 listener)"
    assert len(mapped) == 2  # what each mapping rule makes of an example
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
    monkeypatch.setattr("proxy.runtime.logs.configure", lambda *_: None)
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
    monkeypatch.setattr("proxy.runtime.logs.configure", lambda *setting: calls.append(setting))
    assert sluice("run", "-c", config).exit_code == 3
    assert calls[0] == ("info", "auto")
    assert calls[1] == (load_settings(config), config)


def test_a_wrong_command_line_is_told_so() -> None:
    assert "Did you mean 'check'?" in sluice("chek").stderr
    done = sluice("check")
    assert (done.exit_code, "give a quota file, --config, or both" in done.stderr, done.stdout) == (2, True, "")
    assert sluice("run", "--config").exit_code == 2


@pytest.mark.parametrize("name", ["", "run", "check", "health", "doctor"])
def test_every_command_explains_itself(name: str) -> None:
    wanted = [name] if name else []
    short, long = sluice(*wanted, "-h"), sluice(*wanted, "--help")
    assert (short.exit_code, short.output) == (0, long.output)
    # What the list of commands says of each is said whole.
    listed = short.output.partition("Commands:")[2]
    assert "...\n" not in listed


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
def test_health_command_prints_ok_when_ready(admin: str, arguments: list[str]) -> None:
    Admin.answers["/readyz"] = (200, b"ok\n")
    done = sluice("health", "--url", admin, *arguments)
    assert (done.exit_code, done.output) == (0, "ok\n")


def test_health_takes_the_address_from_the_configuration(admin: str, config: Path) -> None:
    config.write_text(CONFIG + f'admin: {{bind: ":{admin.rpartition(":")[2]}"}}\n')
    done = sluice("health", "-c", config)
    assert (done.exit_code, done.output) == (1, "cluster demo: no broker answers\n")


def test_health_command_without_answer_or_url_fails(config: Path) -> None:
    done = sluice("health", "--url", "http://127.0.0.1:1")
    assert (done.exit_code, "does not answer" in done.output) == (1, True)
    config.write_text("wrong: 1\n")
    assert sluice("health", "-c", config).exit_code == 1  # 2 has no meaning to a container engine
    for arguments in ([], ["--url", "ftp://x"], ["--url", "x", "-c", str(config)]):
        assert sluice("health", *arguments).exit_code == 2
    for url in ("127.0.0.1:9404", "http://h:x", "http://h:99999", "http://[::1:9404", "http://"):
        done = sluice("health", "--url", url)
        assert (done.exit_code, f"{url!r} is not a URL like http://127.0.0.1:9404" in done.stderr) == (2, True)
