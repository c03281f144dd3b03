"""The analysis of usage records: ingestion, reports, replay under other quotas, recommendations (extra ``analysis``).

Takes Kafka's arithmetic and policy from ``quotas`` and must not import the proxy, whose command line imports it lazily.
docs/architecture.md describes its packages and which may import which.
"""
