-- What one client used of each of its counters in each UTC hour, what all on the counter used, and the limits.
-- The runner makes the view everybody: gold's charged without the filter.
SELECT a.counter, any_value(l.kind) AS kind, any_value(l.role) AS role, any_value(l.broker) AS broker,
    any_value(l.instance) AS instance, any_value(l.rule) AS rule,
    epoch(a.date)::BIGINT + a.hour * 3600 AS at_s, sum(a.used) FILTER (a.is_own) AS used, sum(a.used) AS used_by_all,
    sum(a.muted_ms) FILTER (a.is_own) AS muted_ms, min(a.least_limit) AS least_limit, max(a.most_limit) AS most_limit,
    any_value(a.per_used) AS per_used
FROM everybody a JOIN limits l ON l.counter = a.counter
WHERE a.role <> 'shadow'
GROUP BY a.counter, a.date, a.hour
ORDER BY sum(sum(a.used) FILTER (a.is_own)) OVER (PARTITION BY a.counter) DESC NULLS LAST, a.counter, at_s
