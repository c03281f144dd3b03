import contextlib
import gc
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from config.nodes import Mapping
from config.problems import ConfigError
from quotas.entities import Default, Entity
from quotas.kinds import QuotaKind
from quotas.stores.file import load
from tests.quotas.stores.quota_files import problems, warnings

ENDLESS = {
    "digits": "9" * 300_000,
    "parts of a time": "1" + ":59" * 100_000,
    "a version": "1." * 150_000,
    "spaces": "a" + " " * 300_000 + "x",
    "hosts": "//a" * 100_000,
    "assignments": "password=" * 30_000,
    "names": "a," * 150_000,
    "classes": "[a-" * 100_000,
}
WHERE = {
    "a rate": "quotas:\n- entity: {{user: alice}}\n  producer_byte_rate: {}\n",
    "a percentage": "quotas:\n- entity: {{user: alice}}\n  request_percentage: {}\n",
    "a user": "quotas:\n- entity: {{user: {}}}\n  producer_byte_rate: lots\n",
    "an address": "quotas:\n- entity: {{ip: {}}}\n  connection_creation_rate: 1\n",
    "a kind": "quotas:\n- entity: {{user: alice}}\n  ? {}\n  : 1\n",
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("what", ENDLESS)
def test_endless_text_is_refused_in_linear_time(file: Path, what: str, where: str) -> None:
    """Nothing here is timed: what is quadratic takes minutes, in which no thread of the proxy runs."""
    found = problems(file, WHERE[where].format(f'"{ENDLESS[what]}"'))
    assert found
    assert max(map(len, found)) < 1000


def test_limits_with_and_without_units_are_loaded(file: Path) -> None:
    file.write_text(
        dedent(
            """\
            quotas:
              - entity: {user: alice, client-id: {default: true}}
                producer_byte_rate: 1MiB
                consumer_byte_rate: 5000000
              - {entity: {client-id: b}, producer_byte_rate: 1.5MB, request_percentage: 12.5}
            """
        )
    )
    loaded = load(file)
    alice, b = Entity(user="alice", client_id=Default.DEFAULT), Entity(client_id="b")
    assert loaded.policy.limits == {
        alice: {QuotaKind.PRODUCER_BYTE_RATE: 2**20, QuotaKind.CONSUMER_BYTE_RATE: 5_000_000},
        b: {QuotaKind.PRODUCER_BYTE_RATE: 1_500_000, QuotaKind.REQUEST_PERCENTAGE: 12.5},
    }
    assert loaded.lines == {alice: 2, b: 5}


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (
            """\
            # all of them

            quotas:
              - {entity: {client-id: one}, producer_byte_rate: 1048576}
              # a comment
              - {entity: {user: alice, client-id: "0-2"}, producer_byte_rate: 1.5MiB, consumer_byte_rate: 2MB}

              - {entity: {user: {default: true}}, consumer_byte_rate: 3KiB}
              - {entity: {user: "no", client-id: {default: true}}, consumer_byte_rate: 9223372036854775807}
            """,
            [4, 6, 8, 9],
        ),
        (
            """\
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
            """,
            [2, 4, 9, 12],
        ),
    ],
)
def test_braces_and_lines_say_the_same(file: Path, content: str, lines: list[int]) -> None:
    file.write_text(dedent(content))
    loaded = load(file)
    assert loaded.policy.limits == {
        Entity(client_id="one"): {QuotaKind.PRODUCER_BYTE_RATE: 1048576},
        Entity("alice", "0-2"): {QuotaKind.PRODUCER_BYTE_RATE: 1572864, QuotaKind.CONSUMER_BYTE_RATE: 2_000_000},
        Entity(Default.DEFAULT): {QuotaKind.CONSUMER_BYTE_RATE: 3072},
        Entity("no", Default.DEFAULT): {QuotaKind.CONSUMER_BYTE_RATE: 2**63 - 1},
    }
    assert (list(loaded.lines.values()), loaded.warnings) == (lines, ())


def test_mistake_is_warned_of_once_for_all_its_places(file: Path) -> None:
    content = """\
        quotas:
          - {entity: {user: "User:b"}, request_percentage: 1}
          - {entity: {user: "User:b", client-id: c}, consumer_byte_rate: 1MB}
        """
    (warning,) = warnings(file, content)
    assert warning.startswith(":2:21: quotas[0].entity.user: 'User:b' begins with the type of a principal")
    assert "(2 times in this file)" in warning


NOT_DEFAULT = "is a name, and not the default; write {default: true} for all that have no quota of their own"
NO_WILDCARDS = (
    "is a name as it stands: Kafka's quotas know no wildcards; write a quota for each name, or {default: true}"
)
NO_VARIABLES = "is a name as it stands; no variables are expanded: write the value itself"
WITH_BLANK = "begins or ends with whitespace, which is part of the name; write 'app'"


@pytest.mark.parametrize("dimension", ["user", "client-id"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("default", NOT_DEFAULT),
        ("<default>", NOT_DEFAULT),
        ("Default", NOT_DEFAULT),
        ("{default: true}", NOT_DEFAULT),
        ("*", NOT_DEFAULT),
        ("team-*", NO_WILDCARDS),
        ("*-team", NO_WILDCARDS),
        ("team-.*", NO_WILDCARDS),
        ("team-?", NO_WILDCARDS),
        ("^team", NO_WILDCARDS),
        ("team-.+", NO_WILDCARDS),
        (r"team-\d", NO_WILDCARDS),
        ("team-[0-9]", NO_WILDCARDS),
        (" app", WITH_BLANK),
        ("app ", WITH_BLANK),
        ("app\t", WITH_BLANK),
        ("\u00a0app", WITH_BLANK),
        ("a\u200bb", "holds a character that cannot be seen; write the name again, by hand"),
        ("${TEAM}", NO_VARIABLES),
        ("team-${ID}-x", NO_VARIABLES),
        ("$TEAM", NO_VARIABLES),
        ("$(team)", NO_VARIABLES),
        ("{{ team }}", NO_VARIABLES),
        ("alice,bob", "is one name and not several; write a quota for each name"),
        ("alice; bob", "is one name and not several; write a quota for each name"),
    ],
    ids=ascii,
)  # fmt: skip
def test_suspicious_entity_name_is_warned_of_with_its_place(file: Path, dimension: str, name: str, said: str) -> None:
    file.write_text(yaml.safe_dump({"quotas": [{"entity": {dimension: name}, "producer_byte_rate": "1MB"}]}))
    (warning,) = load(file).warnings
    assert str(warning).startswith(f"{file}:3:{7 + len(dimension)}: quotas[0].entity.{dimension}: {name!r} {said}")


def test_a_long_name_hides_no_reason(file: Path) -> None:
    name = "team-" + "x" * 30_000 + "*"
    (warning,) = warnings(file, f"quotas:\n  - {{entity: {{user: {name}}}, producer_byte_rate: 1MB}}\n")
    assert f"x…' {NO_WILDCARDS}" in warning
    assert len(warning) < 500


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("User:alice", "begins with the type of a principal, which quotas leave out; write 'alice'"),
        ("user:alice", "begins with the type of a principal, which quotas leave out; write 'alice'"),
        ("User:CN=a,O=b", "begins with the type of a principal, which quotas leave out; write 'CN=a,O=b'"),
        ("anonymous", "is not the user of clients that have not logged in; write ANONYMOUS"),
        ("User:ANONYMOUS", "is not the user of clients that have not logged in; write ANONYMOUS"),
    ],
)
def test_misspelt_user_name_is_warned_of_with_the_correction(file: Path, user: str, said: str) -> None:
    (warning,) = warnings(file, f'quotas:\n  - {{entity: {{user: "{user}"}}, producer_byte_rate: 1MB}}\n')
    assert warning == f":2:21: quotas[0].entity.user: {user!r} {said}"


@pytest.mark.parametrize(
    "name",
    ["alice", "app-1", "CN=*.example.com,O=Example", "sluice:GSSAPI", "HOST$", "a b", "b\u00fcro 1", "ANONYMOUS",
     "kafka/broker.example.com@EXAMPLE.COM", "consumer-orders-1", "defaults", "a\\\\b", "app(1)", "10%", "<none>"],
)  # fmt: skip
def test_real_client_names_cause_no_warning(file: Path, name: str) -> None:
    quotas = [{"entity": {dimension: name}, "producer_byte_rate": "1MB"} for dimension in ("user", "client-id")]
    file.write_text(yaml.safe_dump({"quotas": quotas}), encoding="utf-8")
    assert load(file).warnings == ()


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("1", "a client is held for 5 hours after each; did you mean 1KiB or 1MiB?"),
        ("1B", "a client is held for 5 hours after each; is the unit right?"),
        ("10", "a client is held for 27 minutes after each; did you mean 10KiB or 10MiB?"),
        ("0.1kB", "a client is held for 3 minutes after each; is the unit right?"),
        ("1638", "a client is held for 10 seconds after each; did you mean 1638KiB or 1638MiB?"),
        ("1639", None),
        ("16KiB", None),
    ],
)
@pytest.mark.parametrize("kind", ["producer_byte_rate", "consumer_byte_rate"])
def test_limit_below_one_batch_is_warned_of(file: Path, kind: str, limit: str, said: str | None) -> None:
    content = f"quotas:\n  - {{entity: {{user: a}}, {kind}: {limit}}}\n"
    batch = f"{limit} a second is less than one batch of 16 KiB (batch.size) in 10 seconds"
    assert warnings(file, content) == ([f":2:45: quotas[0].{kind}: {batch}: {said}"] if said else [])


def test_entities_that_differ_only_in_case_are_warned_of(file: Path) -> None:
    content = """\
        quotas:
          - {entity: {user: Alice, client-id: {default: true}}, producer_byte_rate: 1MB}
          - {entity: {user: Alice}, producer_byte_rate: 1MB}
          - {entity: {user: alice}, producer_byte_rate: 1MB}
          - {entity: {client-id: alice}, producer_byte_rate: 1MB}
        """
    assert warnings(file, content) == [
        (
            ":4:14: quotas[2].entity: differs from user=Alice on line 3 in upper and lower case alone; "
            "Kafka tells them apart: are they two?"
        )
    ]


def test_every_problem_is_told_at_once(file: Path) -> None:
    content = """\
        quotas:
          - {entity: {client-id: no}, producer_byte_rate: 1MiB}
          - {entity: {client_id: x}, producer_byte_rat: 1MiB}
          - {entity: {user: x, ip: 1.2.3.4}, connection_creation_rate: 1}
          - {entity: {user: a}, producer_byte_rate: 0, consumer_byte_rate: -5, request_percentage: 1%}
          - {entity: {user: a}, connection_creation_rate: 1}
          - {entity: {user: b}}
          - {entity: {ip: host}, producer_byte_rate: 3}
          - {entity: {user: {default: no}}, producer_byte_rate: 9999999TiB, producer_byte_rate: 2}
          - {entity: {user: ""}, producer_byte_rate: }
          - foo
          - {producer_byte_rate: 1}
        qota: 1
        """
    client_limits = "producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate"
    first_quota = "put all its limits into one: the first quota for user=a is on line 5"
    ip_limit = "this entity takes connection_creation_rate"
    entity_form = "write it like {user: alice, client-id: {default: true}} or {ip: 10.0.0.1}"
    assert problems(file, content) == [
        ':2:26: quotas[0].entity.client-id: no without quotes is not a text to every reader of YAML; write "no"',
        ":3:15: quotas[1].entity.client_id: is not a kind of entity; did you mean client-id?",
        ":3:30: quotas[1].producer_byte_rat: unknown limit; did you mean producer_byte_rate?",
        ":4:14: quotas[2].entity: ip cannot be combined with user or client-id in one quota entity; " + entity_form,
        ":5:45: quotas[3].producer_byte_rate: must be above 0; remove the line for no limit",
        ":5:68: quotas[3].consumer_byte_rate: '-5' is not a size; write it like 10MiB, 10MB or 10485760",
        ":5:92: quotas[3].request_percentage: '1%' is not a number; write it like 200 or 12.5",
        f":6:14: quotas[4].entity: already has a quota; {first_quota}",
        f":6:25: quotas[4].connection_creation_rate: is a limit of an ip; this entity takes {client_limits}",
        f":7:5: quotas[5]: sets no limit; add one of {client_limits}, or remove the quota",
        ":8:19: quotas[6].entity.ip: 'host' is not an IP address; host names are not resolved",
        f":8:26: quotas[6].producer_byte_rate: is a limit of a user or client-id; {ip_limit}",
        ":9:21: quotas[7].entity.user: must be a name; write a name, or {default: true} for the default entity",
        ":9:57: quotas[7].producer_byte_rate: 9999999TiB is too large; the most is 9223372036854775807",
        ":9:69: quotas[7].producer_byte_rate: is a duplicate key; keep one (the first is on line 9)",
        ":10:21: quotas[8].entity.user: is empty; write a name",
        ":10:26: quotas[8].producer_byte_rate: must be a single value; write it like 1MiB",
        ":11:5: quotas[9]: must be a quota; write it like {entity: {user: alice}, producer_byte_rate: 1MiB}",
        ":12:5: quotas[10].entity: must name the entity of the quota; " + entity_form,
        ":13:1: qota: unknown key; did you mean quotas?",
    ]


@pytest.mark.parametrize(
    ("content", "column"), [("quotas:\n", 1), ("quotas: 3\n", 9), ("quotas: {}\n", 9), ("{}\n", 1)]
)
def test_file_without_a_quota_list_is_refused(file: Path, content: str, column: int) -> None:
    expected = f":1:{column}: quotas: must be a list of quotas; write `quotas: []` for none"
    assert problems(file, content) == [expected]


def test_an_empty_file_is_not_an_empty_list(file: Path) -> None:
    expected = [":1:1: is empty; write `quotas:` and a list below it, or `quotas: []` for no quotas"]
    for empty in ("", "\n", "# none\n", "---\n"):
        assert problems(file, empty) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("- {entity: {user: a}, producer_byte_rate: 1MB}\n", [
            ":1:1: must hold a mapping; write `quotas:` and a list below it, or `quotas: []` for no quotas"]),
        ("quotas:\n  alice: {producer_byte_rate: 1MB}\n", [
            ":2:3: quotas: must be a list of quotas; begin each quota with `- `"]),
        ("cluster: {}\nlisteners: []\nquotas: {store: {path: q.yaml}}\n", [
            ":1:1: is a configuration, not a quota file; pass it as --config"]),
        ("quotas:\n  - {entity: {user: [a, b]}, producer_byte_rate: 1MB}\n", [
            ":2:21: quotas[0].entity.user: must be one name; write a quota for each"]),
        ("quotas:\n  - {entity: {client-id: a}, user: b, producer_byte_rate: 1MB}\n", [
            ":2:30: quotas[0].user: names the entity of the quota; write it as entity: {user: ...}"]),
        ('quotas:\n  - {entity: {user: a}, producer_byte_rate: "${RATE}"}\n', [
            (":2:45: quotas[0].producer_byte_rate: '${RATE}' is not a size; "
            "no variables are expanded: write the value itself")]),
        ("quotas:\n  - {entity: {user: a}, producer_byte_rate: 10MB/s}\n", [
            ":2:45: quotas[0].producer_byte_rate: '10MB/s' is not a size; write 10MB: a rate is per second"]),
        ("quotas:\n  - {entity: {user: a}, producer_byte_rate: 10MBps}\n", [
            (":2:45: quotas[0].producer_byte_rate: '10MBps' has the unknown unit 'MBps'; "
            "write 10MB: a rate is per second")]),
        ("quotas:\n  - {entity: {user: a}, producer_byte_rate: unlimited}\n", [
            ":2:45: quotas[0].producer_byte_rate: 'unlimited' is not a size; remove the line for no limit"]),
    ],
)  # fmt: skip
def test_common_mistakes_are_refused_with_their_fix(file: Path, content: str, expected: list[str]) -> None:
    assert problems(file, content) == expected


@pytest.mark.parametrize(
    ("one", "other"), [("::1", "0:0:0:0:0:0:0:1"), ("10.0.0.1", "::ffff:10.0.0.1"), ("2001:DB8::", "2001:db8::0")]
)
def test_ip_in_another_spelling_is_refused_as_a_duplicate(file: Path, one: str, other: str) -> None:
    entries = "".join(f'  - {{entity: {{ip: "{ip}"}}, connection_creation_rate: 1}}\n' for ip in (one, other))
    [problem] = problems(file, f"quotas:\n{entries}")
    assert ":3:14: quotas[1].entity: already has a quota" in problem


def test_a_file_that_breaks_off_never_says_anything_else(file: Path) -> None:
    """Wherever a writer has got to: an error, or limits that the whole file has too."""
    content = dedent(
        """\
        quotas:
          - entity: {user: alice}
            producer_byte_rate: 1048576
            consumer_byte_rate: 10MiB
          - {entity: {client-id: "app"}, producer_byte_rate: 5000000}
          - entity:
              user: bob
              client-id: report
            producer_byte_rate: 2MB
        """
    )
    file.write_text(content)
    whole = load(file).policy.limits
    parts = []
    for size in range(len(content)):
        file.write_text(content[:size])
        with contextlib.suppress(ConfigError):
            part = load(file).policy.limits
            if part not in parts:
                parts.append(part)
            assert all(whole[entity][kind] == limit for entity in part for kind, limit in part[entity].items())
    assert [len(part) for part in parts] == [1, 1, 2]  # where a line ends no reader could tell


def test_yaml_nodes_are_freed_without_the_garbage_collector(file: Path) -> None:
    """It leaves what a load has made to its next complete run."""
    file.write_text(
        "groups: {team: [alice]}\nquotas:\n- {entity: {user-group: team}, producer_byte_rate: 1MiB, burst: 2s}\n"
    )
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(each, Mapping) for each in gc.get_objects())
        load(file)
        assert sum(isinstance(each, Mapping) for each in gc.get_objects()) == before
    finally:
        gc.enable()
