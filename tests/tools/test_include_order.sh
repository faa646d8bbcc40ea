#!/bin/bash
# The source itself keeps the order of its layers.
. "$ECH_SRC/tests/support/check.sh"
check "layers include only lower layers" "$ECH_SRC/tools/check_includes"
finish
