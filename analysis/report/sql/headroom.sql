-- Used over limit of each counter that has one: percentiles over all seconds of the period.
-- Gold has how many seconds had which value above 0; all others of the period are 0, and below these.
WITH sums AS (
    SELECT r.counter, count(*) AS parts, sum(r.over_s) AS over_s, sum(r.busy_s) AS busy_s, sum(r.used_s) AS used_s,
        max(r.max) AS max, max(r.most_window) AS most_window, arg_max(r."limit", r.last_ms) AS "limit",
        greatest(round((getvariable('end_ms') - getvariable('begin_ms')) / 1000), sum(r.busy_s), 1) AS whole_s
    FROM readings r
    WHERE r."limit" > 0
    GROUP BY r.counter
), sought AS (
    -- The rank of each percentile among the values above 0; below 1: it is one of the zeros.
    SELECT counter, parts, ceil(whole_s * 0.50) - (whole_s - busy_s) AS rank50,
        ceil(whole_s * 0.95) - (whole_s - busy_s) AS rank95, ceil(whole_s * 0.99) - (whole_s - busy_s) AS rank99
    FROM sums WHERE ceil(whole_s * 0.99) > whole_s - busy_s
), values_of AS (
    SELECT r.counter, s.parts, unnest(r."values") AS value, unnest(r.seconds)::DOUBLE AS seconds
    FROM readings r JOIN sought s ON s.counter = r.counter
), ranked AS (
    SELECT counter, value, sum(seconds) OVER (PARTITION BY counter ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM (
        SELECT counter, value, seconds FROM values_of WHERE parts = 1
        UNION ALL SELECT counter, value, sum(seconds) FROM values_of WHERE parts > 1 GROUP BY counter, value)
), percentiles AS (
    SELECT s.counter, min(value) FILTER (rank50 >= 1 AND rank >= rank50) AS p50,
        min(value) FILTER (rank95 >= 1 AND rank >= rank95) AS p95, min(value) FILTER (rank >= rank99) AS p99
    FROM sought s JOIN ranked r ON r.counter = s.counter
    GROUP BY s.counter
)
SELECT l.*, least(coalesce(p.p50, 0), s.max) AS p50, least(coalesce(p.p95, 0), s.max) AS p95,
    least(coalesce(p.p99, 0), s.max) AS p99, s.max, s.over_s / s.whole_s AS "over", s."limit",
    s.busy_s / s.whole_s AS active, s.used_s, s.most_window
FROM sums s JOIN limits l ON l.counter = s.counter LEFT JOIN percentiles p ON p.counter = s.counter
ORDER BY p99 DESC, s.max DESC, l.counter
