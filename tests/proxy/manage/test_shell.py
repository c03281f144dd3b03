"""Scripts as words, as a shell reads them."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.manage.formats.shell import UnendedError, commands


def words(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in commands(text)]


@given(st.lists(st.lists(st.text(max_size=10), min_size=1, max_size=4), max_size=3))
def test_what_is_quoted_is_read_as_it_was(lines: list[list[str]]) -> None:
    assert words("\n".join(map(shlex.join, lines))) == lines


SCRIPT = r"""
# a comment; with 'quotes
kafka one "two \"three\" \\ \a" 'fo"ur' fi\ ve six\
seven  # and a comment
kafka a,\
b --x='y z'"w"; kafka second#no-comment && kafka third
kafka "over
two lines" >/dev/null 2>&1
kafka to 2>> log.txt "" ''
"""


def test_a_script_is_read_as_a_shell_reads_it(tmp_path: Path) -> None:
    said = tmp_path / "said"
    function = 'kafka() { printf "%s\\037" "$@" >> "$SAID"; printf "\\036" >> "$SAID"; }'
    environment = {**os.environ, "SAID": str(said)}
    subprocess.run(["sh", "-c", f"{function}\n{SCRIPT}"], check=True, cwd=tmp_path, env=environment)
    told = [line.split("\x1f")[:-1] for line in said.read_text().split("\x1e")[:-1]]
    assert [each[1:] for each in words(SCRIPT)] == told


def test_pipes_and_lists_end_a_command() -> None:
    assert words("a 1 | b || c & d && e;f >x <y") == [["a", "1"], ["b"], ["c"], ["d"], ["e"], ["f"]]


def test_a_command_stands_on_the_line_where_it_begins() -> None:
    assert [command.line for command in commands("\n\na\n'b\n\nc' d; e\\\n f\n\ng")] == [3, 4, 6, 9]


@pytest.mark.parametrize(
    ("word", "varies"),
    [
        ("$x", True),
        ('"a $x"', True),
        ("`date`", True),
        ('"`date`"', True),
        ("'$x'", False),
        ('"\\$x"', False),
        ("a", False),
    ],
)
def test_what_a_shell_fills_in_is_marked(word: str, varies: bool) -> None:
    (command,) = commands(f"kafka {word}")
    assert any(each.varies for each in command.words) == varies


@pytest.mark.parametrize("text", ["a\n'b", 'a\n"b', "a\nb\\"])
def test_a_quote_that_does_not_end_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(UnendedError) as raised:
        list(commands(text))
    assert raised.value.line == 2


@given(st.text("ab'\"\\ \n;&|<>()$#`2", max_size=30))
def test_any_text_is_words_or_does_not_end(text: str) -> None:
    try:
        found = words(text)
    except UnendedError as error:
        line = error.line
    else:
        line = 1
        assert all(found)
    assert line <= text.count("\n") + 1
