"""Real brokers, the real command, real clients; nothing here is simulated. How to run them: docs/testing.md."""
