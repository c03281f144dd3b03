"""Commands of kafka-configs about quotas: those of Kafka's documentation, and what people type by mistake.

In the order in which they are run: each starts from what the ones before have left.
"""

from collections.abc import Sequence
from itertools import product

Command = Sequence[str]

THREE = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=200"
KEYS = "producer_byte_rate,consumer_byte_rate,request_percentage"


def of(kind: str, name: str | None = None) -> list[str]:
    """One part of an entity, in the long form; without a name, all of that kind."""
    return ["--entity-type", kind, *([] if name is None else ["--entity-name", name])]


def default(kind: str) -> list[str]:
    return ["--entity-type", kind, "--entity-default"]


def add(configs: str, *whom: str) -> Command:
    return ["--alter", "--add-config", configs, *whom]


def delete(keys: str, *whom: str) -> Command:
    return ["--alter", "--delete-config", keys, *whom]


def describe(*whom: str) -> Command:
    return ["--describe", *whom]


# Set a default, override it, look at it, delete it: for users, clients, and both (the article that quotas are usually
# learned from, and docs/ops of Kafka).
_GROUPINGS = (
    (default("users"), of("users", "user1"), of("users")),
    (default("clients"), of("clients", "clientA"), of("clients")),
    (
        [*default("users"), *default("clients")],
        [*of("users", "user1"), *of("clients", "clientA")],
        [*of("users"), *of("clients")],
    ),
)
FOUR_TIMES_THREE: list[Command] = [
    command
    for of_default, of_one, of_all in _GROUPINGS
    for command in (
        add(THREE, *of_default),
        add(THREE.replace("1024", "4096"), *of_one),
        describe(*of_one),
        describe(*of_default),
        describe(*of_all),
        delete("request_percentage", *of_one),
        describe(*of_one),
        delete(KEYS, *of_default),
        describe(*of_all),
    )
]

DOCUMENTED: list[Command] = [
    *FOUR_TIMES_THREE,
    add(THREE, *of("users", "user1"), *default("clients")),
    add(THREE, *default("users"), *of("clients", "clientA")),
    *(
        describe(*user, *client)
        for user, client in product(
            (of("users", "user1"), default("users"), of("users")),
            (of("clients", "clientA"), default("clients"), of("clients")),
        )
    ),
    # The short form.
    add(THREE, "--user", "user2", "--client", "clientB"),
    add(THREE, "--user", "user2", "--client-defaults"),
    add(THREE, "--user-defaults", "--client-defaults"),
    add("producer_byte_rate=10000000", "--user", "user2"),
    add("consumer_byte_rate=12345678,controller_mutation_rate=5.5,request_percentage=0.5", "--user", "user2"),
    add("producer_byte_rate=1048576", "--client-defaults"),
    describe("--user", "user2", "--client", "clientB"),
    describe("--user", "user2", "--client-defaults"),
    describe("--user-defaults", "--client-defaults"),
    describe("--user", "user2"),
    describe("--user-defaults"),
    describe("--client-defaults"),
    add("connection_creation_rate=100", *of("ips", "1.2.3.4")),
    add("connection_creation_rate=7", *default("ips")),
    add("connection_creation_rate=2147483647", "--ip", "::1"),
    add("connection_creation_rate=8", "--ip-defaults"),
    describe(*of("ips")),
    describe(*of("ips", "1.2.3.4")),
    describe(*default("ips")),
    describe("--ip", "::1"),
    describe("--ip-defaults"),
    delete("connection_creation_rate", "--ip-defaults"),
    delete("connection_creation_rate", *of("ips", "1.2.3.4")),
    describe(*of("ips")),
    ["--alter", "--add-config", "producer_byte_rate=5555", "--delete-config", "consumer_byte_rate", "--user", "user2"],
    describe("--user", "user2"),
    # Credentials are the brokers', and stand beside the quotas of users.
    add("SCRAM-SHA-256=[iterations=4096,password=secret]", "--user", "user2"),
    describe("--user", "user2"),
    describe(*of("users")),
]

MISTAKES: list[Command] = [
    *(
        add(f"{key}={value}", *of("users", "x"))
        for key, value in (
            ("producer_byte_rate", "0"),
            ("producer_byte_rate", "-1"),
            ("producer_byte_rate", "-1.5"),
            ("producer_byte_rate", "1.5"),
            ("producer_byte_rate", "1e19"),
            ("producer_byte_rate", "Infinity"),
            ("producer_byte_rate", "-Infinity"),
            ("producer_byte_rate", "many"),
            ("producer_byte_rate", ""),
            ("request_percentage", "0"),
            ("request_percentage", "-0.5"),
            ("no_such_quota", "1"),
            ("connection_creation_rate", "1"),
        )
    ),
    add("producer_byte_rate=0,consumer_byte_rate=-1,no_such_quota=3", *of("users", "x")),
    add("producer_byte_rate=1024,consumer_byte_rate=0", *of("users", "x")),
    add("producer_byte_rate=5,SCRAM-SHA-256=[password=x]", *of("users", "x")),
    add("SCRAM-SHA-256=[password=x]", *of("clients", "x")),
    add("connection_creation_rate=1", *of("clients", "x")),
    add("producer_byte_rate=1", *of("ips", "1.1.1.1")),
    add("connection_creation_rate=1.5", *of("ips", "1.1.1.1")),
    add("connection_creation_rate=0", *of("ips", "1.1.1.1")),
    add("connection_creation_rate=3000000000", *of("ips", "1.1.1.1")),
    add("connection_creation_rate=1", *of("ips", "no.such.host.invalid")),
    add("producer_byte_rate=1", *of("users", "x"), *of("ips", "1.1.1.1")),
    add("producer_byte_rate=1", *of("users")),
    add("producer_byte_rate=1", *of("users", "x"), *of("clients")),
    add("producer_byte_rate=1", "--user", "x", *of("clients", "y")),
    add("producer_byte_rate=1", *of("sessions", "x")),
    delete("producer_byte_rate", *of("users", "absent")),
    delete("no_such_quota", *of("users", "user2")),
    delete("controller_mutation_rate,producer_byte_rate,no_such_quota", *of("users", "user2")),
    ["--alter", *of("users", "x")],
    ["--describe"],
    ["--describe", "--alter", *of("users", "x")],
    describe(*of("users", "absent")),
    describe(*of("users", "absent"), *of("clients")),
    describe(*of("ips", "9.9.9.9")),
    describe(*of("users"), *of("ips")),
    describe(*of("users")),
]

MANY: list[Command] = [
    *(add(f"producer_byte_rate={1000 + number}", *of("users", f"many-{number}")) for number in range(18)),
    *(
        add(f"request_percentage={1 + number}", *of("users", f"many-{number % 3}"), *of("clients", f"app-{number}"))
        for number in range(8)
    ),
    add("consumer_byte_rate=1048576", *of("users", "odd name/ü%+&<default>")),
    describe(*of("users", "odd name/ü%+&<default>")),
    describe(*of("users")),
    describe(*of("users"), *of("clients")),
    *(delete("producer_byte_rate", *of("users", f"many-{number}")) for number in range(3, 10)),
    describe(*of("users")),
    describe(*of("users", "many-1"), *of("clients")),
    describe(*of("users"), *of("clients", "app-3")),
]
