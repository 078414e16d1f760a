SELECT
  *
FROM (
  SELECT
    `t9`.`part`,
    `t9`.`name`,
    `t9`.`number`,
    `t9`.`cell`,
    COUNT(*) AS `answers`,
    COUNT(`t9`.`confidence`) AS `count`,
    SUM(`t9`.`right`) AS `correct`,
    COUNTIF((
      `t9`.`part` = 0
    ) AND (
      `t9`.`is_zero` = 1
    )) AS `zeros`,
    SUM(`t9`.`confidence`) AS `confidence`,
    SUM(IF(`t9`.`part` = 0, `t9`.`nll`, NULL)) AS `nll`,
    SUM(IF(`t9`.`part` = 0, `t9`.`nll` * `t9`.`nll`, NULL)) AS `nll_squared`,
    SUM(IF(`t9`.`part` = 0, `t9`.`brier`, NULL)) AS `brier`,
    SUM(IF(`t9`.`part` = 0, `t9`.`brier` * `t9`.`brier`, NULL)) AS `brier_squared`,
    COUNT(`t9`.`problem`) AS `problems`
  FROM (
    SELECT
      CASE WHEN `t4`.`part` = 0 THEN `t8`.`class_code` ELSE 0 END AS `number`,
      `t8`.`top_cell` AS `cell`,
      `t8`.`top` AS `confidence`,
      `t8`.`correct` AS `right`,
      `t8`.`nll`,
      `t8`.`brier`,
      `t4`.`part`,
      CASE WHEN `t4`.`part` = 2 THEN `t8`.`group_tag` ELSE CAST(NULL AS STRING) END AS `name`,
      CASE WHEN `t8`.`problem` = 0 THEN CAST(NULL AS INT64) ELSE 1 END AS `problem`,
      `t8`.`is_zero`
    FROM (
      SELECT
        `t6`.`given`,
        `t6`.`class_code`,
        `t6`.`label_code`,
        `t6`.`group_tag`,
        `t6`.`period`,
        `t6`.`clean`,
        `t6`.`problem`,
        `t6`.`clean` AS `confidence`,
        CAST(NULL AS FLOAT64) AS `nll`,
        CAST(NULL AS FLOAT64) AS `brier`,
        CAST('0.0' AS FLOAT64) AS `least_nll`,
        0 AS `is_zero`,
        CASE
          WHEN `t6`.`label_code` >= 0
          THEN CASE
            WHEN `t6`.`label_code` = `t6`.`class_code`
            THEN CAST('1.0' AS FLOAT64)
            ELSE CAST('0.0' AS FLOAT64)
          END
          ELSE CAST(NULL AS FLOAT64)
        END AS `correct`,
        CASE
          WHEN (
            CAST(FLOOR(`t6`.`clean` * CAST('3000.0' AS FLOAT64)) AS INT64) > 0
          )
          AND (
            `t6`.`clean` <= ieee_divide(
              CAST(CAST(FLOOR(`t6`.`clean` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64),
              CAST('3000.0' AS FLOAT64)
            )
          )
          THEN CAST(FLOOR(`t6`.`clean` * CAST('3000.0' AS FLOAT64)) AS INT64) - 1
          ELSE CAST(FLOOR(`t6`.`clean` * CAST('3000.0' AS FLOAT64)) AS INT64)
        END AS `top_cell`,
        CASE WHEN `t6`.`label_code` >= 0 THEN `t6`.`clean` ELSE CAST(NULL AS FLOAT64) END AS `top`
      FROM (
        SELECT
          `t5`.`given`,
          `t5`.`class_code`,
          `t5`.`label_code`,
          `t5`.`group_tag`,
          `t5`.`period`,
          CASE
            WHEN (
              CASE
                WHEN (
                  `t5`.`given` < CAST('0.0' AS FLOAT64)
                )
                AND (
                  `t5`.`given` >= CAST('-1e-06' AS FLOAT64)
                )
                THEN CAST('0.0' AS FLOAT64)
                ELSE `t5`.`given`
              END >= CAST('0.0' AS FLOAT64)
            )
            AND (
              CASE
                WHEN (
                  `t5`.`given` < CAST('0.0' AS FLOAT64)
                )
                AND (
                  `t5`.`given` >= CAST('-1e-06' AS FLOAT64)
                )
                THEN CAST('0.0' AS FLOAT64)
                ELSE `t5`.`given`
              END <= CAST('1.0' AS FLOAT64)
            )
            THEN CASE
              WHEN (
                `t5`.`given` < CAST('0.0' AS FLOAT64)
              )
              AND (
                `t5`.`given` >= CAST('-1e-06' AS FLOAT64)
              )
              THEN CAST('0.0' AS FLOAT64)
              ELSE `t5`.`given`
            END
            ELSE CAST('0.0' AS FLOAT64)
          END AS `clean`,
          CASE
            WHEN `t5`.`given` IS NULL
            THEN 1
            WHEN IF(
              (
                CASE
                  WHEN (
                    `t5`.`given` < CAST('0.0' AS FLOAT64)
                  )
                  AND (
                    `t5`.`given` >= CAST('-1e-06' AS FLOAT64)
                  )
                  THEN CAST('0.0' AS FLOAT64)
                  ELSE `t5`.`given`
                END >= CAST('0.0' AS FLOAT64)
              )
              AND (
                CASE
                  WHEN (
                    `t5`.`given` < CAST('0.0' AS FLOAT64)
                  )
                  AND (
                    `t5`.`given` >= CAST('-1e-06' AS FLOAT64)
                  )
                  THEN CAST('0.0' AS FLOAT64)
                  ELSE `t5`.`given`
                END <= CAST('1.0' AS FLOAT64)
              ),
              0,
              1
            ) = 1
            THEN 2
            WHEN (
              `t5`.`label_code` = -2
            ) OR (
              `t5`.`class_code` = -2
            )
            THEN 5
            ELSE 0
          END AS `problem`
        FROM (
          SELECT
            `t0`.`confidence` AS `given`,
            0 AS `class_code`,
            CASE
              WHEN CASE
                WHEN `t0`.`correct` IS NULL
                THEN -1
                WHEN NOT (
                  `t0`.`correct`
                )
                THEN 0
                WHEN `t0`.`correct`
                THEN 1
                ELSE -2
              END = 1
              THEN 0
              WHEN CASE
                WHEN `t0`.`correct` IS NULL
                THEN -1
                WHEN NOT (
                  `t0`.`correct`
                )
                THEN 0
                WHEN `t0`.`correct`
                THEN 1
                ELSE -2
              END = 0
              THEN 1
              ELSE CASE
                WHEN `t0`.`correct` IS NULL
                THEN -1
                WHEN NOT (
                  `t0`.`correct`
                )
                THEN 0
                WHEN `t0`.`correct`
                THEN 1
                ELSE -2
              END
            END AS `label_code`,
            `t0`.`tag` AS `group_tag`,
            0 AS `period`
          FROM `answers` AS `t0`
        ) AS `t5`
      ) AS `t6`
    ) AS `t8`
    CROSS JOIN (
      SELECT
        *
      FROM (
        SELECT
          0 AS `part`
      ) AS `t1`
      UNION ALL
      SELECT
        *
      FROM (
        SELECT
          2 AS `part`
      ) AS `t2`
    ) AS `t4`
  ) AS `t9`
  GROUP BY
    1,
    2,
    3,
    4
) AS `t10`
