from pathlib import Path

import pytest

from analysis.report.rates import UnitPrice, load
from config.problems import ConfigError


def rates(folder: Path, text: str) -> Path:
    path = folder / "rates.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_rates_file_is_read_to_unit_prices(tmp_path: Path) -> None:
    text = "currency: EUR\nrates:\n  bytes_in: {per: 1GiB, price: 0.02}\n  requests: {per: 1000, price: 0}\n"
    found = load(rates(tmp_path, text))
    assert found.currency == "EUR"
    assert found.of == {"bytes_in": UnitPrice(2**30, "1GiB", 0.02), "requests": UnitPrice(1000, "1000", 0.0)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("currency: EUR\n", "rates: must have prices"),
        ("currency: EUR\nrates: {}\n", "rates: must have prices"),
        ("rates:\n  requests: {per: 1, price: 1}\n", "currency: must be a currency"),
        ("currency: eur\nrates:\n  requests: {per: 1, price: 1}\n", ":1:11: currency: must be a currency"),
        (
            "currency: EUR\nrates:\n  byte_in: {per: 1, price: 1}\n",
            ":3:3: rates.byte_in: cannot be charged for; did you",
        ),
        ("currency: EUR\nrates:\n  requests: 3\n", ":3:13: rates.requests: must have per and price"),
        ("currency: EUR\nrates:\n  requests: {per: 1, price: [1]}\n", "must have per and price"),
        ("currency: EUR\nrates:\n  requests: {per: 0, price: 1}\n", ":3:19: rates.requests.per: must be above 0"),
        (
            "currency: EUR\nrates:\n  bytes_in: {per: 1XB, price: 1}\n",
            ":3:19: rates.bytes_in.per: '1XB' has the unknown",
        ),
        (
            "currency: EUR\nrates:\n  requests: {per: 1, price: -1}\n",
            ":3:29: rates.requests.price: '-1' is not a number",
        ),
        ("currency: EUR\nprices: {}\nrates:\n  requests: {per: 1, price: 1}\n", ":2:1: prices: unknown key"),
        ("currency: EUR\ncurrency: USD\nrates:\n  requests: {per: 1, price: 1}\n", "is a duplicate key"),
    ],
)
def test_wrong_rates_file_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(rates(tmp_path, text))
    assert said in str(raised.value)


def test_every_problem_is_said_at_once(tmp_path: Path) -> None:
    text = "currency: E\nrates:\n  bytes: {per: 1, price: 1}\n  requests: {per: 0, price: 1}\n"
    with pytest.raises(ConfigError) as raised:
        load(rates(tmp_path, text))
    assert len(raised.value.problems) == 3
