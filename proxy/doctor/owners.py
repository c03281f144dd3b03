"""Compares the owners of brokers as each instance of a group knows them (``/api/v1/owners`` of its admin port)."""

import asyncio
import json
import ssl
from typing import Any

from proxy.checks import health
from proxy.checks.health import AdminLogin
from proxy.doctor.findings import DoctorFindings
from proxy.owners.membership import MemberState


async def look_at_owners(
    found: DoctorFindings,
    admin_url: str,
    login: AdminLogin = AdminLogin(),  # noqa: B008  immutable
    of_others: ssl.SSLContext | None = None,
) -> None:
    """Ask this instance, and each other one that it knows, and say where they differ."""
    first = await _owners_at(admin_url, login)
    if isinstance(first, str):
        found.warn("owners", f"not known: {first}", "find out where the admin port of that proxy can be reached")
        return
    name, owners = first.get("instance"), first.get("owners") or {}
    if first.get("state") != MemberState.MEMBER:
        found.fail("owners", f"{name} is {first.get('state')}: {first.get('error')}", "see its log")
        return
    scheme, to_others = ("http", login) if of_others is None else ("https", login._replace(context=of_others))
    for other, at in (first.get("others") or {}).items():
        said = await _owners_at(f"{scheme}://{at}", to_others) if at else "its admin port is not known to the others"
        if isinstance(said, str):
            found.warn("owners", f"{other} was not asked: {said}", "run the doctor where it reaches the admin ports")
        elif said.get("instance") != other:
            fix = "give admin.bind of each instance an address of its own"
            found.fail("owners", f"the admin port of {other}, {at}, leads to {said.get('instance')}", fix)
        elif (said.get("state"), said.get("owners")) != (MemberState.MEMBER, owners):
            differ = f"{other} is {said.get('state')} with epoch {said.get('epoch')}, {name} has {first.get('epoch')}"
            found.fail("owners", f"{differ}: they do not have the same owners", f"see the log of {other}")
        else:
            found.ok("owners", f"{other} has the same owners as {name}")
    owned = ", ".join(f"{node_id} of {owner}" for node_id, owner in owners.items())
    found.ok("owners", f"{name} is a member; owners of epoch {first.get('epoch')}: brokers {owned}")


async def _owners_at(admin_url: str, login: AdminLogin) -> dict[str, Any] | str:
    """Return the owners that an instance knows, or why not."""
    known, said = await asyncio.to_thread(health.ask, admin_url, "/api/v1/owners", login)
    if not known:
        return said
    try:
        owners = json.loads(said)
    except ValueError:
        owners = None
    return owners if isinstance(owners, dict) else f"{admin_url} answers with something else"
