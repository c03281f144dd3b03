"""Prices, from ``rates.yaml``::

currency: EUR
rates:
  bytes_in: {per: 1GiB, price: 0.02}
  bytes_out: {per: 1GiB, price: 0.03}
  requests: {per: 1000000, price: 0.1}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.document import Document, read_document
from config.nodes import Mapping as Written
from config.nodes import Node, Scalar
from config.problems import ConfigError, InvalidValue, InvalidValues, suggestion
from config.units import parse_bytes, parse_number, parse_whole

RATED: Final[Mapping[str, Callable[[str], int]]] = {
    "bytes_in": parse_bytes,
    "bytes_out": parse_bytes,
    "requests": parse_whole,
}
"""The items of chargeback, and the parser of each one's amount in a file of rates."""


@dataclass(frozen=True, slots=True)
class UnitPrice:
    per: int
    unit: str
    """``per`` as written in the file: PricingUnit of FOCUS."""
    price: float


@dataclass(frozen=True, slots=True)
class Rates:
    currency: str
    of: Mapping[str, UnitPrice]


def load(path: Path) -> Rates:
    """Return the rates in a file; raise ConfigError with every problem found."""
    document = read_document(path)
    wrong = InvalidValues()
    rates = _read(document, wrong)
    problems = [document.problem(steps, invalid) for steps, invalid in wrong.found]
    if problems or document.problems:
        raise ConfigError([*document.problems, *problems])
    return rates


def _read(document: Document, wrong: InvalidValues) -> Rates:
    for key in document.root:
        if key not in {"currency", "rates"}:
            wrong.add((key,), "unknown key", suggestion(key, ["currency", "rates"]), of_key=True)
    currency = document.root.get("currency")
    if not isinstance(currency, Scalar) or len(currency) != 3 or not currency.isascii() or not currency.isupper():
        wrong.add(("currency",), "must be a currency", "write its three letters (ISO 4217): EUR")
    rates = document.root.get("rates")
    if not isinstance(rates, Written) or not rates:
        wrong.add(("rates",), "must have prices", "write it like bytes_in: {per: 1GiB, price: 0.02}")
        return Rates(str(currency), {})
    found: dict[str, UnitPrice] = {}
    for sku, rate in rates.items():
        with wrong.at("rates", sku):
            per, price = _parts(sku, rate)
            with wrong.at("rates", sku, "per"):
                amount = RATED[sku](per)
                if amount == 0:
                    raise InvalidValue("must be above 0", "it is how much the price is for")
                with wrong.at("rates", sku, "price"):
                    found[str(sku)] = UnitPrice(amount, str(per), parse_number(price))
    return Rates(str(currency), found)


def _parts(sku: str, written: Node) -> tuple[Scalar, Scalar]:
    if sku not in RATED:
        raise InvalidValue("cannot be charged for", suggestion(sku, list(RATED)), of_key=True)
    if isinstance(written, Written) and set(written) == {"per", "price"}:
        per, price = written["per"], written["price"]
        if isinstance(per, Scalar) and isinstance(price, Scalar):
            return per, price
    raise InvalidValue("must have per and price", "write it like {per: 1GiB, price: 0.02}")
