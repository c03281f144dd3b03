"""``sluice quotas`` as somebody types it."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.manage.cli import quotas

Run = Callable[..., Result]

QUOTAS = """\
# Of the platform team.
groups: {analytics: [carol, dave]}
caps:
  - {entity: {user-group: analytics}, producer_byte_rate: 50MiB}
quotas:
  - entity: {user: alice}  # the shop
    producer_byte_rate: 1024
    request_percentage: 12.5
  - {entity: {user: alice, client-id: {default: true}}, consumer_byte_rate: 10MB, burst: 2s}
  - {entity: {user: {default: true}}, producer_byte_rate: 10MiB}
  - {entity: {client-id: "<default>"}, producer_byte_rate: 2MiB}
  - {entity: {client-id: {prefix: tmp-}}, producer_byte_rate: 1MiB, shared: false}
  - {entity: {ip: {default: true}}, connection_creation_rate: 10}
"""


@pytest.fixture
def quota_file(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(QUOTAS)
    return path


@pytest.fixture
def run() -> Run:
    """Run a command line; ``{}`` stands for the paths that are given."""

    def invoke(line: str, *paths: Path, said: str | None = None) -> Result:
        words = shlex.split(line.format(*paths))
        return CliRunner().invoke(quotas, words, input=said, prog_name="sluice quotas")

    return invoke
