"""For all tests: Hypothesis judges what the code does, not how fast a busy machine did it.

``fixed`` tries the same examples each time, so that a test that fails says something of the change before it.
``explore`` (``make test-all``) tries others each time, and ten times as many.
"""

from hypothesis import HealthCheck, settings

_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("fixed", _UNTIMED, derandomize=True)
settings.register_profile("explore", _UNTIMED, max_examples=1000)
settings.load_profile("fixed")
