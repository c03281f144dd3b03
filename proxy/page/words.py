"""Times as the page shows them: they come as text from the answers, which are data."""

from datetime import UTC, datetime

from quotas.texts import duration


def moment(time: str) -> str:
    """``2026-03-01 12:00:05``, in UTC."""
    return f"{_parsed(time):%Y-%m-%d %H:%M:%S}"


def away(time: str, now: str) -> str:
    """Return how far a time is from ``now``, in either direction: ``3 min 20 s``."""
    return duration(abs((_parsed(time) - _parsed(now)).total_seconds()))


def _parsed(time: str) -> datetime:
    return datetime.fromisoformat(time).astimezone(UTC)
