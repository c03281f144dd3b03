"""What is read without a parser of YAML is what the parser says; whatever is not certain to be so is left to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.document import parse_document
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores import usual
from quotas.stores.file import LoadedPolicy, _Reader, _usual_limits, parse

PRODUCE, FETCH = QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.CONSUMER_BYTE_RATE


def by_parser(text: str) -> LoadedPolicy:
    return _Reader(parse_document("q.yaml", text, "")).read()


def usually(text: str) -> LoadedPolicy | None:
    return parse("q.yaml", text) if usual.read(text, _usual_limits) is not None else None


IN_BRACES = """\
# all of them

quotas:
  - {entity: {client-id: one}, producer_byte_rate: 1048576}
  # a comment
  - {entity: {user: alice, client-id: "0-2"}, producer_byte_rate: 1.5MiB, consumer_byte_rate: 2MB}

  - {entity: {user: {default: true}}, consumer_byte_rate: 3KiB}
  - {entity: {user: "no", client-id: {default: true}}, consumer_byte_rate: 9223372036854775807}
"""
IN_LINES = """\
quotas:
- entity: {client-id: one}
  producer_byte_rate: 1048576
- entity:
    user: alice
    client-id: "0-2"
  producer_byte_rate: 1.5MiB
  consumer_byte_rate: 2MB
- entity:
    user: {default: true}
  consumer_byte_rate: 3KiB
- entity: {user: "no", client-id: {default: true}}
  consumer_byte_rate: 9223372036854775807
"""


@pytest.mark.parametrize(("text", "lines"), [(IN_BRACES, [4, 6, 8, 9]), (IN_LINES, [2, 4, 9, 12])])
def test_the_usual_is_read_as_by_the_parser(text: str, lines: list[int]) -> None:
    found = usually(text)
    assert found == by_parser(text)
    assert found is not None
    assert found.policy.limits == {
        Entity(client_id="one"): {PRODUCE: 1048576},
        Entity("alice", "0-2"): {PRODUCE: 1572864, FETCH: 2_000_000},
        Entity(Default.DEFAULT): {FETCH: 3072},
        Entity("no", Default.DEFAULT): {FETCH: 2**63 - 1},
    }
    assert list(found.lines.values()) == lines


FIRST = "quotas:\n  - {entity: {client-id: one}, producer_byte_rate: 1MiB}\n"


@pytest.mark.parametrize(
    "entry",
    [
        "  - {entity: {client-id: ONE}, producer_byte_rate: 1MiB}\n",  # differs in case alone
        "  - {entity: {client-id: one}, producer_byte_rate: 2MiB}\n",  # the same again
        "  - {entity: {client-id: no}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {client-id: null}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {client-id: default}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: anonymous}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {client-id: 0123}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {client-id: a b}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {client-id: a*}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: User:a}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: $USER}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: größe}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: " + 65 * "a" + "}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {ip: 10.0.0.1}, connection_creation_rate: 5}\n",
        "  - {entity: {user: a}, request_percentage: 5%}\n",
        "  - {entity: {user: a}, producer_byte_rate: 1MiB, producer_byte_rate: 2MiB}\n",
        "  - {entity: {user: a}, producer_byte_rate: 0}\n",
        "  - {entity: {user: a}, producer_byte_rate: 010}\n",
        "  - {entity: {user: a}, producer_byte_rate: 1_000_000}\n",
        "  - {entity: {user: a}, producer_byte_rate: 1}\n",
        "  - {entity: {user: a}, producer_byte_rate: 9223372036854775808}\n",
        "  - {entity: {user: a}, producer_byte_rate: 1MB/s}\n",
        "  - {entity: {user: a}}\n",
        "   - {entity: {user: a}, producer_byte_rate: 1MiB}\n",
        "- {entity: {user: a}, producer_byte_rate: 1MiB}\n",
        "  - {entity: {user: a}, producer_byte_rate: 1MiB}",
        "  - entity: {user: a}\n     producer_byte_rate: 1MiB\n",
        "  - entity:\n    user: a\n    producer_byte_rate: 1MiB\n",
        "  - entity: {user: a}\n    producer_byte_rate: 1MiB\n    # between\n    consumer_byte_rate: 1MiB\n",
        "other: 1\n",
        "...\n",
        "  # \u200b\n",
        "\t\n",
    ],
)
def test_anything_else_is_left_to_the_parser(entry: str) -> None:
    assert usual.read(FIRST, _usual_limits) is not None
    assert usual.read(FIRST + entry, _usual_limits) is None


@pytest.mark.parametrize(
    "text", ["", "quotas: []\n", "quotas:\n", "cluster: {}\n" + FIRST, "---\n" + FIRST, "\ufeff" + FIRST]
)
def test_so_is_a_file_that_begins_otherwise(text: str) -> None:
    assert usual.read(text, _usual_limits) is None


def mostly(usual_ones: list[str], others: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(usual_ones * (8 * len(others) // len(usual_ones) + 1) + others)


names = mostly(
    ["a", "b-1", "x.y", '"on"', '"1"', "{default: true}", "dora", "eve"],
    ["no", "Null", "on", "A", "default", "1", "y_"],
)
values = mostly(["1MiB", "20000", "9GB"], ["1", "1.5KiB", "0", "1.3B", "1e6", "12.", "07"])
kinds = mostly(["producer_byte_rate", "consumer_byte_rate"], ["request_percentage", "entity", "nonsense"])
blanks = mostly(["", "", "\n", "# note\n", "      # note\n", " \n"], ["  x\n"])


@st.composite
def entries(draw: st.DrawFn) -> str:
    indent = draw(mostly(["  "], ["", "   "]))
    dims = [f"{key}: {draw(names)}" for key in draw(st.sampled_from([["user"], ["client-id"], ["user", "client-id"]]))]
    pairs = [f"{draw(kinds)}: {draw(values)}" for _ in range(draw(st.integers(1, 2)))]
    braces = "{" + ", ".join(dims) + "}"
    match draw(st.sampled_from(["braces", "half", "lines"])):
        case "braces":
            text = f"{indent}- {{entity: {braces}, {', '.join(pairs)}}}\n"
        case "half":
            text = f"{indent}- entity: {braces}\n" + "".join(f"{indent}  {pair}\n" for pair in pairs)
        case _:
            inner = "".join(f"{indent}    {dim}\n" for dim in dims)
            text = f"{indent}- entity:\n{inner}" + "".join(f"{indent}  {pair}\n" for pair in pairs)
    return text + draw(blanks)


@given(st.lists(entries(), min_size=1, max_size=3), blanks)
def test_what_is_taken_is_what_the_parser_says(listed: list[str], before: str) -> None:
    text = f"{before}quotas:\n{''.join(listed)}"
    found = usually(text)
    if found is not None:
        assert found == by_parser(text)
        assert found.warnings == ()
