"""The smallest quotas that meet a target: whose they are, the job, and the quota file that it writes."""
