SELECT
  *
FROM (
  SELECT
    "t14"."part",
    "t14"."name",
    "t14"."number",
    "t14"."cell",
    COUNT(*) AS "answers",
    COUNT("t14"."confidence") AS "count",
    SUM("t14"."right") AS "correct",
    COUNT_IF((
      "t14"."part" = 0
    ) AND (
      "t14"."is_zero" = 1
    )) AS "zeros",
    SUM("t14"."confidence") AS "confidence",
    SUM(IFF("t14"."part" = 0, "t14"."nll", NULL)) AS "nll",
    SUM(IFF("t14"."part" = 0, "t14"."nll" * "t14"."nll", NULL)) AS "nll_squared",
    SUM(IFF("t14"."part" = 0, "t14"."brier", NULL)) AS "brier",
    SUM(IFF("t14"."part" = 0, "t14"."brier" * "t14"."brier", NULL)) AS "brier_squared",
    COUNT("t14"."problem") AS "problems"
  FROM (
    SELECT
      CASE
        WHEN "t8"."part" = 0
        THEN "t13"."class_code"
        WHEN "t8"."part" = 4
        THEN "t13"."period"
        ELSE 0
      END AS "number",
      "t13"."top_cell" AS "cell",
      "t13"."top" AS "confidence",
      "t13"."correct" AS "right",
      "t13"."nll",
      "t13"."brier",
      "t8"."part",
      CASE
        WHEN "t8"."part" = 1
        THEN "t13"."group_version"
        WHEN "t8"."part" = 2
        THEN "t13"."group_tag"
        ELSE CAST(NULL AS VARCHAR)
      END AS "name",
      CASE WHEN "t13"."problem" = 0 THEN CAST(NULL AS TINYINT) ELSE 1 END AS "problem",
      "t13"."is_zero"
    FROM (
      SELECT
        "t11"."label_code",
        "t11"."named",
        "t11"."group_version",
        "t11"."group_tag",
        "t11"."period",
        "t11"."p0",
        "t11"."p1",
        "t11"."sum",
        "t11"."sizes",
        CASE
          WHEN "t11"."label_code" >= 0
          THEN "t11"."confidence"
          ELSE CAST(NULL AS DOUBLE)
        END AS "top",
        "t11"."true",
        "t11"."squares",
        "t11"."problem",
        "t11"."class_code",
        "t11"."confidence",
        "t11"."nll",
        "t11"."brier",
        "t11"."is_zero",
        "t11"."least_nll",
        CASE WHEN "t11"."label_code" >= 0 THEN "t11"."correct" ELSE CAST(NULL AS DOUBLE) END AS "correct",
        CASE
          WHEN (
            CAST(FLOOR("t11"."confidence" * CAST('3000.0' AS DOUBLE)) AS BIGINT) > 0
          )
          AND (
            "t11"."confidence" <= (
              CAST(CAST(FLOOR("t11"."confidence" * CAST('3000.0' AS DOUBLE)) AS BIGINT) AS DOUBLE) / CAST('3000.0' AS DOUBLE)
            )
          )
          THEN CAST(FLOOR("t11"."confidence" * CAST('3000.0' AS DOUBLE)) AS BIGINT) - 1
          ELSE CAST(FLOOR("t11"."confidence" * CAST('3000.0' AS DOUBLE)) AS BIGINT)
        END AS "top_cell"
      FROM (
        SELECT
          "t10"."label_code",
          "t10"."named",
          "t10"."group_version",
          "t10"."group_tag",
          "t10"."period",
          "t10"."p0",
          "t10"."p1",
          "t10"."sum",
          "t10"."sizes",
          "t10"."top",
          "t10"."true",
          "t10"."squares",
          CASE WHEN "t10"."label_code" = -2 THEN 5 ELSE "t10"."problem" END AS "problem",
          CASE
            WHEN "t10"."p0" >= "t10"."top"
            THEN 0
            WHEN "t10"."p1" >= "t10"."top"
            THEN 1
            ELSE 0
          END AS "class_code",
          CASE
            WHEN "t10"."top" > CAST('1.0' AS DOUBLE)
            THEN CAST('1.0' AS DOUBLE)
            ELSE "t10"."top"
          END AS "confidence",
          -(
            LN(
              CASE
                WHEN "t10"."true" < CAST('2.2250738585072014e-308' AS DOUBLE)
                THEN CAST('2.2250738585072014e-308' AS DOUBLE)
                WHEN "t10"."true" > CAST('1.0' AS DOUBLE)
                THEN CAST('1.0' AS DOUBLE)
                ELSE "t10"."true"
              END
            )
          ) AS "nll",
          CASE
            WHEN (
              (
                "t10"."squares" - (
                  CAST('2.0' AS DOUBLE) * "t10"."true"
                )
              ) + CAST('1.0' AS DOUBLE)
            ) < CAST('0.0' AS DOUBLE)
            THEN CAST('0.0' AS DOUBLE)
            ELSE (
              "t10"."squares" - (
                CAST('2.0' AS DOUBLE) * "t10"."true"
              )
            ) + CAST('1.0' AS DOUBLE)
          END AS "brier",
          CASE WHEN "t10"."true" <= CAST('0.0' AS DOUBLE) THEN 1 ELSE 0 END AS "is_zero",
          CAST('0.0' AS DOUBLE) AS "least_nll",
          CASE
            WHEN "t10"."label_code" = CASE
              WHEN "t10"."p0" >= "t10"."top"
              THEN 0
              WHEN "t10"."p1" >= "t10"."top"
              THEN 1
              ELSE 0
            END
            THEN CAST('1.0' AS DOUBLE)
            ELSE CAST('0.0' AS DOUBLE)
          END AS "correct"
        FROM (
          SELECT
            "t9"."label_code",
            "t9"."named",
            "t9"."group_version",
            "t9"."group_tag",
            "t9"."period",
            "t9"."p0",
            "t9"."p1",
            "t9"."sum",
            "t9"."sizes",
            CASE
              WHEN CASE
                WHEN (
                  "t9"."sizes" = "t9"."sum"
                )
                AND (
                  ABS("t9"."sum" - CAST('1.0' AS DOUBLE)) < CAST('0.0009000000000000001' AS DOUBLE)
                )
                THEN 0
                ELSE -1
              END = 0
              THEN GREATEST("t9"."p0", "t9"."p1")
              ELSE CAST('0.0' AS DOUBLE)
            END AS "top",
            CASE
              WHEN "t9"."label_code" = 0
              THEN "t9"."p0"
              WHEN "t9"."label_code" = 1
              THEN "t9"."p1"
              ELSE CAST(NULL AS DOUBLE)
            END AS "true",
            (
              "t9"."p0" * "t9"."p0"
            ) + (
              "t9"."p1" * "t9"."p1"
            ) AS "squares",
            CASE
              WHEN (
                "t9"."sizes" = "t9"."sum"
              )
              AND (
                ABS("t9"."sum" - CAST('1.0' AS DOUBLE)) < CAST('0.0009000000000000001' AS DOUBLE)
              )
              THEN 0
              ELSE -1
            END AS "problem"
          FROM (
            SELECT
              CASE
                WHEN "t0"."label" IS NULL
                THEN -1
                WHEN "t0"."label" = 'class 0'
                THEN 0
                WHEN "t0"."label" = 'class 1'
                THEN 1
                ELSE -2
              END AS "label_code",
              -2 AS "named",
              "t0"."version" AS "group_version",
              "t0"."tag" AS "group_tag",
              CAST(FLOOR(CAST("t0"."time" AS DOUBLE) / CAST('86400.0' AS DOUBLE)) AS BIGINT) AS "period",
              "t0"."class 0" AS "p0",
              "t0"."class 1" AS "p1",
              "t0"."class 0" + "t0"."class 1" AS "sum",
              ABS("t0"."class 0") + ABS("t0"."class 1") AS "sizes"
            FROM "answers" AS "t0"
          ) AS "t9"
        ) AS "t10"
      ) AS "t11"
    ) AS "t13"
    CROSS JOIN (
      SELECT
        *
      FROM (
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
            1 AS "part"
        ) AS "t2"
      ) AS "t5"
      UNION ALL
      SELECT
        *
      FROM (
        SELECT
          *
        FROM (
          SELECT
            2 AS "part"
        ) AS "t3"
        UNION ALL
        SELECT
          *
        FROM (
          SELECT
            4 AS "part"
        ) AS "t4"
      ) AS "t6"
    ) AS "t8"
  ) AS "t14"
  GROUP BY
    1,
    2,
    3,
    4
) AS "t15"
