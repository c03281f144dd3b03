-- The circumstances of the recording, as one struct.
SELECT {
    begin_ms: min(begin_ms), end_ms: max(end_ms), origin_ms: (SELECT min(origin_ms) FROM origins),
    instances: count(DISTINCT (cluster, instance)),
    samples: arg_max(window_ms // sample_ms, end_ms), sample_ms: arg_max(sample_ms, end_ms),
    windows: count(DISTINCT (window_ms, sample_ms)), modes: list_sort(list(DISTINCT mode)),
    interval_ms: sum(active_ms) / sum(rows), exempt_rows: CAST(coalesce(sum(rows) FILTER (exempt), 0) AS BIGINT),
    documents: (SELECT count(*) FROM documents),
    missing_documents: (
        SELECT CAST(coalesce(sum(missing), 0) AS BIGINT) FROM (
            SELECT max(seq) + 1 - CASE WHEN bool_or(is_first) THEN 0 ELSE min(seq) END - count(*) AS missing
            FROM documents GROUP BY cluster, instance, boot)
    )
}
FROM client
