#!/usr/bin/env bash
# Runs what starts processes again and again: a test or a training that ends badly by chance shows here.
# Usage: BIN=.venv/bin tools/repeat_processes.sh [DATA_PARALLEL] [OTHERS] [TRAININGS]   (default: 100 20 20)
set -euo pipefail
BIN=${BIN:-.venv/bin}
counts=("${1:-100}" "${2:-20}" "${3:-20}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

repeat() { # COUNT NAME COMMAND...: stops at the first run that fails, and shows its output
    local count=$1 name=$2 run
    shift 2
    for ((run = 1; run <= count; run++)); do
        printf '\r%s: run %d of %d' "$name" "$run" "$count"
        "$@" >"$folder/log" 2>&1 || { echo ": failed with status $?"; cat "$folder/log"; exit 1; }
        rm -rf "$folder/run"
    done
    echo ": all passed"
}

train=(epitomic train digits --epochs 1 --no-report --out "$folder/run")
pytest=("$BIN/python" -m pytest -p no:cacheprovider)
"${pytest[@]}" --repeat "${counts[0]}" tests/test_integration.py -k data_parallel_across_processes
"${pytest[@]}" --repeat "${counts[1]}" tests/training/test_distributed.py tests/training/test_photographs.py \
    tests/ops/test_threads.py -k "process or torchrun or fork"
repeat "${counts[2]}" "train --devices 2" "$BIN/python" -m "${train[@]}" --devices 2
repeat "${counts[2]}" torchrun "$BIN/python" -m torch.distributed.run --standalone --nproc-per-node 2 -m "${train[@]}"
