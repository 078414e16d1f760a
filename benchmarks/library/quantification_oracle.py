"""`trueodds.metrics.prior_shift` beside QuaPy's EMQ (EM with BCTS) and ACC (BBSE) on the same rows.

    pip install quapy abstention    # in an environment of its own, with TrueOdds' requirements
    python -m benchmarks.library.quantification_oracle

The rows are those of the populations of `benchmarks.intervals.prior_shift`, 3,000 for the reference and 2,000 answers.
QuaPy gets posteriors and labels through `aggregation_fit` and `aggregate`. It takes only the classes' names from a
classifier, which is therefore any one. Its BCTS is that
of the package abstention, of Alexandari et al. themselves. Rounded
probabilities of 0 are left out, because that BCTS has no logarithm of them. The result has the shares of both libraries
and their largest difference; also for the EM alone, on the posteriors as they are.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.intervals.prior_shift import POPULATIONS, SEED, Array, Labels, reference_rows
from benchmarks.record import RESULTS, Run, options_parser
from trueodds.metrics import prior_shift
from trueodds.metrics.labelling.reference_calibrator import mixture_shares

RESULT = RESULTS / "quantification_oracle.json"
REFERENCE, ANSWERS = 3_000, 2_000


@dataclass
class Comparison:
    """Shares by both libraries on one draw of one population."""

    population: str
    shift: str
    em: list[float]
    quapy_em: list[float]
    bbse: list[float]
    quapy_bbse: list[float]
    plain_em: list[float]
    """EM on the served probabilities as they are."""
    quapy_plain_em: list[float]

    def differences(self) -> tuple[float, float, float]:
        """Return the largest differences of EM, BBSE and the plain EM."""
        pairs = ((self.em, self.quapy_em), (self.bbse, self.quapy_bbse), (self.plain_em, self.quapy_plain_em))
        em, bbse, plain = (float(np.abs(np.subtract(*pair)).max()) for pair in pairs)
        return em, bbse, plain


def rows_of(name: str, shift: str) -> tuple[Array, Labels, Array]:
    """Draw reference rows with their labels, and answers, of one population."""
    population = next(one for one in POPULATIONS if one.name == name)
    rng = np.random.default_rng([SEED, *name.encode(), *shift.encode()])
    known_RC, y_R = reference_rows(population, REFERENCE, rng)
    x_NC, _ = population.draw(ANSWERS, population.new[shift], rng)
    return known_RC, y_R, population.served(x_NC)


def compare(name: str, shift: str) -> Comparison | None:
    """Estimate the shares of one draw by both libraries; None if TrueOdds' test rejects."""
    from quapy.method.aggregative import ACC, EMQ  # type: ignore[import-not-found]
    from sklearn.linear_model import LogisticRegression

    known_RC, y_R, p_NC = rows_of(name, shift)
    found = prior_shift(p_NC, known_RC, y_R)
    if found.refusal is not None:
        return None
    prior_C = np.bincount(y_R) / len(y_R)
    names = LogisticRegression(max_iter=1).fit(known_RC, y_R)
    em = EMQ(names, fit_classifier=False, calib="bcts")
    em.aggregation_fit(known_RC, y_R)
    em.train_prevalence = prior_C  # as its `fit` does
    bbse = ACC(names, fit_classifier=False, solver="exact-raise", norm="clip")
    bbse.aggregation_fit(known_RC.argmax(axis=1), y_R)
    plain_C, _ = EMQ.EM(prior_C, p_NC, epsilon=1e-10)
    return Comparison(
        name,
        shift,
        [float(one.value or 0) for one in found.em],
        np.asarray(em.aggregate(p_NC, epsilon=1e-10)).tolist(),
        [float(one.value or 0) for one in found.bbse],
        np.asarray(bbse.aggregate(p_NC.argmax(axis=1))).tolist(),
        mixture_shares(p_NC / prior_C, np.ones(len(p_NC)), prior_C).tolist(),
        np.asarray(plain_C).tolist(),
    )


def markdown(record: dict[str, Any]) -> str:
    """Return the table of docs/explanation/results.md."""
    lines = [
        "| population | change of the class shares | difference of EM with BCTS | of BBSE | of EM alone |",
        "|---" * 5 + "|",
    ]
    for row in record["rows"]:
        em, bbse, plain = row["differences"]
        lines.append(f"| {row['population']} | {row['shift']} | {em:.1e} | {bbse:.1e} | {plain:.1e} |")
    return "\n".join(lines)


def main() -> None:
    options = options_parser(__doc__, RESULT).parse_args()
    run, rows = Run(), list[dict[str, Any]]()
    for population in (one for one in POPULATIONS if one.step is None):
        for shift in population.new:
            one = compare(population.name, shift)
            if one is not None:
                rows.append({**asdict(one), "differences": one.differences()})
                run.say(one.population, one.shift, rows[-1]["differences"])
    most = np.max([row["differences"] for row in rows], axis=0)
    run.finish(
        options.out,
        markdown,
        packages=("numpy", "quapy", "abstention"),
        summary={"rows": len(rows), "em": float(most[0]), "bbse": float(most[1]), "plain_em": float(most[2])},
        rows=rows,
    )


if __name__ == "__main__":
    main()
