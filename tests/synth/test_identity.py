import numpy as np
import pytest

from alltrace.synth import SCENARIOS
from alltrace.synth.identity import JOB_START_UTC_NS, identities


def test_clocks_of_hosts_and_their_stamps():
    people = identities(SCENARIOS["straggler"].override(hosts=4, ranks=8, offset_ms=500, drift_ppm=20, ideal=True))
    assert {(p.offset_ns, p.drift_ppm) for p in people[:2]} == {(0, 0.0)}
    others = {(p.offset_ns, p.drift_ppm) for p in people[2:]}
    assert len(others) == 3
    assert all(0 < abs(offset) <= 500_000_000 and 0 < abs(drift) <= 20 for offset, drift in others)
    assert [p.host_name for p in people] == ["node001"] * 2 + ["node002"] * 2 + ["node003"] * 2 + ["node004"] * 2
    assert len({p.session_start_ns for p in people}) == 8
    assert len({p.device_uuid for p in people}) == 8
    assert np.std([p.stamp_error_ns for p in people]) > 500_000
    person = identities(SCENARIOS["healthy"])[15]
    assert person.drift_ppm != 0
    moments = np.array([person.session_start_ns, 0, 1_000_000_000, 60_000_000_000])
    stamps = person.stamps(moments)
    assert stamps[0] == 0
    shown = person.utc_stamp_ns + stamps - JOB_START_UTC_NS
    drifted = np.rint(moments * person.drift_ppm * 1e-6).astype(int)
    assert (shown - moments - drifted).tolist() == [person.report_offset_ns] * 4
    assert person.report_offset_ns == person.offset_ns + person.stamp_error_ns
    people = identities(SCENARIOS["healthy"])
    for host in (people[:8], people[8:]):
        boots = {p.system_clock_ns - p.host_clock_ns(p.session_start_ns) for p in host}
        assert len(boots) == 1


@pytest.mark.parametrize("seed", [1111, 4573, 631, 1289])
def test_no_two_threads_of_a_host_have_one_number(seed):
    people = identities(SCENARIOS["healthy"].override(hosts=1, ranks=64, seed=seed, ideal=True))
    assert len({p.pid for p in people} | {p.autograd_tid for p in people}) == 128


def test_containers_share_pids_and_renumber_devices():
    people = identities(SCENARIOS["healthy"].override(shared_pids=True, visible_devices=True, ideal=True))
    assert [p.pid for p in people[:8]] == [p.pid for p in people[8:]]
    assert {p.ordinal for p in people} == {0}
    assert [p.device for p in people[:8]] == list(range(8))
    plain = identities(SCENARIOS["healthy"])
    assert len({p.pid for p in plain}) == 16
    assert [p.ordinal for p in plain[8:]] == list(range(8))
