"""The gold tables: their queries are in ``sql``, one makes hours and ``…_day.sql`` a day from its hours.

Queries of hours read the views ``usage`` (rows of the hours), ``sums``, ``keys``, ``documents``, those of
``analysis.charges``, ``recent``, ``recent_keys`` and ``recent_rules`` (with the last window before), and earlier
tables of TABLES.
"""

import re
from importlib.resources import files
from typing import Final

from analysis.charges import BYTES, MUTED_MS

TABLES: Final = ("client", "charged", "counters", "readings", "muted", "moments", "shared", "users", "documents")
KEPT: Final = ("client", "charged", "muted")
"""The tables that queries of later tables read."""
OF_HOURS: Final = ("muted", "moments", "users", "documents")
"""The tables whose day is their hours, one after the other."""
MOST_SUM: Final = 2**60
"""An exbibyte, far below the maximum of a BIGINT: forged numbers must not overflow. Sums are exact up to 2**53."""
_TOTAL: Final = re.compile(r"\btotal\((\w+|IF\([^)]*\))\)")


def query(name: str, **values: object) -> str:
    """Return a query of ``sql``: ``total(x)`` is a sum that stops at an exbibyte, ``{name}`` a value."""
    text = files("analysis.gold").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    summed = _TOTAL.sub(rf"CAST(least(sum(CAST(\1 AS DOUBLE)), {MOST_SUM}) AS BIGINT)", text)
    return summed.format(bytes=BYTES, muted_ms=MUTED_MS, **values) if "{" in summed else summed


def query_of_day(name: str) -> str:
    """Return the query for a day over the view ``hours``."""
    return "SELECT * EXCEPT (date) FROM hours" if name in OF_HOURS else query(f"{name}_day")
