"""The KV memory node: one file for each block of the diagram."""
