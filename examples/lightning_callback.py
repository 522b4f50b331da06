"""A callback for Lightning: Trainer(..., callbacks=[AlltraceCallback()]).

torchrun --nproc-per-node 8 --no-python alltrace capture exec --steps 70:75 -- python train.py
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

from alltrace.instrument import annotate, step_report, steps, torch_profile


class AlltraceCallback(Callback):
    """Opens the window of steps on every rank, and names steps and backward passes.

    Steps are batches over the whole training; one that is resumed goes on at its own.
    """

    def __init__(self) -> None:
        self._window: Any = None
        self._profile: Any = None
        self._open: list[Any] = []

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The training begins, or goes on."""
        self._window = steps(at=trainer.fit_loop.total_batch_idx + 1)
        self._window.__enter__()
        self._profile = torch_profile()
        self._profile.__enter__()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch begins."""
        self._begin("step")

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """The backward pass begins."""
        self._begin("backward")

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """The backward pass has ended."""
        self._open.pop().__exit__(None, None, None)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has ended."""
        self._close()
        self._window.step()
        self._profile.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training has ended, in time or early."""
        self._close()
        self._profile.__exit__(None, None, None)
        self._window.__exit__(None, None, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The training failed; what was recorded is kept."""
        if self._window is not None:
            self.on_train_end(trainer, pl_module)

    def _begin(self, name: str) -> None:
        made = annotate(name)
        made.__enter__()
        self._open.append(made)

    def _close(self) -> None:
        while self._open:
            self._open.pop().__exit__(None, None, None)


class AlltraceReport(Callback):
    """Says during the training which rank is slow, and writes every step down: `alltrace.instrument.step_report`."""

    def __init__(self, record: str | None = None) -> None:
        self._record = record
        self._report: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The training begins, or goes on; the strategy's model is the one that is called."""
        optimizer = trainer.optimizers[0] if len(trainer.optimizers) == 1 else None
        self._report = step_report(at=trainer.fit_loop.total_batch_idx + 1, record=self._record)
        self._report.phases(trainer.strategy.model, optimizer).__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch has ended."""
        self._report.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training has ended, in time or early."""
        self._report.__exit__(None, None, None)
