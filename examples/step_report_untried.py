"""How `step_report` fits into torchtitan 0.2, Megatron-LM core 0.15 and DeepSpeed 0.17: by their code, not tried.

Each is a few lines of a program of yours; take the one that you need.
"""

from __future__ import annotations

from typing import Any

from alltrace.instrument import step_report


def torchtitan_trainer(trainer: type) -> type:
    """A trainer of torchtitan that reports: `torchtitan.trainer.Trainer` calls `train_step` once in each step."""

    class Reporting(trainer):
        """The trainer, with a report."""

        def train_step(self, data_iterator: Any) -> Any:
            """A step."""
            if not hasattr(self, "report"):
                self.report = step_report(at=self.step).phases(self.model_parts[0], self.optimizers.optimizers[0])
            result = super().train_step(self.report.data(data_iterator))
            self.report.step()
            return result

    return Reporting


def megatron_forward_step(forward_step: Any, report: step_report) -> Any:
    """The `forward_step` that `megatron.training.pretrain` gets: a batch and the model, for each micro-batch.

    Backward passes and pipeline messages are `other`. Call `report.step()` where the program knows that an iteration
    ended.
    """

    def measured(data_iterator: Any, model: Any, *more: Any) -> Any:
        with report.phase("forward"):
            return forward_step(report.data(data_iterator), model, *more)

    return measured


def deepspeed_loop(engine: Any, loader: Any) -> None:
    """The loop around an engine of DeepSpeed, which is a module; `backward` and `step` have no hooks."""
    with step_report(waits=("backward",)).phases(engine) as report:
        for batch in report.data(loader):
            loss = engine(batch)
            with report.phase("backward"):
                engine.backward(loss)
            with report.phase("optimizer"):
                engine.step()
            report.step()
