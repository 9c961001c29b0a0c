#!/bin/sh
# each-test.sh DIRECTORY_OF_CRATE TEST_BINARY: runs each test by itself; user and system CPU seconds of it and what it starts, exit code, name.
cd "$1" || exit
"$2" --list --format terse | sed -n 's/: test$//p' | while read -r test; do
    told=$(mktemp)
    /usr/bin/time -o "$told" -f "%U %S %x" "$2" --exact "$test" >/dev/null 2>&1 </dev/null
    echo "$(tail -n 1 "$told") $test"
    rm "$told"
done
