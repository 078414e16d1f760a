"""Claims that a benchmark proves: each with its condition, its figure, its command, and where it fails.

No figure is typed here: a text names it in braces, and `keys` says where in the result file it stands.
"""

from __future__ import annotations

from tools.tables.claim import Claim
from tools.tables.results import Key

_INTERVAL = ("summary", "common errors (A, B, C)")
_RARE = ("summary", "rare errors (D)")
_CLASSES = ("summary", "100 classes")
_FEW_ERRORS = ("summary", "fewer than 20 errors expected")
_NET: dict[str, object] = {"record": "wideresnet-16-4-cifar-100"}
_WORLD: dict[str, object] = {"world": "10 classes, logits 1.5 times too large", "rows": 50}
_DELAY: dict[str, object] = {"shape": "A", "truth": "T = 1.5", "since": "start", "null": "ece", "alarm": "one start"}
_TOP_LABELS: Key = ("cases", {"metric": "ECE, 15 bins", "shape": "1,000,000 top labels"}, "tools")
_WIDE: Key = ("cases", {"metric": "ECE, 15 bins", "shape": "100,000 x 100"}, "tools")
_CORNER: dict[str, object] = {"shape": "A", "stream": "corner"}
_MATURED: dict[str, object] = {"model": "calibrated", "counted": "after 45 days"}

CLAIMS = (
    Claim(
        "The interval covers the population's ECE",
        "{settings} settings, errors not rare, nominal {level:.0%}",
        "in {lowest:.1%} of the samples or more",
        "One limit alone is wrong more often than half of the rest: read both. With errors that are rare the least is"
        " {rare:.1%}, and the interval is wide ({width:.2f} on average)",
        "interval_coverage",
        {
            "settings": (*_INTERVAL, "settings"),
            "lowest": (*_INTERVAL, "lowest_coverage"),
            "level": ("level",),
            "rare": (*_RARE, "lowest_coverage"),
            "width": (*_RARE, "mean_width"),
        },
        "how-often-the-interval-covers-the-true-ece",
        short=True,
    ),
    Claim(
        "The interval of the class-wise ECE covers the population's",
        "{settings} settings of 100 classes, 500 to 10,000 rows, nominal {level:.0%}",
        "in {lowest:.1%} of the samples or more",
        "It is wide: {width:.4f} on average, where the plug-in value is {bias:.4f} too high. With errors that are rare"
        " the least is {rare:.1%}",
        "classwise_coverage",
        {
            "settings": (*_CLASSES, "settings"),
            "lowest": (*_CLASSES, "lowest_coverage"),
            "level": ("level",),
            "width": (*_CLASSES, "mean_width"),
            "bias": (*_CLASSES, "mean_bias_of_plug_in"),
            "rare": ("summary", "10 classes, rare errors", "lowest_coverage"),
        },
        "how-often-the-interval-covers-the-true-class-wise-ece",
    ),
    Claim(
        "The intervals of NLL and Brier score cover where errors are few",
        "{settings} settings with few errors expected, nominal {level:.0%}",
        "in {lowest:.1%} of the samples or more; Student's in {students:.1%}",
        "They are {width:.2f} times as wide as Student's (median)",
        "score_coverage",
        {
            "settings": (*_FEW_ERRORS, "settings"),
            "lowest": (*_FEW_ERRORS, "lowest_coverage"),
            "students": (*_FEW_ERRORS, "lowest_coverage_of_students"),
            "width": (*_FEW_ERRORS, "median_width_over_students"),
            "level": ("level",),
        },
        "how-often-the-intervals-of-nll-and-brier-score-cover-the-true-one",
    ),
    Claim(
        "The limits of what alerts cost hold, and of what a better threshold saves",
        "{settings} settings, 300 and 2,000 rows, calibrated or not, dear errors that are rare, nominal {level:.0%}",
        "in {cost:.1%} and {saving:.1%} of the samples or more (standard error {error:.1%})",
        "Where a dear error is rare, the saving's upper limit is wide: up to {width:.1f} times the cost (of 300 rows)."
        " Of calibrated rows the saving is in the mean up to {share:.0%} of the cost, by chance",
        "decisions",
        {
            "settings": ("summary", "settings"),
            "level": ("level",),
            "cost": ("summary", "lowest_of_cost"),
            "saving": ("summary", "lowest_of_saving"),
            "error": ("summary", "standard_error"),
            "width": ("summary", "widest_saving"),
            "share": ("summary", "calibrated_saving"),
        },
        "how-often-the-limits-of-a-decisions-cost-hold-and-of-what-a-better-threshold-saves",
    ),
    Claim(
        "Answers that act alone are wrong at most as often as promised",
        "{settings} settings, 100 to 10,000 labels, {runs:,.0f} replays each: nets, rare errors, ties, groups, costs;"
        " a risk of 5% at 95%",
        "broken in {broken:.1%} of the replays at most; an exact test finds too many in {failed:.0f} settings",
        "Labels that were not drawn by chance; inputs that change. With 300 labels something is certified in"
        " {few:.0%} of the replays. The share's interval covers in {covered:.1%} at least. MAPIE's fixed sequence"
        " certifies {mapie:.1%} of the answers on average where ours is {share:.1%}, and up to {below:.2%} more in one"
        " setting. That none can be certified is said wrongly in {none:.1%} at most",
        "threshold",
        {
            "settings": ("summary", "settings"),
            "runs": ("summary", "runs"),
            "broken": ("summary", "most_broken"),
            "failed": ("summary", "failed"),
            "few": ("summary", "certified_at_300"),
            "covered": ("summary", "least_share_covered"),
            "mapie": ("summary", "mapie"),
            "share": ("summary", "share"),
            "below": ("summary", "most_below_mapie"),
            "none": ("summary", "most_told_none_wrongly"),
        },
        "acting-alone-how-often-the-bound-is-broken",
    ),
    Claim(
        "The test of calibration rejects a calibrated model as often as its level says",
        "level 5%, all shapes and numbers of rows",
        "in {lowest:.1%} to {highest:.1%} of the samples",
        "Of models that are off it finds {power:.0%} on average over the settings",
        "significance",
        {
            "lowest": ("summary", "lowest_size"),
            "highest": ("summary", "highest_size"),
            "power": ("summary", "mean_power", "test"),
        },
        "how-often-the-test-of-calibration-rejects-at-a-level-of-5",
    ),
    Claim(
        "`judge` hardly ever calls a candidate better or worse wrongly, however often one looks",
        "{settings} populations, {runs} streams each ({more} of equal versions), {labels:,} labels, each a look",
        "in {promoted:.1%} and {withdrawn:.1%} of the streams at most; the interval at the stop covers in {covered:.1%}"
        " or more, of equal versions in {mean:.1%}; the old test promoted wrongly in up to {old:.0%}",
        "Wrong is meant of the mean gain up to the decision. Two nets {small:.2f} nats apart are decided in"
        " {decided:.0%} of the streams only. A steady gain of .003 takes {narrow:,.0f} labels between temperatures of"
        " one net, {wide:,.0f} where nothing is known of the two versions",
        "judge",
        {
            "settings": ("summary", "settings"),
            "runs": ("summary", "runs"),
            "labels": ("labels",),
            "promoted": ("summary", "most_wrong_promotions"),
            "withdrawn": ("summary", "most_wrong_withdrawals"),
            "covered": ("summary", "lowest_coverage"),
            "mean": ("summary", "mean_coverage_of_equal"),
            "more": ("summary", "runs_of_equal"),
            "old": ("summary", "most_old_wrong_promotions"),
            "small": ("settings", {"name": "DenseNet beside WRN, +0.03"}, "gain"),
            "decided": ("settings", {"name": "DenseNet beside WRN, +0.03"}, "share_decided"),
            "narrow": ("settings", {"name": "WRN, T = 1.7; T nearby, +0.003"}, "labels"),
            "wide": ("settings", {"name": "WRN, T = 1.7; T nearby, +0.003, limits of any two"}, "labels"),
        },
        "is-the-candidate-better-how-often-judge-is-wrong-and-how-many-labels-it-takes",
    ),
    Claim(
        "Two methods with the same calibration are hardly ever told apart, however unlike their sharpness",
        "{settings} settings of 300 to 4,000 rows and 1 to 10 seeds, calibrated or equally off, {runs:,} pairs"
        " each, level 5%",
        "in {size:.2%} of the pairs at most; a bootstrap of the plug-in ECE tells {low:.0%} to {high:.0%} of calibrated"
        " pairs apart",
        "It needs many rows: 5 points of confidences .3 to .9 are found in {few:.0%} with 1,000 rows and one seed, in"
        " {many:.0%} with 4,000. Gaps of unlike sign within a bin cancel",
        "calibration_differences",
        {
            "settings": ("summary", "settings"),
            "runs": ("summary", "runs"),
            "size": ("summary", "highest_size"),
            "low": ("summary", "lowest_of_bootstrap"),
            "high": ("summary", "highest_of_bootstrap"),
            "few": ("summary", "power", "1000 rows"),
            "many": ("summary", "power", "4000 rows"),
        },
        "which-of-two-methods-is-better-calibrated",
    ),
    Claim(
        "Of many sound tags hardly ever one is marked",
        "{tables} tables of {tags:,} calibrated tags with 10 to 1,000 labels, false discovery rate 5%",
        "in {marked:.1%} of the tables any; by its own p-value {alone:.0f} of them would be in each",
        "Of 5 in 100 that are off by .1, with 500 labels, {found:.0%} are found",
        "slices",
        {
            "tables": ("sound", "tables"),
            "tags": ("sound", "tags"),
            "marked": ("sound", "tables_with_a_mark"),
            "alone": ("sound", "p_below_rate_per_table"),
            "found": ("off", "found"),
        },
        "tags-beside-each-other-how-often-sound-ones-are-marked",
    ),
    Claim(
        "The alarm may be looked at after every label",
        "streams of 100,000 labels within the tolerance of {tolerance}, level 5%",
        "{false:.1%} of the streams alarm, at most",
        "It speaks of the labelled answers at every moment: a corner that is labelled more often fires it",
        "sequential",
        {"tolerance": ("tolerance",), "false": ("summary", "most_false_alarms")},
        "alarms-false-ones-and-how-many-labels-the-true-ones-take",
        short=True,
    ),
    Claim(
        "A p(positive) that is half as high again, or more, gets no green word",
        "prevalence .1% to 50%, 200 to 100,000 labels, {tables:.0f} tables with expected / observed {wrong} or more",
        "{green:.1%} of the tables; by the verdict before this one {before:.1%}",
        "A calibrated p(positive) gets it in {enough:.0%} of the tables with {needed:.0f} positives or more, and hardly"
        " ever with fewer: not yet known",
        "rare_positives",
        {
            "tables": ("summary", "tables_off"),
            "wrong": ("wrong_ratio",),
            "green": ("summary", "green_off"),
            "before": ("summary", "green_off_before"),
            "enough": ("summary", "green_enough"),
            "needed": ("summary", "positives_needed"),
        },
        "rare-positives-the-verdict-and-the-alarm-of-ppositive",
    ),
    Claim(
        "The alarm on p(positive) finds a rare class's p that is too high",
        "p twice too high or more, streams of 100,000 labels with 100 positives or more",
        "{power:.0%} of the streams alarm; by the more probable class alone {before:.0%}",
        "Of {streams:.0f} calibrated streams {false:.1%} alarm falsely. At a prevalence of .1% a p that is 4 times too"
        " high takes {labels:,.0f} labels (median)",
        "rare_positives",
        {
            "power": ("summary", "power_from_2"),
            "before": ("summary", "power_from_2_before"),
            "streams": ("summary", "streams"),
            "false": ("summary", "false_alarms"),
            "labels": ("summary", "labels_to_alarm_at_.001_and_4"),
        },
        "rare-positives-the-verdict-and-the-alarm-of-ppositive",
    ),
    Claim(
        "The alarm comes soon",
        "100 classes, logits 1.5 times too large from the start",
        "after {labels:.0f} labels (median)",
        "An error in some corner only may stay below the tolerance: then it never fires",
        "sequential",
        {"labels": ("delays", _DELAY, "median")},
        "alarms-false-ones-and-how-many-labels-the-true-ones-take",
    ),
    Claim(
        "A promise to act alone that is kept seldom alarms, however often one looks",
        "{streams:,.0f} streams each, at most 5% of the acting answers wrong; below the threshold anything changes",
        "{false:.1%} of the streams alarm, at most; the risk's interval holds at every label in {covered:.1%} or more",
        "Labels of acting answers that nobody drew at random: counting complaints, {complaints:.0%} alarm. The service"
        " leaves out what its audit had not asked for",
        "promise",
        {
            "streams": ("summary", "streams"),
            "false": ("summary", "most_false_alarms"),
            "covered": ("summary", "least_covered"),
            "complaints": ("summary", "alarms_with_complaints"),
        },
        "acting-alone-how-soon-a-broken-promise-is-found",
    ),
    Claim(
        "A broken promise is found",
        "twice the promised 5% of the acting answers are wrong",
        "after {start:,.0f} of their labels (median); after {good:,.0f} where it was kept for long before",
        "A label of an audit of 2% takes fifty acting answers; smaller breaks and smaller promises take many more",
        "promise",
        {
            "start": ("summary", "median_of_twice"),
            "good": ("summary", "median_of_twice_after_good"),
        },
        "acting-alone-how-soon-a-broken-promise-is-found",
    ),
    Claim(
        "With propensities the evidence is about all answers",
        "a bad corner is labelled 9 times as often; the ECE of all answers is below the tolerance",
        "{weighted:.0%} of the streams alarm; unweighted {plain:.0%}",
        "Propensities that are wrong; answers below the floor are left out; a late change is seen later",
        "weighted_evidence",
        {
            "weighted": ("false_alarms", _CORNER, "weighted"),
            "plain": ("false_alarms", _CORNER, "plain"),
        },
        "alarms-the-labelled-traffic-and-all-traffic-by-propensities",
    ),
    Claim(
        "Labels that come late because of what they are do no harm with a window",
        "{streams:.0f} half years; frauds reported after 10 days (median), all else never; counted after 45 days",
        "a calibrated model alarms in {alarms:.0%}, verdicts are wrong in {wrong:.0%} at most; as they come, in"
        " {alarms_without:.0%} and {wrong_without:.0%}",
        "A window that is too short: after 14 days up to {wrong_14:.0%} of the verdicts are wrong",
        "late_positives",
        {
            "alarms": ("summary", "false_alarms"),
            "wrong": ("summary", "wrong"),
            "alarms_without": ("summary", "false_alarms_without"),
            "wrong_without": ("summary", "wrong_without"),
            "wrong_14": ("summary", "wrong_after_14"),
            "streams": ("verdicts", _MATURED, "streams"),
        },
        "frauds-that-are-reported-weeks-later",
    ),
    Claim(
        "Weighting by counts makes up for labels that are chosen by confidence",
        "labels chosen at random or by confidence, nominal 95%",
        "the interval covers in {lowest:.1%} of the samples or more; unweighted in {plain:.1%}",
        "Labels chosen by being right or wrong: no weighting helps, and the report only warns of it",
        "labelling",
        {
            "lowest": ("summary", "lowest_coverage_by_counts"),
            "plain": ("summary", "lowest_plain_coverage"),
        },
        "few-labels-what-weighting-mends-and-what-it-cannot",
    ),
    Claim(
        "Whoever looks again and again is not told that a calibrated model is off",
        "30 looks at 10,000 labels",
        "{strong:.0%} of the streams at some look, in the worst of three shapes",
        "*Leaning* is a word for one look: {leaning:.0%} of the same streams lean at some look",
        "headline",
        {
            "strong": ("words", {"shape": "C", "truth": "calibrated"}, "strong"),
            "leaning": ("words", {"shape": "C", "truth": "calibrated"}, "leaning"),
        },
        "words-what-somebody-reads-who-looks-again-and-again",
    ),
    Claim(
        "`select` does no harm on few rows",
        "{rows:.0f} rows, 10 classes, {draws:.0f} draws",
        "the worst choice costs {select:.3f} nats; by the papers' formulas {plain:.3f}",
        "A gain that so few rows do not show is left out as well",
        "selection",
        {
            "rows": ("measurements", _WORLD, "rows"),
            "draws": ("measurements", _WORLD, "draws"),
            "select": ("measurements", _WORLD, "select", "largest"),
            "plain": ("measurements", _WORLD, "plain", "largest"),
        },
        "what-select-takes-and-what-it-costs",
    ),
    Claim(
        "`select` finds the curve",
        "Wide ResNet 16-4 on CIFAR-100, {splits:.0f} splits of its {rows:,.0f} + {rows:,.0f} test rows",
        "ECE {ece:.4f} where chance leaves {floor:.4f} and no calibration {plain:.4f}; NLL {nll:.4f}, best candidate"
        " {best:.4f}",
        "A gain within one standard error is left out. On LeNet-5 the ECE is {lenet:.4f} above its floor",
        "selection",
        {
            "splits": ("records", _NET, "splits"),
            "rows": ("records", _NET, "rows"),
            "ece": ("records", _NET, "select", "ece"),
            "floor": ("records", _NET, "select", "floor"),
            "plain": ("records", _NET, "candidates", "identity", "ece"),
            "nll": ("records", _NET, "select", "nll"),
            "best": ("records", _NET, "best", "nll"),
            "lenet": ("records", {"record": "lenet-5-cifar-10"}, "above_floor"),
        },
        "what-select-takes-and-what-it-costs",
    ),
    Claim(
        "Temperature scaling is fast",
        "50,000 rows x 1,000 classes, one thread",
        "{ours:.1f} s; netcal {netcal:.1f} s, scikit-learn {sklearn:.1f} s",
        "Matrices of so many classes take over a minute",
        "calibrators",
        {
            package: ("measurements", {"shape": "50000x1000", "case": "temperature", "package": name}, "seconds")
            for package, name in (("ours", "trueodds"), ("netcal", "netcal"), ("sklearn", "scikit-learn"))
        },
        "calibrators-time-and-memory-of-a-fit",
    ),
    Claim(
        "ECE is fast",
        "1,000,000 top labels, one thread",
        "{ours:.4f} s; torchmetrics {torchmetrics:.4f} s, netcal {netcal:.4f} s",
        "With many classes the lead is smaller: of 100,000 x 100 probabilities {wide:.4f} s, torchmetrics"
        " {wide_torchmetrics:.4f} s",
        "metrics",
        {
            "ours": (*_TOP_LABELS, "trueodds.metrics", "seconds"),
            "torchmetrics": (*_TOP_LABELS, "torchmetrics", "seconds"),
            "netcal": (*_TOP_LABELS, "netcal", "seconds"),
            "wide": (*_WIDE, "trueodds.metrics", "seconds"),
            "wide_torchmetrics": (*_WIDE, "torchmetrics", "seconds"),
        },
        "metrics-time-and-memory",
    ),
    Claim(
        "What the service acknowledged survives `kill -9`",
        "SQLite, killed under load, while starting and while stopping",
        "{predictions:,.0f} predictions and {labels:,.0f} labels acknowledged, none lost, none counted twice",
        "A disk that loses what it has confirmed",
        "faults",
        {"predictions": ("faults", "kills", "predictions"), "labels": ("faults", "kills", "labels")},
        "service-what-it-bears",
        short=True,
    ),
    Claim(
        "The service stores every answer and is still fast",
        "ResNet-8, in turns on one machine; the other server stores nothing",
        "{ratio:.2f} times LitServe's requests per second",
        "Beside mosec, the fastest server we know, {one:.2f}, {eight:.2f} and {many:.2f} times its rate with 1, 8 and"
        " 32 clients; beside onnxruntime alone, without a server, a ResNet-18 has {alone:.2f} times its rate",
        "serving",
        {
            "ratio": ("turns", {"net": "resnet8", "beside": "LitServe"}, "ratio"),
            "one": ("turns", {"net": "resnet8", "beside": "mosec"}, "ratios", "1"),
            "eight": ("turns", {"net": "resnet8", "beside": "mosec"}, "ratios", "8"),
            "many": ("turns", {"net": "resnet8", "beside": "mosec"}, "ratios", "32"),
            "alone": ("turns", {"net": "resnet18", "beside": "onnxruntime alone"}, "ratio"),
        },
        "service-requests-per-second",
        short=True,
    ),
    Claim(
        "A gradient boosting of 30 features answers beside LitServe",
        "the same ONNX file, one vector a request, every answer stored durably",
        "{ratio:.2f} times LitServe's requests per second",
        "A vector is little work, so this compares servers, not models",
        "vector_serving",
        {"ratio": ("turns", "ratio")},
        "service-vectors-a-second",
    ),
    Claim(
        "Importing scores rows as fast as onnxruntime does",
        "ResNet-50 at 224 pixels, {count:.0f} rows",
        "{array:.2f} of onnxruntime's own rate from an array",
        "From a folder of JPEG files, which are decoded beside it, {folder:.2f}",
        "importing",
        {"count": ("setting", "count"), "array": ("ratios", "array"), "folder": ("ratios", "folder")},
        "importing-the-rate-of-labelled-rows",
    ),
    Claim(
        "Labels are stored in bulk",
        "calls of {call:,.0f} labels, durable when answered",
        "{rate:,.0f} labels a second",
        "Smaller calls are slower: {small:,.0f} a second in calls of a tenth",
        "serving",
        {
            "small": ("labels", {"labels_per_call": 1000}, "labels_per_second"),
            "call": ("labels", {"labels_per_call": 10000}, "labels_per_call"),
            "rate": ("labels", {"labels_per_call": 10000}, "labels_per_second"),
        },
        "service-requests-per-second",
    ),
    Claim(
        "A report of a thousand times the labels takes less than twice as long",
        "over HTTP, a year of answers in SQLite, a label more each time",
        "{many:.0f} ms with ten million labels, {few:.0f} ms with ten thousand",
        "With a trend of 13 months it takes {trend:.0f} ms; the first of a model after a start {first:.0f} ms",
        "report",
        {
            "first": ("milliseconds", "10000000", "over HTTP", "first"),
            "trend": ("milliseconds", "10000000", "over HTTP", "with a trend of 13 months, new", "median"),
            "many": ("milliseconds", "10000000", "over HTTP", "new", "median"),
            "few": ("milliseconds", "10000", "over HTTP", "new", "median"),
        },
        "service-how-long-a-live-report-takes",
        short=True,
    ),
    Claim(
        "A loss for calibration costs little beside cross entropy",
        "`flsd53`, ResNet-8, batch {batch:.0f}, {classes:.0f} classes",
        "a step takes {share:.3f} times as long",
        "`augmix` sees each image three times: {augmix:.1f}. Penalties with steps or gradients of their own: up to"
        " {interleaved:.1f}",
        "training",
        {
            "batch": ("setting", "batch"),
            "classes": ("setting", "classes"),
            "share": ("methods", {"method": "flsd53"}, "share"),
            "augmix": ("methods", {"method": "augmix"}, "step"),
            "interleaved": ("methods", {"method": "mmce_interleaved"}, "step"),
        },
        "training-what-each-method-costs-beside-cross-entropy",
    ),
    Claim(
        "A killed run loses a minute at most, and checkpoints cost next to nothing",
        "ResNet-18, one in {every:.0f} s",
        "{share:.1%} of the time",
        "Where writing is slow, checkpoints come less often instead",
        "checkpoints",
        {"every": ("every",), "share": ("nets", {"net": "resnet18"}, "share")},
        "training-what-a-checkpoint-in-the-middle-of-an-epoch-costs",
    ),
    Claim(
        "Images are fetched and trained on without being held in memory",
        "{photos:,.0f} photos of 224 x 224, and {rows:,.0f} rows of 32 x 32 in an .npz",
        "at most {photos_peak:,.0f} and {rows_peak:,.0f} MB in training, interpreter, libraries and net included",
        "The logits of an epoch's training rows are held, 4 bytes a row and class; so is a compressed .npz in fetching",
        "photos",
        {
            "photos": ("count", "photos"),
            "rows": ("count", "rows"),
            "photos_peak": ("now", "photos", "train", "peak_mb"),
            "rows_peak": ("now", "rows", "train", "peak_mb"),
        },
        "fetching-and-training-on-many-images-peak-memory",
    ),
    Claim(
        "CIFAR-100 trains on two cores",
        "ResNet-8, {epochs:.0f} epochs, {images:,.0f} images a second",
        "in {seconds:.0f} s, to a test error of {error:.3f}",
        "The NLL falls from {before:.4f} to {after:.4f} by temperature scaling",
        "cifar100-resnet8-cpu",
        {
            "epochs": ("training", "recipe", "epochs"),
            "images": ("training_images_per_second",),
            "seconds": ("seconds", "train"),
            "error": ("metrics", "after", "error_rate"),
            "before": ("metrics", "before", "nll"),
            "after": ("metrics", "after", "nll"),
        },
        "cifar-100-on-two-cores",
        short=True,
    ),
    Claim(
        "Scheduling, isolation, experiment and publishing cost seconds",
        "`train/digits`",
        "{deployment:.0f} s by the deployment, {repro:.0f} s by `dvc repro`",
        "Where nothing has changed it is {again:.0f} s beside {again_repro:.1f} s",
        "flow-overhead-digits",
        {
            "deployment": ("seconds_by_deployment",),
            "repro": ("seconds_by_dvc_repro",),
            "again": ("seconds_by_deployment_when_nothing_changed",),
            "again_repro": ("seconds_by_dvc_repro_when_nothing_changed",),
        },
        "scheduled-runs-what-a-deployment-costs",
    ),
    Claim(
        "Answers of another server are taken fast, and are on disk when the call is answered",
        "{classes:.0f} classes, one worker, SQLite, over HTTP",
        "{ndjson:,.0f} rows a second in NDJSON, {parquet:,.0f} in Parquet (median)",
        "SQLite alone takes the same rows, ready made, several times as fast: ours are {ndjson_share:.0%} and"
        " {parquet_share:.0%} of its rate",
        "observe",
        {
            "classes": ("classes",),
            "ndjson": ("series", {"kind": "NDJSON"}, "rows_per_second"),
            "parquet": ("series", {"kind": "Parquet"}, "rows_per_second"),
            "ndjson_share": ("series", {"kind": "NDJSON"}, "share_of_sqlite"),
            "parquet_share": ("series", {"kind": "Parquet"}, "share_of_sqlite"),
        },
        "service-answers-of-another-server-a-second",
    ),
    Claim(
        "A report on a table of answers needs no server and little time",
        "{rows:,.0f} answers of 10 classes in a file, one core",
        "{npz:.1f} s of processor time from .npz, {parquet:.1f} s from Parquet; scikit-learn's log loss,"
        " Brier score and reliability curve alone {peer:.1f} s",
        "From CSV it takes {csv:.0f} s",
        "table_report",
        {
            "rows": ("setting", "rows"),
            "npz": ("usages", "npz", "seconds"),
            "parquet": ("usages", "parquet", "seconds"),
            "csv": ("usages", "csv", "seconds"),
            "peer": ("usages", "scikit-learn", "seconds"),
        },
        "a-table-of-answers-time-and-memory-of-its-report",
    ),
)
