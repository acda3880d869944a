#!/bin/sh
# Print the Python to use (the first one >= 3.11), or say in one line what to install.
missing=""
for tool in g++ make perl; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done

python=""
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    missing="$missing python3(>=3.11) python3-venv"
elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    missing="$missing python3-venv"
fi

if [ -n "$missing" ]; then
    echo "kvnode needs$missing; on Debian or Ubuntu: apt-get install g++ make perl python3 python3-venv" >&2
    exit 1
fi
echo "$python"
