"""Tests mirror the tree; ``tests.harness`` starts real brokers and clients for them, the demo and the benchmark."""
