"""What set-up says when it cannot do it itself; doing it is what every fresh machine tests."""

from pathlib import Path

import pytest

from tests.harness import jars, setup


def test_setup_without_root_prints_the_command_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("shutil.which", lambda command: None if command == "mvn" else f"/usr/bin/{command}")
    monkeypatch.setattr(setup, "_java_version", lambda _: 17)
    with pytest.raises(setup.SetupError, match=r"missing: mvn[\s\S]*sudo apt-get update && .* install .* maven$"):
        setup.install_programs(setup.DEMO_PROGRAMS)


@pytest.mark.parametrize("program", ["java", "javac"])
def test_old_java_is_missing_java(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="11.0.2"\n')
    monkeypatch.setattr("shutil.which", lambda command: str(tmp_path / "bin" / command))
    assert not setup.is_installed(setup.Program(program, "default-jdk-headless"))
    (tmp_path / "release").write_text('JAVA_VERSION="21"\n')
    assert setup.is_installed(setup.Program(program, "default-jdk-headless"))


def test_download_that_fails_twice_is_tried_a_third_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    outcomes = iter([jars.JarError("no route"), setup.SetupError("no name"), None])

    def download() -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    setup.with_retries(download)
    assert len(pauses) == 2
    assert next(outcomes, "none left") == "none left"


def test_download_that_fails_three_times_raises_its_last_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    errors = iter([jars.JarError("first"), jars.JarError("second"), jars.JarError("third")])

    def download() -> None:
        raise next(errors)

    with pytest.raises(jars.JarError, match="third"):
        setup.with_retries(download)


def test_wrong_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["dmeo"]) == 2
    assert "usage" in capsys.readouterr().err


def test_jar_set_that_is_not_there_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.missing(jars.DEMO_SETS) == list(jars.DEMO_SETS)
    with pytest.raises(jars.JarError, match="run `make setup`"):
        jars.jar_dir("kafka-4.3.1")
