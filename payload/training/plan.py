"""The plan of a run: its settings, data, schedule and ranks. It is fixed before the first step."""

from __future__ import annotations

import dataclasses

from payload.data.class_names import class_names
from payload.data.dataset import Dataset, View
from payload.data.records.record_split import MARGIN, RecordSplit
from payload.recipes.train_config import TrainConfig
from payload.settings import Settings
from payload.training.distributed import Ranks
from payload.training.export.settings_file import ModelSpec
from payload.training.rank_setup import RankSetup
from payload.training.reporting.result_file import Provenance
from payload.training.schedule import Schedule
from payload.training.train_state import image_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The plan of a run, as seen by one rank."""

    config: TrainConfig
    data: Dataset
    schedule: Schedule
    ranks: Ranks
    rank_setup: RankSetup
    """Cores, GPU and threads of this rank."""
    placements: tuple[str, ...]
    """Description of each rank's cores, memory and GPU, by rank."""
    provenance: Provenance
    started: float
    """Unix time at which this process started."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the run."""
        return self.config.settings

    @property
    def variant(self) -> str | None:
        """Return the name of the recipe's variant, or None."""
        return self.config.variant.name if self.config.variant else None

    @property
    def evaluated(self) -> str:
        """Return the name of the split that is evaluated after each epoch.

        It is "validation" if images are held back for validation, otherwise "test".
        """
        return "validation" if self.data.validation else "test"

    @property
    def last_test_view(self) -> View:
        """Return how test images are cropped and resized in the evaluation after the last epoch."""
        return self.test_view(self.schedule.epochs - 1)

    def training_view(self, epoch: int) -> View:
        """Return how training images are cropped, changed and resized in an epoch. Epochs count from 0.

        Before the first augmented epoch, images are only cropped around their center and resized.
        """
        settings, phase = self.settings, self.schedule.phase(epoch)
        size = image_size(self.data, phase.size)
        if epoch < self.schedule.augmented_from:
            return View(size=size)
        return View(
            size=size,
            smallest_crop=phase.smallest_crop,
            flip=settings.flip,
            rotation_deg=settings.rotation_deg,
            shift_fraction=settings.shift_fraction,
            zoom_fraction=settings.zoom_fraction,
        )

    def test_view(self, epoch: int) -> View:
        """Return how test images are cropped and resized in the evaluation after an epoch. Epochs count from 0."""
        phase = self.schedule.phase(epoch)
        return View(size=image_size(self.data, self.settings.test_size or phase.size), rectangular=phase.rectangular)

    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes, from labels.txt in the data directory or next to the record files.

        Without this file, they are the published names or the numbers of the classes. Raises DataError if it is
        invalid.
        """
        split = self.data.test
        folders = [records.directory for records in split.sets] if isinstance(split, RecordSplit) else []
        beside = [folder for path in folders for folder in (path, path.parent)]
        return class_names(self.settings.dataset, split.classes, self.config.data_dir, *beside)

    def model_spec(self, input_shape: tuple[int | None, int | None, int]) -> ModelSpec:
        """Return the specification for rebuilding the network. Raises DataError if labels.txt is invalid.

        `input_shape`: height, width and channels of the network's input.
        """
        view = self.last_test_view
        return ModelSpec(
            recipe=self.config.recipe.name,
            variant=self.variant,
            data_dir=self.config.data_dir,
            labels=self.class_names(),
            input_shape=input_shape,
            test_size=view.size,
            rectangular=view.rectangular,
            margin=MARGIN if isinstance(self.data.test, RecordSplit) else 1.0,
            settings=self.settings,
        )
