#!/bin/sh
# Make the virtual environment $1 with the project in it, editable. Used by `make setup`.
set -eu
venv=$1
python=$(verif/tools/check_system.sh)
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --editable '.[rtl,sim,formal,fpga,dev]'
mkdir -p "$venv/types"
ln -sfn ../.. "$venv/types/kvnode" # mypy finds the packages here.
touch "$venv/.ready"
