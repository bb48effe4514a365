#!/usr/bin/env bash
# `make demo`: the main job on a real SGLang release, on a CPU, from nothing to nothing.
set -euo pipefail
export PATH="$1:$PATH"
release=${2:-0.5.9}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sglang=$work/sglang-$release

show() { printf '\n$ %s\n' "${*//$work\//}"; }
run() {
    show "$@"
    "$@"
}
# every file of the tree but bytecode, as one number
digest() {
    (cd "$sglang/sglang" && find . -name __pycache__ -prune -o -type f -print0 |
        sort -z | xargs -0 sha256sum | sha256sum)
}

run patchkit fetch "$release" --into "$sglang"
before=$(digest)
run patchkit apply debug-logging --target "$sglang"
run patchkit status --target "$sglang"
show patchkit diff debug-logging "# only its part in llama_eagle3.py"
patchkit diff debug-logging --target "$sglang" |
    awk '/^diff --git/ { ours = /llama_eagle3/ } ours'
run patchkit apply debug-logging --target "$sglang"

printf '\nThe patched modules run, on a CPU and on a tiny DeepSeek-V3-style target and its EAGLE-3 draft:\n'
show patchkit verify --keep runs "# captures, draft, two ranks, gates, bf16"
patchkit verify --target "$sglang" --python "$1/python" --keep "$work/runs"

printf '\nWhat the taps said of one prefill and one decode step, with the gate on:\n'
show "grep -o 'EAGLE3_DEBUG.*' runs/gated/0.log | head -n 8"
grep -o 'EAGLE3_DEBUG\[.*' "$work/runs/gated/0.log" >"$work/said" || { echo "no tap spoke"; exit 1; }
head -n 8 "$work/said"

run patchkit revert --target "$sglang"
after=$(digest)
[ "$before" = "$after" ] || { echo "the tree is NOT what it was"; exit 1; }
printf '\nThe tree is byte for byte what it was: %s\n' "${after%% *}"
