"""Ingestion of usage records: documents are decoded, checked and deduplicated; each batch is published exactly once.

The only package that writes rows.
"""
