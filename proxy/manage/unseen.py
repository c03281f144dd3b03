"""Users with quotas that no client has used, from the admin port of a running proxy."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from proxy.checks.health import AdminLogin, get
from proxy.manage.precedence_findings import Said
from quotas.policy import Policy

NAME: Final = "user-never-seen"
_LINE: Final = re.compile(r'sluice_quota_user_unseen\{user="(?P<user>(?:[^"\\]|\\.)*)"\} 1(?:\.0)?')
_LINES: Final = b"sluice_quota_user"
_ESCAPED: Final = re.compile(r"\\(.)")
_FIX: Final = (
    "look up the client's actual name in sluice_client_connections_opened_total: sasl.oauth, mapping rules and "
    "principal_to_local_rules determine names"
)


class NoAnswerError(Exception):
    """The admin port does not answer the question; the message says why."""


def ask(url: str, login: AdminLogin = AdminLogin()) -> list[str]:  # noqa: B008  immutable
    """Return those users, at most a hundred. Raises NoAnswerError."""
    page = f"{url.rstrip('/')}/metrics"
    try:
        answer = get(page, login=login)
    except OSError as error:
        raise NoAnswerError(f"--admin: {page} does not answer: {error}") from None
    except ValueError as error:
        raise NoAnswerError(f"--admin: {error}") from None
    if answer.status != 200:
        raise NoAnswerError(f"--admin: {page} does not answer: status {answer.status}")
    lines = [line.decode("utf-8", "replace") for line in answer.body.splitlines() if line.startswith(_LINES)]
    if not any(line.startswith("sluice_quota_users_unseen ") for line in lines):
        raise NoAnswerError(f"--admin: {page} lacks sluice_quota_users_unseen: is it this version of Sluice?")
    return [_unescaped(match["user"]) for line in lines if (match := _LINE.fullmatch(line)) is not None]


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], value)


def never_seen(policy: Policy, users: Sequence[str]) -> Iterator[Said]:
    """Yield a finding for each rule for one of ``users``, by name or as a member of a group."""
    unseen = set(users)
    for entity in policy.limits:
        if entity.user in unseen:
            yield NAME, entity, None, "no client has used this user name since the proxy has had the quota", _FIX
    for group, members in policy.groups.items():
        for user in members:
            if user in unseen:
                yield NAME, None, None, f"in the group {group}: no client has used the name {user}", _FIX
