"""A clock that only the test moves."""


class Clock:
    """Called, it tells seconds, as `monotonic_s` does; `ms` tells milliseconds."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def ms(self) -> int:
        return round(self.now_s * 1000)
