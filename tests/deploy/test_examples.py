"""The files in deploy/ are what the tools they are for accept."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from analysis.commands import ingest
from config.loader import load_settings
from config.settings import Drain, UsageFiles
from proxy.checks.report import Report, check
from proxy.identity.certificates.ssl_mapping import parse_rules
from quotas.stores.file import load
from tests.proxy.checks.secure import NOW_S, secret, show

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def run(*command: str | Path) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def test_the_configuration_passes_check() -> None:
    output = run(Path(sys.executable).parent / "sluice", "check", "-c", "deploy/sluice.yaml")
    assert output == "deploy/sluice.yaml: ok (4 quotas, 1 listener)\n"


@pytest.mark.long
def test_the_quota_files_pass_check_by_themselves() -> None:
    for name, count in (("quotas.yaml", 4), ("secure/quotas.yaml", 6)):
        assert (
            run(Path(sys.executable).parent / "sluice", "check", f"deploy/{name}")
            == f"deploy/{name}: ok ({count} quotas)\n"
        )


def test_commented_settings_of_the_example_are_the_defaults(tmp_path: Path) -> None:
    without_default = r"  +(max_delay|connections|state): .*\n"
    text = (DEPLOY / "sluice.yaml").read_text()
    shown = re.sub(r"^( *)# ( *[a-z_]+:(?: |$))", r"\1\2", text, flags=re.MULTILINE)
    shown, left_out = re.subn(without_default, "", shown)
    (tmp_path / "sluice.yaml").write_text(shown)
    assert left_out == 3
    assert len(yaml.safe_load(shown)) == len(yaml.safe_load(text)) + 5
    plain, full = load_settings(DEPLOY / "sluice.yaml"), load_settings(tmp_path / "sluice.yaml")
    assert full.model_dump(exclude={"quotas": {"store"}}) == plain.model_dump(exclude={"quotas": {"store"}})


def test_the_secure_example_is_good_with_files_as_it_names_them(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "secure", tmp_path, dirs_exist_ok=True)
    authority = trustme.CA()
    for folder in ("tls", "secrets"):
        (tmp_path / folder).mkdir()
    for name in ("brokers-ca.pem", "batch-clients-ca.pem"):
        authority.cert_pem.write_to_path(str(tmp_path / "tls" / name))
    show(tmp_path / "tls", "kafka.example.com", authority.issue_cert("kafka.example.com", "*.kafka.example.com"))
    show(tmp_path / "tls", "batch", authority.issue_cert(common_name="batch"))
    secret(tmp_path / "secrets" / "sluice.password", b"a password\n")
    report = check(tmp_path / "sluice.yaml", NOW_S, names=["CN=Import-7,OU=batch,O=Example"])
    assert "makes 'import-7' of 'CN=Import-7,OU=batch,O=Example'" in report.mapped[0]
    assert [line.split()[1] for line in report.shared] == ["SASL_SSL:"]
    assert report == Report(listeners=2, quotas=6, mapped=report.mapped, shared=report.shared)


def test_secure_example_mapping_rules_give_the_documented_users() -> None:
    tls = load_settings(DEPLOY / "secure" / "sluice.yaml").listeners[1].tls
    assert tls is not None
    rules = parse_rules(tls.principal_mapping_rules)
    assert rules.user("CN=Import-7,OU=batch,O=Example") == "import-7"
    assert rules.user("CN=export,OU=night,O=Example") == "CN=export,OU=night,O=Example"


def test_the_quotas_that_the_readme_shows_can_be_loaded(tmp_path: Path) -> None:
    [block] = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "quotas.yaml").write_text(block)
    assert load(tmp_path / "quotas.yaml").policy.limits
    assert load(tmp_path / "quotas.yaml").warnings == ()


SECTIONS = """\
cluster: {name: demo, bootstrap: ["kafka-1.example.com:9092"]}
quotas: {store: {path: quotas.yaml}}
"""
MAPPED = [
    [
        "listener OUTSIDE: bootstrap.servers node.example.com:31092, bound at :9092",
        "listener OUTSIDE: brokers 0-1 node.example.com:31100-31101, bound at :9100-9101",
        "listener OUTSIDE: broker 2 node.example.com:30517, bound at :9102",
    ],
    [
        "listener OUTSIDE: bootstrap.servers docker-host.example.com:19092, bound at :9092",
        "listener OUTSIDE: brokers 0-9 docker-host.example.com:19100-19109, bound at :9100-9109",
    ],
    [
        "listener ROUTE: bootstrap.servers kafka.apps.example.com:443, bound at :9093",
        "listener ROUTE: every broker b{node_id}-kafka.apps.example.com:443, bound at :9093",
    ],
    [
        "listener OUTSIDE: bootstrap.servers 203.0.113.7:9092, bound at 10.0.0.5:9192",
        "listener OUTSIDE: brokers 0-9 203.0.113.7:9100-9109, bound at 10.0.0.5:9200-9209",
    ],
]


def test_check_takes_each_deployment_that_operations_shows_and_tells_both_addresses(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Where ports are mapped")[2]
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "quotas.yaml").write_text("quotas: []\n")
    (tmp_path / "tls").mkdir()
    show(tmp_path / "tls", "kafka", trustme.CA().issue_cert("kafka.apps.example.com", "*.apps.example.com"))
    found = []
    for block in blocks:
        (tmp_path / "sluice.yaml").write_text(SECTIONS + block)
        report = check(tmp_path / "sluice.yaml", NOW_S)
        assert (report.problems, report.warnings) == ([], [])
        found.append(report.lines("it")[1:])
    assert found == MAPPED


def test_the_quotas_are_all_enforced() -> None:
    for folder in (DEPLOY, DEPLOY / "secure"):
        assert load(folder / "quotas.yaml").warnings == ()


def test_the_unit_has_a_place_for_usage_files_and_an_end_of_every_stop() -> None:
    unit = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "sluice.service").read_text(), flags=re.MULTILINE))
    assert UsageFiles().directory == Path("/var/lib") / unit["StateDirectory"] / "usage"
    assert float(unit["TimeoutStopSec"].rstrip("s")) > Drain().delay_s + Drain().timeout_s + 5
    assert {"MemoryMax", "StartLimitIntervalSec", "StartLimitBurst"} <= unit.keys()


def ingest_options(words: Sequence[str]) -> dict[str, Any]:
    """What `sluice analyze` makes of the words of a command line; it must be that of an ingest."""
    assert list(words[:2]) == ["analyze", "ingest"]
    return ingest.command.make_context("ingest", list(words[2:])).params


def test_the_unit_of_ingestion_goes_on_and_is_started_again() -> None:
    text = (DEPLOY / "sluice-ingest.service").read_text().replace("\\\n", " ")
    unit = dict(re.findall(r"^(\w+)=(.*)$", text, flags=re.MULTILINE))
    named = dict(re.findall(r"^Environment=(SLUICE_\w+)=(.*)$", text, flags=re.MULTILINE))
    program, *words = re.sub(r"\$\{?(\w+)\}?", lambda found: named[found[1]], unit["ExecStart"]).split()
    assert (program, words[0]) == ("/usr/bin/env", "sluice")
    options = ingest_options(words[1:])
    assert options["every_s"] == 60
    assert not options["once"]
    assert Path(options["warehouse"]).parent == Path("/var/lib") / unit["StateDirectory"]
    assert unit["Restart"] == "on-failure"
    assert "RestartPreventExitStatus" not in unit
    assert unit["KillMode"] == "mixed", "Java is not to be ended before the ingestion"
    assert unit["StartLimitIntervalSec"] == "0", "brokers may be away for long"
    assert {"MemoryMax", "RestartSec", "TimeoutStopSec"} <= unit.keys()


def test_the_cron_job_of_ingestion_runs_one_at_a_time() -> None:
    job = yaml.safe_load((DEPLOY / "sluice-ingest.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    [container] = pod["containers"]
    options = ingest_options(container["args"])
    assert options["once"]
    places = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert options["warehouse"] in places
    assert str(options["kafka_config"].parent) in places
    assert set(places.values()) == {each["name"] for each in pod["volumes"]}
    assert f"local[{container['resources']['limits']['cpu']}]" == options["master"]


@pytest.mark.parametrize("units", [("sluice.service", "sluice.socket"), ("sluice-ingest.service",)], ids=" ".join)
def test_systemd_has_nothing_to_say_about_the_unit(units: Sequence[str]) -> None:
    assert run(tool("systemd-analyze"), "verify", *(f"deploy/{unit}" for unit in units)) == ""


def test_the_unit_is_exposed_as_little_as_systemd_can_make_it() -> None:
    """The threshold is ten times what is printed, 0 to 10; above it the status is 1."""
    said = run(tool("systemd-analyze"), "security", "--offline=true", "--threshold=15", "deploy/sluice.service")
    assert "Overall exposure level for sluice.service: 1." in said


def test_the_sockets_of_systemd_are_the_ports_of_the_example() -> None:
    (listener,) = load_settings(DEPLOY / "sluice.yaml").listeners
    assert listener.brokers is not None
    ports = [listener.bind.port, *(port for each in listener.brokers.ranges for port in each.bound)]
    listened = re.findall(r"^ListenStream=(.*)$", (DEPLOY / "sluice.socket").read_text(), flags=re.MULTILINE)
    assert listened == [f"{listener.bind.host}:{port}" for port in ports]


def test_hadolint_has_nothing_to_say_about_the_dockerfile() -> None:
    assert run(Path(sys.executable).parent / "hadolint", "Dockerfile") == ""


def test_the_image_gets_every_package_and_nothing_else() -> None:
    """What of them is let in, is in test_packages.py."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["importlinter"]["root_packages"])
    files = {"pyproject.toml", "README.md", "LICENSE"}
    files |= {"deploy/build-requirements.txt", "deploy/hatch_build.py", "deploy/requirements.txt"}
    launcher, share = "deploy/launcher", "deploy/share"
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    assert set(" ".join(copied).split()) == packages | files | {launcher, share}
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    of_packages = {line for line in let_in if line.split("/")[0] in packages} - files
    others = {line for line in let_in if line not in of_packages and not line.startswith(f"{share}/")}
    assert others == {*files, f"{launcher}/kafka_sluice/*.py"}
    assert {line.split("/")[0] for line in of_packages} == packages
