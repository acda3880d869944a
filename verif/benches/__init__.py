"""One file for each block: its cocotb tests, and the pytest tests that run them through kvnode.verif.runner."""
