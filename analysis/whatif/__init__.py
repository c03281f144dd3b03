"""Proposed quotas against recorded demand: the job, its comparison in words and numbers, its page."""
