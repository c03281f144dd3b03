"""A reliability harness: a ledger of records, client libraries, faults, and one verdict.

`python -m bench.reliability` starts three brokers and Sluice with two workers, both behind fault proxies. For each
fault it starts producers of each client library in each mode (clients.py), lets the fault strike (faults.py), and
compares what was acknowledged with what is stored (ledger.py). The product imports none of it.
"""
