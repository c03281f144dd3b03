-- Rejected documents of any time: by reason, with the first place of each.
SELECT fault, documents, first.*
FROM (
    SELECT fault, count(*) AS documents,
        min({topic: topic, partition: partition, "offset": "offset", file: file, line: line}) AS first
    FROM gold.rejected GROUP BY fault)
ORDER BY documents DESC, fault
