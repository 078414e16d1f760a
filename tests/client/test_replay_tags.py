"""Tags of a replay at a real service: those of the rows arrive there, or those of the option."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.client.data import CLASSES, SHAPE, images
from trueodds.client import Client
from trueodds.inputs import ImageInput
from trueodds.replay.caller import Caller
from trueodds.replay.runner import Replay, ReplayPlan
from trueodds.replay.source import ModelSignature, read
from trueodds.replay.stream import Stream

TAKES = ModelSignature(ImageInput(height=SHAPE[0], width=SHAPE[1], channels=SHAPE[2]), CLASSES)


def answers_by_tag(client: Client) -> dict[str, int]:
    return {one.name: one.answers for one in client.report(by="tag").tags or ()}


def test_tags_of_rows_and_of_the_option_arrive(client: Client, url: str, tmp_path: Path) -> None:
    tags = ["replayed day", "replayed night", ""]
    places = np.arange(30) % 3
    arrays = {"x_test": images(30), "y_test": np.arange(30) % 10, "class_names": np.array(CLASSES)}
    np.savez(tmp_path / "data.npz", **arrays, groups_test=np.array(tags)[places])
    source = read(tmp_path / "data.npz", TAKES)
    sent = dict.fromkeys((*tags, "replayed option"), 0)
    for of_option in ((), ("replayed option",)):
        stream = Stream(source, 20.0, tags=of_option, classes=10, seed=4)
        for event in stream.events():
            if event.at >= 3:
                break
            sent[event.tag or ""] += 1
        with Caller(url) as caller:
            Replay(caller, stream, ReplayPlan(speed=np.inf, seconds=3, drain=True), lambda line: None).run()
    arrived = answers_by_tag(client)
    assert sent["replayed day"] > 5 and sent["replayed option"] > 30
    assert {name: arrived[name] for name in sent if name} == {name: count for name, count in sent.items() if name}
