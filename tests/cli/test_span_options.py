"""The options that name steps, ranks or time say and mean the same in every verb."""

from tests.together import together
from tools.make_docs import verb_options

from alltrace.cli.registry import CAPTURE_VERBS, VERBS
from alltrace.trace.spans import RANKS_WORDS, STEPS_WORDS, WINDOW_WORDS

COUNTS = ("synth", "demo", "capture now", "capture plan")  # how many steps and ranks there shall be
SETTINGS = ("capture script",)  # refers to the settings
ASKED = [v.name for v in VERBS if v.name not in ("logs", "capture", *COUNTS)] + ["logs nccl", "logs training"]
EVERY = ASKED + [name for v in CAPTURE_VERBS if (name := f"capture {v.name}") not in (*SETTINGS, *COUNTS)]
WORDS = {"--steps STEPS": STEPS_WORDS, "--ranks LIST": RANKS_WORDS, "--window WINDOW": WINDOW_WORDS}


def said():
    """The verb, the option, and its help, of every option that names steps, ranks or time."""
    return [
        (verb, option.strip("`"), text)
        for verb in EVERY
        for option, text in verb_options(verb)
        if option.strip("`").split(" ")[0] in ("--steps", "--ranks", "--window")
    ]


@together(("verb", "option", "text"), said())
def test_the_help_has_the_same_words(verb, option, text):
    assert WORDS[option] in text


def test_the_verbs_that_have_them_are_found():
    found = {(verb, option.split(" ")[0]) for verb, option, _text in said()}
    assert {("export", "--steps"), ("export", "--window"), ("logs nccl", "--steps"), ("efficiency", "--steps")} <= found
    assert {("capture exec", "--steps"), ("capture exec", "--ranks"), ("diff", "--steps"), ("report", "--ranks")} <= found
