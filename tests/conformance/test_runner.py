import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.model import Failure, Skipped, attempt
from tests.conformance.quotas import run

VECTORS = Path(__file__).parents[1] / "vectors"


def case(kind: str, inputs: object, expected: object, **more: object) -> dict[str, object]:
    return {"id": "X1", "kind": kind, "name": "a case", "inputs": inputs, "expected": expected, **more}


def outcome_of(one: dict[str, object]) -> object:
    ((title, outcome),) = run({"cases": [one]})
    assert title.startswith("X1 ")
    return outcome


MUTE = [{"throttle_computed_at": 10, "throttle_ms": 500, "response_flushed_at": 12}]
WRAPPED = {"quota": 2, "samples": 11, "window_s": 1, "events": [{"t": 0, "record": 9e9}]}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def written(document: object, name: str = "file.json") -> str:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
        return str(path)

    return written


def test_vector_passes_or_fails_by_its_expected_answer() -> None:
    assert outcome_of(case("mute", MUTE, [{"reads_resume_at": 510}])) is None
    assert outcome_of(case("mute", MUTE, [{"reads_resume_at": 511}])) == Failure(
        "X1", [{"reads_resume_at": 511}], [{"reads_resume_at": 510}], "[0].reads_resume_at: 510 instead of 511"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        case("mute", MUTE, []),
        case("mute", MUTE, [{}]),
        case("mute", MUTE, [{"reads_resume_at": "510"}]),
        case("mute", MUTE, [{"other": 1}]),
        case("no such kind", {}, {}),
        case("throttle", {"quota": 1, "events": [{"t": 0, "no such event": 1}]}, {"throttle_ms": []}),
        case("throttle", {"quota": 1, "algo": "9.9", "events": []}, {"throttle_ms": []}),
        case("throttle", {"quota": 1, "events": [{"t": 0, "record": 15.0}]}, {"throttle_ms": [5001]}),
        case("number_format", [1.0], ["1"]),
        case("combined", {"config": {}, "events": [{"t": 0, "op": "no such op"}]}, []),
        case("precedence", {"quotas": [{"client": {"default": False}, "limit": 1}], "queries": []}, []),
        case("rate", {"samples": 11, "window_ms": 1000, "events": [{"t": 0, "measure": True}]}, [{"window_ms": 10001}]),
        case("zk", [{"user": "u", "props": {}}], [{"node": '{"version":1,"config":{"a":"b"}}'}]),
        {"id": "X1", "kind": "mute"},
    ],
)
def test_malformed_or_wrong_vector_case_fails(wrong: dict[str, object]) -> None:
    assert isinstance(outcome_of(wrong), Failure)


@pytest.mark.parametrize("throttle_ms", [-1125736208, 2**31 - 1])
def test_throttle_time_beyond_int32_passes_wrapped_or_clamped(throttle_ms: int) -> None:
    assert outcome_of(case("throttle", WRAPPED, {"throttle_ms": [throttle_ms]})) is None


def test_vector_passes_with_any_accepted_answer_and_no_other() -> None:
    answers = [[{"reads_resume_at": 1}], [{"reads_resume_at": 510}]]
    assert outcome_of(case("mute", MUTE, None, accept_any_of=answers)) is None
    assert isinstance(outcome_of(case("mute", MUTE, answers[1], accept_any_of=answers[:1])), Failure)


def test_the_ring_of_kafka_3_7_is_skipped_by_name() -> None:
    outcome = outcome_of(case("rate", {"algo": "3.7"}, []))
    assert isinstance(outcome, Skipped)
    assert "3.7" in outcome.reason


def test_exception_in_a_check_is_a_failure() -> None:
    error = ZeroDivisionError("x")

    def check() -> None:
        raise error

    assert attempt("X1", "y", check) == Failure("X1", "y", error, "ZeroDivisionError")


def test_conformance_run_reports_counts_and_exit_status(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    right = case("mute", MUTE, [{"reads_resume_at": 510}])
    wrong = case("mute", MUTE, [{"reads_resume_at": 9}])
    skipped = case("rate", {"algo": "3.7"}, [])
    assert main([write({"cases": [right]})]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"
    assert main([write({"cases": [right, wrong, skipped]}), write({"cases": [right]}, "second.json")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAILED X1 mute: a case"
    assert "9" in lines[1]
    assert "510" in lines[2]
    assert lines[-1] == "2 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "no known format: not an object but a list"),
        ("{}", "no known format: none of the members"),
        ('{"cases": {}}', "no known format"),
        ("\udcff", "not JSON"),
    ],
)
def test_unusable_vector_file_exits_with_2(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main([str(path)]) == 2
    assert f"{path}: {complaint}" in capsys.readouterr().err


def test_a_missing_file_does_not_keep_the_others_from_running(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    right = write({"cases": [case("mute", MUTE, [{"reads_resume_at": 510}])]})
    assert main(["/nonexistent.json", right]) == 2
    captured = capsys.readouterr()
    assert captured.err == "/nonexistent.json: No such file or directory\n"
    assert captured.out == "1 passed, 0 failed\n"


def test_run_without_a_vector_file_exits_with_2() -> None:
    assert main([]) == 2


def test_cases_that_are_no_objects_fail(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write({"cases": ["x"]})]) == 1
    assert capsys.readouterr().out.endswith("0 passed, 1 failed\n")


def test_conformance_command_passes_the_shipped_vectors() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.conformance",
        str(VECTORS / "quotas.json"),
        str(VECTORS / "principals.json"),
    ]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=VECTORS.parents[1])
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.splitlines()[-1] == "103 passed, 0 failed, 1 skipped"
