import contextlib
import errno
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import files
from config.document import read_document, read_text
from config.nodes import Mapping, Plain, Scalar, Sequence
from config.problems import ConfigError, InvalidValue

QUOTE = "quote texts that contain `: `, ` #` or begin with one of [ ] { } & * ! | > % @ `"
EARLY = "the file ends too early: is it half-written?"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "f.yaml"


def problems(file: Path, content: str | bytes) -> list[str]:
    """Return what is wrong with a file of this content, without the folder."""
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as caught:
        read_document(file)
    return [str(problem).removeprefix(str(file)) for problem in caught.value.problems]


def test_scalars_are_the_text_of_the_file(file: Path) -> None:
    file.write_text('a: no\nb: 010\nc: "x"\nd: [0x1F, ~, null, ""]\ne:\nf: |\n  line\n')
    root = read_document(file).root
    assert root == {"a": "no", "b": "010", "c": "x", "d": ["0x1F", None, None, ""], "e": None, "f": "line\n"}


def test_every_node_of_a_document_has_its_position(file: Path) -> None:
    file.write_text("a:\n  - {b: 1}\n")
    root = read_document(file).root
    items = root["a"]
    assert isinstance(items, Sequence)
    item = items[0]
    assert isinstance(item, Mapping)
    value = item["b"]
    assert isinstance(value, Scalar)
    marks = [root.mark, *root.places("a"), items.mark, items.place(0), item.mark, *item.places("b")]
    places = [(mark.line + 1, mark.column + 1) for mark in marks]
    assert places == [(1, 1), (1, 1), (2, 3), (2, 3), (2, 5), (2, 5), (2, 6), (2, 9)]
    assert isinstance(value, Plain)


@pytest.mark.parametrize(
    ("steps", "of_key", "place"),
    [
        (("a", 0, "b"), False, (2, 9)),
        (("a", 0, "b"), True, (2, 6)),
        (("a", 0, "missing"), False, (2, 5)),
        (("a", 7), False, (2, 3)),
        (("empty",), False, (3, 1)),
        (("missing",), False, (1, 1)),
    ],
)
def test_a_problem_is_placed_as_near_as_can_be(
    file: Path, steps: tuple[str | int, ...], of_key: bool, place: tuple[int, int]
) -> None:
    file.write_text("a:\n  - {b: 1}\nempty:\n")
    problem = read_document(file).problem(steps, InvalidValue("wrong", of_key=of_key))
    assert (problem.line, problem.column) == place


def test_a_key_that_stands_twice_is_a_problem_that_hides_no_other(file: Path) -> None:
    file.write_text("a: {b: 1, b: 2}\na: 3\n")
    read = read_document(file)
    assert read.root == {"a": {"b": "1"}}
    assert [str(problem).removeprefix(str(file)) for problem in read.problems] == [
        ":1:11: a.b: is a duplicate key; keep one (the first is on line 1)",
        ":2:1: a: is a duplicate key; keep one (the first is on line 1)",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", [":1:1: is empty; write `key: value` lines"]),
        ("# nothing\n", [":1:1: is empty; write `key: value` lines"]),
        ("- a\n", [":1:1: must hold a mapping; write `key: value` lines"]),
        ("a\n", [":1:1: must hold a mapping; write `key: value` lines"]),
        (
            "a: &x 1\nb: *x\n",
            [
                ":1:4: a: anchors (&x) are not supported; write the value out where it is used",
                ":2:4: b: aliases (*x) are not supported; write the value out where it is used",
            ],
        ),
        ("<<: {a: 1}\n", [":1:1: merge keys (<<) are not supported; write the value out where it is used"]),
        (
            "a: !!str 1\n",
            [":1:4: a: tags (tag:yaml.org,2002:str) are not supported; leave it out; quotes make it a text"],
        ),
        ("? [a]\n: 1\n", [":1:3: a key must be a text"]),
        ("a: 1\n---\nb: 1\n", [":2:1: a second document; keep one document per file"]),
        ("a:\n\tb: 1\n", [":2:1: found character that cannot start any token; indent with spaces, not with tabs"]),
        (
            "a: b: c\n",
            [f":1:5: mapping values are not allowed in this context; {QUOTE}"],
        ),
        (
            "a: [1,\nb: c\n",
            [f":3:1: did not find expected ',' or ']' (while parsing a flow sequence that begins on line 1); {EARLY}"],
        ),
        ("ä: 1\nb: 104", [":2:4: b: the file ends within this line: is it half-written?; end it with a newline"]),
        ("a:", [":1:3: a: the file ends within this line: is it half-written?; end it with a newline"]),
        ("a: ", [":1:3: a: the file ends within this line: is it half-written?; end it with a newline"]),
        ("a: {b: ${C}}\n", [
            ":1:9: did not find expected ',' or '}'; no variables are expanded: write the value itself"]),
        ("a: {{ b }}\n", [":1:5: a: a key must be a text; no variables are expanded: write the value itself"]),
        ("a:\n  - b\n\t- c\n", [
            (":3:1: found a tab character that violates indentation (while scanning a plain scalar that begins on "
            "line 2); indent with spaces, not with tabs")]),
        ("a: 1\n".encode("utf-16-le"), [
            ":1:2: the character U+0000 is not allowed; is it UTF-16, or not text? save the file as UTF-8"]),
        ("a: \x01\n", [':1:4: the character U+0001 is not allowed; write it as "\\u…"']),
        (b"a: 1\nb: \xc3\xa4\xff\n", [":2:5: byte 0xff is not UTF-8; save the file as UTF-8"]),
        (b"\xef\xbb\xbfa: \xff\n", [":1:4: byte 0xff is not UTF-8; save the file as UTF-8"]),
        ("a: 1\n".encode("utf-16"), [":1:1: byte 0xff is not UTF-8; save the file as UTF-8"]),
        ("[" * 200_000 + "\n", [":1:33: nested deeper than 32 levels"]),
    ],
)  # fmt: skip
def test_yaml_forms_unfit_for_configuration_are_refused(file: Path, content: str | bytes, expected: list[str]) -> None:
    assert problems(file, content) == expected


def test_a_file_may_end_without_a_newline_where_nothing_can_be_missing(file: Path) -> None:
    file.write_text('\ufeffa: "1"')
    assert read_document(file).root == {"a": "1"}


def test_unreadable_file_is_refused_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_document(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="is a directory; name the file in it"):
        read_document(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        read_document(tmp_path / "nul\0.yaml")
    (tmp_path / "quotas.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"no such file; did you mean .*/quotas.yaml\?$"):
        read_document(tmp_path / "quota.yaml")
    with pytest.raises(ConfigError, match=r"no such file$"):
        read_document(tmp_path / "sluice.yaml")
    (tmp_path / "config.yaml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"no such file$"):
        read_document(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match="cannot be read: not a directory"):
        read_document(tmp_path / "quotas.yaml" / "x")
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 2**20)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        read_document(large)


@pytest.mark.parametrize("depth", [40, 3000])
@pytest.mark.parametrize(
    "form",
    [
        "? ",
        "[",
        "{a: ",
        "- ",
        "? - ",
        "- ? ",
        "[?",
        "{? [",
        "[{",
        "? [",
        "- - ",
        "!!x [",
        "&a [",
        "? &a ",
        "[a, ",
        "{[a]: [",
    ],
)
def test_deeply_nested_file_is_refused_with_a_short_problem(tmp_path: Path, form: str, depth: int) -> None:
    for begun in ("", "quotas: ", "a:\n  "):
        (tmp_path / "deep.yaml").write_text(begun + form * depth + "b\n")
        with pytest.raises(ConfigError) as caught:
            read_document(tmp_path / "deep.yaml")
        assert len(str(caught.value)) < 1000 * depth


def special_files(folder: Path) -> list[tuple[Path, str]]:
    """What is no file, and would be waited for or read for ever."""
    pipe, socket_file, device = folder / "pipe", folder / "socket", folder / "zero"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(socket_file))
    device.symlink_to("/dev/zero")
    return [(pipe, "is a named pipe"), (socket_file, "is a socket"), (device, "is a device")]


def test_special_file_is_refused_without_waiting(tmp_path: Path) -> None:
    for path, said in special_files(tmp_path):
        with pytest.raises(ConfigError, match=f"{path.name}: {said}, not a file; write it into a file"):
            read_document(path)


def test_a_pipe_is_read_by_commands_that_read_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"quotas: []\n")
    os.close(writing)
    assert read_text(Path(f"/dev/fd/{reading}"), pipes=True) == "quotas: []\n"
    os.close(reading)


def test_file_without_permission_names_the_user_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "require_regular", refuse)
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path / "f.yaml")
    said = (
        f"f.yaml: cannot be read: permission denied; let the user with id {os.geteuid()} read it and enter its folders"
    )
    assert str(caught.value) == f"{tmp_path}/{said}"


@given(content=st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-,[]{}\"'&*!|>#?%@~ \t\n\r<é", max_size=40)))
def test_arbitrary_bytes_are_a_document_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with contextlib.suppress(ConfigError):
        assert isinstance(read_document(file).root, Mapping)
