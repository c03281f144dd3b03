"""Where a claim stands, as Strimzi's settings say it."""

import pytest

from config.claims import parse_claim
from config.problems import InvalidValue


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("sub", ("sub",)),
        (" userId ", ("userId",)),
        ("user.id", ("user.id",)),
        ("[userInfo].[id]", ("userInfo", "id")),
        ("['userInfo'].['id']", ("userInfo", "id")),
        ("['userInfo'] . ['id']", ("userInfo", "id")),
        ("['user.info'].['user.id']", ("user.info", "user.id")),
        ("[ 'user.info' ].[ id ]", ("user.info", "id")),
        ("['a.b'].c", ("a.b", "c")),
        ("['one']", ("one",)),
    ],
)
def test_claim_text_is_parsed_to_its_path(text: str, way: tuple[str, ...]) -> None:
    assert parse_claim(text) == way


@pytest.mark.parametrize("text", ["", " ", "[", "[]", "['a'", "['a]", "[a].", "[a]b", "[a]..[b]", "[a].[b", "['a'].[]"])
def test_malformed_claim_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"claim|empty"):
        parse_claim(text)
