-- Used over limit of each counter that has one: percentiles over all intervals of the period.
-- Gold has how many intervals had which value above 0; all others of the period are 0, and below these.
WITH sums AS (
    SELECT r.counter, count(*) AS parts, sum(r."over") AS "over", sum(r.busy) AS busy, sum(r.used_intervals) AS used_intervals,
        max(r.max) AS max, max(r.most_window) AS most_window, arg_max(r."limit", r.last_ms) AS "limit",
        greatest(round((getvariable('end_ms') - getvariable('begin_ms')) / any_value(l.interval_ms)), sum(r.busy), 1) AS whole
    FROM readings r JOIN limits l ON l.counter = r.counter
    WHERE r."limit" > 0
    GROUP BY r.counter
), sought AS (
    -- The rank of each percentile among the values above 0; below 1: it is one of the zeros.
    SELECT counter, parts, ceil(whole * 0.50) - (whole - busy) AS rank50, ceil(whole * 0.95) - (whole - busy) AS rank95,
        ceil(whole * 0.99) - (whole - busy) AS rank99
    FROM sums WHERE ceil(whole * 0.99) > whole - busy
), values_of AS (
    SELECT r.counter, s.parts, unnest(r."values") AS value, unnest(r.counts)::DOUBLE AS intervals
    FROM readings r JOIN sought s ON s.counter = r.counter
), ranked AS (
    SELECT counter, value, sum(intervals) OVER (PARTITION BY counter ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM (
        SELECT counter, value, intervals FROM values_of WHERE parts = 1
        UNION ALL SELECT counter, value, sum(intervals) FROM values_of WHERE parts > 1 GROUP BY counter, value)
), percentiles AS (
    SELECT s.counter, min(value) FILTER (rank50 >= 1 AND rank >= rank50) AS p50,
        min(value) FILTER (rank95 >= 1 AND rank >= rank95) AS p95, min(value) FILTER (rank >= rank99) AS p99
    FROM sought s JOIN ranked r ON r.counter = s.counter
    GROUP BY s.counter
)
SELECT l.*, least(coalesce(p.p50, 0), s.max) AS p50, least(coalesce(p.p95, 0), s.max) AS p95,
    least(coalesce(p.p99, 0), s.max) AS p99, s.max, s."over" / s.whole AS "over", s."limit", s.busy / s.whole AS active,
    s.used_intervals, s.most_window
FROM sums s JOIN limits l ON l.counter = s.counter LEFT JOIN percentiles p ON p.counter = s.counter
ORDER BY p99 DESC, s.max DESC, l.counter
