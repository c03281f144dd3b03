"""Who was busy while a client was throttled, by the same method as noisy neighbours."""

import pytest
from pyspark.sql import SparkSession

from analysis.client.asked import Asked
from analysis.client.nearby import busy
from analysis.client.throttles import muted
from analysis.metrics.period import look
from tests.analysis.metrics.batch import MOMENTS, documents
from tests.analysis.records import usage

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("name", "coincide"),
    [
        pytest.param("alone", set(), id="its own use explains it"),
        pytest.param("a", {"b"}, id="who shares its counter, and not who is busy at the same time"),
        pytest.param("victim", {"noisy"}, id="who delays it"),
    ],
)
def test_who_coincides(spark: SparkSession, name: str, coincide: set[str]) -> None:
    asked = Asked({"user": name})
    everything = usage(spark, documents())
    own = everything.only(**asked.values)
    period = look(everything)
    assert period is not None
    found = busy(everything, own, MOMENTS, muted(own, asked, period.capped), asked, period)
    assert {each.user for each in found if each.verdict == "coincides"} == coincide
    assert {each.user for each in found} <= {"a", "b", "alone", "noisy", "victim"} - {name}
