import pytest

from config.units import Address
from proxy.checks.health import admin_url


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
    assert admin_url(Address(host, 9404)) == url
