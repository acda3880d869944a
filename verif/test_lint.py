"""The generated Verilog passes Verilator's lint with warnings as errors; elaboration itself warns of nothing."""

import json

import pytest

from kvnode.models.spec.config import PRESETS, preset
from kvnode.rtl import elaborate
from kvnode.verif.harness.build import lint


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_verilog_of_a_preset_is_lint_clean(name):
    lint(elaborate.verilog(preset(name)))


def test_the_command_writes_verilog_and_a_manifest_that_agree(tmp_path, capsys):
    assert elaborate.main(["tiny", "-o", str(tmp_path)]) == 0
    text = (tmp_path / "kvnode_node.v").read_text()
    manifest = json.loads((tmp_path / "kvnode_node.json").read_text())
    assert f"module {manifest['top']}(" in text
    assert all(port["name"] in text for port in manifest["ports"])
    assert elaborate.main(["huge"]) == 2
    assert "preset 'huge': there are tiny, sim, wide" in capsys.readouterr().err
