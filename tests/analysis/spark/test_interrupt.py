import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from analysis.spark import interrupt


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, each in before.items():
        signal.signal(number, each)
    interrupt._came.clear()


def raised(error: BaseException, by: BaseException | None = None) -> BaseException:
    try:
        try:
            raise by or error
        finally:
            if by is not None:
                raise error
    except BaseException as found:  # noqa: BLE001  it is what is asked for
        return found


def test_interrupt_is_found_as_cause_of_spark_failures() -> None:
    """Spark tells of a job that was cancelled, while the interrupt goes up."""
    assert interrupt.is_cause(raised(KeyboardInterrupt()))
    assert interrupt.is_cause(raised(ValueError("cancelled"), KeyboardInterrupt()))
    assert not interrupt.is_cause(raised(ValueError("wrong"), KeyError("x")))


class Context:
    """Starts, and is interrupted meanwhile or later."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.setLogLevel = self.did.append
        self.cancelAllJobs = lambda: self.did.append("cancelled")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_jobs_are_cancelled_and_java_tells_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    context = Context()
    assert interrupt.start(lambda: cast("SparkContext", context)) is cast("SparkContext", context)
    monkeypatch.setattr("threading.Thread", lambda target, **_: SimpleNamespace(start=target))
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert context.did == ["OFF", "cancelled"]
    assert interrupt.exit_status() == status
    assert interrupt.is_cause(ValueError("whatever follows"))


def test_interrupt_during_java_start_waits_until_java_is_up() -> None:
    made: list[Context] = []

    def make() -> SparkContext:
        os.kill(os.getpid(), signal.SIGINT)
        made.append(Context())
        return cast("SparkContext", made[0])

    with pytest.raises(KeyboardInterrupt):
        interrupt.start(make)
    assert len(made) == 1
