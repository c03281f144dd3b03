-- The p99 of used over limit on each UTC date, for the trend: of periods of five days or more.
WITH values_of AS (
    SELECT counter, date, unnest("values") AS value, unnest(counts) AS intervals
    FROM readings WHERE getvariable('days') >= 5
), ranked AS (
    SELECT *, sum(intervals) OVER (PARTITION BY counter, date ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM values_of
), sums AS (
    SELECT r.counter, r.date, sum(r.busy) AS busy, max(r.max) AS max, arg_max(r."limit", r.last_ms) AS "limit",
        epoch_ms(r.date) AS midnight_ms,
        least(midnight_ms + 86400000, getvariable('end_ms')) - greatest(midnight_ms, getvariable('begin_ms')) AS length_ms,
        greatest(round(length_ms / any_value(l.interval_ms)), sum(r.busy), 1) AS whole
    FROM readings r JOIN limits l ON l.counter = r.counter
    WHERE r."limit" > 0 AND l.rule IS NOT NULL AND getvariable('days') >= 5
    GROUP BY r.counter, r.date
)
SELECT s.counter, s.date, s.length_ms, least(coalesce(min(value) FILTER (
        rank >= ceil(whole * 0.99) - (whole - busy) AND ceil(whole * 0.99) > whole - busy), 0), any_value(s.max)) AS p99,
    any_value(s.max) AS max, any_value(s.busy / s.whole) AS active, any_value(s."limit") AS "limit"
FROM sums s LEFT JOIN ranked r ON r.counter = s.counter AND r.date = s.date
GROUP BY s.counter, s.date, s.length_ms
ORDER BY s.counter, s.date
