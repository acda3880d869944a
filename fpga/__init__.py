"""The memory of a device, and the flow that says how large and how fast a block is on it."""
