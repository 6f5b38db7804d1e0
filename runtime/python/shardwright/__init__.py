"""Shardwright: from single-GPU PyTorch models to tensor- and pipeline-parallel ones."""
