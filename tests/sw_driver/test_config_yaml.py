"""Configurations as YAML: back and forth, and errors that name file and key."""

import pytest

from kvnode.models.config_yaml import dump, load
from kvnode.models.spec.config import PRESETS, ConfigError, preset


@pytest.mark.parametrize("name", PRESETS)
def test_preset_written_and_read_is_the_same(name, tmp_path):
    dump(preset(name), tmp_path / "node.yaml")
    assert load(tmp_path / "node.yaml") == preset(name)


def test_file_may_name_a_preset_and_what_differs(tmp_path):
    (tmp_path / "node.yaml").write_text("preset: sim\nsharing: donate\nmodels: 8\n")
    assert load(tmp_path / "node.yaml") == preset("sim").replace(sharing="donate", models=8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset: sim\nwings: 2\n", "has no key 'wings'"),
        ("preset: sim\nways: 3\n", "ways = 3: must be a power of two"),
        ("preset: sim\nways: many\n", "ways = 'many': must be a whole number"),
        ("preset: huge\n", "preset 'huge': there are tiny, sim, wide"),
        ("preset: sim\nways: 4\nways: 8\n", "line 3: key 'ways' stands twice"),
        ("preset: sim\n1: 4\n", "line 2: key 1 is not a name"),
        ("name: [\n", "line 2: "),
        ("- 1\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("name: x\n", "lacks 'ports'"),
        ("!!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
    ],
)
def test_error_names_file_and_key(text, message, tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_missing_and_undecodable_files_are_configuration_errors(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="is not text"):
        load(tmp_path / "bytes.yaml")
