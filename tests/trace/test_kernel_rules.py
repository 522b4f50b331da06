import pytest
from tests.together import together

from alltrace.trace import kernel_rules
from alltrace.trace.communication_kernels import KernelRule
from alltrace.trace.errors import InputError
from alltrace.trace.kernel_rules import BUILT_IN, LONGEST_NAME, KernelRules, built_in_rules, read_rules

KINDS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "collective",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)": "collective",
    "void ncclKernel_ReduceScatter": "collective",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "p2p",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t": "p2p",
    "void vllm::cross_device_reduce_1stage<float, 4>": "collective",
    "deep_ep::intranode::dispatch": "exchange",
    "ampere_sgemm_128x64_tn": "compute",
    "void at::native::vectorized_elementwise_kernel<4>": "compute",
    "triton_poi_fused_add_0": "compute",
    "my_own_thing": "unclassified",
}


@together("name", KINDS)
def test_known_names(name):
    assert built_in_rules().kind(name) == KINDS[name]


def test_no_name_has_no_class():
    assert built_in_rules().kind(None) is None
    assert built_in_rules().kind("") is None


def test_a_users_rules_come_first(tmp_path):
    path = tmp_path / "rules"
    path.write_text(
        "\ufeff# mine\n\ncollective my_own\nring-exchange\t  ^halo exchange$  \n  compute ncclDevKernel_AllReduce\n",
        encoding="utf-8",
    )
    rules = read_rules(path)
    assert rules.rules[:3] == (
        KernelRule("my_own", "collective"),
        KernelRule("^halo exchange$", "ring-exchange"),
        KernelRule("ncclDevKernel_AllReduce", "compute"),
    )
    assert rules.rules[3:] == BUILT_IN
    assert rules.kind("my_own_thing") == "collective"
    assert rules.kind("halo exchange") == "ring-exchange"
    assert rules.kind("ncclDevKernel_AllReduce_Sum") == "compute"
    assert rules.fingerprint != built_in_rules().fingerprint == KernelRules().fingerprint


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"compute (", "line 1 does not contain a valid regular expression"),
        (b"\ncompute\n", "line 2 is 'compute'; expected a class and a regular expression"),
        (b"Compute x", "line 1 is"),
        (b"compute \xff", "it cannot be read"),
    ],
)
def test_bad_rules_are_a_sentence(tmp_path, content, found):
    (tmp_path / "rules").write_bytes(content)
    with pytest.raises(InputError, match=found):
        read_rules(tmp_path / "rules")


def test_no_file_of_rules(tmp_path):
    with pytest.raises(InputError, match="it cannot be read"):
        read_rules(tmp_path / "rules")


def test_of_a_name_that_no_compiler_makes_only_the_beginning_is_looked_at():
    rules = built_in_rules()
    assert rules.kind("x" * (LONGEST_NAME - 4) + "gemm") == "compute"
    assert rules.kind("x" * LONGEST_NAME + "gemm") == "unclassified"


def test_a_name_is_looked_at_once_and_few_names_are_remembered(monkeypatch):
    monkeypatch.setattr(kernel_rules, "_MOST_KNOWN", 2)
    rules = KernelRules()
    for _ in range(2):
        assert {name: rules.kind(name) for name in KINDS} == KINDS
    assert len(rules._known) == 2
    assert rules.kind("x" * 2_000 + "gemm") == "compute"
    assert len(rules._known) == 2


def test_names_with_known_ids_are_not_asked_for_again():
    rules, asked = KernelRules(), []

    def texts():
        asked.append(1)
        return {1: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2: "ampere_sgemm_128x64_tn"}

    assert rules.kinds([2, None, 1], texts) == ["compute", None, "collective"]
    assert rules.kinds([1, 2], texts) == ["collective", "compute"]
    assert len(asked) == 1
    assert rules.kinds([3, 1], texts) == [None, "collective"]  # of an id without a name nothing is remembered
    assert rules.kinds([3], lambda: {3: "ampere_sgemm_64x64_nn"}) == ["compute"]


def test_few_ids_are_remembered(monkeypatch):
    monkeypatch.setattr(kernel_rules, "_MOST_KNOWN", 2)
    rules = KernelRules()
    names = {n: f"ampere_sgemm_{n}" for n in range(9)}
    for n in range(9):
        assert rules.kinds([n], lambda: names) == ["compute"]
        assert len(rules._of_ids) <= 2
