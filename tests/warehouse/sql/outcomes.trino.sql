SELECT
  *
FROM (
  SELECT
    "t10"."part",
    "t10"."name",
    "t10"."number",
    "t10"."cell",
    COUNT(*) AS "answers",
    COUNT("t10"."confidence") AS "count",
    SUM("t10"."right") AS "correct",
    COUNT(*) FILTER(WHERE
      (
        "t10"."part" = 0
      ) AND (
        "t10"."is_zero" = 1
      )) AS "zeros",
    SUM("t10"."confidence") AS "confidence",
    SUM("t10"."nll") FILTER(WHERE
      "t10"."part" = 0) AS "nll",
    SUM("t10"."nll" * "t10"."nll") FILTER(WHERE
      "t10"."part" = 0) AS "nll_squared",
    SUM("t10"."brier") FILTER(WHERE
      "t10"."part" = 0) AS "brier",
    SUM("t10"."brier" * "t10"."brier") FILTER(WHERE
      "t10"."part" = 0) AS "brier_squared",
    COUNT("t10"."problem") AS "problems"
  FROM (
    SELECT
      CASE WHEN "t4"."part" = 0 THEN "t9"."class_code" ELSE 0 END AS "number",
      "t9"."top_cell" AS "cell",
      "t9"."top" AS "confidence",
      "t9"."correct" AS "right",
      "t9"."nll",
      "t9"."brier",
      "t4"."part",
      CASE WHEN "t4"."part" = 2 THEN "t9"."group_tag" ELSE CAST(NULL AS VARCHAR) END AS "name",
      CASE WHEN "t9"."problem" = 0 THEN CAST(NULL AS TINYINT) ELSE 1 END AS "problem",
      "t9"."is_zero"
    FROM (
      SELECT
        "t7"."given",
        "t7"."class_code",
        "t7"."label_code",
        "t7"."group_tag",
        "t7"."period",
        "t7"."clean",
        "t7"."problem",
        "t7"."confidence",
        "t7"."nll",
        "t7"."brier",
        "t7"."least_nll",
        "t7"."is_zero",
        CASE WHEN "t7"."label_code" >= 0 THEN "t7"."correct" ELSE CAST(NULL AS DOUBLE) END AS "correct",
        "t7"."below",
        CASE
          WHEN (
            "t7"."confidence" <= (
              "t7"."below" / CAST('3000.0' AS DOUBLE)
            )
          )
          AND (
            "t7"."below" > CAST('0.0' AS DOUBLE)
          )
          THEN "t7"."below" - CAST('1.0' AS DOUBLE)
          ELSE "t7"."below"
        END AS "near_cell",
        CASE
          WHEN "t7"."label_code" >= 0
          THEN "t7"."confidence"
          ELSE CAST(NULL AS DOUBLE)
        END AS "top",
        CAST(CASE
          WHEN (
            "t7"."confidence" <= (
              "t7"."below" / CAST('3000.0' AS DOUBLE)
            )
          )
          AND (
            "t7"."below" > CAST('0.0' AS DOUBLE)
          )
          THEN "t7"."below" - CAST('1.0' AS DOUBLE)
          ELSE "t7"."below"
        END AS BIGINT) AS "top_cell"
      FROM (
        SELECT
          "t6"."given",
          "t6"."class_code",
          "t6"."label_code",
          "t6"."group_tag",
          "t6"."period",
          "t6"."clean",
          "t6"."problem",
          "t6"."clean" AS "confidence",
          CAST(NULL AS DOUBLE) AS "nll",
          CAST(NULL AS DOUBLE) AS "brier",
          CAST('0.0' AS DOUBLE) AS "least_nll",
          0 AS "is_zero",
          CASE
            WHEN "t6"."label_code" = "t6"."class_code"
            THEN CAST('1.0' AS DOUBLE)
            ELSE CAST('0.0' AS DOUBLE)
          END AS "correct",
          CAST(CAST(FLOOR("t6"."clean" * CAST('3000.0' AS DOUBLE)) AS BIGINT) AS DOUBLE) AS "below"
        FROM (
          SELECT
            "t5"."given",
            "t5"."class_code",
            "t5"."label_code",
            "t5"."group_tag",
            "t5"."period",
            CASE
              WHEN (
                CASE
                  WHEN (
                    "t5"."given" < CAST('0.0' AS DOUBLE)
                  )
                  AND (
                    "t5"."given" >= CAST('-1e-06' AS DOUBLE)
                  )
                  THEN CAST('0.0' AS DOUBLE)
                  ELSE "t5"."given"
                END >= CAST('0.0' AS DOUBLE)
              )
              AND (
                CASE
                  WHEN (
                    "t5"."given" < CAST('0.0' AS DOUBLE)
                  )
                  AND (
                    "t5"."given" >= CAST('-1e-06' AS DOUBLE)
                  )
                  THEN CAST('0.0' AS DOUBLE)
                  ELSE "t5"."given"
                END <= CAST('1.0' AS DOUBLE)
              )
              THEN CASE
                WHEN (
                  "t5"."given" < CAST('0.0' AS DOUBLE)
                )
                AND (
                  "t5"."given" >= CAST('-1e-06' AS DOUBLE)
                )
                THEN CAST('0.0' AS DOUBLE)
                ELSE "t5"."given"
              END
              ELSE CAST('0.0' AS DOUBLE)
            END AS "clean",
            CASE
              WHEN "t5"."given" IS NULL
              THEN 1
              WHEN IF(
                (
                  CASE
                    WHEN (
                      "t5"."given" < CAST('0.0' AS DOUBLE)
                    )
                    AND (
                      "t5"."given" >= CAST('-1e-06' AS DOUBLE)
                    )
                    THEN CAST('0.0' AS DOUBLE)
                    ELSE "t5"."given"
                  END >= CAST('0.0' AS DOUBLE)
                )
                AND (
                  CASE
                    WHEN (
                      "t5"."given" < CAST('0.0' AS DOUBLE)
                    )
                    AND (
                      "t5"."given" >= CAST('-1e-06' AS DOUBLE)
                    )
                    THEN CAST('0.0' AS DOUBLE)
                    ELSE "t5"."given"
                  END <= CAST('1.0' AS DOUBLE)
                ),
                0,
                1
              ) = 1
              THEN 2
              WHEN (
                "t5"."label_code" = -2
              ) OR (
                "t5"."class_code" = -2
              )
              THEN 5
              ELSE 0
            END AS "problem"
          FROM (
            SELECT
              "t0"."confidence" AS "given",
              0 AS "class_code",
              CASE
                WHEN CASE
                  WHEN "t0"."correct" IS NULL
                  THEN -1
                  WHEN NOT (
                    "t0"."correct"
                  )
                  THEN 0
                  WHEN "t0"."correct"
                  THEN 1
                  ELSE -2
                END = 1
                THEN 0
                WHEN CASE
                  WHEN "t0"."correct" IS NULL
                  THEN -1
                  WHEN NOT (
                    "t0"."correct"
                  )
                  THEN 0
                  WHEN "t0"."correct"
                  THEN 1
                  ELSE -2
                END = 0
                THEN 1
                ELSE CASE
                  WHEN "t0"."correct" IS NULL
                  THEN -1
                  WHEN NOT (
                    "t0"."correct"
                  )
                  THEN 0
                  WHEN "t0"."correct"
                  THEN 1
                  ELSE -2
                END
              END AS "label_code",
              "t0"."tag" AS "group_tag",
              0 AS "period"
            FROM "answers" AS "t0"
          ) AS "t5"
        ) AS "t6"
      ) AS "t7"
    ) AS "t9"
    CROSS JOIN (
      SELECT
        *
      FROM (
        SELECT
          0 AS "part"
      ) AS "t1"
      UNION ALL
      SELECT
        *
      FROM (
        SELECT
          2 AS "part"
      ) AS "t2"
    ) AS "t4"
  ) AS "t10"
  GROUP BY
    1,
    2,
    3,
    4
) AS "t11"
