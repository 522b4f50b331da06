"""Logs, read and queried."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest

from alltrace.recipes.logs import NCCL_VIEWS
from alltrace.recipes.logs.nccl import NcclOptions
from alltrace.run.nccl_logs import read_nccl_logs
from alltrace.run.step_times import read_step_times, training_log_beside


@pytest.fixture
def ask(tmp_path):
    """Asks a view of logs given as texts; returns the answer's rows and notes."""

    def asked(view, *texts, each=True, time_format=None, training=None, **options):
        folder = tmp_path / f"calls{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        paths = []
        for n, text in enumerate(texts):
            path = folder / f"log{n}.txt"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(path)
        calls = folder / "calls"
        calls.mkdir()
        logs = read_nccl_logs(paths, calls_to=calls if each else None, times=True, time_format=time_format)
        if training is not None:
            (folder / "train.log").write_text(training)
            logs.step_times = read_step_times(folder / "train.log")
        elif "steps" in options:
            logs.step_times = training_log_beside(logs.parts)
        answer = resolve_name(NCCL_VIEWS[view]).answer(logs, NcclOptions(**options))
        assert answer.table.column_names == [c.name for c in answer.columns]
        return answer.table.to_pylist(), answer

    return asked
