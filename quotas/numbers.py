"""Numbers formatted as Java does, for people and for ZooKeeper."""

import math
from decimal import Decimal


def java_double(value: float) -> str:
    """Return what ``Double.toString`` of JDK 19 and later returns: the shortest digits that read back, at least two."""
    value = float(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    shortest = Decimal(repr(value)).normalize()
    if len(shortest.as_tuple().digits) == 1:  # Java takes the nearest decimal of two digits: 4.9E-324
        shortest = Decimal(f"{value:.1e}").normalize()
    first, *others = shortest.as_tuple().digits
    return f"{'-' * (value < 0)}{first}.{''.join(map(str, others)) or '0'}E{shortest.adjusted()}"
