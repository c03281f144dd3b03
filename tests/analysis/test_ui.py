"""``--ui``: Spark's own pages, on loopback, while a command runs."""

import re
import signal
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.analysis.records import document, write_jsonl
from tests.analysis.test_stopped import HELD, command

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_ui_is_on_loopback_where_the_command_says(tmp_path: Path, warehouse: str) -> None:
    (tmp_path / "files").mkdir()
    write_jsonl(tmp_path / "files" / "one.jsonl", [document(0, [HELD])])
    words = ["--warehouse", warehouse, "--files", str(tmp_path / "files"), "--every", "1m", "--ui"]
    with command(tmp_path, "ingest", *words) as running:
        running.until_it_says("batch 0: ")
        [(host, port)] = re.findall(r"^Spark's pages: http://(.+):(\d+)$", "\n".join(running.said()), re.MULTILINE)
        assert host in ("localhost", "127.0.0.1")
        with closing(HTTPConnection(host, int(port), timeout=30)) as connection:
            connection.request("GET", "/api/v1/applications")
            assert b'"name" : "sluice ingest"' in connection.getresponse().read()
        assert running.stop(signal.SIGTERM) == 0
