#!/bin/bash
# The checker of the include order against a synthetic tree: it lets right code pass and names what is wrong.
. "$ECH_SRC/tests/support/check.sh"

tree=$work/tree
checker=$ECH_SRC/tools/check_includes

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree"/{include/echelon,examples,src/{base/file,graph,plan,device/cpu,report,cli}}
    echo '#include <stddef.h>' >"$tree/include/echelon/echelon.h"
    printf '%s\n' '#include "echelon/echelon.h"' '#include <jansson.h>' >"$tree/src/base/file/json.c"
    printf '%s\n' '#include "graph/graph.h"' '/* #include "cli/main.h" and printf("x") */' \
        'const char *text = "puts(stderr)"; // exit(1)' 'int x = snprintf(a, b, "c");' >"$tree/src/graph/graph.c"
    printf '%s\n' '#include "plan/plan.h"' '#include <dnnl.h>' '#include <hwloc.h>' >"$tree/src/device/cpu/cpu.c"
    printf '%s\n' '#include "device/cpu/cpu.h"' 'int main(void) { printf("hello"); exit(0); }' >"$tree/src/cli/main.c"
    echo '#include "echelon/echelon.h"' >"$tree/examples/one.c"
}

# offence NAME FILE LINE-TO-ADD EXPECTED: the line, added to a right tree, is named with its place.
offence() {
    fresh
    echo "$3" >>"$tree/$2"
    refuse "$1: is refused" "$checker" "$tree"
    says "$1: is named" "$4" "$checker" "$tree"
}

fresh
check "a right tree passes" "$checker" "$tree"
says "and nothing is printed" '^0$' bash -c '"$0" "$1" | wc -l' "$checker" "$tree"

offence "an upward include" src/graph/graph.c '#include "device/cpu/cpu.h"' \
    '^src/graph/graph\.c:5: graph may not include device, which is a higher layer$'
offence "an upward include with odd spaces" src/graph/graph.c '  #  include  "cli/main.h"' \
    '^src/graph/graph\.c:5: graph may not include cli'
offence "an include without a layer" src/base/file/json.c '#include "status.h"' \
    '^src/base/file/json\.c:3: .*names no layer'
offence "Jansson in another file" src/graph/graph.c '#include <jansson.h>' \
    '^src/graph/graph\.c:5: <jansson\.h> belongs to src/base/file/json\.c'
offence "pango in another file" src/cli/main.c '#include <pango/pangocairo.h>' \
    '^src/cli/main\.c:3: <pango/pangocairo\.h> belongs to src/report/cairo\.c'
offence "the HTTP server in another file" src/cli/main.c '#include <microhttpd.h>' \
    '^src/cli/main\.c:3: <microhttpd\.h> belongs to src/lab/serve\.c'
offence "a report that includes more than records" src/report/style.c '#include "plan/plan.h"' \
    '^src/report/style\.c:1: report includes only base and report, not plan'
offence "oneDNN outside of the cpu device" src/plan/plan.c '#include <oneapi/dnnl/dnnl.h>' \
    '^src/plan/plan\.c:1: .*belongs to src/device/cpu/'
offence "BLAS outside of the cpu device" src/plan/plan.c '#include <cblas.h>' \
    '^src/plan/plan\.c:1: <cblas\.h> belongs to src/device/cpu/'
offence "MPI outside of comm" src/plan/plan.c '#include <mpi.h>' '^src/plan/plan\.c:1: <mpi\.h> belongs to src/comm/'
offence "hwloc in a second file" src/plan/plan.c '#include <hwloc.h>' \
    '^src/plan/plan\.c:1: <hwloc\.h> is already behind'
offence "printf in the library" src/graph/graph.c 'void f(void) { printf("x"); }' '^src/graph/graph\.c:5: printf'
offence "stderr in the library" src/graph/graph.c 'void f(void) { fprintf(stderr, "x"); }' \
    '^src/graph/graph\.c:5: stderr'
offence "exit in the library" src/graph/graph.c 'void f(void) { exit (1); }' '^src/graph/graph\.c:5: exit'
offence "an example that reaches inside" examples/one.c '#include "graph/graph.h"' '^examples/one\.c: .*not public'

fresh
mkdir "$tree/src/utils" && touch "$tree/src/utils/a.c"
says "an unknown layer is named" '^src/utils/a\.c:1: src/utils is not a layer' "$checker" "$tree"
rm -rf "$tree/src"
refuse "a tree without source is refused" "$checker" "$tree"
finish
