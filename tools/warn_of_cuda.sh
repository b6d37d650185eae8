#!/bin/sh
# Says so if `pip install torch` would take a build with CUDA, and how to take a small one.
# usage: tools/warn_of_cuda.sh PIP-INSTALL-COMMAND...
if "$@" --dry-run --report - 2>/dev/null | grep -q '"name": "nvidia-'; then
    echo "note: pip will take a torch with CUDA, some gigabytes. epitomic needs the CPU build only (about 200 MB)."
    echo "      To take that one, stop now (Ctrl-C), set PIP_EXTRA_INDEX_URL to the index of torch's CPU builds"
    echo "      (pytorch.org, Get Started, compute platform CPU, shows it), and run the command again."
fi
