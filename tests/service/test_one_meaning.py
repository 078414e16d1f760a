"""A value has one meaning, or is refused, at every door: a table of values, with a column for each door."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from service.observe.cloud_event import STRUCTURED
from service.observe.parquet import PARQUET
from tests.service.app_client import Client
from tests.service.bodies import parquet_of
from tests.service.tiny_bundle import pictures
from trueodds.client import AsyncClient, CallError
from trueodds.errors import ConfigError

JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
STARS, PETS = ("1", "2", "3", "4", "5"), ("cat", "dog", "hare")
REFUSED = ("refused",)
NUMBER = {"csv"}
"""Doors that have no such value: a cell of CSV is a text, and so the row of that text."""
BLANKS = {"csv"}
"""Doors that leave out blanks around a value: the others refuse them, or keep them."""

Row = dict[str, Any]


def name_of(value: Any) -> str:
    """The name of a case, the same in every process."""
    return str(sorted(value) if isinstance(value, set) else value)[:40]


Door = Callable[[Client, Row], bool]
"""Sends one row; whether it was taken."""


@pytest.fixture(scope="module")
def stars(serve_once: Callable[..., Client]) -> Client:
    return serve_once(classes=STARS)


@pytest.fixture(scope="module")
def pets(serve_once: Callable[..., Client]) -> Client:
    return serve_once(classes=PETS)


@pytest.fixture(scope="module")
def ids() -> Iterator[str]:
    return (f"row-{n}" for n in range(10_000))


def plain(value: Any) -> Any:
    """A value of numpy or of Python as JSON has it."""
    value = value.item() if isinstance(value, np.generic) else value
    return value.isoformat() if isinstance(value, date) else value


def sent(client: Client, path: str, content: bytes, media_type: str, **query: str) -> bool:
    answer = client.post(path, content=content, headers={"content-type": media_type}, params=query)
    assert answer.status_code in (200, 400, 422), answer.text
    return answer.status_code == 200 and not answer.json().get("failed")


def json_of(row: Any) -> bytes:
    return json.dumps(row, default=plain).encode()


def csv_of(row: Row) -> bytes:
    def cell(value: Any) -> str:
        value = plain(value)
        return "" if value is None else json.dumps(value) if isinstance(value, bool) else str(value)

    return f"{','.join(row)}\n{','.join(cell(value) for value in row.values())}\n".encode()


def by_client(client: Client, ask: Callable[[AsyncClient], Any]) -> bool:
    async def call() -> None:
        asking = AsyncClient("http://service")
        await asking.close()
        asking._http = client.http
        await ask(asking)

    try:
        client.run(call())
    except (CallError, ConfigError):
        return False
    return True


def label_by_client(client: Client, row: Row) -> bool:
    return by_client(client, lambda asking: asking.feedback([row["id"]], **_lists(row, {"label": "labels"})))


def _lists(row: Row, names: dict[str, str]) -> Row:
    return {names.get(key, key): [value] for key, value in row.items() if key != "id"}


LABELS: dict[str, Door] = {
    "one": lambda client, row: sent(client, "/feedback", json_of(row), JSON),
    "many": lambda client, row: sent(client, "/feedback", json_of({"labels": [row]}), JSON),
    "lines": lambda client, row: sent(client, "/feedback", json_of(row), LINES),
    "csv": lambda client, row: sent(client, "/feedback", csv_of(row), CSV),
    "client": label_by_client,
}

BY_NAME_OR_INDEX: list[tuple[Row, Any, set[str]]] = [
    ({"label": "3"}, "3", set()),
    ({"label": 3}, "3", set()),
    ({"label": np.int64(3)}, "3", set()),
    ({"label": np.str_("3")}, "3", set()),
    ({"label": 0}, REFUSED, set()),
    ({"label": 6}, REFUSED, set()),
    ({"label": -1}, REFUSED, set()),
    ({"label": 2**63}, REFUSED, set()),
    ({"label": 3.0}, "3", set()),
    ({"label": np.float64(3)}, "3", set()),
    ({"label": 3.5}, REFUSED, set()),
    ({"label": True}, REFUSED, set()),
    ({"label": np.True_}, REFUSED, set()),
    ({"label": None}, REFUSED, set()),
    ({"label": ""}, REFUSED, set()),
    ({"label": " 3"}, REFUSED, BLANKS),
    ({"label": "03"}, REFUSED, set()),
    ({"label": "3.0"}, "3", set()),
    ({"label": "three"}, REFUSED, set()),
    ({"index": 0}, "1", set()),
    ({"index": 4}, "5", set()),
    ({"index": np.uint8(2)}, "3", set()),
    ({"index": 5}, REFUSED, set()),
    ({"index": -1}, REFUSED, set()),
    ({"index": 2.0}, "3", set()),
    ({"index": 2.5}, REFUSED, set()),
    ({"index": True}, REFUSED, set()),
    ({"index": None}, REFUSED, {"client"}),
    ({"index": "2"}, REFUSED, NUMBER),
    ({"index": 2, "label": "3"}, REFUSED, set()),
]
OF_PETS: list[tuple[Row, Any, set[str]]] = [
    ({"label": "dog"}, "dog", set()),
    ({"label": 1}, REFUSED, set()),
    ({"label": "1"}, REFUSED, set()),
    ({"label": True}, REFUSED, set()),
    ({"index": 1}, "dog", set()),
    ({"index": 3}, REFUSED, set()),
]


def check_labels(client: Client, row: Row, meaning: Any, without: set[str]) -> None:
    doors = {name: door for name, door in LABELS.items() if name not in without}
    answers = client.predict(pictures(len(doors)))
    found = {}
    for (name, door), answer in zip(doors.items(), answers, strict=True):
        taken = door(client, {"id": answer["id"], **row})
        label = client.get(f"/predictions/{answer['id']}").json()["label"]
        assert taken == (label is not None)
        found[name] = label if taken else REFUSED
    assert found == dict.fromkeys(doors, meaning)


@pytest.mark.parametrize(("row", "meaning", "without"), BY_NAME_OR_INDEX, ids=name_of)
def test_labels_of_classes_that_are_whole_numbers(stars: Client, row: Row, meaning: Any, without: set[str]) -> None:
    """Issue: of 1..5 an integer was an index in JSON, NDJSON and the client, and a name in CSV."""
    check_labels(stars, row, meaning, without)


@pytest.mark.parametrize(("row", "meaning", "without"), OF_PETS, ids=name_of)
def test_labels_of_classes_with_other_names(pets: Client, row: Row, meaning: Any, without: set[str]) -> None:
    """A whole number is a name there, too, which no class has: it is refused rather than guessed."""
    check_labels(pets, row, meaning, without)


WHOSE = {"model": "stars", "version": "c"}
QUERY = {"classes": ",".join(STARS)}


def observe_by_client(client: Client, row: Row) -> bool:
    names = {"tag": "tags", "time": "times", "propensity": "propensities", "confidence": "probabilities"}
    options = _lists({key: value for key, value in row.items() if key not in WHOSE}, names)
    whose = {key: row[key] for key in WHOSE}
    return by_client(client, lambda asking: asking.observe([row["id"]], **options, classes=STARS, **whose))


def table_of(row: Row) -> bytes:
    return parquet_of({key: [value.item() if isinstance(value, np.generic) else value] for key, value in row.items()})


ANSWERS: dict[str, Door] = {
    "one": lambda client, row: sent(client, "/observe", json_of(row), JSON, **QUERY),
    "many": lambda client, row: sent(client, "/observe", json_of({"observations": [row]}), JSON, **QUERY),
    "lines": lambda client, row: sent(client, "/observe", json_of(row), LINES, **QUERY),
    "csv": lambda client, row: sent(client, "/observe", csv_of(row), CSV, **QUERY),
    "parquet": lambda client, row: sent(client, "/observe", table_of(row), PARQUET, **QUERY),
    "client": observe_by_client,
}
THEN, MIDNIGHT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), datetime(2023, 11, 14, tzinfo=UTC)
OBSERVED: list[tuple[Row, Any, set[str]]] = [
    ({"predicted": "2"}, "2", set()),
    ({"predicted": 2}, "2", set()),
    ({"predicted": np.int64(2)}, "2", set()),
    ({"predicted": 0}, REFUSED, set()),
    ({"predicted": 2.0}, "2", set()),
    ({"predicted": True}, REFUSED, set()),
    ({"predicted": " 2"}, REFUSED, BLANKS),
    ({"predicted": "02"}, REFUSED, set()),
    ({"predicted": None}, REFUSED, set()),
    ({"index": 1}, "2", set()),
    ({"index": 0}, "1", set()),
    ({"index": 5}, REFUSED, set()),
    ({"index": -1}, REFUSED, set()),
    ({"index": 1.0}, "2", set()),
    ({"index": True}, REFUSED, set()),
    ({"index": "1"}, REFUSED, NUMBER),
    ({"index": 1, "predicted": "2"}, REFUSED, set()),
    ({"time": 1_700_000_000}, THEN, set()),
    ({"time": 1_700_000_000.0}, THEN, set()),
    ({"time": "1700000000"}, THEN, set()),
    ({"time": "2023-11-14T22:13:20Z"}, THEN, set()),
    ({"time": "2023-11-14T22:13:20"}, THEN, set()),
    ({"time": "2023-11-15T00:13:20+02:00"}, THEN, set()),
    ({"time": THEN}, THEN, set()),
    ({"time": THEN.replace(tzinfo=None)}, THEN, set()),
    ({"time": np.datetime64("2023-11-14T22:13:20")}, THEN, set()),
    ({"time": "2023-11-14"}, MIDNIGHT, set()),
    ({"time": date(2023, 11, 14)}, MIDNIGHT, set()),
    ({"time": 20231114}, REFUSED, set()),
    ({"time": "20231114"}, REFUSED, set()),
    ({"time": 1_700_000_000_000}, THEN, set()),
    ({"time": "1700000000000"}, THEN, set()),
    ({"time": 1_700_000_000_000_000}, THEN, set()),
    ({"time": 1_700_000_000_000_000_000}, THEN, set()),
    ({"time": 20_231_114_221_320}, REFUSED, set()),
    ({"time": 1_700_000_000_0000}, REFUSED, set()),
    ({"time": "1_700_000_000"}, REFUSED, set()),
    ({"time": "nan"}, REFUSED, set()),
    ({"time": "soon"}, REFUSED, set()),
    ({"time": True}, REFUSED, set()),
    ({"time": "0001-01-01T00:00:00+23:59"}, REFUSED, set()),
    ({"tag": "night"}, "night", set()),
    ({"tag": "7"}, "7", set()),
    ({"tag": " "}, " ", BLANKS),
    ({"tag": None}, None, set()),
    ({"tag": 7}, REFUSED, NUMBER),
    ({"tag": True}, REFUSED, NUMBER),
    ({"tag": "two\x07"}, REFUSED, set()),
    ({"id": 7}, REFUSED, NUMBER),
    ({"id": "f" * 36}, REFUSED, set()),
    ({"version": 7}, REFUSED, {*NUMBER, "client"}),
    ({"version": True}, REFUSED, {*NUMBER, "client"}),
    ({"model": 0}, REFUSED, {*NUMBER, "client"}),
    ({"model": "a b"}, REFUSED, set()),
    ({"propensity": 0.25}, 0.25, set()),
    ({"propensity": 1}, 1.0, set()),
    ({"propensity": None}, None, set()),
    ({"propensity": 0}, REFUSED, set()),
    ({"propensity": True}, REFUSED, set()),
    ({"propensity": "0.25"}, REFUSED, NUMBER),
    ({"propensity": "0_1"}, REFUSED, set()),
    ({"propensity": "٠.٥"}, REFUSED, set()),
    ({"confidence": 0.5}, 0.5, set()),
    ({"confidence": 1}, 1.0, set()),
    ({"confidence": 1.5}, REFUSED, set()),
    ({"confidence": float("nan")}, REFUSED, set()),
    ({"confidence": True}, REFUSED, set()),
    ({"confidence": "0.5"}, REFUSED, NUMBER),
    ({"confidence": "0_1"}, REFUSED, set()),
    ({"confidence": "٠.٥"}, REFUSED, set()),
]


@pytest.mark.parametrize(("row", "meaning", "without"), OBSERVED, ids=name_of)
def test_answers_of_another_server(
    stars: Client, ids: Iterator[str], row: Row, meaning: Any, without: set[str]
) -> None:
    found, (key, *_) = {}, row
    doors = {name: door for name, door in ANSWERS.items() if name not in without}
    for name, door in doors.items():
        whole = {"id": next(ids), **WHOSE, "confidence": 0.7, **({} if "index" in row else {"predicted": "2"}), **row}
        taken = door(stars, whole)
        found[name] = stored(stars, whole["id"], key) if taken else REFUSED
    assert found == dict.fromkeys(doors, meaning)


def stored(client: Client, id_: str, key: str) -> Any:
    answer = client.get(f"/predictions/{id_}").json()
    value = answer[{"index": "predicted"}.get(key, key)]
    return datetime.fromisoformat(value) if key == "time" else value


def observe_tensor(client: Client, values: list[Any], id_: str) -> bool:
    tensor = {"name": "probabilities", "shape": [1, len(values)], "datatype": "FP64", "data": values}
    return event(client, {"outputs": [tensor]}, id_)


def event(client: Client, data: Any, id_: str, **attributes: Any) -> bool:
    kind = {"type": "org.kubeflow.serving.inference.response", "inferenceservicename": "events", "id": id_}
    body = json_of({"specversion": "1.0", **kind, "data": data, **attributes})
    return sent(client, "/kserve/logger", body, STRUCTURED, **QUERY)


NUMBERS: dict[str, Callable[[Client, list[Any], str], bool]] = {
    "list": lambda client, values, id_: ANSWERS["one"](client, numbers(id_, values)),
    "names": lambda client, values, id_: ANSWERS["lines"](client, numbers(id_, dict(zip(STARS, values, strict=True)))),
    "csv": lambda client, values, id_: ANSWERS["csv"](client, columns(id_, values)),
    "parquet": lambda client, values, id_: ANSWERS["parquet"](client, columns(id_, values)),
    "lists of parquet": lambda client, values, id_: ANSWERS["parquet"](client, numbers(id_, values)),
    "V1": lambda client, values, id_: event(client, {"predictions": [values]}, id_),
    "V2": observe_tensor,
    "client": lambda client, values, id_: by_client(
        client, lambda asking: asking.observe([id_], [values], model="stars", version="p", classes=STARS)
    ),
}


def numbers(id_: str, values: Any) -> Row:
    return {"id": id_, "model": "stars", "version": "p", "probabilities": values}


def columns(id_: str, values: list[Any]) -> Row:
    return {"id": id_, "model": "stars", "version": "p", **dict(zip(STARS, values, strict=True))}


PROBABILITIES: list[tuple[list[Any], Any, set[str]]] = [
    ([0.1, 0.2, 0.4, 0.2, 0.1], "3", set()),
    ([0, 0, 0, 1, 0], "4", set()),
    ([0.1, 0.2, 0.4, 0.2, 0.2], REFUSED, set()),
    ([-0.1, 0.3, 0.4, 0.2, 0.2], REFUSED, set()),
    ([float("nan"), 0.2, 0.4, 0.2, 0.2], REFUSED, set()),
    ([False, False, True, False, False], REFUSED, set()),
    (["0.1", "0.2", "0.4", "0.2", "0.1"], REFUSED, NUMBER),
    (["0_1", "0", "0", "0", "0"], REFUSED, set()),
]


@pytest.mark.parametrize(("values", "meaning", "without"), PROBABILITIES, ids=name_of)
def test_probabilities(stars: Client, ids: Iterator[str], values: list[Any], meaning: Any, without: set[str]) -> None:
    doors, found = {name: door for name, door in NUMBERS.items() if name not in without}, {}
    for name, door in doors.items():
        id_ = next(ids)
        taken = door(stars, values, id_)
        own = f"{id_}-0" if name in ("V1", "V2") else id_
        found[name] = stored(stars, own, "predicted") if taken else REFUSED
    assert found == dict.fromkeys(doors, meaning)


@pytest.mark.parametrize(("row", "meaning", "without"), [one for one in OBSERVED if "time" in one[0]], ids=name_of)
def test_times_of_events(stars: Client, ids: Iterator[str], row: Row, meaning: Any, without: set[str]) -> None:
    id_ = next(ids)
    taken = event(stars, {"predictions": [[0.1, 0.2, 0.4, 0.2, 0.1]]}, id_, **row)
    assert (stored(stars, f"{id_}-0", "time") if taken else REFUSED) == meaning


def predict_in_body(client: Client, row: Row) -> bool:
    names = {"id": "ids", "tag": "tags", "propensity": "propensities"}
    body = {"instances": pictures(1), **{names[key]: [value] for key, value in row.items()}}
    return sent(client, "/predict", json_of(body), JSON)


def predict_by_query(client: Client, row: Row) -> bool:
    query = {key: str(value) for key, value in row.items() if key != "id" and value is not None}
    headers = {"x-prediction-id": row["id"].encode(), "content-type": JSON}
    answer = client.post("/predict", content=json_of({"instances": pictures(1)}), headers=headers, params=query)
    assert answer.status_code in (200, 422), answer.text
    return answer.status_code == 200


def predict_by_protocol(client: Client, row: Row) -> bool:
    parameters = {"prediction_id" if key == "id" else key: value for key, value in row.items()}
    image = np.array(pictures(1)).ravel().tolist()
    tensor = {"name": "images", "shape": [1, 4, 4, 1], "datatype": "UINT8", "data": image}
    return sent(client, "/v2/models/tiny/infer", json_of({"inputs": [tensor], "parameters": parameters}), JSON)


def predict_by_client(client: Client, row: Row) -> bool:
    options = {key: value for key, value in row.items() if key != "id"}
    image = np.array(pictures(1), np.uint8)
    return by_client(client, lambda asking: asking.predict(image, ids=[row["id"]], **options))


PREDICT: dict[str, Door] = {
    "body": predict_in_body,
    "query": predict_by_query,
    "protocol": predict_by_protocol,
    "client": predict_by_client,
}


@pytest.mark.parametrize(
    ("row", "meaning", "without"),
    [one for one in OBSERVED if one[0].keys() & {"tag", "propensity", "id"}],
    ids=name_of,
)
def test_what_is_said_beside_an_input(
    stars: Client, ids: Iterator[str], row: Row, meaning: Any, without: set[str]
) -> None:
    """As with answers of another server; a query holds texts only, as CSV does."""
    found, (key, *_) = {}, row
    doors = {name: door for name, door in PREDICT.items() if not ("csv" in without and name in ("query", "client"))}
    for name, door in doors.items():
        whole = {"id": next(ids), **row}
        found[name] = stored(stars, whole["id"], key) if door(stars, whole) else REFUSED
    assert found == dict.fromkeys(doors, meaning)


def test_a_date_without_dashes_is_no_moment_of_a_query(stars: Client) -> None:
    """It would be one of 1970: the window of a report, and of labels to void, would be all there is."""
    for day in ("20231114", "20231114.0"):
        answers = [
            stars.get("/calibration-report", params={"since": day}),
            stars.get("/predictions", params={"until": day}),
            stars.get("/admin/labelled.npz", params={"since": day}),
            stars.post("/admin/labels/void", json={"who": "Ada", "why": "so", "dry_run": True, "since": day}),
        ]
        for answer in answers:
            assert answer.status_code == 422 and "write a date with dashes" in answer.text, answer.text
    assert stars.get("/calibration-report", params={"since": "1700000000"}).json()["window"]["since"] == (
        "2023-11-14T22:00:00Z"
    )
