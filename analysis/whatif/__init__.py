"""Recorded demand under proposed quotas: the job, and its results as text, JSON, Parquet and a page."""
