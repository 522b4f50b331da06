"""Reports and pages damaged at random: an error in a sentence or an answer, in every view, never another exception."""

from __future__ import annotations

import random
from pkgutil import resolve_name

import pytest
from tests.readers.ncu.test_detail import REPORT as DETAILED
from tests.readers.ncu.test_read import REPORT
from tests.readers.ncu.test_text import DETAILS, PLAIN, RAW

from alltrace.readers.ncu.listing import Listings
from alltrace.readers.ncu.read import read_report
from alltrace.recipes.ncu import VIEWS, compare, weigh
from alltrace.recipes.ncu.tables import Profiled
from alltrace.trace.errors import InputError

MAIN = """"ID","Kernel Name","gpu__time_duration.sum","launch__waves_per_multiprocessor","launch__sm_count","launch__grid_size",\
"sm__throughput.avg.pct_of_peak_sustained_elapsed","gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",\
"memory_l2_theoretical_sectors_global","memory_l2_theoretical_sectors_global_ideal","smsp__pcsamp_warps_issue_stalled_wait",\
"sm__maximum_warps_per_active_cycle_pct","sm__warps_active.avg.pct_of_peak_sustained_active","launch__occupancy_limit_warps"
"0","f(int)","1000","1.5","10","15","20","30","100","50","7","50","20","3"
"""  # noqa: E501
STRANGE = (b"0", b"-1", b"nan", b"inf", b"1e308", b"9" * 400, b"9" * 5000, b"", b'"', b",", b"\xff")


def damaged(draw, data):
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(changed))
        if draw.random() < 0.5:
            changed[at] = draw.randrange(256)
        else:
            changed[at : at + draw.randint(0, 4)] = draw.choice(STRANGE)
    return bytes(changed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_an_error_or_an_answer(tmp_path, seed):
    draw = random.Random(seed)
    whole = [REPORT, DETAILED, *(text.encode() for text in (RAW, DETAILS, PLAIN, MAIN, MAIN, MAIN))]
    path = tmp_path / "x.ncu-rep"
    answered = 0
    for n in range(140):
        path.write_bytes(damaged(draw, whole[n % len(whole)]))
        try:
            report = read_report(path, detail=True)
            for launch in report.launches:
                assert all(len(launch.instances[name]) for name in launch.instances)
        except InputError:
            continue
        listings = Listings()
        profiled = [
            Profiled("x", launch, listings.of(launch, report.codes.get(launch.code))) for launch in report.launches
        ]
        for view in VIEWS.values():
            resolve_name(view).answer(profiled, ())
        compare.answer(profiled, [profiled], ())
        weigh.answer(profiled, [], ())
        answered += 1
    assert answered > 30
