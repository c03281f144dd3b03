"""Which limits hold for one client, and why: what the engine would find, in words."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from config.settings import Exempt
from quotas.engine import CLIENT_KINDS, Engine
from quotas.entities import ANONYMOUS, Entity
from quotas.exemptions import Exemptions
from quotas.kinds import QuotaKind
from quotas.names import counted_as
from quotas.policy import Key, Policy
from quotas.stores.edit import number


class Client(NamedTuple):
    """Whom to explain it of; "" is no client-id."""

    user: str = ANONYMOUS
    client_id: str = ""


Where = Callable[[Entity, QuotaKind], str]
"""Says where a limit stands: its store, and the place there."""


def explain(policy: Policy, client: Client, exempt: Exempt | None, where: Where | None = None) -> list[str]:
    """Return a line for each limit that holds for ``client``, or does not; with ``where`` each names its store."""
    user, client_id = counted_as(client.user), counted_as(client.client_id)
    said = [f"user {client.user}, {f'client-id {client.client_id}' if client_id else 'without a client-id'}"]
    if (group := policy.group_of.get(user)) is not None:
        said[0] += f", of the group {group}"
    if exempt is not None and (of_whom := _exempt(exempt, user, client_id)):
        return [*said, f"  exempt by its {of_whom}: no quota holds it"]
    engine = Engine(policy)
    for kind in CLIENT_KINDS:
        said += (f"  {line}" for line in _of_kind(policy, engine, (user, client_id), kind, where))
    return said


def _exempt(exempt: Exempt, user: str, client_id: str) -> str:
    if Exemptions(exempt.users).covers(user, client_id):
        return "user"
    return "client-id" if Exemptions((), exempt.client_ids).covers(user, client_id) else ""


def _of_kind(
    policy: Policy, engine: Engine, client: tuple[str, str], kind: QuotaKind, where: Where | None
) -> Iterator[str]:
    walk = engine.explain(*client, kind)
    if walk.winner is None:
        yield f"{kind}: no quota ({walk.why})"
    else:
        limit = walk.levels[-1].limit
        of_whom = _rule(policy, kind, walk.winner, limit, where, cap=False)
        together = ", with all whom it is for" if walk.counter.several else ""
        yield f"{kind}: {of_whom} ({walk.why}{together})"
    for key, limit in walk.caps:
        yield f"{kind}: and besides {_rule(policy, kind, key, limit, where, cap=True)}"


def _rule(policy: Policy, kind: QuotaKind, key: Key, limit: float | None, where: Where | None, *, cap: bool) -> str:
    terms = policy.terms_of(kind, cap=cap).get(key)
    shadow = ", in shadow: measured, and holding nobody" if terms is not None and terms.shadow else ""
    entity = policy.client(key, cap=cap)
    place = f" at {where(entity, kind)}" if where is not None else ""
    return f"{number(limit or 0.0)} of {entity.describe()}{place}{shadow}"
