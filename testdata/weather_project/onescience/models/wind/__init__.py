from .wind import Wind
