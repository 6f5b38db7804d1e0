reproducibility_notes = {}
tf32_notes = {}
sparse_support_notes = {}
factory_common_args = {}
common_args = {}
