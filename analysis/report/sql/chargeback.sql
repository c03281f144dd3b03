-- Usage of each user and local day, in columns of FOCUS 1.0. tables.py creates local_days and rates.
WITH used AS (
    SELECT u.cluster, coalesce(u."user", '(nobody: refused connections)') AS "user", h.day, h.day_ms, h.next_day_ms,
        h.month_ms, h.next_month_ms, sum(bytes_in) AS bytes_in, sum(bytes_out) AS bytes_out, sum(requests) AS requests
    FROM (SELECT *, epoch_ms(date::TIMESTAMP) + hour * 3600000 + minute * 60000 AS at_ms FROM users) u
    JOIN local_days h ON u.at_ms >= h.day_ms AND u.at_ms < h.next_day_ms
    GROUP BY ALL
), known AS (
    SELECT cluster, day, sum(documents) / sum(expected) AS share
    FROM (SELECT *, epoch_ms(hour) AS at_ms FROM loss) l
    JOIN local_days h ON l.at_ms + 3600000 > h.day_ms AND l.at_ms < h.next_day_ms
    GROUP BY cluster, day
), lines AS (
    UNPIVOT used ON bytes_in, bytes_out, requests INTO NAME sku VALUE quantity
)
SELECT to_timestamp(month_ms / 1000) AS BillingPeriodStart, to_timestamp(next_month_ms / 1000) AS BillingPeriodEnd,
    to_timestamp(greatest(day_ms, getvariable('begin_ms')) / 1000) AS ChargePeriodStart,
    to_timestamp(least(next_day_ms, getvariable('end_ms')) / 1000) AS ChargePeriodEnd, 'Usage' AS ChargeCategory,
    description AS ChargeDescription, 'Apache Kafka' AS ServiceName, 'Integration' AS ServiceCategory,
    cluster AS ResourceId, "user" AS SubAccountId, "user" AS SubAccountName, sku AS SkuId,
    quantity::BIGINT AS ConsumedQuantity, consumed_unit AS ConsumedUnit, quantity / per AS PricingQuantity,
    pricing_unit AS PricingUnit, price AS ListUnitPrice, quantity / per * price AS BilledCost,
    quantity / per * price AS EffectiveCost, currency AS BillingCurrency, known.share AS x_ShareKnown
FROM lines JOIN rates USING (sku) LEFT JOIN known USING (cluster, day)
ORDER BY SubAccountId, ResourceId, ChargePeriodStart, SkuId
