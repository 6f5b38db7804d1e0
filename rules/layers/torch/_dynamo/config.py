cache_size_limit = 8
