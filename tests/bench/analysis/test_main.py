"""Which worlds are measured."""

import pytest

from bench.analysis.__main__ import main, worlds


@pytest.mark.parametrize(
    ("most_m", "sizes"),
    [(2, [("wide", 2)]), (10, [("wide", 2), ("wide", 5), ("wide", 10), ("steady", 10)])],
)
def test_worlds_up_to_a_size(most_m: int, sizes: list[tuple[str, int]]) -> None:
    found = worlds(most_m, ["wide", "steady"])
    assert [(world.name, world.rows // 1_000_000) for world in found] == sizes


def test_worlds_can_be_chosen() -> None:
    assert {world.name for world in worlds(100, ["wide"])} == {"wide"}


@pytest.mark.parametrize("scale", ["1M", "many", "", "-5M", "1.5M"])
def test_a_wrong_scale_is_an_error(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--scale={scale}"])
    assert f"'{scale}' is not a number of million rows like 2M or 100M" in capsys.readouterr().err
