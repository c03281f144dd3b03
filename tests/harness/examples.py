"""How many examples Hypothesis tries of a property: few, always the same, or many others (``tests/conftest.py``)."""

from typing import Final

from hypothesis import settings

FEW: Final = 40
MANY: Final = 1000


def examples(times: float) -> settings:
    """Try ``times`` as many as of other properties, whichever profile there is."""
    profile = settings.get_profile(settings.get_current_profile_name())
    return settings(max_examples=round(times * profile.max_examples))
