#!/bin/sh
# Makes the model. continuo dev and continuo test run this before they pack the folder; PYTHON names
# an interpreter that has PyTorch.
set -eu
if [ ! -e model.pt ] || [ make_model.py -nt model.pt ]; then
    "${PYTHON:-python3}" make_model.py
fi
