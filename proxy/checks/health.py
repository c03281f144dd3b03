"""Asks a running proxy for its health: ``sluice health``, and thus a container's HEALTHCHECK."""

import http.client
from typing import Final
from urllib.parse import urlsplit

from config.problems import without_secrets
from config.units import EVERY_INTERFACE, Address

TIMEOUT_S: Final = 3.0
_MAX_ANSWER_BYTES: Final = 64 * 1024


def admin_url(bind: Address) -> str:
    """Return the URL of the admin port, as seen from the same machine."""
    loopback = "::1" if bind.host == "::" else "127.0.0.1"
    return f"http://{Address(loopback if bind.host in EVERY_INTERFACE else bind.host, bind.port)}"


def connect(url: str, timeout_s: float = TIMEOUT_S) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection to the admin port at ``url``, not open yet, and the path in it, if any.

    Raises ValueError for an invalid URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme != "http":
        raise ValueError(f"{without_secrets(url)!r} is not a URL like http://127.0.0.1:9404")
    return http.client.HTTPConnection(host, port, timeout=timeout_s), parts.path.rstrip("/")


def ask(url: str, path: str) -> tuple[bool, str]:
    """Return whether the proxy is healthy, and its answer; ``path`` is the default for a ``url`` without one.

    Raises ValueError for an invalid URL.
    """
    connection, given = connect(url)
    try:
        connection.request("GET", given or path)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return False, f"{url} does not answer: {str(error) or type(error).__name__}"
    finally:
        connection.close()
    return answer.status == http.client.OK, text
