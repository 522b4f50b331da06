import pytest
from tests.together import together

from alltrace.capture.identity import Identity, find_identity
from alltrace.capture.plan import records_node
from alltrace.capture.selection import expand, parse_selection
from alltrace.trace.errors import UsageError


def place(rank, local_rank=0, world_size=128):
    return Identity("Slurm", rank, local_rank, world_size, 4, rank // 4, "77", "n1")


@together(
    ("ranks", "per_node", "cutoff", "chosen"),
    [
        (None, None, None, range(128)),
        ("all", None, None, range(128)),
        ("0-7,64", None, None, [*range(8), 64]),
        ("0-7,64", None, 3, range(3)),
        ("first-local", None, 8, [0, 4]),
        (None, 1, 8, [0, 4]),
        (None, 2, 8, [0, 1, 4, 5]),
        (" 3 , 126-200", None, None, [3, 126, 127]),
    ],
)
def test_which_ranks_are_chosen(ranks, per_node, cutoff, chosen):
    selection = parse_selection(ranks, per_node, cutoff)
    assert [r for r in range(128) if selection.holds(place(r, r % 4))] == list(chosen)


@together(
    ("ranks", "per_node", "cutoff"),
    [(None, None, None), ("0-7,64", None, 3), ("first-local", None, 8), (None, 2, 8), ("0-7,126-200", 1, None)],
)
def test_how_many_ranks_are_chosen(ranks, per_node, cutoff):
    selection = parse_selection(ranks, per_node, cutoff)
    assert selection.chosen(place(0)) == sum(selection.holds(place(r, r % 4)) for r in range(128))


def test_how_many_ranks_are_chosen_and_which_are_outside_the_world():
    nowhere = Identity("PMIx", 0, None, None, None, None, None, "n1")
    assert parse_selection("0,2-4", None, None).chosen(nowhere) == 4
    assert parse_selection("8,0-3,2", None, None).chosen(nowhere) == 5
    assert parse_selection("8,0-3", None, 2).chosen(nowhere) == 2
    assert parse_selection(None, None, None).chosen(nowhere) is None
    assert parse_selection("first-local", None, None).chosen(nowhere) is None
    assert parse_selection("0-7,64,70-90", None, None).outside(72) == "72-90"
    assert parse_selection("0-7,64", None, None).outside(8) == "64"
    assert parse_selection("0-7", None, None).outside(8) is None
    with pytest.raises(UsageError, match="names only 64, but the world has the ranks 0-7"):
        parse_selection("64", None, None).holds(place(0, 0, 8))


@together("text", ["", "a", "7-3", "-1", "1,,2", "1-", "first"])
def test_a_list_that_is_none(text):
    with pytest.raises(UsageError, match="expected numbers and spans"):
        parse_selection(text, None, None)


def test_the_place_on_the_node_and_names_with_it():
    with pytest.raises(UsageError, match="need the local rank, which Slurm does not set"):
        parse_selection("first-local", None, None).holds(place(1, None))
    assert parse_selection("1", None, None).holds(place(1, None))
    everyone, some = parse_selection(None, None, None), parse_selection("2-3,5-6", None, None)
    assert [r for r in range(8) if records_node(everyone, place(r, r % 4))] == [0, 4]
    assert [r for r in (2, 3, 5, 6) if records_node(some, place(r, r % 4))] == [2, 5]

    def name(template, **variables):
        return expand(template, "--name", place(9, 1), variables, None)

    assert name("{job}_rank{rank}_on_{host}") == "77_rank9_on_n1"
    assert name("{local_rank}-{world_size}-{node}-%h-100%%") == "1-128-2-n1-100%"
    assert name("%q{TAG}", TAG="a/b\n") == "a-b-"
    assert expand("out/{job}", "--output", place(9), {}, "mine", folder=True) == "out/mine"
    again = find_identity({"SLURM_PROCID": "9", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2"}, "n1")
    for given, job in ((None, "77"), ("mine", "mine")):  # it would find its reports of before
        assert expand("{job}_rank{rank}", "--name", again, {}, given) == f"{job}-restart2_rank9"


@together(
    ("template", "message"),
    [
        ("x%q{HOSTNAME}", "HOSTNAME is not set for rank 9"),
        ("{user}", "unknown field in --name 'user'"),
        ("%x", "uses %x"),
        ("a/b", "cannot be the name of a report"),
        ("..", "cannot be the name of a report"),
        (" ", "cannot be the name of a report"),
    ],
)
def test_names_that_cannot_be(template, message):
    with pytest.raises(UsageError, match=message):
        expand(template, "--name", place(9), {}, None)
