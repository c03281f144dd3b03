-- The daily p99 of used over limit (UTC), for the trend: periods of five days or more, limits used to a tenth or more.
WITH sums AS (
    SELECT r.counter, r.date, sum(r.busy) AS busy, max(r.max) AS max, arg_max(r."limit", r.last_ms) AS "limit",
        epoch_ms(r.date) AS midnight_ms,
        least(midnight_ms + 86400000, getvariable('end_ms')) - greatest(midnight_ms, getvariable('begin_ms')) AS length_ms,
        greatest(round(length_ms / any_value(h.interval_ms)), sum(r.busy), 1) AS whole
    FROM readings r JOIN headroom h ON h.counter = r.counter
    WHERE r."limit" > 0 AND h.max >= 0.1 AND getvariable('days') >= 5
    GROUP BY r.counter, r.date
), values_of AS (
    SELECT r.counter, r.date, ceil(s.whole * 0.99) - (s.whole - s.busy) AS rank99, unnest(r."values") AS value, unnest(r.counts)::DOUBLE AS intervals
    FROM readings r JOIN sums s ON s.counter = r.counter AND s.date = r.date
    WHERE ceil(s.whole * 0.99) > s.whole - s.busy
), ranked AS (
    SELECT *, sum(intervals) OVER (PARTITION BY counter, date ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM values_of
), percentiles AS (
    SELECT counter, date, min(value) AS p99 FROM ranked WHERE rank >= rank99 GROUP BY counter, date
)
SELECT s.counter, s.date, s.length_ms, least(coalesce(p.p99, 0), s.max) AS p99, s.max, s.busy / s.whole AS active, s."limit"
FROM sums s LEFT JOIN percentiles p ON p.counter = s.counter AND p.date = s.date
ORDER BY s.counter, s.date
