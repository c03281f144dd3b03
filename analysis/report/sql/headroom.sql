-- Used over limit of each counter that has one: percentiles over all intervals of the period.
-- Gold has how many intervals had which value above 0; all others of the period are 0, and below these.
WITH values_of AS (
    SELECT counter, unnest("values") AS value, unnest(counts) AS intervals FROM readings
), ranked AS (
    SELECT counter, value, sum(intervals::DOUBLE) OVER (PARTITION BY counter ORDER BY value ROWS UNBOUNDED PRECEDING) AS rank
    FROM values_of
), sums AS (
    SELECT r.counter, sum(r."over") AS "over", sum(r.busy) AS busy, sum(r.used_intervals) AS used_intervals,
        max(r.max) AS max, max(r.most_window) AS most_window, arg_max(r."limit", r.last_ms) AS "limit",
        greatest(round((getvariable('end_ms') - getvariable('begin_ms')) / any_value(l.interval_ms)), sum(r.busy), 1) AS whole
    FROM readings r JOIN limits l ON l.counter = r.counter
    WHERE r."limit" > 0 AND l.rule IS NOT NULL
    GROUP BY r.counter
), sought AS (
    -- The rank of each percentile among the values above 0; null: it is one of the zeros.
    SELECT *, (nullif(greatest(ceil(whole * 0.50) - (whole - busy), 0), 0))::DOUBLE AS rank50,
        (nullif(greatest(ceil(whole * 0.95) - (whole - busy), 0), 0))::DOUBLE AS rank95,
        (nullif(greatest(ceil(whole * 0.99) - (whole - busy), 0), 0))::DOUBLE AS rank99,
        ceil(busy * 0.50)::DOUBLE AS active50, ceil(busy * 0.95)::DOUBLE AS active95, ceil(busy * 0.99)::DOUBLE AS active99
    FROM sums
), percentiles AS (
    SELECT s.counter,
        min(value) FILTER (rank >= rank50) AS p50, min(value) FILTER (rank >= rank95) AS p95,
        min(value) FILTER (rank >= rank99) AS p99, min(value) FILTER (rank >= active50) AS active_p50,
        min(value) FILTER (rank >= active95) AS active_p95, min(value) FILTER (rank >= active99) AS active_p99
    FROM sought s JOIN ranked r ON r.counter = s.counter
    GROUP BY s.counter
)
SELECT l.*, least(coalesce(p.p50, 0), s.max) AS p50, least(coalesce(p.p95, 0), s.max) AS p95,
    least(coalesce(p.p99, 0), s.max) AS p99, s.max, s."over" / s.whole AS "over", s."limit", s.busy / s.whole AS active,
    least(p.active_p50, s.max) AS active_p50, least(p.active_p95, s.max) AS active_p95,
    least(p.active_p99, s.max) AS active_p99, s.used_intervals, s.most_window
FROM sums s JOIN limits l ON l.counter = s.counter LEFT JOIN percentiles p ON p.counter = s.counter
ORDER BY p99 DESC, s.max DESC, l.counter
