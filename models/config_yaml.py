"""Configurations as YAML files: the form people keep and change.

`models.spec` itself uses the standard library only, so reading YAML stands beside it. A file holds the mapping of
`NodeConfig.to_dict`, or `preset: NAME` and the keys that differ from that preset:

    preset: sim
    sharing: donate

Used by: the kvnode command, people who keep their own designs.
"""

from pathlib import Path
from typing import Any

import yaml

from .spec.config import ConfigError, NodeConfig, preset


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, but a key that stands twice in a mapping is an error and not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not a name", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: str | Path) -> NodeConfig:
    """The configuration of a YAML file.

    Raises ConfigError naming the file and the key for anything that is not exactly a configuration, a file that is
    missing or not YAML included.
    """
    path = Path(path)
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not text: {error.reason}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {_sentence(error)}") from None
    try:
        if isinstance(data, dict) and "preset" in data:
            name = data.pop("preset")
            data = {**preset(str(name)).to_dict(), **data}
        return NodeConfig.from_dict(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def dump(config: NodeConfig, path: str | Path) -> None:
    """Write a configuration, complete: `load` gives an equal one."""
    text = yaml.safe_dump(config.to_dict(), sort_keys=False, default_flow_style=None, width=100)
    Path(path).write_text(text, encoding="utf-8")


def _sentence(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return f"is not YAML: {error}"
