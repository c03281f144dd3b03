import pytest

from analysis.spark.progress import show, to_stderr


@pytest.mark.parametrize(
    ("is_terminal", "said"),
    [(True, "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[Kdone\n"), (False, "done\n")],
)
def test_steps_are_shown_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool, said: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    show("one")
    show("two")
    to_stderr("done")
    assert capsys.readouterr().err == said
