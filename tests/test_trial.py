"""A bundle tried as a service will use it: its extreme rows, a full batch, and the service's own loading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline.cli import COMMANDS
from pipeline.recalibrate import Recalibration, choose
from pipeline.recalibrate.judgement_loop import publish_candidate
from pipeline.recalibrate.model_state import ModelState
from service.models.model import Model
from tests.importing.test_texts import WORDS, write_model
from tests.inputs.test_text import backtracking
from tests.service.tiny_bundle import tokenizer_json
from trueodds import cli
from trueodds.bundle import Bundle, BundleError, Description, open_models, trial
from trueodds.calibrators import Temperature
from trueodds.client import Client, Labelled
from trueodds.importing import importer
from trueodds.importing.rewriting import session
from trueodds.inputs import Inputs, TensorSignature, TextInput

KIND = TextInput(max_tokens=8, vocabulary_size=7, mask="attention_mask").with_tokenizer(tokenizer_json(WORDS))
TAKEN: Sequence[TensorSignature] = [
    SimpleNamespace(name=name, type="tensor(int64)", shape=["N", "L"]) for name in ("input_ids", "attention_mask")
]
GIVEN: Sequence[TensorSignature] = [SimpleNamespace(name="logits", type="tensor(float)", shape=["N", 2])]
GOLDEN = [0.5, -0.5]


def bundle_of(folder: Path, most: int = 0, kind: TextInput = KIND, golden: Any = None, **options: Any) -> Bundle:
    """A bundle whose golden text has two words; `most`: positions of its graph, 0: any number."""
    write_model(folder / "m.onnx", mask=True, most=most)
    described = Description(
        name="bag", classes=["no", "yes"], input=kind, method="", training={}, metrics={}, data_sha256="",
        code_sha256="",
    )  # fmt: skip
    row, logits = kind.of_texts(["good film"])[0], GOLDEN if golden is None else golden
    return Bundle.write(
        folder / "bundle",
        folder / "m.onnx",
        Temperature(1.5),
        described,
        golden_input=row,
        golden_logits=logits,
        **options,
    )


def answers(change: Callable[[Inputs, npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Inputs], npt.NDArray[Any]]:
    """The golden answer for every row, changed."""
    return lambda rows: change(rows, np.tile(GOLDEN, (len(rows), 1)))


def fail(rows: Inputs, logits_NC: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if rows[:, 0].max() >= 8:
        raise RuntimeError("index\n 8 is out of bounds")
    return logits_NC


def test_what_is_answered_comes_back(tmp_path: Path) -> None:
    """Texts of all tokens, with the last words of the vocabulary first; a text without tokens may give NaN."""
    infer = answers(lambda rows, logits_NC: np.where(rows[:, :1] == 0, np.nan, logits_NC))
    rows = trial.check(bundle_of(tmp_path), TAKEN, GIVEN, infer)
    assert [*rows] == ["the golden input", "a text of 8 tokens"]
    assert rows["a text of 8 tokens"][0, 1:6].tolist() == [6, 5, 4, 3, 2] and rows["a text of 8 tokens"][0, 0] > 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (fail, r"model\.onnx: a text of 8 tokens cannot be run: index 8 is out of bounds"),
        (
            lambda rows, logits_NC: np.where(rows[:, :1] > 2, np.inf, logits_NC),
            "gives no finite logits for a text of 8 tokens",
        ),
        (lambda _, logits_NC: logits_NC[:, :1], r"answers the golden input with shape \(1, 1\), expected \(1, 2\)"),
        (lambda _, logits_NC: logits_NC + 1, "golden logits differ by 1"),
    ],
)
def test_rows_that_are_not_answered(change: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=words):
        trial.check(bundle_of(tmp_path), TAKEN, GIVEN, answers(change))


def test_a_batch_is_answered_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, sizes = bundle_of(tmp_path), []

    def counted(rows: Inputs, logits_NC: npt.NDArray[Any]) -> npt.NDArray[Any]:
        sizes.append(len(rows))
        return logits_NC

    rows = trial.check(bundle, TAKEN, GIVEN, answers(counted))
    trial.check_batch(bundle, rows, answers(counted))
    assert sizes[-1] == trial.BATCH
    with pytest.raises(BundleError, match=r"the logits of a row depend on the other rows of its batch \(by 0.5\)"):
        trial.check_batch(bundle, rows, answers(lambda rows, logits_NC: logits_NC + (len(rows) > 1) / 2))
    with pytest.raises(BundleError, match="a batch of 64 rows cannot be run: too many"):
        trial.check_batch(bundle, rows, answers(alone))
    monkeypatch.setattr(trial, "SECONDS", 0)
    trial.check_batch(bundle, rows, answers(counted))
    assert sizes[-1] == len(rows)


def alone(rows: Inputs, logits_NC: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(rows) > 1:
        raise MemoryError("too many")
    return logits_NC


def test_the_service_and_those_who_publish_refuse_the_same_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Positions for 4 tokens, where the card says 8; the golden text has two."""
    write_model(tmp_path / "m.onnx", mask=True, most=4)
    golden = session(str(tmp_path / "m.onnx"), tmp_path).run(None, KIND.feed(KIND.of_texts(["good film"]), []))[0][0]
    bundle = bundle_of(tmp_path, most=4, golden=golden)
    words = "a text of 8 tokens cannot be run"
    with pytest.raises(BundleError, match=words):
        Model.load(bundle.directory, threads=1)
    with pytest.raises(BundleError, match=words):
        importer.try_bundle(bundle)
    version = bundle.version
    with pytest.raises(BundleError, match=words):
        bundle_of(tmp_path, most=4, golden=golden, trial=importer.try_bundle)
    assert Bundle.load(tmp_path / "bundle").version == version  # it is as it was
    models = str(tmp_path / "models")
    assert cli.main("trueodds", COMMANDS, ["publish", "--bundle", str(bundle.directory), "--models", models]) == 1
    assert words in capsys.readouterr().err and not Path(models).exists()
    rng = np.random.default_rng(0)
    rows = Labelled(
        rng.normal(0, 3, (400, 2)).astype(np.float32), rng.integers(0, 2, 400), np.arange(400, dtype=np.int64)
    )
    choice = choose(bundle.calibrator, rows.logits_NC, rows.labels_N)
    request = Recalibration(Client.from_environment(), open_models(tmp_path / "models"))
    with pytest.raises(BundleError, match=words):
        publish_candidate(request, ModelState("bag", bundle), choice, rows)
    assert not Path(models).exists()
    whole = bundle_of(tmp_path, most=8, golden=golden, trial=importer.try_bundle)
    assert Model.load(whole.directory, threads=1).version.version == whole.version


def test_a_tokenizer_that_fails_on_its_own_words(tmp_path: Path) -> None:
    kind = TextInput(max_tokens=8, vocabulary_size=2, mask="attention_mask").with_tokenizer(
        backtracking().replace(b'"one"', b'"' + b"x" * 40 + b'"')
    )
    with pytest.raises(BundleError, match=r"no rows for a trial can be made: .*retry-limit-in-match over"):
        trial.check(bundle_of(tmp_path, kind=kind), TAKEN, GIVEN, answers(lambda _, logits_NC: logits_NC))
