"""Checks the quotas that brokers enforce in addition to the proxy's: clients throttled twice, or as one."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from config.cluster import Route
from config.settings import FileStore, Settings
from protocol.client_quotas import Describing, describe_request, read_described
from protocol.errors import ProtocolError
from proxy.brokers import cluster_quotas
from proxy.brokers.persistent_connection import PersistentConnection, UnansweredError, access_by
from proxy.checks import double_enforcement
from proxy.doctor.findings import DoctorFindings
from quotas.entities import Entity
from quotas.kinds import QuotaKind
from quotas.stores.base import UnreadableError
from quotas.stores.file_store import FileStore as FileQuotas

_TIMEOUT_S: Final = 10.0


async def look_at_quotas(found: DoctorFindings, settings: Settings, route: Route) -> None:
    """Report quotas that brokers enforce on traffic of the proxy, if there are any."""
    asking = PersistentConnection(access_by(route))
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = read_described(await asking.ask(describe_request(Describing())))
    except (UnansweredError, TimeoutError, ProtocolError):
        return  # reported by the checks of brokers
    finally:
        await asking.close()
    if answer.error_code:
        fix = "let the proxy's user describe the configuration of the cluster"
        found.warn("quotas", f"the brokers refuse to describe their quotas (error {answer.error_code})", fix)
        return
    brokers = cluster_quotas.read(answer.entries, "brokers").policy
    problems = double_enforcement.of_address(brokers, "brokers")
    if route.tls is not None and route.tls.certificate is not None and route.sasl is None:
        problems += double_enforcement.of_one_user(brokers, "brokers")
    if settings.quotas.mode == "enforce":
        in_files = isinstance(settings.quotas.layers[-1], FileStore)  # or in the brokers themselves
        ours = await asyncio.to_thread(_of_files, settings) if in_files else brokers.limits
        problems += double_enforcement.of_both(ours, brokers, "brokers")
    for problem in problems:
        found.warn("quotas", f"{problem.path}: {problem.message}", problem.hint)


def _of_files(settings: Settings) -> dict[Entity, Mapping[QuotaKind, float]]:
    """Return the limits of the quota files; errors in a file are reported with the configuration."""
    limits: dict[Entity, Mapping[QuotaKind, float]] = {}
    for store in settings.quotas.layers:
        if isinstance(store, FileStore):
            with suppress(UnreadableError):
                limits |= FileQuotas(store.path).load(0).policy.limits
    return limits
