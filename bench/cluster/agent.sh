#!/bin/sh
# agent [ssh's options] HOST COMMAND…: what launchers call in place of ssh, on the head. STATE stands for a path.
# The command's words are joined for a shell, as ssh does; unlike ssh it keeps the caller's environment and folder.
# That shell is bash, which becomes the command, so that the TERM of a lost caller reaches it.
while :; do
    case $1 in
        -[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
host=${1#*@}
shift
if [ "$(hostname)" != head ]; then
    echo "agent: from $(hostname) no other host can be entered, only from head" >&2
    exit 255
fi
[ "$host" = head ] && exec bash -c "$*"
if ! pid=$(cat "STATE/pids/$host" 2>/dev/null); then
    echo "agent: host $host is not up" >&2
    exit 255
fi
exec nsenter --target "$pid" --net --uts --ipc --mount --pid -- setpriv --pdeathsig TERM env -C "$PWD" bash -c "$*"
