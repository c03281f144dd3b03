"""Which worlds are measured."""

import pytest

from bench.analysis.__main__ import main, worlds


@pytest.mark.parametrize(
    ("most_m", "sizes"),
    [(2, [("wide", 2)]), (10, [("wide", 2), ("wide", 5), ("wide", 10), ("steady", 10)])],
)
def test_scale_selects_worlds_up_to_its_size(most_m: int, sizes: list[tuple[str, int]]) -> None:
    found = worlds(most_m, ["wide", "steady"])
    assert [(world.name, world.rows // 1_000_000) for world in found] == sizes


def test_given_names_select_their_worlds_alone() -> None:
    assert {world.name for world in worlds(100, ["wide"])} == {"wide"}


@pytest.mark.parametrize("scale", ["1M", "many", "", "-5M", "1.5M"])
def test_invalid_scale_is_refused_with_an_example(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--scale={scale}"])
    assert f"'{scale}' is not a number of million rows like 2M or 100M" in capsys.readouterr().err
