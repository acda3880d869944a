"""The models of the node, from pure data (spec) to whole systems."""
