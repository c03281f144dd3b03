"""Moto's server of S3: ``python moto_server.py HOST PORT``, by a Python that has moto (``object_store``).

Not moto's own command: in it http.server and werkzeug both say "100 Continue", and AWS's SDK takes the second for the
answer to an upload.

``PUT /-/changes?left=N`` lets so many changes of objects through, and refuses all that follow; without N, none. The
answer is how many there were since the last time.
"""

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

REFUSED = b"<Error><Code>AccessDenied</Code><Message>no more changes</Message></Error>"


class Changes:
    """WSGI: counts requests that change something."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._lock = Lock()
        self._one_by_one = Lock()
        self._seen = 0
        self._left: int | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/-/changes":
            found = self._limited(parse_qs(environ["QUERY_STRING"]).get("left"))
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(found).encode()]
        if environ["REQUEST_METHOD"] in {"PUT", "POST", "DELETE"} and not self._is_let_through():
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [REFUSED]
        if "HTTP_IF_NONE_MATCH" in environ:  # moto looks, and then writes
            with self._one_by_one:
                return self._app(environ, start_response)
        return self._app(environ, start_response)

    def _limited(self, left: list[str] | None) -> int:
        with self._lock:
            self._left = None if left is None else int(left[0])
            seen, self._seen = self._seen, 0
            return seen

    def _is_let_through(self) -> bool:
        with self._lock:
            if self._seen == self._left:
                return False
            self._seen += 1
            return True


if __name__ == "__main__":
    # Modules of moto's own environment, which no checker of ours sees.
    app = import_module("moto.moto_server.werkzeug_app")
    handler = type("Handler", (app.MotoRequestHandler,), {"handle_expect_100": lambda _: True})
    served = Changes(app.DomainDispatcherApplication(app.create_backend_app))
    host, port = sys.argv[1:]
    import_module("werkzeug.serving").run_simple(host, int(port), served, threaded=True, request_handler=handler)
