"""The state of now, as data: who is throttled, clients, connections, brokers, quotas (docs/api.md).

Rows are made where the counters are, in each worker, and only those of a page cross to the supervisor. It knows no
HTTP.
"""
