# The runtime as the abstract interpreter sees it.
