import pytest

from tests.harness.clients.program import ranges
from tests.harness.clients.tasks import (
    Administer,
    Consume,
    Produce,
    Security,
    Task,
    arguments,
    index_of,
    parse,
    payload,
)


@pytest.mark.parametrize(
    "task",
    [
        Produce(bootstrap="a:1,b:2", client_id="=x", topic="t", acks=-1, idempotent=True, duration_s=1.5),
        Consume(bootstrap="a:1", client_id="", topic="t", group="g", protocol="consumer", committed_only=True),
        Administer(bootstrap="a:1", client_id="c"),
        Administer(bootstrap="a:1", client_id="c", security=Security(protocol="SSL", password="=x", key="/k")),
    ],
)
def test_task_survives_the_command_line(task: Task) -> None:
    assert parse(arguments(task)) == task


@pytest.mark.parametrize("index", [0, 1, 250, 251, 1_000_000])
def test_payload_knows_its_index(index: int) -> None:
    assert len(payload(index, 500)) == 500
    assert index_of(payload(index, 500)) == index


@pytest.mark.parametrize("position", [0, 7, 8, 250, 499])
def test_payload_with_a_changed_byte_is_not_recognised(position: int) -> None:
    changed = bytearray(payload(3, 500))
    changed[position] ^= 1
    assert index_of(bytes(changed)) is None


def test_short_value_is_no_payload() -> None:
    assert index_of(b"short") is None


def test_sorted_numbers_are_folded_into_ranges() -> None:
    assert ranges({5, 1, 2, 3, 9, 10}) == [[1, 3], [5, 5], [9, 10]]
