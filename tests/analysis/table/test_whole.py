"""A folder with a page: it is all of one run, whoever else is at it, and whenever one is killed."""

from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder
from analysis.table import whole
from analysis.table.whole import made_whole

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

NAME = "client=a b/report=1"
DAY_S = 86_400


def make(spark: SparkSession, out: Path, content: str, *, now_s: float = 0.0) -> None:
    with made_whole(spark, str(out), NAME, "page", lambda: now_s) as making:
        folder = Folder(spark, making)
        folder.write("table/part", content)
        folder.write("page", content)


def there(out: Path) -> dict[str, str]:
    files = (each for each in (out / NAME).rglob("*") if each.is_file() and each.suffix != ".crc")
    return {str(each.relative_to(out / NAME)): each.read_text(encoding="utf-8") for each in files}


def in_place(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """As on a disk, or as on an object store, which a disk is to Hadoop as well."""
    if how == "moved":
        monkeypatch.setattr(Folder, "is_on_disk", property(lambda _: False))


@pytest.mark.parametrize("how", ["renamed", "moved"])
def test_it_takes_the_place_of_an_earlier_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    in_place(spark, monkeypatch, how)
    make(spark, tmp_path, "first")
    (tmp_path / NAME / "of-then").touch()
    make(spark, tmp_path, "second")
    assert there(tmp_path) == {"table/part": "second", "page": "second"}
    assert [each.name for each in tmp_path.iterdir()] == ["client=a b"]


@pytest.mark.parametrize("how", ["renamed", "moved"])
def test_until_it_is_whole_the_earlier_one_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    in_place(spark, monkeypatch, how)
    make(spark, tmp_path, "first")

    def fail(making: str) -> None:
        Folder(spark, making).write("table/part", "second")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), made_whole(spark, str(tmp_path), NAME, "page") as making:
        fail(making)
    assert there(tmp_path) == {"table/part": "first", "page": "first"}
    assert [each.name for each in tmp_path.iterdir()] == ["client=a b"], "what it had made is gone"


def test_where_renaming_is_copying_the_page_goes_first_and_comes_last(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended after any change, there is a page only beside tables that are all there, and its own."""
    make(spark, tmp_path, "first")
    in_place(spark, monkeypatch, "moved")
    seen: list[dict[str, str]] = []

    def noting(method: Callable[..., None]) -> Callable[..., None]:
        def noted(*given: str) -> None:
            method(*given)
            seen.append(there(tmp_path))

        return noted

    with made_whole(spark, str(tmp_path), NAME, "page") as making:
        folder = Folder(spark, making)
        folder.write("table/part", "second")
        folder.write("page", "second")
        monkeypatch.setattr(Folder, "move", noting(Folder.move))
        monkeypatch.setattr(Folder, "remove", noting(Folder.remove))
    assert seen[0] == {"table/part": "first"}
    assert [each for each in seen if "page" in each and len(set(each.values())) > 1] == []
    assert {"table/part": "second"} in seen
    assert seen[-1] == {"table/part": "second", "page": "second"}


def test_of_many_at_once_one_stays_whole(spark: SparkSession, tmp_path: Path) -> None:
    failed: list[BaseException] = []
    together = Barrier(4)

    def again(content: str) -> None:
        try:
            together.wait(60)
            for _ in range(5):
                make(spark, tmp_path, content)
        except BaseException as error:  # noqa: BLE001  it is told below
            failed.append(error)

    threads = [Thread(target=again, args=(str(number),)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(100)
    assert failed == []
    found = there(tmp_path)
    assert set(found) == {"table/part", "page"}
    assert len(set(found.values())) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["client=a b"]


def test_what_was_left_for_a_day_goes(spark: SparkSession, tmp_path: Path) -> None:
    for name in (".being-made-1000-abc", f".being-made-{DAY_S}-def", ".being-made-by-hand", "notes"):
        (tmp_path / name).mkdir()
    make(spark, tmp_path, "now", now_s=DAY_S + 2000.0)
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {f".being-made-{DAY_S}-def", ".being-made-by-hand", "notes", "client=a b"}


def test_a_place_that_cannot_be_written_is_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client=a b").touch()
    with pytest.raises(AnalysisError, match=r"client=a b/report=1: File exists"):
        make(spark, tmp_path, "now")
    monkeypatch.setattr(whole, "_TRIES", 0)
    (tmp_path / "client=a b").unlink()
    with pytest.raises(AnalysisError, match=r"others put theirs there"):
        make(spark, tmp_path, "now")
