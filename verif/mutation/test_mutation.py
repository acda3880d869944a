"""The machinery of the mutants: the sample, the stimuli on the node without one, deadly ones, proofs, and the page."""

import re
from collections import Counter
from pathlib import Path

import pytest

from kvnode.models.spec.config import preset

from .. import toolchain
from ..harness.bench import open_harness
from ..harness.harness import HarnessError
from .blocks import LEAST, block_of, quotas
from .campaign import Verdict, try_mutant
from .equivalence import Proofs
from .netlist import Mutant, Netlist, mutants_of, netlist_of
from .report import Reason, fate, load_reasons, markdown, score, summary
from .stimuli import FAST, STRONG

pytest.importorskip("pyosys")

CONFIG = preset("tiny")
COUNT, SEED = 600, 1
#: So many of the sample are tried; fewer survive than this.
TRIED, MOST_LEFT = 20, 9


@pytest.fixture(scope="module")
def netlist():
    return netlist_of(CONFIG, toolchain.cache_dir() / "mutation")


@pytest.fixture(scope="module")
def sample(netlist):
    mutants = mutants_of(netlist, COUNT, SEED)
    few = mutants[:: len(mutants) // TRIED][:TRIED]
    return [*few, deadly(len(mutants) + 1), harmless(netlist, len(mutants) + 2)]


@pytest.fixture(scope="module")
def text(netlist, sample):
    return netlist.verilog(sample)


def deadly(number: int) -> Mutant:
    """No answer is ever good: the status that the directory gives has a bit stuck."""
    return Mutant(number, "inv", "kvnode_node.node", "directory", "result_valid", 0, -1, "", ())


def harmless(netlist: Netlist, number: int) -> Mutant:
    """A bit of an operand that a comparison with nothing above it makes no use of: a constant that is already that."""
    text = netlist.path.read_text()
    module = text[text.index("module \\kvnode_node.node.sweeper\n") :]
    cell = re.search(r"cell \$mux (\S+)\n(?:.*\n){1,6}?\s+connect \\B \d+'\d*0\n", module)
    assert cell is not None
    return Mutant(number, "const0", "kvnode_node.node.sweeper", cell[1], "B", 0, -1, "", ())


#: Without the directed rounds, which test_directed has, and most of the random traffic.
SHORT = FAST + tuple(trial for trial in STRONG if not trial[0].startswith(("directed", "traffic")))


@pytest.mark.parametrize("trials", [SHORT, pytest.param(FAST + STRONG, marks=pytest.mark.long)], ids=["short", "all"])
def test_the_node_without_a_mutant_lives_through_all_stimuli(text, trials):
    verdict = try_mutant(CONFIG, text, 0, trials)
    assert (verdict.killed_by, verdict.how) == ("", "")
    assert verdict.trials == len(trials)


def test_most_mutants_of_a_sample_are_killed_and_the_deadly_one_at_once(text, sample):
    verdicts = {mutant.number: try_mutant(CONFIG, text, mutant.number, FAST[:4]) for mutant in sample}
    *others, dead, lives = sample
    assert verdicts[dead.number].killed_by == "traffic 0"
    assert not verdicts[lives.number].killed
    assert sum(not verdicts[mutant.number].killed for mutant in others) <= MOST_LEFT


def test_a_harmless_mutant_is_proved_equal_and_a_deadly_one_is_not(netlist, sample, tmp_path):
    proofs = Proofs(netlist)
    proofs.path, proofs.known = tmp_path / "proofs.json", {}
    *_, dead, lives = sample
    assert proofs.is_equal(lives), proofs.known
    assert not proofs.is_equal(dead)
    assert Proofs(netlist).known is not proofs.known


def test_a_node_without_mutants_says_so():
    with open_harness() as harness, pytest.raises(HarnessError, match="no mutants in it"):
        harness.mutant(1)


def test_sample_has_every_block_and_is_the_same_again(netlist):
    mutants = mutants_of(netlist, COUNT, SEED)
    assert len(mutants) >= COUNT and mutants_of(netlist, COUNT, SEED) == mutants
    assert [mutant.number for mutant in mutants] == list(range(1, len(mutants) + 1))
    blocks = Counter(mutant.block for mutant in mutants)
    assert {block_of(module) for module in netlist.cells} == set(blocks)
    assert min(blocks.values()) >= LEAST
    lines = [line for mutant in mutants for line in mutant.lines]
    assert not [line for line in lines if line.startswith(("/", "."))]
    # What yosys makes itself of a case has no line.
    assert sum(not mutant.lines for mutant in mutants) < len(mutants) / 10


def test_quotas_grow_with_the_root_of_the_cells():
    given = quotas({"a.index": 400, "a.port0.check": 50, "a.port1.check": 50, "a.wheel": 1}, 300)
    assert given["a.port0.check"] == given["a.port1.check"]
    assert given["a.index"] / (2 * given["a.port0.check"]) == pytest.approx(2, rel=0.05)
    assert given["a.wheel"] == 10 and sum(given.values()) >= 300
    with pytest.raises(ValueError, match="module 'top.nothing' belongs to no block"):
        block_of("top.nothing")


def test_reasons_are_complete():
    for name, reason in load_reasons().items():
        assert len(reason.why) > 20 and reason.block, name


def test_incomplete_reason_is_refused(tmp_path: Path):
    path = tmp_path / "survivors.yaml"
    path.write_text("- {mutant: a, block: b, line: c, kind: luck, why: d}\n")
    with pytest.raises(ValueError, match="needs mutant, block, line, why and a kind"):
        load_reasons(path)


def test_page_counts_what_is_killed_among_what_changes_something():
    mutants = [Mutant(n, "inv", "kvnode_node.node.wheel", f"$c{n}", "Y", 0, -1, "", ("rtl/wheel.py:1",))
               for n in range(1, 6)]  # fmt: skip
    verdicts = {1: Verdict("traffic", "x"), 2: Verdict("traffic", "x"), 3: Verdict(equal=True), 4: Verdict(trials=1),
                5: Verdict(trials=1)}  # fmt: skip
    reasons = {mutants[3].name: Reason(mutants[3].name, "wheel", "rtl/wheel.py:1", "unobservable", "nobody looks"),
               mutants[4].name: Reason(mutants[4].name, "wheel", "rtl/wheel.py:1", "gap", "no test yet")}  # fmt: skip
    assert [fate(m, verdicts[m.number], reasons) for m in mutants] == ["killed", "killed", "equal", "excused", "left"]
    page = markdown(mutants, verdicts, reasons, "command", "source")
    assert "| wheel | 5 | 2 | 1 | 1 | 1 | 66.7% |" in page
    assert "gap: no test yet" in page and "unobservable: nobody looks" in page
    told = summary(mutants, verdicts, reasons)
    assert told["blocks"]["wheel"] == {
        "mutants": 5, "killed": 2, "survived": 2, "equivalent": 1, "excused": 1, "left": 1, "score": 0.6667,
    }  # fmt: skip
    assert told["killed"] == 2 and told["score"] == 0.6667
    assert score({}) == 1
