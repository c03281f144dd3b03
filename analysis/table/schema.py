"""The schema's former place."""

from analysis.schema import *  # noqa: F403
