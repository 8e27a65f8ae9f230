"""What a run writes: checkpoints, TensorBoard events, exports."""

from __future__ import annotations

import dataclasses

from payload.settings.rules import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings:
    """Choose checkpoints, records and exports."""

    checkpoint_epochs: int = setting(
        1, "epochs between checkpoints; the last always ends with one", low=1, high=100_000
    )
    checkpoint_minutes: float = setting(
        5.0,
        "minutes of training that a fault may cost, by checkpoints within an epoch; 0: none there",
        low=0,
        high=100_000,
    )
    checkpoint_cost_percent: float = setting(
        2.0, "% of the time that checkpoints within an epoch may take; else they are rarer; 0: no limit", low=0, high=50
    )
    keep_checkpoints: int = setting(
        3, "newest checkpoints after epochs kept; more than one, in case the newest is damaged", low=1, high=1000
    )
    keep_best: bool = setting(False, "also keep the checkpoint of the best accuracy")
    checkpoint_dir: str = setting(
        "", "directory or s3://BUCKET/PREFIX for the checkpoints; default: the run's directory"
    )
    histogram_epochs: int = setting(
        0, "epochs between histograms of the weights for TensorBoard; 0: none", low=0, high=100_000
    )
    pictures: bool = setting(False, "show images, first filters and, at the end, embeddings in TensorBoard")
    profile_steps: str = setting("", "steps FIRST-LAST, counted from 1, to profile for TensorBoard")
    confusion_matrix: bool = setting(False, "write confusion.json and mistakes.json at the end")
    export: bool = setting(False, "write the network as model.keras and SavedModel at the end")
    export_onnx: bool = setting(False, "the same and model.onnx, checked by ONNX Runtime against Keras's answers")
