"""Formats: what is read of what was written is what was written, for all that a format can say."""

import json
import string
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.problems import ConfigError
from proxy.manage.formats.known import FORMATS, read, recognise, write
from quotas.entities import Default, Entity, Group, Name, Prefix
from quotas.kinds import QuotaKind, Whose
from quotas.policy import Policy, Terms

P, C, R, M, I = QuotaKind  # noqa: E741  as in ip

NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(
    [
        "<default>",
        "no",
        "1e3",
        "CN=app",
        "a b",
        "it's",
        '"',
        "#",
        "$x",
        "${x}",
        "%{if}",
        "$${x}",
        "-",
        "\\",
        "a\nb",
        "😀",
    ]
)
PLAIN_NAMES = st.text(string.ascii_lowercase + string.digits + ".-", min_size=1, max_size=12)
LIMITS: Mapping[QuotaKind, st.SearchStrategy[float]] = {
    P: st.integers(1, 2**53).map(float),
    C: st.integers(1, 2**53).map(float),
    R: st.decimals("0.000000001", 10**9, places=9, allow_nan=False).map(float),
    M: st.decimals("0.001", 10**6, places=3, allow_nan=False).map(float),
    I: st.integers(1, 2**31 - 1).map(float),
}


def name_or_default(names: st.SearchStrategy[str]) -> st.SearchStrategy[Name]:
    return names | st.just(Default.DEFAULT)


@st.composite
def policies(draw: st.DrawFn, *, ours: bool) -> Policy:
    """Return any policy; what only Sluice has is in it if it is ``ours``."""
    groups = {"g": ("u1", "u 2"), "h": ("no",)} if ours and draw(st.booleans()) else {}
    users: st.SearchStrategy[Name] = st.none() | name_or_default(NAMES | PLAIN_NAMES)
    client_ids: st.SearchStrategy[Name] = st.none() | name_or_default(NAMES)
    if ours:
        client_ids |= PLAIN_NAMES.map(Prefix)
        if groups:
            users |= st.sampled_from(["g", "h"]).map(Group)
    limits: dict[Entity, dict[QuotaKind, float]] = {}
    terms: dict[Entity, Terms] = {}
    for group in groups:
        limits[Entity(Group(group))] = {P: 1024.0}
    for _ in range(draw(st.integers(0, 4))):
        user, client_id = draw(users), draw(client_ids)
        if user is None and client_id is None:
            entity = Entity(ip=draw(name_or_default(st.sampled_from(["10.0.0.1", "::1"]))))
        else:
            entity = Entity(user, client_id, cap=ours and draw(st.booleans()))
        kinds = [kind for kind in QuotaKind if (kind.row.whose is Whose.IP) == (entity.ip is not None)]
        chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, unique=True))
        limits[entity] = {kind: draw(LIMITS[kind]) for kind in chosen}
        if ours and entity.ip is None and draw(st.booleans()):
            shadow = draw(st.booleans())
            terms[entity] = Terms(
                shadow,
                {} if shadow or draw(st.booleans()) else {chosen[0]: draw(LIMITS[chosen[0]])},
                draw(st.none() | st.integers(100, 10_000)),
                draw(st.none() | st.integers(1, 10_000)),
                not isinstance(entity.client_id, Prefix) or draw(st.booleans()),
            )
    return Policy(limits, {entity: of for entity, of in terms.items() if of != Terms()}, groups)


@given(policies(ours=True))
def test_a_quota_file_says_everything(policy: Policy) -> None:
    text, left_out = write(policy, "sluice")
    assert left_out == []
    assert read("quotas.yaml", text, None)[0] == policy


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "sluice"])
@given(data=st.data())
def test_other_formats_say_what_they_can_and_name_the_rest(name: str, data: st.DataObject) -> None:
    policy = data.draw(policies(ours=data.draw(st.booleans())))
    text, left_out = write(policy, name)
    if not text.strip() or "quotas: []" in text:
        again: Policy = Policy()
    else:
        again, _ = read("text", text, name)
    for entity, limits in again.limits.items():
        assert limits.items() <= policy.limits[entity].items()
    for entity, limits in policy.limits.items():
        for kind in limits.keys() - again.limits.get(entity, {}).keys():
            assert any(line.startswith(entity.describe()) and (":" in line) for line in left_out), (entity, kind)


@pytest.mark.long
@pytest.mark.parametrize("name", ["kafka-configs", "rpk", "terraform"])
@given(policies(ours=False))
def test_what_kafka_has_is_said_but_for_what_the_format_is_known_not_to_say(name: str, policy: Policy) -> None:
    def is_said(entity: Entity) -> bool:
        named = [each for each in (entity.user, entity.client_id) if each is not None]
        if name == "rpk":
            return "<default>" not in named
        return name == "kafka-configs" or (len(named) < 2 and "$${x}" not in named)

    text, left_out = write(policy, name)
    sayable = {entity: limits for entity, limits in policy.limits.items() if is_said(entity)}
    assert read("text", text, name)[0].limits == sayable
    assert len(left_out) == len(policy.limits) - len(sayable)


ALICE, WEB = Entity("alice"), Entity(None, "web")

SAID: dict[str, tuple[str, dict[Entity, Any]]] = {
    "kafka-configs": (
        """\
#!/bin/bash
# Quotas of the shop.
set -e
bin/kafka-configs.sh --bootstrap-server "$B" --alter --add-config 'producer_byte_rate=1024,consumer_byte_rate=2048' \\
  --entity-type users --entity-name alice --entity-type clients --entity-default   # everybody's
kafka-configs --alter --user "al ice" --add-config request_percentage=5; kafka-configs --alter --user al\\ ice \\
  --add-config request_percentage=6,producer_byte_rate=1.0E7
docker exec broker /opt/kafka/bin/kafka-configs.sh --bootstrap-server=localhost:9092 --ip-defaults --alter \\
  --add-config connection_creation_rate=10
kafka-configs.sh --describe --entity-type users
kafka-configs.sh --alter --user bob --add-config request_percentage=1,consumer_byte_rate=3
kafka-configs.sh --alter --user=bob --delete-config request_percentage
""",
        {
            Entity("alice", Default.DEFAULT): {P: 1024, C: 2048},
            Entity("al ice"): {R: 6, P: 1e7},
            Entity("bob"): {C: 3},
            Entity(ip=Default.DEFAULT): {I: 10},
        },
    ),
    "strimzi": (
        """\
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: alice, labels: {strimzi.io/cluster: my-cluster}}
spec:
  authentication: {type: scram-sha-512}
  quotas: {producerByteRate: 1048576, requestPercentage: 55, controllerMutationRate: 10.5, consumerByteRate: null}
--- # the next
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: web}
spec: {authentication: {type: tls}, quotas: {consumerByteRate: 2097152}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: free}
spec: {}
""",
        {ALICE: {P: 2**20, R: 55, M: 10.5}, Entity("CN=web"): {C: 2**21}},
    ),
    "rpk": (
        """\
quotas:
    - entity:
        - name: web
          type: client-id
      values:
        - key: consumer_byte_rate
          values: "131072"
    - entity: [{name: <default>, type: client-id}]
      values: [{key: producer_byte_rate, values: "65536"}]
    - entity: [{name: team-, type: client-id-prefix}]
      values: [{key: producer_byte_rate, values: "1024"}]
""",
        {WEB: {C: 131072}, Entity(None, Default.DEFAULT): {P: 65536}, Entity(None, Prefix("team-")): {P: 1024}},
    ),
    "terraform": (
        """\
{"format_version":"1.0","terraform_version":"1.9.0","values":{"root_module":{"resources":[
 {"address":"kafka_quota.a","mode":"managed","type":"kafka_quota","name":"a","values":
   {"config":{"producer_byte_rate":1048576,"request_percentage":12.5},"entity_name":"alice","entity_type":"user","id":"alice|user"}},
 {"mode":"managed","type":"kafka_topic","name":"t","values":{"name":"t"}}],
 "child_modules":[{"address":"module.m","resources":[{"mode":"managed","type":"kafka_quota","name":"b","values":
   {"config":{"consumer_byte_rate":2048},"entity_name":"","entity_type":"client-id"}}]}]}}}
""",
        {ALICE: {P: 2**20, R: 12.5}, Entity(None, Default.DEFAULT): {C: 2048}},
    ),
    "sluice": ("quotas:\n  - {entity: {user: alice}, producer_byte_rate: 1MiB}\n", {ALICE: {P: 2**20}}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_those_tools_write_is_recognised_and_read(name: str) -> None:
    text, limits = SAID[name]
    assert recognise("text", text) == name
    assert read("text", text, None)[0].limits == limits


def test_users_with_certificates_are_named_as_brokers_name_them() -> None:
    policy = Policy({Entity("CN=web"): {P: 5.0}, ALICE: {C: 6.0, M: 0.5}, Entity("CN=web,O=x"): {P: 7.0}})
    text, left_out = write(policy, "strimzi")
    assert text.count("type: tls-external") == 1
    assert read("text", text, None)[0].limits == {Entity("CN=web"): {P: 5}, ALICE: {C: 6, M: 0.5}}
    assert [line.partition(":")[0] for line in left_out] == ["user='CN=web,O=x'"]


KAFKA_USER = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaUser", "metadata": {"name": "alice"}}
KAFKA_QUOTA = {"entity_type": "user", "entity_name": "alice", "config": {"producer_byte_rate": "5"}}
LISTED = {"entity": [{"name": "alice", "type": "user"}], "values": [{"key": "producer_byte_rate", "values": "5"}]}
IN_JSON: dict[str, dict[str, Any]] = {
    "rpk": {"quotas": [LISTED]},
    "strimzi": {"kind": "List", "items": [{**KAFKA_USER, "spec": {"quotas": {"producerByteRate": 5}}}]},
    "terraform": {"resource": {"kafka_quota": {"a": [KAFKA_QUOTA]}}},
    "sluice": {"quotas": [{"entity": {"user": "alice"}, "producer_byte_rate": 5}]},
}


@pytest.mark.parametrize("name", IN_JSON)
def test_json_of_one_line_is_recognised_and_read(name: str) -> None:
    text = json.dumps(IN_JSON[name], separators=(",", ":")) + "\n"
    assert recognise("text", text) == name
    assert read("text", text, None)[0].limits == {ALICE: {P: 5}}


def test_kubectl_prints_a_list() -> None:
    listed = """\
apiVersion: v1
kind: List
items:
- apiVersion: kafka.strimzi.io/v1beta2
  kind: KafkaUser
  metadata: {name: alice}
  spec: {quotas: {producerByteRate: 5}}
- {apiVersion: v1, kind: Secret}
"""
    policy, notes = read("users.yaml", listed, None)
    assert policy.limits == {ALICE: {P: 5}}
    assert [str(note) for note in notes] == ["users.yaml:8:3: items[1]: Secret is no KafkaUser: skipped"]


def test_terraform_fills_in_templates_and_ours_are_escaped() -> None:
    text, _ = write(Policy({Entity("${x}"): {P: 1.0}}), "terraform")
    assert '"$${x}"' in text
    with pytest.raises(ConfigError, match="is filled in by Terraform"):
        read("x.tf.json", text.replace("$$", "$"), "terraform")


CONFIGS = "kafka-configs.sh --alter --user"
WRONG = [
    ("kafka-configs", f"{CONFIGS} a --add-config producer_byte_rate=0", "1:1: producer_byte_rate: must be above 0"),
    ("kafka-configs", f"\n{CONFIGS} $U --add-config a=1", "2:1: '$U' is filled in by a shell; write it out"),
    ("kafka-configs", f"{CONFIGS} 'a", "1:1: a quote that does not end; close it"),
    ("kafka-configs", "kafka-configs.sh --alter --usr a", "1:1: '--usr' is not known here; did you mean --user?"),
    ("kafka-configs", "kafka-configs.sh --alter --user", "1:1: --user has no value"),
    ("kafka-configs", "kafka-configs.sh --alter $X", "1:1: '$X' is filled in by a shell"),
    ("kafka-configs", "kafka-configs.sh --user a", "1:1: neither --alter nor --describe"),
    ("strimzi", "kind: KafkaUser\nspec: {}\n", "1:1: metadata.name must be a single value"),
    (
        "strimzi",
        "a: 1\n---\nkind: KafkaUser\nmetadata: {name: x}\nspec: {quotas: {producerByterate: 1}}\n",
        "3:1: spec.quotas.producerByterate is no quota of a KafkaUser; did you mean producerByteRate?",
    ),
    ("strimzi", "a: 1\n---\nb: &x 2\n", "3:4: b: anchors (&x) are not supported"),
    ("rpk", "quotas: [{entity: [{name: a, type: topic}], values: []}]\n", "1:10: quotas[0]: 'topic' is not a type"),
    (
        "rpk",
        "quotas: [{entity: [{name: a, type: ip}], values: [{key: producer_byte_rate, values: x}]}]\n",
        "producer_byte_rate: 'x' is not a size",
    ),
    ("rpk", "quotas: {}\n", "quotas must be a list"),
    ("terraform", '{"resource": {"kafka_quota": {"a": {"entity_type": "topic"}}}}', "entity_type 'topic' is not known"),
    ("terraform", '{"values": []}', "values must be a mapping"),
    ("sluice", "quotas: [{entity: {user: a}, producer_byte_rate: 0}]\n", "must be above 0"),
]


@pytest.mark.parametrize(("name", "text", "said"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_what_is_wrong_is_told_with_its_place(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read("text", text, name)
    assert said in str(raised.value)


def test_one_entity_twice_is_an_error() -> None:
    twice = "quotas:\n" + "- {entity: [{name: a, type: user}], values: [{key: producer_byte_rate, values: '1'}]}\n" * 2
    with pytest.raises(ConfigError, match="user=a has a quota already; leave one of them out: the first is on line 2"):
        read("text", twice, "rpk")


@pytest.mark.parametrize("text", ["", "hello\n", "[1, 2]\n"])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is in no format that is known; say which it is: --format sluice"):
        read("text", text, None)


@pytest.mark.parametrize("name", FORMATS)
@given(text=st.text(max_size=200))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    try:
        read("text", text, name)
    except ConfigError as error:
        said = str(error)
    else:
        said = "read"
    assert said


def test_a_comment_about_kafka_configs_makes_no_script() -> None:
    text = "# as kafka-configs.sh --alter --user x\nquotas: []\n"
    assert recognise("text", text) == "sluice"


def test_what_kafka_does_not_have_is_named() -> None:
    policy = Policy(
        {
            Entity(Group("g")): {P: 1.0},
            Entity("a", cap=True): {P: 2.0},
            Entity("s"): {P: 3.0},
            Entity("b"): {P: 4.0, R: 12.5},
            Entity(None, Prefix("x")): {P: 5.0},
            Entity("n" * 300): {P: 6.0},
            Entity("z"): {P: 0.0},
        },
        {Entity("s"): Terms(shadow=True), Entity("b"): Terms(burst_ms=2000)},
        {"g": ["u"]},
    )
    text, left_out = write(policy, "kafka-configs")
    (command,) = [line for line in text.splitlines() if line.startswith("kafka-configs")]
    assert command == (
        'kafka-configs.sh --bootstrap-server "$BOOTSTRAP" ${ARGS:-} --alter '
        "--add-config producer_byte_rate=4,request_percentage=12.5 --entity-type users --entity-name b"
    )
    assert [line.partition(":")[::2] for line in left_out if "~" not in line] == [
        ("user-group=g", " Kafka has no caps and no groups"),
        ("cap user=a", " Kafka has no caps and no groups"),
        ("user=s", " is in shadow (it only measures): elsewhere it would hold clients"),
        ("user=b", " burst: its limits alone are taken"),
        ("user=z", " producer_byte_rate: must be above 0; remove it for no limit"),
        ("client-id-prefix=x", " Kafka has no prefixes of client-ids"),
    ]
    assert "only the beginning of its name is known" in "".join(left_out)
