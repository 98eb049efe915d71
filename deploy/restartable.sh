#!/bin/sh
# Runs ata, and exits with 0 where starting it again does not help: wrong settings (64), bad data (65), refused (77). Docker, which cannot
# tell exit codes apart, then starts it again after every other failure, for ever. Installed in the image; docker-compose.yml uses it.
ata "$@" &
child=$!
trap 'kill -TERM "$child"' TERM
trap 'kill -INT "$child"' INT
# A signal ends `wait`, but not ata.
wait "$child"
code=$?
while kill -0 "$child" 2> /dev/null; do
    wait "$child"
    code=$?
done
case $code in
    64 | 65 | 77) echo "ata ended with $code; starting it again does not help" >&2 && exit 0 ;;
esac
exit "$code"
