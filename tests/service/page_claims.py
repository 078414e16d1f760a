"""What a page may say of a report, sentence by sentence: a pattern, and what must be true of the report then."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from tests.service.page_truth import (
    all_show,
    at,
    confirms,
    contradicts,
    crowded,
    doubled,
    groups,
    helps,
    in_range,
    in_range_of_positive,
    is_more,
    is_of_positive,
    is_uneven,
    lead,
    marked,
    of_positive,
    of_top_label,
    promised,
    refuted,
    says_less,
    says_more,
    settled,
    shown_gain,
    since,
    surprise,
    together,
    undecided,
    unmarked,
    upper,
    weighted,
    would_show,
)
from trueodds.reports.schemas import Report

N, P, E = r"([\d,]+)", r"((?:over |under )?[\d.]+%)", r"([\d.]+)"
"""A count, a share in percent, an error."""

Claim = Callable[[Report, list[str]], bool]
"""Whether it is so: of the report, and of the numbers and words in the sentence."""


def _ratio_holds(r: Report) -> bool:
    p, most = r.positive, r.ratio_tolerance or 0.0
    return p is not None and 1 / most <= (p.ratio_lower or 0.0) and (p.ratio_upper or 1e9) <= most


COUNTS: list[tuple[str, Claim]] = [
    (rf"{N} of {N} answers? (?:has a label|have labels)\.", lambda r, t: all_show(t, r.labelled, r.answers)),
    (
        rf"{N} answers?, none with a label yet, so the accuracy is unknown\.",
        lambda r, t: all_show(t, r.answers) and not r.labelled,
    ),
    (r"The model has given no answers yet\.", lambda r, t: not r.answers and r.window.is_everything),
    (r"There are no answers .*?: choose a longer window, or another class or tag\.", lambda r, t: not r.answers),
    (rf"The {N} labels? that arrived last\.", lambda r, t: all_show(t, r.labelled) and r.window.last is not None),
    (
        rf"On them the model claims {P} on average and is right {P} of the time\.",
        lambda r, t: all_show(t, r.mean_confidence, r.accuracy) and lead(r) is r,
    ),
    (
        rf"On them p\((.*)\) is {P} on average, and {P} are (.*?): expected / observed is {E} \(interval {E} to"
        rf" {E}\)\.",
        lambda r, t: (
            t[0] == t[3]
            and of_positive(
                r, t[0], [*t[1:3], *t[4:]], "mean_probability", "prevalence", "ratio", "ratio_lower", "ratio_upper"
            )
        ),
    ),
    (
        rf"On them p\((.*)\) is {P} on average, and {P} are (.*?): none is (.*?) where {E} were expected \(expected /"
        rf" observed is {E} or more\)\.",
        lambda r, t: (
            t[0] == t[3] == t[4]
            and of_positive(r, t[0], [*t[1:3], *t[5:]], "mean_probability", "prevalence", "expected", "ratio_lower")
            and bool(r.positive and not r.positive.observed)
        ),
    ),
    (
        rf"It is not known yet whether expected / observed is between {E} and {E}: this needs about {N} more (.*?),"
        rf" about {N} labels\.",
        lambda r, t: r.positive is not None and t[3] == r.positive.label and not _ratio_holds(r),
    ),
    (
        rf"It is not known yet whether expected / observed is between {E} and {E}; more labels will show it\.",
        lambda r, t: r.positive is not None and r.positive.positives_to_come is None and not _ratio_holds(r),
    ),
    (
        rf"[Ww]here p\((.*?)\) is {P} to {P}, {P} on average, {P} are (.*?) \({N} answers?\)[.;]",
        in_range_of_positive,
    ),
    (rf"[Ww]hen it says {P} to {P}, {P} on average, it is right {P} of the time \({N} answers?\)[.;]", in_range),
]
ERRORS: list[tuple[str, Claim]] = [
    (
        rf"The calibration error \(ECE\) of p\((.*)\) is {E}, no larger than chance alone would show \(up to {E}\);",
        lambda r, t: of_positive(r, t[0], t[1:], "ece", "floor_p95") and not is_more(r),
    ),
    (
        rf"The calibration error \(ECE\) of p\((.*)\) is {E}, larger than chance alone would show \(up to {E}\);",
        lambda r, t: of_positive(r, t[0], t[1:], "ece", "floor_p95") and is_more(r),
    ),
    (
        rf"The calibration error \(ECE\) of p\((.*)\) is {E} \({P} interval {E} to {E}\);",
        lambda r, t: of_positive(r, t[0], t[1:], "ece", "level", "ece_lower", "ece_upper"),
    ),
    (
        rf"Its calibration error \(ECE\) is {E}, no larger than chance alone would show \(up to {E}\);",
        lambda r, t: all_show(t, r.ece, r.floor_p95) and not is_more(r) and lead(r) is r,
    ),
    (
        rf"Its calibration error \(ECE\) is {E}, larger than chance alone would show \(up to {E}\);",
        lambda r, t: all_show(t, r.ece, r.floor_p95) and is_more(r) and lead(r) is r,
    ),
    (
        rf"but errors that cancel out within a bin do not show, and an ECE of up to {E} would fit these labels"
        rf" as well \({P} interval {E} to {E}\)\.",
        lambda r, t: all_show(t, lead(r).ece_upper, r.level, lead(r).ece_lower, lead(r).ece_upper),
    ),
    (
        rf"it is within {E} at 95%, for this one look \({P} interval {E} to {E}\)\.",
        lambda r, t: (
            all_show(t, r.tolerance, r.level, lead(r).ece_lower, lead(r).ece_upper)
            and (r.level != 0.95 or upper(r) <= r.tolerance)
        ),
    ),
    (
        rf"it is within {E} at 95%, for this one look \({P} interval {E} to {E}\), and expected / observed between {E}"
        rf" and {E}\.",
        lambda r, t: (
            all_show(t[:4], r.tolerance, r.level, lead(r).ece_lower, lead(r).ece_upper)
            and all_show(t[4:], 1 / (r.ratio_tolerance or 0.0), r.ratio_tolerance)
            and _ratio_holds(r)
            and (r.level != 0.95 or upper(r) <= r.tolerance)
        ),
    ),
    (
        r"but there was an error at some time: the alarm's evidence, label by label, shows it\.",
        lambda r, t: refuted(r),
    ),
    (
        rf"Its calibration error \(ECE\) is {E} \({P} interval {E} to {E}\);",
        lambda r, t: all_show(t, r.ece, r.level, r.ece_lower, r.ece_upper) and lead(r) is r,
    ),
    (
        rf"chance alone would show up to {E} at 19 looks in 20: this is more\.",
        lambda r, t: all_show(t, lead(r).floor_p95) and is_more(r),
    ),
    (
        rf"chance alone would show up to {E} at 19 looks in 20: this is not\.",
        lambda r, t: all_show(t, lead(r).floor_p95) and not is_more(r),
    ),
]
WORDS: list[tuple[str, Claim]] = [
    (
        r"The model is over-confident: it is right less often than it says\.",
        lambda r, t: says_less(r) and refuted(r),
    ),
    (
        r"The model is under-confident: it is right more often than it says\.",
        lambda r, t: says_more(r) and refuted(r),
    ),
    (
        r"The model is too sure in some ranges and not sure enough in others; the diagram shows where\.",
        lambda r, t: is_uneven(r) and refuted(r),
    ),
    (r"It is perhaps over-confident\.", lambda r, t: says_less(r)),
    (r"It is perhaps under-confident\.", lambda r, t: says_more(r)),
    (r"It is perhaps too sure in some ranges and not sure enough in others\.", lambda r, t: is_uneven(r)),
    (r"Chance alone passes that limit at 1 look in 20, so with many looks it will:", lambda r, t: is_more(r)),
    (r"only the alarm's evidence settles it\.", lambda r, t: r.window.is_everything and not refuted(r)),
    (
        r"only the alarm's evidence settles such a question, and it is about all labels so far\.",
        lambda r, t: not r.window.is_everything,
    ),
    (
        r"The alarm had found an error before it was re-armed: only the evidence of later labels settles whether it"
        r" lasts\.",
        lambda r, t: bool(r.alarm and any(past.fired_at for past in r.alarm.rearmings)) and not refuted(r),
    ),
    (
        r"Scored in the order of their arrival, the labels show that recalibrating helps\.",
        lambda r, t: helps(r, "yes") and not is_more(r),
    ),
]


def _says_of_positive(r: Report, t: list[str], *, sign: int, strong: bool) -> bool:
    return is_of_positive(r, t, sign) and settled(r) >= strong


OF_POSITIVE: list[tuple[str, Claim]] = [
    (
        r"p\((.*?)\) is too high: fewer answers are (.*?) than it says\.",
        partial(_says_of_positive, sign=-1, strong=True),
    ),
    (
        r"p\((.*?)\) is too low: more answers are (.*?) than it says\.",
        partial(_says_of_positive, sign=1, strong=True),
    ),
    (
        r"p\((.*?)\) is too high in some ranges and too low in others; the diagram shows where\.",
        partial(_says_of_positive, sign=0, strong=True),
    ),
    (r"p\((.*?)\) is perhaps too high\.", partial(_says_of_positive, sign=-1, strong=False)),
    (r"p\((.*?)\) is perhaps too low\.", partial(_says_of_positive, sign=1, strong=False)),
    (
        r"p\((.*?)\) is perhaps too high in some ranges and too low in others\.",
        partial(_says_of_positive, sign=0, strong=False),
    ),
    (
        r"Over both classes together, the more probable class shows no more than chance\.",
        lambda r, t: of_top_label(r, "cannot_tell") and (r.ece or 1.0) <= (r.floor_p95 or 0.0),
    ),
    (
        rf"The more probable class is within {E} at 95%\.",
        lambda r, t: (
            of_top_label(r, "within_tolerance")
            and t == [f"{r.tolerance:g}"]
            and (r.level != 0.95 or (r.ece_upper or 1.0) <= r.tolerance)
        ),
    ),
    (
        r"The more probable class was off at some time, which all labels together do not show\.",
        lambda r, t: of_top_label(r, "off_at_times") and refuted(r) and (r.ece or 1.0) <= (r.floor_p95 or 0.0),
    ),
    (
        r"The more probable class is over-confident: it is right less often than its confidence says\.",
        lambda r, t: of_top_label(r, "over_confident") and says_less(r) and refuted(r),
    ),
    (
        r"The more probable class is under-confident: it is right more often than its confidence says\.",
        lambda r, t: of_top_label(r, "under_confident") and says_more(r) and refuted(r),
    ),
    (
        r"The more probable class is too sure in some ranges and not sure enough in others\.",
        lambda r, t: of_top_label(r, "uneven") and is_uneven(r) and refuted(r),
    ),
    (
        r"The more probable class is perhaps over-confident\.",
        lambda r, t: of_top_label(r, "leans_over_confident") and says_less(r),
    ),
    (
        r"The more probable class is perhaps under-confident\.",
        lambda r, t: of_top_label(r, "leans_under_confident") and says_more(r),
    ),
    (
        r"The more probable class is perhaps too sure in some ranges and not sure enough in others\.",
        lambda r, t: of_top_label(r, "leans_uneven") and is_uneven(r),
    ),
]
STATES: list[tuple[str, Claim]] = [
    (
        r"Alarm Do not trust this model's percentages until somebody has found the cause\.",
        lambda r, t: r.alarm is not None and r.alarm.state == "fired",
    ),
    (
        r"Alarm, acknowledged Its percentages are off\. Somebody has acknowledged it and given a reason\.",
        lambda r, t: r.alarm is not None and r.alarm.state == "acknowledged",
    ),
    (r"No answers yet There is nothing to judge until the model has given answers\.", lambda r, t: not r.answers),
    (
        r"No labels yet Only true labels can show whether the model's percentages hold\.",
        lambda r, t: bool(r.answers) and not r.labelled,
    ),
    (
        r"Cannot tell yet The labels show no more than chance, which is not enough to be sure\.",
        lambda r, t: bool(r.labelled) and not is_more(r) and upper(r) > r.tolerance,
    ),
    (
        r"Not yet known For p\((.*)\), the labels show no more than chance, which is not enough to be sure\.",
        lambda r, t: r.positive is not None and not is_more(r) and t[0] == r.positive.label,
    ),
    (
        rf"Within {E} and a factor of {E} With 95% confidence, for this one look, p\((.*)\) is off by at most {E} on"
        rf" average, and the number of (.*) is as expected up to a factor of {E}\.",
        lambda r, t: (
            r.positive is not None
            and t[2] == t[4] == r.positive.label
            and t[0] == t[3] == f"{r.tolerance:g}"
            and t[1] == t[5] == f"{r.ratio_tolerance:g}"
        ),
    ),
    *(
        (rf"p\(([^)]*)\) {verb} {word} (?=\w|p\()", partial(_says_of_positive, sign=sign, strong=verb == "is"))
        for word, sign in (("too high", -1), ("too low", 1), ("uneven", 0))
        for verb in ("is", "is perhaps")
    ),
    (
        r"(?:In these labels f|F)ewer answers are (.*?) than it says\.(?: One look does not settle it\.)?",
        lambda r, t: is_of_positive(r, t, -1),
    ),
    (
        r"(?:In these labels m|M)ore answers are (.*?) than it says\.(?: One look does not settle it\.)?",
        lambda r, t: is_of_positive(r, t, 1),
    ),
    (
        r"(?:In these labels )?p\(([^)]*)\) is too high in some ranges and too low in others\."
        r"(?: One look does not settle it\.)?",
        lambda r, t: is_of_positive(r, t, 0),
    ),
    (
        r"Miscalibrated at times At some time its percentages were off, although p\((.*)\) of all labels together does"
        r" not show it\.",
        lambda r, t: refuted(r) and not is_more(r) and r.positive is not None,
    ),
    (
        rf"Within {E} With 95% confidence, for this one look, its percentages are off by at most {E} on average\.",
        lambda r, t: all_show(t, r.tolerance, r.tolerance),
    ),
    (
        r"Perhaps over-confident In these labels it is right less often than it says\. One look does not settle it\.",
        lambda r, t: says_less(r),
    ),
    (
        r"Perhaps under-confident In these labels it is right more often than it says\. One look does not settle it\.",
        lambda r, t: says_more(r),
    ),
    (
        r"Perhaps uneven In these labels it is too sure in some ranges and not sure enough in others\. One look"
        r" does not settle it\.",
        lambda r, t: is_uneven(r),
    ),
    (r"Over-confident It is right less often than it says\.", lambda r, t: says_less(r) and refuted(r)),
    (r"Under-confident It is right more often than it says\.", lambda r, t: says_more(r) and refuted(r)),
    (
        r"Uneven It is too sure in some ranges and not sure enough in others\.",
        lambda r, t: is_uneven(r) and refuted(r),
    ),
    (
        r"Miscalibrated at times At some time its percentages were off, although all labels together do not show it\.",
        lambda r, t: refuted(r) and not is_more(r),
    ),
]
TODO: list[tuple[str, Claim]] = [
    (
        r"What to do now|Details of the alarm|Evidence for this advice|Keep in mind|Show only these|Show all|Which"
        r" tag\?|Which class\?|Since when\?",
        lambda r, t: True,
    ),
    (
        r"Nothing has to be done\. Keep sending true labels to stay informed\.",
        lambda r, t: r.window.is_everything and not refuted(r) and upper(r) <= r.tolerance,
    ),
    (r"Recalibrating would help\.", lambda r, t: helps(r, "yes")),
    (
        r"Other confidences would fit the labels better, but recalibration needs the probabilities of all classes\.",
        lambda r, t: helps(r, "yes") and r.advice is not None and r.advice.command is None and r.nll is None,
    ),
    (r"It is good enough as it is\.", lambda r, t: helps(r, "yes") and upper(r) <= r.tolerance),
    (
        r"So far recalibrating the confidence of the more probable class would not have helped\. This does not show"
        r" errors of p\((.*)\) that cancel out in that confidence\.",
        lambda r, t: helps(r, "no") and r.positive is not None,
    ),
    (
        r"Nothing has to be done for the answers shown here\.",
        lambda r, t: not r.window.is_everything and upper(r) <= r.tolerance,
    ),
    (
        r"It is good enough as it is: recalibrating would improve it further\.",
        lambda r, t: helps(r, "yes") and upper(r) <= r.tolerance,
    ),
    (r"So far recalibrating would not have helped\.", lambda r, t: helps(r, "no")),
    (r"It is not clear yet whether recalibrating would help\.", lambda r, t: helps(r, "not_known")),
    (
        r"It is not known yet whether recalibrating would help\. This needs at least a few dozen labels\.",
        lambda r, t: r.advice is not None and not r.advice.labels,
    ),
    (
        r"trueodds recalibrate --url \S+ --model"
        r" \S+ --version (\S+)",
        lambda r, t: helps(r, "yes") and t[-1] == r.version,
    ),
    (
        r"curl -s http://127\.0\.0\.1:8000/predict .*|Send an input to POST /predict \(all"
        r" formats\)\. For example, an image:|Send inputs to POST /predict\. Every answer has an id\.",
        lambda r, t: not r.answers,
    ),
    (
        r"curl -s http://127\.0\.0\.1:8000/feedback .*|Send the true labels to POST /feedback with the ids of"
        r" the answers\.|Send the true class of an answer with the answer's id, as soon as you know it"
        r" \(also in bulk\):",
        lambda r, t: bool(r.answers) and not r.labelled,
    ),
    (r"The following is about all labels so far, not only those shown\.", lambda r, t: not r.window.is_everything),
    (
        r"Keep sending true labels: with four times as many, the interval is about half as wide\.",
        lambda r, t: bool(r.labelled),
    ),
    (
        r"Treat its percentages as less exact than they look\. See below where they are off\.",
        lambda r, t: r.advice is None,
    ),
    (
        rf"The alarm fired on [^.]* UTC, after {N} labels?\.",
        lambda r, t: at(r, t) and bool(r.alarm and r.alarm.refuted_null and r.alarm.refuted_null.pages),
    ),
    (
        rf"A notice, which calls no webhook, was given on [^.]* UTC, after {N} labels?\.",
        lambda r, t: at(r, t) and bool(r.alarm and r.alarm.state == "notice"),
    ),
    (
        r"Investigate the alarm, then acknowledge it, so that others know that you take care of it\. The alarm stays on"
        r" this page, with your text\.",
        lambda r, t: bool(r.alarm and r.alarm.state == "fired"),
    ),
    (
        r"“.*” .*, .* UTC",
        lambda r, t: bool(r.alarm and (r.alarm.rearmings or any(null.acknowledged for null in r.alarm.nulls))),
    ),
    (
        r"It is not known yet whether recalibrating would help\. This needs at least a few dozen labels that arrive"
        r" after the re-arming\.",
        lambda r, t: bool(r.advice and not r.advice.labels and r.alarm and r.alarm.rearmings),
    ),
    (
        rf"Over {N} labels?, the log loss of the served confidences is {E} nats\. If each answer had been recalibrated"
        rf" on the labels before it, it would be {E} \(less is better\)\.",
        surprise,
    ),
    (
        r"Recalibrating has gained at least (-?\d+\.\d{4}) nats per label on average \(a bound that holds in 95% of"
        r" versions, however often you look\)\. Above 0 the gain counts as shown\.",
        shown_gain,
    ),
    (
        rf"Some labels were corrected, so these numbers use the last {N} labels with their current values\. They hold"
        rf" for a single look; without corrections they hold however often you look\.",
        lambda r, t: r.advice is not None and all_show(t, r.advice.labels),
    ),
    (
        r"The error does not begin at any particular (?:minute|hour|day|month)\.",
        lambda r, t: bool(r.checks) and r.checks[0].window is None,
    ),
    (
        rf"Answers from ([^.]*?) UTC(?: on)? are right {E} points (less|more) often than they say \({N} labels?\),"
        rf" those before {E} points (less|more) often \({N}\)(?:, those since {E} points (less|more) often \({N}\))?\."
        r" They are split at the (minute|hour|day|month)s? that separates? them best, at one look\.",
        since,
    ),
    (
        rf"(Both|All \d+|{N} of \d+) (tags|predicted classes) (?:is|are) off by more than chance(?:, the clearest)?:"
        rf" (.*), right {P} of the time while it says {P} \({N} labels?\)\.",
        marked,
    ),
    (
        rf"(Both|All \d+|{N} of \d+) (tags|predicted classes) (?:is|are) off by more than chance(?:, the clearest)?:"
        rf" (.*), whose calibration error is {E}, while chance alone shows up to {E} \({N} labels?\)\.",
        marked,
    ),
    (
        rf"(Both|All \d+|{N} of \d+) (tags|predicted classes) (?:is|are) off by more than [\d.]+(?:, the clearest)?:"
        rf" (.*), right {P} of the time while it says {P} \({N} labels?\)\.",
        marked,
    ),
    (
        rf"(Both|All \d+|{N} of \d+) (tags|predicted classes) (?:is|are) off by more than [\d.]+(?:, the clearest)?:"
        rf" (.*), whose calibration error is {E}, while chance alone shows up to {E} \({N} labels?\)\.",
        marked,
    ),
    (r"(Neither of the 2|None of \d+) (tags|predicted classes) is off by more than chance on its own\.", unmarked),
    (
        r"(Neither of the 2|None of \d+) (tags|predicted classes) is shown to be off by more than [\d.]+ on its own\.",
        unmarked,
    ),
]
ALARM: list[tuple[str, Claim]] = [
    (
        r"(?:ALARM: t|Notice: t|T)he calibration error \(ECE\) of the answers that get labels was above [\d.]+"
        r" at some time\.",
        lambda r, t: bool(r.alarm and r.alarm.nulls[0].state != "quiet"),
    ),
    (
        r"(?:ALARM: t|Notice: t|T)he calibration error \(ECE\) of the more probable class, of the answers that get"
        r" labels, was above [\d.]+ at some time\.",
        lambda r, t: bool(r.positive and r.alarm and r.alarm.nulls[0].state != "quiet"),
    ),
    (
        r"(?:Notice: i|I)n some range and at some time, the accuracy of the more probable class differed from its"
        r" confidence by more than [\d.]+\.",
        lambda r, t: bool(r.positive and r.alarm and r.alarm.nulls[2].state != "quiet"),
    ),
    (
        r"(?:Notice: i|I)n some range and at some time, the accuracy of this version differed from its confidence"
        r" by more than [\d.]+\.",
        lambda r, t: bool(r.alarm and r.alarm.nulls[1].state != "quiet"),
    ),
    (
        rf"(?:ALARM: a|Notice: a|A)t some time p\((.*?)\) was wrong overall in the answers that get labels:"
        rf" expected / observed (.*?) was not between {E} and {E}, or the mean of p\((.*?)\) differed from their share"
        rf" by more than {E}\.",
        lambda r, t: bool(r.positive and r.alarm and r.alarm.is_positive_refuted and t[0] == r.positive.label),
    ),
    (
        r"If (?:its ECE|every range|it) had been within that at every label, given the labels before it, at most 1 of"
        r" [24]0 versions would ever show this much evidence, however long you look\.",
        lambda r, t: refuted(r),
    ),
    (rf"It fired on \S+ \S+ UTC, after {N} labels?\.", at),
    (r"The alarm stays until somebody acknowledges it\.", lambda r, t: bool(r.alarm and r.alarm.state == "fired")),
    (
        r"\S+ acknowledged it on \S+ \S+ UTC: [^.]*\.",
        lambda r, t: bool(r.alarm and r.alarm.state == "acknowledged"),
    ),
    (
        r"The ECE of all answers, or over the whole time, may be smaller\.",
        lambda r, t: bool(r.alarm and r.alarm.nulls[0].state != "quiet"),
    ),
    (
        r"Nobody is called\. The test that calls people is about the calibration error \(ECE\) of all these answers"
        r" together, and has not shown this much\.",
        lambda r, t: bool(r.alarm and r.alarm.nulls[0].state == "quiet"),
    ),
    (
        r"The answers that get labels differ in confidence from all answers\. So the alarm is about the labelled"
        r" traffic, not about all traffic\.",
        lambda r, t: True,
    ),
    (
        r"Some labels were corrected later\. This evidence uses labels as they first arrived, because evidence that was"
        r" once reported must not change\. The other numbers use the current labels\.",
        lambda r, t: True,
    ),
]
CAUTIONS: list[tuple[str, Claim]] = [
    (
        r"There are two alarms: one is about the number of (.*?) that p\((.*?)\) expects, the other about the more"
        r" probable class\. Errors of p\((.*?)\) that cancel in both remain unseen\.",
        lambda r, t: r.alarm is not None and r.positive is not None and set(t) == {r.positive.label},
    ),
    (
        r"Fewer than 500 labels: the interval's coverage was measured for 500 and more, so treat it as a rough guide\.",
        lambda r, t: r.labelled < 500,
    ),
    (
        r"The interval is for one look at this many labels: checked after every label, it will miss the true value at"
        r" some time\.",
        lambda r, t: bool(r.labelled),
    ),
    (
        rf"The other {N} answers? (?:is|are) unknown: if wrong answers get labels more often, or sooner,"
        rf" than right ones, these numbers are biased\.",
        lambda r, t: all_show(t, r.answers - r.labelled),
    ),
    (
        rf"If they were labelled twice as often, (?:as far as there are answers without labels, )?the accuracy"
        rf" would be {P} and the calibration error(?: of the more probable class)? {E}\.",
        doubled,
    ),
    (
        r"The labelled answers may not represent all answers: their confidences differ, significantly at the 1% level"
        r" \(p [=<] ([\d.e-]+)\)\.",
        lambda r, t: bool(r.labelling.choice and r.labelling.choice.p_value < 0.01),
    ),
    (
        rf"{P} of the answers have confidences from {E} to {E}, one cell: counts do not tell which of them have"
        r" labels, so weighting by counts is impossible\. Give each answer's probability of getting a label \(its"
        r" propensity\), or choose at random which get one\.",
        crowded,
    ),
    (
        rf"Weighted to stand for all answers, the best estimate of the calibration error(?: of the more probable"
        rf" class)? is {E} \({E} to {E}\) and the accuracy {P}\.",
        weighted,
    ),
    (
        r"The labels so far may not represent all labels: labels of (wrong|right) answers arrive sooner, significantly"
        r" at the 1% level\. At equal confidence, .* points (more|less) often than the others"
        r" \([\d,]+ labels, p [=<] [\d.e-]+\)\.",
        lambda r, t: (t[0] == "right") == (t[1] == "more"),
    ),
    (
        rf"Of {N} (classes|tags), {N} (?:is|are) off by more than chance \(false discovery rate 5%: if all were"
        r" calibrated, any would be marked in at most 1 look in 20\)\.",
        groups,
    ),
    (
        rf"Of {N} (classes|tags), {N} (?:is|are) marked: their calibration error was above [\d.]+ at some time\. The"
        r" marks hold however often you look\.",
        groups,
    ),
    (
        r"Confidences differ from those on the [\d,]+ validation rows: .*",
        lambda r, t: bool(r.labelling.drift and r.labelling.drift.warning),
    ),
]
CONFIRMATION: list[tuple[str, Claim]] = [
    (
        rf"In {N} of {N} (?:minutes?|hours?|days?|months?) with labels, the accuracy was as the confidences"
        rf" promised \({P} range(?:; {N} outside, p [=<] [\d.e-]+)?\)\.",
        promised,
    ),
    (
        rf"Together, {P} of {N} labels? were expected to be right \({P} range {P} to {P}\), and {P} are\.",
        together,
    ),
    (
        rf"Labels confirm the expected accuracy: the gap is within {E} points, ([+−\d.]+) to ([+−\d.]+) points at"
        rf" {P}\.",
        confirms,
    ),
    (r"So far labels do not contradict the expected accuracy\.", lambda r, t: undecided(r)),
    (
        r"With a chance of 80% they would have shown it if answers were right ([\d.]+) points (less|more) often"
        r"(?: or ([\d.]+) points (more) often)?; smaller gaps could stay unseen\.",
        would_show,
    ),
    (r"So few labels could not have shown any gap\.", lambda r, t: would_show(r, [])),
    (
        r"For answers without a label this holds as long as the model stays calibrated and the meaning of the inputs"
        r" stays the same \(no concept drift\)\.",
        lambda r, t: not contradicts(r),
    ),
    (
        r"Labels contradict the expected accuracy: do not rely on it for answers without a label\.",
        lambda r, t: contradicts(r),
    ),
    (
        rf"This is one look: at most {P} of looks at calibrated answers contradict, so with many looks one of them"
        r" will\.",
        lambda r, t: all_show(t, 1 - r.level),
    ),
]
CLAIMS = [
    (re.compile(pattern), claim)
    for pattern, claim in [*COUNTS, *ERRORS, *WORDS, *OF_POSITIVE, *STATES, *TODO, *ALARM, *CAUTIONS, *CONFIRMATION]
]
