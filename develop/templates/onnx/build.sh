#!/bin/sh
# Makes the model. continuo dev and continuo test run this before they pack the folder; PYTHON names
# an interpreter that has the package onnx.
set -eu
if [ ! -e model.onnx ] || [ make_model.py -nt model.onnx ]; then
    "${PYTHON:-python3}" make_model.py
fi
