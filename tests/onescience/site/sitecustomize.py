"""On PYTHONPATH: every process of a training run finds Megatron's names."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import shim  # noqa: E402

shim.install(os.environ.get("SHIM_PACKAGES"))
