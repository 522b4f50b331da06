"""A step's line of each framework, and files of them."""

from __future__ import annotations

import re

import pytest
from tests.together import together

from alltrace.readers.training_log import read as reading
from alltrace.readers.training_log.formats import own_pattern, parse
from alltrace.readers.training_log.read import read_training
from alltrace.trace.errors import UsageError

LINES = {
    "Megatron": (
        (
            " [2025-11-20 14:55:23.123456] iteration        5/     100 | consumed samples:         1280 | elapsed time"
            " per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 512.3 | learning rate: 1.0E-05 | global"
            " batch size:   256 | lm loss: 1.5E+00 | loss scale: 4096.0 | grad norm: 1.250 | number of skipped"
            " iterations:   1 | number of nan iterations:   0 |"
        ),
        5,
        {
            "step_time_s": 1.2345,
            "tflops_per_gpu": 512.3,
            "learning_rate": 1e-5,
            "global_batch": 256,
            "loss": 1.5,
            "loss_scale": 4096,
            "grad_norm": 1.25,
            "skipped": 1,
        },
    ),
    "nanotron": (
        (
            "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G |"
            " elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | lm_loss:"
            " 2.38 | lr: 1e-05 | model_tflops_per_gpu: 38.3"
        ),
        327281,
        {
            "step_time_s": 11.5,
            "tokens_per_s": 22800,
            "tokens_per_s_per_gpu": 11400,
            "loss": 2.38,
            "learning_rate": 1e-5,
            "tflops_per_gpu": 38.3,
        },
    ),
    "NeMo": (
        (
            " 0: Training epoch 0, iteration 97/99 | lr: 1.469e-05 | global_batch_size: 128 | global_step: 97 |"
            " reduced_train_loss: 6.265 | train_step_timing in s: 12.22 | TFLOPS_per_GPU: 650.1 |"
            " tokens_per_sec_per_gpu: 1.073e+04 | consumed_samples: 12544"
        ),
        97,
        {
            "learning_rate": 1.469e-5,
            "global_batch": 128,
            "loss": 6.265,
            "step_time_s": 12.22,
            "tflops_per_gpu": 650.1,
            "tokens_per_s_per_gpu": 10730,
        },
    ),
    "NeMo 1": (
        (
            "Epoch 0: :   9%|9 | 9/100 [00:12<01:50, reduced_train_loss=10.90, global_step=9.000, "
            "consumed_samples=80.0, train_step_timing in s=1.230]"
        ),
        9,
        {"loss": 10.9, "step_time_s": 1.23},
    ),
    "TorchTitan": (
        (
            "\x1b[31m[titan] 2025-05-05 06:16:47,100 - root - INFO - \x1b[32mstep: 10  \x1b[33mloss:  7.1234  "
            "grad_norm:  1.2345  memory: 40.00GiB(50.62%)  "
            "tps: 6,123  tflops: 312.45  mfu: 31.59%\x1b[39m"
        ),
        10,
        {
            "loss": 7.1234,
            "grad_norm": 1.2345,
            "memory_bytes": 40 * 2**30,
            "tokens_per_s_per_gpu": 6123,
            "tflops_per_gpu": 312.45,
            "mfu_percent": 31.59,
        },
    ),
    "DeepSpeed": (
        (
            "[2023-01-01 00:00:00,000] [INFO] [timer.py:215:stop] epoch=0/micro_step=10/global_step=10,"
            " RunningAvgSamplesPerSec=20.5, CurrSamplesPerSec=21.5, MemAllocated=1.0GB, MaxMemAllocated=2.0GB"
        ),
        10,
        {"samples_per_s": 21.5, "memory_bytes": 2e9},
    ),
    "DeepSpeed steps": (
        "steps: 20 loss: 2.5 iter time (s): 0.500 samples/sec: 64.0",
        20,
        {"loss": 2.5, "step_time_s": 0.5, "samples_per_s": 64},
    ),
    "Lightning": (
        "Epoch 0:  10%|#  | 10/100 [00:05<00:45,  2.00it/s, v_num=0, train_loss=1.250]",
        10,
        {"loss": 1.25, "step_time_s": 0.5},
    ),
    "Hugging Face": (" 10%|#  | 10/100 [00:12<01:50,  1.25s/it]", 10, {"step_time_s": 1.25}),
    "Megatron NeoX": (
        (
            " samples/sec: 40.911 | iteration       10/  320000 | elapsed time per iteration (ms): 782.2 | learning"
            " rate: 2.812E-07 | approx flops per GPU: 51.2TFLOPS | lm_loss: 1.09E+01 | loss scale: 4294967296.0 |"
            " number of skipped iterations:  10 |"
        ),
        10,
        {
            "step_time_s": 0.7822,
            "learning_rate": 2.812e-7,
            "tflops_per_gpu": 51.2,
            "loss": 10.9,
            "loss_scale": 2**32,
            "skipped": 10,
        },
    ),
    "TorchTitan nan": (
        "step:  7  loss: nan  memory:  2.00GiB(2.28%)  tps: 3,166",
        7,
        {"memory_bytes": 2**31, "tokens_per_s_per_gpu": 3166},
    ),
    "nanoGPT": (
        "iter 10: loss 3.2345, time 123.45ms, mfu 12.34%",
        10,
        {"loss": 3.2345, "step_time_s": 0.12345, "mfu_percent": 12.34},
    ),
    "nanoGPT first": ("iter 0: loss 10.9, time 9000.00ms, mfu -100.00%", 0, {"loss": 10.9, "step_time_s": 9}),
    "verl": (
        (
            "(TaskRunner pid=87031) step:83 - global_seqlen/min:340538.000 - actor/pg_loss:-0.002 -"
            " actor/grad_norm:0.006 - perf/mfu/actor:0.298 - perf/max_memory_allocated_gb:2.000 -"
            " actor/lr:np.float64(1e-06) - timing_s/step:55.5 - perf/time_per_step:55.5 - perf/throughput:1599.2"
        ),
        83,
        {
            "loss": -0.002,
            "grad_norm": 0.006,
            "mfu_percent": 29.8,
            "memory_bytes": 2**31,
            "learning_rate": 1e-6,
            "step_time_s": 55.5,
            "tokens_per_s_per_gpu": 1599.2,
        },
    ),
    "FSDP": (
        "0: 2025-06-17 16:24:55 I [train.py:103] Batch 1 Loss: 11.5, Speed: 10.90 samples/sec, lr: 0.0001",
        1,
        {"loss": 11.5, "samples_per_s": 10.9, "learning_rate": 1e-4},
    ),
}


@together("name", LINES)
def test_a_line_of_each_framework(name):
    text, number, values = LINES[name]
    step = parse(text)
    assert step.step == number
    assert step.framework == re.sub(" (1|steps|NeoX|nan|first)$", "", name)
    assert step.values == pytest.approx(values)


@together("name", [name for name, (_text, _step, values) in LINES.items() if "loss" in values])
@together("printed", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity"])
def test_a_loss_that_is_no_finite_number_leaves_the_step_and_its_other_values(name, printed):
    text, number, values = LINES[name]
    text, count = re.subn(r"(loss[:= ]\s*)-?[0-9][^ |,\]\x1b]*", rf"\g<1>{printed}", text, count=1, flags=re.IGNORECASE)
    step = parse(text)
    assert count == 1
    assert (step.step, step.not_finite) == (number, {"loss"})
    assert step.values == pytest.approx({metric: value for metric, value in values.items() if metric != "loss"})


def test_commas_may_part_thousands():
    assert parse("steps: 20 loss: 1,234.5 iter time (s): 0.500").values == {"loss": 1234.5, "step_time_s": 0.5}
    assert parse("Batch 1 Loss: 1,234.5, Speed: 10.90 samples/sec").values == {"loss": 1234.5, "samples_per_s": 10.9}


def test_a_loss_line_of_hugging_face_is_of_the_bar_before_it(tmp_path):
    path = tmp_path / "a.log"
    path.write_text(" 10%|# | 10/100 [00:12<01:50,  1.25s/it]\n{'loss': 2.5, 'learning_rate': 5e-05, 'epoch': 0.1}\n")
    log = read_training(str(path))
    assert [(s[0], s[1]) for s in log.steps] == [(10, {"step_time_s": 1.25, "loss": 2.5, "learning_rate": 5e-5})]


def bar(step, total, seconds):
    return f" {100 * step // total}%|# | {step}/{total} [00:01<00:05,  {seconds:.2f}s/it]\n"


def test_bars_of_evaluation_and_loading_are_no_steps(tmp_path):
    path = tmp_path / "a.log"
    text = "".join(f"Loading checkpoint shards: {bar(n, 4, 3.0)}" for n in range(1, 5))
    for step in range(1, 7):
        text += bar(step, 6, 1.0)
        if step % 2 == 0:
            text += f"{{'loss': {step}.5, 'learning_rate': 5e-05, 'epoch': 0.1}}\n"
            text += "".join(bar(n, 9, 0.1) for n in range(1, 10)) + "{'eval_loss': 2.0, 'epoch': 0.5}\n"
    path.write_text(text)
    log = read_training(str(path))
    assert [s[0] for s in log.steps] == [1, 2, 3, 4, 5, 6]
    assert [s[1]["step_time_s"] for s in log.steps] == [1.0] * 6
    assert [s[1].get("loss") for s in log.steps] == [None, 2.5, None, 4.5, None, 6.5]
    assert log.restarts == 0


def test_training_goes_on_with_another_total(tmp_path):
    path = tmp_path / "a.log"
    loss = "{'loss': 1.5, 'epoch': 0.1}\n"
    path.write_text(
        "".join(bar(n, 3, 1.0) + loss for n in (1, 2, 3)) + "".join(bar(n, 5, 2.0) + loss for n in (3, 4, 5))
    )
    assert [(s[0], s[1]["step_time_s"]) for s in read_training(str(path)).steps] == [
        (1, 1),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 2),
    ]


def test_bars_beside_the_steps_of_another_framework_are_no_steps(tmp_path):
    path = tmp_path / "a.log"
    steps = "".join(
        f"Epoch 0:  10%|#  | {n}/9 [00:05<00:45,  2.00it/s, v_num=0, train_loss=1.250]\n" for n in range(1, 10)
    )
    path.write_text(steps + "".join(f"Validation DataLoader 0: {bar(n, 3, 0.1)}" for n in (1, 2, 3)))
    log = read_training(str(path))
    assert [(s[0], s[1]["step_time_s"]) for s in log.steps] == [(n, 0.5) for n in range(1, 10)]


def test_copies_of_ranks_count_once_and_restarts_replace(tmp_path):
    path = tmp_path / "a.log"
    form = "{}: Training epoch 0, iteration {}/99 | train_step_timing in s: {}\n"
    text = "".join(form.format(rank, k, 1.0 + rank) for k in range(3) for rank in range(2))
    path.write_text(text + form.format(0, 1, 5.0) + form.format(1, 1, 7.0) + form.format(0, 2, 5.0))
    log = read_training(str(path))
    assert [(s[0], s[1]["step_time_s"], s[3]) for s in log.steps] == [(0, 1.5, 2), (1, 6.0, 2), (2, 5.0, 1)]
    assert log.restarts == 2


@pytest.mark.parametrize("digits", [25, 5000])
@pytest.mark.parametrize(
    "line", ["iteration @/@ | lm loss: 1.0", "step: @  loss: 1.0", "[@]: step: 7  loss: 1.0", "@: step: 7 loss: 1.0"]
)
def test_numbers_that_are_too_long_are_no_steps(tmp_path, line, digits):
    (tmp_path / "x.log").write_text(line.replace("@", "9" * digits) + "\n")
    assert [s[0] for s in read_training(str(tmp_path / "x.log")).steps] in ([], [7])


def test_a_list_of_times_at_the_end(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("[NeMo I 2024-01-01 perf_metrics_utils:56] train_step_timing in s: [11.85, 6.98]\n")
    assert [(s[0], s[1]) for s in read_training(str(path)).steps] == [
        (0, {"step_time_s": 11.85}),
        (1, {"step_time_s": 6.98}),
    ]


def test_a_cut_number_is_not_taken(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("iteration 1/ 9 | elapsed time per iteration (ms): 1000.0 | lm loss: 1.2")
    assert read_training(str(path)).steps[0][1] == {"step_time_s": 1.0}


@pytest.mark.corpus
def test_numbers_that_no_training_has_are_not_taken():
    line = " iteration {}/ 99 | elapsed time per iteration (ms): {} | lm loss: 6.1 |"
    assert parse(line.format(1 << 70, 120.0)) is None
    step = parse(line.format(7, "1e308"))
    assert (step.step, step.values) == (7, {"loss": 6.1})


def test_real_logs(corpus):
    for path in sorted((corpus / "training-logs").iterdir()):
        log = read_training(str(path))
        text = path.read_text(errors="replace")
        assert log.not_understood == 0
        assert log.frameworks["Megatron"] + log.frameworks["nanotron"] == text.count("elapsed time per") + text.count(
            "elapsed_time_per"
        )


COMPOSER = """[batch=1/3]:
> Train time/batch: 0
> Train memory/allocated_mem: 6.8051
> Train loss/train/total: 12.0570
> Train throughput/batches_per_sec: 0.0500
> Train throughput/device/tokens_per_sec: 412.3778
> Train throughput/device/flops_per_sec: 77651661724520.1406
> Train throughput/device/mfu: 0.2489
> Train lr-DecoupledAdamW/group0: 0.0002
Train loss: 9.0
[batch=2/3]:
> Train loss/train/total: 11.5
[epoch=2][batch=3/3]:
> Train loss/train/total: 11.0
""".replace("> ", "\t ")


def test_values_of_composer_are_of_the_batch_before_them(tmp_path):
    path = tmp_path / "log"
    path.write_text(COMPOSER)
    first = {"loss": 12.057, "step_time_s": 20, "tokens_per_s_per_gpu": 412.3778, "tflops_per_gpu": 77.65166172452014,
             "mfu_percent": 24.89, "learning_rate": 0.0002}  # fmt: skip
    steps = read_training(str(path)).steps
    assert [s[0] for s in steps] == [1, 2, 6]
    assert steps[0][1] == pytest.approx(first)
    assert [s[1]["loss"] for s in steps[1:]] == [11.5, 11.0]
    path.write_text(COMPOSER.split("\n", 1)[1].split("[")[0])  # of no batch
    assert read_training(str(path)).steps == []


def test_a_pattern_of_the_users_own(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "at 3 took 1,500.0 ms, loss = 2.5\niteration 9/ 10 | lm loss: 1.0 |\nat 4 took nan ms, loss = 2.0\nat x took 1"
        " ms\n"
    )
    own = [r"at (?P<step>\S+) took (?P<step_time_ms>\S+) ms(, loss = (?P<loss>\S+))?"]
    assert [s[:2] for s in read_training(str(path), patterns=own).steps] == [
        (3, {"step_time_s": 1.5, "loss": 2.5}),
        (4, {"loss": 2.0}),
    ]
    for text, wrong in (
        ("(", "not a valid regular expression"),
        ("(?P<loss>.)", "no group 'step'"),
        ("(?P<step>.)", "only has the group"),
        ("(?P<step>.)(?P<lost>.)", "a group 'lost'; expected .*step_time_ms, step_time_s"),
    ):
        with pytest.raises(UsageError, match=wrong):
            own_pattern(text)


def test_of_more_steps_than_there_is_room_for_the_first_ones_have_all_their_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_STEPS", 2)
    path = tmp_path / "a.log"
    form = "{}: Training epoch 0, iteration {}/99 | train_step_timing in s: {}\n"
    path.write_text("".join(form.format(rank, k, 1.0 + rank) for k in range(3) for rank in range(2)))
    log = read_training(str(path))
    assert [(s[0], s[1]["step_time_s"], s[3]) for s in log.steps] == [(0, 1.5, 2), (1, 1.5, 2)]
