"""An edit changes what it is asked to in a quota file, and leaves its author's text as it was."""

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.alteration import Alteration, Change, Outcome
from quotas.stores.base import UnwritableError
from quotas.stores.file import parse
from quotas.stores.file_store import FileStore
from tests.quotas.stores.alter_contract import change

RATE, CONSUMER, PERCENTAGE = (
    QuotaKind.PRODUCER_BYTE_RATE,
    QuotaKind.CONSUMER_BYTE_RATE,
    QuotaKind.REQUEST_PERCENTAGE,
)
ALICE, APP = Entity(user="alice"), Entity(client_id="app")

FILE = """\
# Quotas of the shop. Ask ops@ before you change any.
quotas:
  # -- people
  - entity: {user: alice}           # batch jobs
    producer_byte_rate:   1MiB      # agreed in May
    consumer_byte_rate: "5MB"

  - {entity: {client-id: app}, producer_byte_rate: 1.5MB}  # the shop

  # -- everybody else
  - entity:
      user: {default: true}
    # a guess
    producer_byte_rate: 10MiB
# the end
"""
EVERYBODY = Entity(user=Default.DEFAULT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.yaml"
    path.write_text(FILE)
    return path


def alter(path: Path, *changes: Change) -> list[Outcome]:
    return FileStore(path).alter(Alteration(changes, "test"))


def test_a_number_is_replaced_and_not_a_character_more(path: Path) -> None:
    alter(path, change(ALICE, {RATE: 2048.0, CONSUMER: 7.0}), change(APP, {RATE: 9.0}))
    expected = FILE.replace("1MiB      #", "2048      #").replace('"5MB"', "7").replace("1.5MB", "9")
    assert path.read_text() == expected


def test_added_limits_are_written_below_the_present_ones(path: Path) -> None:
    alter(path, change(ALICE, {PERCENTAGE: 12.5}), change(APP, {CONSUMER: 3.0}), change(EVERYBODY, {CONSUMER: 4.0}))
    expected = (
        FILE.replace('"5MB"\n', '"5MB"\n    request_percentage: 12.5\n')
        .replace("1.5MB}", "1.5MB, consumer_byte_rate: 3}")
        .replace("10MiB\n", "10MiB\n    consumer_byte_rate: 4\n")
    )
    assert path.read_text() == expected


def test_a_new_quota_is_written_like_the_last_one_before_what_the_author_says_at_the_end(path: Path) -> None:
    alter(path, change(Entity("bob", "no"), {RATE: 1.0, CONSUMER: 2.0}))
    added = '  - entity: {user: bob, client-id: "no"}\n    producer_byte_rate: 1\n    consumer_byte_rate: 2\n'
    assert path.read_text() == FILE.replace("# the end", f"{added}# the end")


def test_removed_limit_loses_its_line_and_keeps_comments_above(path: Path) -> None:
    alter(path, change(ALICE, {RATE: None}), change(APP, {RATE: None}), change(EVERYBODY, {RATE: None}))
    assert path.read_text() == dedent(
        """\
        # Quotas of the shop. Ask ops@ before you change any.
        quotas:
          # -- people
          - entity: {user: alice}           # batch jobs
            consumer_byte_rate: "5MB"


          # -- everybody else
        # the end
        """
    )


def test_removing_the_last_quota_leaves_an_empty_list(path: Path) -> None:
    alter(path, change(ALICE, {RATE: None, CONSUMER: None}), change(APP, {RATE: None}), change(EVERYBODY, {RATE: None}))
    assert path.read_text() == dedent(
        """\
        # Quotas of the shop. Ask ops@ before you change any.
        quotas: []
          # -- people


          # -- everybody else
        # the end
        """
    )
    alter(path, change(ALICE, {RATE: 1.0}))
    first = "quotas: \n  - entity: {user: alice}\n    producer_byte_rate: 1\n  # -- people\n"
    assert first in path.read_text()


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (
            'quotas: []  # none yet\n',
            [change(ALICE, {RATE: 1.0})],
            "quotas:   # none yet\n  - entity: {user: alice}\n    producer_byte_rate: 1\n",
        ),
        (
            '{"quotas": []}',
            [change(ALICE, {RATE: 1.0}), change(EVERYBODY, {RATE: 2.0})],
            ('{"quotas": [{"entity": {"user": "alice"}, "producer_byte_rate": 1}, '
            '{"entity": {"user": {"default": true}}, "producer_byte_rate": 2}]}\n'),
        ),
        (
            ('{"quotas":[\n  {"entity":{"user":"alice"},"producer_byte_rate":"1MiB"},\n'
            '  {"entity":{"client-id":"app"},"producer_byte_rate":5}\n]}\n'),
            [change(ALICE, {RATE: None}), change(APP, {CONSUMER: 7.0}), change(EVERYBODY, {RATE: 2.0})],
            ('{"quotas":[\n  {"entity":{"client-id":"app"},"producer_byte_rate":5, "consumer_byte_rate": 7},\n'
            '  {"entity": {"user": {"default": true}}, "producer_byte_rate": 2}\n]}\n'),
        ),
        (
            "quotas: [{entity: {user: alice}, producer_byte_rate: 1}, ]\n",
            [change(ALICE, {RATE: None})],
            "quotas: []\n",
        ),
        (
            "quotas:\n- {entity: {user: alice}, # batch\n   producer_byte_rate: 1, consumer_byte_rate: 2, }\n",
            [change(ALICE, {RATE: None})],
            "quotas:\n- {entity: {user: alice} # batch\n   , consumer_byte_rate: 2, }\n",
        ),
        (
            "quotas:\n- producer_byte_rate: 1 # why\n  # whom\n  entity: {user: alice}\n  consumer_byte_rate: 2\n",
            [change(ALICE, {RATE: None, PERCENTAGE: 3.0})],
            "quotas:\n- # why\n  # whom\n  entity: {user: alice}\n  consumer_byte_rate: 2\n  request_percentage: 3\n",
        ),
        (
            "quotas:\n-\n  producer_byte_rate: |-\n    1MiB\n  entity: {user: alice}\n",
            [change(ALICE, {RATE: 5.0, CONSUMER: 6.0})],
            "quotas:\n-\n  producer_byte_rate: 5\n  entity: {user: alice}\n  consumer_byte_rate: 6\n",
        ),
        (
            "quotas:\r\n- {entity: {user: alice}, producer_byte_rate: 1}",
            [change(APP, {RATE: 5.0})],
            ("quotas:\r\n- {entity: {user: alice}, producer_byte_rate: 1}\r\n"
            "- {entity: {client-id: app}, producer_byte_rate: 5}\r\n"),
        ),
        (
            "\ufeffquotas:\n- {entity: {user: büro 😀}, producer_byte_rate: 1}\n",
            [change(Entity(user="büro 😀"), {RATE: 5.0})],
            "\ufeffquotas:\n- {entity: {user: büro 😀}, producer_byte_rate: 5}\n",
        ),
    ],
)  # fmt: skip
def test_edited_file_keeps_its_yaml_form(path: Path, before: str, changes: list[Change], after: str) -> None:
    path.write_bytes(before.encode())
    alter(path, *changes)
    assert path.read_bytes().decode() == after


def test_explicit_yaml_keys_are_edited_in_place(path: Path) -> None:
    path.write_text(
        "quotas:\n- ? producer_byte_rate\n  : 1\n  ? entity\n  : {user: alice}\n  ? consumer_byte_rate\n  : 2\n"
    )
    alter(path, change(ALICE, {RATE: None, CONSUMER: 3.0}))
    assert path.read_text() == "quotas:\n- ? entity\n  : {user: alice}\n  ? consumer_byte_rate\n  : 3\n"


def test_list_with_its_first_dash_after_a_colon_is_left_to_its_author(path: Path) -> None:
    text = "? quotas\n: - {entity: {user: alice}, producer_byte_rate: 1}\n"
    path.write_text(text)
    with pytest.raises(UnwritableError, match="change it by hand"):
        alter(path, change(ALICE, {RATE: None}))
    assert path.read_text() == text


# Files in every form that has the same meaning, with comments and odd spacing in all the places that take some.

_SAID = ("# a line", "# another", "# c", "# d", "# e", "# f")
_COMMENTS = st.sampled_from(["", "  # why", " # it's {odd}, [here]"])
_LINES = st.lists(st.sampled_from(["\n", "  # a line: - of its own\n", "# another\n"]), max_size=2).map("".join)
_NAMES = st.sampled_from(["alice", '"a # b"', "'x, y'", "büro", '"{z}"'])
_VALUES = st.sampled_from(["1MiB", "'5'", '"7kB"', "1000000"])
_ORDERS = st.permutations(["entity", "producer_byte_rate", "consumer_byte_rate", "request_percentage"])


@st.composite
def _files(draw: st.DrawFn) -> str:
    bracketed, braced = draw(st.booleans()), draw(st.booleans())
    names = draw(st.lists(_NAMES, unique=True, max_size=4))
    indent = " " * draw(st.integers(0, 3))
    items = []
    for name in names:
        kinds = draw(st.integers(2, 4))
        keys = list(draw(_ORDERS))[:kinds]
        keys += [] if "entity" in keys else ["entity"]
        keys += [] if len(keys) > 1 else ["producer_byte_rate"]
        values = {
            key: draw(_VALUES).replace("1MiB", "2").replace("7kB", "7") if "percent" in key else draw(_VALUES)
            for key in keys
        }
        values["entity"] = f"{{user: {name}}}"
        if bracketed or braced:
            comma = draw(st.sampled_from([", ", ",\n      ", " , # c\n      "]))
            end = draw(st.sampled_from(["", ",", " # d\n      "]))
            items.append("{" + comma.join(f"{key}: {values[key]}" for key in keys) + end + "}")
        else:
            gap = draw(_LINES)
            items.append(f"\n{gap}{indent}  ".join(f"{key}: {values[key]}{draw(_COMMENTS)}" for key in keys))
    if bracketed:
        comma = draw(st.sampled_from([", ", ",\n    ", ", # e\n    "]))
        end = draw(st.sampled_from(["", ",", " # f\n  "])) if items else ""
        return f"quotas: [{comma.join(items)}{end}]\n"
    if not items:
        return f"quotas: []{draw(_COMMENTS)}\n"
    text = f"{draw(_LINES)}quotas:{draw(_COMMENTS)}\n"
    for item in items:
        text += f"{draw(_LINES)}{indent}- {item}{draw(_COMMENTS)}\n"
    return text + draw(_LINES)


@pytest.mark.slow
@pytest.mark.long
@given(_files(), st.data())
def test_generated_file_of_any_form_is_edited_as_asked(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("edit") / "quotas.yaml"
    path.write_text(text)
    before = parse("f", text).policy.limits
    limits = st.dictionaries(st.sampled_from([RATE, CONSUMER, PERCENTAGE]), st.sampled_from([None, 3.0]), min_size=1)
    entities = st.sampled_from([*before, Entity(user="new"), Entity(client_id="b: #c")])
    asked = data.draw(st.dictionaries(entities, limits, min_size=1, max_size=3))
    outcomes = alter(path, *(change(entity, each) for entity, each in asked.items()))
    wanted = {entity: {**before.get(entity, {}), **asked.get(entity, {})} for entity in [*before, *asked]}
    wanted_limits = {entity: {k: v for k, v in each.items() if v is not None} for entity, each in wanted.items()}
    after = path.read_text()
    assert parse("f", after).policy.limits == {entity: each for entity, each in wanted_limits.items() if each}
    assert all(outcome.refused is None for outcome in outcomes)
    if not any(outcome.altered for outcome in outcomes):
        assert after == text
    kept = [entity for entity in before if wanted_limits[entity]]
    assert [entity for entity in parse("f", after).policy.limits if entity in before] == kept
    if len(kept) == len(before):  # whatever is said between quotas, or within one on a line of its own
        assert all(after.count(said) == text.count(said) for said in _SAID)


TERMS = """\
quotas:
  - entity: {user: alice}
    mode: shadow      # until June
    producer_byte_rate: 1MiB
    burst: 5s
  - {entity: {client-id: app}, proposed: {producer_byte_rate: 1MiB}, producer_byte_rate: 2MiB, max_delay: 2s}
"""


def test_edited_limit_leaves_burst_and_mode_as_written(path: Path) -> None:
    path.write_text(TERMS)
    alter(path, change(ALICE, {RATE: 5.0, CONSUMER: 6.0}), change(APP, {RATE: 7.0}))
    expected = TERMS.replace("producer_byte_rate: 1MiB\n", "producer_byte_rate: 5\n")
    expected = expected.replace("producer_byte_rate: 2MiB", "producer_byte_rate: 7")
    expected = expected.replace("    burst: 5s\n", "    burst: 5s\n    consumer_byte_rate: 6\n")
    assert path.read_text() == expected


def test_quota_that_loses_its_last_limit_is_removed_whole(path: Path) -> None:
    path.write_text(TERMS)
    alter(path, change(ALICE, {RATE: None}))
    kept = TERMS.splitlines(keepends=True)
    assert path.read_text() == kept[0] + kept[-1]


def test_a_limit_beside_which_another_is_proposed_goes_only_by_hand(path: Path) -> None:
    path.write_text(TERMS)
    app, alice = alter(path, change(APP, {RATE: None, CONSUMER: 5.0}), change(ALICE, {RATE: 5.0}))
    assert "proposed beside it" in str(app.refused)
    assert (alice.refused, path.read_text()) == (None, TERMS.replace("1MiB\n", "5\n"))


def test_groups_and_prefixes_stay_where_others_are_altered(path: Path) -> None:
    text = (
        "groups: {analytics: [alice, bob]}  # ours\nquotas:\n"
        "  - {entity: {user-group: analytics}, producer_byte_rate: 1MiB}\n"
        "  - {entity: {client-id: {prefix: team-a-}}, producer_byte_rate: 1MiB, shared: false}\n"
        "  - {entity: {client-id: app}, producer_byte_rate: 1.5MB}\n"
        "# the end\n"
    )
    path.write_text(text)
    alter(path, change(APP, {RATE: 9.0}), change(ALICE, {RATE: 2.0}))
    expected = text.replace("1.5MB}\n", "9}\n  - {entity: {user: alice}, producer_byte_rate: 2}\n")
    assert path.read_text() == expected
    moved = text.partition("\n")
    path.write_text(f"{moved[2]}{moved[0]}\n")
    alter(path, change(APP, {RATE: None}))
    assert "app" not in path.read_text()
    assert path.read_text().endswith("# the end\ngroups: {analytics: [alice, bob]}  # ours\n")


def test_caps_stay_as_they_are_when_a_quota_of_the_same_entity_is_altered(path: Path) -> None:
    caps = "caps:  # of all at once\n  - {entity: {user: alice}, producer_byte_rate: 3MiB}\n"
    path.write_text(caps + FILE)
    alter(path, change(ALICE, {RATE: 2048.0}), change(Entity(user="bob"), {RATE: 5.0}))
    text = path.read_text()
    assert text.startswith(caps)
    policy = parse("quotas.yaml", text).policy
    assert policy.limits[Entity("alice", cap=True)] == {RATE: 3 * 2.0**20}
    assert (policy.limits[ALICE][RATE], policy.limits[Entity(user="bob")][RATE]) == (2048, 5)
