"""Numbers formatted as Java does, for people and for ZooKeeper."""

import math
from decimal import Decimal


def java_double(value: float) -> str:
    """Return what ``Double.toString`` of JDK 19 and later returns: the shortest digits that read back, at least two."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    magnitude = abs(value)
    digits, exponent = _scientific(repr(magnitude))
    if len(digits) == 1:  # Java takes the nearest decimal of two digits: 4.9E-324
        digits, exponent = _scientific(f"{magnitude:.1e}")
    if 1e-3 <= magnitude < 1e7:
        plain = format(Decimal(digits).scaleb(exponent - len(digits) + 1), "f")
        return sign + (plain if "." in plain else f"{plain}.0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _scientific(text: str) -> tuple[str, int]:
    """Return the significant digits without trailing zeros, and the exponent of the first one."""
    decimal = Decimal(text)
    digits = "".join(map(str, decimal.as_tuple().digits))
    return digits.rstrip("0"), decimal.adjusted()
