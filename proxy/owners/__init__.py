"""Owners of brokers: with several instances, each broker is served by one of them, so that all its counters are in one
process. Clients are told a broker's address at its owner. It knows no client's connection; ``edge`` does.
"""
