"""Checks the files and other objects that a configuration names."""

from datetime import UTC, datetime
from itertools import chain, product
from pathlib import Path
from typing import Final

import structlog

from config.document import Document
from config.files import read_secret
from config.nodes import Mapping, Node, Sequence
from config.owners import FixedOwners, Owners
from config.problems import NO_VARIABLES, InvalidValue, Problem, Steps, holds_a_variable
from config.settings import Admin, Cluster, Exempt, Kerberos, Listener, Route, Settings
from config.stores import ZooKeeperStore
from proxy.brokers import known_brokers
from proxy.brokers.login import LoginError, read_password
from proxy.checks.findings import Finding, Findings, Severity
from proxy.checks.mapping import look_for_doubled
from proxy.identity.kerberos import keytab
from proxy.identity.kerberos.gssapi import acceptor
from proxy.identity.kerberos.name import parse_rules
from proxy.identity.principal import is_pseudo
from quotas.entities import ANONYMOUS
from quotas.stores import likely_mistakes

_WITH_PATTERNS: Final = frozenset(("principal_mapping_rules", "principal_to_local_rules"))

_SHORTEST_SESSION_S: Final = 6
_SHORTEST_PORT: Final = 3

log = structlog.get_logger("sluice")


def look(settings: Settings, document: Document, now_s: float) -> list[Finding]:
    """Return the problems of the files that ``settings``, read from ``document``, name, in the order of the file.

    ``now_s`` is Unix time, for the expiry of certificates.
    """
    found = Findings(document, datetime.fromtimestamp(now_s, UTC))
    _look_at_route(found, ("cluster",), settings.cluster)
    _look_at_state(found, settings.cluster.state)
    for index, listener in enumerate(settings.listeners):
        _look_at_listener(found, ("listeners", index), listener, settings.cluster)
    for steps, store in settings.quotas.stores_by_steps():
        if isinstance(store, ZooKeeperStore):
            _look_at_zookeeper(found, steps, store)
    _look_at_exempt(found, settings.quotas.exempt)
    _look_at_admins(found, settings.quotas.admins)
    _look_at_token(found, settings.admin)
    _look_at_admin_tls(found, settings)
    _look_for_same_addresses(found, settings.listeners)
    if settings.owners is not None:
        _look_at_owners(found, settings.owners, settings, document.root)
    _look_for_variables(found, (), document.root)
    return found.in_order()


def unusable(findings: list[Finding]) -> list[Problem]:
    """Return the problems that keep the proxy from running."""
    return [finding.problem for finding in findings if finding.severity is Severity.UNUSABLE]


def log_findings(findings: list[Finding]) -> None:
    for finding in findings:
        (log.warning if finding.severity is Severity.WARNING else log.error)(
            "configuration", problem=str(finding.problem)
        )


def _look_at_exempt(found: Findings, exempt: Exempt) -> None:
    at = ("quotas", "exempt")
    if exempt.client_ids:
        message = "any client can claim any client-id: a client that claims one of these is exempt from all quotas"
        found.warn((*at, "client_ids"), message, "name users or networks")
    for index, user in enumerate(exempt.users):
        if user == ANONYMOUS:
            message = "exempts every client that does not log in"
            found.warn((*at, "users", index), message, "name users, or quotas.mode: off for all")
        elif (mistake := likely_mistakes.of_name("user", user)) is not None:
            found.warn((*at, "users", index), mistake.message, mistake.hint)
    for index, network in enumerate(exempt.networks):
        if network.prefixlen == 0:
            message = f"{network} is every address: no quota applies to anybody"
            found.warn((*at, "networks", index), message, "name smaller networks")


def _look_at_admins(found: Findings, admins: tuple[str, ...]) -> None:
    for index, user in enumerate(admins):
        at = ("quotas", "admins", index)
        if user == ANONYMOUS:
            message = "lets any unauthenticated client change all quotas"
            found.warn(at, message, "name users, where clients log in")
        elif is_pseudo(user):
            message = f"{user!r} stands for many clients: all of them may change all quotas"
            found.warn(at, message, "name users")
        elif (mistake := likely_mistakes.of_name("user", user)) is not None:
            found.warn(at, mistake.message, mistake.hint)


def _look_at_token(found: Findings, admin: Admin) -> None:
    files: list[tuple[Steps, Path | None]] = [(("admin", "token_file"), admin.token_file)]
    files += [(("admin", "access", index, "token_file"), each.token_file) for index, each in enumerate(admin.access)]
    for at, file in files:
        if file is not None:
            found.secret(at, file, read_secret)


def _look_at_admin_tls(found: Findings, settings: Settings) -> None:
    from proxy.owners.membership import is_loopback, probe_address

    admin = settings.admin
    if admin.tls is None:
        if admin.is_closed and not is_loopback(admin.bind.host):
            message = "sends tokens, and the state of clients, in cleartext"
            found.warn(("admin", "access"), message, "add admin.tls")
        return
    from proxy.checks.tls import look_at_admin_tls

    in_group = settings.owners is not None and settings.owners.group is not None
    probed = probe_address(settings) if in_group else None
    look_at_admin_tls(found, admin, admin.tls, None if probed is None else probed.host)


def _look_at_listener(found: Findings, at: Steps, listener: Listener, cluster: Cluster) -> None:
    _look_at_advertised(found, (*at, "advertise"), listener)
    if listener.tls is not None:
        from proxy.checks.tls import look_at_client_tls  # imports 9 MB of cryptography

        look_at_client_tls(found, (*at, "tls"), listener.tls, listener)
    if listener.sasl.kerberos is not None:
        _look_at_kerberos(found, (*at, "sasl", "kerberos"), listener.sasl.kerberos)
    if listener.cluster is not None:
        _look_at_route(found, (*at, "cluster"), listener.cluster)
    if listener.authentication == "sasl" and (listener.cluster or cluster).sasl is None and cluster.state is None:
        message = (
            "the brokers ask for a login, and the proxy has none: after startup it knows only the brokers of "
            "bootstrap, until a client has logged in there"
        )
        own = "cluster" if listener.cluster is None else "the cluster of this listener"
        fix = f"add sasl to {own}, or set cluster.state: a file that keeps the brokers for the next start"
        found.warn((*at, "authentication"), message, fix)


def _look_at_advertised(found: Findings, at: Steps, listener: Listener) -> None:
    """Warn of an IPv6 address that no other machine reaches, or whose end may have been meant as a port."""
    host = listener.advertise.host
    before, _, last = host.rpartition(":")
    if listener.advertise.port is None and before and last.isdecimal() and len(last) >= _SHORTEST_PORT:
        fix = f"if its end is meant as the port, write [{before}]:{last}"
        found.warn(at, f"{host} is an IPv6 address without a port", fix)
    if "%" in host:
        message = f"{host} has a zone, which is this machine's own: no other machine can use it"
        found.warn(at, message, "write the whole address, or a host name")
    elif host.endswith("::"):
        found.warn(at, f"{host} ends in ::, as a network does", "write the whole address, or a host name")


def _look_at_route(found: Findings, at: Steps, route: Route) -> None:
    if route.tls is not None:
        from proxy.checks.tls import look_at_tls_to_servers

        look_at_tls_to_servers(found, (*at, "tls"), route.tls)
    if route.sasl is not None:
        _look_at_password(found, (*at, "sasl", "password_file"), route.sasl.password_file)
        if route.sasl.mechanism == "PLAIN" and route.tls is None:
            message = "sends the password to the brokers in cleartext"
            found.warn((*at, "sasl", "mechanism"), message, "add tls to the cluster, or use SCRAM")


def _look_at_state(found: Findings, file: Path | None) -> None:
    at = ("cluster", "state")
    if file is None or not file.exists():
        return
    if file.is_dir():
        found.add(Severity.UNUSABLE, at, f"{file} is a directory", f"name a file in it: {file / 'brokers.json'}")
        return
    try:
        known_brokers.read(file)
    except (OSError, known_brokers.NotUsableError) as error:
        said = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        found.warn(at, f"{file} is ignored: {said}", "delete it: it will be rewritten")


def _look_at_zookeeper(found: Findings, at: Steps, store: ZooKeeperStore) -> None:
    if store.tls is not None:
        from proxy.checks.tls import look_at_tls_to_servers

        look_at_tls_to_servers(found, (*at, "tls"), store.tls)
    if store.sasl is not None:
        _look_at_password(found, (*at, "sasl", "password_file"), store.sasl.password_file)


def _look_at_password(found: Findings, at: Steps, file: Path) -> None:
    def read(file: Path) -> None:
        try:
            read_password(file)
        except LoginError as error:
            raise InvalidValue(str(error).removeprefix("password_file ")) from None

    found.secret(at, file, read)


def _look_at_kerberos(found: Findings, at: Steps, kerberos: Kerberos) -> None:
    found.secret((*at, "keytab"), kerberos.keytab, keytab.principals)
    with found.at(*at, "principal_to_local_rules"):
        parse_rules(kerberos.principal_to_local_rules, kerberos.default_realm)
    for index, rule in enumerate(kerberos.principal_to_local_rules):
        look_for_doubled(found, (*at, "principal_to_local_rules", index), rule)
    if not found.unusable():
        with found.at(*at):
            acceptor(kerberos)  # checks for the extra, and has krb5 check the keytab


def _look_for_same_addresses(found: Findings, listeners: tuple[Listener, ...]) -> None:
    """Warn of listeners that advertise the same address. They may share a port on different interfaces, but their
    clients have to be able to tell them apart.
    """
    told: dict[tuple[str, int], Listener] = {}
    for index, listener in enumerate(listeners):
        hosts = {listener.bootstrap.host.lower(), (listener.broker_host or listener.bootstrap.host).lower()}
        ports = [listener.bootstrap.port, *chain.from_iterable(each.advertised for each in listener.ranges)]
        own = list(product(hosts, ports))
        if (other := next((told[each] for each in own if each in told), None)) is not None:
            message = f"clients of listener {other.name} are told the same host and ports"
            fix = "give each its own, or make clients resolve it to the interface of their listener"
            found.warn(("listeners", index, "advertise"), message, fix)
        told = dict.fromkeys(own, listener) | told


def _look_for_hosts_of_all(found: Findings, root: Node) -> None:
    """Warn of host names of brokers that are the same at all instances, unless each instance has a file of its own."""
    listeners = root.get("listeners") if isinstance(root, Mapping) else None
    for index, listener in enumerate(listeners if isinstance(listeners, Sequence) else ()):
        host = listener.get("broker_host") if isinstance(listener, Mapping) else None
        if host is not None and "{instance}" not in str(host):
            message = "does not name the instance: if all instances have this file, all tell clients the same hosts"
            fix = "write {instance} into it, as in b{node_id}-{instance}.kafka.example.com"
            found.warn(("listeners", index, "broker_host"), message, fix)


def _look_at_owners(found: Findings, owners: Owners, settings: Settings, root: Node) -> None:
    from proxy.owners.membership import probe_address  # not loaded without the section

    if owners.fixed is not None:
        _look_for_unowned(found, owners.fixed, settings.listeners)
    if owners.secret_file is not None:
        found.secret(("owners", "secret_file"), owners.secret_file, read_secret)
    if owners.group is not None and owners.probe and probe_address(settings) is None:
        message = (
            f"the other instances do not reach {settings.admin.bind}: one that dies is replaced only after session"
        )
        found.warn(("owners",), message, "give admin.bind an address that they reach, or set probe: false")
    if owners.group is not None:
        _look_for_hosts_of_all(found, root)
    if owners.group is not None and owners.session_s < _SHORTEST_SESSION_S:
        message = "brokers refuse a session below 6s unless group.min.session.timeout.ms allows it"
        found.warn(("owners", "session"), message, "write 6s")
    if owners.session_s < 3 * owners.heartbeat_s:
        message = "less than three heartbeats: a single lost one gets this instance replaced"
        found.warn(("owners", "session"), message, "write at least three times the heartbeat")


def _look_for_unowned(found: Findings, fixed: FixedOwners, listeners: tuple[Listener, ...]) -> None:
    ids = chain.from_iterable(each.node_ids for listener in listeners for each in listener.ranges)
    if (unowned := next((node_id for node_id in ids if fixed.owner_of(node_id) is None), None)) is not None:
        message = f"broker {unowned} has a port, and no owner: an instance is chosen by a hash of its id"
        found.warn(("owners", "fixed"), message, "give it to an instance")


def _look_for_variables(found: Findings, at: Steps, node: Node) -> None:
    """Warn of placeholders that were not filled in. Mapping rules are skipped: there, `$` has a meaning."""
    if isinstance(node, Mapping | Sequence):
        for step, below in node.items() if isinstance(node, Mapping) else enumerate(node):
            if step not in _WITH_PATTERNS:
                _look_for_variables(found, (*at, step), below)
    elif node is not None and holds_a_variable(node):
        found.warn(at, f"{node!r} is taken literally", NO_VARIABLES)
