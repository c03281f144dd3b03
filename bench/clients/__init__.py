"""The matrix of clients: what each does at a broker, and the same through Sluice (`python -m bench.clients`).

A client is a program, `PROGRAM bootstrap scenario topic count library`, whose client-id is the topic and which prints
JSON, `{"records": 300}`, `{"steps": {"list_topics": "ok"}}` or `{"error": "TimeoutError"}`; the runner verifies.
"""
