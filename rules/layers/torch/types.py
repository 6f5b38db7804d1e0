from typing import Any

Device = Any
Number = Any
_size = Any
_dtype = Any
_device = Any
_bool = bool
_int = int
_float = float
FileLike = Any
