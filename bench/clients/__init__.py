"""The matrix of clients: what each does at a broker, and the same through Sluice (`python -m bench.clients`).

A client is a program, `PROGRAM bootstrap scenario topic count [library]`, whose client-id is the topic and which prints
one line of JSON: `{"records": 300, "seconds": 1.2}`, for `admin` `{"steps": {"list_topics": "ok"}}`, or
`{"error": "TimeoutError"}`. The runner reads from the broker what came of it.
"""
