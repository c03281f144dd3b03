import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.nodes import Plain, Scalar

# Everything that begins to look like a number, a date, a boolean or null in some version of YAML.
suspects = st.text(alphabet="0123456789.eE+-_:xobyYnNoOfFtruaslTRUASL~=<INinK \t", max_size=12)


@given(suspects)
def test_plain_text_that_pyyaml_retypes_is_ambiguous(text: str) -> None:
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ())
    if text and any(form.match(text) for _, form in resolvers):
        assert Plain(text).ambiguous


@pytest.mark.parametrize("text", ["y", "N", "no", "Off", "1e3", "0o17", "0b1", "1:30", "2024-01-31", "~", "<<", ".5"])
def test_plain_text_that_any_yaml_reader_retypes_is_ambiguous(text: str) -> None:
    assert Plain(text).ambiguous
    assert not Scalar(text).ambiguous


@pytest.mark.parametrize(
    "text", ["alice", "app-1", "1st", "10MiB", "no-one", "yes!", "12-34", "1.2.3", "<default>", "e3", "v1.0", "ünïcode"]
)
def test_ordinary_names_need_no_quotes(text: str) -> None:
    assert not Plain(text).ambiguous
