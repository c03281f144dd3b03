"""Recommended quotas: the smallest that meet a target, written to a quota file."""
