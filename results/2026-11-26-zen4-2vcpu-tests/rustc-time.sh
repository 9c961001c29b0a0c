#!/bin/sh
# As RUSTC_WRAPPER: a line for each unit that cargo compiles, into the file that UNITS names: user and system CPU seconds, crate, kind, optimisation.
name= kind= optimisation= before=
for word in "$@"; do
    case $before in
    --crate-name) name=$word ;;
    --crate-type) kind=$word ;;
    -C) case $word in opt-level=*) optimisation=$word ;; esac ;;
    esac
    [ "$word" != --test ] || kind=tests
    before=$word
done
[ -n "$name" ] && [ "$name" != ___ ] || exec "$@"
exec /usr/bin/time -a -o "$UNITS" -f "%U %S $name $kind ${optimisation:-opt-level=0}" "$@"
