-- The daily p99 of used over limit (UTC), for the trend: periods of five days or more, limits used to a tenth or more.
WITH sums AS (
    SELECT r.counter, r.date, sum(r.busy_s) AS busy_s, max(r.max) AS max, arg_max(r."limit", r.last_ms) AS "limit",
        epoch_ms(r.date) AS midnight_ms,
        least(midnight_ms + 86400000, getvariable('end_ms')) - greatest(midnight_ms, getvariable('begin_ms')) AS length_ms,
        greatest(round(length_ms / 1000), sum(r.busy_s), 1) AS whole_s
    FROM readings r JOIN headroom h ON h.counter = r.counter
    WHERE r."limit" > 0 AND h.max >= 0.1 AND getvariable('days') >= 5
    GROUP BY r.counter, r.date
), values_of AS (
    SELECT r.counter, r.date, ceil(s.whole_s * 0.99) - (s.whole_s - s.busy_s) AS rank99, unnest(r."values") AS value,
        unnest(r.seconds)::DOUBLE AS seconds
    FROM readings r JOIN sums s ON s.counter = r.counter AND s.date = r.date
    WHERE ceil(s.whole_s * 0.99) > s.whole_s - s.busy_s
), ranked AS (
    SELECT *, sum(seconds) OVER (PARTITION BY counter, date ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM values_of
), percentiles AS (
    SELECT counter, date, min(value) AS p99 FROM ranked WHERE rank >= rank99 GROUP BY counter, date
)
SELECT s.counter, s.date, s.length_ms, least(coalesce(p.p99, 0), s.max) AS p99, s.max, s.busy_s / s.whole_s AS active, s."limit"
FROM sums s LEFT JOIN percentiles p ON p.counter = s.counter AND p.date = s.date
ORDER BY s.counter, s.date
