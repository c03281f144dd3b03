"""Clients that cannot be told apart, where a quota of the default user holds them all."""

from pathlib import Path

import pytest

from proxy.checks.report import check
from tests.proxy.checks.secure import CONFIG, KERBEROS, NOW_S, write

DEFAULT = "quotas:\n  - {entity: {user: {default: true}}, producer_byte_rate: 1MiB}\n"


def shared(folder: Path, config: str, quotas: str) -> list[str]:
    file = write(folder, config)
    (folder / "quotas.yaml").write_text(quotas)
    return check(file, NOW_S).shared


def test_default_user_quota_shared_by_unknown_logins_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.checks.configuration.acceptor", lambda _: None)
    (line,) = shared(tmp_path, CONFIG, DEFAULT)
    assert line.startswith("listener SASL_SSL: the quota of the default user limits all clients of GSSAPI together")
    (line,) = shared(tmp_path, KERBEROS, DEFAULT)
    assert "GSSAPI" not in line
    assert "of a mechanism that Sluice cannot follow, all clients together" in line


def test_sharing_is_not_reported_without_default_quota_or_login(tmp_path: Path) -> None:
    assert shared(tmp_path, CONFIG, DEFAULT.replace("{default: true}", "alice")) == []
    assert shared(tmp_path, CONFIG.replace("authentication: sasl", "authentication: none"), DEFAULT) == []
