"""The recipe for speaker identification: included utterances and a recurrent network."""

from __future__ import annotations

from typing import Final

from payload.recipes.recipe import Recipe
from payload.settings import Settings

JAPANESE_VOWELS: Final = Recipe(
    name="japanese-vowels",
    summary="an LSTM on 640 utterances of nine speakers that come with the program",
    settings=Settings(
        network="lstm",
        dataset="japanese-vowels",
        epochs=60,
        batch_per_rank=16,
        global_batch_limit=32,
        optimizer="adam",
        momentum=0.9,
        learning_rate=0.004,
        base_batch=32,
        checkpoint_epochs=20,
    ),
    command="fab train --nodes 2 --recipe japanese-vowels",
    hardware="2 ranks on 2 CPU cores",
    expected_time="48 s to 1:42 beside other work, of which 20 s and more start-up",
    expected_accuracy="96.0% to 98.1% over seeds 1 to 3; one rank: 96.8% to 97.3%",
    evidence="measured",
    source="",
)
