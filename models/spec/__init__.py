"""The contract of the node: configuration, messages, states and timing as data and pure functions (standard library
only).
"""
