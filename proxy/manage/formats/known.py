"""The formats that quotas are read from and written in.

What is read of a text that was written here is what was written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.problems import ConfigError, Problem
from proxy.manage.formats import kafka_configs, rpk, sluice, strimzi, terraform
from proxy.manage.formats.rules import Rule, as_rules
from quotas.policy import Policy


@dataclass(frozen=True, slots=True)
class Format:
    """How one tool writes quotas. ``read(file, text)`` raises ConfigError."""

    read: Callable[[str, str], tuple[Policy, Sequence[Problem]]]
    """The quotas of a text, and what of it is no quota or is doubtful."""
    write: Callable[[Sequence[Rule], Policy], str]
    """A text, of rules that it can say; the policy that they are of."""
    refuse: Callable[[Rule], str]
    """Why it cannot say a rule; "" if it can."""
    refuse_limit: Callable[[str, float], str] = field(default=lambda key, limit: "")  # noqa: ARG005  takes any
    """The same of a single limit."""
    is_ours: bool = False
    """It can say what Kafka does not have."""


FORMATS: Final[Mapping[str, Format]] = {
    "sluice": Format(sluice.read, sluice.write, lambda rule: "", sluice.refuse_limit, is_ours=True),  # noqa: ARG005  all
    "kafka-configs": Format(kafka_configs.read, kafka_configs.write, kafka_configs.refuse),
    "strimzi": Format(strimzi.read, strimzi.write, strimzi.refuse, strimzi.refuse_limit),
    "rpk": Format(rpk.read, rpk.write, rpk.refuse),
    "terraform": Format(terraform.read, terraform.write, terraform.refuse),
}


def write(policy: Policy, name: str) -> tuple[str, list[str]]:
    """Return quotas in a format, and what it cannot say."""
    of_format = FORMATS[name]
    rules, left_out = as_rules(policy, ours=of_format.is_ours)
    said: list[Rule] = []
    for rule in rules:
        if why := of_format.refuse(rule):
            left_out.append(f"{rule.entity.describe()}: {why}")
            continue
        limits = {}
        for kind, limit in rule.limits.items():
            if why := of_format.refuse_limit(str(kind), limit):
                left_out.append(f"{rule.entity.describe()}: {kind} {limit:.17g} {why}")
            else:
                limits[kind] = limit
        if limits:
            said.append(Rule(rule.entity, limits, rule.terms))
    return of_format.write(said, policy), left_out


def read(file: str, text: str, name: str | None) -> tuple[Policy, Sequence[Problem]]:
    """Return the quotas of a text, and what of it is no quota. Without a name, it is recognised. Raises ConfigError."""
    return FORMATS[name or recognise(file, text)].read(file, text)


def recognise(file: str, text: str) -> str:
    """Return the format of a text. Raises ConfigError."""
    if kafka_configs.is_script(text):
        return "kafka-configs"
    if strimzi.is_manifest(text):
        return "strimzi"
    if terraform.is_terraform(text):
        return "terraform"
    if rpk.is_listing(text):
        return "rpk"
    if sluice.is_quota_file(text):
        return "sluice"
    message, fix = "is in no format that is known", f"say which it is: --format {' | '.join(FORMATS)}"
    raise ConfigError([Problem(file, 0, 0, "", message, fix)])
