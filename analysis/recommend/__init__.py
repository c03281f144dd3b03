"""The smallest quotas that meet a target: the job, and the quota file that it writes."""
