"""Three ranges of one name that launch one, two and one kernels."""

from tests.making import kernel, make_run
from tests.recipes.work import call

from alltrace.recipes.execution.ask import ask
from alltrace.recipes.registry import find, find_report

RANGES = [
    {"start": start, "end": end, "name": name, "kind": "pushpop"}
    for start, end, name in ((0, 100, "step"), (200, 350, "step"), (220, 300, "inner"), (400, 420, "step"))
]
LAUNCHES = [(10, 1000, 1010), (210, 1100, 1120), (230, 1150, 1200), (405, 1300, 1340)]  # when called; the kernel's start and end


def made(folder):
    api = [call(at, at + 5, n) for n, (at, _, _) in enumerate(LAUNCHES, 1)]
    kernels = [kernel(start, end, correlation=n) for n, (_, start, end) in enumerate(LAUNCHES, 1)]
    return make_run(folder, {0: {"ranges": RANGES, "api": api, "kernels": kernels}})


def test_statistics_of_the_projected_ranges(tmp_path):
    rows = ask(made(tmp_path / "run"), find_report("nvtx_gpu_proj_sum")).table.to_pylist()
    assert rows == [
        {
            # projected 10, 100 and 40 ns; 100, 150 and 20 ns on the CPU
            "Range": "step", "Style": "PushPop", "Total Proj Time (ns)": 150, "Total Range Time (ns)": 270, "Range Instances": 3,
            "Proj Avg (ns)": 50.0, "Proj Med (ns)": 40.0, "Proj Min (ns)": 10, "Proj Max (ns)": 100, "Proj StdDev (ns)": 45.8,
            "Total GPU Ops": 4, "Avg GPU Ops": 1.3, "Avg Range Lvl": 0.0, "Avg Num Child": 0.3,
        },
        {
            "Range": "inner", "Style": "PushPop", "Total Proj Time (ns)": 50, "Total Range Time (ns)": 80, "Range Instances": 1,
            "Proj Avg (ns)": 50.0, "Proj Med (ns)": 50.0, "Proj Min (ns)": 50, "Proj Max (ns)": 50, "Proj StdDev (ns)": 0.0,
            "Total GPU Ops": 1, "Avg GPU Ops": 1.0, "Avg Range Lvl": 1.0, "Avg Num Child": 0.0,
        },
    ]  # fmt: skip


def test_the_recipe_of_nsys_lists_each_range_with_its_own_time(tmp_path):
    rows = ask(made(tmp_path / "run"), find("nvtx_gpu_proj_trace")).table.to_pylist()
    titles = ("Name", "Projected Start", "Projected Duration", "Orig Start", "Orig Duration")
    assert [tuple(r[t] for t in titles) for r in rows] == [
        ("step", 1000, 10, 0, 100),
        ("step", 1100, 100, 200, 150),
        ("inner", 1150, 50, 220, 80),
        ("step", 1300, 40, 400, 20),
    ]
