"""Each module is a command of `sluice quotas`, by its name."""
