"""What later versions of Python have."""

from weft.support.backports import override


class Shape:
    def area(self) -> float:
        raise NotImplementedError


class Square(Shape):
    @override
    def area(self) -> float:
        return 1.0


def test_override_marks_a_method_and_leaves_it_as_it_is():
    assert Square().area() == 1.0
    assert vars(Square)["area"].__override__
