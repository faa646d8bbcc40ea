#!/bin/bash
# The source itself keeps the order of its rooms.
. "$ECH_SRC/tests/support/check.sh"
check "rooms include only what stands before them" "$ECH_SRC/tools/check_includes"
finish
