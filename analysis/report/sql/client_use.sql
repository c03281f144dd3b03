-- Usage of one client and of all clients, by counter of the client and UTC hour, with the limits.
-- tables.py creates the view everybody: gold's charged without the filter.
SELECT counter, any_value(kind) AS kind, any_value(role) AS role, any_value(broker) AS broker,
    any_value(instance) AS instance, any_value(rule) AS rule,
    epoch(date)::BIGINT + hour * 3600 AS at_s, sum(used) FILTER (is_own) AS used, sum(used) AS used_by_all,
    sum(sum(used) FILTER (is_own)) OVER (PARTITION BY counter) AS in_all,
    sum(muted_ms) FILTER (is_own) AS muted_ms, min(least_limit) AS least_limit, max(most_limit) AS most_limit,
    any_value(per_used) AS per_used
FROM everybody
WHERE role <> 'shadow'
GROUP BY counter, date, hour
ORDER BY in_all DESC NULLS LAST, counter, at_s
