"""List the packages of the wheel; everything else about the project is in pyproject.toml."""

from setuptools import find_packages, setup

ROOTS = ("rtl", "models", "verif", "sw_driver", "fpga")

setup(packages=[f"kvnode.{name}" for root in ROOTS for name in find_packages(include=[root, f"{root}.*"])])
