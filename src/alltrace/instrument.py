"""What a training script imports: the window of steps that is recorded, and named ranges.

Everything here does nothing, in nanoseconds, if the process is not profiled.

    from alltrace.instrument import annotate, steps

    with steps() as window:  # the steps that `alltrace capture exec --steps 70:75` names
        for batch in loader:
            with annotate("forward"):
                ...
            window.step()
"""

from alltrace.capture.instrument import annotate, profiled, torch_profile, trace_func
from alltrace.capture.step_report import step_report
from alltrace.capture.steps import steps

__all__ = ["annotate", "profiled", "step_report", "steps", "torch_profile", "trace_func"]
