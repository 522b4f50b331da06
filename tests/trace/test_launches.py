from tests.together import together

from alltrace.trace.launch_units import unit_of
from alltrace.trace.launches import plain_name, short_name


@together(
    ("name", "short"),
    [
        ("void a::b::gemm<float, (int)3>(float *, int)", "gemm"),
        ("gemm", "gemm"),
        ("void (anonymous namespace)::fill(int *)", "fill"),
        ("cutlass_tensorop_f16", "cutlass_tensorop_f16"),
        ("void at::native::kernel<at::f(int)::{lambda(float)#1}>(int)", "kernel"),
        ("", ""),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_spaces_do_not_tell_names_apart():
    assert plain_name("void f<int>(int *)") == plain_name("void f<int>( int* )")


@together(
    ("metric", "unit"),
    [
        ("gpu__time_duration.sum", "ns"),
        ("dram__bytes.sum", "byte"),
        ("dram__bytes.sum.per_second", "byte/s"),
        ("dram__bytes.sum.peak_sustained", "byte/cycle"),
        ("dram__cycles_elapsed.avg.per_second", "Hz"),
        ("gpc__cycles_elapsed.max", "cycle"),
        ("l1tex__tex_writeback_active.sum", "cycle"),
        ("lts__t_sectors_srcunit_tex.sum.pct_of_peak_sustained_elapsed", "%"),
        ("l1tex__t_sector_hit_rate.pct", "%"),
        ("lts__t_sectors.avg.per_cycle_elapsed", "sector/cycle"),
        ("sm__inst_executed.avg.per_cycle_active", "inst/cycle"),
        ("sm__warps_active.avg.per_cycle_active", "warp"),
        ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "inst"),
        ("smsp__average_warp_latency_per_inst_issued.ratio", "cycle"),
        ("smsp__pcsamp_warps_issue_stalled_wait", "warp"),
        ("launch__shared_mem_per_block_dynamic", "byte/block"),
        ("launch__registers_per_thread", "register/thread"),
        ("launch__occupancy_limit_warps", "block"),
        ("derived__pct_occupancy_per_register_count", "%/register"),
        ("sm__maximum_warps_per_active_cycle_pct", "%"),
        ("device__attribute_clock_rate", "kHz"),
        ("thread_inst_executed_true", "inst"),
        ("launch__grid_size", None),
        ("launch__waves_per_multiprocessor", None),
        ("smsp__issue_active.avg.per_cycle_active", None),
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", None),
        ("breakdown:sm__throughput.avg.pct_of_peak_sustained_elapsed", None),
        ("details: Something New: A Number", None),
        ("unknown", None),
    ],
)
def test_the_unit_follows_from_the_name(metric, unit):
    assert unit_of(metric) == unit
