"""What ``sluice check`` says: of the configuration, of all that it names, and of both files together."""

from dataclasses import dataclass, field
from pathlib import Path

from config.loader import load_with_document, named_quota_file
from config.problems import ConfigError, Problem
from config.settings import Listener, Settings
from proxy.checks.configuration import look
from proxy.checks.findings import Severity
from quotas.entities import ANONYMOUS
from quotas.stores.file import LoadedPolicy, load


@dataclass(slots=True)
class Report:
    """Every problem and every warning, each file's in its order, and what was counted."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    listeners: int = 0
    quotas: int = 0


def check(config_path: Path, now_s: float) -> Report:
    """Look at everything there is; one broken file does not hide what is wrong with the other."""
    report = Report()
    settings = _check_configuration(report, config_path, now_s)
    quota_file = named_quota_file(config_path)
    if quota_file is not None:
        _check_quotas(report, quota_file, settings)
    return report


def _check_configuration(report: Report, config_path: Path, now_s: float) -> Settings | None:
    try:
        settings, document = load_with_document(config_path)
    except ConfigError as error:
        report.problems += error.problems
        return None
    report.listeners = len(settings.listeners)
    for finding in look(settings, document, now_s):
        bearable = finding.severity is Severity.WARNING
        (report.warnings if bearable else report.problems).append(finding.problem)
    return settings


def _check_quotas(report: Report, quota_file: Path, settings: Settings | None) -> None:
    try:
        loaded = load(quota_file)
    except ConfigError as error:
        report.problems += error.problems
        return
    report.quotas = len(loaded.policy.limits)
    report.warnings += loaded.warnings
    if settings is not None and not any(map(_knows_users, settings.listeners)):
        report.warnings += _quotas_of_nobody(quota_file, loaded)


def _knows_users(listener: Listener) -> bool:
    certificates = listener.tls is not None and listener.tls.client_authentication != "none"
    return certificates or listener.authentication == "sasl"


def _quotas_of_nobody(quota_file: Path, loaded: LoadedPolicy) -> list[Problem]:
    """Return one warning for all quotas of users, at the first: no listener is where a user could be known."""
    lines = [line for entity, line in loaded.lines.items() if isinstance(entity.user, str) and entity.user != ANONYMOUS]
    if not lines:
        return []
    more = f", and {len(lines) - 1} more" if len(lines) > 1 else ""
    message = f"a quota of a user{more}, where no listener authenticates: clients that do not log in are {ANONYMOUS}"
    fix = "write authentication: sasl where the brokers demand SASL, or tls with client_authentication: required"
    return [Problem(str(quota_file), min(lines), 1, "quotas", message, fix)]
