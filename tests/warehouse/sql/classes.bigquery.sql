SELECT
  *
FROM (
  SELECT
    `t15`.`part`,
    `t15`.`name`,
    `t15`.`number`,
    `t15`.`cell`,
    COUNT(*) AS `answers`,
    COUNT(`t15`.`confidence`) AS `count`,
    SUM(`t15`.`right`) AS `correct`,
    COUNTIF((
      `t15`.`part` = 0
    ) AND (
      `t15`.`is_zero` = 1
    )) AS `zeros`,
    SUM(`t15`.`confidence`) AS `confidence`,
    SUM(IF(`t15`.`part` = 0, `t15`.`nll`, NULL)) AS `nll`,
    SUM(IF(`t15`.`part` = 0, `t15`.`nll` * `t15`.`nll`, NULL)) AS `nll_squared`,
    SUM(IF(`t15`.`part` = 0, `t15`.`brier`, NULL)) AS `brier`,
    SUM(IF(`t15`.`part` = 0, `t15`.`brier` * `t15`.`brier`, NULL)) AS `brier_squared`,
    COUNT(`t15`.`problem`) AS `problems`
  FROM (
    SELECT
      CASE
        WHEN `t8`.`part` = 0
        THEN `t14`.`class_code`
        WHEN `t8`.`part` = 4
        THEN `t14`.`period`
        ELSE 0
      END AS `number`,
      `t14`.`top_cell` AS `cell`,
      `t14`.`top` AS `confidence`,
      `t14`.`correct` AS `right`,
      `t14`.`nll`,
      `t14`.`brier`,
      `t8`.`part`,
      CASE
        WHEN `t8`.`part` = 1
        THEN `t14`.`group_version`
        WHEN `t8`.`part` = 2
        THEN `t14`.`group_tag`
        ELSE CAST(NULL AS STRING)
      END AS `name`,
      CASE WHEN `t14`.`problem` = 0 THEN CAST(NULL AS INT64) ELSE 1 END AS `problem`,
      `t14`.`is_zero`
    FROM (
      SELECT
        `t12`.`label_code`,
        `t12`.`named`,
        `t12`.`group_version`,
        `t12`.`group_tag`,
        `t12`.`period`,
        `t12`.`p0`,
        `t12`.`p1`,
        `t12`.`top`,
        `t12`.`true`,
        `t12`.`squares`,
        `t12`.`problem`,
        `t12`.`class_code`,
        `t12`.`confidence`,
        `t12`.`loss`,
        `t12`.`nll`,
        `t12`.`brier`,
        `t12`.`is_zero`,
        `t12`.`least_nll`,
        `t12`.`correct`,
        `t12`.`below`,
        `t12`.`near_cell`,
        CAST(TRUNC(`t12`.`near_cell`) AS INT64) AS `top_cell`
      FROM (
        SELECT
          `t11`.`label_code`,
          `t11`.`named`,
          `t11`.`group_version`,
          `t11`.`group_tag`,
          `t11`.`period`,
          `t11`.`p0`,
          `t11`.`p1`,
          CASE
            WHEN `t11`.`label_code` >= 0
            THEN `t11`.`confidence`
            ELSE CAST(NULL AS FLOAT64)
          END AS `top`,
          `t11`.`true`,
          `t11`.`squares`,
          `t11`.`problem`,
          `t11`.`class_code`,
          `t11`.`confidence`,
          `t11`.`loss`,
          -(
            LN(
              CASE
                WHEN `t11`.`true` < CAST('2.2250738585072014e-308' AS FLOAT64)
                THEN CAST('2.2250738585072014e-308' AS FLOAT64)
                WHEN `t11`.`true` > CAST('1.0' AS FLOAT64)
                THEN CAST('1.0' AS FLOAT64)
                ELSE `t11`.`true`
              END
            )
          ) AS `nll`,
          CASE
            WHEN `t11`.`loss` < CAST('0.0' AS FLOAT64)
            THEN CAST('0.0' AS FLOAT64)
            ELSE `t11`.`loss`
          END AS `brier`,
          CASE WHEN `t11`.`true` <= CAST('0.0' AS FLOAT64) THEN 1 ELSE 0 END AS `is_zero`,
          CAST('0.0' AS FLOAT64) AS `least_nll`,
          CASE
            WHEN `t11`.`label_code` >= 0
            THEN CASE
              WHEN `t11`.`label_code` = `t11`.`class_code`
              THEN CAST('1.0' AS FLOAT64)
              ELSE CAST('0.0' AS FLOAT64)
            END
            ELSE CAST(NULL AS FLOAT64)
          END AS `correct`,
          CAST(CAST(FLOOR(`t11`.`confidence` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64) AS `below`,
          CASE
            WHEN (
              `t11`.`confidence` <= ieee_divide(
                CAST(CAST(FLOOR(`t11`.`confidence` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64),
                CAST('3000.0' AS FLOAT64)
              )
            )
            AND (
              CAST(CAST(FLOOR(`t11`.`confidence` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64) > CAST('0.0' AS FLOAT64)
            )
            THEN CAST(CAST(FLOOR(`t11`.`confidence` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64) - CAST('1.0' AS FLOAT64)
            ELSE CAST(CAST(FLOOR(`t11`.`confidence` * CAST('3000.0' AS FLOAT64)) AS INT64) AS FLOAT64)
          END AS `near_cell`
        FROM (
          SELECT
            `t10`.`label_code`,
            `t10`.`named`,
            `t10`.`group_version`,
            `t10`.`group_tag`,
            `t10`.`period`,
            `t10`.`p0`,
            `t10`.`p1`,
            `t10`.`top`,
            `t10`.`true`,
            `t10`.`squares`,
            `t10`.`problem`,
            CASE
              WHEN `t10`.`p0` >= `t10`.`top`
              THEN 0
              WHEN `t10`.`p1` >= `t10`.`top`
              THEN 1
              ELSE 0
            END AS `class_code`,
            CASE
              WHEN `t10`.`problem` <> 0
              THEN CAST('0.0' AS FLOAT64)
              WHEN `t10`.`top` > CAST('1.0' AS FLOAT64)
              THEN CAST('1.0' AS FLOAT64)
              ELSE `t10`.`top`
            END AS `confidence`,
            (
              `t10`.`squares` - (
                CAST('2.0' AS FLOAT64) * `t10`.`true`
              )
            ) + CAST('1.0' AS FLOAT64) AS `loss`
          FROM (
            SELECT
              `t9`.`label_code`,
              `t9`.`named`,
              `t9`.`group_version`,
              `t9`.`group_tag`,
              `t9`.`period`,
              `t9`.`p0`,
              `t9`.`p1`,
              GREATEST(`t9`.`p0`, `t9`.`p1`) AS `top`,
              CASE
                WHEN `t9`.`label_code` >= 0
                THEN CASE WHEN `t9`.`label_code` < 1 THEN `t9`.`p0` ELSE `t9`.`p1` END
                ELSE CAST(NULL AS FLOAT64)
              END AS `true`,
              CASE
                WHEN (
                  `t9`.`p0` >= CAST('1e-75' AS FLOAT64)
                )
                AND (
                  `t9`.`p0` <= CAST('2.0' AS FLOAT64)
                )
                THEN `t9`.`p0` * `t9`.`p0`
                ELSE CAST('0.0' AS FLOAT64)
              END + CASE
                WHEN (
                  `t9`.`p1` >= CAST('1e-75' AS FLOAT64)
                )
                AND (
                  `t9`.`p1` <= CAST('2.0' AS FLOAT64)
                )
                THEN `t9`.`p1` * `t9`.`p1`
                ELSE CAST('0.0' AS FLOAT64)
              END AS `squares`,
              CASE
                WHEN `t9`.`label_code` = -2
                THEN 5
                WHEN (
                  ABS((
                    `t9`.`p0` + `t9`.`p1`
                  ) - CAST('1.0' AS FLOAT64)) < CAST('0.0009000000000000001' AS FLOAT64)
                )
                AND (
                  (
                    `t9`.`p0` >= CAST('0.0' AS FLOAT64)
                  )
                  AND (
                    `t9`.`p1` >= CAST('0.0' AS FLOAT64)
                  )
                )
                THEN 0
                ELSE -1
              END AS `problem`
            FROM (
              SELECT
                CASE
                  WHEN `t0`.`label` IS NULL
                  THEN -1
                  WHEN `t0`.`label` = 'class 0'
                  THEN 0
                  WHEN `t0`.`label` = 'class 1'
                  THEN 1
                  ELSE -2
                END AS `label_code`,
                -2 AS `named`,
                `t0`.`version` AS `group_version`,
                `t0`.`tag` AS `group_tag`,
                CAST(FLOOR(ieee_divide(CAST(`t0`.`time` AS FLOAT64), CAST('86400.0' AS FLOAT64))) AS INT64) AS `period`,
                `t0`.`class 0` AS `p0`,
                `t0`.`class 1` AS `p1`
              FROM `answers` AS `t0`
            ) AS `t9`
          ) AS `t10`
        ) AS `t11`
      ) AS `t12`
    ) AS `t14`
    CROSS JOIN (
      SELECT
        *
      FROM (
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
            1 AS `part`
        ) AS `t2`
      ) AS `t5`
      UNION ALL
      SELECT
        *
      FROM (
        SELECT
          *
        FROM (
          SELECT
            2 AS `part`
        ) AS `t3`
        UNION ALL
        SELECT
          *
        FROM (
          SELECT
            4 AS `part`
        ) AS `t4`
      ) AS `t6`
    ) AS `t8`
  ) AS `t15`
  GROUP BY
    1,
    2,
    3,
    4
) AS `t16`
