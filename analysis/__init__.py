"""What was used: usage records turned into tables and answers (the extra ``analysis``: PySpark, pandas, NumPy).

Owns ingestion, reports, the replay of recorded demand against other quotas, and recommendations. It takes Kafka's
arithmetic and policy from ``quotas`` and must not know the proxy; nothing but the command line knows it, lazily.
Its rooms, and which may import which, are in docs/architecture.md.
"""
