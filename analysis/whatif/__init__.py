"""What proposed quotas would have done: the job, its comparison in words and numbers, its page."""
