"""Files of the record of steps, as `alltrace.core.steps` writes them, with ranks whose steps and places a test
states."""

from __future__ import annotations

from alltrace.core.steps import StepTimes
from alltrace.trace.step_records import AT_NOW, AT_WRITTEN, NOW, REGION_BYTES, WRITTEN, Step, name_phases, new_page

PHASES = ["data", "forward", "wait"]


def put_step(times: StepTimes, step: Step) -> None:
    """Write a step down; what its phases do not account for is in none of them."""
    times.set_gpu(step.clock_mhz, step.throttle, step.xid)
    named_ns = [1000 * us for us in step.phases_us]
    times.put(
        step.step,
        step.begin_ns,
        [1000 * (step.total_us - step.cpu_wait_us) - sum(named_ns), *named_ns],
        1000 * step.cpu_wait_us,
        step.last,
        step.flags,
    )


def page_of(rank, world, steps, *, phase, since_ns, written_ns, host="n1", job="job"):
    """The page of a rank that ended steps and is in a phase since a moment."""
    page, times = new_page(rank, world, host, job), StepTimes(len(steps) + 1)
    name_phases(page, PHASES, frozenset({"wait"}))
    times.write_to(page)
    for step in steps:
        put_step(times, step)
    WRITTEN.pack_into(page, AT_WRITTEN, len(steps), int(written_ns))
    NOW.pack_into(page, AT_NOW, len(steps), int(since_ns), PHASES.index(phase) + 1 if phase else 0)
    return page


def write_pages(path, pages):
    """The file of a host; of one page alone, what a rank keeps in memory."""
    with path.open("wb") as file:
        for number, page in enumerate(pages):
            file.seek(number * REGION_BYTES)
            file.write(page)
        if "_on_" in path.name:
            file.truncate(len(pages) * REGION_BYTES)
