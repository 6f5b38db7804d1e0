# Decompositions: every element of a result depends on the whole matrix.
import torch
from torch import _opaque


def _of(name, A, *sizes):
    return _opaque("torch.linalg." + name, tuple(A.shape[:-2]) + sizes, A.dtype, A)


def qr(A, mode="reduced"):
    m, n = A.shape[-2:]
    k = m if mode == "complete" else min(m, n)
    return (_of("qr", A, m, k), _of("qr", A, k, n))


def svd(A, full_matrices=True, *, driver=None):
    m, n = A.shape[-2:]
    k = min(m, n)
    return (_of("svd", A, m, m if full_matrices else k), svdvals(A), _of("svd", A, n if full_matrices else k, n))


def svdvals(A, *, driver=None):
    return _of("svdvals", A, min(A.shape[-2:]))


def eigh(A, UPLO="L"):
    return (_of("eigh", A, A.shape[-1]), _of("eigh", A, *A.shape[-2:]))


def eigvalsh(A, UPLO="L"):
    return _of("eigvalsh", A, A.shape[-1])


def slogdet(A):
    return (_of("slogdet", A), _of("slogdet", A))


def lu_factor(A, *, pivot=True):
    return (_of("lu_factor", A, *A.shape[-2:]), _of("lu_factor", A, min(A.shape[-2:])).int())


def lu(A, *, pivot=True):
    m, n = A.shape[-2:]
    k = min(m, n)
    return (_of("lu", A, m, m), _of("lu", A, m, k), _of("lu", A, k, n))


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    return _opaque("torch.linalg.solve_triangular", tuple(B.shape), B.dtype, A, B)
