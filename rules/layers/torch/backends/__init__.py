class _Flags:
    enabled = False
    benchmark = False
    deterministic = False
    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = False

    def is_available(self):
        return False

    def is_built(self):
        return False

    def version(self):
        return 0

    def flags(self, *args, **kwargs):
        from torch.autograd.profiler import record_function
        return record_function("flags")

    def sdp_kernel(self, *args, **kwargs):
        from torch.autograd.profiler import record_function
        return record_function("sdp")

    def flash_sdp_enabled(self):
        return True

    def mem_efficient_sdp_enabled(self):
        return True

    def math_sdp_enabled(self):
        return True

    def get_fastpath_enabled(self):
        return True

    def set_fastpath_enabled(self, value):
        return None

    def enable_flash_sdp(self, value):
        return None

    def enable_math_sdp(self, value):
        return None

    def enable_mem_efficient_sdp(self, value):
        return None


class _Cuda(_Flags):
    matmul = _Flags()


cuda = _Cuda()
cudnn = _Flags()
mps = _Flags()
mkldnn = _Flags()
mkl = _Flags()
openmp = _Flags()
mha = _Flags()
opt_einsum = _Flags()
xnnpack = _Flags()
