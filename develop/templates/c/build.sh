#!/bin/sh
# Compiles the handler. continuo dev and continuo test run this before they pack the folder;
# CONTINUO_INCLUDE is the folder of continuo/handler.h.
set -eu
${CC:-cc} -O2 -Wall -shared -fPIC -I "${CONTINUO_INCLUDE:-/usr/include}" handler.c -o handler.so
