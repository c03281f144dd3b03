from pathlib import Path

import pytest

from config.settings import Admin, AdminAccess
from config.units import Address
from proxy.checks.health import admin_url, login_of


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9404"),
        ("", "http://127.0.0.1:9404"),
        ("0.0.0.0", "http://127.0.0.1:9404"),
        ("::", "http://[::1]:9404"),
        ("fd00::1", "http://[fd00::1]:9404"),
    ],
)
def test_every_interface_is_asked_on_loopback(host: str, url: str) -> None:
    assert admin_url(Admin(bind=Address(host, 9404))) == url


def test_login_is_by_the_first_token_file_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("0123456789abcdef\n")
    entries = tuple(AdminAccess(name=name, token_file=tmp_path / name) for name in ("a", "b"))
    assert login_of(Admin(access=entries)).token == "0123456789abcdef"
    assert login_of(Admin(token_file=tmp_path / "b")).token == "", "reading needs none"
