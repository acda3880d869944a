"""Checkers that watch a run from outside."""
