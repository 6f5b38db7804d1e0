class Number:
    __abstract_check__ = staticmethod(lambda v: isinstance(v, (int, float)))


class Complex(Number):
    pass


class Real(Complex):
    pass


class Rational(Real):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, int))


class Integral(Rational):
    __abstract_check__ = staticmethod(lambda v: isinstance(v, int))
