WITH steps AS (
    SELECT counter, pair.values AS value, sum(pair.seconds) AS seconds
    FROM hours LATERAL VIEW explode(arrays_zip(values, seconds)) AS pair GROUP BY counter, pair.values),
spread AS (
    SELECT counter, sort_array(collect_list(struct(value, seconds))) AS pairs FROM steps GROUP BY counter)
SELECT counter, coalesce(transform(pairs, x -> x.value), CAST(array() AS ARRAY<FLOAT>)) AS values,
    coalesce(transform(pairs, x -> CAST(x.seconds AS INT)), CAST(array() AS ARRAY<INT>)) AS seconds,
    over_s, busy_s, used_s, max, most_window, limit, last_ms
FROM (
    SELECT counter, sum(over_s) AS over_s, sum(busy_s) AS busy_s, sum(used_s) AS used_s, max(max) AS max,
        max(most_window) AS most_window, max_by(limit, last_ms) AS limit, max(last_ms) AS last_ms
    FROM hours GROUP BY counter)
LEFT JOIN spread USING (counter)
