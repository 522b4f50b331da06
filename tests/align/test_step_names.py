"""What names of ranges from frameworks and users state about steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alltrace.align.step_names import CHECKPOINT, step_name


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("step 12", 12),
        ("steps12", 12),
        ("step_12", 12),
        ("Step: 12", 12),
        ("Train Step 12", 12),
        ("global_step=12", 12),
        ("epoch 3 step 12", 12),
        ("iteration 12", 12),
        ("iteration[12,16)", 12),
        ("step 12/100", 12),
        ("iter12", 12),
        ("Batch 0", 0),
        ("mini-batch 7", 7),
        ("Warm-up Step 3", 3),
        ("[Decode step 4]", 4),
        ("decode_step 5", 5),
        ("ProfilerStep#12", 12),
        ("ProfilerStep#12, seq = 44", 12),
        ("train#step_num=12,_r=1#", 12),
        ("train#_r=1,step_num=12#", 12),
        ("train 12", 12),
        ("[Executor] _forward_step 60000: 0 ctx reqs, 32 gen reqs", 60000),
        ("[Executor] _forward_step: 0 ctx reqs, 32 gen reqs", None),
        ("execute_context_1(5)_generation_31(31)", None),
        ("execute_context_1(5_5)_generation_0(0)", None),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", None),
        ("execute_new_3_cached_4", None),
        ("step[decode bs=3]", None),
        ("step[mixed bs=3 ext=1 dec=2]", None),
        ("prefill[bs=1 tok=1024 ctx=1024]", None),
        ("TSL:XlaModule:#hlo_module=jit_train_step,program_id=7#", None),
        ("XlaModule:#prefix=a/b,hlo_module=jit_train_step,program_id=7#", None),
        ("[pl][profile]run_training_batch", None),
        ("[pl][profile][Strategy]DDPStrategy.training_step", None),
        ("PipelineEngine.train_batch", None),
        ("train_step", None),
        ("step", None),
        ("step " + "9" * 30, None),
    ],
)
def test_names_of_steps(name, number):
    assert step_name(name)[::2] == ("step", number)


@pytest.mark.parametrize(
    ("names", "families"),
    [
        (("step 1", "step 2", "step 1000"), 1),
        (("epoch 1 step 1", "epoch 2 step 1"), 1),
        (("execute_context_1(5)_generation_3(3)", "execute_context_0(0)_generation_4(4)"), 1),
        (("step[decode bs=3]", "step[prefill bs=1 toks=7]"), 1),
        (("prefill[bs=1 tok=9]", "decode[bs=3 tok=3]"), 1),
        (("XlaModule:#hlo_module=jit_f,program_id=7#", "XlaModule:#hlo_module=jit_g,program_id=8#"), 2),
        (("train step 1", "warm-up step 1"), 2),
    ],
)
def test_families(names, families):
    assert len({step_name(name).family for name in names}) == families


@pytest.mark.parametrize(
    "name",
    [
        "Optimizer.step#AdamW.step",
        "Optimizer.step#AdamW.step, op_id = 44",
        "[pl][profile][LightningModule]Net.optimizer_step",
        "## optimizer ##",
        "optimizer",
        "optimizer.step()",
        "Optimizer step",
        "optimizer_step",
        "DeepSpeedEngine.step",
        "DeepSpeedZeroOptimizer_Stage3.step",
        "FusedOptimizer.step",
    ],
)
def test_names_of_an_optimizer(name):
    assert step_name(name).role == "optimizer"


@pytest.mark.parametrize(
    "name", ["validation step 3", "val_step", "[pl][profile][Strategy]DDPStrategy.validation_step", "eval iter 4"]
)
def test_names_of_an_evaluation(name):
    assert step_name(name).role == "evaluation"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "forward_step",
        "micro-step 3",
        "microbatch 3",
        "iteration_3_ga_step_2",
        "data_batch 5",
        "load batch 3",
        "lr_scheduler.step",
        "DeepSpeedEngine.forward",
        "[DALI][Executor] Run",
        "Optimizer.zero_grad#SGD.zero_grad",
        "configure_optimizers",
        "[pl][profile][Callback]X.on_before_optimizer_step",
        "step 3: forward",
        "footstep 3",
        "stepper",
        "ProfilerStep*",
        "a" * 1000 + " step 3",
    ],
)
def test_names_of_neither(name):
    assert step_name(name) is None


@given(st.text(max_size=400))
def test_any_text_is_a_name(name):
    said = step_name(name)
    assert said is None or said.number is None or 0 <= said.number < 10**12


def test_a_number_or_a_framework_makes_a_step_of_one_range():
    for name in (
        "step 3",
        "ProfilerStep#3",
        "execute_context_1(5)_generation_3(3)",
        "step[decode bs=3]",
        "[pl][profile]run_training_batch",
    ):
        assert step_name(name).alone
    for name in ("step", "train_step", "XlaModule:#hlo_module=jit_f,program_id=7#", "optimizer"):
        assert not step_name(name).alone


@pytest.mark.parametrize("name", ["save_checkpoint", "Checkpointing", "save model", "optimizer state_dict"])
def test_names_of_a_checkpoint(name):
    assert CHECKPOINT.search(name)
