"""Verification: the harness around the RTL, its agents, checkers and benches."""
