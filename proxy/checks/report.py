"""The report of ``sluice check``: on the configuration, everything that it names, and the quotas."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from config.document import read_document
from config.loader import STATIC, load_with_document, named_quota_files
from config.problems import ConfigError, InvalidValue, Problem, Steps
from config.settings import FileStore, Listener, Settings
from config.units import Address
from proxy.checks import double_enforcement
from proxy.checks.brokers import look_at_brokers
from proxy.checks.configuration import look
from proxy.checks.findings import Severity
from proxy.checks.mapping import made_of_examples
from quotas.entities import ANONYMOUS, Default
from quotas.policy import Policy
from quotas.stores import likely_mistakes
from quotas.stores.base import Loaded, UnreadableError
from quotas.stores.file import LoadedPolicy
from quotas.stores.file import load as load_file
from quotas.stores.file_store import FileStore as FileQuotas
from quotas.stores.layers import LayeredStore

Load = Callable[[Settings], Loaded]
"""Reads quotas from the stores of a configuration. Raises UnreadableError."""


@dataclass(slots=True)
class Report:
    """All problems and warnings, in the order of each file, and counts."""

    settings: Settings | None = field(default=None, compare=False)
    """The configuration, if there is a valid one."""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    listeners: int = 0
    quotas: int = 0
    caps: int = 0
    unseen: str = ""
    """The type of the store of the quotas, if it is no file, so they were not checked."""
    addresses: list[str] = field(default_factory=list)
    """Addresses that clients reach at other ports than the bound ones."""
    mapped: list[str] = field(default_factory=list)
    """An example result of each mapping rule."""
    shared: list[str] = field(default_factory=list)
    """Clients that share a counter under a quota of the default user."""

    def lines(self, looked_at: str) -> list[str]:
        """Return the lines to print; ``looked_at`` names the checked files."""
        said = [*(f"warning: {warning}" for warning in self.warnings), *map(str, self.problems)]
        if not self.problems:
            listeners = f", {_counted(self.listeners, 'listener')}" if self.listeners else ""
            caps = f", {_counted(self.caps, 'cap')}" if self.caps else ""
            quotas = f"quotas in {self.unseen} not checked" if self.unseen else _counted(self.quotas, "quota") + caps
            said.append(f"{looked_at}: ok ({quotas}{listeners})")
            said += self.addresses + self.mapped + self.shared
        return said

    def as_data(self) -> dict[str, object]:
        found = [("error", problem) for problem in self.problems]
        found += [("warning", warning) for warning in self.warnings]
        found.sort(key=lambda each: (each[1].file, each[1].line, each[1].column))
        findings = [
            {
                "severity": severity,
                "file": problem.file,
                "line": problem.line or None,
                "column": problem.column or None,
                "setting": problem.path,
                "message": problem.message,
                "fix": problem.hint,
            }
            for severity, problem in found
        ]
        told = {"addresses": self.addresses, "mapped": self.mapped, "shared": self.shared}
        return {"ok": not self.problems, "findings": findings} | {name: of for name, of in told.items() if of}


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def check(
    config_path: Path | None,
    now_s: float,
    quota_file: Path | None = None,
    load: Load | None = None,
    names: Sequence[str] = (),
    *,
    asks_brokers: bool = False,
) -> Report:
    """Check everything; a broken file does not hide problems of another.

    ``quota_file`` replaces the files that the configuration names. ``load`` reads quotas from the stores; without it
    only files are checked. ``names``: examples for mapping rules. ``asks_brokers``: which cluster bootstrap leads to.
    """
    report, named = Report(), dict[Steps, Path]()
    if config_path is not None:
        _check_configuration(report, config_path, now_s, names, asks_brokers=asks_brokers)
        named = named_quota_files(config_path)
    if quota_file is not None:
        named = {(): quota_file}
    for steps, file in named.items():
        _read_quotas(report, file, config_path, steps)
    settings = report.settings
    if settings is None or quota_file is not None or report.problems:
        return report
    elsewhere = [store.type for store in settings.quotas.layers if not isinstance(store, FileStore)]
    if elsewhere and load is None:
        report.unseen = elsewhere[-1]
    elif elsewhere or len(settings.quotas.layers) > 1:
        _check_loaded(report, settings, load or load_files)
    return report


def load_files(settings: Settings) -> Loaded:
    """Return the quotas of a configuration's files. Raises UnreadableError."""
    files = [store.path for store in settings.quotas.layers if isinstance(store, FileStore)]
    return LayeredStore([FileQuotas(path) for path in files]).load(0)


def _check_loaded(report: Report, settings: Settings, load: Load) -> None:
    """Check the quotas of all stores together; the files among them are already checked."""
    try:
        loaded = load(settings)
    except UnreadableError as error:
        report.problems += error.problems
        return
    _count(report, loaded.policy)
    report.warnings += [warning for warning in loaded.warnings if warning not in report.warnings]
    if settings.quotas.mode == "enforce" and not isinstance(settings.quotas.layers[-1], FileStore):
        report.warnings += double_enforcement.of_same_quotas(loaded)


def _check_configuration(
    report: Report, config_path: Path, now_s: float, names: Sequence[str], *, asks_brokers: bool
) -> None:
    try:
        settings, document = load_with_document(config_path)
    except ConfigError as error:
        report.problems += error.problems
        return
    report.settings = settings
    report.listeners = len(settings.listeners)
    report.mapped = [line for listener in settings.listeners for line in made_of_examples(listener, names)]
    report.addresses = [line for listener in settings.listeners for line in _told_and_bound(listener)]
    of_brokers = look_at_brokers(settings, document) if asks_brokers else ()
    for finding in (*look(settings, document, now_s), *of_brokers):
        bearable = finding.severity is Severity.WARNING
        (report.warnings if bearable else report.problems).append(finding.problem)


def _read_quotas(report: Report, quota_file: Path, config_path: Path | None, steps: Steps) -> None:
    """Read a quota file, which the configuration names at ``steps``, and report its problems and warnings."""
    try:
        loaded = load_file(quota_file)
    except ConfigError as error:
        first = error.problems[0]
        if config_path is not None and steps and first.line == 0:
            fix = first.hint or "write it, with `quotas: []` for no quotas"
            wrong = InvalidValue(f"{first.file}: {first.message}", fix)
            report.problems.append(read_document(config_path).problem(steps, wrong))
        else:
            report.problems += error.problems
        return
    report.warnings += loaded.warnings
    for line, message, fix in _doubts(loaded, report.settings):
        report.warnings.append(Problem(str(quota_file), line, 1, "quotas", message, fix))
    if steps != STATIC:
        _count(report, loaded.policy)


def _count(report: Report, policy: Policy) -> None:
    report.caps = sum(entity.cap for entity in policy.limits)
    report.quotas = len(policy.limits) - report.caps
    if report.settings is not None:
        report.shared = _sharing_default(report.settings.listeners, policy)


def _counts_apart(settings: Settings) -> bool:
    """Whether several instances serve the cluster and cannot ask each other."""
    owners = settings.owners
    if owners is None:
        return False
    from proxy.owners.membership import probe_address  # not loaded without the section

    return owners.group is None or not owners.probe or probe_address(settings) is None


def _doubts(loaded: LoadedPolicy, settings: Settings | None) -> Iterator[tuple[int, str, str]]:
    """Yield warnings about a quota file, each once for all limits that it concerns: the first line, message and fix."""
    if (small := likely_mistakes.of_small_limits(loaded.policy.limits)) is not None:
        entity, number, mistake = small
        more = f" ({number} times in this file)" if number > 1 else ""
        yield loaded.lines[entity], mistake.message + more, mistake.hint
    if settings is None:
        return
    scopes = [loaded.lines[entity] for entity, terms in loaded.policy.terms.items() if terms.of_cluster]
    if scopes and _counts_apart(settings):
        message = "scope: cluster, but the instances cannot ask each other for their use: each may count separately"
        yield min(scopes), message, "use owners.group with probe, and an admin.bind that the others reach"
    users = [at for entity, at in loaded.lines.items() if isinstance(entity.user, str) and entity.user != ANONYMOUS]
    knows_nobody = all(
        each.authentication != "sasl" and (each.tls is None or each.tls.client_authentication == "none")
        for each in settings.listeners
    )
    if users and knows_nobody:
        more = f", and {len(users) - 1} more" if len(users) > 1 else ""
        message = f"a quota of a user{more}, but no listener authenticates: clients that do not log in are {ANONYMOUS}"
        fix = "write authentication: sasl where the brokers demand SASL, or tls with client_authentication: required"
        yield min(users), message, fix


def _told_and_bound(listener: Listener) -> list[str]:
    """Return a line for each address that clients reach at another port than the bound one."""
    told, bind = listener.bootstrap, listener.bind
    found = [("bootstrap.servers", told, bind, 1)]
    if listener.broker_host is not None:
        found.append(("every broker", Address(listener.broker_host, told.port), bind, 1))
    for each in listener.ranges:
        count = len(each.node_ids)
        brokers = f"broker{'s' if count > 1 else ''} {_span(each.node_ids.start, each.node_ids.start, count)}"
        first, bound = Address(told.host, each.advertised.start), Address(bind.host, each.bound.start)
        found.append((brokers, first, bound, count))
    return [
        f"listener {listener.name}: {what} {_span(told, told.port, count)}, bound at {_span(bound, bound.port, count)}"
        for what, told, bound, count in found
        if told.port != bound.port
    ]


def _span(first: object, number: int, count: int) -> str:
    """Return ``first``, which ends in ``number``, as the first of ``count``: ``host:9100-9109``."""
    return f"{first}-{number + count - 1}" if count > 1 else str(first)


def _sharing_default(listeners: Sequence[Listener], policy: Policy) -> list[str]:
    """Return a line for each listener whose clients cannot be told apart, and share a quota of the default user."""
    if not any(entity.user is Default.DEFAULT and not entity.cap for entity in policy.limits):
        return []
    custom = "of a mechanism that Sluice cannot follow, all clients together"
    every = f"all clients of GSSAPI together (sasl.kerberos tells them apart), and {custom}"
    return [
        f"listener {listener.name}: the quota of the default user limits {custom if listener.sasl.kerberos else every}"
        for listener in listeners
        if listener.authentication == "sasl"
    ]
