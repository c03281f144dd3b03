from hypothesis import given
from hypothesis import strategies as st

from quotas.policy import Book, Key
from quotas.precedence import (
    CLIENT_ID_LEVEL,
    DEFAULT,
    USER_CLIENT_ID_LEVEL,
    USER_LEVEL,
    Counter,
    counter_of,
    key_of,
    level_of,
    winner_of,
)

names = st.sampled_from(["alice", "bob", "<default>"])
parts = st.one_of(st.none(), st.just(DEFAULT), names)
keys = st.tuples(parts, parts).filter(lambda key: key != (None, None))
tables = st.dictionaries(keys, st.floats(1, 1e9))
clients = st.one_of(st.just(""), names)


def eight_levels(user: str, client_id: str) -> list[Key]:
    """The levels in order, written down once more as KIP-55 lists them (and as Kafka has one more)."""
    return [
        (user, client_id),
        (user, DEFAULT),
        (user, None),
        (DEFAULT, client_id),
        (DEFAULT, DEFAULT),
        (DEFAULT, None),
        (None, client_id),
        (None, DEFAULT),
    ]


def levels_in(limits: dict[Key, float]) -> int:
    levels = 0
    for key in limits:
        levels |= level_of(key)
    return levels


@given(tables, names, names)
def test_the_first_level_present_wins(limits: dict[Key, float], user: str, client_id: str) -> None:
    winner = next((key for key in eight_levels(user, client_id) if key in limits), None)
    assert winner_of(Book(limits), user, client_id) == winner
    assert key_of(Book(limits), counter_of(Book(limits), levels_in(limits), user, client_id)) == winner


@given(tables, names, names)
def test_the_winner_decides_who_shares_the_counter(limits: dict[Key, float], user: str, client_id: str) -> None:
    levels = levels_in(limits)
    *tags, several = counter_of(Book(limits), levels, user, client_id)
    winner = winner_of(Book(limits), user, client_id)
    assert several == 0
    if winner is not None:
        expected = {
            CLIENT_ID_LEVEL: ("", client_id),
            USER_LEVEL: (user, ""),
            USER_CLIENT_ID_LEVEL: (user, client_id),
        }[level_of(winner)]
        assert tuple(tags) == expected
    elif levels in {USER_LEVEL, USER_CLIENT_ID_LEVEL}:
        assert tuple(tags) == ((user, "") if levels == USER_LEVEL else (user, client_id))
    else:
        assert tags == ["", client_id]


@given(tables, names)
def test_an_empty_client_id_is_held_by_user_quotas_alone(limits: dict[Key, float], user: str) -> None:
    winner = winner_of(Book(limits), user, "")
    assert winner in {None, (user, None), (DEFAULT, None)}
    assert key_of(Book(limits), counter_of(Book(limits), levels_in(limits), user, "")) == winner


def test_an_empty_client_id_escapes_the_default_client_of_its_user() -> None:
    limits: dict[Key, float] = {("alice", DEFAULT): 2, ("alice", None): 3}
    counter = counter_of(Book(limits), USER_CLIENT_ID_LEVEL | USER_LEVEL, "alice", "")
    assert counter == Counter("alice", "", 0)
    assert key_of(Book(limits), counter) == ("alice", None)


def test_client_without_user_and_client_id_is_unlimited() -> None:
    limits: dict[Key, float] = {(DEFAULT, None): 1, (None, DEFAULT): 1, (DEFAULT, DEFAULT): 1}
    assert winner_of(Book(limits), "", "") is None
    assert key_of(Book(limits), Counter("", "", 0)) is None
