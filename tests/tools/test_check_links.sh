#!/bin/bash
# The checker of links against made-up pages.
. "$ECH_SRC/tests/support/check.sh"

checker=$ECH_SRC/tools/check_links
mkdir -p "$work/pages/docs"
cat >"$work/pages/docs/tour.md" <<'END'
# A tour, in `reading` order

[up](../README.md) and [here](#a-tour-in-reading-order) and [again](#twice-1)

## Twice
## Twice
END
cat >"$work/pages/README.md" <<'END'
# Top
[tour](docs/tour.md), [part](docs/tour.md#twice), [folder](docs), [web](https://example.org/x)
`[code](nowhere.md)`
```
[code](nowhere.md)
```
[later]: docs/tour.md
END
check "right links pass" "$checker" "$work/pages"

# dead LINK WHY: such a link on line 9 is named.
cp "$work/pages/README.md" "$work/good.md"
dead() {
    { cat "$work/good.md"; printf '\n%s\n' "$1"; } >"$work/pages/README.md"
    says "$1 is named" "^README\.md:9: .*: $2" "$checker" "$work/pages"
    refuse "$1 is refused" "$checker" "$work/pages"
}
dead '[a](nowhere.md)' 'no such file'
dead '[a](docs/tour.md#thrice)' 'no such heading'
dead '![a](plot.svg "title")' 'no such file'
dead '[a]: nowhere.md' 'no such file'
finish
