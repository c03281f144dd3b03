"""The group of instances as the supervisor has it, and its absence."""

import subprocess
import sys
from pathlib import Path

import pytest

from config.loader import load_settings
from config.problems import ConfigError
from config.settings import Settings
from config.units import Address
from proxy.owners.group import OwnersGroup
from proxy.owners.membership import probe_address
from tests.proxy.checks.test_report import found

SECTION = "owners: {{instance: a, group: g, secret_file: secret{more}}}\n"
CONFIG = """\
cluster: {{name: c, bootstrap: ["b:9092"]}}
listeners: [{{name: A, bind: ":9092", advertise: {advertise}, brokers: {{"0-9": "9100-9109"}}}}]
quotas: {{store: {{path: quotas.yaml}}}}
admin: {{bind: "{admin}"}}
"""


def written(folder: Path, *, section: str = "", advertise: str = "a.test", admin: str = "10.0.0.5:9404") -> Path:
    (folder / "quotas.yaml").write_text("quotas: []\n")
    (folder / "secret").write_text("0123456789abcdef")
    (folder / "secret").chmod(0o600)
    (folder / "sluice.yaml").write_text(CONFIG.format(advertise=advertise, admin=admin) + section)
    return folder / "sluice.yaml"


def settings(folder: Path, **written_as: str) -> Settings:
    return load_settings(written(folder, section=SECTION.format(more=""), **written_as))


@pytest.mark.parametrize(
    ("admin", "advertise", "there"),
    [
        ("10.0.0.5:9404", "a.test", Address("10.0.0.5", 9404)),
        (":9404", "a.test", Address("a.test", 9404)),
        ("127.0.0.1:9404", "a.test", None),
        ("localhost:9404", "a.test", None),
        ("127.0.0.1:9404", "127.0.0.1", Address("127.0.0.1", 9404)),
    ],
)
def test_probe_address_is_admin_address_reachable_from_other_instances(
    tmp_path: Path, admin: str, advertise: str, there: Address | None
) -> None:
    assert probe_address(settings(tmp_path, admin=admin, advertise=advertise)) == there


def test_group_before_joining_is_alone_and_not_ready(tmp_path: Path) -> None:
    loaded = settings(tmp_path)
    assert loaded.owners is not None

    async def brokers() -> tuple[list[int], dict[int, float]]:
        return [], {}

    group = OwnersGroup(loaded, loaded.owners, brokers, lambda *_: None)
    status = group.member.status
    assert (status.instance, status.state, status.epoch, status.owners) == ("a", "alone", -1, {})
    assert (status.error, group.member.peers) == ("it has not joined yet", {})
    assert group.member.why_not_ready == "owners: it has not joined yet"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (", session: 3s", "owners.session: brokers refuse a session below 6s"),
        (", heartbeat: 4s", "owners.session: less than three heartbeats"),
    ],
)
def test_check_reports_session_timeout_too_short(tmp_path: Path, more: str, said: str) -> None:
    assert found(tmp_path, written(tmp_path, section=SECTION.format(more="")).read_text()) == []
    lines = found(tmp_path, written(tmp_path, section=SECTION.format(more=more)).read_text())
    assert [said in line for line in lines] == [True]


@pytest.mark.parametrize(("host", "lines"), [("b{node_id}.kafka.test", 1), ("b{node_id}-{instance}.kafka.test", 0)])
def test_broker_host_without_instance_is_reported(tmp_path: Path, host: str, lines: int) -> None:
    config = written(tmp_path, section=SECTION.format(more="")).read_text()
    (tmp_path / "chain.pem").touch()
    ports = 'brokers: {"0-9": "9100-9109"}'
    assert ports in config
    looked = found(tmp_path, config.replace(ports, f'broker_host: "{host}", tls: {{certificate: chain.pem, key: k}}'))
    assert len([line for line in looked if "does not name the instance" in line]) == lines


def test_loopback_admin_address_and_bad_secret_are_reported(tmp_path: Path) -> None:
    config = written(tmp_path, section=SECTION.format(more=""), admin="127.0.0.1:9404").read_text()
    (line,) = found(tmp_path, config)
    assert "the other instances do not reach 127.0.0.1:9404" in line
    (tmp_path / "secret").write_text("short")
    assert any("has 5 bytes, and can be guessed" in line for line in found(tmp_path, config))
    (tmp_path / "secret").unlink()
    assert any("no such file" in line for line in found(tmp_path, config))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("owners: {instance: a, group: g}\n", "owners.secret_file: is missing, but group is set"),
        ("owners: {instance: a, secret_file: s, fixed: {a: '0'}}\n", "owners.secret_file: has no effect without group"),
        ("owners: {instance: a, group: g, secret_file: s, fixed: {a: '0'}}\n", "owners.fixed: cannot be combined"),
    ],
)
def test_conflicting_owners_settings_are_refused(tmp_path: Path, section: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(written(tmp_path, section=section))


def test_supervisor_without_owners_section_loads_only_the_map_of_owners(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from config.loader import load_settings; import proxy.supervisor as s; "
        "s.Supervisor(load_settings(Path(sys.argv[1])), Path(sys.argv[1]), 'asyncio'); "
        "print([m for m in sys.modules if m.startswith('proxy.owners')])"
    )
    command = [sys.executable, "-c", code, str(written(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['proxy.owners', 'proxy.owners.map']"
