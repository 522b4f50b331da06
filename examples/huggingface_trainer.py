"""A callback for the Trainer of Hugging Face transformers: Trainer(..., callbacks=[AlltraceCallback()]).

torchrun --nproc-per-node 8 --no-python alltrace capture exec --steps 70:75 -- python train.py
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from alltrace.instrument import annotate, step_report, steps, torch_profile


class AlltraceCallback(TrainerCallback):
    """Opens the window of steps on every rank, and names each step and evaluation.

    Steps are those of the optimizer, as `max_steps` counts them. A training that is resumed goes on at its own step.
    """

    def __init__(self) -> None:
        self._window: Any = None
        self._profile: Any = None
        self._step: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training begins, or goes on at `state.global_step`."""
        self._window = steps(at=state.global_step)
        self._window.__enter__()
        self._profile = torch_profile()
        self._profile.__enter__()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step of the optimizer begins."""
        self._step = annotate("step")
        self._step.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step of the optimizer has ended."""
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        self._window.step()
        self._profile.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training has ended, in time or early."""
        self._profile.__exit__(None, None, None)
        self._window.__exit__(None, None, None)


class AlltraceReport(TrainerCallback):
    """Says during the training which rank is slow, and writes every step down: `alltrace.instrument.step_report`."""

    def __init__(self, record: str | None = None) -> None:
        self._record = record
        self._report: Any = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **_: Any
    ) -> None:
        """The training begins, or goes on at `state.global_step`; Accelerate's optimizer calls its inner hooks."""
        optimizer = getattr(optimizer, "optimizer", optimizer)
        self._report = step_report(at=state.global_step, record=self._record).phases(model, optimizer)
        self._report.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step of the optimizer has ended."""
        self._report.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training has ended, in time or early."""
        self._report.__exit__(None, None, None)
