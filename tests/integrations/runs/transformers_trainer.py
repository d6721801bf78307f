# SPDX-License-Identifier: Apache-2.0
"""The Trainer of Transformers: it counts batches, and skips them when it resumes."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.integrations.runs.job import CLASSES, SIZE, TRANSFORM, Job, Log, main
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments

from headrace.integrations.accelerate import prepare
from headrace.transforms import PerBatch


class Model(PreTrainedModel):
    """A linear layer that logs what it is trained on."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(SIZE, CLASSES))
        self.record: Log | None = None
        self.post_init()

    def forward(self, pixel_values, labels, repeat=None):
        self.record.received(pixel_values, labels, repeat)
        logits = self.layers(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class End(TrainerCallback):
    """Comes after the checkpoint: the callback is asked again when it is saved."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.record: Log | None = None

    def on_step_begin(self, args, state, control, **others):  # noqa: ARG002
        if state.global_step and self.record is not None:
            self.record.after_step()


class ImageTrainer(Trainer):
    """A Trainer whose training batches come from a headrace.Loader."""

    def __init__(self, job: Job, **options) -> None:
        super().__init__(**options)
        self.job = job

    def get_train_dataloader(self):
        return prepare(self.job.loader(transform=[*TRANSFORM, PerBatch(inputs)]), self.accelerator)


def inputs(batch):
    names = {"pixel_values": batch["image"], "labels": batch["label"]}
    return {**names, "repeat": batch["_repeat"]} if "_repeat" in batch else names


def train(job: Job) -> None:
    arguments = TrainingArguments(
        output_dir=job.path("out"),
        use_cpu=True,
        num_train_epochs=job.epochs,
        save_steps=job.save_every,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    end = End(job)
    model = Model(PretrainedConfig())
    trainer = ImageTrainer(job, model=model, args=arguments, callbacks=[end])
    model.record = end.record = job.log(arguments.process_index)
    trainer.train(resume_from_checkpoint=last_checkpoint(job) if job.resumes else None)


def last_checkpoint(job: Job) -> str:
    return str(max(Path(job.path("out")).glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])))


if __name__ == "__main__":
    main(train)
