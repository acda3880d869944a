"""Proofs on the real RTL: what testing cannot settle. See docs/assurance.md."""
